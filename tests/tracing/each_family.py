"""What is asked of every family of the table. `test_families.py` and `test_more_families.py` ask half of them each, so
that the two workers of the test run share them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from eyechart.sites import Anatomy
from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap
from eyechart.tracing.views import Look
from tests.families import FAMILIES, Family

HALVES = FAMILIES[::2], FAMILIES[1::2]
#: Their first map is smaller than 4 × 4. Of any other family, a layout that is not read is a fault.
NO_EARLY_MAP = ("MLP-Mixer", "Hiera")


@dataclass
class Examined:
    family: Family
    module: nn.Module
    images: Tensor
    plain: list[Tensor]
    anatomy: Anatomy


def tensors_of(output: Any) -> list[Tensor]:
    """The tensors of whatever a model returns, in order."""
    if isinstance(output, Tensor):
        return [output]
    parts = output.values() if hasattr(output, "values") else output
    return [tensor for part in parts if part is not None for tensor in tensors_of(part)]


@pytest.fixture(scope="module", autouse=True)
def same_attention_back_end() -> Iterator[None]:
    """nn.MultiheadAttention's fast path differs from its slow one by 1e-7 by itself, so it is off for both sides."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def examine(family: Family) -> Examined:
    source, model = family.model.split(":")
    if source == "timm" and not timm.is_model(model):
        pytest.skip(f"timm {timm.__version__} has no {model}")
    module = family.build()
    images = torch.randn(2, 3, family.size, family.size, generator=torch.Generator().manual_seed(1))
    anatomy = anatomy_of(family.name, module, images)  # of the fresh model: some fill caches in their first pass
    with torch.no_grad():
        plain = [tensor.clone() for tensor in tensors_of(module(images))]
    return Examined(family, module, images, plain, anatomy)


def test_junctions_are_those_of_the_source(examined: Examined) -> None:
    family = examined.family
    found = Counter(site.kind for site in examined.anatomy.pick("junction"))
    assert found.total() == family.expected("junctions"), family.derivation
    for kind in ("attention", "mlp", "conv", "pool", "mixer", "other"):
        assert found[kind] == family.expected(kind), f"{kind}: {family.derivation}"


def test_attentions_are_those_of_the_source(examined: Examined) -> None:
    assert len(examined.anatomy.pick("attention")) == examined.family.expected("attentions"), examined.family.derivation


def test_tapping_changes_no_bit_of_the_output(examined: Examined) -> None:
    junction = View("sum", lambda look: look.output.flatten(1).sum(1, keepdim=True))
    operands = View(
        "operands", lambda look: (look.skip - look.branch).flatten(1).norm(dim=1, keepdim=True), before=True
    )
    attention = View("weights", lambda look: look.weights.flatten(1).sum(1, keepdim=True))
    views = {site.name: [junction, operands] for site in examined.anatomy.pick("junction")}
    views |= {site.name: [attention] for site in examined.anatomy.pick("attention")}
    views |= {layer.name: [junction] for layer in examined.anatomy.layers}
    output, seen = Tap(examined.module, examined.anatomy, views).run(examined.images)
    tapped = tensors_of(output)
    assert len(tapped) == len(examined.plain)
    assert all(torch.equal(one, other) for one, other in zip(tapped, examined.plain, strict=True))
    assert seen.keys() == views.keys()
    for layer in examined.anatomy.layers:
        assert seen[layer.name]["sum"].shape == (2, 1), layer.name


def test_weights_times_values_is_the_attention_s_own_output(examined: Examined) -> None:
    """Rows that sum to one prove little (a transposed matrix may have them too); the product with the values does."""

    def error(look: Look) -> Tensor:
        difference = look.weights @ look.values - look.output
        return (difference.abs().amax() / look.output.abs().amax()).expand(2)

    views = {site.name: [View("error", error)] for site in examined.anatomy.pick("attention")}
    if not views:
        return  # a pass for nothing: how many attentions there are is asked above
    _, seen = Tap(examined.module, examined.anatomy, views).run(examined.images)
    for name, taken in seen.items():
        assert taken["error"].max() <= 1e-5, name


def test_a_grid_points_at_the_right_place(examined: Examined) -> None:
    """A patch of the picture is changed; the first map with a grid must change most there, whatever its layout is."""
    sites = [site for site in examined.anatomy.sites if site.role in ("junction", "block") and site.grid is not None]
    site = next((site for site in sites if min(site.grid or (0,)) >= 4), None)
    if site is None:
        assert examined.family.name in NO_EARLY_MAP
        return
    size = examined.family.size
    patch = max(4, size // 16)
    changed = examined.images.clone()
    changed[:, :, size // 4 :, size * 3 // 4 :][:, :, :patch, :patch] += 3
    tap = Tap(examined.module, examined.anatomy, {site.name: [View("map", lambda look: look.map(look.output))]})
    before, after = (tap.run(images)[1][site.name]["map"] for images in (examined.images, changed))
    change = (after - before).norm(dim=1).mean(0)
    height, width = change.shape
    row, column = divmod(int(change.argmax()), width)
    assert abs((row + 0.5) / height - (size // 4 + patch / 2) / size) < 0.2
    assert abs((column + 0.5) / width - (size * 3 // 4 + patch / 2) / size) < 0.2


def test_anatomy_survives_json(examined: Examined) -> None:
    text = json.dumps(examined.anatomy.as_json())
    assert Anatomy.from_json(json.loads(text)) == examined.anatomy


def test_what_is_not_served_is_said(examined: Examined) -> None:
    if examined.family.status != "served":
        assert examined.anatomy.notes


def test_architecture_in_one_word(examined: Examined) -> None:
    if examined.family.architecture is not None:
        assert examined.anatomy.architecture == examined.family.architecture
