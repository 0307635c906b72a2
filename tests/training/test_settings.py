"""From words and lists to runs: what is written is what is trained, and what is wrong is one sentence."""

import math
import shlex
from pathlib import Path

import pytest

from eyechart.errors import EyechartError, UsageError
from eyechart.training.command import _runs, train
from eyechart.training.run import TrainingRun
from eyechart.training.settings import make_run, read_list, refuse_clashes

LIST = """
[common]
data = "toys.npz"
recipe = "weak"
epochs = 20

[[run]]
model = "vit"

[[run]]
model = "vit"
name = "fine"
switches = { patch = 2, no_skip_at = [1, 2] }
epochs = 30
clip = 2
snapshots = []
"""


def test_a_list_of_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.toml"
    path.write_text(LIST)
    plain, fine = read_list(path, {"seed": 7})
    assert (plain.label, plain.recipe.epochs, plain.recipe.clip, plain.data) == ("vit", 20, 5.0, "toys.npz")
    assert (fine.label, fine.recipe.epochs, fine.recipe.clip, fine.snapshots) == ("fine", 30, 2.0, ())
    assert fine.switches == {"patch": 2, "no_skip_at": (1, 2)}
    assert plain.seed == fine.seed == 7
    assert [run.recipe.epochs for run in read_list(path, {"epochs": 9})] == [9, 9]  # the command line counts first
    assert [run.label for run in read_list(path, {}, ["fine"])] == ["fine"]
    with pytest.raises(UsageError, match="no run called 'fien'"):
        read_list(path, {}, ["fien"])
    assert TrainingRun.from_json(fine.as_json()) == fine


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[run]", "is not TOML"),
        ("[common]\nepochs = 3", r"must hold one \[\[run\]\]"),
        ("common = 3\n[[run]]\nmodel = 'vit'", r"must hold one \[\[run\]\]"),
        ("run = [1, 2]", r"must hold one \[\[run\]\]"),
        ("[[run]]\nmodel = 'vitt'", "did you mean vit"),
        ("[[run]]\nmodel = 'vit'\nepoch = 3", "Run 1 of .*no setting called 'epoch'; did you mean epochs"),
        ("[[run]]\nmodel = 'vit'\nepochs = 'ten'", "epochs takes a whole number; got 'ten'"),
        ("[[run]]\nmodel = 'vit'\nflip = 1", "flip takes true or false; got 1"),
        ("[[run]]\nmodel = 'vit'\noptimiser = 'adam'", "optimiser is one of adamw, sgd; got 'adam'"),
        ("[[run]]\nmodel = 'vit'\nrecipe = 'storng'", "did you mean strong"),
        ("[[run]]\nmodel = 'vit'\nswitches = { pach = 2 }", "did you mean patch"),
        ("[[run]]\nrecipe = 'zoo'", "needs a model"),
    ],
)
def test_what_is_wrong_in_a_list_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "runs.toml").write_text(text)
    with pytest.raises(EyechartError, match=sentence):
        read_list(tmp_path / "runs.toml", {})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"fraction": 1.5}, "above 0 and at most 1; got 1.5"),
        ({"imbalance": 0.5}, "at least 1; got 0.5"),
        ({"steps": 10, "epochs": 30}, "10 steps cannot be split into 30 epochs"),
        ({"freeze": "low-third"}, "need --from"),
        ({"freeze": "top", "from": "zoo:vit"}, "--freeze is one of"),
        ({"shots": 0}, "--shots must be at least 1"),
        ({"snapshots": "middle"}, "got 'middle'"),
        ({"imbalance": math.nan}, "at least 1; got nan"),
        ({"time_limit": -1}, "--time-limit must be at least 1; got -1.0"),
        ({"save_seconds": math.nan}, "--save-seconds must be at least 0; got nan"),
        ({"backbone_lr_scale": math.nan, "from": "zoo:vit"}, "--backbone-lr-scale must be at least 0; got nan"),
        ({"backbone_lr_scale": math.inf, "from": "zoo:vit"}, "--backbone-lr-scale must be a finite number; got inf"),
        ({"seed": 10**30}, r"from 0 to below 2\^62; got 10{30}"),
        ({"seed": -1}, r"from 0 to below 2\^62; got -1"),
        ({"name": "a/b"}, r"not a path \(that is --out\); got 'a/b'"),
        ({"name": "mine.warmup"}, "is the name of a snapshot; got 'mine.warmup'"),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number of at least 0; got nan"),
        ({"learning_rate": math.inf}, "learning_rate must be a finite number of at least 0; got inf"),
        ({"weight_decay": -1}, "weight_decay must be a finite number of at least 0; got -1.0"),
        ({"sam": -0.1}, "sam_radius must be a finite number of at least 0; got -0.1"),
        ({"mixup": -1}, "mixup must be a finite number of at least 0; got -1.0"),
        ({"crop_padding": -3}, "crop_padding must be a finite number of at least 0; got -3"),
        ({"augment_layers": -1}, "augment_layers must be a finite number of at least 0; got -1"),
        ({"drop_path": 1}, "drop_path must be at least 0 and below 1; got 1.0"),
        ({"ema": 1}, "ema must be at least 0 and below 1; got 1.0"),
        ({"momentum": -2}, "momentum must be at least 0 and below 1; got -2.0"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make_run({"model": "vit", **settings})


def test_a_short_training_has_a_short_warm_up() -> None:
    """`eyechart train vit --epochs 2` failed, because the recipe warms up for longer than that."""
    assert [make_run({"model": "vit", "epochs": epochs}).recipe.warmup_epochs for epochs in (1, 2, 30)] == [0, 1, 5]
    with pytest.raises(UsageError, match="The warm-up must be shorter"):
        make_run({"model": "vit", "epochs": 2, "warmup_epochs": 5})


def test_the_list_of_the_zoo_can_be_read() -> None:
    runs = read_list(Path(__file__).parents[2] / "scripts" / "zoo.toml", {})
    bundled = ["vit", "resnet", "vit-gap", "swin", "pit", "alternet"]
    assert [run.label for run in runs] == [*bundled, "vit-hybrid", "vit-no-skip", "vit-small"]
    assert {run.recipe.name for run in runs} == {"zoo"}
    assert runs[0].command("cifar10") == "eyechart train vit --data cifar10 --recipe zoo --seed 0"


def test_trainings_of_one_command_need_names_of_their_own() -> None:
    runs = [make_run({"model": "vit"}), make_run({"model": "vit", "seed": 1})]
    with pytest.raises(UsageError, match="Two trainings are called vit"):
        refuse_clashes(runs)


def test_the_command_of_a_card_makes_the_same_run_again() -> None:
    switches = {"depth": 3, "no_skip_at": (1, 2), "qkv_bias": False, "mlp_ratio": 2.0, "position": "2d"}
    asked = {
        "model": "vit",
        "switches": switches,
        "classes": "cat,dog",
        "label_noise": 0.4,
        "shuffle_patches": 4,
        "class_count": 2,
        "fraction": 0.5,
        "bfloat16": True,
    }
    run = make_run({**asked, "recipe": "zoo", "epochs": 20, "augment_increasing": False, "seed": 3, "name": "mine"})
    words = shlex.split(run.command("cifar10"))
    assert words[:3] == ["eyechart", "train", "vit"]
    with train.make_context("train", words[2:]) as context:
        options = {key: value for key, value in context.params.items() if key not in ("list_", "parallel", "names")}
        (again,) = _runs(context, context.params["names"], None, options)
    assert again == run


@pytest.mark.parametrize(("name", "value"), [("label_noise", 0.4), ("shuffle_patches", 4), ("class_count", 3)])
def test_what_was_added_later_decides_a_training_only_where_it_is_used(name: str, value: float) -> None:
    assert make_run({"model": "vit", name: value}).identity()[name] == value
    assert name not in make_run({"model": "vit"}).identity()
