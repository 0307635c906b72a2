"""M12 on weights whose components are known, and on the bundled subjects."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import xarray

from eyechart import zoo
from eyechart.errors import DoesNotApply
from eyechart.intervals import with_intervals
from eyechart.measures.patch_filters.measure import DRAWS, MOST, PatchFilters
from tests.measures.on_subjects import finding_of, module_subject, quantities, staged, tally_of
from tests.measures.staging import anatomy, scene, site


@pytest.fixture(scope="module")
def finding() -> xarray.Dataset:
    return finding_of(PatchFilters(), "zoo:vit", "zoo:resnet", "zoo:swin", "zoo:vit@random")


def test_a_cosine_basis_is_shown_and_found_smooth() -> None:
    """Filters that are mixtures of the low cosines, strong ones first: the tiles are those cosines."""
    at = torch.arange(4) + 0.5
    line = torch.stack([torch.cos(math.pi * at * k / 4) for k in range(4)])
    line = line / line.norm(dim=1, keepdim=True)
    order = sorted(((i, j, c) for i in range(4) for j in range(4) for c in range(3)), key=lambda at: at[0] + at[1])
    basis = torch.zeros(48, 3, 4, 4)
    for row, (i, j, colour) in enumerate(order):
        basis[row, colour] = torch.outer(line[i], line[j])
    noise = torch.randn(160, 49, generator=torch.Generator().manual_seed(0))
    noise[:, 0] = 1
    coefficients = torch.linalg.qr(noise).Q[:, 1:] * 0.9 ** torch.arange(48)
    module = zoo.build("vit", depth=3)
    with torch.no_grad():
        module.get_parameter("patch_embed.proj.weight").copy_(torch.einsum("fb,b...->f...", coefficients, basis))
    found = finding_of(PatchFilters(), module_subject(module, "cosines"), images=16)
    tiles = found.component_tile.values[0].reshape(MOST, -1)
    assert np.abs((tiles * basis[:MOST].reshape(MOST, -1).numpy()).sum(1)).min() > 0.999
    value, low, high = quantities(found)["centroid_below_random", "cosines"]
    assert 0.1 < low <= value <= high


def strongest(finding: xarray.Dataset) -> float:
    return float(finding.centroid.sel(subject="zoo:vit").values[:7].mean())


def test_the_bundled_vit_is_below_random_and_its_untrained_twin_is_not(finding: xarray.Dataset) -> None:
    known = quantities(finding)
    for name in ("centroid_below_random", "weighted_centroid_below_random"):
        value, low, high = known[name, "zoo:vit"]
        assert 0 < low < value < high
        value, low, high = known[name, "zoo:vit@random"]
        assert low < 0.02  # a random draw lies where random draws lie
        assert abs(value) < 0.05
    value, low, high = known["leading_centroid_below_random", "zoo:vit"]
    assert value == pytest.approx(finding.random_leading.sel(subject="zoo:vit").values.mean() - strongest(finding))
    assert low < 0 < high  # its first three lie above random ones, which a mean over 28 hides
    assert not [key for key in known if "below_random" in key[0] and key[1] in ("zoo:resnet", "zoo:swin")]


def test_the_interval_is_where_95_percent_of_initialisations_lie(finding: xarray.Dataset) -> None:
    own = finding.centroid.sel(subject="zoo:vit").values.mean()
    draws = finding.random_mean.sel(subject="zoo:vit").values - own
    value, low, high = quantities(finding)["centroid_below_random", "zoo:vit"]
    assert len(draws) == DRAWS
    assert value == pytest.approx(draws.mean())
    assert ((draws >= low) & (draws <= high)).mean() == pytest.approx(0.95, abs=0.01)


def test_shapes_and_shares(finding: xarray.Dataset) -> None:
    counts = np.isfinite(finding.centroid.values).sum(1).tolist()
    assert counts == [28, 27, 12, 28]  # 4·4·3 has more than 28, 3·3·3 and 2·2·3 have fewer
    share = finding.share.values
    np.testing.assert_allclose(np.nansum(share[1:3], axis=1), 1)  # all components there are
    assert (np.diff(share[0]) <= 0).all()
    assert finding.filter_kind.values.tolist() == ["patches", "convolution", "patches", "patches"]
    assert (finding.centroid_low == finding.centroid).where(finding.centroid.notnull(), True).all()  # exact


def test_fewer_than_28_components_are_not_judged() -> None:
    module = zoo.build("vit", depth=3, patch=2, width=32, heads=4)
    found = finding_of(PatchFilters(), module_subject(module, "fine"), images=16)
    assert np.isnan(quantities(found)["centroid_below_random", "fine"]).all()
    assert np.isnan(quantities(found)["weighted_centroid_below_random", "fine"]).all()
    assert np.isnan(quantities(found)["leading_centroid_below_random", "fine"]).all()


def test_any_cut_into_shards_gives_the_same() -> None:
    subjects, where = staged("zoo:vit")
    one, many = (tally_of(PatchFilters(), subjects, where, per_shard) for per_shard in (4, 1))
    for name, values in one.tensors().items():
        assert torch.equal(values, many.tensors()[name]), name
    assert with_intervals(PatchFilters(), one, where).attrs["of_weights"] == 1


def test_a_subject_without_filters_says_so() -> None:
    with pytest.raises(DoesNotApply, match="RGB"):
        PatchFilters().tally(scene(anatomy("a", [site("one")])))


def test_sentence_and_figure(finding: xarray.Dataset) -> None:
    said = PatchFilters().sentence(finding)
    assert "The 28 leading components of the 160 filters of zoo:vit (4×4 pixels) hold" in said
    assert f"that of the 7 strongest is {strongest(finding):.2f}, within" in said
    chart = PatchFilters().chart(finding).to_json()
    assert chart.count("data:image/png") >= 28
