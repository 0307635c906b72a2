"""Accuracies that one kept exam of the bundled models knows and another, on the same images, does not.

An exam of a few measures may leave recognition out, and its verdicts then say that the accuracy on these images is not
known. Where another kept exam of the same subject on images of the same source has gone through the gate, that counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eyechart.claims.gates import ACCURACY, MATCHED, Facts, GateResult
from eyechart.claims.verdict import Verdict
from eyechart.claims.wording import begin

UNKNOWN = re.compile(r"the accuracy of (\S+) on these images is not known")
KNOWN = re.compile(r"(\S+) classifies [\d.]+ % correctly(?: \[[\d., ]+\])?")
"""A clause of a gate that a subject has passed; one that it failed goes on."""


class Accuracies:
    def __init__(self, runs: Sequence[Mapping[str, Any]]) -> None:
        self.clauses: dict[tuple[str, str], str] = {}
        """By source of the images and subject, what its gate said."""
        self.values: dict[tuple[str, str], tuple[float, float, float]] = {}
        for run in sorted(runs, key=lambda run: -int(run["images"])):
            for row in run["quantities"]:
                if (row["measure"], row["quantity"]) == ("recognition", "accuracy"):
                    key = run["source"], row["subjects"]
                    self.values.setdefault(key, (row["value"], row["low"], row["high"]))
            gates = (gate for verdict in run["verdicts"] for gate in verdict["gates"] if gate["gate"] == ACCURACY.key)
            for clause in (clause for gate in gates for clause in gate["words"].split("; ")):
                if found := KNOWN.fullmatch(clause):
                    self.clauses.setdefault((run["source"], found[1]), clause)

    def told(self, verdict: Verdict, source: str) -> Verdict:
        """A kept verdict with the accuracies that are known by now. A failed gate is none of these: it was known."""
        for gate in verdict.gates:
            if gate.outcome == "unknown" and gate.gate in (ACCURACY.key, MATCHED.key):
                passed = self._accuracy if gate.gate == ACCURACY.key else self._matched
                verdict = _with_gate(verdict, gate, passed(gate, verdict.subjects, source))
        return verdict

    def _accuracy(self, gate: GateResult, subjects: Sequence[str], source: str) -> GateResult:
        """The gate, with what it does not know looked up: it passes where every subject has passed it."""
        clauses = gate.words.split("; ")
        unknown = [(clause, found[1]) for clause in clauses if (found := UNKNOWN.fullmatch(clause))]
        left = [clause for clause, subject in unknown if (source, subject) not in self.clauses]
        known = [self.clauses[source, subject] for _, subject in unknown if (source, subject) in self.clauses]
        known += [clause for clause in clauses if KNOWN.fullmatch(clause)]
        if left:
            return replace(gate, words="; ".join([*left, *known]))
        values = [value[0] for name in subjects if (value := self.values.get((source, name)))]
        gap = [f"a gap of {100 * (max(values) - min(values)):.1f} points"] if len(values) > 1 else []
        return replace(gate, outcome="passed", words="; ".join([*known, *gap]))

    def _matched(self, gate: GateResult, subjects: Sequence[str], source: str) -> GateResult:
        facts = [Facts(name, "other", True, accuracy=self.values.get((source, name))) for name in subjects]
        return MATCHED.check(facts)


def _with_gate(verdict: Verdict, before: GateResult, now: GateResult) -> Verdict:
    """The verdict with another result of one of its gates, which its words speak of only where it did not pass."""
    gates = tuple(now if gate is before else gate for gate in verdict.gates)
    if now.outcome == "failed":
        words = f"Gate failed, so nothing is decided: {now.title} ({now.gate}): {now.words}."
        return replace(verdict, gates=gates, verdict="undecided", reason=words, remarks=words, stands=None)
    said = f"{begin(before.words, verdict.subjects)}."
    instead = f"{begin(now.words, verdict.subjects)}." if now.outcome == "unknown" else ""
    reason, remarks = (" ".join(text.replace(said, instead).split()) for text in (verdict.reason, verdict.remarks))
    return replace(verdict, gates=gates, reason=reason, remarks=remarks)
