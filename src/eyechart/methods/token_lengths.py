"""Tokens as they are, or all of length one.

A Gram matrix weighs a token by its squared length, so a few long ones (the registers of Darcet et al. 2023) can
dominate the likeness of two layers: SPEC T15. With equal lengths, every token of every image counts the same.
"""

from __future__ import annotations

from typing import Literal

import torch

from eyechart.sites import Site
from eyechart.tracing.views import Look

Tokens = Literal["plain", "normalised"]
TOKEN_WORDS: dict[Tokens, str] = {"plain": "", "normalised": "with all tokens of length one"}
"""How a claim was read: the papers take tokens as they are."""


def output_of(look: Look, tokens: Tokens) -> torch.Tensor:
    """What a site holds, in its own axes; where asked for, every token divided by its length. A zero token stays zero.

    A token's vector runs over channels and, where they are apart, heads; a CNN's token is one location.
    """
    if tokens == "plain":
        return look.output
    output = look.output.to(torch.promote_types(look.output.dtype, torch.float32))
    vector = tuple(axis for axis, letter in enumerate(look.site.layout.axes) if letter in "HC")
    length: torch.Tensor = torch.linalg.vector_norm(output, dim=vector, keepdim=True)
    return output / length.clamp_min(torch.finfo(output.dtype).tiny)


def has_tokens(site: Site) -> bool:
    return "C" in site.layout.axes
