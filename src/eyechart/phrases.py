"""Pieces of the sentences that people read: how many there are, what they may have meant, what they can type."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable

WINDOWS = os.name == "nt"


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "image"), count(1200, "image")
    ('1 image', '1,200 images')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def span_of(low: str, high: str, decimals: int, width: float, unit: str = "") -> str:
    """The ends of an interval, never twice the same: those that print alike say how near they are.

    All of the interval lies within one unit of the last place of the number that stands before it.

    >>> span_of("0.29", "0.33", 2, 0.04), span_of("1.000", "1.000", 3, 2e-7), span_of("0.22", "0.22", 2, 0.0)
    ('0.29, 0.33', '± < 0.001', '± 0')
    """
    if low != high:
        return f"{low}, {high}"
    return f"± < {10.0**-decimals:.{decimals}f}{unit}" if width else "± 0"


def did_you_mean(word: str, candidates: Iterable[str], otherwise: str) -> str:
    """The end of a sentence about an unknown word: the names that read like it, or `otherwise` where none does.

    >>> did_you_mean("CAK", ["cka", "probes"], "there are cka, probes."), did_you_mean("x", ["cka"], "there is cka.")
    ('did you mean cka?', 'there is cka.')
    """
    near = difflib.get_close_matches(word.lower(), list(candidates), n=3)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def quoted(*words: str) -> str:
    """Words of a command as one can type them here: Windows knows no single quotes.

    >>> quoted("eyechart", "show", "runs/one")
    'eyechart show runs/one'
    """
    if WINDOWS:
        from subprocess import list2cmdline

        return list2cmdline(words)
    return shlex.join(words)


def as_keywords(words: str) -> str:
    """A sentence that names options of the command line, for those who gave keywords in Python.

    >>> as_keywords("--limit 256 is more than there are. Use --classes MAP.json, or choose another --out.")
    'limit=256 is more than there are. Use classes=, or choose another out=.'
    """
    return re.sub(r"(?<![\w/-])--([a-z]+)(?: ([0-9]+|[A-Z]+\.[A-Za-z]+))?", _keyword, words)


def _keyword(option: re.Match[str]) -> str:
    name, value = option.groups()
    return f"{'options' if name == 'set' else name}={value if value and value.isdigit() else ''}"


UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters but tab and new line (a file's name may move the cursor or retitle the window), signs that turn
the direction of writing, and halves of characters, which no terminal can print."""


def printable(text: object) -> str:
    r"""A text that only writes when it is printed, whatever a file or a subject is called.

    >>> printable("\x1b[2Jcat\x07.jpg")
    '\\x1b[2Jcat\\x07.jpg'
    """
    return UNPRINTABLE.sub(lambda sign: sign.group().encode("unicode_escape").decode(), str(text))


def one_line(text: str) -> str:
    r"""
    >>> one_line("a subject with\na name of two lines")
    'a subject with a name of two lines'
    """
    return " ".join(text.splitlines())


def printable_json(text: str) -> str:
    r"""The same for JSON, where a sign is written out as JSON does it.

    >>> printable_json('"\x9b2J"')
    '"\\u009b2J"'
    """
    return UNPRINTABLE.sub(lambda sign: f"\\u{ord(sign.group()):04x}", text)


def harmless_cell(text: str) -> str:
    """A cell of a table that no spreadsheet takes for a formula.

    >>> harmless_cell("=1+1"), harmless_cell("zoo:vit")
    ("'=1+1", 'zoo:vit')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
