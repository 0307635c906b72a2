"""M17: a quadratic loss on the plane is the bowl that the directions' lengths say (SPEC, Appendix A)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import xarray
from torch import Tensor, nn

from eyechart.images import open_images
from eyechart.measures.landscape.measure import MIXED, Landscape, penalty_share, rise
from eyechart.measures.landscape.plane import Normalisation, at, direction, moved
from eyechart.subjects.load import load_subject
from eyechart.training.as_trained import as_trained
from tests.measures.benches import bench_of


@pytest.mark.parametrize("steps", [3, 11, 21])
@pytest.mark.parametrize("normalisation", ["filter", "paper"])
def test_a_quadratic_bowl_is_recovered(normalisation: Normalisation, steps: int) -> None:
    """½ Σ‖w − w₀‖² over what is moved is ½ (a² + b²) ‖w₀‖² + a·b d₁·d₂, for a step is as long as the weights are."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 5)).double()
    weights = moved(module)
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    one, two = (direction(weights, number, normalisation) for number in (1, 2))
    offsets = Landscape(steps=steps).offsets()
    surface = np.zeros((steps, steps))
    for row, a in enumerate(offsets):
        for column, b in enumerate(offsets):
            with at(weights, {name: a * one[name] + b * two[name] for name in weights}), torch.no_grad():
                surface[row, column] = sum(float((weights[n] - start[n]).square().sum()) / 2 for n in weights)
    squared = sum(float(value.square().sum()) for value in start.values())
    across = sum(float((one[name] * two[name]).sum()) for name in weights)
    expected = squared / 2 * (offsets[:, None] ** 2 + offsets**2) + across * offsets[:, None] * offsets
    np.testing.assert_allclose(surface, expected, rtol=1e-9, atol=1e-9)
    estimate = xarray.Dataset(
        {
            "nll": (("subject", "data", "a", "b"), np.broadcast_to(surface + 7, (1, 2, steps, steps))),
            "penalty": (("subject", "a", "b"), surface[None] / 3),
        },
        coords={"subject": ["bowl"], "data": ["clean", "augmented"], "a": offsets, "b": offsets},
    )
    for radius in (0.5, 1.0):  # a·b averages to 0 on a circle
        assert rise("nll", "clean", radius)(estimate)["bowl",] == pytest.approx(squared / 2 * radius**2)
    assert penalty_share(estimate)["bowl",] == pytest.approx(0.25)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stem(images).relu().mean((2, 3)))
        return logits


def test_the_middle_is_the_plain_loss_on_clean_and_on_augmented_pictures() -> None:
    torch.manual_seed(0)
    subject = load_subject(Small(), label="small", input_size=32)
    subject.classes = open_images("sample").classes
    bench = bench_of(subject, 2 * MIXED)
    assert bench.targets is not None
    found = Landscape(images=2 * MIXED, steps=3).experiment(bench)
    images, targets = as_trained(bench, "zoo", MIXED, "landscape", 10)
    with torch.no_grad():
        clean = F.cross_entropy(subject.call(bench.images), bench.targets, reduction="none")
        augmented = F.cross_entropy(subject.call(images), targets, reduction="none")
    torch.testing.assert_close(found["losses"][0, 1, 1], clean)
    torch.testing.assert_close(found["losses"][1, 1, 1], augmented)
    assert not torch.allclose(clean, augmented)
    assert not torch.allclose(found["losses"][:, 0, 0], found["losses"][:, 1, 1])
