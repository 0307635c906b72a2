"""Head groups against a CNN: exact sums of Gram matrices, the order by distance, and SPEC Appendix A, M3."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
import xarray
from scipy.stats import spearmanr

from eyechart.claims.asking import asked_of
from eyechart.errors import DoesNotApply
from eyechart.measures.head_subsets.chart import panel
from eyechart.measures.head_subsets.measure import HeadSubsets, low_sites
from eyechart.methods.hsic import gram, hsic_table
from eyechart.methods.ranks import rank_correlation
from eyechart.sites import Site
from eyechart.tracing.views import Look
from tests.measures.staging import anatomy, full_grid, measure_tensors, scene, site

SIDE = 6


def attention_site(name: str, heads: int, block: int = 0) -> Site:
    return site(
        name, "attention", "attention", heads=heads, attention=full_grid(SIDE, 4), grid=(SIDE, SIDE), block=block
    )


def box(radius: int) -> torch.Tensor:
    """(query, key): attention spread evenly over the cells at most `radius` rows and columns away."""
    rows, columns = torch.arange(SIDE * SIDE) // SIDE, torch.arange(SIDE * SIDE) % SIDE
    apart = torch.maximum((rows[:, None] - rows).abs(), (columns[:, None] - columns).abs())
    near = (apart <= radius).float()
    return near / near.sum(1, keepdim=True)


def look_with(place: Site, radii: list[int], values: torch.Tensor, scale: list[float]) -> Look:
    """Each head averages `values` (image, token, channel) over boxes of its radius."""
    weights = torch.stack([box(radius) for radius in radii])
    output = torch.einsum("hqk,nkc->nhqc", weights, values) * torch.tensor(scale)[:, None, None]
    return Look(place, output=output[:, None], weights=lambda: weights.expand(len(values), 1, -1, -1, -1))


def cka(x: torch.Tensor, y: torch.Tensor, block: int) -> float:
    starts = range(0, len(x) // block * block, block)
    tables = [hsic_table(torch.stack([gram(part[s : s + block].flatten(1)) for part in (x, y)])) for s in starts]
    table = torch.stack(tables).mean(0)
    return float(table[0, 1] / (table[0, 0] * table[1, 1]).sqrt())


def run(
    radii: list[list[int]], measure: HeadSubsets, n: int = 64, block: int = 8, seed: int = 0
) -> tuple[xarray.Dataset, list[Look], torch.Tensor]:
    """A transformer whose attentions average the map of a CNN over boxes, beside that CNN."""
    generator = torch.Generator().manual_seed(seed)
    picture = torch.randn(n, 3, SIDE, SIDE, generator=generator)
    sites = [attention_site(f"{b} attention", len(each), b) for b, each in enumerate(radii)]
    scales = [[1.0 + 0.3 * h for h in range(len(each))] for each in radii]
    values = picture.flatten(2).transpose(1, 2)
    looks = [look_with(*each) for each in zip(sites, radii, [values] * len(sites), scales, strict=True)]
    units = [site(f"unit {b}", axes="NCYX", grid=(SIDE, SIDE), stage=b // 2, block=b) for b in range(4)]
    blocks = [site(f"block {b}", grid=(SIDE, SIDE), block=b) for b in range(len(sites))]
    where = scene(anatomy("t", [*sites, *blocks]), anatomy("c", units, architecture="cnn"), images=n, block=block)
    seen = {("t", look.site.name): look for look in looks}
    seen |= {("c", unit.name): Look(unit, output=picture) for unit in units}
    return measure_tensors(measure, where, seen, block), looks, picture


def test_groups_are_exactly_the_cka_of_their_heads_side_by_side() -> None:
    radii = [2, 0, 3, 1, 5, 4, 1, 2]
    finding, looks, picture = run([radii], HeadSubsets(), n=67)  # the last three images are in no whole block
    order = np.argsort([float((box(r) * full_distance()).sum(1).mean()) for r in radii], kind="stable")
    assert finding.sizes["group"] == 7  # windows of 8 // 4 = 2 heads
    for rank in range(7):
        heads = order[rank : rank + 2]
        together = looks[0].output[:, 0, heads]
        assert finding.group_heads.values[rank] == ", ".join(f"0 attention {h}" for h in heads)
        assert float(finding.cka[rank, 0]) == pytest.approx(cka(together, picture, 8), abs=1e-6)
        expected = np.mean([float((box(radii[h]) * full_distance()).sum(1).mean()) for h in heads])
        assert float(finding.distance[rank]) == pytest.approx(expected, rel=1e-5)


def full_distance() -> torch.Tensor:
    geometry = full_grid(SIDE, 4)
    assert geometry.query_yx is not None
    places = torch.as_tensor(geometry.query_yx[0])
    return torch.cdist(places, places)


def test_local_averages_of_a_cnn_map_give_higher_cka_than_global_averages() -> None:
    finding, _, _ = run([[4, 1, 3, 0, 5, 2]], HeadSubsets(), n=256, block=16)
    curve = finding.cka.values[:, 0]
    assert (np.diff(curve) < 0).all()
    assert curve[0] == pytest.approx(1, abs=1e-5)  # the head of radius 0 returns the map itself
    rows = dict(zip(finding.quantity.values.tolist(), finding.quantity_value.values.tolist(), strict=True))
    assert rows["head_cka_falls"] == pytest.approx(-1)
    assert rows["near_heads_over_far"] == pytest.approx(curve[0] - curve[-1], abs=1e-6)
    uniform = float(finding.group_uniform[0])
    assert rows["head_distance_spread"] == pytest.approx(float(finding.distance[-1] - finding.distance[0]) / uniform)


def test_heads_of_several_blocks_are_pooled_on_request() -> None:
    radii = [[5, 0, 3, 1], [2, 4, 1, 0]]
    finding, looks, picture = run(radii, HeadSubsets(blocks=2))
    assert finding.sizes["group"] == 8  # windows of 4 // 4 = 1 head over the 8 pooled ones
    assert finding.group_heads.values[0] == "0 attention 1"
    assert finding.group_heads.values[1] == "1 attention 3"
    assert finding.group_heads.values[-1] == "0 attention 0"
    expected = cka(looks[1].output[:, 0, 1], picture, 8)
    assert float(finding.cka[6, 0]) == pytest.approx(expected, abs=1e-6)
    (pooled,) = asked_of([HeadSubsets(blocks=2)])
    assert [gate.key for gate in pooled.gates] == ["g1", "g2-tokens", "g2-heads", "g4"]
    assert pooled.reading == "for heads of the first 2 blocks together"
    assert run(radii, HeadSubsets())[0].sizes["group"] == 4


def test_rank_correlation_is_spearmans() -> None:
    one, other = np.array([1.0, 2.0, 2.0, 5.0, 4.0]), np.array([3.0, 1.0, 1.5, 0.2, 0.2])
    assert rank_correlation(one, other) == pytest.approx(float(spearmanr(one, other).statistic))
    assert np.isnan(rank_correlation(one, np.ones(5)))


def test_low_sites_are_the_first_units_of_the_first_two_stages() -> None:
    stages = [0, 0, 0, 0, 1, 1, 1, 2]
    units = [site(f"u{i}", stage=stage, block=i) for i, stage in enumerate(stages)]
    assert [unit.name for unit in low_sites(anatomy("c", units, architecture="cnn"))] == ["u0", "u1", "u2", "u4", "u5"]
    assert low_sites(anatomy("t", units)) == []


@pytest.mark.parametrize(("farthest_off", "ends"), [(0.1, [9.89, 10.11]), (1.0, [4.85, 11.33])])
def test_heads_that_all_look_everywhere_fill_their_axis_which_says_so(farthest_off: float, ends: list[float]) -> None:
    distance = [10 - farthest_off, 10.0, 10 + farthest_off]
    cka = xarray.Dataset(
        {"cka": (("group", "site"), [[0.5], [0.6], [0.7]]), "distance": ("group", distance)},
        coords={
            "group_subject": ("group", ["vit"] * 3),
            "group_uniform": ("group", [10.0] * 3),
            "group_heads": ("group", ["blocks.0 attention 0"] * 3),
            "subject": ("site", ["cnn"]),
            "name": ("site", ["stem"]),
        },
    )
    cka["cka_low"] = cka["cka_high"] = cka["cka"]
    drawn = json.dumps(panel(cka, "vit", "cnn").to_dict())
    assert ("no head group looks nearby" in drawn) == (farthest_off == 0.1)
    axis = re.findall(r'"domain": \[([\d.]+), ([\d.]+)\]', drawn)[0]
    assert [float(end) for end in axis] == pytest.approx(ends, abs=0.01)


def test_it_needs_heads_and_a_cnn() -> None:
    transformer = anatomy("t", [attention_site("a", 4)])
    with pytest.raises(DoesNotApply, match="needs a subject with attention over positions and a CNN"):
        HeadSubsets().tally(scene(transformer))
    cnn = anatomy("c", [site("u")], architecture="cnn")
    with pytest.raises(DoesNotApply, match="at least 4 images"):
        HeadSubsets().tally(scene(transformer, cnn, images=3, block=4))
