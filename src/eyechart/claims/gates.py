"""What must be true of the subjects before a verdict counts: the gates of the protocol, g1 to g4.

A failed gate makes a verdict undecided, with the gate named and the effect still shown. What is not known is said and
fails nothing; the regime gate fails nothing either, it turns a verdict into a proxy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal

from eyechart.phrases import count, span_of
from eyechart.sites import Anatomy, Architecture

Outcome = Literal["passed", "failed", "unknown", "proxy"]


@dataclass(frozen=True)
class Facts:
    """What is known of one subject, besides its findings."""

    subject: str
    architecture: Architecture
    trained: bool | None
    """None: nobody said; then only answers clearly better than chance show that it is."""
    images: str = ""
    """Name of the image set; only CIFAR-10 (also as the bundled `sample`) and CIFAR-100 have accuracy thresholds."""
    accuracy: tuple[float, float, float] | None = None
    """Share of these images named right: value, low, high; None where labels do not allow it."""
    recipe: str | None = None
    """Name of the training recipe."""
    settings: Mapping[str, Any] | None = None
    """All of that recipe, where a card tells it: with a changed learning rate it still has its name."""
    training_images: int | None = None
    grid: tuple[int, int] | None = None
    """The finest grid of its blocks: the token grid of a ViT."""
    last_grid: tuple[int, int] | None = None
    """The grid of its last block."""
    heads: tuple[int, ...] = ()
    """Heads of each attention site, in execution order."""
    classes: int | None = None
    """How many classes these images have."""
    pooling: str | None = None
    """What its classifier reads: "cls", "gap" or "other"."""

    @classmethod
    def of(cls, anatomy: Anatomy, *, trained: bool | None, **facts: Any) -> Facts:
        """The facts an anatomy tells, and those that only the run knows."""
        grids = [site.grid for site in anatomy.sites if site.role in ("block", "attention") and site.grid is not None]
        return cls(
            subject=anatomy.subject,
            architecture=anatomy.architecture,
            trained=trained,
            grid=max(grids, key=lambda grid: grid[0] * grid[1], default=None),
            last_grid=next((site.grid for site in reversed(anatomy.pick("block"))), None),
            heads=tuple(site.heads for site in anatomy.pick("attention") if site.heads is not None),
            pooling=anatomy.pooling,
            **facts,
        )


@dataclass(frozen=True)
class GateResult:
    gate: str
    title: str
    outcome: Outcome
    words: str
    """A clause without a full stop: "zoo:resnet names 62.0 % right, less than the 88 % asked of CNNs on CIFAR-10"."""


class Gate(ABC):
    key: str
    title: ClassVar[str]

    @abstractmethod
    def check(self, facts: Sequence[Facts]) -> GateResult:
        """Passed, failed, unknown or proxy, with the words that go into the verdict."""

    def result(self, outcome: Outcome, *words: str) -> GateResult:
        return GateResult(self.key, self.title, outcome, "; ".join(words))


@dataclass(frozen=True)
class Trained(Gate):
    """g1 without a threshold, for claims about early training or little data: more than guessing, where it is known."""

    key: str = "g1-trained"
    title: ClassVar[str] = "trained weights"

    def check(self, facts: Sequence[Facts]) -> GateResult:
        failed = [words for fact in facts if (words := not_trained(fact))]
        failed += [
            f"{named(fact)}, not clearly above chance for the {fact.classes} classes of the images"
            for fact in facts
            if not not_trained(fact) and not better_than_guessing(fact)
        ]
        return self.result("failed", *failed) if failed else self.result("passed", "all weights are trained")


def not_trained(fact: Facts) -> str:
    """Why a subject's weights are not taken for trained, apart from its answers; empty where nothing speaks against."""
    if fact.trained is False:
        return f"{fact.subject} has untrained weights"
    if fact.trained is None and (fact.accuracy is None or math.isnan(fact.accuracy[0])):
        return f"whether {fact.subject} is trained is not known"
    return ""


