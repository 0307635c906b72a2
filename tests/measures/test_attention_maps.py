"""Attention maps of a tiny ViT that hands out its own softmax, and of subjects whose maps are thinned or missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
import xarray
from PIL import Image
from torch import Tensor, nn

from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.errors import DoesNotApply
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measures.attention_maps.chart import Asked, columns_of, draw, heat_map, pictures
from eyechart.measures.attention_maps.examples import (
    FEWEST,
    ROOM,
    bytes_of_picture,
    picture_size,
    spread_over_classes,
    take_examples,
    thinning,
)
from eyechart.measures.attention_maps.measure import AttentionMaps
from eyechart.measures.attention_maps.rows import LEVELS, MEAN, PREFIX, decoded, why_no_rollout
from eyechart.scene import Batch, Scene
from eyechart.site_choice import attentions_with_maps
from eyechart.sites import Anatomy, AttentionGeometry, Site
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.tally import Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.pieces import PieceSize
from tests.measures.staging import anatomy, scene, site

IMAGES, HEADS, WIDTH, PATCH = 32, 2, 16, 8


class Block(nn.Module):
    def __init__(self, given: list[Tensor]) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        self.given = given

    def forward(self, x: Tensor) -> Tensor:
        count, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(count, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (3 * q @ k.transpose(-2, -1)).softmax(-1)
        self.given.append(weights.detach())
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(count, tokens, WIDTH))
        after: Tensor = x + self.mlp(self.norm2(x))
        return after


class TinyViT(nn.Module):
    """A 4×4 grid of patches after a class token; `given` holds the softmax of each block of the last pass."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Tensor] = []
        self.embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 17, WIDTH))
        self.blocks = nn.Sequential(*(Block(self.given) for _ in range(3)))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        self.given.clear()
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        logits: Tensor = self.head(self.blocks(x)[:, 0])
        return logits


@pytest.fixture(scope="module")
def tiny() -> Subject:
    torch.manual_seed(4)
    subject = load_subject(TinyViT(), label="tiny", input_size=32)
    subject.preprocessing = load_subject("zoo:vit").preprocessing
    return subject


