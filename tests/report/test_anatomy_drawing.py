"""The drawn anatomies are the subjects' own: stages, grids, blocks, and what each block adds."""

from __future__ import annotations

import dataclasses

from eyechart.report.anatomy_drawing import drawings
from eyechart.sites import Anatomy

from .synthetic import resnet, vit


def test_stages_blocks_and_what_they_add() -> None:
    bodies = [vit("a"), resnet("b"), Anatomy("bare", (), (), (32, 32), "cnn", None, None)]
    drawn = drawings(bodies, lambda name: {"name": name})
    one, two = drawn["rows"]  # nothing is known of the third
    assert [mark["words"] for mark in drawn["key"]] == ["attention", "MLP", "convolution"]
    assert [(stage["grid"], len(stage["layers"])) for stage in one["stages"]] == [("8×8", 10)]
    assert [stage["grid"] for stage in two["stages"]] == ["32×32", "16×16", "8×8", "4×4"]
    stem, first = one["stages"][0]["layers"][:2]
    assert (stem["short"], stem["marks"]) == ("stem", [])
    assert first["name"] == "block 1"
    assert [mark["kind"] for mark in first["marks"]] == ["attention", "mlp"]
    assert first["said"] == "block 1: attention of 8 heads, then MLP; 256 channels"


def test_what_a_block_without_a_sign_means_is_said_where_there_is_one() -> None:
    body = resnet("b")
    sites = tuple(site for site in body.sites if not (site.role == "junction" and site.block == body.sites[-1].block))
    assert not drawings([body], lambda name: {"name": name})["bare"]
    assert drawings([dataclasses.replace(body, sites=sites)], lambda name: {"name": name})["bare"]
