"""A whole study, small: trained, examined, recorded, gone on with, and judged over seeds."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from eyechart.cli import main
from eyechart.errors import PARTLY, NotFinite
from eyechart.studies.records import Records, missing
from eyechart.studies.repeats import in_words, repeats
from eyechart.studies.run import Schedule, run_study
from eyechart.studies.study import find
from eyechart.studies.verdicts import verdicts_of
from eyechart.studies.worker import work
from eyechart.training.records import Records as TrainingRecords
from eyechart.training.workers import Ended, Job
from tests.studies.texts import study_text
from tests.training.toys import WorkerHere, write_toys

STUDY = study_text(
    """
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
switches = { depth = 3, width = 16, heads = 2, patch = 8 }

[[arm]]
name = "wide"
model = "vit"
switches = { depth = 1, width = 32, heads = 2, patch = 8 }

[[arm]]
name = "less"
model = "vit"
switches = { depth = 3, width = 16, heads = 2, patch = 8 }
fraction = 0.5

[[exam]]
name = "both"
arms = ["small", "wide"]
together = true
snapshot = "warmup"
images = "train"
limit = 160
measures = ["recognition", "calibration"]

[[exam]]
name = "likeness"
arms = ["less", "small"]
next_seed = ["small"]
together = true
snapshot = "warmup"
images = "sample"
limit = 64
block = 16
measures = ["depth_similarity"]

[[contrast]]
name = "likeness over depth"
quantity = "data_slope"
words = "slope over depth of the likeness of less and more data"
weights = { "less | small" = 1 }

[[claim]]
id = "C37"
reading = "as a toy"
parts = [{ contrast = "likeness over depth", side = "below", margin = 0.0 }]

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
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    (folder / "toy.toml").write_text(STUDY)
    write_toys(folder / "toys.npz", train=160, test=80)
    return folder


def command(place: Path, *words: str) -> list[str]:
    data = ["--data", str(place / "toys.npz"), "--work", str(place / "work")]
    return ["study", str(place / "toy.toml"), "--records", str(place / "records"), *data, *words]


