"""What a person types and gets: exit codes, stdout and stderr, JSON, and no torch for --help."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from eyechart.claims.table import CLAIMS
from eyechart.cli import main
from eyechart.measure_options import meanings_of
from eyechart.measures import measures
from eyechart.terminal import quantity_of


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    result = call("exam", "--limit", "64", "--measures", "recognition,cka,attention_distance", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.rstrip().endswith(f"report: {out / 'report.html'}")
    assert "verdicts decided" in result.stdout
    assert re.search(r"^ *\d+%, about \d+:\d\d left: images ", result.stderr, re.MULTILINE)
    return out


@pytest.mark.parametrize("words", [["--help"], ["exam", "--help"], ["train", "--help"], ["--version"]])
def test_help_does_not_import_torch(words: list[str]) -> None:
    program = f"""
import sys
from eyechart.claims.table import CLAIMS
from eyechart.cli import main
try:
    main({words!r})
except SystemExit as end:
    heavy = [name for name in ("torch", "timm", "pandas", "altair", "xarray") if name in sys.modules]
    sys.exit(f"imported {{heavy}}" if heavy else end.code)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_list_of_commands_holds_whole_sentences() -> None:
    listed = call("--help").stdout.split("Commands:")[1].split("Exit codes:")[0]
    assert "..." not in listed
    assert "for eyechart." in listed  # the end of a sentence that one line of 80 columns cannot hold


