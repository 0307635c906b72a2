"""Gram matrices of layers, and the unbiased HSIC of every two of them (Song et al. 2012): what CKA is made of.

For Gram matrices K, L of n images with their diagonals set to zero,

    HSIC(K, L) = [ Σ K∘L + (ΣK)(ΣL) / ((n-1)(n-2)) - 2/(n-2) · (K1)·(L1) ] / (n(n-3))

HSIC is bilinear, so all pairs of sites of all subjects are three matrix products over the stacked Gram matrices. Packed
into vectors (`packed`) they are a single product, which is fast enough for thousands of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from eyechart.errors import DoesNotApply
from eyechart.methods.token_lengths import Tokens, output_of
from eyechart.tracing.needs import View

if TYPE_CHECKING:
    from eyechart.measure import Views
    from eyechart.scene import Scene
    from eyechart.sites import Site
    from eyechart.tracing.views import Look

Readout = Literal["all", "spatial", "cls", "gap"]
AT_ONCE = 1 << 18  # numbers that are centred and multiplied at a time on a CPU, so that they stay in its cache
PANEL = 32  # columns of a Gram matrix made at a time there, below its diagonal only
THERE_AT_ONCE = 1 << 26  # on an accelerator, which has more memory and gains by fewer, larger steps
TOKENS_THERE = 1 << 24  # the same of `packed`, which holds several such results
PIECE = 1 << 11  # features of one product there: a Gram matrix of 64 images is one tile, so only many pieces fill it


def gram(features: torch.Tensor) -> torch.Tensor:
    """Gram matrix of the images, each feature centred over them first.

    In exact arithmetic centring changes nothing. In float32, with an offset of 1000, the CKA from the uncentred Gram
    matrix is wrong by 4e-2, from the centred one by 4e-7.

    >>> gram(torch.tensor([[1001.0], [1003.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    flat = features.flatten(1)
    dtype = torch.promote_types(flat.dtype, torch.float32)  # bfloat16 features are multiplied in float32
    if flat.is_cuda:
        return gram_in_pieces(flat, dtype)
    n = len(flat)
    result = flat.new_zeros(n, n, dtype=dtype)
    for columns in torch.split(flat, max(1, AT_ONCE // n), dim=1):
        centred = columns.to(dtype)
        centred = centred - centred.mean(0)
        for start in range(0, n, PANEL):  # what lies above the diagonal is a mirror image: 256 images take half as long
            panel = slice(start, start + PANEL)
            result[start:, panel].addmm_(centred[start:], centred[panel].T)
    return result.tril() + result.tril(-1).T


def gram_in_pieces(flat: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same of features (image, feature) as a sum over pieces of them, added up in float64.

    >>> features = torch.randn(5, 3 * PIECE + 7)
    >>> bool(torch.allclose(gram_in_pieces(features, torch.float32), gram(features), rtol=1e-4))
    True
    """
    n = len(flat)
    result = flat.new_zeros(n, n, dtype=torch.float64)
    for columns in torch.split(flat, PIECE * max(1, THERE_AT_ONCE // (PIECE * n)), dim=1):
        centred = columns - columns.mean(0, dtype=dtype)
        whole = centred.shape[1] // PIECE * PIECE
        pieces = centred[:, :whole].reshape(n, -1, PIECE).transpose(0, 1)
        result += (pieces @ pieces.mT).sum(0, dtype=torch.float64)
        rest = centred[:, whole:]
        result += rest @ rest.T
    return result.to(dtype)


def hsic_table(grams: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
    """Unbiased HSIC of every pair of a stack of Gram matrices (site, n, n), as (site, other_site) in float64.

    With `others`, of every one of the first stack with every one of the second.
    """
    n = grams.shape[1]
    flat, rows = _hollow(grams)
    other_flat, other_rows = (flat, rows) if others is None else _hollow(others)
    corner = torch.outer(rows.sum(1), other_rows.sum(1)) / ((n - 1) * (n - 2))
    return (flat @ other_flat.T + corner - 2 / (n - 2) * rows @ other_rows.T) / (n * (n - 3))


def _hollow(grams: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gram matrices with their diagonals set to zero, flat, and the sums of their rows."""
    hollow = grams.double() * (1 - torch.eye(grams.shape[1], dtype=torch.float64, device=grams.device))
    return hollow.flatten(1), hollow.sum(2)


def scale_of(self_hsic: np.ndarray) -> np.ndarray:
    """√HSIC(K, K), by which CKA divides. Estimates that are not positive have no root: NaN (unknown), never clamped."""
    return np.sqrt(np.where(self_hsic > 0, self_hsic, np.nan))


def check_blocks(scene: Scene) -> None:
    """Unbiased HSIC needs whole blocks of four images."""
    if scene.whole_blocks == 0:
        raise DoesNotApply(f"CKA needs blocks of at least 4 images; there are {scene.images}.")


def packed(features: torch.Tensor) -> torch.Tensor:
    """(image, token, feature) → (token, pair): vectors whose inner products are the unbiased HSIC of two tokens.

    With K the Gram matrix without its diagonal and r its row sums, HSIC(K, L) = Σ U(K)∘U(L) / (n(n-3)) for

        U(K)_ij = K_ij - (r_i + r_j)/(n-2) + Σr/((n-1)(n-2))        i ≠ j

    which is symmetric, so the pairs i < j are enough.
    """
    n, tokens, _ = features.shape
    i, j = torch.triu_indices(n, n, offset=1, device=features.device)
    if n < 4:  # a short last batch, which no statistic of blocks uses
        return features.new_zeros(tokens, len(i), dtype=torch.float32)
    pairs, results = i * n + j, []
    at_once = AT_ONCE if features.device.type == "cpu" else TOKENS_THERE
    for part in torch.split(features, max(1, at_once // (n * max(n, features.shape[2]))), dim=1):
        rows = part.float().transpose(0, 1)
        rows = rows - rows.mean(1, keepdim=True)
        gram = rows @ rows.mT
        gram.diagonal(dim1=1, dim2=2).zero_()
        sums = gram.sum(2)
        gram -= (sums[:, :, None] + sums[:, None]) / (n - 2)
        gram += sums.sum(1)[:, None, None] / ((n - 1) * (n - 2))
        results.append(gram.flatten(1).index_select(1, pairs) * math.sqrt(2 / (n * (n - 3))))
    return torch.cat(results)


def read_out(readout: Readout | Literal["prefix"], lengths: Tokens = "plain") -> Callable[[Look], torch.Tensor]:
    """The part of a layer that its Gram matrix is made of; `gap` is the mean after tokens got their lengths."""

    def take(look: Look) -> torch.Tensor:
        if readout == "all":
            return output_of(look, lengths)
        tokens, prefix = look.tokens(output_of(look, lengths)), look.site.layout.prefix
        if readout == "cls":
            return tokens[:, 0]
        if readout == "prefix":
            return tokens[:, :prefix]
        return tokens[:, prefix:] if readout == "spatial" else tokens[:, prefix:].mean(1)

    return take


def gram_view(readout: Readout | Literal["prefix"], lengths: Tokens = "plain") -> View:
    name = f"gram[{readout}]" if lengths == "plain" else f"gram[{readout}, {lengths} tokens]"
    return View(name, read_out(readout, lengths), reduce=gram)


#: Gram matrices of whole layers, and of their class and register tokens alone. A Gram matrix is a sum over features, so
#: their difference is the Gram matrix of the patch tokens, at a hundredth of the cost of computing it directly.
WHOLE, PREFIX = gram_view("all"), gram_view("prefix")


def patch_gram(views: Views, subject: str, site: Site, whole: View = WHOLE, prefix: View = PREFIX) -> torch.Tensor:
    """Gram matrix of the patch tokens; where there is no prefix, that of the layer."""
    layer = views(subject, site, whole)
    return layer if not site.layout.prefix else layer.double() - views(subject, site, prefix).double()
