"""Attention distance on attention patterns whose distance is known (SPEC Appendix A, M2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from eyechart.claims.asking import asked_of
from eyechart.errors import UsageError
from eyechart.measure_options import with_option
from eyechart.measures.attention_distance.measure import AttentionDistance
from eyechart.methods.attention_distance import Cls, Places, how_far, in_one_product, one_by_one, tokens_from
from eyechart.sites import Anatomy, AttentionGeometry, Filters
from eyechart.tracing.views import Look
from tests.measures.staging import anatomy, full_grid, measure_tensors, scene, site

DISTANCE, PREFIX, COVERAGE, SHARE = range(4)


def giving(weights: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: weights


def look_at(weights: torch.Tensor, geometry: AttentionGeometry, cls: Cls = "drop") -> torch.Tensor:
    """`weights` (query, key) as one image, one window, one head."""
    place = site("attention", role="attention", heads=1, attention=geometry, prefix=geometry.query_prefix)
    return how_far(Look(place, weights=lambda: weights[None, None, None].double()), cls)[0, 0]


def brute_force(weights: np.ndarray, geometry: AttentionGeometry) -> float:
    assert geometry.query_yx is not None
    places = geometry.query_yx[0]
    rows = []
    for i in range(geometry.query_prefix, len(weights)):
        row = weights[i, geometry.key_prefix :] / weights[i, geometry.key_prefix :].sum()
        rows.append(
            sum(a * np.hypot(*(places[i] - p)) for a, p in zip(row, places[geometry.key_prefix :], strict=True))
        )
    return float(np.mean(rows))


def test_attending_itself_is_no_distance() -> None:
    seen = look_at(torch.eye(64), full_grid(8, 4))
    assert seen[DISTANCE] == 0
    assert seen[COVERAGE] == pytest.approx(1)


@pytest.mark.parametrize(("side", "cell", "expected"), [(14, 16, 116.49), (8, 4, 16.55)])
def test_uniform_attention(side: int, cell: float, expected: float) -> None:
    seen = look_at(torch.full((side**2, side**2), 1 / side**2), full_grid(side, cell))
    assert seen[DISTANCE] == pytest.approx(expected, abs=0.005)
    assert full_grid(side, cell).uniform_distance == pytest.approx(expected, abs=0.005)
    assert seen[COVERAGE] == pytest.approx(1)


@pytest.mark.parametrize(("wrapped", "expected"), [(False, 7 / 8), (True, 2 * 7 / 8)])
def test_a_shift_by_one_cell(wrapped: bool, expected: float) -> None:
    column = np.arange(64) % 8
    target = np.arange(64) - column + ((column + 1) % 8 if wrapped else np.minimum(column + 1, 7))
    weights = torch.zeros(64, 64)
    weights[np.arange(64), target] = 1
    # Interior queries are off by one cell; clamped, the last column attends itself; wrapped, it goes back seven cells.
    assert look_at(weights, full_grid(8, 4))[DISTANCE] == pytest.approx(4 * expected)


@pytest.mark.parametrize(("key", "low", "high"), [(3 * 8 + 3, 0.72, 0.78), (0, 1.30, 1.39)])
def test_one_place_is_far_but_covers_nothing(key: int, low: float, high: float) -> None:
    weights = torch.zeros(64, 64)
    weights[:, key] = 1
    seen = look_at(weights, full_grid(8, 4))
    assert low < seen[DISTANCE] / full_grid(8, 4).uniform_distance < high
    assert seen[COVERAGE] == pytest.approx(0, abs=1e-6)


def test_random_attention_with_a_class_token_agrees_with_brute_force() -> None:
    weights = torch.rand(17, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    geometry = full_grid(4, 8, prefix=1)
    seen = look_at(weights, geometry)
    assert seen[DISTANCE] == pytest.approx(brute_force(weights.numpy(), geometry), rel=1e-9)
    assert seen[PREFIX] == pytest.approx(float(weights[1:, 0].mean()), rel=1e-6)


def test_mass_on_the_class_token_is_dropped_and_said() -> None:
    weights = torch.full((65, 65), 0.01 / 64)
    weights[:, 0] = 0.99
    seen = look_at(weights, full_grid(8, 4, prefix=1))
    assert seen[DISTANCE] / full_grid(8, 4).uniform_distance == pytest.approx(1, abs=1e-3)
    assert seen[PREFIX] == pytest.approx(0.99, abs=1e-6)


@pytest.mark.parametrize(("cls", "expected"), [("drop", 1.00), ("keep", 0.01)])
def test_a_head_with_99_percent_on_the_class_token(cls: Cls, expected: float) -> None:
    """SPEC M2: it reads .01 of uniform with the class token kept and 1.00 with it dropped, and its mass is reported."""
    weights = torch.full((65, 65), 0.01 / 64)
    weights[:, 0] = 0.99
    place = site("attention", "attention", "attention", heads=1, prefix=1, attention=full_grid(8, 4, prefix=1))
    look = Look(place, weights=lambda: weights.expand(64, 1, 1, -1, -1))
    who = scene(anatomy("v", [place], cls=0))
    finding = measure_tensors(AttentionDistance(cls=cls), who, {("v", "attention"): look}, 4)
    assert float(finding.relative[0, 0]) == pytest.approx(expected, rel=1e-5)
    assert float(finding.prefix_mass[0, 0]) == pytest.approx(0.99, abs=1e-6)
    assert float(finding.coverage[0, 0]) == pytest.approx(1, abs=1e-5)


def test_kept_rows_count_the_class_token_as_no_distance() -> None:
    weights = torch.rand(17, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    geometry = full_grid(4, 8, prefix=1)
    assert geometry.query_yx is not None
    places = geometry.query_yx[0]
    rows = [
        sum(float(weights[i, j]) * np.hypot(*(places[i] - places[j])) for j in range(1, 17))  # j = 0: no distance
        for i in range(1, 17)
    ]
    assert look_at(weights, geometry, "keep")[DISTANCE] == pytest.approx(float(np.mean(rows)), rel=1e-9)
    patches = full_grid(4, 8)
    only = weights[1:, 1:]  # rows that do not add up to 1, and no prefix: nothing to keep or drop
    assert look_at(only, patches, "keep")[DISTANCE] == pytest.approx(float(look_at(only, patches)[DISTANCE]), rel=1e-9)


def test_an_image_whose_head_sees_the_class_token_only_counts_where_it_is_kept() -> None:
    """Half the images attend one cell to the right, half the class token alone."""
    weights = torch.zeros(64, 1, 1, 5, 5)
    weights[:32, ..., 0] = 1
    weights[32:, 0, 0, [0, 1, 2, 3, 4], [0, 2, 1, 4, 3]] = 1
    place = site("attention", "attention", "attention", heads=1, prefix=1, attention=full_grid(2, 16, prefix=1))
    who, looks = scene(anatomy("v", [place], cls=0)), {("v", "attention"): Look(place, weights=lambda: weights)}
    found = {cls: measure_tensors(AttentionDistance(cls=cls), who, looks, 4) for cls in ("drop", "keep")}
    assert {cls: float(finding.distance[0, 0]) for cls, finding in found.items()} == {"drop": 16, "keep": 8}


def test_verdicts_with_the_class_token_kept_say_so() -> None:
    kept = with_option(AttentionDistance(), "cls", "keep")
    assert [test.claim for test in asked_of([kept])] == [test.claim for test in asked_of([AttentionDistance()])]
    assert {test.reading for test in asked_of([kept])} == {"with attention to the class token as distance 0"}
    assert {test.reading for test in asked_of([AttentionDistance()])} == {""}
    with pytest.raises(UsageError, match="takes drop, keep"):
        with_option(AttentionDistance(), "cls", "both")


@pytest.mark.parametrize("cls", ["drop", "keep"])
def test_what_pads_a_window_is_no_place_of_the_picture(cls: Cls) -> None:
    """A 2×3 grid of 4-pixel cells in windows of 2×2, the second half padding: a Swin at a size it was not made for."""
    column = np.array([[2.0, 6.0, 2.0, 6.0], [10.0, np.nan, 10.0, np.nan]])
    row = np.where(np.isnan(column), np.nan, [2.0, 2.0, 6.0, 6.0])
    places = np.stack([row, column], axis=-1)
    geometry = AttentionGeometry("windowed", (2, 2), 2, 0, 0, (4, 4), 4.0, 4, places, places)
    weights = torch.full((1, 2, 1, 4, 4), 0.25)
    seen = how_far(Look(site("a", role="attention", attention=geometry), weights=lambda: weights), cls)[0, 0]
    square = (4 + 4 + np.hypot(4, 4)) / 4  # from a corner of the whole window; from a cell of the cut one, half of 4
    assert seen[DISTANCE] == pytest.approx((4 * square + 2 * 2) / 6, rel=1e-6)
    assert seen[[PREFIX, COVERAGE, SHARE]].tolist() == pytest.approx([0, 1, 1], abs=1e-6)


def test_weights_that_do_not_add_up_to_one_give_nothing_to_a_class_token_that_is_not_there() -> None:
    """Talking heads (CaiT) mix the heads after the softmax."""
    assert look_at(torch.full((16, 16), 3 / 16), full_grid(4, 8))[PREFIX] == 0
    mixed = torch.full((17, 17), 3 / 16)
    mixed[:, 0] = 1
    assert look_at(mixed, full_grid(4, 8, prefix=1))[PREFIX] == pytest.approx(0.25)


@pytest.mark.parametrize("cls", ["drop", "keep"])
def test_rows_that_subtract_are_no_attention(cls: Cls) -> None:
    weights = torch.eye(16)
    weights[0, 0], weights[0, 15], weights[1] = 0, 1, torch.cat([torch.full((15,), -0.1), torch.tensor([2.5])])
    seen = look_at(weights, full_grid(4, 8), cls)
    assert seen[DISTANCE] == pytest.approx(3 * 8 * 2**0.5 / 15)  # one of the fifteen proper rows looks far
    assert seen[SHARE] == pytest.approx(15 / 16)
    assert look_at(weights[[1] * 16], full_grid(4, 8), cls)[SHARE] == 0


def test_rows_without_mass_on_patches_are_counted_not_averaged() -> None:
    weights = torch.zeros(65, 65)
    weights[:, 0] = 1
    weights[1, 0], weights[1, 64] = 0, 1  # one query looks at the far corner
    seen = look_at(weights, full_grid(8, 4, prefix=1))
    assert seen[DISTANCE] == pytest.approx(7 * 4 * 2**0.5, rel=1e-6)
    assert seen[SHARE] == pytest.approx(1 / 64)


def test_windows_use_their_true_positions() -> None:
    """Two windows of 2×2 in a 2×4 grid, the second one's cells given in another order: distances follow positions."""
    left = np.array([[0.0, 0.0], [0, 1], [1, 0], [1, 1]])
    right = (left + np.array([0, 2]))[[3, 1, 2, 0]]
    places = np.stack([left, right])
    geometry = AttentionGeometry("windowed", (2, 2), 2, 0, 0, (1, 1), 1.0, 4, places, places)
    weights = torch.zeros(2, 4, 4)
    weights[0, :, 0] = 1  # all look at (0, 0)
    weights[1, :, 3] = 1  # all look at (0, 2), which is key 3 there
    place = site("attention", role="attention", heads=1, attention=geometry)
    seen = how_far(Look(place, weights=lambda: weights[None, :, None]))[0, 0]
    assert seen[DISTANCE] == pytest.approx((0 + 1 + 1 + 2**0.5) / 4)


