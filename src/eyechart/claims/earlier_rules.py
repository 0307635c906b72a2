"""The rules that `earlier_rules.toml` keeps: how claims were decided, as the specification writes it, before a change.

>>> [part.asks for part in RULES["C15"][0].test.parts]
['at least 0.1']
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from eyechart.claims.gates import GATES
from eyechart.claims.parts import ClaimTest, Part
from eyechart.claims.table import CLAIMS


@dataclass(frozen=True)
class EarlierRule:
    """How a claim was decided before. Its verdicts are shown where they differ, and count nowhere."""

    test: ClaimTest
    readings: tuple[str, ...] = ()
    """Of today, with which it is compared; none: all of them."""
    study: str = ""
    """The study whose contrasts its parts are, where they are not quantities of an exam."""

    def replaced_by(self, reading: str) -> bool:
        return not self.readings or reading in self.readings


def read_rule(entry: Mapping[str, Any]) -> EarlierRule:
    claim = CLAIMS[entry["claim"]]
    known = {part.quantity: part.told for test in claim.tests for part in test.parts}
    study = entry.get("study", "")
    parts = tuple(
        Part(**{"words": part["quantity"] if study else known.get(part["quantity"], ""), **part})
        for part in entry["parts"]
    )
    gates = tuple(GATES[key] for key in entry.get("gates", claim.gates))
    test = ClaimTest(claim.id, parts, gates, reading=entry.get("reading", ""))
    return EarlierRule(test, tuple(entry.get("readings", [entry["reading"]] if "reading" in entry else [])), study)


def _read() -> dict[str, tuple[EarlierRule, ...]]:
    text = files(__package__).joinpath("earlier_rules.toml").read_text(encoding="utf-8")
    rules = [read_rule(entry) for entry in tomllib.loads(text)["test"]]
    claims = dict.fromkeys(rule.test.claim for rule in rules)
    return {claim: tuple(rule for rule in rules if rule.test.claim == claim) for claim in claims}


RULES = _read()
"""By claim."""
