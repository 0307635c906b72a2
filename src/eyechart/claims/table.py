"""The claims eyechart tests: published sentences in our own words, from `claims.toml`.

>>> CLAIMS["C13"].margins[0].of
'uniformity, ViT minus CNN'
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from itertools import pairwise
from typing import Any, Literal

from eyechart.claims.gates import GATES
from eyechart.errors import EyechartError

Side = Literal["above", "below", "within", "outside"]


@dataclass(frozen=True)
class Margin:
    """Where the whole interval of a quantity must lie for the claim to hold."""

    of: str
    side: Side
    margin: float
    inclusive: bool = False

    def __str__(self) -> str:
        return f"{self.of}: {asked(self.side, self.margin, self.inclusive)}"


def asked(side: Side, margin: float, inclusive: bool = False) -> str:
    """
    >>> asked("above", 0.1, inclusive=True), asked("below", 0.5), asked("within", 0.02)
    ('at least 0.1', 'less than 0.5', 'within ±0.02')
    """
    words = {"above": ("more than", "at least"), "below": ("less than", "at most")}
    number = f"{margin:g}".replace("-", "−")
    return f"{words[side][inclusive]} {number}" if side in words else f"{side} ±{number}"


@dataclass(frozen=True)
class Claim:
    """A published sentence, what was reported for it, and how it is decided here."""

    id: str
    sources: tuple[str, ...]
    """Keys of SOURCES."""
    figure: str
    sentence: str
    korean: str
    quantity: tuple[str, ...]
    """Measures by their number in the specification: M1 … M25, or top-1 accuracy."""
    measures: tuple[str, ...]
    """The same by their name in this package."""
    reported: str
    evidence: str
    """Key of EVIDENCE: how we know what was reported."""
    need: Literal["A", "B", "C"]
    decide: str
    margins: tuple[Margin, ...]
    gates: tuple[str, ...]
    settled_by: str
    """ "exam" where a measure tests it; otherwise a key of STUDIES: a set of trainings that would settle it."""
    wants: str
    note: str = ""
    notes: tuple[str, ...] = ()
    """The reading notes that ask for it."""
    changed: str = ""
    """One sentence: what was changed in how it is decided after results had been seen."""
    null: str = ""
    """One sentence: the case, built so that the claim is false, that must not get "holds" (tests/claims/nulls)."""

    @property
    def citations(self) -> tuple[str, ...]:
        return tuple(SOURCES[source] for source in self.sources)

    @property
    def margin(self) -> str:
        return "; ".join(str(margin) for margin in self.margins)

    @property
    def proxy(self) -> bool:
        """Whether anything short of large-scale training is only a stand-in."""
        return self.need == "C"

    def as_json(self) -> dict[str, Any]:
        """Everything but what only this table understands: the keys of its sources, the numbers of measures."""
        known = {key: value for key, value in asdict(self).items() if key not in ("sources", "notes", "quantity")}
        return known | {
            "citations": list(self.citations),
            "need_words": NEEDS[self.need],
            "evidence_words": EVIDENCE[self.evidence],
            "margin": self.margin,
        }


def read_claim(entry: Mapping[str, Any], known: Mapping[str, Mapping[str, str]]) -> Claim:
    """One entry of the table, with every reference in it resolved."""
    name = entry.get("id", "an entry without id")
    missing = {field.name for field in fields(Claim)} - {"note", "notes", "changed", "null"} - entry.keys()
    if missing:
        raise EyechartError(f"claims.toml: {name} lacks {', '.join(sorted(missing))}.")
    references = [
        ("sources", entry["sources"], known["sources"]),
        ("evidence", [entry["evidence"]], known["evidence"]),
        ("needs", [entry["need"]], known["needs"]),
        ("gates", entry["gates"], GATES),
        ("studies", [entry["settled_by"]], {"exam": "", **known["studies"]}),
    ]
    for kind, used, there in references:
        for key in used:
            if key not in there:
                raise EyechartError(f"claims.toml: {name} names {key!r}, which is not among the {kind}.")
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return Claim(**{**entry, **lists, "margins": tuple(Margin(**margin) for margin in entry["margins"])})


def read_claims(table: Mapping[str, Any]) -> dict[str, Claim]:
    """The entries by name, in the order of their names: a claim added later may stand beside the ones it is like."""
    entries = sorted(table["claim"], key=lambda entry: str(entry["id"]))
    for one, next_one in pairwise(entries):
        if one["id"] == next_one["id"]:
            raise EyechartError(f"claims.toml: {one['id']} stands there twice; rename one of the two.")
    return {entry["id"]: read_claim(entry, table) for entry in entries}


_table = tomllib.loads(files(__package__).joinpath("claims.toml").read_text(encoding="utf-8"))

SOURCES: dict[str, str] = _table["sources"]
NEEDS: dict[str, str] = _table["needs"]
EVIDENCE: dict[str, str] = _table["evidence"]
STUDIES: dict[str, str] = _table["studies"]
CLAIMS: dict[str, Claim] = read_claims(_table)
