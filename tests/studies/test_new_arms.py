"""Arms that begin from another arm, have data of their own, or cut it in the ways of rows 7 and 8: small, and run."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from eyechart.cli import main
from eyechart.errors import PARTLY, UsageError
from eyechart.studies.records import Records
from eyechart.studies.run import Schedule
from eyechart.studies.study import find, names, read_study
from eyechart.training.workers import Ended
from tests.studies.texts import study_text
from tests.training.toys import write_toys

COMMON = """
[common]
model = "vit"
recipe = "none"
epochs = 1
batch_size = 40
snapshots = []
device = "cpu"
learning_rate = 0.01

[[arm]]
name = "source"
switches = { depth = 3, width = 16, heads = 2, patch = 8 }
"""

MOVED = """
[[arm]]
name = "moved"
data = "others"
from_arm = "source"
freeze = "low-third"
backbone_lr_scale = 0.1
shots = 8
steps = 4

[[arm]]
name = "moved head"
data = "others"
from_arm = "source"
freeze = "all-but-head"
"""

# One arm for each further kind of rows 7 and 8.
OTHERS = """
[[arm]]
name = "few classes, late class token"
class_count = 3
switches = { depth = 3, width = 16, heads = 2, patch = 4, cls_at = 1, cls_init = "mean" }

[[arm]]
name = "wrong labels, long tail"
label_noise = 0.4
imbalance = 4.0
steps = 3
switches = { depth = 1, width = 16, heads = 2, patch = 8 }

[[arm]]
name = "shuffled, scaled skips"
shuffle_patches = 4
switches = { depth = 3, width = 16, heads = 2, patch = 4, skip_scale = 0.25 }

[[exam]]
name = "skips and places"
arms = ["few classes, late class token", "shuffled, scaled skips"]
images = "sample"
limit = 64
measures = ["skip_ratio", "localisation"]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    (folder / "toy.toml").write_text(study_text(COMMON + MOVED + OTHERS).replace("[0, 1, 2]", "[0]"))
    write_toys(folder / "toys.npz", train=160, test=80)
    write_toys(folder / "others.npz", train=120, test=40)
    return folder


def command(place: Path, *words: str) -> list[str]:
    data = ["--data", str(place / "toys.npz"), "--work", str(place / "work")]
    return ["study", str(place / "toy.toml"), "--records", str(place / "records"), *data, *words]


@pytest.mark.usefixtures("workers_here")
def test_every_new_kind_of_arm_runs(place: Path) -> None:
    runner = CliRunner()
    without = runner.invoke(main, command(place))
    assert without.exit_code != 0
    assert "toy trains on others too; say where it lies with --data others=PATH." in without.output
    assert not (place / "records").exists()

    others = f"others={place / 'others.npz'}"
    ran = runner.invoke(main, command(place, "--data", others))
    assert ran.exit_code == 0, ran.output
    lines = [json.loads(line) for line in (place / "records" / "toy.jsonl").read_text().splitlines()]
    by_arm = {line["arm"]: line for line in lines if "arm" in line}
    assert not [line["failed"] for line in lines if "failed" in line]
    assert {arm: line["train_images"] for arm, line in by_arm.items()} == {
        "source": 160,
        "moved": 80,
        "moved head": 120,
        "few classes, late class token": 48,
        "wrong labels, long tail": sum(int(16 * 4 ** (-label / 9)) for label in range(10)),
        "shuffled, scaled skips": 160,
    }
    assert [line["data"] for line in by_arm.values()].count("others") == 2
    assert by_arm["few classes, late class token"]["classes"] == 3
    quantities = {(tuple(row[2]), row[1]) for line in lines if "exam" in line for row in line["rows"]}
    assert (("few classes, late class token",), "cls_phase_since_joining_mlp") in quantities
    assert (("shuffled, scaled skips",), "hit_rate") in quantities

    weights = {arm: load_file(place / "work" / "toy" / f"{arm}-seed0.safetensors") for arm in by_arm}
    kept = {name for name, tensor in weights["source"].items() if torch.equal(tensor, weights["moved"][name])}
    assert {"patch_embed.proj.weight", "blocks.0.mlp.fc1.weight"} <= kept
    assert not kept & {"blocks.1.mlp.fc1.weight", "head.weight"}, "the rest of it was trained on"
    assert "Nothing is missing" in runner.invoke(main, command(place, "--data", others)).output


