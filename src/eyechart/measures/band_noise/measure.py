"""M21: at which frequencies does noise hurt?

    noise = signs of N(0, 1), cut to a square ring of frequencies, scaled to a stated RMS, added to the normalised image

The rings are half-open, [0, π/10), [π/10, 2π/10), … by the larger of both frequencies, and partition the plane. Each
image meets every ring at one or more of four strengths, in turn; none has to be chosen beforehand: the estimate
reads all subjects at the *one* strength at which the drop, averaged over subjects and rings, is 10 points
(interpolated in log strength). That choice is part of the statistic, so the intervals hold its uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.images.plan import FOLDS
from eyechart.measure import SampledExperiment, Source, Views, option, subject_coordinates
from eyechart.methods.scoring import has_class, right, scored_by, wanted
from eyechart.methods.spectrum import filtered, rings, share_of_ring, with_rms
from eyechart.quantity import Compute, Quantity, of_each
from eyechart.reading_estimates import in_points, scored_vit_minus_cnn, spanned, with_ends
from eyechart.scene import Batch, Scene
from eyechart.site_choice import gives_answers
from eyechart.sites import Anatomy
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench

RINGS = 10
STRENGTHS = (0.08, 0.16, 0.32, 0.64)
"""RMS in quarters of the pixel range (see `contrast`): that of the normalised image itself is about 1."""
END = 3
"""Rings that are low frequencies (below 0.3 π), and as many that are high ones (above 0.7 π)."""
WANTED_DROP = 0.1
"""Mean over subjects and rings. Noise that is too weak hurts no subject, noise that is too strong hurts all alike."""


def examined(scene: Scene) -> list[str]:
    """Subjects with a classifier and pictures large enough for every ring to hold a frequency."""
    return [
        anatomy.subject
        for anatomy in scene.anatomies
        if gives_answers(anatomy) and float(share_of_ring(*anatomy.input_size, RINGS).min()) > 0
    ]


def ring_noise(signs: Tensor, ring: int, scale: Tensor, scaling: str) -> Tensor:
    """The part of ±1 noise (image, channel, y, x) in one ring, times `scale` (image,), which is its RMS if "equal"."""
    height, width = signs.shape[-2:]
    noise = filtered(signs, rings(height, width, RINGS) == ring)
    return (with_rms(noise, 1.0) if scaling == "equal" else noise) * scale.to(signs.device).view(-1, 1, 1, 1)


def rungs_of(start: int, count: int, each: int) -> Tensor:
    """Which strengths each image meets, (image, each): in turn within every fold, by its place in the exam."""
    first = (start + torch.arange(count)) // FOLDS
    return (first[:, None] + torch.arange(max(each, 1))) % len(STRENGTHS)


@dataclass
class NoiseTally(Tally):
    right: Annotated[Tensor, Sum("fold", "subject", "strength", "ring")]
    intact: Annotated[Tensor, Sum("fold", "subject", "strength")]
    seen: Annotated[Tensor, Sum("fold", "subject", "strength")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def crossing(drops: np.ndarray) -> float:
    """Where, in steps of the ladder, the mean drop (strength,) first comes to 10 points; NaN where it never does.

    >>> crossing(np.array([0.02, 0.06, 0.14, 0.4]))
    1.5
    """
    for step in range(len(drops) - 1):
        here, after = drops[step], drops[step + 1]
        if here <= WANTED_DROP <= after:
            return float(step + (WANTED_DROP - here) / (after - here)) if after > here else float(step)
    return math.nan


def between(values: np.ndarray, at: float) -> np.ndarray:
    """Values (strength, …) read between two strengths of the ladder; NaN where there is nowhere to read them.

    >>> between(np.array([1.0, 2.0, 4.0]), 1.25)
    array(2.5)
    """
    if math.isnan(at):
        return np.full(values.shape[1:], np.nan)
    step = min(int(at), len(values) - 2)
    return np.asarray((step + 1 - at) * values[step] + (at - step) * values[step + 1])


def contrast(bench: Bench) -> Tensor:
    """A quarter of the pixel range, about the deviation of photographs, in a subject's own normalised units.

    Subjects divide by different deviations; in units of each its own, one would get more noise than the other.
    """
    scale = bench.subject.colours[1] if bench.subject.colours else (4.0,) * 3
    return torch.tensor(scale, device=bench.images.device).view(1, -1, 1, 1) / 4


def slope(values: np.ndarray) -> np.ndarray:
    """Least-squares slope over frequency, per π, of values (…, ring)."""
    centres = (np.arange(RINGS) + 0.5) / RINGS
    centred = centres - centres.mean()
    return np.asarray(values @ centred / (centred @ centred))


def relative_loss(variable: str) -> Compute:
    """What a subject scored by accuracy loses, as a share of its clean accuracy."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        row = estimate.sel(subject=subject)
        return float(row[variable] / row.clean) if row.scored.item() == "accuracy" and row.clean > 0 else None

    return of_each(number)