def test_a_training_that_is_made_again_is_compared_with_its_record(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = find(str(place / "toy.toml"))
    monkeypatch.setattr("eyechart.training.workers.LocalWorker", WorkerHere)
    schedule = Schedule(study, Records(study), tmp_path / "toy.jsonl", {study.data: str(place / "toys.npz")}, tmp_path)
    run_study(schedule, [("wide", 1)], lambda event: None)
    shutil.rmtree(tmp_path / study.name)  # another machine
    run_study(schedule, [("wide", 1)], lambda event: None)
    (again,) = repeats([schedule.records], tmp_path)
    assert (again.arm, again.seed) == ("wide", 1)
    assert again.same
    assert again.images == 80
    assert again.alike
    assert in_words([again, replace(again, again=again.first + 0.01)]).endswith(
        "2; by the same kernels as the first time: 2, by others: 0, not noted: 0; with the recorded accuracy: 1; "
        "within the interval of the recorded run: 2; largest difference: 1.00 points. "
        "Made again more than once: 1, with the same accuracy each time: 0."
    )
    lines = tmp_path / "again.jsonl"
    other = lines.read_text().replace('"step":"float32', '"step":"bfloat16')
    for said, alike in ((other, False), (re.sub(r',"step":"[^"]*"', "", other), None)):
        lines.write_text(said)
        assert [each.alike for each in repeats([schedule.records], tmp_path)] == [alike]
    assert repeats([], tmp_path) == [], "nothing is recorded that it could be compared with"


def test_a_training_that_comes_along_as_the_next_seed_is_made_again(place: Path) -> None:
    study = find(str(place / "toy.toml"))
    lines: list[dict[str, object]] = [{"arm": arm.name, "seed": seed} for arm, seed in study.runs]
    exams = [(exam.name, list(group), seed) for exam in study.exams for group in exam.groups() for seed in (0, 1, 2)]
    made = [each for each in exams if each != ("likeness", ["less", "small"], 2)]
    lines += [{"exam": name, "arms": arms, "seed": seed, "rows": []} for name, arms, seed in made]
    records = Records(study, lines)
    assert missing(study, records, study.arms, None) == [("small", 0), ("small", 2), ("less", 2)]
    assert missing(study, records, study.arms, [2]) == [("small", 2), ("less", 2)], "only seeds that were asked for"


def test_a_study_runs_goes_on_and_is_judged_over_seeds(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    with monkeypatch.context() as patch:  # the rest below has processes of its own
        patch.setattr("eyechart.training.workers.LocalWorker", WorkerHere)
        first = runner.invoke(main, command(place, "--seeds", "0"))
    assert first.exit_code == PARTLY, "two exams need the next seed too"
    file = place / "records" / "toy.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line.get("arm") or line["exam"] for line in lines] == ["small", "wide", "both", "less"]
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
    assert "wide seed 0" not in rest.output, "what is recorded with its exams is not run again"
    records = Records.of(study, place / "records")
    assert len(records.lines) == 9 + 3 + 3, "nothing is recorded twice"
    assert all(records.recorded(arm.name, seed) for arm, seed in study.runs)
    likeness, judged = verdicts_of(records)
    assert not (place / "records" / "again.jsonl").exists(), "weights that are there are not made again"
    assert likeness.seeds == 3
    assert likeness.verdict.subjects == ("less", "small")
    slopes = [
        row[3]
        for line in records.lines
        if line.get("exam") == "likeness"
        for row in line["rows"]
        if row[1:3] == ["data_slope", ["less@warmup", "small@warmup"]]
    ]
    assert likeness.verdict.effect == pytest.approx(sum(slopes) / 3, abs=1e-5)
    others = {row[2][1] for line in records.lines if line.get("exam") == "likeness" for row in line["rows"]}
    assert others == {"small@warmup", "small, next seed@warmup"}
    assert judged.verdict.scope == "this architecture, over 3 seeds"
    assert judged.intervals[0].low < judged.intervals[0].value < judged.intervals[0].high

    def error_of(arm: str, seed: int) -> float:
        trained = records.training(arm, seed)
        assert trained is not None
        return float(trained["scores"]["test_error"][0])

    errors = [[error_of(arm, seed) for seed in range(3)] for arm in study.arms]
    assert judged.verdict.effect == pytest.approx(sum(errors[0]) / 3 - sum(errors[1]) / 3, abs=1e-5)
    assert judged.registered == "before the runs"
    assert "Nothing is missing" in runner.invoke(main, command(place)).output


def test_a_margin_that_changed_after_the_runs_is_called_so(place: Path) -> None:
    changed = place / "changed"
    changed.mkdir()
    (changed / "toy.toml").write_text(STUDY.replace("wide = -1", "wide = -2"))
    study = find(str(changed / "toy.toml"))
    likeness, judged = verdicts_of(Records.of(study, place / "records"))
    assert judged.registered == "before the runs, changed since"
    assert likeness.registered == "before the runs"


def test_a_dry_run_says_what_would_run(place: Path) -> None:
    result = CliRunner().invoke(main, command(place, "--fresh", "--records", str(place / "elsewhere"), "--dry-run"))
    assert result.exit_code == 0, result.output
    assert "9 trainings, about 1 GPU-minutes" in result.output
    assert not (place / "elsewhere").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("wide = -1", "wade = -1"), "names the arm 'wade', which the study does not have; did you mean wide?"),
        (('contrast = "gap"', 'contrast = "gup"'), "asks for a contrast 'gup' that the study does not have"),
        (("margin = 0.0", "margin = 0.5"), "claims.toml fixes"),
        (("depth = 3, width = 16", "dept = 3"), "dept"),
        (('"less | small"', '"less | smell"'), "names the arm 'smell', which the study does not have"),
        (('next_seed = ["small"]', 'next_seed = ["wide"]'), "the next seed of 'wide', which is not among its arms"),
        (("seeds = [0, 1, 2]", "seeds = 0, 1"), "is not TOML"),
    ],
)
def test_a_mistake_in_a_study_is_told_before_anything_runs(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    (tmp_path / "toy.toml").write_text(STUDY.replace(*change))
    result = CliRunner().invoke(main, ["study", str(tmp_path / "toy.toml"), "--dry-run"])
    assert result.exit_code != 0
    assert words in result.output
    assert "Traceback" not in result.output


def test_a_study_gives_up_when_trainings_break_in_the_same_way(place: Path, tmp_path: Path) -> None:
    """Once 19 trainings broke at their end, one after the other, and a GPU's half hour with them."""
    study = find(str(place / "toy.toml"))
    told: list[str] = []
    schedule = Schedule(
        study,
        Records(study),
        tmp_path / "toy.jsonl",
        {study.data: str(place / "toys.npz")},
        tmp_path,
        tell=lambda words, training: told.append(words),
    )
    jobs = schedule.trainings([("small", seed) for seed in range(6)])
    for job, words in zip(jobs, ("TypeError: x", "TypeError: x", "ValueError: y", "TypeError: x"), strict=False):
        schedule.ended(Ended(job, 1, {"broke": words}))
        assert not schedule.gives_up
    schedule.ended(Ended(jobs[4], 0, {"scores": {"test_accuracy": [0.5, 0.4, 0.6, 80]}}))
    for job in jobs[:3]:
        assert not schedule.gives_up
        schedule.ended(Ended(job, 1, {"broke": "TypeError: x"}))
    assert schedule.gives_up
    assert told[-2:] == [
        "small seed 2 broke (TypeError: x) and is not recorded; the same command tries again.",
        "3 trainings in a row broke in the same way: no other is begun.",
    ]
    assert [line["seed"] for line in schedule.records.lines] == [4], "what broke is no result"


def test_what_breaks_is_told_apart_from_what_diverges(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = find(str(place / "toy.toml"))
    task = {"train": json.loads(study.training(study.arms["wide"], 0, str(place / "toys.npz"), place).as_json())}

    def fails(error: Exception) -> tuple[int, object]:
        def train(*given: object) -> None:
            raise error

        monkeypatch.setattr("eyechart.training.loop.train", train)
        return work(task, lambda event: None)

    assert fails(NotFinite("The loss was not finite.")) == (1, {"failed": "The loss was not finite."})
    assert fails(TypeError("cannot copy\nit")) == (1, {"broke": "TypeError: cannot copy"})


def test_two_studies_that_need_the_same_weights_train_them_once(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside each other: whoever comes second waits for the first, and neither calls it made again."""
    study = find(str(place / "toy.toml"))
    run = study.training(study.arms["wide"], 0, str(place / "toys.npz"), tmp_path)
    task = {"train": json.loads(run.as_json())}
    _, first = work(task, lambda event: None)
    assert first is not None
    assert not first["waited"]
    other = TrainingRecords(Path(run.out), run.label)
    other.open()
    monkeypatch.setattr("eyechart.studies.worker.time.sleep", lambda seconds: other.close())
    code, second = work(task, lambda event: None)
    assert code == 0
    assert second == {**first, "waited": True}
    told: list[str] = []
    schedule = Schedule(study, Records(study), tmp_path / "toy.jsonl", {study.data: str(place / "toys.npz")}, tmp_path)
    job = Job("wide seed 0", {**task, "arm": "wide", "seed": 0, "kept": False})
    for result in (first, second):
        schedule.tell = lambda words, training: told.append(words)
        schedule.ended(Ended(job, 0, result))
    assert len(schedule.records.lines) == 1
    assert "waited" not in schedule.records.lines[0]
    assert not (tmp_path / "again.jsonl").exists()
