"""Operations are counted as torch counts them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from eyechart.tracing.flops import FlopCount
from tests import cases

ENCODER = nn.TransformerEncoderLayer(24, 3, 48, batch_first=True).eval()


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (cases.vit(), (1, 3, 32, 32)),  # fused attention
        (cases.swin(), (1, 3, 32, 32)),
        (cases.hybrid(), (1, 3, 32, 32)),  # convolutions, and attention by hand
        (ENCODER, (2, 5, 24)),  # nn.MultiheadAttention
    ],
    ids=["vit", "swin", "hybrid", "encoder"],
)
def test_it_counts_what_torch_s_own_counter_counts(module: nn.Module, shape: tuple[int, ...]) -> None:
    images = torch.ones(shape)
    module.requires_grad_(False)
    for way in (torch.no_grad, torch.inference_mode):  # in the latter operations come whole that are made of others
        with way(), FlopCounterMode(display=False) as expected:
            module(images)
        with way(), FlopCount() as counted:
            module(images)
        assert counted.total == expected.get_total_flops() > 0
