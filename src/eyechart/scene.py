"""Who is examined on what: the images of a batch, and the scene of an exam. All that a measure may know."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eyechart.sites import Anatomy, Site


@dataclass(frozen=True)
class Batch:
    """The images of one statistical block, as the plan cut them. A short last block is not `whole`."""

    index: int
    start: int
    """Place of its first image in the order of the exam."""
    images: np.ndarray
    """Positions in the source, (image,)."""
    labels: np.ndarray | None
    """Class of each image in the source's own numbering; -1 where unknown."""
    fold: int
    """The fold of the block as a whole, for statistics that need whole blocks (CKA)."""
    image_folds: np.ndarray
    """The fold of each image, for sums over images."""
    whole: bool


@dataclass(frozen=True)
class Scene:
    """Who is examined on what: all that a measure may know. Written to plan.json, so findings need no model."""

    anatomies: tuple[Anatomy, ...]
    images: int
    whole_blocks: int
    block: int
    """Images in a block: the statistical batch of CKA."""
    folds: int
    classes: tuple[str, ...] | None
    """Class names of the images, if they have labels."""
    label_maps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For each subject whose classes match: image class -> index of its logit."""
    trained: Mapping[str, bool | None] = field(default_factory=dict)
    """Whether a subject's weights are trained, where known."""
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How a subject was made, where known: recipe, data, seed, what it was fine-tuned from."""
    specs: Mapping[str, str] = field(default_factory=dict)
    """The whole spec of each subject that goes by a shorter label: its architecture, moment of training and file."""
    accelerated: bool = False
    """Whether subjects are on a GPU: an effort then counts large ones for less (`measure.operations`)."""

    coordinates: dict[Any, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)
    """Of axes of sites, once they were made: an interval takes hundreds of estimates, which have the same axes."""

    @property
    def images_in_blocks(self) -> int:
        """What is left over is in no block."""
        return self.whole_blocks * self.block

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(anatomy.subject for anatomy in self.anatomies)

    @property
    def scored_subjects(self) -> list[str]:
        """Those whose classes match the images' and that have a classifier: what they answer is right or wrong."""
        return [
            subject for subject in self.subjects if subject in self.label_maps and self.anatomy(subject).pick("head")
        ]

    def anatomy(self, subject: str) -> Anatomy:
        return next(anatomy for anatomy in self.anatomies if anatomy.subject == subject)

    def spec(self, subject: str) -> str:
        return self.specs.get(subject, subject)

    def targets(self, subject: str, batch: Batch) -> np.ndarray | None:
        """The logit of each image's class in a subject, -1 unknown; None where its classes do not match the images'."""
        logits = self.label_maps.get(subject)
        if logits is None or batch.labels is None:
            return None
        return np.array([logits[label] if label >= 0 else -1 for label in batch.labels], np.int64)

    def sites(self, choose: Callable[[Anatomy], Sequence[Site]]) -> list[tuple[str, Site]]:
        """The flat `site` axis of a tally or finding: (subject, site) over all subjects, in order."""
        return [(anatomy.subject, site) for anatomy in self.anatomies for site in choose(anatomy)]

    def subjects_with(self, choose: Callable[[Anatomy], Sequence[Site]]) -> list[str]:
        """The subjects that have any of these sites, in the order of the exam."""
        return list(dict.fromkeys(subject for subject, _ in self.sites(choose)))

    def rows(self, choose: Callable[[Anatomy], Sized]) -> dict[str, slice]:
        """Which rows of such an axis are each subject's."""
        ends = [0, *itertools.accumulate(len(choose(anatomy)) for anatomy in self.anatomies)]
        return {subject: slice(*ends) for subject, ends in zip(self.subjects, itertools.pairwise(ends), strict=True)}
