"""One case of the table: a claim, and subjects or findings built so that it is false, or true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import xarray

from eyechart.subjects.subject import Subject


@dataclass(frozen=True)
class Case:
    claim: str
    what: str
    """What was built: "a ViT whose attention output is zeroed sees only its own patch"."""
    never: Literal["holds", "fails"]
    """ "holds": a null, built so that the claim is false. "fails": a true case."""
    subjects: Callable[[], Sequence[Subject | str]] | None = None
    """Real subjects, examined on bundled images. Cases with the same factory, limit, images and options share one
    exam, so name the factory: two lambdas are two factories."""
    measures: tuple[str, ...] = ()
    """Which measures decide it; none named: those that test the claim."""
    findings: Callable[[int], Mapping[str, xarray.Dataset]] | None = None
    """Or made-up findings for a seed, where a real run is dear or chance itself is the case (see made_up.py)."""
    draws: int = 1
    """With findings: how many seeds. `never` may come in 5 % of them, and a little more by chance."""
    reading: str | None = None
    """Only this reading; None: every reading of the claim."""
    limit: int = 256
    images: str = "sample"
    options: Mapping[str, object] = field(default_factory=dict)
    """Of measures, as `exam` takes them: {"hessian.images": 128}."""
