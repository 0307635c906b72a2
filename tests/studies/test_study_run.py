"""A whole study, small: trained, examined, recorded, gone on with, and judged over seeds."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from eyechart.cli import main
from eyechart.studies.records import Records
from eyechart.studies.study import find
from eyechart.studies.verdicts import verdicts_of
from tests.training.toys import write_toys

STUDY = """
title = "A small one"
question = "Does it run?"
row = 99
data = "toys"
minutes = 1
seeds = [0, 1, 2]

[common]
recipe = "none"
epochs = 3
warmup_epochs = 1
batch_size = 40
stop_after = "warmup"
snapshots = ["warmup"]
device = "cpu"
learning_rate = 0.01

[[arm]]
name = "small"
model = "vit"
switches = { depth = 1, width = 16, heads = 2, patch = 8 }

[[arm]]
name = "wide"
model = "vit"
switches = { depth = 1, width = 32, heads = 2, patch = 8 }

[[exam]]
name = "both"
arms = ["small", "wide"]
together = true
snapshot = "warmup"
images = "train"
limit = 160
measures = ["recognition", "calibration"]

[[contrast]]
name = "gap"
quantity = "test_error"
words = "error, small minus wide"
weights = { small = 1, wide = -1 }

[[claim]]
id = "C55"
reading = "as a toy"
gates = ["g1-trained"]
parts = [{ contrast = "gap", side = "above", margin = 0.0 }]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    (folder / "toy.toml").write_text(STUDY)
    write_toys(folder / "toys.npz", train=160, test=80)
    return folder


def command(place: Path, *words: str) -> list[str]:
    data = ["--data", str(place / "toys.npz"), "--work", str(place / "work")]
    return ["study", str(place / "toy.toml"), "--records", str(place / "records"), *data, *words]


def test_a_study_runs_goes_on_and_is_judged_over_seeds(place: Path) -> None:
    runner = CliRunner()
    first = runner.invoke(main, command(place, "--seeds", "0"))
    assert first.exit_code == 0, first.output
    file = place / "records" / "toy.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line.get("arm") or line["exam"] for line in lines] == ["small", "wide", "both"]
    study = find(str(place / "toy.toml"))
    assert all(line["registered"] == study.registered and line["study_file"] == study.hash for line in lines)
    assert lines[0]["epochs"] == 1, "it stopped after the warm-up"
    assert lines[2]["arms"] == ["small", "wide"]
    assert {tuple(row[2]) for row in lines[2]["rows"]} >= {("small@warmup",), ("wide@warmup",)}

    (alone,) = verdicts_of(Records.of(study, place / "records"))
    assert alone.verdict.verdict == "undecided"
    assert alone.verdict.reason.startswith("Undecided with 1 seed; at least 3 are needed.")

    rest = runner.invoke(main, command(place, "--parallel", "2"))
    assert rest.exit_code == 0, rest.output
    assert "small seed 0" not in rest.output, "what is recorded is not run again"
    records = Records.of(study, place / "records")
    assert len(records.lines) == 9
    assert all(records.recorded(arm.name, seed) for arm, seed in study.runs)
    (judged,) = verdicts_of(records)
    assert judged.verdict.scope == "this architecture, over 3 seeds"
    assert judged.intervals[0].low < judged.intervals[0].value < judged.intervals[0].high
    errors = [[records.training(arm, seed)["scores"]["test_error"][0] for seed in range(3)] for arm in study.arms]
    assert judged.verdict.effect == pytest.approx(sum(errors[0]) / 3 - sum(errors[1]) / 3, abs=1e-5)
    assert judged.registered == "before the runs"
    assert "Nothing is missing" in runner.invoke(main, command(place)).output


def test_a_margin_that_changed_after_the_runs_is_called_so(place: Path) -> None:
    changed = place / "changed"
    changed.mkdir()
    (changed / "toy.toml").write_text(STUDY.replace("wide = -1", "wide = -2"))
    study = find(str(changed / "toy.toml"))
    (judged,) = verdicts_of(Records.of(study, place / "records"))
    assert judged.registered == "changed after the runs"


def test_a_dry_run_says_what_would_run(place: Path) -> None:
    result = CliRunner().invoke(main, command(place, "--fresh", "--records", str(place / "elsewhere"), "--dry-run"))
    assert result.exit_code == 0, result.output
    assert "6 trainings, about 1 GPU-minutes" in result.output
    assert not (place / "elsewhere").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("wide = -1", "wade = -1"), "names the arm 'wade', which the study does not have; did you mean wide?"),
        (('contrast = "gap"', 'contrast = "gup"'), "asks for a contrast 'gup' that is not there"),
        (("margin = 0.0", "margin = 0.5"), "claims.toml fixes"),
        (("depth = 1, width = 16", "dept = 1"), "dept"),
        (("seeds = [0, 1, 2]", "seeds = 0, 1"), "is no TOML"),
    ],
)
def test_a_mistake_in_a_study_is_told_before_anything_runs(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    (tmp_path / "toy.toml").write_text(STUDY.replace(*change))
    result = CliRunner().invoke(main, ["study", str(tmp_path / "toy.toml"), "--dry-run"])
    assert result.exit_code != 0
    assert words in result.output
    assert "Traceback" not in result.output
