"""The vision transformer of the papers (SPEC 1.1, 1.2, 1.5), one clear file.

Parameter names are timm's, so that timm's weights load as they are. Each part is a module of its own (stem, attention,
MLP, block), because the papers' variants replace one part and keep the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eyechart.errors import UsageError

Pool = Literal["cls", "gap"]


class PatchStem(nn.Module):
    """Image (N, 3, H, W) → tokens (N, grid², width): one linear map shared by all patches, as a strided convolution."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, kernel_size=patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.proj(images)
        return tokens.flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention: softmax(q kᵀ / √d) v for every head, then one output projection."""

    def __init__(self, width: int, heads: int, qkv_bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=qkv_bias)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, count, width = tokens.shape
        q, k, v = self.qkv(tokens).reshape(batch, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, count, width))
        return out


class Mlp(nn.Module):
    """Linear – GELU – Linear on every token alone."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.fc2(self.act(self.fc1(tokens)))
        return out


class DropPath(nn.Module):
    """Stochastic depth: in training, an image skips the branch with probability p, else the branch counts 1/(1−p)."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return branch
        keep = 1 - self.probability
        mask = torch.rand(branch.shape[0], 1, 1, device=branch.device) < keep
        return branch * mask.to(branch.dtype) / keep


class Block(nn.Module):
    """z' = z + attention(LN z); z'' = z' + MLP(LN z')."""

    def __init__(self, width: int, mixer: nn.Module, mlp: nn.Module, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = mixer
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = mlp
        self.drop_path2 = DropPath(drop_path)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.drop_path1(self.attn(self.norm1(tokens)))
        tokens = tokens + self.drop_path2(self.mlp(self.norm2(tokens)))
        return tokens


class ViT(nn.Module):
    """A pre-LN ViT for square images.

    `pool="cls"`: a learned token is prepended and the head reads it. `pool="gap"`: there is no such token and the head
    reads the mean of the tokens; the final LayerNorm is applied to the tokens, or, with `pooled_norm` (timm's default
    for such models), to their mean.

    >>> import torch
    >>> model = ViT(image_size=32, patch=4, width=32, depth=2, heads=4, pool="gap").eval()
    >>> model(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        image_size: int = 32,
        patch: int = 4,
        width: int = 160,
        depth: int = 9,
        heads: int = 8,
        mlp_ratio: float = 4.0,
        classes: int = 10,
        pool: Pool = "cls",
        pooled_norm: bool = False,
        cls_init: Literal["zero", "normal"] = "zero",
        qkv_bias: bool = True,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        if image_size % patch:
            raise UsageError(f"The patch size must divide the image size; {patch} does not divide {image_size}.")
        if width % heads:
            raise UsageError(f"The number of heads must divide the width; {heads} does not divide {width}.")
        if pooled_norm and pool != "gap":
            raise UsageError("pooled_norm normalises the mean of the tokens, so it needs pool='gap'.")
        self.pool = pool
        self.grid = image_size // patch
        self.patch_embed = PatchStem(width, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if pool == "cls" else None
        self.pos_embed = nn.Parameter(torch.zeros(1, self.grid**2 + (pool == "cls"), width))
        self.blocks = nn.Sequential(
            *(
                Block(width, Attention(width, heads, qkv_bias), Mlp(width, int(width * mlp_ratio)), rate)
                for rate in rising(drop_path, depth)
            )
        )
        self.norm = nn.Identity() if pooled_norm else nn.LayerNorm(width, eps=1e-6)
        self.fc_norm = nn.LayerNorm(width, eps=1e-6) if pooled_norm else nn.Identity()
        self.head = nn.Linear(width, classes)
        self._initialise(cls_init)

    def _initialise(self, cls_init: str) -> None:
        nn.init.normal_(self.pos_embed, std=0.02)
        if self.cls_token is not None and cls_init == "normal":
            nn.init.normal_(self.cls_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def tokens(self, images: Tensor) -> Tensor:
        """The tokens after the last block and the final norm: (N, tokens, width), CLS first where there is one."""
        tokens: Tensor = self.patch_embed(images)
        if self.cls_token is not None:
            tokens = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
        tokens = self.blocks(tokens + self.pos_embed)
        tokens = self.norm(tokens)
        return tokens

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.tokens(images)
        read = tokens[:, 0] if self.pool == "cls" else tokens.mean(dim=1)
        logits: Tensor = self.head(self.fc_norm(read))
        return logits


def rising(last: float, depth: int) -> Iterator[float]:
    """Stochastic-depth rates from 0 at the first block to `last` at the last, linearly."""
    return (last * block / max(1, depth - 1) for block in range(depth))


def resize_pos_embed(
    table: Tensor, g_old: int, g_new: int, has_cls: bool, mode: Literal["bilinear", "bicubic"] = "bilinear"
) -> Tensor:
    """A position table (1, [CLS +] g_old², width) for a grid of g_new × g_new; the CLS row is untouched (SPEC 1.2).

    Corners stay corners (`align_corners`), as with the order-1 zoom of the ViT authors' code.

    >>> import torch
    >>> table = torch.randn(1, 1 + 8 * 8, 16)
    >>> resize_pos_embed(table, 8, 12, has_cls=True).shape
    torch.Size([1, 145, 16])
    >>> torch.equal(resize_pos_embed(table, 8, 8, has_cls=True), table)
    True
    """
    rows = g_old**2 + has_cls
    if table.ndim != 3 or table.shape[1] != rows:
        raise UsageError(
            f"A position table for a {g_old}×{g_old} grid {'with' if has_cls else 'without'} CLS has shape "
            f"(1, {rows}, width); this one has {tuple(table.shape)}."
        )
    if g_old == g_new:
        return table
    cls, cells = table[:, : int(has_cls)], table[:, int(has_cls) :]
    picture = cells.reshape(1, g_old, g_old, -1).permute(0, 3, 1, 2).float()
    resized = F.interpolate(picture, size=(g_new, g_new), mode=mode, align_corners=True)
    cells = resized.permute(0, 2, 3, 1).reshape(1, g_new**2, -1).to(table.dtype)
    return torch.cat([cls, cells], dim=1)
