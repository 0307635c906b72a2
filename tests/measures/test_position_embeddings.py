"""M13 on tables whose answer is known, and on the bundled subjects."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray

from eyechart import zoo
from eyechart.errors import DoesNotApply
from eyechart.measures.position_embeddings.measure import PositionEmbeddings, absolute, deal
from eyechart.subjects.load import load_subject
from tests.cases import inside
from tests.measures.on_subjects import finding_of, module_subject, quantities, staged, tally_of
from tests.measures.staging import anatomy, scene, site
from tests.measures.test_position_embeddings_tables import sinusoids


@pytest.fixture(scope="module")
def finding() -> xarray.Dataset:
    return finding_of(PositionEmbeddings(), "zoo:vit", "zoo:resnet", "zoo:swin", "zoo:vit@random", images=16)


def with_table(table: np.ndarray) -> torch.nn.Module:
    module = zoo.build("vit", depth=3, width=192, pool="gap")
    with torch.no_grad():
        module.get_parameter("pos_embed").copy_(torch.from_numpy(table.reshape(len(table), -1).T)[None])
    return module


def test_a_sinusoidal_table_goes_with_nearness() -> None:
    found = finding_of(PositionEmbeddings(), module_subject(with_table(sinusoids(8)), "waves"), images=16)
    assert float(found.nearness[0]) > 0.8
    maps = found.cosine.values[0].reshape(8, 8, 8, 8)
    assert (np.diff(maps[3, 0, 3]) < 0).all()
    assert (np.diff(maps[0, 3, :, 3]) < 0).all()
    value, low, _ = quantities(found)["position_bonus", "waves"]
    assert 0 < low < value


def test_a_table_of_rows_alone_has_no_bonus_of_columns() -> None:
    table = sinusoids(8)
    table[96:] = 0  # what the columns say; `sinusoids` writes the rows first
    known = quantities(finding_of(PositionEmbeddings(), module_subject(with_table(table), "rows"), images=16))
    assert known["position_nearness", "rows"][1] > 0.3
    assert known["position_bonus", "rows"][1] > 0  # of both together it has one
    assert known["position_row_bonus", "rows"][1] > 0
    assert known["position_column_bonus", "rows"][2] < 0


def test_a_pattern_is_near_itself_and_its_copies_and_far_from_another() -> None:
    """The distance of two patterns does not see what all pairs of patches share, nor the size of the embeddings."""
    random = np.random.default_rng(0).normal(size=sinusoids(8).shape)
    tables = {"waves": sinusoids(8), "doubled": 2 * sinusoids(8), "noise": random, "mixed": sinusoids(8) + 0.5 * random}
    subjects = [module_subject(with_table(table), name) for name, table in tables.items()]
    finding = finding_of(PositionEmbeddings(), *subjects, images=16)
    name = "position_pattern_distance"
    distances = {pair: value for (quantity, pair), (value, *_) in quantities(finding).items() if quantity == name}
    upper = np.triu_indices(64, 1)
    cosines = dict(zip(finding.subject.values.tolist(), finding.cosine.values, strict=True))
    for pair, value in distances.items():
        one, other = pair.split(" | ")
        expected = 1 - np.corrcoef(cosines[one][upper], cosines[other][upper])[0, 1]
        assert value == pytest.approx(expected, abs=1e-9)
    assert distances["waves | doubled"] == pytest.approx(0, abs=1e-6)
    assert distances["waves | doubled"] < distances["waves | mixed"] < distances["waves | noise"]
    assert distances["waves | noise"] == pytest.approx(1, abs=0.1)


def test_untrained_is_about_zero_and_trained_is_not(finding: xarray.Dataset) -> None:
    known = quantities(finding)
    value, low, high = known["position_nearness", "zoo:vit@random"]
    assert abs(value) < 0.1
    assert low < 0 < high
    value, low, high = known["position_bonus", "zoo:vit@random"]
    assert low < 0 < high
    assert known["position_nearness", "zoo:vit"][1] > 0.3
    assert known["position_bonus", "zoo:vit"][1] > 0
    assert known["position_row_bonus", "zoo:vit"][1] > 0
    assert known["position_column_bonus", "zoo:vit"][1] > 0


def test_relative_tables_have_their_own_numbers_and_no_claim(finding: xarray.Dataset) -> None:
    known = quantities(finding)
    assert ("position_nearness", "zoo:swin") not in known
    heads = finding.steps_nearness.values[finding.steps_subject.values == "zoo:swin"]
    assert known["relative_nearness", "zoo:swin"][0] == pytest.approx(np.nanmean(heads))
    assert heads.shape == (8, 16)
    assert np.isfinite(heads).sum() == 2 * 4 + 4 * 8 + 2 * 16


def test_a_table_that_all_heads_share_is_not_said_to_be_of_one_head(finding: xarray.Dataset) -> None:
    """AlterNet's layers have 4 to 16 heads and one table each, Swin's a table for each head."""
    shared = finding_of(PositionEmbeddings(), module_subject(zoo.build("alternet"), "shared"), images=16)
    assert shared.steps_heads.values.tolist() == [1] * 4
    said = PositionEmbeddings().chart(shared).to_json()
    assert "block 7: one bias for all heads" in said
    assert "each point a table" in said
    assert "each point a head" not in said
    assert '"field": "head"' not in said  # nor does a tooltip name one
    own = PositionEmbeddings().chart(finding.isel(relative=finding.steps_subject.values == "zoo:swin")).to_json()
    assert "bias of its 4 heads" in own
    assert "bias of 8 of 16 heads" in own
    assert "each point a head" in own
    assert '"field": "head"' in own


def test_intervals_leave_out_patches(finding: xarray.Dataset) -> None:
    from eyechart.intervals import jackknife
    from eyechart.measures.position_embeddings.tables import nearness

    cosine, folds = finding.cosine.values[0], deal(64, 16)
    assert np.bincount(folds).tolist() == [4] * 16
    values = np.array([nearness(cosine, (8, 8), (folds != fold).astype(float)) for fold in range(16)])
    low, high = jackknife(np.array(float(finding.nearness[0])), values)
    assert float(finding.nearness_low[0]) == pytest.approx(float(low))
    assert float(finding.nearness_high[0]) == pytest.approx(float(high))


def test_fixed_tables_and_other_families_are_shown_and_not_judged() -> None:
    module = with_table(sinusoids(8))
    module.get_parameter("pos_embed").requires_grad_(False)
    found = finding_of(PositionEmbeddings(), module_subject(module, "fixed"), images=16)
    assert found.learned.values.tolist() == [0]
    assert float(found.nearness[0]) > 0.8
    assert not [key for key in quantities(found) if key[0] == "position_nearness"]


def test_tables_of_every_layer_are_three_and_relative_vectors_are_cosines() -> None:
    layers = module_subject(zoo.build("vit", depth=5, position="1d", position_at="layers"), "layers")
    relative = module_subject(zoo.build("vit", depth=2, position="relative"), "relative")
    found = finding_of(PositionEmbeddings(), layers, relative, images=16)
    assert found.block.values.tolist() == [-1, 1, 3]
    assert found.steps_kind.values.tolist() == ["relative vectors"] * 2
    np.testing.assert_allclose(found.steps.values[:, 0, 7, 7], 1)  # no step is like itself
    assert PositionEmbeddings().chart(found).to_json()


def test_a_wide_picture_and_a_224_px_vit() -> None:
    tiny = load_subject("timm:vit_tiny_patch16_224@random")
    tiny.module.blocks = inside(tiny.module).blocks[:2]
    found = finding_of(PositionEmbeddings(), tiny, images=16)
    assert found.cosine.shape == (1, 196, 196)
    assert abs(float(found.nearness[0])) < 0.05


def test_any_cut_into_shards_gives_the_same() -> None:
    subjects, where = staged("zoo:vit", "zoo:swin")
    one, many = (tally_of(PositionEmbeddings(), subjects, where, per_shard) for per_shard in (4, 1))
    for name, values in one.tensors().items():
        assert torch.equal(values, many.tensors()[name]), name


def test_who_has_none_says_so(finding: xarray.Dataset) -> None:
    assert "No table of positions is added in zoo:resnet." in PositionEmbeddings().sentence(finding)
    assert absolute(anatomy("a", [site("one")])) == []
    with pytest.raises(DoesNotApply, match="table of positions"):
        PositionEmbeddings().tally(scene(anatomy("a", [site("one")])))
