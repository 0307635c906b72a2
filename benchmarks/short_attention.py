"""The kernels of training/short_attention.py on a GPU: checked against float64 beside the library's, then timed.

    python benchmarks/short_attention.py [--tokens 65 64] [--images 256]

The check is the relative error of result and gradient, bfloat16 in, and that a second call gives the same bits. Times
are of CUDA graphs of ten calls, for each number of queries at a time and warps: half a minute in all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from eyechart.training import short_attention

HEADS, WIDTH = 8, 20  # the zoo's ViT
CHOICES = ((16, 1), (16, 2), (16, 4), (32, 2), (32, 4), (64, 4), (64, 8))


def library(qkv: Tensor) -> Tensor:
    images, tokens, _ = qkv.shape
    q, k, v = qkv.reshape(images, tokens, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(images, tokens, -1)


def own(qkv: Tensor) -> Tensor:
    return short_attention._attention(qkv, HEADS)


def both_ways(attend: Callable[[Tensor], Tensor], qkv: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    given = qkv.detach().requires_grad_()
    out = attend(given)
    (gradient,) = torch.autograd.grad(out, given, upstream)
    return out.detach(), gradient


def check(tokens: int) -> None:
    qkv, upstream = drawn(64, tokens)
    wanted = both_ways(library, qkv.double(), upstream.double())
    first, second = both_ways(own, qkv, upstream), both_ways(own, qkv, upstream)
    same = all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    for name, found in (("own", first), ("library", both_ways(library, qkv, upstream))):
        errors = [float((f.double() - w).norm() / w.norm()) for f, w in zip(found, wanted, strict=True)]
        print(f"{tokens} tokens, {name}: relative error {errors[0]:.2e}, of the gradient {errors[1]:.2e}")
    print(f"{tokens} tokens: the same bits twice: {same}")


def drawn(images: int, tokens: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(channels: int) -> Tensor:
        return torch.randn(images, tokens, channels, generator=generator, device="cuda").bfloat16()

    return normal(3 * HEADS * WIDTH), normal(HEADS * WIDTH)


def microseconds(call: Callable[[], object], calls: int = 10, replays: int = 20) -> float:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / replays / calls * 1e3


def times(images: int, tokens: int) -> None:
    qkv, upstream = drawn(images, tokens)
    both = microseconds(lambda: both_ways(library, qkv, upstream))
    there = microseconds(lambda: library(qkv))
    print(f"{tokens} tokens, library: {there:.1f} µs there, {both - there:.1f} µs back")
    ways = {
        "FORWARD": lambda: short_attention.short_attention(qkv, HEADS),
        "BACKWARD": lambda: short_attention.short_attention_backward(qkv, upstream, HEADS),
    }
    for name, call in ways.items():
        chosen = getattr(short_attention, name)
        for choice in CHOICES:
            setattr(short_attention, name, choice)
            print(f"{tokens} tokens, {name} = {choice}: {microseconds(call):.1f} µs")
        setattr(short_attention, name, chosen)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[65, 64])
    parser.add_argument("--images", type=int, default=256)
    arguments = parser.parse_args(words)
    for tokens in arguments.tokens:
        check(tokens)
        times(arguments.images, tokens)


if __name__ == "__main__":
    main()
