"""What a person types and gets: exit codes, stdout and stderr, JSON, and no torch for --help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from eyechart.cli import main
from eyechart.engines import inline


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    result = call("exam", "--limit", "64", "--measures", "recognition,cka,attention_distance", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.rstrip().endswith(f"report: {out / 'report.html'}")
    assert "verdicts decided" in result.stdout
    assert "images: " in result.stderr
    return out


@pytest.mark.parametrize("words", [["--help"], ["exam", "--help"], ["train", "--help"], ["--version"]])
def test_help_does_not_import_torch(words: list[str]) -> None:
    program = f"""
import sys
from eyechart.cli import main
try:
    main({words!r})
except SystemExit as end:
    heavy = [name for name in ("torch", "timm", "pandas", "altair", "xarray") if name in sys.modules]
    sys.exit(f"imported {{heavy}}" if heavy else end.code)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


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
    assert next(line for line in lines if line.startswith("position_at ")).split()[1:3] == ["one", "of"]
    untrained = call("subjects", "mixer").stdout
    assert "MLP-Mixer" in untrained
    assert "accuracy" not in untrained


def test_show_for_people(folder: Path) -> None:
    text = call("show", folder).stdout
    assert "uniformity" in text
    assert "C13" in text
    assert not any(line.endswith(" ") for line in text.splitlines())


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
    assert [claim["id"] for claim in claims] == [f"C{number:02d}" for number in range(1, 73)]


def test_lists_for_people() -> None:
    assert "94.85%" in call("subjects").stdout
    listed = call("measures").stdout
    assert "decides C13, C14, C15, C60" in listed
    assert "--set cka.tokens=plain (or normalised)" in listed
    assert "C13" in call("claims").stdout


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["exam", "zoo:vitt"], 2, "did you mean zoo:vit"),
        (["exam", "timm:resnet18", "--limit", "4"], 1, "@random"),
        (["exam", "zoo:vit", "zoo:vit"], 2, "zoo:vit"),
        (["exam", "--measures", "nothing"], 2, "No measure is called 'nothing'"),
        (["exam", "--set", "cka"], 2, "MEASURE.OPTION=VALUE"),
        (["exam", "--images", "nowhere"], 1, "nowhere"),
        (["exam", "--device", "tpu9"], 2, "--device cpu"),
        (["exam", "--dtype", "int3"], 2, "float32"),
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


def test_skipped_files_are_listed_and_end_with_3(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(9):
        Image.new("RGB", (40, 40), (number * 20, 0, 0)).save(photos / f"{number}.png")
    (photos / "text.jpg").write_text("not a picture")
    Image.new("RGB", (1, 1)).save(photos / "dot.png")
    result = call("exam", "zoo:resnet", "--images", photos, "--measures", "feature_variance", "--out", tmp_path / "run")
    assert result.exit_code == 3
    assert "text.jpg" in result.stderr
    assert "dot.png" in result.stderr
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert {Path(problem["path"]).name for problem in plan["images"]["problems"]} == {"text.jpg", "dot.png"}
    assert plan["images"]["used"] == 9


def test_an_interruption_says_that_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inline, "examine_shard", interrupt)
    result = call("exam", "zoo:resnet", "--limit", "8", "--measures", "recognition", "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert "the same command goes on from there" in result.stderr


def test_completion() -> None:
    assert "_EYECHART_COMPLETE" in call("completion", "bash").stdout
    assert call("completion", "tcsh").exit_code == 2
