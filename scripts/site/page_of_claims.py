"""The claim table: every published sentence with how it is decided."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from site_text import filled

from eyechart.claims.table import CLAIMS, EVIDENCE, NEEDS, SOURCES, STUDIES
from eyechart.studies.study import studies_of_claims


def pages(drawn: Mapping[str, Path]) -> dict[str, str]:
    decided_by_exams = sum(bool(claim.tests) for claim in CLAIMS.values())
    tables = {"sources": SOURCES, "needs": NEEDS, "evidence": EVIDENCE, "trainings": STUDIES}
    tables["studies"] = {claim: ", ".join(names) for claim, names in studies_of_claims().items()}
    return {"claims.md": filled("claims.md", claims=CLAIMS.values(), by_exams=decided_by_exams, **tables)}
