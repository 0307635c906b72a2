"""Which subjects belong together: trainings of one build, a subject before and after fine-tuning, sizes of one kind.

Recognised by their anatomies (same blocks, grids and heads are one build) and by their cards, where there are any.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from eyechart.quantity import subjects_in
from eyechart.reading_estimates import by_subject, spec_of
from eyechart.scene import Scene
from eyechart.sites import Anatomy
from eyechart.zoo import SNAPSHOTS

if TYPE_CHECKING:
    import xarray

Relation = Literal["fine-tuned", "data", "head", "size", "seed", "untrained", "snapshot", "other"]

WORDS: dict[Relation, str] = {
    "fine-tuned": "before and after fine-tuning",
    "data": "less and more data",
    "head": "GAP and class token",
    "size": "two sizes",
    "seed": "two seeds: the ceiling",
    "untrained": "untrained: the floor",
    "snapshot": "earlier and later in training",
    "other": "two trainings",
}


@dataclass(frozen=True)
class Pair:
    """Two subjects; `one` is the earlier, smaller, GAP or trained one, or the one with less data."""

    one: str
    other: str
    relation: Relation

    @property
    def words(self) -> str:
        return WORDS[self.relation]


def pairs_of(scene: Scene) -> list[Pair]:
    """Every two subjects that are twins, in the order of the exam."""
    pairs = [pair_of(scene, one, other) for one, other in combinations(scene.subjects, 2)]
    return [pair for pair in pairs if pair is not None]


def pair_of(scene: Scene, one: str, other: str) -> Pair | None:
    anatomies = scene.anatomy(one), scene.anatomy(other)
    if anatomies[0].family != anatomies[1].family or not all(anatomy.pick("block") for anatomy in anatomies):
        return None
    if build_of(anatomies[0]) != build_of(anatomies[1]):
        return _two_sizes(scene, *anatomies)
    trained = scene.trained.get(one, True), scene.trained.get(other, True)
    if not all(trained):
        if anatomies[0].pooling != anatomies[1].pooling:
            return None
        return Pair(one, other, "untrained") if trained[0] else Pair(other, one, "untrained")
    if {anatomy.pooling for anatomy in anatomies} == {"cls", "gap"}:
        return Pair(one, other, "head") if anatomies[0].pooling == "gap" else Pair(other, one, "head")
    return _two_trainings(scene, one, other)


def _two_sizes(scene: Scene, one: Anatomy, other: Anatomy) -> Pair | None:
    """Two sizes of one kind: ViTs that read out alike; of other families, those that share the first word of a name."""
    alike = one.family == "vit" or first_word(scene.spec(one.subject)) == first_word(scene.spec(other.subject))
    kinds = [{table.kind for table in anatomy.positions} for anatomy in (one, other)]
    if not alike or one.pooling != other.pooling or one.cnn_stem != other.cnn_stem or kinds[0] != kinds[1]:
        return None
    if not all(scene.trained.get(anatomy.subject, True) for anatomy in (one, other)):
        return None
    if widths_of(one) == widths_of(other):  # other grids or heads make no other size: zoo:vit and zoo:vit:48px
        pair = _two_trainings(scene, one.subject, other.subject)
        return pair if pair.relation == "fine-tuned" else None
    small, large = sorted((one, other), key=lambda anatomy: (len(anatomy.pick("block")), anatomy.flops))
    return Pair(small.subject, large.subject, "size")


def _two_trainings(scene: Scene, one: str, other: str) -> Pair:
    cards: list[Any] = [scene.cards.get(subject, {}) for subject in (one, other)]
    for before, after, card in ((one, other, cards[1]), (other, one, cards[0])):
        if card.get("from") is not None and str(card["from"]) == scene.spec(before):
            return Pair(before, after, "fine-tuned")
    (model, when), (second, then) = (snapshot(scene.spec(name)) for name in (one, other))
    if model == second and when != then:
        return Pair(one, other, "snapshot") if when < then else Pair(other, one, "snapshot")
    data = [(card.get("data"), card.get("train_images")) for card in cards]
    if None not in (*data[0], *data[1]) and data[0][0] == data[1][0] and data[0] != data[1]:
        return Pair(one, other, "data") if data[0][1] < data[1][1] else Pair(other, one, "data")
    same = all(cards[0].get(key) == cards[1].get(key) is not None for key in ("data", "recipe", "epochs"))
    seeds = [card.get("seed") for card in cards]
    return Pair(one, other, "seed" if same and None not in seeds and seeds[0] != seeds[1] else "other")


def snapshot(spec: str) -> tuple[str, int]:
    """The run that weights come from, and how late in it they were taken; random ones are as early as can be.

    >>> snapshot("zoo:vit@warmup"), snapshot("zoo:vit"), snapshot("zoo:vit@runs/vit.quarter.safetensors")
    (('zoo:vit', 1), ('zoo:vit', 4), ('zoo:vit@runs/vit', 2))
    >>> snapshot("timm:resnet18@random")
    ('timm:resnet18', 0)
    """
    model, _, weights = spec.partition("@")
    if weights == "random":
        return model, 0
    for place, suffix in enumerate(SNAPSHOTS):
        if weights == suffix.removeprefix("."):
            return model, place
        if PurePath(weights).stem.endswith(suffix):
            return f"{model}@{PurePath(weights).with_suffix('').with_suffix('')}", place
    run = f"@{PurePath(weights).with_suffix('')}" if weights else ""
    return model + run, len(SNAPSHOTS)


def untrained_twin(finding: xarray.Dataset, subject: str) -> str | None:
    """NAME@random, if it was examined beside NAME or NAME@snapshot: the floor of what training does.

    Modules of a user are none: their class alone does not say that two are built alike.
    """
    specs = {spec_of(finding, other): other for other in subjects_in(finding)}
    specs = {spec: other for spec, other in specs.items() if not spec.startswith("module:")}
    twin = specs.get(f"{spec_of(finding, subject).partition('@')[0]}@random")
    return None if twin == subject else twin


def class_token_vits(estimate: xarray.Dataset) -> list[str]:
    """ViTs whose classifier reads the class token."""
    reads = by_subject(estimate, "classifier_reads")
    return [subject for subject in subjects_in(estimate, "vit") if reads[subject] == "cls"]


def gap_twins(estimate: xarray.Dataset) -> list[tuple[str, str]]:
    """Each of these with every ViT of its build whose classifier reads the mean of the tokens."""
    build, reads = by_subject(estimate, "build"), by_subject(estimate, "classifier_reads")
    return [
        (vit, twin)
        for vit in class_token_vits(estimate)
        for twin in subjects_in(estimate, "vit")
        if reads[twin] == "gap" and build[twin] == build[vit]
    ]


def build_of(anatomy: Anatomy) -> tuple[object, ...]:
    """Blocks with their channels and grids, and the heads: what twins share."""
    blocks = tuple((site.channels, site.grid) for site in anatomy.pick("block"))
    return blocks, tuple(site.heads for site in anatomy.pick("attention"))


def widths_of(anatomy: Anatomy) -> tuple[int, ...]:
    """Channels of each block: the size of a subject, whatever it is shown."""
    return tuple(site.channels for site in anatomy.pick("block"))


def first_word(name: str) -> str:
    """
    >>> first_word("timm:resnet50.a1_in1k"), first_word("zoo:vit-gap@random")
    ('resnet', 'vit')
    """
    word = name.rpartition(":")[2]
    return word[: next((at for at, letter in enumerate(word) if not letter.isalpha()), len(word))].lower()
