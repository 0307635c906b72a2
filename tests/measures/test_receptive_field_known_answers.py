"""SPEC Appendix A, M4: L stacked 3×3 convolutions see 2L + 1 pixels, counted convolution by convolution."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from eyechart.measures.receptive_field.measure import ReceptiveField
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.tracing.bench import Bench
from tests import cases
from tests.measures.staging import batches


class Stack(nn.Module):
    """Convolutions of stride 1 on the pixels themselves, and nothing else."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 if at == 0 else 6, 6, 3, padding=1) for at in range(count))
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def test_three_stacked_3x3_convolutions_have_a_7_pixel_receptive_field() -> None:
    torch.manual_seed(0)
    images = cases.images(2)
    subject = load_subject(Stack(3).eval(), label="stack", input_size=32)
    anatomy = anatomy_of("stack", subject.module, images, call=subject.call)
    bench = Bench(subject, anatomy, batches(2, 2)[0], images, None)
    for mode in ("exact", "projection"):
        maps = ReceptiveField(images=2, mode=mode).experiment(bench)["map"].sum(0)
        assert [int((one > 0).any(1).sum()) for one in maps] == [3, 5, 7]  # rows
        assert [int((one > 0).any(0).sum()) for one in maps] == [3, 5, 7]  # columns
        assert all(
            (one[16 - reach : 17 + reach, 16 - reach : 17 + reach] > 0).all() for reach, one in enumerate(maps, 1)
        )
