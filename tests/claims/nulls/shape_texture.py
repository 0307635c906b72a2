"""Shape or texture: two subjects with given chances on filtered, shuffled and conflicting pictures."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from tests.claims.nulls.case import Case
from tests.measures.test_shape_texture import SHAPE, TEXTURE, play


def alike(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"shape_texture": play({"vit": TEXTURE, "cnn": TEXTURE}, images=256, seed=seed)}


def one_clear_test(seed: int) -> Mapping[str, xarray.Dataset]:
    """Only the filters tell the two apart; that one of the others has the right sign too is chance."""
    return {"shape_texture": play({"vit": TEXTURE | {"low": 0.8}, "cnn": TEXTURE}, images=256, seed=seed)}


def the_other_way(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"shape_texture": play({"vit": TEXTURE, "cnn": SHAPE}, images=256, seed=seed)}


def by_shape(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"shape_texture": play({"vit": SHAPE, "cnn": TEXTURE}, images=256, seed=seed)}


CASES: tuple[Case, ...] = (
    Case("C68", "a ViT and a CNN with the same chances", "holds", findings=alike, draws=20),
    Case(
        "C68", "a ViT that only one of the three tests tells from the CNN", "holds", findings=one_clear_test, draws=20
    ),
    Case("C68", "a ViT that goes by texture", "holds", findings=the_other_way),
    Case("C68", "a ViT that goes by shape", "fails", findings=by_shape),
)
