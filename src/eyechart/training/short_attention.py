"""Attention over few tokens as one kernel each way, for training on a GPU.

    out_i = Σ_j softmax_j(q_i · k_j / √d) v_j        for every head of every image

The zoo's ViT has 65 tokens and heads of 20 channels, which suit no library: padded to 128 tokens and 32 channels, with
copies before and after, its attention took 2.0 of 5.2 ms of a step on an H200. Here one program has one head of one
image: it reads queries, keys and values where the projection wrote them, keeps the weights in registers, and writes
where the next projection reads. The way back computes the weights again. Nothing is added up by two programs, so a
training repeats bit for bit. Products are of the input's precision with float32 sums, as in the library's kernels.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from eyechart.zoo.mixers import Attention
from eyechart.zoo.vit import ViT

try:
    import triton
    import triton.language as tl
except ImportError:  # torch brings Triton on Linux only
    triton = None
HAS_TRITON = triton is not None

MOST_TOKENS = 128
MOST_CHANNELS = 64
# Queries at a time and warps, there and back (benchmarks/short_attention.py). On an H200, for 256 images of 64 tokens,
# 12 and 38 µs, where the library takes 260 for both; with a class token not timed yet.
FORWARD = (32, 2)
BACKWARD = (16, 4)


def use_short_attention(module: nn.Module) -> bool:
    """Have the plain attention of a zoo's ViT done by these kernels while it trains; whether it has any."""
    if not HAS_TRITON or not isinstance(module, ViT) or module.grid**2 >= MOST_TOKENS:
        return False
    parts = [part for part in module.modules() if type(part) is Attention and part.head_width <= MOST_CHANNELS]
    for part in parts:
        part.trained_by = _attention  # the operation itself cannot be copied, and a training ends with a copy
    return bool(parts)


def _padded(count: int) -> int:
    """The next power of two; a product of matrices needs 16."""
    return max(16, 1 << (count - 1).bit_length())


def _keys(tokens: int) -> tuple[int, bool]:
    """Keys that are multiplied as a matrix, and whether there is one key more, which is done by itself.

    A grid of 8×8 and a class token are 65: padded to 128 they took three times as long as the grid alone.
    """
    extra = tokens > 16 and _padded(tokens - 1) == tokens - 1
    return (tokens - 1 if extra else _padded(tokens)), extra


