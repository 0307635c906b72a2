"""The taps against the hand-derived table of families: what they find, and that looking changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap
from tests.families import FAMILIES, Family
from tests.tracing.each_family import *  # noqa: F403 - its tests and fixtures are this file's
from tests.tracing.each_family import HALVES, Examined, examine

TABLE = Path(__file__).parents[2] / "docs" / "families.md"

#: Every family that the papers and notes name.
NAMED = """ViT, DeiT, CaiT, TNT, PiT, Swin, Swin v2, Twins PCPVT, Twins SVT, PoolFormer, CAFormer, ConvFormer,
MLP-Mixer, ResMLP, gMLP, ResNet-18, ResNet-50, ResNeXt, BiT (ResNetV2), ViT-hybrid (R26), ConvNeXt, DINOv2, EVA02,
BEiT, BEiT v2, MaxViT, CoAtNet, MobileViT, MobileViT v2, EfficientNet, RegNetX, DenseNet, VGG, XCiT"""

#: Where a gap would make the papers' own subjects wrong, none is allowed.
EXACT = ("ViT", "DeiT", "CaiT", "Swin", "Swin v2", "ResNet-18", "ResNet-50", "BiT (ResNetV2)")


@pytest.fixture(scope="module", params=HALVES[0], ids=[family.name for family in HALVES[0]])
def examined(request: pytest.FixtureRequest) -> Examined:
    return examine(request.param)


@pytest.mark.parametrize(
    ("name", "path"), [("ViT", "blocks.0.attn"), ("CaiT", "blocks.0.attn"), ("Swin", "layers.0.blocks.1.attn")]
)
def test_weights_times_values_is_what_the_model_projects(name: str, path: str) -> None:
    """The same without trusting the tap's word for the output: a hook sees what the model's own projection gets."""
    family = next(family for family in FAMILIES if family.name == name)
    module = family.build()
    images = torch.randn(2, 3, family.size, family.size, generator=torch.Generator().manual_seed(1))
    anatomy = anatomy_of(name, module, images)
    site = next(site for site in anatomy.pick("attention") if site.path == path)
    given: list[Tensor] = []
    module.get_submodule(f"{path}.proj").register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].clone()))
    view = View("product", lambda look: look.weights @ look.values)
    _, seen = Tap(module, anatomy, {site.name: [view]}).run(images)
    product = seen[site.name]["product"].transpose(2, 3).flatten(3).flatten(0, 1)
    assert product.shape == given[0].shape
    assert (product - given[0]).abs().max() / given[0].abs().max() <= 1e-5


def test_nn_multihead_attention_agrees_with_its_own_weights() -> None:
    """It returns nothing before its projection, so the tap computes its output again and the tests above would pass on
    wrong weights; torch's own weights and the projected output decide."""
    family = next(family for family in FAMILIES if family.name == "ViT (torchvision)")
    module = family.build()
    images = torch.randn(2, 3, family.size, family.size, generator=torch.Generator().manual_seed(1))
    anatomy = anatomy_of(family.name, module, images)
    sites = anatomy.pick("attention")
    views = [View("weights", lambda look: look.weights), View("product", lambda look: look.weights @ look.values)]
    layers = [layer for layer in module.modules() if isinstance(layer, nn.MultiheadAttention)]
    passed: list[tuple[Tensor, Tensor]] = []
    for layer in layers:
        layer.register_forward_hook(lambda _, inputs, output: passed.append((inputs[0].clone(), output[0].clone())))
    _, seen = Tap(module, anatomy, {site.name: views for site in sites}).run(images)
    assert len(sites) == len(passed) == len(layers)
    for site, layer, (given, returned) in zip(sites, layers, list(passed), strict=True):
        taken = seen[site.name]
        with torch.no_grad():
            own = layer(given, given, given, need_weights=True, average_attn_weights=False)[1]
            projected = layer.out_proj(taken["product"][:, 0].transpose(1, 2).flatten(2))
        torch.testing.assert_close(taken["weights"][:, 0], own, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(projected, returned, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
def test_the_table_adds_up(family: Family) -> None:
    assert sum(family.kinds.values()) == family.junctions
    assert family.derivation
    assert (family.status == "served") == (family.reason == "")
    assert family.status != "served" or not family.known_gap


def test_the_table_is_wide_enough() -> None:
    sources = Counter(family.model.split(":")[0] for family in FAMILIES)
    assert sources["timm"] >= 55
    assert sources["torchvision"] >= 8
    assert sources["hf"] >= 6
    names = {family.name for family in FAMILIES}
    assert len(names) == len(FAMILIES)
    assert {" ".join(name.split()) for name in NAMED.split(",")} <= names
    exact = [family for family in FAMILIES if family.name in EXACT]
    assert len(exact) == len(EXACT)
    assert all(family.status == "served" for family in exact)


def test_the_published_table_is_up_to_date() -> None:
    """Every family has its row, with its numbers and status. The script that writes it runs the taps."""
    rows = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[:5] for row in cells] == [
        [
            family.name,
            f"`{family.model}`",
            f"{family.expected('junctions')} / {family.junctions}",
            f"{family.expected('attentions')} / {family.attentions}",
            family.status,
        ]
        for family in FAMILIES
    ], "run scripts/families_table.py"