def test_the_finding_averages_over_images_and_pads_heads() -> None:
    geometry = full_grid(2, 16)
    sites = [
        site(f"a{i}", role="attention", kind="attention", heads=heads, attention=geometry, block=i, depth=(i + 1) / 2)
        for i, heads in enumerate([2, 3])
    ]
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(64, 1, heads, 4, 4, generator=generator).softmax(-1) for heads in (2, 3)]
    who = anatomy("v", sites)
    looks = {("v", s.name): Look(s, weights=giving(w)) for s, w in zip(sites, weights, strict=True)}
    finding = measure_tensors(AttentionDistance(), scene(who, anatomy("without", [])), looks, 4)
    assert (
        AttentionDistance()
        .sentence(finding)
        .endswith("Left out: without (no attention over positions that can be read).")
    )
    expected = np.mean([brute_force(weights[1][n, 0, 2].double().numpy(), geometry) for n in range(64)])
    assert float(finding.distance[1, 2]) == pytest.approx(expected, rel=1e-5)
    assert float(finding.distance_low[1, 2]) < expected < float(finding.distance_high[1, 2])
    assert np.isnan(finding.distance.values[0, 2])
    assert float(finding.uniform_low[0]) == float(finding.uniform[0])


def test_quantities_of_a_vit_of_four_blocks() -> None:
    """Eight heads a block that mix attending oneself with uniform attention in known parts."""
    geometry, generator = full_grid(4, 8), torch.Generator().manual_seed(0)
    sites, looks = [], {}
    for block in range(4):
        place = site(f"a{block}", "attention", "attention", heads=8, attention=geometry, block=block, grid=(4, 4))
        # Head h of block b looks at 0.1 + (h + 8 b) / 40 of uniform distance; images differ a little.
        share = 0.1 + (torch.arange(8) + 8 * block) / 40 + 0.01 * torch.randn(64, 1, generator=generator)
        uniform, own = torch.full((16, 16), 1 / 16), torch.eye(16)
        weights = share[:, :, None, None] * uniform + (1 - share[:, :, None, None]) * own
        sites += [place, site(f"b{block}", block=block, depth=(block + 1) / 4, grid=(4, 4))]
        looks["v", place.name] = Look(place, weights=giving(weights[:, None]))
    finding = measure_tensors(AttentionDistance(), scene(anatomy("v", sites)), looks, 4)
    rows = dict(zip(finding.quantity.values.tolist(), finding.quantity_value.values.tolist(), strict=True))
    assert rows["early_nearest_head"] == pytest.approx(0.1, abs=0.005)
    assert rows["early_farthest_head"] == pytest.approx(0.1 + 15 / 40, abs=0.005)
    assert rows["late_nearest_head"] == pytest.approx(0.1 + 24 / 40, abs=0.005)
    assert rows["late_coverage"] == pytest.approx(1, abs=1e-6)
    assert rows["distance_grows"] == 1
    assert rows["distance_growth"] == pytest.approx(24 / 40, abs=0.005)  # the first and the last of four blocks
    assert rows["early_near_head"] == rows["early_nearest_head"]
    assert rows["early_far_head"] == rows["early_farthest_head"]
    assert rows["local_heads"] == pytest.approx(16.5 / 32, abs=0.5 / 32)
    assert rows["early_local_heads"] == 1
    assert "early_farthest_prefix_mass" not in rows, "nothing to give to: it has no class token"


