"""Real subjects on the bench, and experiments cut into shards, for the tests of measures with passes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.images import open_images, plan_batches
from eyechart.measure import Measure
from eyechart.scene import Batch, Scene
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.labels import match_classes
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.tally import Tally
from eyechart.tracing.bench import Bench


def bench_of(name: Any, images: int = 4, **options: Any) -> Bench:
    """A subject and the first pictures of the sample, with their labels where the classes match."""
    subject, source = load_subject(name, **options), open_images("sample")
    pictures = subject.prepare(source.pictures(range(images)))
    anatomy = anatomy_of(subject.name, subject.module, pictures[:2], call=subject.call)
    places, labels = np.arange(images), np.asarray(source.labels)[:images]
    match = match_classes(source.classes, subject).indices
    targets = None if match is None else torch.as_tensor(match)[torch.as_tensor(labels)]
    return Bench(subject, anatomy, Batch(0, 0, places, labels, 0, places % 16, True), pictures, targets)


def whole_and_in_shards(measure: Measure, subjects: Sequence[Subject], limit: int = 48) -> tuple[Tally, Tally, Scene]:
    """The tally of an exam in one shard, that of one shard a block merged backwards, and the scene of both."""
    source = open_images("sample")
    dry = [subject.prepare(source.pictures([0, 1])) for subject in subjects]
    anatomies = tuple(anatomy_of(s.name, s.module, two, call=s.call) for s, two in zip(subjects, dry, strict=True))
    maps = {subject.name: match_classes(source.classes, subject).indices for subject in subjects}
    known = {name: tuple(places) for name, places in maps.items() if places is not None}
    scene = Scene(anatomies, limit, limit // 16, 16, 16, source.classes, known)
    tallies = []
    for per_shard in (limit // 16, 1):
        plan = plan_batches(source, limit=limit, block=16, blocks_per_shard=per_shard)
        tapped = [TappedSubject(who, anatomy, [measure]) for who, anatomy in zip(subjects, anatomies, strict=True)]
        merged = measure.tally(scene)
        for shard in reversed(range(len(plan.shards))):
            merged = merged.merge(examine_shard(tapped, source, plan.batches(shard), [measure], scene)[measure.name])
        tallies.append(merged)
    return tallies[0], tallies[1], scene
