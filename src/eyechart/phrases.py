"""Pieces of the sentences that people read: how many there are, and what they may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "image"), count(1200, "image")
    ('1 image', '1,200 images')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def did_you_mean(word: str, candidates: Iterable[str], otherwise: str) -> str:
    """The end of a sentence about an unknown word: the names that read like it, or `otherwise` where none does.

    >>> did_you_mean("CAK", ["cka", "probes"], "there are cka, probes."), did_you_mean("x", ["cka"], "there is cka.")
    ('did you mean cka?', 'there is cka.')
    """
    near = difflib.get_close_matches(word.lower(), list(candidates), n=3)
    return f"did you mean {' or '.join(near)}?" if near else otherwise