def blocks_of(name: str, local: int, filters: Filters) -> tuple[Anatomy, dict[tuple[str, str], Look]]:
    """Four blocks of four heads on an 8×8 grid of 4-pixel cells: `local` of the first two attend themselves."""
    geometry, sites, looks = full_grid(8, 4), [], {}
    for block in range(4):
        place = site(f"{name} {block}", "attention", "attention", block=block, heads=4, attention=geometry)
        whole = site(f"{name} block {block}", kind="attention", block=block, depth=(block + 1) / 4)
        sites += [place, whole]
        weights = torch.full((64, 1, 4, 64, 64), 1 / 64)
        weights[:, :, : local if block < 2 else 0] = torch.eye(64)
        looks[name, place.name] = Look(place, weights=giving(weights))
    return replace(anatomy(name, sites, cls=0), filters=filters), looks


def test_a_hybrid_has_fewer_local_heads_early() -> None:
    vit, looks = blocks_of("v", 3, Filters("p", (8, 3, 4, 4), "patches"))
    hybrid, others = blocks_of("h", 1, Filters("s", (8, 3, 3, 3), "convolution"))  # 3 pixels of a cell of 4
    assert (tokens_from(vit), tokens_from(hybrid)) == ("patches", "a CNN")
    finding = measure_tensors(AttentionDistance(), scene(vit, hybrid), looks | others, 4)
    early = finding.isel(quantity_row=finding["quantity"].values == "early_local_heads").quantity_value.values
    assert early.tolist() == [0.75, 0.25], "of the first two attentions alone: of all heads it would be half as much"
    rows = finding.isel(quantity_row=finding["quantity"].values == "early_local_gap")
    assert rows.quantity_subjects.values.tolist() == ["v | h"]
    assert float(rows.quantity_value[0]) == pytest.approx(2 / 4)
    ends = [float(rows[f"quantity_{end}"][0]) for end in ("low", "high")]
    assert ends == pytest.approx([1 / 2 - 0.37, 1 / 2 + 0.37], abs=0.01)  # of eight heads each, which no draw moved
    nearer = finding.isel(quantity_row=finding["quantity"].values == "early_near_gap")
    assert float(nearer.quantity_value[0]) == pytest.approx(0)  # two of eight heads attend themselves in both


