"""Which subjects belong together, told from anatomies and cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from eyechart.methods.twins import pair_of, pairs_of
from eyechart.scene import Scene
from eyechart.sites import Anatomy, Filters
from tests.measures.staging import anatomy, full_grid, site


def vit(name: str, blocks: int = 4, channels: int = 3, pooling: Literal["cls", "gap"] = "cls", **more: Any) -> Anatomy:
    geometry = full_grid(4, 8.0)
    sites = []
    for at in range(blocks):
        sites.append(site(f"a{at}", "attention", "attention", block=at, heads=2, attention=geometry))
        sites.append(replace(site(f"b{at}", kind="attention", block=at, depth=(at + 1) / blocks), channels=channels))
    return replace(anatomy(name, sites, cls=0), pooling=pooling, flops=float(blocks * channels), **more)


def scene(*people: Anatomy, cards: dict[str, dict[str, Any]] | None = None, untrained: str = "") -> Scene:
    trained = {who.subject: who.subject != untrained for who in people}
    return Scene(people, 64, 16, 4, 16, None, trained=trained, cards=cards or {})


TRAINING = {"data": "cifar10", "train_images": 50000, "epochs": 300, "recipe": {"name": "zoo"}, "seed": 0}


@pytest.mark.parametrize(
    ("one", "other", "cards", "relation", "first"),
    [
        (vit("a"), vit("b", pooling="gap"), {}, "head", "b"),
        (vit("a"), vit("b", blocks=6), {}, "size", "a"),
        (vit("a", channels=5), vit("b"), {}, "size", "b"),
        (vit("a"), vit("b"), {}, "other", "a"),
        (vit("a"), vit("b"), {"a": {"from": "b"}, "b": {}}, "fine-tuned", "b"),
        (vit("a"), vit("b"), {"a": TRAINING, "b": {**TRAINING, "seed": 1}}, "seed", "a"),
        (vit("a"), vit("b"), {"a": TRAINING, "b": {**TRAINING, "train_images": 5000}}, "data", "b"),
        (vit("a"), vit("b"), {"a": TRAINING, "b": {**TRAINING, "recipe": {"name": "p"}, "seed": 1}}, "other", "a"),
        (vit("zoo:vit"), vit("zoo:vit@warmup"), {}, "snapshot", "zoo:vit@warmup"),
    ],
)
def test_relations(one: Anatomy, other: Anatomy, cards: dict[str, Any], relation: str, first: str) -> None:
    for people in ((one, other), (other, one)):
        pair = pair_of(scene(*people, cards=cards), *(who.subject for who in people))
        assert pair is not None
        assert pair.relation == relation
        if relation not in ("seed", "other"):  # those have no order
            assert pair.one == first


def test_an_untrained_twin_is_the_floor_of_its_own_build_only() -> None:
    pair = pair_of(scene(vit("a"), vit("b"), untrained="a"), "a", "b")
    assert pair is not None
    assert (pair.one, pair.other, pair.relation) == ("b", "a", "untrained")
    assert pair_of(scene(vit("a"), vit("b", blocks=6), untrained="a"), "a", "b") is None
    assert pair_of(scene(vit("a"), vit("b", pooling="gap"), untrained="a"), "a", "b") is None


def test_the_same_blocks_on_another_grid_are_no_other_size() -> None:
    small = vit("zoo:vit")
    sites = tuple(replace(place, layout=replace(place.layout, grid=(6, 6))) for place in small.sites)
    large = replace(small, subject="zoo:vit:48px", sites=sites, flops=2 * small.flops)
    assert pairs_of(scene(small, large)) == []
    tuned = pair_of(scene(small, large, cards={large.subject: {"from": small.subject}}), large.subject, small.subject)
    assert tuned is not None
    assert (tuned.one, tuned.relation) == ("zoo:vit", "fine-tuned")


def test_strangers_are_no_twins() -> None:
    cnn = anatomy("c", [site("c0", stage=0), site("c1", stage=1, block=1)], architecture="cnn")
    assert pairs_of(scene(vit("a"), cnn)) == []
    hybrid = vit("h", blocks=6, filters=Filters("w", (8, 3, 3, 3), "convolution"))  # 3 pixels of a cell of 8
    assert hybrid.cnn_stem
    assert pairs_of(scene(vit("a"), hybrid)) == []
    other = (
        replace(cnn, subject="resnet18", sites=cnn.sites),
        replace(cnn, subject="vgg11", sites=(*cnn.sites, cnn.sites[0])),
    )
    assert pairs_of(scene(*other)) == []
