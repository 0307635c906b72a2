"""A watch leaves the training as it was, and its numbers where people look for them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import eyechart
from eyechart.errors import UsageError
from eyechart.watch.untouched import untouched

PICTURES = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(32) % 4
NAMES = ["ant", "bee", "cow", "dog"]


class Small(nn.Module):
    """A skip, a batch norm, dropout, and a counter that moves in every pass, in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.branch, self.dropout = nn.Conv2d(8, 8, 3, padding=1), nn.Dropout(0.3)
        self.head = nn.Linear(8, 4)
        self.passes: Tensor
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        self.passes += 1
        features = self.norm(self.stem(images)).relu()
        features = features + self.branch(features).relu()
        return self.head(self.dropout(features.mean((2, 3))))


def watch_of(model: nn.Module, out: Path, **settings: Any) -> eyechart.Watch:
    settings = {"measures": "recognition,calibration", "limit": None, **settings}
    images = eyechart.open_images((PICTURES, LABELS), classes=NAMES)
    return eyechart.Watch(model, images, out=out, input_size=8, classes=NAMES, **settings)


Look = Callable[[int], object]


def trained(look_of: Callable[[nn.Module], Look], autocast: bool = False) -> tuple[dict[str, Tensor], list[Any]]:
    """A training that uses every kind of random number, and all that its next step would depend on."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    model = Small().train()
    model.branch.eval()  # a part that the user keeps in eval mode
    model.norm.bias.requires_grad_(False)
    look = look_of(model)
    optimiser = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=0.01)
    for epoch in range(2):
        chosen = torch.randperm(32)[: 16 + random.randrange(8)]
        noise = torch.from_numpy(np.random.rand(len(chosen), 3, 8, 8)).float()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = nn.functional.cross_entropy(model(PICTURES[chosen] + 0.1 * noise).float(), LABELS[chosen])
            loss.backward()  # gradients add up over epochs: those that wait must still be there
            look(epoch)
        optimiser.step()
    state = model.state_dict() | {f"gradient of {name}": weight.grad for name, weight in model.named_parameters()}
    flags = [part.training for part in model.modules()] + [weight.requires_grad for weight in model.parameters()]
    hooks = [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()]
    draws = [random.random(), np.random.rand(), torch.rand(3).tolist()]
    modes = [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_num_threads(), precision()]
    return {name: tensor for name, tensor in state.items() if tensor is not None}, [flags, hooks, draws, modes]


def precision() -> list[Any]:
    """What decides how products are rounded."""
    backends = torch.backends
    old = [torch.get_float32_matmul_precision(), backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32]
    return [*old, backends.mha.get_fastpath_enabled()]


def drawing(step: int, numbers: Mapping[str, float]) -> None:
    """A log that draws from everything there is to draw from, as a user's model or pictures might."""
    random.random(), np.random.rand(), torch.rand(1)


#: Effective receptive fields take gradients, the landscape moves the weights.
DEEP = "recognition,receptive_field,landscape"


@pytest.mark.parametrize(("measures", "autocast"), [(DEEP, False), ("recognition", True)])
def test_a_training_is_the_same_to_the_bit(measures: str, autocast: bool, tmp_path: Path) -> None:
    before = precision()
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    try:
        watches: list[eyechart.Watch] = []

        def watched(model: nn.Module) -> Look:
            watches.append(watch_of(model, tmp_path, measures=measures, log=drawing, strict=True))
            return watches[0]

        plain, plain_rest = trained(lambda model: lambda epoch: None, autocast)
        state, rest = trained(watched, autocast)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[2]
    assert list(watches[0].runs) == [0, 1]
    assert set(watches[0].runs[1].findings) == set(measures.split(","))
    assert rest == plain_rest
    assert state.keys() == plain.keys()
    assert [name for name in state if not torch.equal(state[name], plain[name])] == []


