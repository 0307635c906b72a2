"""BibTeX of the papers that measures come from, and of eyechart itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import eyechart

if TYPE_CHECKING:
    from eyechart.measure import Measure

ENTRY = re.compile(r"^% (?P<name>[^\n]+)\n(?P<entry>@\w+\{(?P<key>\w+),\n.*?^\}$)", re.MULTILINE | re.DOTALL)

OWN = f"""@software{{eyechart,
  title = {{eyechart: An Eye Exam for Vision Models}},
  author = {{{{The eyechart authors}}}},
  version = {{{eyechart.__version__}}},
}}"""


@cache
def papers() -> dict[str, str]:
    """The entry of each paper, by what measures call it (`Source.paper`)."""
    text = files("eyechart.report").joinpath("papers.bib").read_text(encoding="utf-8")
    return {match["name"]: match["entry"] for match in ENTRY.finditer(text)}


def key_of(paper: str) -> str | None:
    """What \\cite takes; None: eyechart itself, or a paper of somebody's own measure.

    >>> key_of("Raghu et al. 2021")
    'raghu2021vision'
    """
    entry = papers().get(paper)
    return None if entry is None else entry.partition("{")[2].partition(",")[0]


def bibliography(measures: Iterable[Measure]) -> str:
    """An entry for each paper once, above it the measures that come from it; and one for eyechart."""
    asked = list(measures)
    users: dict[str, list[str]] = {}
    for measure in asked:
        for source in measure.sources:
            users.setdefault(source.paper, []).append(f"{measure.name} ({source.figures})")
    made = [
        f"% {'; '.join(names)}\n{papers()[paper]}" if paper in papers() else f"% {paper}: {'; '.join(names)}"
        for paper, names in users.items()
        if paper != "eyechart"
    ]
    return "\n\n".join([OWN, *made])
