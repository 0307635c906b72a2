"""M10 and M11: twins whose similarity is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray

from eyechart import zoo
from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.errors import DoesNotApply
from eyechart.measure import Measure
from eyechart.measures.cka.measure import Cka
from eyechart.measures.depth_similarity.measure import DepthSimilarity, decline, late_difference, low_similarity, slope
from eyechart.subjects.load import load_subject
from tests.measures.on_subjects import finding_of, module_subject, quantities, staged, tally_of


@pytest.fixture(scope="module")
def finding() -> xarray.Dataset:
    twin = load_subject("zoo:vit")
    twin.name = "the same"
    return finding_of(
        DepthSimilarity(), "zoo:vit", twin, "zoo:vit@random", "zoo:vit-gap", "zoo:resnet", images=32, block=8
    )


def at(finding: xarray.Dataset, one: str, other: str) -> xarray.Dataset:
    return finding.sel(pair=f"{one} – {other}")


def test_a_model_against_itself_is_1_at_every_block(finding: xarray.Dataset) -> None:
    np.testing.assert_allclose(at(finding, "zoo:vit", "the same").similarity, 1, atol=1e-6)


def test_an_untrained_pair_gives_the_floor(finding: xarray.Dataset) -> None:
    floor = at(finding, "zoo:vit", "zoo:vit@random")
    assert str(floor.relation.item()) == "untrained"
    assert float(floor.similarity.max()) < 0.7
    assert float(floor.similarity.mean()) < float(at(finding, "zoo:vit-gap", "zoo:vit").similarity.mean()) - 0.2


def test_only_twins_are_compared(finding: xarray.Dataset) -> None:
    assert not [pair for pair in finding.pair.values if "resnet" in str(pair)]
    assert "zoo:vit@random – zoo:vit-gap" not in finding.pair.values
    assert "zoo:vit-gap – zoo:vit@random" not in finding.pair.values


def test_the_curves_are_the_diagonals_of_cka() -> None:
    """The same number by the measure that compares everything, for whole layers and for patch tokens."""
    given = ("zoo:vit", "zoo:vit@random", "zoo:vit-gap")
    subjects, where = staged(*given, images=16, block=8)
    measures: list[Measure] = [Cka(), DepthSimilarity()]
    table, twins = (measure.estimate(tally_of(measure, subjects, where).total(), where) for measure in measures)
    for block in (0, 8):
        one, other = (f"{name}/blocks.{block}" for name in given[:2])
        expected = float(table.cka.sel(site=one, other_site=other))
        assert float(at(twins, *given[:2]).similarity[block]) == pytest.approx(expected, abs=1e-6)
        patches = float(table.patch_cka.sel(patch_site=one, other_site=f"zoo:vit-gap/blocks.{block}"))
        assert float(at(twins, "zoo:vit-gap", "zoo:vit").similarity[block]) == pytest.approx(patches, abs=1e-6)


def test_class_token_and_gap_part_in_the_last_third(finding: xarray.Dataset) -> None:
    value, low, high = quantities(finding)["cka_divergence", "zoo:vit-gap | zoo:vit"]
    curve = 1 - at(finding, "zoo:vit-gap", "zoo:vit").similarity.values
    assert value == pytest.approx(curve[6:].mean() - 2 * curve[:6].mean())
    assert 0 < low < value < high
    assert not {"size_decline", "tuning_decline"} & {name for name, _ in quantities(finding)}


def test_two_sizes_have_a_map_and_best_matches() -> None:
    torch.manual_seed(0)
    people = [
        module_subject(zoo.build("vit", depth=depth, width=32, heads=4), name)
        for depth, name in ((3, "small"), (5, "large"))
    ]
    for who in people:
        who.trained = True
    found = finding_of(DepthSimilarity(), *people, images=32, block=8)
    (pair,) = found.pair.values
    assert pair == "small – large"
    part = found.isel(pair=0)
    assert int(part.one_blocks) == 3
    assert np.isnan(part.similarity).all()
    np.testing.assert_allclose(part.best[:3], part.cka.values[:3, :5].max(1))
    assert np.isnan(part.cka.values[3:]).all()
    expected = float(part.best[0] - part.best[2])
    assert quantities(found)["size_decline", "small | large"][0] == pytest.approx(expected)
    facts = {
        name: Facts(name, "transformer", True, "sample", (0.9, 0.85, 0.95), recipe=f"that of {name}")
        for name in ("small", "large")
    }
    found.attrs["images"] = 64
    claims = {(v.claim, v.reading): v for v in judge(asked_of([DepthSimilarity()]), {"depth_similarity": found}, facts)}
    assert "the recipes differ" in claims["C40", "across sizes"].reason  # g4: then it may not be the size
    assert ("C40", "through fine-tuning") not in claims
    assert "two sizes" in DepthSimilarity().sentence(found)
    assert DepthSimilarity().chart(found).to_json()


def estimate(relations: list[str], curves: list[list[float]], names: list[tuple[str, str]]) -> xarray.Dataset:
    return xarray.Dataset(
        {"similarity": (("pair", "block"), np.array(curves)), "best": (("pair", "block"), np.array(curves))},
        coords={
            "one": ("pair", [one for one, _ in names]),
            "other": ("pair", [other for _, other in names]),
            "relation": ("pair", relations),
            "one_blocks": ("pair", [len(curve) for curve in curves]),
        },
    )


def test_quantities_of_known_curves() -> None:
    found = estimate(
        ["fine-tuned", "head", "data", "seed"],
        [[0.9, 0.8, 0.5], [0.9, 0.7, 0.2], [0.9, 0.6, 0.3], [1.0, 0.9, 0.8]],
        [("a", "b"), ("g", "c"), ("few", "all"), ("all", "again")],
    )
    assert decline("fine-tuned")(found) == {("a", "b"): pytest.approx(0.4)}
    assert decline("size")(found) == {}
    assert low_similarity("fine-tuned")(found) == {("a", "b"): pytest.approx(0.9)}
    assert late_difference(found) == {("g", "c"): pytest.approx(0.8 - 2 * 0.2)}
    assert slope(found) == {("few", "all"): pytest.approx(3 * (-0.3 + 0.1))}  # the ceiling falls by 0.1 a block


def test_strangers_are_left_out_with_a_reason() -> None:
    _, where = staged("zoo:vit", "zoo:resnet")
    with pytest.raises(DoesNotApply, match="no two subjects are twins"):
        DepthSimilarity().tally(where)
    with pytest.raises(DoesNotApply, match="at least 4 images"):
        DepthSimilarity().tally(replace(where, whole_blocks=0))


def test_any_cut_into_shards_gives_the_same() -> None:
    subjects, where = staged("zoo:vit", "zoo:vit@random", images=32, block=8)
    one, many = (tally_of(DepthSimilarity(), subjects, where, per_shard) for per_shard in (4, 1))
    for name, values in one.tensors().items():
        torch.testing.assert_close(values, many.tensors()[name])
