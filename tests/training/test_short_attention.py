"""The kernels of short attention: run by Triton's interpreter, which needs no GPU, and compiled for one.

The interpreter is chosen when Triton is imported, so what is run lies in a process of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from eyechart.training import short_attention
from eyechart.training.short_attention import use_short_attention
from eyechart.training.step import use_own_kernels
from eyechart.zoo.vit import ViT
from tests.training.toys import toy_run, write_toys

pytestmark = pytest.mark.skipif(not short_attention.HAS_TRITON, reason="torch brings Triton on Linux only")

# A grid and a class token, a grid alone, tokens and channels that fill no power of two, fewer than a product takes.
SHAPES = [(65, 2, 20), (64, 3, 16), (37, 2, 24), (17, 1, 40), (5, 2, 8)]


def plain(qkv: Tensor, heads: int) -> Tensor:
    images, tokens, channels = qkv.shape
    q, k, v = qkv.reshape(images, tokens, 3, heads, channels // (3 * heads)).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(images, tokens, -1)


def errors(tokens: int, heads: int, width: int) -> list[float]:
    """Largest difference from float64, of the result and of the gradient."""
    generator = torch.Generator().manual_seed(0)
    qkv = 2 * torch.randn(2, tokens, 3 * heads * width, generator=generator)
    upstream = torch.randn(2, heads * width, tokens, generator=generator).transpose(1, 2)  # not contiguous
    found: list[Tensor] = []
    wanted: list[Tensor] = []
    for made, attend, dtype in ((found, short_attention._attention, torch.float32), (wanted, plain, torch.float64)):
        given = qkv.to(dtype).requires_grad_()
        out = attend(given, heads)
        made += [out.detach(), *torch.autograd.grad(out, given, upstream.to(dtype))]
    return [float((one - other).abs().max()) for one, other in zip(found, wanted, strict=True)]


def trained(folder: Path) -> dict[str, object]:
    """One training by the kernels and one without, to the end: its copy, its scores, its card."""
    from eyechart.training.loop import Training

    data = write_toys(folder / "toys.npz", train=20, test=20)
    small = {"width": 16, "depth": 1, "heads": 1}  # the interpreter takes 8 ms a head of an image
    cards = []
    for name in ("plain", "own"):
        training = Training(toy_run(data, folder, name=name, switches=small))
        if name == "own":
            assert use_own_kernels(training.module) == ["short attention", "stem as a product"]
        cards.append(training.finish())
    return {"losses": [card["nll"] for card in cards], "accuracies": [card["accuracy"] for card in cards]}


def test_kernels_equal_plain_attention_and_train_to_the_end(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.training.test_short_attention", str(tmp_path)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    for shape, (of_result, of_gradient) in zip(SHAPES, said["errors"], strict=True):
        assert of_result < 1e-5, shape
        assert of_gradient < 1e-4, shape
    one, other = said["losses"]
    assert one == pytest.approx(other, abs=1e-4)
    assert len(set(said["accuracies"])) == 1


@pytest.mark.parametrize("tokens", [64, 65])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_kernels_compile_for_a_gpu_that_is_not_there(tokens: int, way: str) -> None:
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(short_attention, f"_{way}_kernel")
    rows, warps = getattr(short_attention, way.upper())
    keys, extra = short_attention._keys(tokens)
    fixed = {"HEADS": 8, "WIDTH": 20, "KEYS": keys, "EXTRA": extra, "CHANNELS": 32, "ROWS": rows}
    types = {"scale": "fp32", "tokens": "i32"} | dict.fromkeys(fixed, "constexpr")
    signature = {name: types.get(name, "*bf16") for name in kernel.arg_names}
    made = compiled(ASTSource(kernel, signature, fixed), GPUTarget("cuda", 90, 32), {"num_warps": warps})
    assert made.asm["cubin"]


@pytest.mark.parametrize(
    ("switches", "used"),
    [
        ({}, True),
        ({"pool": "gap"}, True),
        ({"patch": 2}, False),  # 257 tokens
        ({"heads": 1, "width": 96}, False),  # a head of 96 channels
        ({"position": "relative"}, False),
        ({"pool": "gap", "mixer": "kernel"}, False),
    ],
)
def test_only_plain_attention_over_few_tokens_is_replaced(switches: dict[str, object], used: bool) -> None:
    model = ViT(**{"width": 32, "depth": 1, "heads": 4, **switches})  # type: ignore[arg-type]
    assert use_short_attention(model) == used


def test_only_training_is_done_otherwise() -> None:
    """Exams and scores see the attention that taps know."""
    model = ViT(width=32, depth=1, heads=4)
    images = torch.randn(2, 3, 32, 32)
    before = model.eval()(images)
    use_own_kernels(model)
    assert torch.equal(model(images), before)


def test_the_stem_as_a_product_is_the_same_map() -> None:
    stem = ViT(width=32, depth=1, heads=4).patch_embed.double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = stem(images)
    stem.trained_as_product = True
    torch.testing.assert_close(stem.train()(images), expected)
    assert torch.equal(stem.eval()(images), expected)


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    print(json.dumps({"errors": [errors(*shape) for shape in SHAPES], **trained(folder)}))