if HAS_TRITON:

    @triton.jit  # type: ignore[untyped-decorator]
    def _softmax(q, k, k_more, scale, known, EXTRA: tl.constexpr):  # type: ignore[no-untyped-def]
        """Weights of the keys that are there, and that of the one key more, in float32."""
        scores = tl.where(known[None, :], tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        top = tl.max(scores, 1)
        more = tl.zeros_like(top)
        if EXTRA:
            more = tl.sum(q * k_more[None, :], 1) * scale
            top = tl.maximum(top, more)
            more = tl.exp(more - top)
        weights = tl.exp(scores - top[:, None])
        total = tl.sum(weights, 1) + more
        return weights / total[:, None], more / total

    @triton.jit  # type: ignore[untyped-decorator]
    def _forward_kernel(  # type: ignore[no-untyped-def]
        qkv, out, scale, tokens, HEADS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr, EXTRA: tl.constexpr,
        CHANNELS: tl.constexpr, ROWS: tl.constexpr,
    ):  # fmt: skip
        image, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
        step = HEADS * WIDTH
        start = qkv + image * tokens * 3 * step + head * WIDTH
        key, channel = tl.arange(0, KEYS), tl.arange(0, CHANNELS)
        known, real = key < tokens, channel < WIDTH
        places = key[:, None] * 3 * step + channel[None, :]
        k = tl.load(start + step + places, mask=known[:, None] & real[None, :], other=0.0)
        v = tl.load(start + 2 * step + places, mask=known[:, None] & real[None, :], other=0.0)
        last = start + (tokens - 1) * 3 * step + channel
        k_more = tl.load(last + step, mask=real, other=0.0).to(tl.float32)
        v_more = tl.load(last + 2 * step, mask=real, other=0.0).to(tl.float32)
        for first in range(0, tokens, ROWS):
            row = first + tl.arange(0, ROWS)
            inside = (row[:, None] < tokens) & real[None, :]
            q = tl.load(start + row[:, None] * 3 * step + channel[None, :], mask=inside, other=0.0)
            weights, more = _softmax(q, k, k_more, scale, known, EXTRA)
            mixed = tl.dot(weights.to(v.dtype), v)
            if EXTRA:
                mixed += more[:, None] * v_more[None, :]
            to = out + (image * tokens + row[:, None]) * step + head * WIDTH + channel[None, :]
            tl.store(to, mixed.to(out.dtype.element_ty), mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def _backward_kernel(  # type: ignore[no-untyped-def]
        qkv, d_out, d_qkv, scale, tokens, HEADS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr,
        EXTRA: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr,
    ):  # fmt: skip
        image, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
        step = HEADS * WIDTH
        start = image * tokens * 3 * step + head * WIDTH
        key, channel = tl.arange(0, KEYS), tl.arange(0, CHANNELS)
        known, real = key < tokens, channel < WIDTH
        places = start + key[:, None] * 3 * step + channel[None, :]
        k = tl.load(qkv + step + places, mask=known[:, None] & real[None, :], other=0.0)
        v = tl.load(qkv + 2 * step + places, mask=known[:, None] & real[None, :], other=0.0)
        last = start + (tokens - 1) * 3 * step + channel
        k_more = tl.load(qkv + step + last, mask=real, other=0.0).to(tl.float32)
        v_more = tl.load(qkv + 2 * step + last, mask=real, other=0.0).to(tl.float32)
        d_k = tl.zeros([KEYS, CHANNELS], tl.float32)
        d_v = tl.zeros([KEYS, CHANNELS], tl.float32)
        d_k_more = tl.zeros([CHANNELS], tl.float32)
        d_v_more = tl.zeros([CHANNELS], tl.float32)
        for first in range(0, tokens, ROWS):
            row = first + tl.arange(0, ROWS)
            inside = (row[:, None] < tokens) & real[None, :]
            at = start + row[:, None] * 3 * step + channel[None, :]
            q = tl.load(qkv + at, mask=inside, other=0.0)
            from_out = d_out + (image * tokens + row[:, None]) * step + head * WIDTH + channel[None, :]
            d_mixed = tl.load(from_out, mask=inside, other=0.0)
            weights, more = _softmax(q, k, k_more, scale, known, EXTRA)
            d_v += tl.dot(tl.trans(weights.to(v.dtype)), d_mixed)
            d_weights = tl.dot(d_mixed, tl.trans(v))
            mean = tl.sum(weights * d_weights, 1)
            d_more = tl.zeros_like(mean)
            if EXTRA:
                d_more = tl.sum(d_mixed * v_more[None, :], 1)
                mean += more * d_more
            d_scores = (weights * (d_weights - mean[:, None]) * scale).to(k.dtype)
            d_q = tl.dot(d_scores, k)
            d_k += tl.dot(tl.trans(d_scores), q)
            if EXTRA:
                d_score = more * (d_more - mean) * scale
                d_q += d_score[:, None] * k_more[None, :]
                d_k_more += tl.sum(d_score[:, None] * q, 0)
                d_v_more += tl.sum(more[:, None] * d_mixed, 0)
            tl.store(d_qkv + at, d_q.to(d_qkv.dtype.element_ty), mask=inside)
        tl.store(d_qkv + step + places, d_k.to(d_qkv.dtype.element_ty), mask=known[:, None] & real[None, :])
        tl.store(d_qkv + 2 * step + places, d_v.to(d_qkv.dtype.element_ty), mask=known[:, None] & real[None, :])
        if EXTRA:
            tl.store(d_qkv + step + last, d_k_more.to(d_qkv.dtype.element_ty), mask=real)
            tl.store(d_qkv + 2 * step + last, d_v_more.to(d_qkv.dtype.element_ty), mask=real)


def _launch(kernel: Any, tensors: tuple[Tensor, ...], heads: int, rows_and_warps: tuple[int, int]) -> None:
    """One program for each head of each image; the first tensor is what the projection wrote."""
    images, tokens, channels = tensors[0].shape
    width = channels // (3 * heads)
    rows, warps = rows_and_warps
    sizes = (heads, width, *_keys(tokens), _padded(width), rows)
    kernel[(images * heads,)](*tensors, 1 / math.sqrt(width), tokens, *sizes, num_warps=warps)


@torch.library.custom_op("eyechart::short_attention", mutates_args=(), schema="(Tensor qkv, int heads) -> Tensor")
def short_attention(qkv: Tensor, heads: int) -> Tensor:
    """(image, token, 3 · head · channel) → (image, token, head · channel)."""
    qkv = qkv.contiguous()
    out = qkv.new_empty(*qkv.shape[:2], qkv.shape[2] // 3)
    _launch(_forward_kernel, (qkv, out), heads, FORWARD)
    return out


@torch.library.custom_op(
    "eyechart::short_attention_backward", mutates_args=(), schema="(Tensor qkv, Tensor d_out, int heads) -> Tensor"
)
def short_attention_backward(qkv: Tensor, d_out: Tensor, heads: int) -> Tensor:
    qkv, d_out = qkv.contiguous(), d_out.contiguous()
    d_qkv = torch.empty_like(qkv)
    _launch(_backward_kernel, (qkv, d_out, d_qkv), heads, BACKWARD)
    return d_qkv


@short_attention.register_fake
def _(qkv: Tensor, heads: int) -> Tensor:
    return qkv.new_empty(*qkv.shape[:2], qkv.shape[2] // 3)


@short_attention_backward.register_fake
def _(qkv: Tensor, d_out: Tensor, heads: int) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.heads = inputs[1]


def _back(ctx: Any, d_out: Tensor) -> tuple[Tensor, None]:
    return short_attention_backward(ctx.saved_tensors[0], d_out, ctx.heads), None


short_attention.register_autograd(_back, setup_context=_keep)


def _attention(qkv: Tensor, heads: int) -> Tensor:
    out: Tensor = short_attention(qkv, heads)
    return out
