"""Attention weights, recomputed beside the model's own call, which runs unchanged.

Three ways of writing attention are served: the fused `scaled_dot_product_attention`, an explicit product of softmaxed
scores with values, and `multi_head_attention_forward` of `nn.MultiheadAttention`. Whatever the model's layout, weights
come out as (image, window, head, query, key) and values as (image, window, head, key, channel).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from eyechart.tracing.operations import FUSED_ATTENTION, LEADING, MODULE_ATTENTION, operands_of_product

ALL = slice(None)
#: How the leading axes of an attention read, from the slowest: ("N", -1) images, ("W", 64) windows, ("H", 3) heads.
Leading = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Attention:
    """One attention call in its own leading axes: weights (…, query, key), values (…, key, channel)."""

    weights: Callable[..., Tensor]
    """All of them or, where they have a `shape`, some rows of its first axis."""
    values: Callable[[], Tensor]
    rebuild: Callable[[Tensor], Any]
    """What the call returns when its weights are replaced, in the model's own layout."""
    output: Callable[[Any], Tensor]
    """What it returned, as (…, query, channel)."""
    shape: tuple[int, ...] | None = None
    """Of the weights, where some of their rows cost less than all of them: on an accelerator all are made at once."""


def attention_in(name: str, args: Sequence[Any], kwargs: dict[str, Any], operand: int = 0) -> Attention:
    """Read an attention call. `operand` says which factor of an explicit product holds the weights."""
    if name == FUSED_ATTENTION:
        return _fused(*args, **kwargs)
    if name == MODULE_ATTENTION:
        bound = inspect.signature(F.multi_head_attention_forward).bind(*args, **kwargs)
        bound.apply_defaults()
        return _module(bound.arguments)
    return _product(name, args, operand)


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Attention:
    if enable_gqa:
        share = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(share, -3), value.repeat_interleave(share, -3)

    leading: tuple[int, ...] = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])  # type: ignore[no-untyped-call]

    def some(tensor: Tensor, rows: slice) -> Tensor:
        """Rows of the first axis, unless this tensor is the same for all of them."""
        return tensor[rows] if tensor.dim() == len(leading) + 2 and len(tensor) > 1 else tensor

    def weights(rows: slice = ALL) -> Tensor:
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores = (some(query, rows) * factor) @ some(key, rows).transpose(-2, -1)
        mask = attn_mask
        if is_causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        elif mask is not None:
            mask = some(mask, rows)
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -math.inf)
        elif mask is not None:
            scores = scores + mask
        # A row that may look nowhere gets no weight, as in the fused kernels.
        return scores.softmax(-1).nan_to_num() if mask is not None else scores.softmax(-1)

    def values() -> Tensor:
        return value.expand(*query.shape[:-2], *value.shape[-2:])

    shape = (*leading, query.shape[-2], key.shape[-2]) if query.device.type == "cpu" else None
    return Attention(weights, values, lambda new: new.to(value.dtype) @ value, lambda result: result, shape)


def _product(name: str, args: Sequence[Any], operand: int) -> Attention:
    product = operands_of_product(name, args)
    assert product is not None, "the dry run only marks products it can read"
    factors, letters, result = product[:2], product[2:4], product[4]
    own, other = letters[operand], letters[1 - operand]
    leading = [a for a in result if a in own and (a in other or a in LEADING)]
    queries = [a for a in result if a in own and a not in leading]
    keys = [a for a in own if a not in result]
    channels = [a for a in result if a not in own and a not in leading]
    sizes = {
        a: size
        for factor, text in zip(factors, letters, strict=True)
        for a, size in zip(text, factor.shape, strict=True)
    }
    sizes |= {a: size for a, size in zip(own, factors[operand].shape, strict=True) if size != 1}

    def arrange(tensor: Tensor, text: str, rows: list[str], columns: list[str]) -> Tensor:
        present = [a for a in leading if a in text]
        tensor = tensor.permute([text.index(a) for a in (*present, *rows, *columns)])
        for at, a in enumerate(leading):
            if a not in text:
                tensor = tensor.unsqueeze(at)
        tensor = tensor.flatten(len(leading), len(leading) + len(rows) - 1) if len(rows) > 1 else tensor
        tensor = tensor.flatten(-len(columns), -1) if len(columns) > 1 else tensor
        return tensor.expand(*(sizes[a] for a in leading), -1, -1)

    def values() -> Tensor:
        return arrange(factors[1 - operand], other, keys, channels)

    def rebuild(new: Tensor) -> Tensor:
        out = new @ values()
        out = out.reshape([sizes[a] for a in (*leading, *queries, *channels)])
        present = [*leading, *queries, *channels]
        return out.permute([present.index(a) for a in result])

    def weights() -> Tensor:
        return arrange(factors[operand], own, queries, keys)

    return Attention(weights, values, rebuild, lambda out: arrange(out, result, queries, channels))


