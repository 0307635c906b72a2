"""Recomputed attention weights, against loops written out and against what each way of writing attention returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.attention import attention_in, canonical, own_layout
from eyechart.tracing.needs import View
from eyechart.tracing.operations import FUSED_ATTENTION
from eyechart.tracing.taps import Tap
from eyechart.tracing.views import Look
from tests import cases
from tests.measures.staging import full_grid, site

WEIGHTS = View("weights", lambda look: look.weights)
VALUES = View("values", lambda look: look.values)
OUTPUT = View("output", lambda look: look.output)


def by_loops(
    q: Tensor, k: Tensor, allowed: Callable[[int, int], bool] = lambda i, j: True, bias: float = 0.0
) -> Tensor:
    """softmax(q kᵀ / √d), one number at a time; `bias` per step between query and key."""
    out = torch.zeros(*q.shape[:-1], k.shape[-2])
    for n in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                scores = [
                    float(q[n, h, i] @ k[n, h, j]) / math.sqrt(q.shape[-1]) + bias * (i - j)
                    if allowed(i, j)
                    else -math.inf
                    for j in range(k.shape[2])
                ]
                top = max(scores)
                powers = [math.exp(score - top) for score in scores]
                for j, power in enumerate(powers):
                    out[n, h, i, j] = power / sum(powers)
    return out


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


Q, K, V = random(2, 3, 5, 4), random(2, 3, 6, 4, seed=1), random(2, 3, 6, 7, seed=2)


@pytest.mark.parametrize("case", ["plain", "causal", "boolean mask", "bias", "scale"])
def test_fused_weights_by_loops(case: str) -> None:
    steps = torch.arange(5.0)[:, None] - torch.arange(6.0)
    mask = torch.rand(5, 6, generator=torch.Generator().manual_seed(3)) > 0.4
    mask[:, 0] = True
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "causal": {"is_causal": True},
        "boolean mask": {"attn_mask": mask},
        "bias": {"attn_mask": 0.3 * steps},
        "scale": {"scale": 1.0},
    }
    expected = {
        "plain": lambda: by_loops(Q, K),
        "causal": lambda: by_loops(Q, K, lambda i, j: j <= i),
        "boolean mask": lambda: by_loops(Q, K, lambda i, j: bool(mask[i, j])),
        "bias": lambda: by_loops(Q, K, bias=0.3),
        "scale": lambda: by_loops(Q * 2, K),  # 1 = 2 / √4
    }
    attention = attention_in(FUSED_ATTENTION, (Q, K, V), options[case])
    torch.testing.assert_close(attention.weights(), expected[case]())
    torch.testing.assert_close(
        attention.weights() @ attention.values(), F.scaled_dot_product_attention(Q, K, V, **options[case])
    )


def test_fused_with_shared_keys() -> None:
    key, value = random(2, 2, 6, 4), random(2, 2, 6, 4, seed=1)
    query = random(2, 4, 5, 4, seed=2)
    attention = attention_in(FUSED_ATTENTION, (query, key, value), {"enable_gqa": True})
    expected = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    torch.testing.assert_close(attention.weights() @ attention.values(), expected)


@pytest.mark.parametrize(
    "leading", [[("N", -1), ("W", 3), ("H", 2)], [("W", 3), ("N", -1), ("H", 2)], [("H", 2), ("N", -1), ("W", 3)]]
)
def test_canonical_axes_and_back(leading: list[tuple[str, int]]) -> None:
    """Each entry is named by its (image, window, head); whatever the model's order, canonical axes find it."""
    truth = torch.arange(4 * 3 * 2.0).view(4, 3, 2)
    letters = "NWH"
    own = truth.permute([letters.index(letter) for letter, _ in leading]).reshape(-1)
    tensor = (
        own[:, None, None].expand(-1, 5, 6).reshape(-1, 2, 5, 6)
        if leading[-1][0] == "H"
        else own[:, None, None].expand(-1, 5, 6)
    )
    read = canonical(tensor, leading)
    assert torch.equal(read, truth[..., None, None].expand(4, 3, 2, 5, 6))
    assert torch.equal(own_layout(read, leading, tensor.shape), tensor)