def test_what_is_put_back_when_an_exam_breaks_off() -> None:
    model = Small().train()
    weight, buffer, gradient = model.head.weight, model.norm.running_mean, torch.ones_like(model.head.weight)
    weight.grad = gradient
    before = [tensor.clone() for tensor in model.state_dict().values()]

    def broken_off() -> None:
        with untouched(model), torch.no_grad():
            model.eval()
            model.head.weight.add_(1).requires_grad_(False)
            model.head.weight.grad = torch.zeros_like(weight)
            model.norm.running_mean = torch.full((8,), 7.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert model.head.weight is weight
    assert weight.requires_grad
    assert weight.grad is gradient
    assert model.norm.running_mean is buffer
    assert all(map(torch.equal, model.state_dict().values(), before))
    assert all(part.training for part in model.modules())


def test_a_graph_from_before_the_watch_can_still_be_gone_back_through(tmp_path: Path) -> None:
    model = Small().train()
    loss = model(PICTURES).sum()
    watch = watch_of(model, tmp_path, measures="receptive_field", strict=True)  # it needs gradients
    with torch.inference_mode():
        assert watch(0) is not None
        with untouched(model):
            assert (torch.is_inference_mode_enabled(), torch.is_grad_enabled()) == (False, True)
        assert (torch.is_inference_mode_enabled(), torch.is_grad_enabled()) == (True, False)
    loss.backward()


def test_an_exam_is_in_float32_whatever_the_training_is_in(tmp_path: Path) -> None:
    watch = watch_of(Small(), tmp_path, measures="recognition")
    with torch.autocast("cpu", torch.bfloat16):
        watch(0)
    watch(1)
    assert watch.numbers(0) == watch.numbers(1)


@pytest.mark.usefixtures("no_charts")
def test_table_folders_and_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Small()
    watch = watch_of(model, tmp_path / "watch", every=2)
    for epoch in range(3):
        with torch.no_grad():
            model.head.bias.copy_(10.0 * nn.functional.one_hot(torch.tensor(epoch), 4))
        run = watch(epoch)
        assert (run is None) == (epoch == 1)
    table = watch.table
    assert list(table.columns) == ["step", "measure", "quantity", "value", "low", "high", "unit", "note"]
    assert table.step.unique().tolist() == [0, 2]
    assert set(table.measure) == {"recognition", "calibration"}
    accuracy = table[table.quantity == "accuracy"]
    assert accuracy.value.tolist() == [0.25, 0.25], "it answers one class, as its bias says: each weights anew"
    assert (accuracy.low < accuracy.value).all()
    nll = table[table.quantity == "nll"].value.tolist()
    assert nll[0] != nll[1]
    folders = [tmp_path / "watch" / "step-000000", tmp_path / "watch" / "step-000002"]
    assert [run.path for run in watch.runs.values()] == folders
    assert not (folders[0] / "report.html").exists()
    assert not (folders[0] / "shards").exists() or not list((folders[0] / "shards").iterdir())
    hashes = {run.plan["subjects"][0]["weights"] for run in watch.runs.values()}
    assert len(hashes) == 2, "each run says which weights it saw"
    compared = watch.compare()
    assert compared.labels == ("step 0", "step 2")
    change = compared.table.set_index("quantity").loc["nll", "change"]
    assert change == pytest.approx(nll[1] - nll[0])
    assert "step 2 examined in" in capsys.readouterr().err
    assert watch.runs[2].report().is_file()
    assert eyechart.Run.open(folders[1]).finished


def test_what_adds_no_row_is_said_once_and_skips_of_a_cnn_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only numbers of skips were of class tokens and of pairs: a CNN's were measured and not in the table."""
    watch = watch_of(Small(), tmp_path, measures="cka,skip_ratio", strict=True)
    for step in range(2):
        watch(step)
    assert set(zip(watch.table.measure, watch.table.quantity, strict=True)) == {("skip_ratio", "typical_skip_ratio")}
    assert 0 < watch.table.value[0] < 20
    assert capsys.readouterr().err.count("cka adds no row") == 1


@pytest.mark.parametrize("log", [None, []])
def test_without_a_log_the_table_has_the_numbers(log: Any, tmp_path: Path) -> None:
    """None was refused, which `log="wandb" if rank == 0 else None` gives."""
    watch = watch_of(Small(), tmp_path, log=log, measures="recognition", strict=True)
    watch(0)
    assert "nll" in set(watch.table.quantity)


def test_a_failure_is_told_and_the_training_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Small()
    heard: list[int] = []
    watch = watch_of(model, tmp_path, log=lambda step, numbers: heard.append(step))
    healthy = model.head.weight.detach().clone()
    with torch.no_grad():
        model.head.weight.fill_(torch.nan)
    assert watch(0) is None
    with torch.no_grad():
        model.head.weight.copy_(healthy)
    assert watch(1) is not None
    (failed,) = watch.table[watch.table.step == 0].to_dict("records")
    assert failed["note"].startswith("failed: ")
    assert "NaN" in failed["note"] or "finite" in failed["note"]
    assert np.isnan(failed["value"])
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "step 0" in line]
    assert told == f"eyechart: step 0 {failed['note']}"
    assert heard == [1]
    with torch.no_grad():
        model.head.weight.fill_(torch.nan)
    watch.strict = True
    with pytest.raises(eyechart.EyechartError):
        watch(2)