def _module(call: dict[str, Any]) -> Attention:
    query, key, value = call["query"], call["key"], call["value"]
    heads, batched = call["num_heads"], call["query"].dim() == 3
    refused = [name for name in ("bias_k", "bias_v", "static_k", "static_v") if call[name] is not None]
    if refused or call["add_zero_attn"]:
        raise NotImplementedError(f"nn.MultiheadAttention with {', '.join(refused) or 'add_zero_attn'}")
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
    if call["use_separate_proj_weight"]:
        matrices = (call["q_proj_weight"], call["k_proj_weight"], call["v_proj_weight"])
    else:
        matrices = call["in_proj_weight"].chunk(3)
    shifts = call["in_proj_bias"].chunk(3) if call["in_proj_bias"] is not None else (None, None, None)

    def project(which: int, tensor: Tensor) -> Tensor:
        """(image, head, token, channel)"""
        tensor = F.linear(tensor, matrices[which], shifts[which])
        return tensor.view(*tensor.shape[:2], heads, -1).permute(1, 2, 0, 3)

    mask = call["attn_mask"]
    if mask is not None and mask.dim() == 3:
        mask = mask.unflatten(0, (-1, heads))
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, -math.inf)
    padding = call["key_padding_mask"]
    if padding is not None:
        hidden = padding[:, None, None, :]
        if hidden.dtype == torch.bool:
            hidden = torch.zeros_like(hidden, dtype=query.dtype).masked_fill(hidden, -math.inf)
        mask = hidden if mask is None else mask + hidden

    def weights() -> Tensor:
        return _fused(project(0, query), project(1, key), project(2, value), mask).weights()

    def rebuild(new: Tensor) -> Any:
        out = (new @ project(2, value)).permute(2, 0, 1, 3).flatten(2)
        out = F.linear(out, call["out_proj_weight"], call["out_proj_bias"])
        shown = None
        if call["need_weights"]:
            shown = new.mean(1) if call["average_attn_weights"] else new
        return (out, shown) if batched else (out.squeeze(1), shown)

    def values() -> Tensor:
        return project(2, value)

    # It returns its output only after its projection; what went in there has to be computed again.
    return Attention(weights, values, rebuild, lambda _: weights() @ values())


def rows_of_images(shape: Sequence[int], leading: Leading, numbers: int) -> Iterator[slice]:
    """Rows of the first axis that hold some whole images each, with about so many of the weights of this shape.

    >>> list(rows_of_images((3 * 4, 3, 49, 49), [("N", -1), ("W", 4), ("H", 3)], numbers=60_000))
    [slice(0, 8, None), slice(8, 16, None)]
    """
    images = math.prod(shape[:-2]) // math.prod(size for letter, size in leading if letter != "N")
    together = leading[0][0] == "N" and shape[0] % images == 0
    per_image, count = (shape[0] // images, images) if together else (shape[0], 1)
    step = max(1, numbers * count // math.prod(shape)) * per_image
    return (slice(start, start + step) for start in range(0, shape[0], step))


def canonical(tensor: Tensor, leading: Leading) -> Tensor:
    """(…, a, b) with the model's leading axes → (image, window, head, a, b).

    >>> canonical(torch.zeros(2 * 4, 3, 49, 49), [("N", -1), ("W", 4), ("H", 3)]).shape
    torch.Size([2, 4, 3, 49, 49])
    """
    split = tensor.reshape(*(size for _, size in leading), *tensor.shape[-2:])
    order = _order(leading)
    moved = split.permute(*order, len(order), len(order) + 1)
    windows = math.prod(size for letter, size in leading if letter == "W")
    heads = math.prod(size for letter, size in leading if letter == "H")
    return moved.reshape(-1, windows, heads, *tensor.shape[-2:])


def own_layout(tensor: Tensor, leading: Leading, shape: Sequence[int]) -> Tensor:
    """The way back: (image, window, head, a, b) → the model's leading axes, as in `shape`."""
    order = _order(leading)
    sizes = [tensor.shape[0] if size < 0 else size for _, size in leading]
    split = tensor.reshape([*(sizes[at] for at in order), *tensor.shape[-2:]])
    back = [order.index(at) for at in range(len(order))]
    return split.permute(*back, len(order), len(order) + 1).reshape(*shape[:-2], *tensor.shape[-2:])


def _order(leading: Leading) -> list[int]:
    return sorted(range(len(leading)), key=lambda at: "NWH".index(leading[at][0]))
