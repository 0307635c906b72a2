"""SPEC Appendix A, M6: removing a skip takes no parameter away, and nothing is left where the branch is zero."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.interventions import RemoveSkip
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap
from eyechart.zoo.resnet import resnet
from eyechart.zoo.vit import ViT
from tests import cases

VIT: dict[str, Any] = {"width": 24, "depth": 4, "heads": 3, "patch": 8}
RESNET: dict[str, Any] = {"width": 8, "depths": (2, 1, 1, 1)}


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("intact", "without"),
    [
        (ViT(**VIT), ViT(**VIT, no_skip_at=(2,))),
        (resnet(**RESNET), resnet(**RESNET, no_skip_at=(1,))),
    ],
    ids=["vit", "resnet"],
)
def test_trained_without_a_skip_the_parameter_count_is_unchanged(intact: nn.Module, without: nn.Module) -> None:
    assert parameters(intact) == parameters(without)
    without.load_state_dict(intact.state_dict())
    images = cases.images(2)
    assert not torch.allclose(intact.eval()(images), without.eval()(images))


def test_a_zero_branch_without_skip_leaves_constant_features() -> None:
    module, images = cases.vit(), cases.images(4)
    block = cases.inside(module).blocks[0]
    with torch.no_grad():
        for part in (block.attn.proj, block.mlp.fc2):
            part.weight.zero_(), part.bias.zero_()
    anatomy = anatomy_of("vit", module, images[:2])
    output = View("output", lambda look: look.output)
    removed = [RemoveSkip(site.name) for site in anatomy.pick("junction") if site.block == 0]
    intact, without = (
        Tap(module, anatomy, {"blocks.0": [output], "blocks.1": [output]}, changes).run(images)[1]
        for changes in ([], removed)
    )
    assert without["blocks.0"]["output"].abs().max() == 0
    features = without["blocks.1"]["output"]
    torch.testing.assert_close(features, features[:1].expand_as(features), rtol=0, atol=1e-6)
    assert not torch.allclose(intact["blocks.1"]["output"][0], intact["blocks.1"]["output"][1], atol=0.1)
