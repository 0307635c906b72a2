"""The vision transformer of the papers and its variants (SPEC 1.1–1.5, 1.8). READ FIRST in this room.

Parameter names of the plain model are timm's, so that timm's weights load as they are. Each part is a module of its
own (stem, mixer, MLP, block), because the papers' variants replace one part and keep the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eyechart.errors import UsageError
from eyechart.zoo.mixers import Attention, KernelAttention, Pooling, RelativeAttention, TokenMlp, UnseenFirst
from eyechart.zoo.positions import Place, Position, position_tables, resize_pos_embed

__all__ = ["Attention", "Block", "CnnStem", "DropPath", "Mlp", "PatchStem", "ViT", "resize_pos_embed", "rising"]

Pool = Literal["cls", "gap", "gap-unused-cls"]
Mixer = Literal["attention", "kernel", "pool", "mlp"]
Part = Literal["attention", "mlp", "both"]


class PatchStem(nn.Module):
    """Image (N, 3, H, W) → tokens (N, grid², width): one linear map shared by all patches, as a strided convolution."""

    trained_as_product = False
    """While it trains, the same map as a product of matrices: cuDNN takes 0.2 ms for the gradient of 160 filters."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.patch = patch
        self.proj = nn.Conv2d(3, width, kernel_size=patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        if self.training and self.trained_as_product:
            return F.linear(self._patches(images), self.proj.weight.flatten(1), self.proj.bias)
        tokens: Tensor = self.proj(images)
        return tokens.flatten(2).transpose(1, 2)

    def _patches(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) → (N, grid², 3 · patch²), values in the order of the filters'."""
        count, channels, height, width = images.shape
        down, across = height // self.patch, width // self.patch
        cells = images.reshape(count, channels, down, self.patch, across, self.patch)
        return cells.permute(0, 2, 4, 1, 3, 5).reshape(count, down * across, -1)


class CnnStem(nn.Module):
    """A hybrid's stem: the cells of a ResNet's last map are the tokens, projected 1×1.

    Its units are those of the ViT authors: post-activation, group normalisation, standardised weights, the last norm
    of a branch starting at 0. Each stage after the first halves the image, so `patch` is 1, 2, 4, …
    """

    def __init__(self, width: int, patch: int) -> None:
        # Here, because a plain ViT needs no timm, whose import takes longer than loading the model.
        from eyechart.zoo.resnet import GROUP_NORM, STANDARDISED_CONV, resnet_v2

        super().__init__()
        halvings = patch.bit_length() - 1
        if patch not in (1, 2, 4, 8):
            raise UsageError(f"The ResNet of a hybrid shrinks the image by 1, 2, 4 or 8, its patch; got {patch}.")
        channels = [64 * 2**stage for stage in range(halvings + 1)]
        self.backbone = resnet_v2(
            classes=0,
            drop_path=0.0,
            stem=32,
            channels=channels,
            depths=[2] * len(channels),
            norm=GROUP_NORM,
            conv=STANDARDISED_CONV,
            preactivation=False,
        )
        self.proj = nn.Conv2d(channels[-1], width, kernel_size=1)

    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.proj(self.backbone.forward_features(images))
        return tokens.flatten(2).transpose(1, 2)


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
    """z' = s·z + attention(LN z); z'' = s·z' + MLP(LN z'), s being `skip_scale`. Without a skip, the z is missing.

    A branch without skip is never dropped: nothing would be left of the image. With `moved` (token, 1) of zeros and
    ones, branches add nothing to the tokens at the zeros.
    """

    moved: Tensor | None

    def __init__(
        self,
        width: int,
        mixer: nn.Module,
        mlp: nn.Module,
        drop_path: float,
        skips: tuple[bool, bool] = (True, True),
        skip_scale: float = 1.0,
        moved: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("moved", moved, persistent=False)
        self.skips = skips
        self.skip_scale = skip_scale
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = mixer
        self.drop_path1 = DropPath(drop_path * skips[0])
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = mlp
        self.drop_path2 = DropPath(drop_path * skips[1])

    def forward(self, tokens: Tensor) -> Tensor:
        branch = self._moving(self.drop_path1(self.attn(self.norm1(tokens))))
        tokens = self._carried(tokens) + branch if self.skips[0] else branch
        branch = self._moving(self.drop_path2(self.mlp(self.norm2(tokens))))
        return self._carried(tokens) + branch if self.skips[1] else branch

    def _moving(self, branch: Tensor) -> Tensor:
        return branch if self.moved is None else branch * self.moved.to(branch.dtype)

    def _carried(self, tokens: Tensor) -> Tensor:
        """What the skip brings to the sum; the plain model has no multiplication at all."""
        return tokens if self.skip_scale == 1 else tokens * self.skip_scale


class ViT(nn.Module):
    """A pre-LN ViT for square images.

    `pool="cls"`: a learned token is prepended and the head reads it. `pool="gap"`: there is no such token and the head
    reads the mean of the tokens; the final LayerNorm is applied to the tokens, or, with `pooled_norm` (timm's default
    for such models), to their mean. `pool="gap-unused-cls"`: the token is there, but the head reads the mean of the
    others. What the other switches do stands in `switches.py`.

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
        head_width: int = 0,
        mlp_ratio: float = 4.0,
        classes: int = 10,
        stem: Literal["patch", "cnn"] = "patch",
        pool: Pool = "cls",
        pooled_norm: bool = False,
        cls_init: Literal["zero", "normal", "mean"] = "zero",
        cls_at: int = 0,
        cls_frozen_until: int = 0,
        cls_unseen_until: int = 0,
        qkv_bias: bool = True,
        position: Position = "1d",
        position_at: Place = "stem",
        mixer: Mixer = "attention",
        kernel: int = 3,
        mask_border: bool = True,
        no_skip_at: Sequence[int] = (),
        no_skip_part: Part = "both",
        skip_scale: float = 1.0,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        if image_size % patch:
            raise UsageError(f"The patch size must divide the image size; {patch} does not divide {image_size}.")
        if width % heads and not head_width:
            raise UsageError(f"The number of heads must divide the width; {heads} does not divide {width}.")
        if int(width * mlp_ratio) < 1 or (mixer == "mlp" and width < 2):
            raise UsageError(
                f"An MLP needs a hidden channel; a width of {width} leaves none (mlp_ratio {mlp_ratio:g})."
            )
        if pooled_norm and pool == "cls":
            raise UsageError("pooled_norm normalises the mean of the tokens, so it needs pool='gap'.")
        if mixer != "attention" and (pool != "gap" or position == "relative"):
            raise UsageError(
                f"The {mixer} mixer works on the grid alone, so it needs pool='gap' and another position than "
                f"'relative'; got {pool!r} and {position!r}."
            )
        wrong = [at for at in no_skip_at if not 0 <= at < depth]
        if wrong:
            raise UsageError(f"no_skip_at takes blocks from 0 to {depth - 1}; got {wrong[0]}.")
        if cls_at >= depth:
            raise UsageError(f"cls_at takes a block from 0 to {depth - 1}; got {cls_at}.")
        if pool == "gap" and (cls_at or cls_init == "mean"):
            raise UsageError("cls_at and cls_init='mean' are about a class token, which pool='gap' has none of.")
        if cls_at and position == "relative":
            raise UsageError(
                "A class token that enters late changes all distances along the sequence, so cls_at takes another "
                "position than 'relative'."
            )
        if pool == "gap" and (cls_frozen_until or cls_unseen_until):
            raise UsageError(
                "cls_frozen_until and cls_unseen_until are about a class token, which pool='gap' has none of."
            )
        if cls_frozen_until >= depth or cls_unseen_until > depth:
            raise UsageError(
                f"cls_frozen_until is at most {depth - 1}, for the class token must move, and cls_unseen_until at most "
                f"{depth}; got {cls_frozen_until} and {cls_unseen_until}."
            )
        if any(at < cls_frozen_until for at in no_skip_at):
            raise UsageError(
                "A frozen class token rides the skip, so no_skip_at takes no block before cls_frozen_until."
            )
        if cls_unseen_until and position == "relative":
            raise UsageError("cls_unseen_until takes another position than 'relative'.")
        self.pool = pool
        self.cls_at = cls_at
        self.cls_init = cls_init
        self.position_at = position_at
        self.grid = image_size // patch
        has_cls = pool != "gap"
        tokens = self.grid**2 + has_cls
        self.patch_embed = CnnStem(width, patch) if stem == "cnn" else PatchStem(width, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if has_cls else None
        plain = position == "1d" and position_at != "layers"
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, width)) if plain else None

        def make_mixer(at: int) -> nn.Module:
            if mixer == "pool":
                return Pooling(self.grid)
            if mixer == "mlp":
                return TokenMlp(tokens, width // 2)
            if mixer == "kernel":
                return KernelAttention(width, heads, self.grid, kernel, mask_border, qkv_bias, head_width)
            if position == "relative":
                return RelativeAttention(width, heads, tokens, qkv_bias, head_width)
            if cls_at <= at < cls_unseen_until:
                return UnseenFirst(width, heads, tokens, qkv_bias, head_width)
            return Attention(width, heads, qkv_bias, head_width)

        def moved(at: int) -> Tensor | None:
            """1 for every token but a frozen class token; None where all move."""
            return (torch.arange(tokens) > 0).float()[:, None] if cls_at <= at < cls_frozen_until else None

        self.blocks = nn.Sequential(
            *(
                Block(
                    width,
                    make_mixer(at),
                    Mlp(width, int(width * mlp_ratio)),
                    rate,
                    (
                        at not in no_skip_at or no_skip_part == "mlp",
                        at not in no_skip_at or no_skip_part == "attention",
                    ),
                    skip_scale,
                    moved(at),
                )
                for at, rate in enumerate(rising(drop_path, depth))
            )
        )
        self.positions = position_tables(position, position_at, self.grid, width, depth, has_cls)
        self.norm = nn.Identity() if pooled_norm else nn.LayerNorm(width, eps=1e-6)
        self.fc_norm = nn.LayerNorm(width, eps=1e-6) if pooled_norm else nn.Identity()
        self.head = nn.Linear(width, classes)
        self._initialise()

    def _initialise(self) -> None:
        if self.pos_embed is not None:
            nn.init.normal_(self.pos_embed, std=0.02)
        if self.cls_token is not None and self.cls_init == "normal":
            nn.init.normal_(self.cls_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def position_table(self, layer: int = 0) -> Tensor | None:
        """What is added to the tokens before a block (1, tokens, width); None if nothing is."""
        if layer and self.position_at == "stem":
            return None
        if self.pos_embed is not None:
            return self.pos_embed
        if not len(self.positions):
            return None
        table: Tensor = self.positions[layer if self.position_at == "layers" else 0]()
        return table

    def tokens(self, images: Tensor) -> Tensor:
        """The tokens after the last block and the final norm: (N, tokens, width), CLS first where there is one."""
        tokens: Tensor = self.patch_embed(images)
        for layer, block in enumerate(self.blocks):
            if self.cls_token is not None and layer == self.cls_at:
                tokens = torch.cat([self._class_tokens(tokens), tokens], dim=1)
            table = self.position_table(layer)
            if table is not None and self.cls_token is not None and layer < self.cls_at:
                table = table[:, 1:]
            tokens = block(tokens if table is None else tokens + table)
        tokens = self.norm(tokens)
        return tokens

    def _class_tokens(self, tokens: Tensor) -> Tensor:
        """The class token of each image (N, 1, width) as it enters: learned, and with "mean" the tokens' mean."""
        assert self.cls_token is not None
        cls = self.cls_token.expand(len(tokens), -1, -1)
        if self.cls_init == "mean":
            cls = cls + tokens.mean(dim=1, keepdim=True)
        table = self.position_table() if self.cls_at and self.position_at == "stem" else None
        return cls if table is None else cls + table[:, :1]  # its own row, which it was not there to get

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.tokens(images)
        patches = tokens if self.cls_token is None else tokens[:, 1:]
        read = tokens[:, 0] if self.pool == "cls" else patches.mean(dim=1)
        logits: Tensor = self.head(self.fc_norm(read))
        return logits


def rising(last: float, depth: int) -> Iterator[float]:
    """Stochastic-depth rates from 0 at the first block to `last` at the last, linearly."""
    return (last * block / max(1, depth - 1) for block in range(depth))
