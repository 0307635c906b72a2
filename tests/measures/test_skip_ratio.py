"""Skip ratio and cosine on vectors worked out by hand (SPEC Appendix A, M5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import xarray

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.measures.skip_ratio.chart import token_panel
from eyechart.measures.skip_ratio.measure import SkipRatio
from eyechart.measures.skip_ratio.ratio import ratio_and_cosines
from eyechart.sites import Kind
from eyechart.tracing.views import Look
from tests.measures.on_subjects import quantities
from tests.measures.staging import anatomy, measure_tensors, scene, site

RATIO, COSINE, BRANCH_COSINE, THERE = range(4)


def look_at(skip: torch.Tensor, branch: torch.Tensor, **layout: Any) -> torch.Tensor:
    return ratio_and_cosines(Look(site("j", role="junction", **layout), skip=skip, branch=branch))


def test_by_hand() -> None:
    skip = torch.tensor([[[3.0, 4.0], [1.0, 0.0]]])
    branch = torch.tensor([[[0.0, 2.5], [0.0, 1.0]]])
    seen = look_at(skip, branch, grid=(1, 2))[0]
    assert seen[0, RATIO] == pytest.approx(2)
    assert seen[1, RATIO] == pytest.approx(1)
    assert seen[1, COSINE] == pytest.approx(2**-0.5)
    assert seen[0, BRANCH_COSINE] == pytest.approx(0.8)
    assert seen[0, COSINE] == pytest.approx((9 + 4 * 6.5) / (5 * np.hypot(3, 6.5)), rel=1e-6)


def test_scaling_the_branch_scales_the_ratio() -> None:
    skip, branch = torch.randn(2, 5, 4, 7).unbind(0)
    one, scaled = look_at(skip, branch), look_at(skip, -2.5 * branch)
    torch.testing.assert_close(scaled[..., RATIO], one[..., RATIO] / 2.5)


def test_a_zero_branch_is_counted_and_passes_all() -> None:
    seen = look_at(torch.randn(1, 4, 3), torch.zeros(1, 4, 3))[0]
    assert (seen[:, THERE] == 0).all()
    assert torch.isfinite(seen).all()
    torch.testing.assert_close(seen[:, COSINE], torch.ones(4))


def test_layouts_give_the_same_tokens() -> None:
    skip, branch = torch.randn(2, 2, 6, 4, 4).unbind(0)  # NCYX
    channels_first = look_at(skip, branch, axes="NCYX", grid=(4, 4))
    channels_last = look_at(skip.permute(0, 2, 3, 1), branch.permute(0, 2, 3, 1), axes="NYXC", grid=(4, 4))
    tokens = look_at(skip.flatten(2).transpose(1, 2), branch.flatten(2).transpose(1, 2), axes="NTC", grid=(4, 4))
    torch.testing.assert_close(channels_first, channels_last)
    torch.testing.assert_close(channels_first, tokens)


def test_fine_grids_become_cells() -> None:
    skip, branch = torch.randn(2, 1, 3, 32, 32).unbind(0)
    seen = look_at(skip, branch, axes="NCYX", grid=(32, 32))
    per_location = skip.norm(dim=1) / branch.norm(dim=1)
    assert seen.shape == (1, 256, 4)
    assert seen[0, 17, RATIO] == pytest.approx(float(per_location[0, 2:4, 2:4].mean()), rel=1e-5)


@pytest.mark.parametrize("grid", [(28, 28), (56, 31)])
def test_every_location_counts_alike_where_cells_do_not_fit(grid: tuple[int, int]) -> None:
    skip, branch = torch.randn(2, 1, 3, *grid, generator=torch.Generator().manual_seed(0)).unbind(0)
    cells = look_at(skip, branch, axes="NCYX", grid=grid)[0, :, RATIO]
    per_location = skip.norm(dim=1) / branch.norm(dim=1)
    assert len(cells) == 256
    assert float(cells.mean()) == pytest.approx(float(per_location.mean()), rel=1e-5)
    # The first cell is 1.75 (or 3.5) rows high and 1.75 (or 31/16) columns wide.
    height, width = grid[0] / 16, grid[1] / 16
    down = torch.tensor([min(1.0, max(0.0, height - y)) for y in range(4)])
    across = torch.tensor([min(1.0, max(0.0, width - x)) for x in range(4)])
    first = down @ per_location[0, :4, :4] @ across / (height * width)
    assert float(cells[0]) == pytest.approx(float(first), rel=1e-5)


def test_the_finding_is_the_mean_of_ratios_not_the_ratio_of_means() -> None:
    # Branch norms are skewed over images: the two differ by far.
    generator = torch.Generator().manual_seed(0)
    skip = torch.randn(64, 5, 8, generator=generator)
    branch = torch.randn(64, 5, 8, generator=generator) * torch.randn(64, 1, 1, generator=generator).mul(1.5).exp()
    place = site("j", role="junction", kind="mlp", prefix=1, grid=(2, 2))
    finding = measure_tensors(
        SkipRatio(), scene(anatomy("v", [place], cls=0)), {("v", "j"): Look(place, skip=skip, branch=branch)}, 4
    )
    ratios = (skip.norm(dim=2) / branch.norm(dim=2)).double()
    assert float(finding.ratio_cls[0]) == pytest.approx(float(ratios[:, 0].mean()), rel=1e-5)
    assert float(finding.ratio_grid[0]) == pytest.approx(float(ratios[:, 1:].mean()), rel=1e-5)
    wrong = float(skip[:, 0].norm(dim=1).mean() / branch[:, 0].norm(dim=1).mean())
    assert abs(wrong - float(finding.ratio_cls[0])) > 0.2
    assert float(finding.ratio_cls_low[0]) < float(finding.ratio_cls[0]) < float(finding.ratio_cls_high[0])


def test_zero_branches_stay_out_of_the_mean_and_are_reported() -> None:
    skip, branch = torch.randn(64, 4, 8), torch.randn(64, 4, 8)
    branch[::2] = 0
    place = site("j", role="junction", kind="mlp")
    finding = measure_tensors(
        SkipRatio(), scene(anatomy("v", [place])), {("v", "j"): Look(place, skip=skip, branch=branch)}, 4
    )
    expected = (skip[1::2].norm(dim=2) / branch[1::2].norm(dim=2)).mean()
    assert float(finding.ratio_grid[0]) == pytest.approx(float(expected), rel=1e-5)
    assert finding.attrs["zero_branches"] == pytest.approx(0.5)


def phased_scene(
    early_cls: float, late_cls: float, late_grid: float = 1.0, late_mlp: float = 1.0, before: int = 0
) -> xarray.Dataset:
    """A ViT of four blocks whose class token rides the skip by `early_cls` and then `late_cls`; grid tokens by 1 and
    then `late_grid`. Late MLPs write `late_mlp` times as much on the class token. So many blocks `before` have none.
    """
    kinds: tuple[Kind, ...] = ("attention", "mlp")
    sites, looks = [], {}
    for block in range(-before, 0):
        for kind in kinds:
            place = site(f"{block} {kind}", "junction", kind, prefix=0, block=before + block, depth=0.0)
            sites.append(place)
            looks["v", place.name] = Look(place, skip=torch.ones(128, 4, 8), branch=torch.ones(128, 4, 8))
    for block in range(4):
        for kind in kinds:
            place = site(f"{block} {kind}", "junction", kind, prefix=1, block=before + block, depth=block / 4)
            skip = torch.randn(128, 5, 8).div(8**0.5)
            branch = skip.flip(-1).clone()
            branch[:, 0] /= early_cls if block < 2 else late_cls
            branch[:, 0] *= late_mlp if kind == "mlp" and block >= 2 else 1
            branch[:, 1:] /= 1 if block < 2 else late_grid
            sites.append(place)
            looks["v", place.name] = Look(place, skip=skip, branch=branch)
        sites.append(site(f"{block}", "block", "other", prefix=1, block=before + block, depth=(block + 1) / 4))
    return measure_tensors(SkipRatio(), scene(anatomy("v", sites, cls=0), images=128), looks, 4)


def test_the_phase_change_of_the_class_token() -> None:
    finding = phased_scene(early_cls=8, late_cls=2)
    found = quantities(finding)
    for kind in ("attention", "mlp"):
        assert found[f"cls_phase_{kind}", "v"][0] == pytest.approx(np.log(8) - np.log(2), rel=1e-5)
        assert found[f"grid_first_minus_second_{kind}", "v"][0] == pytest.approx(0, abs=1e-5)
    eight, two = "8.000 [± < 0.001]", "2.000 [± < 0.001]"
    told = f"{eight} times at attention in the first half of the blocks and {two} in the second; {eight} times at MLPs"
    assert told in SkipRatio().sentence(finding)


def test_who_has_no_map_is_told_with_the_reason() -> None:
    places = [site(f"{at}", "junction", "mlp", block=at, stage=at, depth=at + 0.5) for at in range(2)]
    looks = {("c", place.name): Look(place, skip=torch.ones(64, 4, 8), branch=torch.ones(64, 4, 8)) for place in places}
    finding = measure_tensors(SkipRatio(), scene(anatomy("c", places)), looks, 4)
    assert "\nWithout a map: c (the grid changes on the way" in SkipRatio().sentence(finding)
    assert "Without a map" not in SkipRatio().sentence(phased_scene(early_cls=8, late_cls=2))


@pytest.mark.parametrize("before", [0, 3])
def test_the_phase_of_a_class_token_that_joins_late_is_over_the_blocks_it_passes(before: int) -> None:
    found = quantities(phased_scene(early_cls=8, late_cls=2, before=before))
    for kind in ("attention", "mlp"):
        assert found[f"cls_phase_since_joining_{kind}", "v"][0] == pytest.approx(np.log(8) - np.log(2), rel=1e-5)
        assert ((f"cls_phase_{kind}", "v") in found) == (before == 0)


def test_a_share_of_two_blocks_is_known_to_half_a_block() -> None:
    """Of both late blocks in every draw of images: a bare [1, 1] would pass for certainty."""
    found = quantities(phased_scene(early_cls=8, late_cls=2, late_mlp=3))
    assert found["late_cls_mlp_share", "v"] == (1, 0.75, 1)


def test_a_parallel_block_has_no_attention_of_its_own_and_is_not_judged() -> None:
    """Where attention and MLP are added at once there are no two junctions that could differ."""
    places = [site(f"{at}", "junction", "other", prefix=1, block=at, depth=at / 2) for at in range(2)]
    sites = [*places, site("1b", "block", "other", prefix=1, block=1, depth=1.0)]
    looks = {("v", place.name): Look(place, skip=torch.ones(64, 5, 8), branch=torch.ones(64, 5, 8)) for place in places}
    finding = measure_tensors(SkipRatio(), scene(anatomy("v", sites, cls=0)), looks, 4)
    assert {name for name, _ in quantities(finding)} == {"typical_skip_ratio"}
    assert "class token" not in SkipRatio().sentence(finding)


@pytest.mark.parametrize(
    ("early", "late", "late_grid", "against", "alone"),
    [
        (8, 2, 4, "holds", "holds"),  # the class token falls, the others rise: all that the sentence says
        (2, 4, 8, "holds", "fails"),  # both rise, the others more
        (2, 4, 0.5, "fails", "fails"),
    ],
)
def test_the_difference_of_two_phase_changes_is_not_each_of_them(
    early: float, late: float, late_grid: float, against: str, alone: str
) -> None:
    finding = phased_scene(early, late, late_grid)
    facts = {"v": Facts("v", "transformer", True, "sample", (0.95, 0.94, 0.96))}
    verdicts = judge(asked_of([SkipRatio()]), {"skip_ratio": finding}, facts)
    assert {(v.reading, v.verdict) for v in verdicts if v.claim == "C21"} == {
        ("as the class token against the patch tokens", against),
        ("for each kind of token by itself", alone),
    }


def undirected_scene(seed: int) -> xarray.Dataset:
    """A ViT whose ratios have the same law everywhere, but whose class token's branch lies along the skip early on."""
    dice, sites, looks = torch.Generator().manual_seed(seed), [], {}
    for block in range(4):
        for kind in ("attention", "mlp"):
            place = site(f"{block} {kind}", "junction", kind, prefix=1, block=block, depth=block / 4)
            skip, across = torch.nn.functional.normalize(torch.randn(2, 64, 5, 8, generator=dice), dim=-1)
            across = torch.nn.functional.normalize(across - (across * skip).sum(-1, keepdim=True) * skip, dim=-1)
            along = torch.zeros(64, 5, 1)
            along[:, 0] = 0.6 if block < 2 else 0.1
            length = torch.exp(0.3 * torch.randn(64, 5, 1, generator=dice))
            branch = length * (along * skip + (1 - along.square()).sqrt() * across)
            sites.append(place)
            looks["v", place.name] = Look(place, skip=skip, branch=branch)
        sites.append(site(f"{block}", "block", "other", prefix=1, block=block, depth=(block + 1) / 4))
    return measure_tensors(SkipRatio(), scene(anatomy("v", sites, cls=0)), looks, 4)


