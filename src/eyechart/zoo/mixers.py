"""What mixes the tokens of a ViT: attention and what the papers put in its place (SPEC 1.1, 1.3, 1.8, 1.10).

Every mixer takes tokens (N, tokens, width) and returns the same shape; only attention accepts a CLS token.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eyechart.errors import UsageError


class Attention(nn.Module):
    """Multi-head self-attention: softmax(q kᵀ / √d) v for every head, then one output projection."""

    trained_by: Callable[[Tensor, int], Tensor] | None = None
    """While it trains, what makes the heads' outputs of the projection's (training/short_attention.py); None: `mix`."""

    def __init__(self, width: int, heads: int, qkv_bias: bool = True, head_width: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = head_width or width // heads
        self.qkv = nn.Linear(width, 3 * heads * self.head_width, bias=qkv_bias)
        self.proj = nn.Linear(heads * self.head_width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, count, _ = tokens.shape
        qkv: Tensor = self.qkv(tokens)
        if self.training and self.trained_by is not None:
            mixed = self.trained_by(qkv, self.heads)
        else:
            q, k, v = qkv.reshape(batch, count, 3, self.heads, self.head_width).permute(2, 0, 3, 1, 4)
            mixed = self.mix(q, k, v).transpose(1, 2).reshape(batch, count, self.heads * self.head_width)
        out: Tensor = self.proj(mixed)
        return out

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(N, head, token, channel) each; the variants change only this."""
        return F.scaled_dot_product_attention(q, k, v)


class UnseenFirst(Attention):
    """Attention in which the first token sees all and no other token sees the first.

    >>> UnseenFirst(8, 2, tokens=5).mask.int()[:2].tolist()
    [[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]
    """

    mask: Tensor

    def __init__(self, width: int, heads: int, tokens: int, qkv_bias: bool = True, head_width: int = 0) -> None:
        super().__init__(width, heads, qkv_bias, head_width)
        mask = torch.ones(tokens, tokens, dtype=torch.bool)
        mask[1:, 0] = False
        self.register_buffer("mask", mask, persistent=False)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)


class RelativeAttention(Attention):
    """Attention that knows how far apart two tokens are in the sequence: softmax((q kᵀ + q · r[i − j]) / √d) v.

    The table r has a row for each of the 2 · tokens − 1 distances and is shared by the heads. A CLS token is the first
    of the sequence.
    """

    distances: Tensor

    def __init__(self, width: int, heads: int, tokens: int, qkv_bias: bool = True, head_width: int = 0) -> None:
        super().__init__(width, heads, qkv_bias, head_width)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(2 * tokens - 1, self.head_width))
        index = torch.arange(tokens)
        self.register_buffer("distances", index[:, None] - index[None] + tokens - 1, persistent=False)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        table = self.pos_embed[self.distances].to(q.dtype)
        far = torch.einsum("nhid,ijd->nhij", q * self.head_width**-0.5, table)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=far)


class KernelAttention(Attention):
    """Attention within a K×K neighbourhood, as a convolution sees it; K is odd, or the grid's side for all of it.

    Cells beyond the edge are left out with `mask_border`. Without it they are zeros that still take their share of the
    softmax, as they do when keys and values are unfolded with zero padding: as one zero key that counts as often as
    there are such cells, exp(0 + ln count).

    >>> KernelAttention(8, 2, grid=4, kernel=3)(torch.zeros(1, 16, 8)).shape
    torch.Size([1, 16, 8])
    """

    mask: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        grid: int,
        kernel: int,
        mask_border: bool = True,
        qkv_bias: bool = True,
        head_width: int = 0,
    ) -> None:
        super().__init__(width, heads, qkv_bias, head_width)
        if kernel % 2 == 0 and kernel != grid:
            raise UsageError(f"A kernel must be odd, or the grid's side {grid} for global attention; got {kernel}.")
        self.pads = not mask_border
        near = neighbours(grid, kernel)
        mask = torch.zeros(near.shape).masked_fill(~near, -math.inf)
        if self.pads:
            beyond = kernel**2 - near.sum(dim=1, keepdim=True)
            mask = torch.cat([beyond.log(), mask], dim=1)
        self.register_buffer("mask", mask, persistent=False)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.pads:
            k, v = F.pad(k, (0, 0, 1, 0)), F.pad(v, (0, 0, 1, 0))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask.to(q.dtype))


def neighbours(grid: int, kernel: int) -> Tensor:
    """Which cells (column) each cell (row) of a grid sees, row by row.

    >>> neighbours(4, 3).sum(dim=1).reshape(4, 4).tolist()
    [[4, 6, 6, 4], [6, 9, 9, 6], [6, 9, 9, 6], [4, 6, 6, 4]]
    """
    reach = grid if kernel == grid else kernel // 2
    index = torch.arange(grid)
    near = (index[:, None] - index[None]).abs() <= reach
    return (near[:, None, :, None] & near[None, :, None, :]).reshape(grid**2, grid**2)


class Pooling(nn.Module):
    """PoolFormer's mixer: the mean of the 3×3 neighbours inside the grid, minus the token itself. No parameters."""

    def __init__(self, grid: int) -> None:
        super().__init__()
        self.grid = grid

    def forward(self, tokens: Tensor) -> Tensor:
        maps = tokens.transpose(1, 2).reshape(len(tokens), -1, self.grid, self.grid)
        mean = F.avg_pool2d(maps, kernel_size=3, stride=1, padding=1, count_include_pad=False)
        return (mean - maps).flatten(2).transpose(1, 2)


class TokenMlp(nn.Module):
    """MLP-Mixer's mixer: Linear – GELU – Linear over the tokens, the same for every channel."""

    def __init__(self, tokens: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(tokens, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        mixed: Tensor = self.fc2(self.act(self.fc1(tokens.transpose(1, 2))))
        return mixed.transpose(1, 2)
