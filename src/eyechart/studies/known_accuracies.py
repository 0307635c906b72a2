"""Accuracies that one kept exam of the bundled models knows and another, on the same images, does not.

An exam of a few measures may leave recognition out, and its verdicts then say that the accuracy on these images is not
known. Where another kept exam of that subject on images of the same source has measured it, the gate is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eyechart.claims.gates import ACCURACY, MATCHED, Facts, GateResult
from eyechart.claims.verdict import Verdict
from eyechart.claims.wording import begin
from eyechart.sites import Architecture


class Accuracies:
    def __init__(self, runs: Sequence[Mapping[str, Any]]) -> None:
        self.values: dict[tuple[str, str], tuple[float, float, float]] = {}
        """By source of the images and subject; of two, that on more images."""
        for run in sorted(runs, key=lambda run: -int(run["images"])):
            for row in run["quantities"]:
                if (row["measure"], row["quantity"]) == ("recognition", "accuracy"):
                    key = run["source"], row["subjects"]
                    self.values.setdefault(key, (row["value"], row["low"], row["high"]))

    def told(self, verdict: Verdict, source: str) -> Verdict:
        """A kept verdict with the accuracies that are known by now. A failed gate is none of these: it was known."""
        for gate in verdict.gates:
            if gate.outcome == "unknown" and gate.gate in (ACCURACY.key, MATCHED.key):
                passed = self._accuracy if gate.gate == ACCURACY.key else self._matched
                verdict = _with_gate(verdict, gate, passed(gate, verdict.subjects, source))
        return verdict

    def _accuracy(self, gate: GateResult, subjects: Sequence[str], source: str) -> GateResult:
        """What the gate says now. Whether a subject is a CNN is not kept: each must pass as one, the harder way."""
        found = ACCURACY.check([self._facts(name, "cnn", source) for name in subjects])
        return gate if found.outcome == "failed" else found

    def _facts(self, name: str, architecture: Architecture, source: str) -> Facts:
        return Facts(name, architecture, True, images=source, accuracy=self.values.get((source, name)))

    def _matched(self, gate: GateResult, subjects: Sequence[str], source: str) -> GateResult:
        return MATCHED.check([self._facts(name, "other", source) for name in subjects])


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
