"""Shift tests on networks whose equivariance is known (SPEC 1.1(6), E14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import timm
import torch
import xarray
from torch import Tensor, nn
from torch.nn import functional as F

from eyechart.errors import DoesNotApply
from eyechart.measures.shift.measure import Shift, blocks, patch_of, pixels
from eyechart.measures.shift.shifts import compare, positions
from eyechart.tracing.pieces import PieceSize
from eyechart.zoo import build
from tests import cases
from tests.measures.staging import anatomy, scene, site
from tests.measures.test_receptive_field import bench_of, estimate_of


class Round(nn.Module):
    """Two convolutions that close around the picture."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, padding_mode="circular") for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.conv1(x).relu())


class Placed(Round):
    """The same, told where it is."""

    def forward(self, x: Tensor) -> Tensor:
        where = torch.linspace(-3, 3, x.shape[3], device=x.device)
        return super().forward(x) + where


class Dropped(Round):
    """The same, throwing dice at test time."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout2d(super().forward(x), 0.5, training=True)


def chain(unit: Callable[[int], nn.Module], patch: int = 4, count: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return cases.Chain([unit(6) for _ in range(count)], 6, patch=patch).eval()


def finding_of(module: nn.Module, count: int = 16, size: int = 32, **options: Any) -> xarray.Dataset:
    return estimate_of(Shift(images=count, **options), bench_of(module, cases.images(count, size)))


def test_circular_convolutions_are_equivariant_and_their_average_is_invariant() -> None:
    finding = finding_of(chain(Round), border="wrap")
    assert finding.similarity.sel(shift="one patch").values == pytest.approx(1, abs=1e-5)
    assert (finding.unmoved.sel(shift="one patch") < 0.9).all()
    assert finding.follows.sel(shift="one patch").all()
    assert not finding.follows.sel(shift="one pixel").any()  # a cell is 4 pixels
    at_patch = finding.px.values[0] % 4 == 0
    assert finding.variation.values[0, at_patch] == pytest.approx(0, abs=1e-6)
    assert finding.variation.values[0, ~at_patch].min() > 1e-4
    assert finding.agreement.values[0, at_patch] == pytest.approx(1)
    assert float(finding.agreement_low[0, -1]) < 1  # 16 of 16 is not all


def test_padded_convolutions_are_equivariant_away_from_the_border() -> None:
    finding = finding_of(chain(cases.ConvUnit, patch=1))  # two units see 4 pixels far, the inner half begins at 8
    assert finding.similarity.values == pytest.approx(1, abs=1e-5)
    assert finding.follows.values.all()


def test_valid_convolutions_are_equivariant() -> None:
    torch.manual_seed(0)
    valid = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        still, moved = (valid(picture) for picture in positions(cases.images(1), [2], 3, "crop"))
    sums, _ = compare(still, moved, 2, 3, "crop")
    assert float(sums[0, 0]) < 1e-8 < float(sums[0, 1])


def test_a_network_that_looks_at_absolute_position_is_not_equivariant() -> None:
    placed = finding_of(chain(Placed), border="wrap").similarity.sel(shift="one patch")
    assert (placed < 0.95).all()


def vit(position: str) -> nn.Module:
    """A small ViT of the zoo, untrained; a table of positions is made as loud as the patches."""
    torch.manual_seed(0)
    module = build("vit-gap", width=48, depth=3, heads=3, position=position).eval()
    for name, table in module.named_parameters():
        if "position" in name and table.ndim > 1:
            nn.init.normal_(table)
    return module


def test_vits_move_along_where_positions_are_not_told() -> None:
    def of(position: str) -> tuple[float, float]:
        finding = finding_of(vit(position), border="wrap")
        patch = list(finding.px.values[0]).index(int(finding.patch[0]))
        return float(finding.similarity.sel(shift="one patch").min()), float(finding.variation[0, patch])

    none, relative, absolute = of("none"), of("relative"), of("1d")
    assert none[0] == pytest.approx(1, abs=1e-4)
    assert none[1] == pytest.approx(0, abs=1e-5)
    assert absolute[0] < relative[0] <= none[0]
    assert absolute[1] > none[1]


def test_dice_fall_the_same_for_every_position() -> None:
    finding = finding_of(chain(Dropped), border="wrap")
    assert finding.similarity.sel(shift="one patch").values == pytest.approx(1, abs=1e-5)


def test_half_of_the_images_move_sideways_and_half_up() -> None:
    """A network that reads columns only: half of its images do not change at all when they move along y."""

    class Columns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.unit, self.head = nn.Conv2d(3, 6, 1), cases.ConvUnit(6), nn.Linear(32, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = self.unit(self.stem(x.mean(2, keepdim=True).expand_as(x)))
            return self.head(x.mean((1, 2)))

    torch.manual_seed(0)
    bench = bench_of(Columns().eval(), cases.images(8))
    found = Shift(images=8, border="wrap").experiment(bench)
    assert found["fold"].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert found["variation"][:4].min() > 1e-5
    assert found["variation"][4:].max() < 1e-6
    # Both ways in every fold, or the difference between them would pass for a spread over images.
    found = Shift(images=64, border="wrap").experiment(bench_of(Columns().eval(), cases.images(64)))
    sideways = found["variation"].amax(1) > 1e-5
    assert found["fold"][sideways].bincount().tolist() == [2] * 16


def test_memory_does_not_change_the_numbers() -> None:
    bench = bench_of(cases.vit(patch_size=4), cases.images(10))
    whole = Shift(images=10).experiment(bench)
    bench.piece_size.most = PieceSize(3).most
    pieces = Shift(images=10).experiment(bench)
    assert torch.equal(whole["fold"], pieces["fold"])
    torch.testing.assert_close(whole["sums"], pieces["sums"], rtol=1e-4, atol=1e-4)


def test_the_patch_is_the_coarsest_cell() -> None:
    sites = [site("a", axes="NCYX", grid=(32, 32)), site("b", axes="NCYX", grid=(8, 8), block=1)]
    small = site("c", axes="NCYX", grid=(2, 2), block=2)  # cannot move by a cell within a quarter of the picture
    one = anatomy("it", [*sites, small])
    assert [place.name for place in blocks(one)] == ["a", "b"]
    assert patch_of(one) == 4
    assert pixels(one) == [1, 2, 4, 8]
    with pytest.raises(DoesNotApply, match="4×4"):
        Shift().tally(scene(anatomy("coarse", [small])))


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (cases.swin, 32),
        (lambda: timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=0, global_pool=""), 224),
        (lambda: timm.create_model("resnet10t", num_classes=3), 128),
    ],
    ids=["windows", "no answers", "a CNN at 128 px"],
)
def test_other_subjects_are_drawn_and_told(make: Callable[[], nn.Module], size: int) -> None:
    module = make().eval()
    bench = bench_of(module, cases.images(2, size))
    measure = Shift(images=2)
    finding = estimate_of(measure, bench)
    assert np.isfinite(finding.similarity).all()
    answers = bench.subject.logits(bench.subject.call(bench.images)) is not None
    assert np.isfinite(finding.variation.values[0, 0]) == answers
    assert measure.chart(finding).to_dict()
    assert ("changes" in measure.sentence(finding)) == answers


def test_vit_minus_cnn() -> None:
    vit_bench = bench_of(cases.vit(patch_size=4), cases.images(16), "vit")
    finding = estimate_of(Shift(images=16), vit_bench, bench_of(cases.resnet(), cases.images(16), "cnn"))
    value = {
        (str(name), str(who)): float(number)
        for name, who, number in zip(
            finding.quantity.values, finding.quantity_subjects.values, finding.quantity_value.values, strict=True
        )
    }
    gap = value["patch_equivariance", "vit"] - value["patch_equivariance", "cnn"]
    assert value["patch_equivariance_above_cnn", "vit | cnn"] == pytest.approx(gap)
