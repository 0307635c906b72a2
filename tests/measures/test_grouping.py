"""C80: mosaics of two pictures, and attention whose grouping is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.intervals import with_intervals
from eyechart.measures.grouping.chart import means_over_heads
from eyechart.measures.grouping.measure import Grouping
from eyechart.measures.grouping.mosaic import grouping, mosaics, sources, without_parameters
from eyechart.methods.patches import partners
from eyechart.subjects.load import load_subject
from tests import cases
from tests.measures.benches import bench_of, whole_and_in_shards
from tests.measures.on_subjects import module_subject, staged

GENERATOR = torch.Generator().manual_seed(0)


def by_hand(weights: Tensor, borrowed: Tensor) -> np.ndarray:
    """One image and head at a time, pair by pair."""
    images, heads, patches, _ = weights.shape
    found = np.zeros((images, heads, 2))
    for image in range(images):
        for head in range(heads):
            by_mass, by_rank = [], []
            for query in range(patches):
                own = [k for k in range(patches) if k != query and borrowed[image, k] == borrowed[image, query]]
                strange = [k for k in range(patches) if borrowed[image, k] != borrowed[image, query]]
                row = weights[image, head, query].double()
                share, even = float(row[own].sum() / row[own + strange].sum()), len(own) / (patches - 1)
                by_mass.append((share - even) / (1 - even))
                by_rank.append(np.mean([np.sign(float(row[a] - row[b])) for a in own for b in strange]))
            found[image, head] = np.mean(by_mass), np.mean(by_rank)
    return found


@pytest.mark.parametrize("patches", [8, 9])
def test_by_hand(patches: int) -> None:
    weights = torch.rand(3, 2, patches, patches, generator=GENERATOR).softmax(-1)
    borrowed = sources(3, patches, GENERATOR)
    found = grouping(weights, borrowed)
    np.testing.assert_allclose(found[..., :2], by_hand(weights, borrowed), atol=1e-6)
    assert (found[..., 2] == 1).all()


def test_known_answers() -> None:
    borrowed = sources(4, 16, GENERATOR)
    same = (borrowed[:, None, :, None] == borrowed[:, None, None, :]).double()
    loves_itself = same + 1e3 * torch.eye(16)  # which is left out
    np.testing.assert_allclose(grouping(loves_itself, borrowed)[..., :2], 1, atol=1e-9)
    strangers = grouping(1 - same, borrowed)[0, 0]
    assert strangers.tolist() == pytest.approx([-(7 / 15) / (8 / 15), -1, 1])
    itself_alone = grouping(torch.eye(16).expand(4, 1, 16, 16), borrowed)
    assert (itself_alone[..., 2] == 0).all()  # nothing goes to others: no query is counted
    below_zero = torch.full((4, 1, 16, 16), 1 / 16)
    below_zero[:, :, :8, 0] = -0.5  # half of the queries subtract, as talking heads do: they are no shares
    assert torch.isfinite(grouping(below_zero, borrowed)).all()
    assert (grouping(-torch.ones(4, 1, 16, 16), borrowed)[..., 2] == 0).all()


def test_attention_by_place_alone_groups_nothing() -> None:
    """However local: patches change pictures at random, and places stay."""
    places = torch.cartesian_prod(torch.arange(4), torch.arange(4)).double()
    local = (-2 * torch.cdist(places, places)).softmax(-1)
    one_corner = torch.zeros(16, 16).index_fill_(1, torch.tensor([0]), 1.0).double() + 1e-4
    for weights in (local, one_corner, torch.ones(16, 16).double()):
        found = grouping(weights.expand(2_000, 1, 16, 16), sources(2_000, 16, GENERATOR))[:, 0, :2]
        assert (found.mean(0).abs() < 4 * found.std(0) / 2_000**0.5 + 1e-9).all()


def test_a_mosaic_holds_patches_of_two_pictures_in_their_places() -> None:
    pictures = torch.randn(6, 3, 8, 12, generator=GENERATOR)
    partner, borrowed = partners(torch.tensor([0, 0, 0, 1, 1, 1])), sources(6, 6, GENERATOR)
    mixed = mosaics(pictures, partner, borrowed, (2, 3))
    for image in range(6):
        for patch in range(6):
            cell = (
                slice(None),
                slice(4 * (patch // 3), 4 * (patch // 3) + 4),
                slice(4 * (patch % 3), 4 * (patch % 3) + 4),
            )
            source = partner[image] if borrowed[image, patch] else image
            assert torch.equal(mixed[image][cell], pictures[source][cell])
    assert borrowed.sum(1).tolist() == [3] * 6


def test_attention_without_parameters_is_the_softmax_of_similarities() -> None:
    tokens = torch.randn(2, 5, 7, generator=GENERATOR)
    x = (tokens - tokens.mean(-1, keepdim=True)) / (tokens.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    scores = (x @ x.transpose(1, 2) / 7**0.5).exp()
    scores[:, range(5), range(5)] = 0
    torch.testing.assert_close(without_parameters(tokens)[:, 0], scores / scores.sum(-1, keepdim=True))


def test_a_pass_written_out_gives_the_same() -> None:
    """timm's ViT on mosaics of our own making: weights and tokens of each block by hand."""
    bench = bench_of(cases.vit(), 12)
    found = Grouping().experiment(bench)
    borrowed = sources(12, 16, bench.generator("mosaics"))
    mixed = mosaics(bench.images, partners(bench.folds()), borrowed, (4, 4))
    model = cases.inside(bench.subject.module)
    with torch.no_grad():
        x = torch.cat([model.cls_token.expand(12, -1, -1), model.patch_embed(mixed)], 1) + model.pos_embed
        for number, block in enumerate(model.blocks):
            q, k, _ = block.attn.qkv(block.norm1(x)).view(12, 17, 3, 3, 8).permute(2, 0, 3, 1, 4)
            weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)[:, :, 1:, 1:]
            np.testing.assert_allclose(found["learned"][:, number, :, :2], by_hand(weights, borrowed), atol=2e-5)
            free = by_hand(without_parameters(x[:, 1:]), borrowed)
            np.testing.assert_allclose(found["free"][:, number, :2], free[:, 0], atol=2e-5)
            x = block(x)


def test_shards_and_the_finding() -> None:
    measure, subjects = Grouping(), [load_subject("zoo:vit"), load_subject("zoo:resnet")]
    whole, in_shards, scene = whole_and_in_shards(measure, subjects)
    for name, value in whole.tensors().items():
        torch.testing.assert_close(value, in_shards.tensors()[name])
    finding = with_intervals(measure, whole, scene)
    assert finding.free.dims == ("site", "way")
    assert isinstance(finding, xarray.Dataset)
    assert float(finding.free.sel(way="by rank").min()) > 0.1  # patches of one picture are alike
    heads = finding.learned.mean("head")
    mean = means_over_heads(finding)
    assert mean.learned.values == pytest.approx(heads.values)
    assert (mean.learned_low < heads).all()
    assert (heads < mean.learned_high).all()
    assert "without parameters" in measure.sentence(finding)
    assert "\nLeft out: zoo:resnet (only in ViTs on patches" in measure.sentence(finding)


def test_others_than_vits_on_patches_are_left_out() -> None:
    subjects, scene = staged(module_subject(cases.inside(load_subject("zoo:resnet").module), "resnet"))
    assert subjects
    with pytest.raises(DoesNotApply, match="no subject is a ViT on patches"):
        Grouping().tally(scene)