def examined(
    subjects: Sequence[Subject], images: int = IMAGES, per_shard: int = 1, used: int = 0, source: Any = None
) -> xarray.Dataset:
    """The finding of an exam, from a scene as a plan gives it back: without the positions of queries and keys."""
    source = source or open_images("sample")
    plan = plan_batches(source, limit=images, block=8, blocks_per_shard=per_shard)
    first = source.pictures([0, 1])
    bodies = [anatomy_of(who.name, who.module, who.prepare(first), call=who.call) for who in subjects]
    plain = tuple(Anatomy.from_json(body.as_json()) for body in bodies)
    where = Scene(plain, images, images // 8, 8, 16, source.classes)
    measure = AttentionMaps(images=used or images)
    tapped = [TappedSubject(who, body, [measure]) for who, body in zip(subjects, bodies, strict=True)]
    tally: Tally = measure.tally(where)
    for shard in reversed(range(len(plan.shards))):
        tally = tally.merge(examine_shard(tapped, source, plan.batches(shard), [measure], where)[measure.name])
    return with_intervals(measure, tally, where)


@pytest.fixture(scope="module")
def finding(tiny: Subject) -> xarray.Dataset:
    return examined([tiny])


def softmaxes(subject: Subject, places: Sequence[int]) -> np.ndarray:
    """(block, image, head, query, key), from the model's own hands."""
    with torch.no_grad():
        subject.call(subject.prepare(open_images("sample").pictures(places)))
    assert isinstance(subject.module, TinyViT)
    return torch.stack(subject.module.given).double().numpy()


def test_entropy_is_that_of_the_models_own_softmax(tiny: Subject, finding: xarray.Dataset) -> None:
    order = plan_batches(open_images("sample"), limit=IMAGES, block=8).order
    weights = softmaxes(tiny, order)
    entropy = -(weights * np.log(weights)).sum(-1)  # (block, image, head, query)
    assert finding.entropy.values == pytest.approx(entropy[..., 1:].mean((1, 3)), rel=1e-4)
    assert finding.relative.values == pytest.approx(entropy[..., 1:].mean((1, 3)) / math.log(17), rel=1e-4)
    assert finding.class_relative.values == pytest.approx(entropy[..., 0].mean(1) / math.log(17), rel=1e-4)
    assert (finding.entropy_low < finding.entropy).all()
    assert finding.attrs["images"] == IMAGES


def test_kept_maps_and_rollout_are_the_models_own(tiny: Subject, finding: xarray.Dataset) -> None:
    weights = softmaxes(tiny, finding.example.values.tolist())
    placed = finding.key_place.values[0, 0, :, 0] >= 0
    kept = decoded(finding.maps.values, finding.peak.values, finding.beside.values, placed)  # (image, site, head, …)
    expected = np.concatenate(
        [weights[..., :1, :], weights[..., 1:, :].mean(-2, keepdims=True), weights[..., 1:, :]], -2
    )
    half_a_step = expected.max(-1, keepdims=True) * 1.01 / LEVELS
    assert (abs(kept - expected.swapaxes(0, 1)) <= half_a_step.swapaxes(0, 1) + 1e-6).all()

    product = np.eye(17)
    for block, each in enumerate(weights):
        product = (each.mean(1) / 2 + np.eye(17) / 2) @ product
        codes, peak, beside = (finding[f"rollout{part}"].values[:, block] for part in ("", "_peak", "_beside"))
        rolled = decoded(codes, peak, beside, placed)
        assert (abs(rolled[:, 0] - product[:, 0]) <= product[:, 0].max(-1, keepdims=True) * 1.01 / LEVELS + 1e-3).all()
        mean = product[:, 1:].mean(1)
        assert (abs(rolled[:, 1] - mean) <= mean.max(-1, keepdims=True) * 1.01 / LEVELS + 1e-3).all()
    assert finding.query_place.values[0, :3].tolist() == [[PREFIX, 0, 0], [MEAN, 0, 0], [0, 0, 0]]
    assert finding.key_place.values[0, 0, [0, 6]].tolist() == [[PREFIX, 0], [1, 1]]


def test_pictures_are_those_the_subject_was_given(finding: xarray.Dataset) -> None:
    source = open_images("sample")
    for at, place in enumerate(finding.example.values.tolist()):
        given = np.asarray(source.pictures([place])[0])
        assert abs(finding.picture.values[at, 0].astype(int) - given).max() <= 1
        assert source.labels is not None
        assert source.classes is not None
        assert finding.class_name.values[at] == source.classes[source.labels[place]]


def test_the_first_pictures_shown_are_of_different_classes(tiny: Subject) -> None:
    """Merging sorted them by number: of four classes a page with room for four pictures showed two."""
    source = open_images("sample")
    assert source.labels is not None
    places = [*np.flatnonzero(source.labels == 3)[: IMAGES // 2], *np.flatnonzero(source.labels == 5)[: IMAGES // 2]]
    pictures = np.stack([np.asarray(each) for each in source.pictures(np.array(places).tolist())])
    two = open_images(pictures, labels=np.repeat([0, 1], IMAGES // 2), classes=["cat", "dog"])
    found = examined([tiny], source=two)
    names = found.class_name.values.tolist()
    assert [set(names[at : at + 2]) for at in (0, 2)] == [{"cat", "dog"}] * 2
    for at, place in enumerate(found.example.values.tolist()):
        assert abs(found.picture.values[at, 0].astype(int) - pictures[place]).max() <= 1


def test_pictures_whose_transform_cannot_be_undone_are_stretched(tiny: Subject) -> None:
    def squared(picture: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(picture.resize((32, 32)))).permute(2, 0, 1).float().square()

    strange = load_subject(tiny.module, label="strange", transform=squared)
    assert strange.colours is None
    pictures = examined([strange], images=8).picture.values
    assert pictures.reshape(len(pictures), -1).min(1).tolist() == [0] * len(pictures)
    assert pictures.reshape(len(pictures), -1).max(1).tolist() == [255] * len(pictures)


def test_any_cut_into_shards_gives_the_same(tiny: Subject, finding: xarray.Dataset) -> None:
    whole = examined([tiny], per_shard=4)
    assert whole.entropy.values == pytest.approx(finding.entropy.values, rel=1e-6)
    for name in ("maps", "rollout", "picture", "key_place", "grids"):
        assert np.array_equal(whole[name].values, finding[name].values), name


def test_pieces_of_a_batch_give_the_same_rollout(tiny: Subject) -> None:
    """A GPU without room for all pictures takes them one by one; the rollout of one must not go on from another's."""
    images = tiny.prepare(open_images("sample").pictures(range(4)))
    body = anatomy_of(tiny.name, tiny.module, images[:2], call=tiny.call)
    bench = Bench(tiny, body, batch([0, 1, 2, 3]), images, None)
    whole = take_examples(bench, attentions_with_maps(body))
    pieces = take_examples(replace(bench, piece_size=PieceSize(1)), attentions_with_maps(body))
    last = attentions_with_maps(body)[-1].name
    assert torch.allclose(whole[f"rollout_peak of {last}"], pieces[f"rollout_peak of {last}"], rtol=2e-3)


def test_fewer_images_are_counted(tiny: Subject, finding: xarray.Dataset) -> None:
    few = examined([tiny], used=20)
    assert few.attrs["images"] == 20
    assert np.array_equal(few.example.values, finding.example.values)


def test_a_class_token_an_average_a_window_and_no_attention() -> None:
    names = ["zoo:vit-gap", "zoo:resnet", "zoo:swin"]
    found = examined([load_subject(name) for name in names], images=8)
    assert found.shown_subject.values.tolist() == ["zoo:vit-gap", "zoo:swin"]
    assert found.no_rollout.values.tolist() == ["", "it attends within windows"]
    assert np.isnan(found.class_relative.values).all()
    assert found.query_place.values[0, :2, 0].tolist() == [MEAN, 0]
    swin = found.isel(site=found.subject.values == "zoo:swin")
    assert swin.grids.values[0].tolist() == [16, 16, 16, 16, 1]
    assert not swin.rollout.values.any()
    assert swin.query_place.values[0, :64, :2].min() == 0
    assert swin.query_place.values[0, :64, :2].max() == 15
    # Each kept query of the first, unshifted attention lies in the 4×4 window whose keys are kept for it.
    for row, column, window in swin.query_place.values[0, :64]:
        keys = swin.key_place.values[0, window, :16]
        assert (keys // 4 == [row // 4, column // 4]).all()
    said = AttentionMaps().sentence(found)
    assert "no rollout for zoo:swin: it attends within windows" in said
    assert said.endswith("zoo:resnet has no attention to show.")


# --- the figure -------------------------------------------------------------------------------------------------------


def test_the_figure_asks_the_class_token_of_the_narrowest_heads(finding: xarray.Dataset) -> None:
    rollout, *heads = columns_of(finding, "tiny")
    assert (rollout.head, rollout.site, rollout.query) == (None, 2, 0)
    assert [(each.site, each.query) for each in heads] == [(0, 0), (1, 0), (2, 0)]
    assert [each.head for each in heads] == finding.class_relative.values.argmin(1).tolist()
    tiles: Any = pictures(finding, "tiny").data
    assert len(tiles) == 4 * (1 + 1 + 3)  # four examples: picture, rollout, three heads
    assert len(draw(finding).concat) == 2


def test_weights_are_drawn_where_their_keys_lie(finding: xarray.Dataset) -> None:
    asked = Asked("tiny", 1, 1, 7)
    heat, covered = heat_map(finding, asked, 2, (4, 4))
    assert covered.all()
    assert np.array_equal(heat.ravel(), asked.values(finding, 2)[1:])


# --- sizes ------------------------------------------------------------------------------------------------------------


def attention(name: str, heads: int, grid: int, prefix: int = 1, windows: int = 1, block: int = 0) -> Site:
    """Global attention of a 224-pixel ViT, or windows of it, as a plan knows it: without positions."""
    queries = grid * grid // windows
    kind: Literal["windowed", "global"] = "windowed" if windows > 1 else "global"
    cell = (224 / grid, 224 / grid)
    shape = AttentionGeometry(kind, None, windows, prefix, prefix, cell, 1.0, queries, keys=queries + prefix)
    return site(
        name, "attention", "attention", grid=(grid, grid), prefix=prefix, heads=heads, attention=shape, block=block
    )


@pytest.mark.parametrize(
    ("blocks", "heads", "grid"), [(12, 3, 14), (12, 12, 14), (24, 16, 16), (32, 16, 16), (24, 16, 37)]
)
def test_large_subjects_keep_what_fits(blocks: int, heads: int, grid: int) -> None:
    sites = [attention(f"a{at}", heads, grid, block=at) for at in range(blocks)]
    side, pictures = thinning(sites, (224, 224))
    assert pictures * bytes_of_picture(sites, (224, 224), side) <= ROOM
    assert pictures >= FEWEST or side == 2
    sizes = AttentionMaps().tally(scene(anatomy_at_224(sites))).sizes
    assert sizes["key"] == 1 + min(grid * grid, 576)
    assert sizes["query"] == 2 + min(side, grid) ** 2


def anatomy_at_224(sites: list[Site]) -> Anatomy:
    blocks = [
        site(f"b{at}", "block", "attention", grid=(14, 14), block=at) for at in sorted({each.block for each in sites})
    ]
    return replace(anatomy("v", [*sites, *blocks], cls=0), input_size=(224, 224))


def test_without_attention_it_does_not_apply() -> None:
    with pytest.raises(DoesNotApply, match="cnn has no attention over positions"):
        AttentionMaps().tally(scene(anatomy("cnn", [site("b0")], "cnn")))


def test_rollout_only_where_products_mean_something() -> None:
    same = [attention(f"a{at}", 2, 14, block=at) for at in range(2)]
    assert why_no_rollout(anatomy_at_224(same), same) == ""
    staged = [attention("a0", 2, 14), attention("a1", 2, 7, block=1)]
    assert why_no_rollout(anatomy_at_224(staged), staged) == "its tokens change on the way"
    windows = [attention("a0", 2, 14, prefix=0, windows=4)]
    assert why_no_rollout(anatomy_at_224(windows), windows) == "it attends within windows"
    twice = [attention("a0", 2, 14), attention("a1", 2, 14)]
    assert "side by side" in why_no_rollout(anatomy_at_224(twice), twice)


def test_it_costs_nothing_where_there_is_nothing_to_look_at() -> None:
    assert AttentionMaps().passes(anatomy("cnn", [site("b0")], "cnn")) == 0
    assert attentions_with_maps(anatomy("old", [site("a", "attention")])) == []


def batch(labels: list[int] | None) -> Batch:
    count = 6 if labels is None else len(labels)
    return Batch(0, 0, np.arange(count), None if labels is None else np.array(labels), 0, np.arange(count), True)


def test_examples_are_spread_over_classes() -> None:
    assert spread_over_classes(batch([5, 5, 5, 2, 5, 2, 9]), 4).tolist() == [0, 3, 6, 1]
    assert spread_over_classes(batch([5, 5, 5]), 6).tolist() == [0, 1, 2]
    assert spread_over_classes(batch(None), 3).tolist() == [0, 1, 2]


def test_pictures_keep_their_shape() -> None:
    assert picture_size((512, 256)) == (256, 128)
    assert picture_size((16, 32)) == (16, 32)
