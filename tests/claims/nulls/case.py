"""One row of the table of cases: a subject or finding built so that a claim is false (a null) or true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import xarray

    from eyechart.subjects.subject import Subject


@dataclass(frozen=True)
class Case:
    claim: str
    what: str
    never: Literal["holds", "fails"]
    subjects: Callable[[], Sequence[Subject | str]] | None = None
    measures: tuple[str, ...] = ()
    findings: Callable[[int], Mapping[str, xarray.Dataset]] | None = None
    draws: int = 1
    reading: str | None = None
    limit: int = 256
    images: str = "sample"
    options: Mapping[str, object] = field(default_factory=dict)