def test_it_runs_as_a_module_under_its_own_name() -> None:
    helped = subprocess.run([sys.executable, "-m", "eyechart", "exam", "--help"], capture_output=True, text=True)
    assert helped.returncode == 0, helped.stderr
    assert helped.stdout.startswith("Usage: eyechart exam ")
    wrong = subprocess.run([sys.executable, "-m", "eyechart", "claims", "C99"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("eyechart: No claim is called 'C99'")


def test_importing_eyechart_does_not_import_torch() -> None:
    program = "import sys, eyechart; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_show_writes_a_number_with_the_decimals_of_its_interval(folder: Path) -> None:
    shown = call("show", folder).stdout
    assert re.search(r"\[−?\d\.\d+, −?\d\.\d+\]", shown)
    assert not re.search(r"\s-\d|\[-\d", shown), "a minus sign is one, as on the page"
    for value, low, high in re.findall(r"([−\d.]+)(?: \w+)* +\[([−\d.]+), ([−\d.]+)\]", shown):
        assert len({len(number.partition(".")[2]) for number in (value, low, high)}) == 1, (value, low, high)


def test_show_json(folder: Path) -> None:
    shown = json.loads(call("show", folder, "--json").stdout)
    assert shown["subjects"] == ["zoo:vit", "zoo:resnet"]
    uniformity = shown["findings"]["cka"]["uniformity zoo:vit"]
    assert uniformity["low"] < uniformity["value"] < uniformity["high"]
    keys = {"claim", "subjects", "scope", "verdict", "effect", "low", "high", "reason"}
    assert all(keys <= verdict.keys() for verdict in shown["verdicts"])
    assert {"holds", "fails", "undecided", "not tested"} >= {verdict["verdict"] for verdict in shown["verdicts"]}


def test_a_card_is_readable_and_names_the_switches() -> None:
    lines = call("subjects", "vit").stdout.splitlines()
    facts = {line[:14].strip(): line[14:].strip() for line in lines}
    assert facts["accuracy"] == "92.02%"
    assert facts["parameters"] == "2,803,850"
    assert facts["command"].startswith("eyechart train vit ")
    assert next(line for line in lines if line.startswith("position_at ")).split()[1:4] == ["stem", "one", "of"]
    assert next(line for line in lines if line.startswith("qkv_bias ")).split()[1:3] == ["on", "on"]
    untrained = call("subjects", "mixer").stdout
    assert "MLP-Mixer" in untrained
    assert "accuracy" not in untrained


def block_of(text: str, claim: str) -> str:
    """What is said of a claim, as one line."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(claim))
    end = next(at for at in range(start + 1, len(lines) + 1) if at == len(lines) or not lines[at].startswith(" "))
    return " ".join(" ".join(lines[start:end]).split())


def test_show_for_people(folder: Path) -> None:
    text = call("show", folder).stdout
    assert "uniformity" in text
    assert not any(line.endswith(" ") for line in text.splitlines())
    told = text[: text.index("\nmeasure ")]  # verdicts first, then all numbers
    assert max(map(len, told.splitlines())) <= 100  # also piped
    assert "nan" not in text.split()
    row = block_of(told, "C13")
    shown = "likeness within stages of zoo:resnet above that across"
    assert f"] zoo:vit, zoo:resnet: {shown}" in row
    assert row.count(shown) == 1  # the reason does not repeat what has a line of its own
    of_two = block_of(told, "C09")
    assert "early head of zoo:vit, uniform = 1; asked: " in of_two
    assert "(1 of 2 parts)" in of_two
    assert "Decided without" not in text


def test_the_shown_number_is_that_of_the_named_part(folder: Path) -> None:
    from eyechart.run import Run

    for verdict in Run(folder).verdicts:
        if verdict.effect is not None:
            assert verdict.shown is not None
            told = quantity_of(verdict).removeprefix(f"{', '.join(verdict.subjects)}: ")
            assert told.startswith(verdict.shown.words)
            assert (verdict.shown.effect, verdict.shown.low) == (verdict.effect, verdict.low)
        assert "\n" not in repr(verdict)
        assert len(repr(verdict)) < 100
    several = next(verdict for verdict in Run(folder).verdicts if verdict.claim == "C10")
    other = next(part for part in several.parts if part != several.shown)
    moved = replace(several, effect=other.effect, low=other.low, high=other.high)
    assert other.words in quantity_of(moved)


def test_every_option_says_what_it_does() -> None:
    silent = [
        f"{name} --{option.name}"
        for name, command in main.commands.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert not silent
    assert all(meaning for measure in measures().values() for meaning in meanings_of(measure).values())


def test_an_exam_of_one_measure_imports_no_other() -> None:
    program = """
import sys
from eyechart.exam import exam
from eyechart.measures import choose_measures
choose_measures("cka")
heavy = ("eyechart.measures.", "eyechart.curvature", "eyechart.training", "eyechart.studies", "eyechart.corruptions")
others = [name for name in sys.modules if name.startswith(heavy) and not name.startswith("eyechart.measures.cka")]
sys.exit(f"imported {others}" if others else 0)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_exit_codes_are_in_the_help() -> None:
    text = call("--help").stdout
    assert all(f"  {code}  " in text for code in ("0", "1", "2", "3", "130"))


def test_the_folder_above_names_the_runs_in_it(folder: Path) -> None:
    result = call("show", folder.parent)
    assert result.exit_code == 1
    assert f"it has no plan.json. It holds {folder}." in result.stderr


def test_report_and_figures(folder: Path, tmp_path: Path) -> None:
    (folder / "report.html").unlink()
    result = call("report", folder)
    assert result.exit_code == 0
    assert Path(result.stdout.strip()).exists()
    made = call("figures", folder, "--format", "pdf", "--out", tmp_path).stdout.split()
    assert {Path(path).name for path in made} == {"recognition.pdf", "cka.pdf", "attention_distance.pdf"}
    assert all(Path(path).read_bytes().startswith(b"%PDF") for path in made)


def test_anatomy_json() -> None:
    found = json.loads(call("anatomy", "zoo:vit", "--json").stdout)
    assert found["subject"] == "zoo:vit"
    assert {site["role"] for site in found["sites"]} == {"stem", "junction", "attention", "block", "features", "head"}
    attention = next(site for site in found["sites"] if site["role"] == "attention")
    assert (attention["heads"], attention["grid"]) == (8, [8, 8])
    assert {"path", "role", "kind", "depth", "stage", "grid", "heads"} <= attention.keys()
    assert isinstance(found["notes"], list)


def test_anatomy_for_people() -> None:
    text = call("anatomy", "zoo:resnet").stdout
    assert "layer2.0 conv junction" in text
    assert "projected skip" in text
    assert "8 blocks, 8 junctions, 0 attentions" in text


def test_lists_as_json() -> None:
    assert "zoo:vit" in [row["spec"] for row in json.loads(call("subjects", "--json").stdout)]
    assert json.loads(call("subjects", "vit", "--json").stdout)[0]["card"]["accuracy"] > 0.85
    assert "cka" in [row["name"] for row in json.loads(call("measures", "--json").stdout)]
    claims = json.loads(call("claims", "--json").stdout)
    assert [claim["id"] for claim in claims] == list(CLAIMS)
    assert all(bool(claim["readings"]) == (claim["settled_by"] == "exam") for claim in claims)
    (reading, *_) = claims[list(CLAIMS).index("C13")]["readings"]
    assert reading["measure"] == "cka"
    assert {"quantity", "words", "side", "margin", "inclusive", "asks"} <= reading["parts"][0].keys()


def test_lists_for_people() -> None:
    listed = call("subjects").stdout
    assert "94.85%" in listed
    snapshot = next(line for line in listed.splitlines() if line.startswith("zoo:vit@warmup"))
    assert "%" not in snapshot  # the accuracy of the finished training is not its own
    listed = call("measures").stdout
    assert max(map(len, listed.splitlines())) <= 100
    listed = " ".join(listed.replace("  of PGD", " of PGD").split())
    assert "decides C13, C14, C15, C60" in listed
    assert "--set cka.tokens=plain (or normalised)" in listed
    assert "--set robustness.steps=-1 of PGD; −1: by effort (quick 0, normal 10, full 40)." in listed
    images = [text for text in listed.split("--set ") if ".images=0" in text]
    assert len(images) > 10
    assert all("0: as " in text or "effort" in text for text in images)


def test_names_of_one_library() -> None:
    found = call("subjects", "timm:vit_b").stdout.splitlines()  # torchvision has a vit_b_16
    assert "timm:vit_base_patch16_224" in found
    assert all(line.startswith("timm:") for line in found)
    assert "zoo:vit@warmup" in call("subjects", "vit@warmup").stdout


def test_claims_for_people() -> None:
    assert call("claims", "c09").stdout == call("claims", "9").stdout == call("claims", "C09").stdout
    assert "settled by  exam (skip_removal)" in call("claims", "C25").stdout
    assert "test        cka: uniformity_gap at least 0.1" in call("claims", "C13").stdout
    one = call("claims", "C37").stdout
    assert "settled by  study base; needs a ViT and a CNN trained on 2, 6" in one
    assert "study: no exam decides it" in one
    assert call("claims").stdout.count("study: no exam decides it") == 1


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["exam", "zoo:vitt"], 2, "did you mean zoo:vit"),
        (["exam", "timm:resnet18", "--limit", "4"], 1, "@random"),
        (["exam", "zoo:vit", "zoo:vit"], 2, "zoo:vit"),
        (
            ["exam", "--measures", "quux"],
            2,
            "No measure is called 'quux'; there are attention_distance",
        ),
        (["exam", "--measures", "CAK"], 2, "No measure is called 'CAK'; did you mean cka?"),
        (["exam", "--measures", " , "], 2, "No measure is named"),
        (["exam", "--measures", ""], 2, "No measure is named"),
        (["exam", "--measures", "cka,", "--set", "cka.redout=gap"], 2, "no option 'redout'; did you mean readout?"),
        (["exam", "--set", "probe.rows=9"], 2, "none is called 'probe'; did you mean probes?"),
        (["exam", "--measures", "cka", "--set", "probes.rows=9"], 2, "add probes to --measures"),
        (["subjects", "hf:google/vit"], 2, "cannot be listed"),
        (["exam", "--set", "cka"], 2, "MEASURE.OPTION=VALUE"),
        (["exam", "--images", "nowhere"], 1, "nowhere"),
        (["exam", "--device", "tpu9"], 2, "--device cpu"),
        (["exam", "--dtype", "int3"], 2, "float32"),
        (["exam", "--dtype", "tf32", "--device", "cpu"], 2, "--dtype tf32 needs an NVIDIA GPU; on cpu take float32"),
        (["show", "nowhere"], 2, "A run folder was expected"),
        (["subjects", "no-such-thing-anywhere"], 2, "No subject matches"),
    ],
)
def test_mistakes_get_one_sentence(words: list[str], code: int, sentence: str) -> None:
    result = call(*words)
    assert result.exit_code == code
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_completion() -> None:
    assert "_EYECHART_COMPLETE" in call("completion", "bash").stdout
    assert call("completion", "tcsh").exit_code == 2


