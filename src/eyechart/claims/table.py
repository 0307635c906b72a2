"""The claims eyechart tests: published sentences in our own words, from `claims.toml`, with how each is decided.

>>> CLAIMS["C13"].tests[0].parts[0].asks
'at least 0.1'
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from itertools import pairwise
from typing import Any, Literal

from eyechart.claims.gates import GATES
from eyechart.claims.parts import ClaimTest, Part, Side, asked
from eyechart.errors import EyechartError, UsageError


@dataclass(frozen=True)
class Margin:
    """Where the whole interval of a quantity must lie for the claim to hold."""

    of: str
    side: Side
    margin: float
    inclusive: bool = False

    def __str__(self) -> str:
        return f"{self.of}: {asked(self.side, self.margin, self.inclusive)}"


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
    """The same by their name in this package; those that its tests read, where an exam settles it."""
    reported: str
    evidence: str
    """Key of EVIDENCE: how we know what was reported."""
    need: Literal["A", "B", "C"]
    decide: str
    margins: tuple[Margin, ...]
    """What must be true of which number; of a claim that an exam settles, the parts of its tests."""
    tests: tuple[ClaimTest, ...]
    """How an exam decides it; none where only a study does."""
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
        left_out = ("sources", "notes", "quantity", "tests", "margins")
        fields = {name: value for name, value in vars(self).items() if name not in left_out}
        return fields | {
            "citations": list(self.citations),
            "need_words": NEEDS[self.need],
            "evidence_words": EVIDENCE[self.evidence],
            "margin": self.margin,
            "margins": [asdict(margin) for margin in self.margins],
            "readings": [test.as_json() for test in self.tests],
        }


def read_claim(entry: Mapping[str, Any], tables: Mapping[str, Mapping[str, str]]) -> Claim:
    """One entry of the table, with every reference in it resolved."""
    name = entry.get("id", "an entry without id")
    by_exam = entry.get("settled_by") == "exam"
    optional = {"note", "notes", "changed", "null", "tests"} | ({"margins", "measures"} if by_exam else set())
    missing = {field.name for field in fields(Claim)} - optional - entry.keys()
    missing |= {"test"} if by_exam and not entry.get("test") else set()
    if missing:
        raise EyechartError(f"claims.toml: {name} lacks {', '.join(sorted(missing))}.")
    references = [
        ("sources", entry["sources"], tables["sources"]),
        ("evidence", [entry["evidence"]], tables["evidence"]),
        ("needs", [entry["need"]], tables["needs"]),
        ("gates", entry["gates"], GATES),
        ("studies", [entry["settled_by"]], {"exam": "", **tables["studies"]}),
    ]
    for kind, used, entries in references:
        for key in used:
            if key not in entries:
                raise EyechartError(f"claims.toml: {name} names {key!r}, which is not among the {kind}.")
    lists: dict[str, Any] = {
        key: tuple(value) for key, value in entry.items() if isinstance(value, list) and key != "test"
    }
    tests = tuple(read_test(test, entry) for test in entry.get("test", ()))
    margins = tuple(Margin(**margin) for margin in entry.get("margins", ())) or margins_of(tests)
    measures = lists.get("measures") or tuple(dict.fromkeys(name for test in tests for name in test.measures))
    plain: dict[str, Any] = {key: value for key, value in entry.items() if key != "test"}
    return Claim(**{**plain, **lists, "margins": margins, "tests": tests, "measures": measures})


def read_test(entry: Mapping[str, Any], claim: Mapping[str, Any]) -> ClaimTest:
    """One reading of a claim. Its gates are the claim's, unless it names its own."""
    try:
        parts = tuple(Part(**part) for part in entry["parts"])
        gates = tuple(GATES[key] for key in entry.get("gates", claim["gates"]))
        rest = {key: value for key, value in entry.items() if key not in ("parts", "gates")}
        return ClaimTest(claim=claim["id"], parts=parts, gates=gates, **rest)
    except (KeyError, TypeError) as error:
        raise EyechartError(f"claims.toml: a test of {claim['id']} cannot be read ({error}).") from error


def margins_of(tests: Sequence[ClaimTest]) -> tuple[Margin, ...]:
    """What tests ask for, each thing once; the subjects of a test are called A and B here."""
    parts = dict.fromkeys(part for test in tests for part in test.parts)
    return tuple(Margin(part.told.format("A", "B"), part.side, part.margin, part.inclusive) for part in parts)


def read_claims(table: Mapping[str, Any]) -> dict[str, Claim]:
    """The entries by name, in the order of their names: a claim added later may stand beside the ones it is like."""
    entries = sorted(table["claim"], key=lambda entry: str(entry["id"]))
    for one, next_one in pairwise(entries):
        if one["id"] == next_one["id"]:
            raise EyechartError(f"claims.toml: {one['id']} is defined twice; rename one of the two.")
    return {entry["id"]: read_claim(entry, table) for entry in entries}


_table = tomllib.loads(files(__package__).joinpath("claims.toml").read_text(encoding="utf-8"))

SOURCES: dict[str, str] = _table["sources"]
NEEDS: dict[str, str] = _table["needs"]
EVIDENCE: dict[str, str] = _table["evidence"]
STUDIES: dict[str, str] = _table["studies"]
CLAIMS: dict[str, Claim] = read_claims(_table)


def add_claims(text: str, where: str) -> list[str]:
    """Claims of a user's own, in the form of claims.toml, known in this process from now on; their names.

    Of each only `id`, `sentence` and its tests are asked for. One of the names C01 … is not taken over.
    """
    if not text:
        return []
    try:
        entries = tomllib.loads(text)["claim"]
        own = {entry["id"]: entry for entry in entries}
        claims = {name: read_claim({**OWN_CLAIM, **entry}, _table) for name, entry in own.items()}
    except EyechartError as error:
        raise UsageError(f"{where}: {str(error).removeprefix('claims.toml: ')}") from error
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{where} cannot be read as claims ({type(error).__name__}: {error}).") from error
    for name in claims:
        if name in BUNDLED:
            raise UsageError(f"{where}: {name} is the name of a published claim; choose another.")
    CLAIMS.update(claims)
    return list(claims)


BUNDLED = frozenset(CLAIMS)
OWN_CLAIM: dict[str, Any] = {
    "sources": ["own"],
    "figure": "a claim of your own",
    "korean": "",
    "quantity": [],
    "reported": "",
    "evidence": "said",
    "need": "A",
    "decide": "the parts of its tests",
    "gates": ["g1-trained"],
    "settled_by": "exam",
    "wants": "subjects that have its quantities",
}
"""What a claim of a user's own need not say."""