def test_heads_on_the_class_token_or_in_a_corner_are_neither_near_nor_far() -> None:
    """Four heads: on the class token and else uniform, always in a corner, half as far as uniform, at oneself."""
    geometry, cells = full_grid(8, 4, prefix=1), 64
    weights = torch.zeros(4, 64 + 1, 65)
    weights[0, :, 0], weights[0, :, 1:] = 0.9, 0.1 / cells
    weights[1, :, 1] = 1
    weights[2, :, 1:] = 0.5 / cells
    weights[2, 1:, 1:] += 0.5 * torch.eye(cells)
    weights[3, 1:, 1:] = torch.eye(cells)
    sites, looks = [], {}
    for block in range(4):
        place = site(f"a{block}", "attention", "attention", heads=4, attention=geometry, block=block, grid=(8, 8))
        sites += [place, site(f"b{block}", block=block, depth=(block + 1) / 4, grid=(8, 8))]
        looks["v", place.name] = Look(place, weights=lambda: weights.expand(64, 1, 4, 65, 65))
    finding = measure_tensors(AttentionDistance(), scene(anatomy("v", sites)), looks, 4)
    rows = dict(zip(finding.quantity.values.tolist(), finding.quantity_value.values.tolist(), strict=True))
    assert rows["early_farthest_head"] > 1.2  # the corner
    assert rows["early_farthest_prefix_mass"] == 0  # which gives the class token nothing
    assert rows["early_far_head"] == pytest.approx(0.5, abs=0.01)
    assert rows["early_near_head"] == pytest.approx(0, abs=0.01)