@dataclass(frozen=True)
class BandNoise(SampledExperiment):
    name = "band_noise"
    title = "At which frequencies does noise hurt?"
    title_ko = "어느 주파수의 잡음에 약한가?"
    order = 84
    chapter = "frequency"
    sources = (Source("Park & Kim 2022", "Figure 2b"),)
    how_to_read = (
        "First: how many points of accuracy are lost to noise of one frequency, equally strong at every frequency. Low "
        "frequencies are patches of colour, high ones fine grain: a curve that dips on the left is hurt by coarse "
        "noise, one that dips on the right by grain. The claim compares the subjects below the left dashed line (low) "
        "and above the right one (high), each end by itself. Next: the mean over all frequencies for several strengths "
        "of the noise; the first panel is read at the strength where all subjects together lose 10 points."
    )
    how_to_read_ko = (
        "처음: 어느 주파수에서나 세기가 같은 잡음을 한 주파수대에만 더했을 때 떨어지는 정확도(포인트). 낮은 주파수는 "
        "색 얼룩, 높은 주파수는 고운 알갱이이다. 왼쪽이 깊으면 굵은 잡음에, 오른쪽이 깊으면 고운 잡음에 약하다. 주장은 "
        "왼쪽 파선보다 낮은 주파수와 오른쪽 파선보다 높은 주파수에서 대상들을 따로 비교한다. 다음: 여러 세기에서 모든 "
        "주파수에 걸친 평균. 처음 그림은 모든 대상이 함께 10포인트를 잃는 세기에서 읽는다."
    )
    method = (
        "Random signs for every value of the normalised image, cut by FFT to one of ten half-open square rings that "
        "partition [0, π], scaled to the same RMS (option scaling=paper leaves the ring its natural share; unit: a "
        "quarter of the pixel range) and added without clipping. Each image is tested with all rings at one or more of "
        "four strengths, which take turns over the images; drops are interpolated in log strength to the one at which "
        "they average 10 points over all subjects and rings. Low and high frequencies are the first and the last three "
        "rings."
    )
    quantities = (
        *(
            Quantity(
                f"{end}_noise_loss",
                relative_loss(f"{end}_cost"),
                f"share of the clean accuracy lost to noise {where}",
                limits=(None, 1),
            )
            for end, where in (("low", "below 0.3 π"), ("high", "above 0.7 π"))
        ),
        Quantity(
            "low_noise_difference",
            partial(scored_vit_minus_cnn, variable="low_cost"),
            "accuracy lost to noise below 0.3 π, ViT minus CNN",
            limits=(-2, 2),
        ),
        Quantity(
            "high_noise_difference",
            partial(scored_vit_minus_cnn, variable="high_cost", sign=-1),
            "accuracy lost to noise above 0.7 π, CNN minus ViT",
            limits=(-2, 2),
        ),
        Quantity(
            "noise_slope_difference",
            partial(scored_vit_minus_cnn, variable="slope", sign=-1),
            "slope of the accuracy drop over frequency (per π), CNN minus ViT",
            unit="accuracy / π",
        ),
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 14.5, "normal": 60.0, "full": 600.0}
    least_images: ClassVar[int] = 128
    shown_from: ClassVar[int] = 16
    scaling: Literal["equal", "paper"] = option(
        "equal", "strength of the noise: equal at all frequencies, or the natural share of each ring (paper)"
    )
    rungs: int = option(0, "how many of the strengths each image meets; 0: sized by effort, as `images` is")

    def passes(self, anatomy: Anatomy) -> float:
        return 1.0 + RINGS * (self.rungs or 1)

    def sized(self, effort: str, scene: Scene, *, asked_for: bool = False, decides: bool = True) -> Self:
        """As many images as the budget allows; where that is all of them, each meets as many strengths as it allows."""
        if self.rungs or self.images:
            return super().sized(effort, scene, asked_for=asked_for, decides=decides)
        chosen = replace(self, rungs=1)
        for rungs in range(1, len(STRENGTHS) + 1):
            try:
                more = SampledExperiment.sized(
                    replace(self, rungs=rungs), effort, scene, asked_for=asked_for, decides=decides
                )
            except DoesNotApply:
                if rungs == 1:
                    raise
                break
            assert isinstance(more, BandNoise)
            if rungs == 1 or more.images == scene.images > self.least_images:
                chosen = more
        return chosen

    def tally(self, scene: Scene) -> NoiseTally:
        subjects = examined(scene)
        if not subjects:
            raise DoesNotApply("no subject has a classifier and pictures of at least 20 pixels.")
        return NoiseTally.empty(fold=scene.folds, subject=len(subjects), strength=len(STRENGTHS), ring=RINGS)

    def strengths(self) -> tuple[float, ...]:
        """RMS of the noise; with scaling=paper the height of its signs, of which a ring holds a tenth on average."""
        return STRENGTHS if self.scaling == "equal" else tuple(rms * math.sqrt(RINGS) for rms in STRENGTHS)

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        bench = bench.first(self.images)
        if not len(bench) or not gives_answers(bench.anatomy):
            return {}
        intact = bench.logits()
        target, images = wanted(bench, intact), bench.images.float()
        signs = torch.randn(images.shape, generator=bench.generator("band noise")).sign().to(images.device)
        unit = contrast(bench)
        rungs = rungs_of(bench.batch.start, len(bench), self.rungs)
        heights = torch.tensor(self.strengths())[rungs]
        answers = []
        for rung, ring in product(range(rungs.shape[1]), range(RINGS)):
            noisy = images + unit * ring_noise(signs, ring, heights[:, rung], self.scaling)
            answers.append(right(bench.logits(noisy.to(bench.images.dtype)), target))
        return {
            "right": torch.stack(answers, dim=1).reshape(len(bench), -1, RINGS),
            "intact": right(intact, target),
            "known": has_class(target),
            "rungs": rungs,
            "folds": bench.folds(),
        }

    def update(self, tally: NoiseTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = None
        for column, results in views.experiments(examined(scene)):
            folds, labelled = results["folds"], results["known"]
            for rung, noisy in zip(results["rungs"].T, results["right"].unbind(1), strict=True):
                tally.right[:, column].index_put_((folds, rung), noisy * labelled[:, None], accumulate=True)
                tally.intact[:, column].index_put_((folds, rung), results["intact"] * labelled, accumulate=True)
                tally.seen[:, column].index_put_((folds, rung), labelled, accumulate=True)
        if folds is not None:
            tally.add("images", folds)

    def estimate(self, total: NoiseTally, scene: Scene) -> xarray.Dataset:
        subjects = examined(scene)
        drops = ((total.intact[..., None] - total.right) / total.seen[..., None]).numpy()  # subject, strength, ring
        at = crossing(drops.mean((0, 2)))
        cost = between(drops.swapaxes(0, 1), at)
        read_at = np.exp(between(np.log(self.strengths()), at))
        gap = {"limits": (-1.0, 1.0)}
        return xarray.Dataset(
            {
                "cost": (("subject", "ring"), cost, gap),
                "mean_cost": (("subject", "strength"), drops.mean(2), gap),
                "slope": ("subject", slope(cost)),
                "low_cost": ("subject", cost[:, :END].mean(1), gap),
                "high_cost": ("subject", cost[:, -END:].mean(1), gap),
                "clean": ("subject", (total.intact.sum(1) / total.seen.sum(1)).numpy(), {"limits": (0.0, 1.0)}),
                "read_at": ("subject", np.full(len(subjects), read_at), {"limits": (0.0, np.inf)}),
            },
            coords={
                **subject_coordinates(scene, subjects),
                "scored": ("subject", [scored_by(scene, subject) for subject in subjects]),
                "pictures": ("subject", [str(scene.anatomy(subject).input_size) for subject in subjects]),
                "strength": list(self.strengths()),
                "frequency": ("ring", (np.arange(RINGS) + 0.5) / RINGS),
            },
            attrs={"images": int(total.images), "scaling": self.scaling},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        strength, low, high = with_ends(finding.isel(subject=0), "read_at")
        if math.isnan(strength):
            drops = finding.mean_cost.mean("subject").values
            met = np.isfinite(drops)  # few images do not meet all strengths
            if not met.any():
                return "No image was named in noise of every frequency: nothing to compare."
            clean = float(finding.clean.mean())
            if clean < WANTED_DROP:
                return (
                    f"Without noise all subjects together name {clean:.1%} of the pictures right, so no noise can cost "
                    "10 points: frequencies are not compared."
                )
            most = finding.strength.values[met][-1]
            return (
                f"No noise of up to {most:.2f} quarters of the pixel range costs all subjects together 10 points on "
                "average: frequencies are not compared."
            )
        parts = []
        for subject in finding.subject.values.tolist():
            row = finding.sel(subject=subject)
            what = "accuracy" if str(row.scored.item()) == "accuracy" else "agreement with its own intact answers"
            low_end, high_end = (in_points(with_ends(row, name)) for name in ("low_cost", "high_cost"))
            parts.append(f"{subject} loses {low_end} points of {what} below 0.3 π and {high_end} above 0.7 π")
        size = "height" if finding.attrs["scaling"] == "paper" else "RMS"
        noise = f"{size} {spanned((strength, low, high), '.2f')} quarters of the pixel range"
        return f"At noise of {noise}: {'; '.join(parts)}."