@pytest.mark.posix
def test_a_reader_that_went_away_is_not_told_so() -> None:
    command = f"{shlex.quote(sys.executable)} -m eyechart measures | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("encoding", ["cp1252", "cp949"])
def test_what_an_encoding_lacks_is_said_plainly(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a pipe or a file Windows writes in the code page of the country: `eyechart claims` ended in a traceback."""
    for words in (["claims"], ["claims", "--json"], ["--help"]):
        written = io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True))
            with pytest.raises(SystemExit, match="0"):
                main(words)
        said = written.getvalue().decode(encoding)
        if "--json" in words:
            assert {row["id"]: row["sentence"] for row in json.loads(said)} == {
                claim.id: claim.sentence for claim in CLAIMS.values()
            }
        elif words == ["claims"]:
            assert "less than -0.5" in said, "a minus stays one"


@pytest.mark.skipif(os.name != "posix", reason="a terminal of a given width is made by pty")
def test_piped_lines_are_as_long_as_the_terminal_that_is_left() -> None:
    """`eyechart measures | head` wrapped at 100 letters in a window of 80; stderr still knows the window."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    asking = [sys.executable, "-c", "from eyechart.terminal import line_width; print(line_width())"]
    unset = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    for environment, width in ((unset, "72"), (unset | {"COLUMNS": "60"}, "60")):
        told = subprocess.run(asking, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, env=environment)
        assert told.stdout.decode().strip() == width
    os.close(ours)
    os.close(theirs)