def test_whose_tokens_are_whose() -> None:
    staged = anatomy(
        "s", [site("a", "attention", "attention", heads=2, attention=full_grid(8, 4)), site("c", kind="conv")]
    )
    assert tokens_from(staged) == ""
    assert tokens_from(anatomy("c", [site("c", kind="conv")], architecture="cnn")) == ""
    later = [site("c", kind="conv"), site("a", "attention", "attention", block=1, heads=2, attention=full_grid(8, 4))]
    assert tokens_from(anatomy("h", [*later, site("b", kind="attention", block=1)], architecture="hybrid")) == "a CNN"


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("hidden", [False, True])
def test_sums_over_keys_in_one_product_are_those_one_by_one(prefix: int, hidden: bool) -> None:
    """The product is a GPU's way; keys of padded windows have no place."""
    torch.manual_seed(0)
    geometry = full_grid(4, 8, prefix=prefix)
    if hidden:
        assert geometry.key_yx is not None
        yx = geometry.key_yx.copy()
        yx[:, -1] = np.nan
        geometry = replace(geometry, key_yx=yx)
    weights = torch.randn(2, 1, 3, 16, 16 + prefix).double().softmax(-1)
    places = Places.of(geometry, weights)
    assert (places.seen is not None) == hidden
    per_row = torch.rand(2, 1, 3, 16).double()
    *sums, placed = in_one_product(weights, places)
    *others, placed_too = one_by_one(weights, places)
    torch.testing.assert_close([*sums, placed(per_row)], [*others, placed_too(per_row)], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls", ["drop", "keep"])
def test_some_images_at_a_time_give_what_all_give(cls: Cls, monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = full_grid(4, 8, prefix=1)
    weights = torch.randn(5, 1, 3, 17, 17, generator=torch.Generator().manual_seed(0)).softmax(-1)
    place = site("attention", role="attention", heads=3, attention=geometry, prefix=1)
    whole = how_far(Look(place, weights=giving(weights)), cls)
    monkeypatch.setattr("eyechart.methods.attention_distance.IN_CACHE", 2 * weights[0].numel())
    torch.testing.assert_close(how_far(Look(place, weights=giving(weights)), cls), whole, rtol=0, atol=0)