class Attend(nn.Module):
    """One attention over the cells of a map, written in several ways; all mean the same."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)
        self.heads = nn.MultiheadAttention(8, 2, batch_first=True)
        heads = cases.inside(self.heads)
        heads.in_proj_weight, heads.in_proj_bias, heads.out_proj = self.qkv.weight, self.qkv.bias, self.proj

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        if self.way == "module":
            mixed = self.heads(tokens, tokens, tokens, need_weights=False)[0]
            return x + mixed.transpose(1, 2).view_as(x)
        n, t, _ = tokens.shape
        q, k, v = self.qkv(tokens).view(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if self.way == "fused":
            mixed = F.scaled_dot_product_attention(q, k, v)
        elif self.way == "explicit":
            mixed = (q @ k.transpose(-2, -1) / 2).softmax(-1) @ v
        elif self.way == "transposed":
            scores = (k @ q.transpose(-2, -1) / 2).softmax(-2)  # (key, query)
            mixed = (v.transpose(-2, -1) @ scores).transpose(-2, -1)
        elif self.way == "merged":
            q, k, v = (part.reshape(n * 2, t, 4) for part in (q, k, v))
            mixed = torch.bmm(torch.bmm(q, k.transpose(1, 2)).div(2).softmax(-1), v).view(n, 2, t, 4)
        elif self.way == "heads first":
            q, k, v = (part.transpose(0, 1).reshape(2 * n, t, 4) for part in (q, k, v))
            mixed = torch.bmm(torch.bmm(q, k.transpose(1, 2)).div(2).softmax(-1), v).view(2, n, t, 4).transpose(0, 1)
        else:
            weights = torch.einsum("nhqc,nhkc->nhqk", q, k).div(2).softmax(-1)
            mixed = torch.einsum("nhqk,nhkc->nqhc", weights, v).transpose(1, 2)
        return x + self.proj(mixed.transpose(1, 2).flatten(2)).transpose(1, 2).view_as(x)


WAYS = ["fused", "explicit", "transposed", "merged", "heads first", "einsum", "module"]


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_of_writing_give_the_same_weights(way: str) -> None:
    torch.manual_seed(0)
    module = cases.one(Attend(way))
    images = cases.images(3)
    anatomy = anatomy_of(way, module, images[:2])
    (site,) = anatomy.pick("attention")
    assert site.heads == 2
    _, views = Tap(module, anatomy, {site.name: [WEIGHTS, VALUES, OUTPUT]}).run(images)
    taken = views[site.name]
    whole = cases.inside(module)
    unit = whole.units[0]
    with torch.no_grad():
        q, k, v = unit.qkv(whole.stem(images).flatten(2).transpose(1, 2)).view(3, 64, 3, 2, 4).permute(2, 0, 3, 1, 4)
        expected = torch.stack(
            [torch.stack([(q[n, h] @ k[n, h].T / 2).softmax(-1) for h in range(2)]) for n in range(3)]
        )
    torch.testing.assert_close(taken["weights"], expected.unsqueeze(1))
    torch.testing.assert_close(taken["values"], v.unsqueeze(1))
    torch.testing.assert_close(taken["output"], (expected @ v).unsqueeze(1))


def test_windowed_weights_are_those_of_the_window() -> None:
    """Swin's shifted block: outside a window nothing is seen; inside, masked pairs get no weight."""
    module, images = cases.swin(), cases.images(3)
    anatomy = anatomy_of("swin", module, images[:2])
    site = anatomy.pick("attention")[1]
    given: dict[str, Tensor] = {}
    attention = cases.inside(module.get_submodule(site.path))
    attention.proj.register_forward_pre_hook(lambda _, inputs: given.__setitem__("mixed", inputs[0].clone()))
    _, views = Tap(module, anatomy, {site.name: [WEIGHTS, VALUES]}).run(images)
    weights, values = views[site.name]["weights"], views[site.name]["values"]
    assert weights.shape == (3, 4, 2, 16, 16)
    product = (weights @ values).transpose(2, 3).flatten(3).flatten(0, 1)
    torch.testing.assert_close(product, given["mixed"])
    geometry = site.attention
    assert geometry is not None
    assert geometry.query_yx is not None
    far = torch.from_numpy(abs(geometry.query_yx[:, :, None] - geometry.query_yx[:, None])).amax(-1) > 4 * 4
    assert weights[:, far.unsqueeze(1).expand(4, 2, 16, 16)].max() < 1e-6  # joined only by the roll
    assert weights[:, :, :, 0, 0].min() > 0


