"""Cases of probes: accuracies by block and readout whose truth is known, drawn image by image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
import xarray
from scipy.special import ndtri

from eyechart.intervals import with_intervals
from eyechart.measures.probes.measure import Probes
from eyechart.scene import Scene
from eyechart.tally import Sum, Tally
from eyechart.tracing.readouts import READOUTS
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import FOLDS, noisy_finding
from tests.measures.staging import scene

IMAGES, BLOCKS = 512, 6
Curve = Sequence[float]
RISES: Curve = (0.3, 0.4, 0.5, 0.65, 0.8, 0.9)
BESIDE = "as a lead that the last block does not have"


@dataclass
class Answers(Tally):
    right: Annotated[torch.Tensor, Sum("fold", "site", "readout")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


@dataclass(frozen=True)
class DrawnProbes(Probes):
    """Only what follows from the answers of probes: the quantities and their intervals are those of the measure."""

    subjects: tuple[tuple[str, str, str], ...] = ()
    """Name, family and pooling."""

    def estimate(self, total: Any, scene: Scene) -> xarray.Dataset:
        columns = {"subject": 0, "family": 1, "pooling": 2}
        coordinates: dict[str, tuple[str, Any]] = {
            name: ("site", np.repeat([who[at] for who in self.subjects], BLOCKS)) for name, at in columns.items()
        }
        others = {"role": "block", "build": "one"}
        coordinates |= {name: ("site", [value] * (len(self.subjects) * BLOCKS)) for name, value in others.items()}
        coordinates["depth"] = ("site", np.tile((np.arange(BLOCKS) + 1) / BLOCKS, len(self.subjects)))
        shares = (total.right / total.images).numpy()
        return xarray.Dataset(
            {"accuracy": (("site", "readout"), shares)},
            coords={"readout": list(READOUTS), **coordinates},
            attrs={"images": int(total.images)},
        )


def drawn(seed: int, **subjects: Mapping[str, Curve]) -> xarray.Dataset:
    """Subjects "cls…", "gap…" and "cnn…" with these accuracies over depth, one image as hard for one as for the other.

    A class-token ViT has curves of tokens, cls and mean (with the class token as without, unless told), the others of
    tokens, mean and first.
    """
    people = tuple((name, "cnn" if name[:3] == "cnn" else "vit", name[:3].replace("cnn", "gap")) for name in subjects)
    truth = np.full((len(people), BLOCKS, len(READOUTS)), 0.5)
    for row, curves in enumerate(subjects.values()):
        known = {"gap": curves.get("mean"), "gap with cls": curves.get("mean with cls", curves.get("mean"))}
        for readout, curve in {**curves, **known}.items():
            if curve is not None and readout in READOUTS:
                truth[row, :, READOUTS.index(readout)] = curve
    dice = np.random.default_rng(seed)
    hard = 0.7**0.5 * dice.normal(size=(IMAGES, 1, 1, 1)) + 0.3**0.5 * dice.normal(size=(IMAGES, *truth.shape))
    right = hard < ndtri(truth)
    by_fold = np.stack([right[fold::FOLDS].sum(0) for fold in range(FOLDS)]).reshape(FOLDS, -1, len(READOUTS))
    tally = Answers.empty(fold=FOLDS, site=by_fold.shape[1], readout=len(READOUTS))
    tally.right += torch.from_numpy(by_fold)
    tally.images += IMAGES / FOLDS
    return with_intervals(DrawnProbes(subjects=people), tally, scene(images=IMAGES))


def plus(curve: Curve, lead: Curve | float) -> Curve:
    return tuple(np.add(curve, lead).tolist())


def untrained_class_token(seed: int) -> Mapping[str, xarray.Dataset]:
    """Single tokens .18 against .88, but the class token tells no more than .25 either: numbers of zoo:vit@random."""
    cls = {"tokens": (0.18,) * BLOCKS, "cls": (0.25,) * BLOCKS, "mean": (0.22,) * BLOCKS}
    good = {"tokens": (0.2, 0.3, 0.4, 0.5, 0.7, 0.88), "mean": RISES}
    return {"probes": drawn(seed, cls=cls, gap=good, cnn=good)}


def tokens_as_published(seed: int) -> Mapping[str, xarray.Dataset]:
    cls = {"tokens": (0.2, 0.3, 0.4, 0.45, 0.5, 0.55), "cls": RISES, "mean": RISES}
    good = {"tokens": (0.2, 0.3, 0.4, 0.5, 0.7, 0.88), "mean": RISES}
    return {"probes": drawn(seed, cls=cls, gap=good, cnn=good)}


def last_block_forgets(seed: int) -> Mapping[str, xarray.Dataset]:
    """At the end first and mean token are alike, because neither tells anything."""
    return {"probes": drawn(seed, gap={"mean": (*RISES[:5], 0.1), "first": (0.2, 0.25, 0.3, 0.35, 0.5, 0.1)})}


def first_token_never_catches_up(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"probes": drawn(seed, gap={"mean": RISES, "first": plus(RISES, -0.15)})}


def first_token_catches_up(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"probes": drawn(seed, gap={"mean": RISES, "first": (0.2, 0.25, 0.3, 0.45, 0.75, 0.9)})}


def no_late_parting(seed: int) -> Mapping[str, xarray.Dataset]:
    """The class token leads by .1 from the first block on (and by .3 in the last third), or never."""
    from_the_start = {
        "cls": plus(RISES, (0.1, 0.1, 0.1, 0.1, 0.1, 0.05)),
        "mean": plus(RISES, (0, 0, 0, 0, -0.2, -0.25)),
    }
    return {"probes": drawn(seed, cls_early=from_the_start, cls_never={"cls": RISES, "mean": RISES})}


def late_parting(seed: int) -> Mapping[str, xarray.Dataset]:
    with_cls = (0.3, 0.4, 0.5, 0.65, 0.68, 0.7)
    return {"probes": drawn(seed, cls={"cls": RISES, "mean": plus(with_cls, 0.01), "mean with cls": with_cls})}


def twins(seed: int, differences: Curve, cka: float) -> Mapping[str, xarray.Dataset]:
    tokens = (0.5,) * BLOCKS
    found = drawn(seed, cls={"tokens": tokens, "cls": RISES, "mean": RISES}, gap={"tokens": plus(tokens, differences)})
    return {
        "probes": found,
        "depth_similarity": noisy_finding({"cka_divergence": cka}, ["gap", "cls"], 0.01, seed),
    }


def of_changing_sign(seed: int) -> Mapping[str, xarray.Dataset]:
    """± .25 before and .3 at the end: alike nowhere, although the signed means are 0 and .3."""
    return twins(seed, (0.25, -0.25, 0.25, -0.25, 0.3, 0.3), cka=0.3)


def unlike_everywhere(seed: int) -> Mapping[str, xarray.Dataset]:
    """1 − CKA of .5 before and .6 at the end is larger at the end: −.4 by what is asked now."""
    return twins(seed, (0.2, 0.2, 0.2, 0.2, 0.3, 0.3), cka=0.6 - 2 * 0.5)


def part_at_the_head(seed: int) -> Mapping[str, xarray.Dataset]:
    return twins(seed, (0, 0.02, 0, 0.05, 0.2, 0.3), cka=0.24)


def equal_middles(seed: int) -> Mapping[str, xarray.Dataset]:
    """The CNN is a little ahead in the middle and more at the end: less behind is not ahead."""
    cnn = plus(RISES, (0, 0, 0.02, 0.02, 0.05, 0.08))
    return {"probes": drawn(seed, gap_vit={"mean": RISES}, cnn={"mean": cnn})}


def ahead_everywhere(seed: int) -> Mapping[str, xarray.Dataset]:
    """A better model: .2 ahead in the middle, .4 at the end."""
    return {
        "probes": drawn(seed, gap_vit={"mean": RISES}, cnn={"mean": plus(RISES, (0, -0.1, -0.2, -0.2, -0.3, -0.4))})
    }


def ahead_in_the_middle(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"probes": drawn(seed, gap_vit={"mean": plus(RISES, (0, 0.1, 0.2, 0.15, 0.05, 0))}, cnn={"mean": RISES})}


CASES = (
    Case(
        "C32",
        "an untrained class-token ViT, whose class token tells little too",
        "holds",
        findings=untrained_class_token,
    ),
    Case("C32", "tokens tell the class where the mean is read", "fails", findings=tokens_as_published),
    Case("C33", "the last block forgets the class", "holds", findings=last_block_forgets),
    Case("C33", "the first token stays behind the mean", "holds", findings=first_token_never_catches_up),
    Case("C33", "the first token catches up at the end", "fails", findings=first_token_catches_up),
    Case("C34", "the class token leads from the first block on, or never", "holds", findings=no_late_parting),
    Case("C34", "the class token leads in the last third", "fails", findings=late_parting),
    Case("C35", "differences of changing sign, as large before as at the end", "holds", findings=of_changing_sign),
    Case("C35", "twins that are unlike at every depth", "holds", findings=unlike_everywhere),
    Case("C35", "twins that part in the last third", "fails", findings=part_at_the_head),
    Case("C39", "a ViT whose middle layers tell no more than a CNN's", "holds", findings=equal_middles),
    Case("C39", "a ViT that is ahead everywhere, most at the end", "holds", findings=ahead_everywhere, reading=BESIDE),
    Case("C39", "a ViT that is ahead in the middle alone", "fails", findings=ahead_in_the_middle),
)
