"""A measure run on real subjects and a few bundled images, without an exam around it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import xarray

from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measure import Measure
from eyechart.scene import Scene
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.tally import Tally


def staged(*given: str | Subject, images: int = 64, block: int = 16) -> tuple[list[Subject], Scene]:
    subjects = [load_subject(each) for each in given]
    pictures = open_images("sample").pictures([0, 1])
    anatomies = [anatomy_of(who.name, who.module, who.prepare(pictures), call=who.call) for who in subjects]
    trained = {who.name: who.trained for who in subjects if who.trained is not None}
    cards = {who.name: who.card for who in subjects}
    return subjects, Scene(tuple(anatomies), images, images // block, block, 16, None, trained=trained, cards=cards)


def tally_of(measure: Measure, subjects: Sequence[Subject], scene: Scene, per_shard: int = 4) -> Tally:
    """Merged from shards of so many blocks, in an order of its own."""
    source = open_images("sample")
    plan = plan_batches(source, limit=scene.images, block=scene.block, blocks_per_shard=per_shard)
    tapped = [TappedSubject(who, scene.anatomy(who.name), [measure]) for who in subjects]
    total = measure.tally(scene)
    for shard in reversed(range(len(plan.shards))):
        total = total.merge(examine_shard(tapped, source, plan.batches(shard), [measure], scene)[measure.name])
    return total


def finding_of(measure: Measure, *given: str | Subject, images: int = 64, block: int = 16) -> xarray.Dataset:
    subjects, scene = staged(*given, images=images, block=block)
    return with_intervals(measure, tally_of(measure, subjects, scene), scene)


def quantities(finding: xarray.Dataset) -> dict[tuple[str, str], tuple[float, float, float]]:
    """(quantity, subjects) → value, low, high."""
    if "quantity" not in finding.coords:
        return {}
    rows = zip(finding["quantity"].values, finding["quantity_subjects"].values, strict=True)
    ends = (finding[f"quantity_{end}"].values for end in ("value", "low", "high"))
    return {(str(q), str(s)): values for (q, s), values in zip(rows, zip(*ends, strict=True), strict=True)}


def module_subject(module: torch.nn.Module, name: str) -> Subject:
    """A module fed as the bundled ViT is."""
    return load_subject(module, label=name, transform=load_subject("zoo:vit").preprocessing)