@pytest.mark.parametrize("mask", [None, (5, 6), (1, 3, 5, 6), (4, 1, 5, 6)])
@pytest.mark.parametrize("queries", [1, 4])
def test_some_rows_are_those_of_all_weights(mask: tuple[int, ...] | None, queries: int) -> None:
    """A mask, or queries that all images share, are the same for all rows."""
    q, k, v = random(queries, 3, 5, 4), random(4, 3, 6, 4, seed=1), random(4, 3, 6, 7, seed=2)
    attention = attention_in(FUSED_ATTENTION, (q, k, v), {"attn_mask": None if mask is None else random(*mask)})
    assert attention.shape == (4, 3, 5, 6)
    whole, some = attention.weights(), [attention.weights(slice(at, at + 2)) for at in (0, 2)]
    torch.testing.assert_close(torch.cat(some), whole)


@pytest.mark.parametrize("make", ["vit", "swin"])
def test_weights_in_parts_are_those_of_all_images(make: str) -> None:
    """Swin holds windows of one picture side by side: a part has all of them."""
    module, images = getattr(cases, make)(), cases.images(5)
    anatomy = anatomy_of(make, module, images[:2])
    lengths: list[int] = []

    def in_parts(look: Look) -> Tensor:
        image = math.prod(whole[look.site.name].shape[1:])
        parts = list(look.some_weights(2 * image, elsewhere=1))
        lengths.extend(len(part) for part in parts)
        return torch.cat(parts)

    names = [site.name for site in anatomy.pick("attention")]
    whole = {
        name: views["weights"]
        for name, views in Tap(module, anatomy, {key: [WEIGHTS] for key in names}).run(images)[1].items()
    }
    _, views = Tap(module, anatomy, {key: [View("parts", in_parts)] for key in names}).run(images)
    for name in names:
        torch.testing.assert_close(views[name]["parts"], whole[name])
    assert set(lengths) == {1, 2}


def test_weights_that_another_view_asked_for_are_not_made_again() -> None:
    weights = torch.rand(3, 1, 2, 4, 4)

    def refuse(numbers: int) -> Iterator[Tensor]:
        raise AssertionError(numbers)

    look = Look(
        site("a", role="attention", heads=2, attention=full_grid(2, 4)),
        weights=lambda: weights,
        weights_in_parts=refuse,
    )
    assert look.weights is weights
    assert [len(part) for part in look.some_weights(2 * 32, elsewhere=1)] == [2, 1]


def test_talking_heads_give_the_weights_that_meet_the_values() -> None:
    class Talking(Attend):
        mix: nn.Linear

        def forward(self, x: Tensor) -> Tensor:
            tokens = x.flatten(2).transpose(1, 2)
            q, k, v = self.qkv(tokens).view(len(x), -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
            weights = (q @ k.transpose(-2, -1)).softmax(-1)
            self.spoken = self.mix(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            return x + self.proj((self.spoken @ v).transpose(1, 2).flatten(2)).transpose(1, 2).view_as(x)

    torch.manual_seed(0)
    unit = Talking("explicit")
    unit.mix = nn.Linear(2, 2)
    module, images = cases.one(unit), cases.images(3)
    anatomy = anatomy_of("talking", module, images[:2])
    (site,) = anatomy.pick("attention")
    _, views = Tap(module, anatomy, {site.name: [WEIGHTS]}).run(images)
    assert torch.equal(views[site.name]["weights"], unit.spoken.unsqueeze(1))


def test_masked_module_attention() -> None:
    torch.manual_seed(0)
    heads = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, mask = random(3, 5, 8), torch.ones(5, 5, dtype=torch.bool).triu(1)
    seen: list[Tensor] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.__name__ == "multi_head_attention_forward":  # by name: torchlens, once used, wraps torch's own
                seen.append(attention_in("multi_head_attention_forward", args, kwargs or {}).weights())
            return func(*args, **(kwargs or {}))

    padding = torch.tensor([[False] * 5, [False] * 4 + [True], [False] * 5])
    with torch.no_grad(), Watch():
        _, expected = heads(x, x, x, attn_mask=mask, key_padding_mask=padding, average_attn_weights=False)
    torch.testing.assert_close(seen[0], expected)