def test_a_source_that_is_recorded_is_trained_again_for_what_begins_from_it(place: Path, tmp_path: Path) -> None:
    words = ["--records", str(tmp_path), "--fresh", "--arms", "moved", "--dry-run"]
    result = CliRunner().invoke(main, command(place, *words))
    assert result.exit_code == 0, result.output
    assert [line.split("seeds")[0].strip() for line in result.output.splitlines()[:-1]] == ["source", "moved"]
    words[words.index("moved")] = "mov*,*labels*"
    several = CliRunner().invoke(main, command(place, *words))
    arms = [line.split("seeds")[0].strip() for line in several.output.splitlines()[:-1]]
    assert arms == ["source", "moved", "moved head", "wrong labels, long tail"]
    words[words.index("mov*,*labels*")] = "lost*"
    assert (
        "The study has no arm 'lost*'; it has source, moved" in CliRunner().invoke(main, command(place, *words)).output
    )


def test_without_its_source_a_training_is_given_up_and_stays_missing(tmp_path: Path) -> None:
    study = read_study("toy", study_text(COMMON + MOVED))
    told: list[str] = []
    schedule = Schedule(
        study,
        Records(study),
        tmp_path / "toy.jsonl",
        {"toys": "toys", "others": "others"},
        tmp_path,
        tell=lambda words, training: told.append(words),
    )
    todo = study.with_sources([("moved", 0), ("moved", 1)])
    assert todo == [("source", 0), ("moved", 0), ("source", 1), ("moved", 1)]
    first, second = schedule.trainings(todo)
    assert (first.label, second.label) == ("source seed 0", "source seed 1")
    assert schedule.ended(Ended(first, -9)) == []
    assert told[-1] == "moved seed 0 begins from source, which failed: it is not trained."
    (job,) = schedule.ended(Ended(second, 0, {"scores": {"test_accuracy": [0.5, 0.4, 0.6, 80]}}))
    assert job.label == "moved seed 1"
    assert job.task["train"]["begin_from"] == f"zoo:vit@{tmp_path}/toy/source-seed1.safetensors"
    assert job.task["train"]["data"] == "others"


def test_borrowed_weights_lie_with_their_home() -> None:
    study = read_study("mine", study_text('[[arm]]\nname = "vit"\nborrow = "base"\n', "cifar100"))
    assert study.training(study.arms["vit"], 0, "cifar100", Path("work")).out == "work/base"


def test_what_a_source_is_decides_too(place: Path) -> None:
    contrast = """
[[contrast]]
name = "accuracy"
quantity = "test_accuracy"
words = "accuracy"
weights = { moved = 1 }

[[claim]]
id = "C49"
parts = [{ contrast = "accuracy", side = "above", margin = 0.0 }]
"""
    text = study_text(COMMON + MOVED + contrast)
    one, other = (read_study("toy", each).registered for each in (text, text.replace("depth = 3", "depth = 2", 1)))
    assert one.keys() == other.keys() == {"C49"}
    assert one != other


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('from_arm = "source"', 'from_arm = "sauce"'), "names the arm 'sauce', which the study does not have"),
        (('name = "moved head"', 'name = "moved head"\nseeds = [7]'), "seed 7, which source is not trained with"),
        (('name = "source"', 'name = "source"\nfrom_arm = "moved"'), "begins from moved, which begins from source"),
    ],
)
def test_a_mistake_in_a_source_is_told(change: tuple[str, str], words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_study("toy", study_text((COMMON + MOVED).replace(*change, 1)))
    assert words in str(error.value)


def test_data_that_the_study_does_not_have_is_refused(place: Path) -> None:
    result = CliRunner().invoke(main, command(place, "--data", "hangul=x.npz"))
    assert result.exit_code not in (0, PARTLY)
    assert "has no data called 'hangul'; there is toys, others." in result.output
    assert find(str(place / "toy.toml")).data_names == ["toys", "others"]


@pytest.mark.parametrize("name", names())
def test_a_next_seed_is_one_that_the_exam_has_weights_of(name: str) -> None:
    """A borrowed arm may have more seeds than its neighbours: the last one's next would be trained by nobody."""
    study = find(name)
    for exam in study.exams:
        seeds = study.seeds_of(exam.arms)
        for arm, seed in [run for here in seeds for run in exam.second_runs(study.arms, here)]:
            assert seed in seeds or not study.arms[arm].home, (exam.name, arm, seed)
