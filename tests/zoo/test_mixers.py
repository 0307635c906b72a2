"""Each mixer against brute force, against timm, or against an answer worked out by hand."""

import pytest
import torch
import torch.nn.functional as F
from timm.models.metaformer import Pooling as TimmPooling
from timm.models.mlp_mixer import MixerBlock
from torch import Tensor

from eyechart.errors import UsageError
from eyechart.zoo.mixers import Attention, KernelAttention, Pooling, RelativeAttention, TokenMlp

GRID = 5


def tokens(width: int = 8, grid: int = GRID) -> Tensor:
    return torch.randn(3, grid**2, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def heads_of(attention: Attention, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as (image, head, token, channel), cut by hand."""
    cut = attention.qkv(given).chunk(3, dim=-1)
    q, k, v = (torch.stack(part.split(attention.head_width, dim=-1), dim=1) for part in cut)
    return q, k, v


def joined(attention: Attention, mixed: Tensor) -> Tensor:
    out: Tensor = attention.proj(torch.cat(mixed.unbind(1), dim=-1))
    return out


@pytest.mark.parametrize(("heads", "head_width"), [(2, 0), (3, 5)])
def test_attention_is_the_softmax_of_the_paper(heads: int, head_width: int) -> None:
    attention = Attention(8, heads, head_width=head_width).double()
    q, k, v = heads_of(attention, tokens())
    assert attention.head_width == (head_width or 4)
    weights = (q @ k.transpose(-2, -1) / attention.head_width**0.5).softmax(-1)
    torch.testing.assert_close(attention(tokens()), joined(attention, weights @ v))


@pytest.mark.parametrize(("kernel", "mask_border"), [(GRID, True), (GRID, False), (2 * GRID - 1, True)])
def test_a_kernel_that_covers_the_grid_is_global_attention(kernel: int, mask_border: bool) -> None:
    limited, plain = KernelAttention(8, 2, GRID, kernel, mask_border).double(), Attention(8, 2).double()
    plain.load_state_dict(limited.state_dict())
    torch.testing.assert_close(limited(tokens()), plain(tokens()))
    nearer = KernelAttention(8, 2, GRID, 3).double()
    nearer.load_state_dict(plain.state_dict())
    assert not torch.allclose(nearer(tokens()), plain(tokens()), atol=1e-3)


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
@pytest.mark.parametrize("mask_border", [True, False])
def test_kernel_attention_is_attention_over_unfolded_keys(kernel: int, mask_border: bool) -> None:
    grid = 6
    attention = KernelAttention(8, 2, grid, kernel, mask_border).double()
    q, k, v = heads_of(attention, tokens(grid=grid))

    def unfold(part: Tensor) -> Tensor:
        """(image, head, token, channel) → (image, head, token, neighbour, channel), zeros beyond the edge."""
        images, heads, count, channels = part.shape
        maps = part.flatten(0, 1).transpose(1, 2).reshape(-1, channels, grid, grid)
        cells = F.unfold(maps, kernel, padding=kernel // 2).reshape(images, heads, channels, kernel**2, count)
        return cells.permute(0, 1, 4, 3, 2)

    scores = (q[:, :, :, None] * unfold(k)).sum(-1) / 2.0
    if mask_border:
        inside = unfold(torch.ones_like(k))[..., 0] > 0
        scores = scores.masked_fill(~inside, -torch.inf)
    mixed = (scores.softmax(-1)[..., None] * unfold(v)).sum(-2)
    torch.testing.assert_close(attention(tokens(grid=grid)), joined(attention, mixed))


def test_an_even_kernel_has_no_centre() -> None:
    with pytest.raises(UsageError, match="odd, or the grid's side 8"):
        KernelAttention(8, 2, 8, 4)


def test_relative_attention_adds_what_the_query_says_to_each_distance() -> None:
    attention = RelativeAttention(8, 2, GRID**2).double()
    assert attention.pos_embed.shape == (2 * GRID**2 - 1, 4)
    torch.nn.init.normal_(attention.pos_embed)  # its small beginning would hide a mistake
    q, k, v = heads_of(attention, tokens())
    scores = q @ k.transpose(-2, -1)
    for i in range(GRID**2):
        for j in range(GRID**2):
            scores[:, :, i, j] += q[:, :, i] @ attention.pos_embed[i - j + GRID**2 - 1]
    torch.testing.assert_close(attention(tokens()), joined(attention, (scores / 2.0).softmax(-1) @ v))


def test_pooling_is_the_mean_of_the_neighbours_inside_minus_the_token() -> None:
    ramp = torch.arange(9.0).reshape(1, 9, 1)
    expected = [2, 1.5, 1, 0.5, 0, -0.5, -1, -1.5, -2]  # e.g. the first: (0 + 1 + 3 + 4) / 4 − 0
    assert Pooling(3)(ramp).flatten().tolist() == pytest.approx(expected)
    theirs = TimmPooling()(tokens().transpose(1, 2).reshape(3, 8, GRID, GRID))
    torch.testing.assert_close(Pooling(GRID)(tokens()), theirs.flatten(2).transpose(1, 2))


def test_the_token_mlp_is_mixers() -> None:
    theirs = MixerBlock(8, seq_len=GRID**2, mlp_ratio=(2.0, 4.0)).double()
    ours = TokenMlp(GRID**2, hidden=16).double()
    ours.load_state_dict(theirs.mlp_tokens.state_dict())
    torch.testing.assert_close(ours(tokens()), theirs.mlp_tokens(tokens().transpose(1, 2)).transpose(1, 2))
