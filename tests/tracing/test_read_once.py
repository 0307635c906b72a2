"""What one site leaves is the next one's skip: a view that reads both reads the same tensor once, and nothing stale."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from eyechart.measures.feature_variance import measure as feature_variance
from eyechart.measures.feature_variance.measure import SKIP_SPREAD, SPREAD, variance_and_square
from eyechart.site_choice import skips_of_sub_layers, sub_layers
from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap
from eyechart.tracing.views import Look
from tests import cases
from tests.measures.staging import site

DIRECTLY = View("directly", lambda look: variance_and_square(look.skip, look.site.layout), before=True)


@pytest.mark.parametrize("build", [cases.vit, cases.resnet, cases.swin, cases.hybrid])
def test_a_skip_that_was_read_is_not_read_again(
    build: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, images = build(), cases.images(3)
    anatomy = anatomy_of("subject", module, images[:2])
    after, skips = sub_layers(anatomy), skips_of_sub_layers(anatomy)
    views: dict[str, list[View]] = {place.name: [SPREAD] for place in after}
    for place in skips:
        views[place.name] = [*views.get(place.name, []), SKIP_SPREAD, DIRECTLY]
    read = []

    def counted(tensor: Tensor, *how: object) -> Tensor:
        read.append(tensor.shape)
        return variance_and_square(tensor, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(feature_variance, "variance_and_square", counted)
    _, seen = Tap(module, anatomy, views).run(images)
    for place in skips:
        assert torch.equal(seen[place.name][SKIP_SPREAD.name], seen[place.name][DIRECTLY.name])
    assert len(after) <= len(read) < len(after) + len(skips)


def mean_of(look: Look, tensor: Tensor) -> float:
    return float(look.of_same(tensor, "mean", lambda: tensor.mean()))


def test_what_was_written_into_is_read_again() -> None:
    look, tensor = Look(site("a")), torch.ones(3)
    assert mean_of(look, tensor) == 1
    tensor.mul_(2)  # as an in-place activation does
    assert mean_of(look, tensor) == 2
    tensor[:] = 5
    assert mean_of(look, tensor) == 5
    with torch.inference_mode():  # such tensors do not count what is written into them
        uncounted = torch.ones(3)
        assert mean_of(look, uncounted) == 1
        uncounted.mul_(3)
        assert mean_of(look, uncounted) == 3


def test_another_tensor_and_another_question_have_answers_of_their_own() -> None:
    look, tensor = Look(site("a")), torch.ones(3)
    assert mean_of(look, tensor) == 1
    assert float(look.of_same(tensor, "sum", lambda: tensor.sum())) == 3
    assert mean_of(look, torch.zeros(3)) == 0
    assert float(look.of_same(tensor, "sum", lambda: torch.tensor(-1))) == 3