def named(fact: Facts) -> str:
    """The accuracy of a subject in words; it must be known."""
    assert fact.accuracy is not None
    value, low, high = (100 * share for share in fact.accuracy)
    span = "" if math.isnan(low) else f" [{span_of(f'{low:.1f}', f'{high:.1f}', 1, high - low)}]"
    return f"{fact.subject} classifies {value:.1f} % correctly{span}"


def better_than_guessing(fact: Facts) -> bool:
    """Whether its accuracy is surely above chance; one without interval is taken as it is, an unknown one passes."""
    if fact.accuracy is None or math.isnan(fact.accuracy[0]) or not fact.classes:
        return True
    value, low, _ = fact.accuracy
    return (value if math.isnan(low) else low) > 1 / fact.classes


@dataclass(frozen=True)
class Accuracy(Gate):
    """g1: a subject that does not recognise the pictures says nothing about its kind. Accuracies and gap are told."""

    key: str = "g1"
    title: ClassVar[str] = "accuracy"
    #: Least accuracy by image set: of a CNN, of anything else.
    thresholds: ClassVar[Mapping[str, tuple[float, float]]] = {"CIFAR-10": (0.88, 0.80), "CIFAR-100": (0.60, 0.45)}

    def check(self, facts: Sequence[Facts]) -> GateResult:
        failed: list[str] = []
        unknown: list[str] = []
        accuracies: list[str] = []
        for fact in facts:
            if words := not_trained(fact):
                failed.append(words)
            elif fact.accuracy is None or math.isnan(fact.accuracy[0]):
                unknown.append(f"the accuracy of {fact.subject} on these images is not known")
            else:
                least, words = self.least(fact), named(fact)
                if least is not None and fact.accuracy[0] < least:
                    whose = "CNNs" if fact.architecture == "cnn" else "other models than CNNs"
                    asked = f"{100 * least:.0f} % asked of {whose} on {image_set(fact.images)}"
                    failed.append(f"{words}, less than the {asked}")
                elif least is None and not better_than_guessing(fact):
                    failed.append(f"{words}, not clearly above chance for the {fact.classes} classes of the images")
                else:
                    accuracies.append(words)
        if failed:
            return self.result("failed", *failed)
        if unknown:
            return self.result("unknown", *unknown, *accuracies)
        values = [fact.accuracy[0] for fact in facts if fact.accuracy]
        gap = [f"a gap of {100 * (max(values) - min(values)):.1f} points"] if len(values) > 1 else []
        return self.result("passed", *accuracies, *gap)

    def least(self, fact: Facts) -> float | None:
        of_cnn, of_others = self.thresholds.get(image_set(fact.images), (None, None))
        return of_cnn if fact.architecture == "cnn" else of_others


@dataclass(frozen=True)
class IntactAccuracy(Accuracy):
    """g1 for claims about what was taken from the second subject: its loss of accuracy is the effect, not a fault.

    Of the second one only trained weights are asked, by g1-trained.
    """

    key: str = "g1-intact"
    title: ClassVar[str] = "accuracy of the intact subject"

    def check(self, facts: Sequence[Facts]) -> GateResult:
        return super().check(facts[:1])


@dataclass(frozen=True)
class Matched(Gate):
    """g1 for claims about what is lost: subjects that recognise the clean pictures about equally well lose alike."""

    key: str = "g1-matched"
    title: ClassVar[str] = "matched accuracy"
    most: float = 0.05

    def check(self, facts: Sequence[Facts]) -> GateResult:
        values = [fact.accuracy[0] for fact in facts if fact.accuracy and not math.isnan(fact.accuracy[0])]
        if len(values) < len(facts):
            return self.result("unknown", "whether the subjects recognise these images equally well is not known")
        gap = round(max(values) - min(values), 9)  # .90 and .85 are a twentieth apart, whatever floats say
        words = f"their accuracies are {100 * gap:.1f} points apart"
        if gap > self.most:
            return self.result("failed", f"{words}, more than the {100 * self.most:.0f} asked for")
        return self.result("passed", words)


