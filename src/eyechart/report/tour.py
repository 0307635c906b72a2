"""The paper tour: the papers' figures in their order, each with what was reported, what is measured here, and why they
may differ. The steps are in tour.toml; numbers come from the claim table and the verdicts of the run."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from eyechart.claims.table import CLAIMS, EVIDENCE, STUDIES
from eyechart.report.verdict_rows import paper_names

NOTES = {f"N{number}": f"Reading note {number + 1}" for number in range(5)}


@cache
def steps() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = tomllib.loads(
        files("eyechart.report").joinpath("tour.toml").read_text(encoding="utf-8")
    )["step"]
    return listed


def tour(verdict_rows: Sequence[Mapping[str, Any]], measures: Collection[str]) -> list[dict[str, Any]]:
    """Each step with its claims: what was reported and how that is known, and each verdict on it here."""
    made = []
    for number, step in enumerate(steps(), start=1):
        claims = [told(name, verdict_rows) for name in step["claims"]]
        made.append(
            {
                "id": f"tour-{number}",
                "paper": paper_names()[step["paper"]],
                "figure": step["figure"],
                "shows": step["shows"],
                "differs": step["differs"],
                "reading": step.get("reading", ""),
                "measure": step.get("measure") if step.get("measure") in measures else None,
                "notes": sorted({note for name in step["claims"] for note in CLAIMS[name].notes}),
                "claims": claims,
            }
        )
    return made


def told(name: str, verdict_rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    claim = CLAIMS[name]
    rows = [row for row in verdict_rows if row["claim"] == name]
    tested = [row for row in rows if row["kind"].word != "not tested"]
    study = "" if claim.settled_by == "exam" else f"Settled by trainings made for it: {STUDIES[claim.settled_by]}."
    return {
        "claim": name,
        "sentence": claim.sentence,
        "reported": claim.reported,
        "evidence": EVIDENCE[claim.evidence],
        "note": claim.note,
        "rows": [
            {**row, "reading": row["sentence"].removeprefix(claim.sentence).strip(), "parts": numbers(row["parts"])}
            for row in tested
        ],
        "untested": next((row["reason"] for row in rows if row not in tested), study or "Not asked in this exam."),
    }


def numbers(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each number once: a claim with a bound on either side asks for one twice, and the tour names no bounds."""
    return list({(part["words"], part["effect"], part["span"]): part for part in parts}.values())