def test_what_is_told_names_keywords_and_no_limit_that_nobody_gave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options of the command line were named (--limit 256, --classes MAP.json), which a script does not have."""
    watch = watch_of(Small(), tmp_path / "few", measures="recognition", limit=256)
    watch(0)
    eyechart.Watch(Small(), (PICTURES, LABELS), "recognition", out=tmp_path / "nameless", input_size=8)(0)
    told = capsys.readouterr().err
    assert "needs at least 128 images" in told, "notes are told"
    assert "Use classes= to say" in told
    assert " --" not in told
    assert "limit" not in told, "256 is what a watch takes at most, not what was asked for"


def test_a_log_that_fails_costs_no_numbers(tmp_path: Path) -> None:
    def full(step: int, numbers: Mapping[str, float]) -> None:
        raise OSError("disk full")

    watch = watch_of(Small(), tmp_path, log=full)
    assert watch(0) is not None
    notes = watch.table.note.tolist()
    assert notes[0] == "not logged: OSError: disk full"
    assert len(notes) > 2


def test_what_is_asked_wrongly_is_told_before_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for settings, word in (
        ({"every": 0}, "every=0"),
        ({"measures": "ckaa"}, "cka"),
        ({"log": "tensorbord"}, "tensorboard, wandb, mlflow"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"limit": "all"}, "limit must be a whole number"),
        ({"measures": ""}, "measures= takes names"),
    ):
        with pytest.raises(UsageError, match=word):
            watch_of(Small(), tmp_path, **settings)
    with pytest.raises(UsageError, match="module that is trained"):
        eyechart.Watch("zoo:vit")  # type: ignore[arg-type]
    for name, module in (("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UsageError, match=f"needs the library {name}, which is not installed; pip install {name}"):
            watch_of(Small(), tmp_path, log=name)


def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    watch = watch_of(Small(), tmp_path, log="tensorboard", measures="recognition")
    watch(0)
    watch(1)
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    expected = watch.numbers(1)
    assert set(read.Tags()["scalars"]) == set(expected)
    events = read.Scalars("eyechart/recognition/nll")
    assert [event.step for event in events] == [0, 1]
    assert events[1].value == pytest.approx(expected["eyechart/recognition/nll"], rel=1e-6)


def test_wandb_and_mlflow_get_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins with the signatures of wandb 0.31 and mlflow 3: a name that these do not know is refused."""
    heard: list[Any] = []

    def define_metric(name: str, step_metric: str | None = None) -> None:
        heard.append((name, step_metric))

    def log(data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        heard.append(data)

    def log_metrics(metrics: dict[str, float], step: int | None = None, synchronous: bool | None = None) -> None:
        heard.append((metrics, step))

    wandb = SimpleNamespace(run=None)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(log_metrics=log_metrics))
    watch = watch_of(Small(), tmp_path, log=["wandb", "mlflow"], measures="recognition")
    watch(3)
    assert "wandb.init()" in watch.failures[3]
    wandb.run = SimpleNamespace(define_metric=define_metric, log=log)
    watch(4)
    numbers = watch.numbers(4)
    assert {"eyechart/recognition/accuracy", "eyechart/recognition/accuracy_low"} <= numbers.keys()
    assert [name for name in numbers if any(other.startswith(f"{name}/") for other in numbers)] == []
    assert heard == [
        ("eyechart/step", None),
        ("eyechart/*", "eyechart/step"),
        {"eyechart/step": 4, **numbers},
        (numbers, 4),
    ]


def test_the_real_wandb_keeps_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is installed: `make` does not, for it is 62 MB."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path, project="eyechart") as run:
        watch = watch_of(Small(), tmp_path / "watch", log="wandb", measures="recognition", strict=True)
        run.log({"loss": 1.0})  # the training's own steps go on beside it
        watch(0)
        run.log({"loss": 0.5})
        watch(7)
        kept = dict(run.summary)
    expected = {"eyechart/step": 7, **watch.numbers(7)}
    assert {name: kept[name] for name in expected} == pytest.approx(expected)
    assert watch.failures == {}


def test_the_real_mlflow_keeps_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is installed."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        watch = watch_of(Small(), tmp_path / "watch", log="mlflow", measures="recognition", strict=True)
        watch(0)
        watch(7)
    assert watch.failures == {}
    client = mlflow.MlflowClient()
    for name, value in watch.numbers(7).items():
        history = {point.step: point.value for point in client.get_metric_history(run.info.run_id, name)}
        assert history == pytest.approx({0: watch.numbers(0)[name], 7: value}), name


def test_a_writer_of_ones_own_is_taken(tmp_path: Path) -> None:
    heard: dict[str, int] = {}
    writer = SimpleNamespace(
        add_scalar=lambda tag, scalar_value, global_step=None: heard.update({tag: global_step}), flush=lambda: None
    )
    watch = watch_of(Small(), tmp_path, log=writer, measures="recognition")
    watch(7)
    assert heard == dict.fromkeys(watch.numbers(7), 7)


def test_by_default_it_takes_what_applies_of_the_cheap_measures(tmp_path: Path) -> None:
    watch = watch_of(Small(), tmp_path, measures=None, strict=True)
    run = watch(0)
    assert run is not None
    assert set(run.findings) == {"recognition", "cka", "skip_ratio"}, "it has no attention"