def image_set(name: str) -> str:
    """The image set a name stands for; the bundled sample is CIFAR-10.

    >>> image_set("sample:train"), image_set("hf:cifar100:test"), image_set("photos")
    ('CIFAR-10', 'CIFAR-100', 'photos')
    """
    letters = "".join(letter for letter in name.lower() if letter.isalnum())
    if "cifar100" in letters:
        return "CIFAR-100"
    return "CIFAR-10" if "cifar10" in letters or name.split(":")[0] == "sample" else name


@dataclass(frozen=True)
class Tokens(Gate):
    """g2: spatial measures need a grid of at least 8×8. Of a subject with stages the finest grid counts."""

    key: str = "g2-tokens"
    title: ClassVar[str] = "token grid"
    least: int = 8

    def check(self, facts: Sequence[Facts]) -> GateResult:
        grids = {fact.subject: self.grid(fact) for fact in facts}
        small = [
            f"{self.named(subject)} has a grid of {grid[0]}×{grid[1]}, less than {self.least}×{self.least}"
            for subject, grid in grids.items()
            if grid is not None and min(grid) < self.least
        ]
        if small:
            return self.result("failed", *small)
        unknown = [f"the grid of {self.named(subject)} is not known" for subject, grid in grids.items() if grid is None]
        return self.result("unknown", *unknown) if unknown else self.result("passed", "every grid is large enough")

    def grid(self, fact: Facts) -> tuple[int, int] | None:
        return fact.grid

    def named(self, subject: str) -> str:
        return subject


@dataclass(frozen=True)
class LastGrid(Tokens):
    """g2 where the last block is read: 7×7 as in the paper has 25 inner cells; of 4×4 there are four."""

    key: str = "g2-last-grid"
    title: ClassVar[str] = "grid of the last block"
    least: int = 7

    def grid(self, fact: Facts) -> tuple[int, int] | None:
        return fact.last_grid

    def named(self, subject: str) -> str:
        return f"the last block of {subject}, which is read,"


@dataclass(frozen=True)
class Heads(Gate):
    """g2: statistics over heads need at least 6 of them, in `blocks` blocks pooled, at both ends of the subject."""

    key: str = "g2-heads"
    title: ClassVar[str] = "heads"
    least: int = 6
    blocks: int = 2

    def check(self, facts: Sequence[Facts]) -> GateResult:
        with_heads = [fact for fact in facts if fact.heads]
        if not with_heads:
            return self.result("unknown", "the number of heads is not known")
        few = []
        for fact in with_heads:
            pooled = min(sum(fact.heads[: self.blocks]), sum(fact.heads[-self.blocks :]))
            if pooled < self.least:
                heads = f"{count(pooled, 'head')} in {count(self.blocks, 'block')}"
                few.append(f"{fact.subject} has {heads}, less than {self.least}")
        return self.result("failed", *few) if few else self.result("passed", "there are enough heads")


@dataclass(frozen=True)
class Regime(Gate):
    """g3: a claim about large-scale training, tested on anything smaller, gets a proxy verdict."""

    key: str = "g3"
    title: ClassVar[str] = "regime"
    least: int = 1_000_000

    def check(self, facts: Sequence[Facts]) -> GateResult:
        if all(fact.training_images is not None and fact.training_images >= self.least for fact in facts):
            return self.result("passed", "all were trained on large-scale data")
        small = [fact for fact in facts if fact.training_images is not None and fact.training_images < self.least]
        amounts = [f"{fact.subject} saw {fact.training_images:,} images" for fact in small]
        if len(small) > 3:  # ten arms of a study were a paragraph
            seen = sorted(fact.training_images or 0 for fact in small)
            amounts = [f"its {len(small)} subjects saw {seen[0]:,} to {seen[-1]:,} images"]
        why = "; ".join(amounts) or "how much these subjects saw is not known"
        return self.result("proxy", f"the claim is about large-scale training data: {why}")


