"""Passes that can be captured: what must not happen in them, and when they are replayed. A GPU is not needed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from eyechart.engines.shard import TappedSubject
from eyechart.measure import Experiment
from eyechart.measures import measures
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.tracing import captured
from eyechart.tracing.captured import Replays
from eyechart.tracing.taps import SiteViews

#: Operations whose result the host must know before it can go on, and tables made of Python's numbers.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "lift_fresh"}


class Waiting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).split(".")[1]
        by_mask = name == "index" and any(each is not None and each.dtype == torch.bool for each in args[1])
        if name in WAITING or by_mask:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def tapped(spec: str) -> TappedSubject:
    subject = load_subject(spec)
    anatomy = anatomy_of(subject.name, subject.module, torch.randn(2, 3, *subject.input_size), call=subject.call)
    shared = [measure for measure in measures().values() if not isinstance(measure, Experiment)]
    return TappedSubject(subject, anatomy, shared)


@pytest.mark.parametrize("spec", ["zoo:vit", "zoo:resnet", "zoo:swin"])
def test_the_shared_pass_never_waits_for_its_device(spec: str) -> None:
    """After the first one, which may make its tables. A view that asked for a number would stop a fast GPU."""
    examined = tapped(spec)
    assert examined.replays is not None
    images, tap = torch.randn(8, 3, 32, 32), examined.replays.tap
    tap.run(images, examined.subject.call)
    with Waiting() as waiting:
        tap.run(images, examined.subject.call)
    assert waiting.found == []
    with Waiting() as waiting:
        assert bool(images.max() > 0)
        assert len(images[images > 0]) > 0
    assert waiting.found == ["_local_scalar_dense", "index"], "what must not be there would be found"


def recorded(work: Callable[[], tuple[SiteViews, Tensor]], device: torch.device) -> tuple[Callable[[], None], Any]:
    """As a graph does it: the same work again, into the same memory."""
    seen, finite = work()
    kept = {site: {name: value.clone() for name, value in views.items()} for site, views in seen.items()}

    def replay() -> None:
        again, finite_again = work()
        finite.copy_(finite_again)
        for site, views in again.items():
            for name, value in views.items():
                kept[site][name].copy_(value)

    return replay, (kept, finite)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Replays:
    """Of a ViT, where capturing is played on the CPU."""
    monkeypatch.setattr(captured, "can_capture", lambda device: True)
    monkeypatch.setattr(captured, "record", recorded)
    monkeypatch.setattr(captured, "timed", lambda work: (work(), True))
    examined = tapped("zoo:vit")
    assert examined.replays is not None
    return examined.replays


def assert_as_plain(replays: Replays, images: Tensor) -> None:
    plain = replays.tap.run(images, replays.call)[1]
    found, finite = replays.run(images, images.device)
    assert bool(finite)
    assert found.keys() == plain.keys()
    for site, views in plain.items():
        for name, value in views.items():
            torch.testing.assert_close(found[site][name], value, rtol=0, atol=0, equal_nan=True)


def test_from_the_third_batch_of_a_size_on_a_pass_is_replayed(replays: Replays) -> None:
    batches = torch.randn(5, 4, 3, 32, 32)
    for batch in batches[:2]:
        assert_as_plain(replays, batch)
        assert replays.captured is None
    for batch in batches[2:]:
        assert_as_plain(replays, batch)
    graph = replays.captured
    assert graph is not None
    assert_as_plain(replays, batches[0][:3])  # the last batch is shorter
    assert replays.captured is graph


def test_a_pass_that_does_not_wait_for_python_stays_plain(replays: Replays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "timed", lambda work: (work(), False))
    for batch in torch.randn(4, 4, 3, 32, 32):
        assert_as_plain(replays, batch)
    assert replays.captured is None


@pytest.mark.parametrize(("afterwards", "waited"), [(0.0, True), (1.0, False)])
def test_kernels_that_are_still_running_did_not_wait(
    afterwards: float, waited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock of its own: sending the kernels off takes a second, and the device goes on for another, or not."""
    now = [0.0]

    def work() -> str:
        now[0] += 1.0
        return "found"

    def synchronize() -> None:
        now[0] += afterwards

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr("eyechart.tracing.captured.time.perf_counter", lambda: now[0])
    assert captured.timed(work) == ("found", waited)


def test_other_weights_are_not_replayed(replays: Replays) -> None:
    batches = torch.randn(3, 4, 3, 32, 32)
    for batch in batches:
        assert_as_plain(replays, batch)
    before = replays.captured
    weight = next(iter(replays.tap.module.parameters()))
    weight.data = weight.data * 2  # another tensor in its place, as an experiment might leave
    assert_as_plain(replays, batches[0])
    assert replays.captured is not before


def test_what_cannot_be_captured_runs_plainly_and_says_so_once(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(captured, "record", refuse)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    images = torch.randn(4, 3, 32, 32)
    for _ in range(3):
        assert_as_plain(replays, images)
    assert replays.captured is None
    assert "(operation not permitted when stream is capturing)" in replays.news()
    assert replays.news() == ""


def test_what_draws_random_numbers_is_not_captured(replays: Replays) -> None:
    drawing = Replays(replays.tap, replays.call, random=True)
    for _ in range(3):
        assert_as_plain(drawing, torch.randn(4, 3, 32, 32))
    assert drawing.captured is None


def test_on_the_cpu_nothing_is_captured() -> None:
    assert not captured.can_capture(torch.device("cpu"))
    assert captured.can_capture(torch.device("cuda"))