@pytest.mark.parametrize("seed", range(4))
def test_a_cosine_agrees_with_no_ratio_that_goes_neither_way(seed: int) -> None:
    """The ratio has no phase change, so what the cosine's has in common with it is chance."""
    facts = {"v": Facts("v", "transformer", True, "sample", (0.95, 0.94, 0.96))}
    verdicts = judge(asked_of([SkipRatio()]), {"skip_ratio": undirected_scene(seed)}, facts)
    assert {v.verdict for v in verdicts if v.claim in ("C21", "C23")} == {"undecided"}


@pytest.mark.parametrize("broken", ["skip", "branch"])
def test_what_is_no_number_stays_none(broken: str) -> None:
    """It must not pass for a branch that writes nothing, whose ratio is counted as 0."""
    parts = {"skip": torch.randn(1, 4, 3), "branch": torch.randn(1, 4, 3)}
    parts[broken][0, 1] = torch.nan
    seen = look_at(parts["skip"], parts["branch"])[0]
    assert seen[1, RATIO].isnan()
    assert seen[[0, 2, 3]].isfinite().all()


def columns_of_map(grid: int, prefix: list[int], cls: int) -> tuple[list[str], dict[str, float]]:
    """The columns of a map of tokens from the left, and how many pixels wide each is."""
    values = np.full((len(prefix), max(prefix) + grid), np.nan)
    for row, own in enumerate(prefix):
        values[row, : own + grid] = 1.0 + np.arange(own + grid)
    names = [f"block {at + 1} mlp junction" for at in range(len(prefix))]
    columns = {"subject": ["v"] * len(prefix), "name": names, "prefix": prefix, "cls": [cls] * len(prefix)}
    coordinates = {name: ("site", column) for name, column in columns.items()}
    finding = xarray.Dataset(
        {"ratio": (("site", "token"), values)}, coords=coordinates | {"token": np.arange(values.shape[1])}
    )
    chart = token_panel(finding, "v", (1.0, 300.0)).to_dict()
    rows = [row for rows in chart["datasets"].values() for row in rows if "token" in row]
    scale = chart["layer"][0]["encoding"]["x"]["scale"]["domain"][1]
    widths = {row["token"]: (row["x2"] - row["x"]) * chart["width"] / scale for row in rows}
    return sorted(widths, key=lambda name: min(row["x"] for row in rows if row["token"] == name)), widths


@pytest.mark.parametrize(
    ("prefix", "cls", "first"),
    [
        ([1, 1], 0, ["class", "1", "2"]),
        ([5, 5], 0, ["class", "prefix 2", "prefix 3", "prefix 4", "prefix 5", "1"]),  # DINOv2 with registers
        ([4, 4], -1, ["prefix 1", "prefix 2", "prefix 3", "prefix 4", "1"]),  # registers alone: none is a class token
        ([0, 1], 0, ["class", "1", "2"]),  # CaiT: it joins late, and what was there before are patches
    ],
)
def test_tokens_without_place_are_columns_that_can_be_seen(prefix: list[int], cls: int, first: list[str]) -> None:
    """One of 197 columns was two pixels wide, and one on a narrow page; registers alone were called a class token."""
    names, widths = columns_of_map(196, prefix, cls)
    assert names[: len(first)] == first
    assert len(names) == max(prefix) + 196
    assert {widths[name] for name in names[: max(prefix)]} == {16}
    assert widths["1"] == 2