@dataclass(frozen=True)
class LargeScale(Regime):
    """g3-large: the same where a small scale is no proxy at all, for the claim is that large models differ there."""

    key: str = "g3-large"

    def check(self, facts: Sequence[Facts]) -> GateResult:
        found = super().check(facts)
        known_small = any((fact.training_images or self.least) < self.least for fact in facts)
        return self.result("failed", found.words) if known_small else found


@dataclass(frozen=True)
class SameRecipe(Gate):
    """g4: both arms trained by the same recipe, or the difference may be the recipe's."""

    key: str = "g4"
    title: ClassVar[str] = "same recipe"

    def check(self, facts: Sequence[Facts]) -> GateResult:
        with_recipe = [fact for fact in facts if fact.recipe is not None]
        for one, other in combinations(with_recipe, 2):
            if one.recipe != other.recipe:
                recipes = " and ".join(f"{fact.subject} by {fact.recipe}" for fact in (one, other))
                return self.result("failed", f"the recipes differ: {recipes}")
            changed = self.changed(one, other)
            if changed:
                return self.result("failed", f"the recipes differ in {', '.join(changed)}")
        unknown = [fact.subject for fact in facts if fact.recipe is None]
        if unknown and len(facts) > 1:
            return self.result("unknown", f"the training recipe of {' and '.join(unknown)} is not known")
        return self.result("passed", "the recipe is the same")

    @staticmethod
    def changed(one: Facts, other: Facts) -> list[str]:
        """Settings that two recipes of one name do not share, of those that both cards tell."""
        if one.settings is None or other.settings is None:
            return []
        return [
            f"{name.replace('_', ' ')} ({one.subject} {value}, {other.subject} {other.settings[name]})"
            for name, value in one.settings.items()
            if name in other.settings and value != other.settings[name]
        ]


@dataclass(frozen=True)
class SameReadout(Gate):
    """Both arms read by the same kind of head, or the difference may be the head's.

    Maps of zoo:vit-gap, which has no stages, are as blocky as those of zoo:swin, which pools as well (contrast .345 and
    .338 at the same cuts; zoo:vit, read at its class token, .145).
    """

    key: str = "g4-readout"
    title: ClassVar[str] = "same readout"
    reads: ClassVar[Mapping[str, str]] = {"cls": "its class token", "gap": "the mean of its tokens"}

    def check(self, facts: Sequence[Facts]) -> GateResult:
        unknown = [fact.subject for fact in facts if fact.pooling not in self.reads]
        if unknown:
            return self.result("unknown", f"what the classifier of {' and '.join(unknown)} reads is not known")
        if len({fact.pooling for fact in facts}) > 1:
            readouts = (f"{fact.subject} reads {self.reads[fact.pooling or '']}" for fact in facts)
            return self.result("failed", f"the classifiers read differently: {', '.join(readouts)}")
        return self.result("passed", "the classifiers read alike")


TRAINED, ACCURACY, TOKENS, HEADS, REGIME, RECIPE = Trained(), Accuracy(), Tokens(), Heads(), Regime(), SameRecipe()
HEADS_OF_ONE_BLOCK, MATCHED, LAST_GRID = Heads("g2-heads-one-block", blocks=1), Matched(), LastGrid()
INTACT_ACCURACY, READOUT, LARGE_SCALE = IntactAccuracy(), SameReadout(), LargeScale()

GATES: dict[str, Gate] = {
    gate.key: gate
    for gate in (
        TRAINED,
        ACCURACY,
        INTACT_ACCURACY,
        MATCHED,
        TOKENS,
        LAST_GRID,
        HEADS,
        HEADS_OF_ONE_BLOCK,
        REGIME,
        LARGE_SCALE,
        RECIPE,
        READOUT,
    )
}
