"""M22: does it still recognise a corrupted picture? Fifteen types of corruption, five severities each.

    mean corruption accuracy = mean over types and severities of the share named right
    relative                 = mean corruption accuracy / accuracy on the clean pictures

Both are reported: a subject of low accuracy has little to lose (C69). Calibration error and log-likelihood are those of
all pictures of a severity together, whatever the type.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor
from torch.nn import functional as F

from eyechart.corruptions import SEVERITIES, TYPES, corrupt, set_for
from eyechart.measure import SampledExperiment, Source, Views, subject_coordinates
from eyechart.methods.calibration import BINS, add_to_bins, calibration_error
from eyechart.methods.scoring import CONFIDENCE, NLL, RIGHT, about_strangers, labelled, scored, strangers
from eyechart.quantity import Quantity
from eyechart.reading_estimates import in_points, in_words, per_subject, vit_minus_cnn, with_ends
from eyechart.scene import Batch, Scene
from eyechart.sites import Anatomy
from eyechart.tally import Concat, Sum, Tally
from eyechart.tracing.bench import Bench

EXAMPLE_SIDE = 64
EXAMPLE_SEVERITY = 3


def named(corruption: str) -> str:
    """A type as a page says it.

    >>> [named(name) for name in ("gaussian_noise", "elastic_transform", "jpeg_compression")]
    ['Gaussian noise', 'elastic', 'JPEG']
    """
    words = corruption.removesuffix("_compression").removesuffix("_transform").replace("_", " ")
    return words.replace("gaussian", "Gaussian").replace("jpeg", "JPEG")


@dataclass
class CorruptionTally(Tally):
    right: Annotated[Tensor, Sum("fold", "subject", "type", "severity")]
    nll: Annotated[Tensor, Sum("fold", "subject", "level")]
    """Over all types; level 0 is clean."""
    images_in: Annotated[Tensor, Sum("fold", "subject", "level", "bin")]
    confidence: Annotated[Tensor, Sum("fold", "subject", "level", "bin")]
    right_in: Annotated[Tensor, Sum("fold", "subject", "level", "bin")]
    seen: Annotated[Tensor, Sum("fold", "subject")]
    images: Annotated[Tensor, Sum("fold", counts=True)]
    image: Annotated[Tensor, Concat("image", dtype="int64")]
    example: Annotated[Tensor, Concat("image", "tile", "y", "x", "channel", dtype="uint8")]
    """The first picture: clean, and of each type, to look at."""


def example_size(scene: Scene) -> tuple[int, int]:
    height, width = scene.anatomy(scene.scored_subjects[0]).input_size
    shrink = max(1.0, max(height, width) / EXAMPLE_SIDE)
    return round(height / shrink), round(width / shrink)


def corrupted(bench: Bench, name: str, severity: int) -> Tensor:
    """The bench's pictures as pixels; the same draws for every subject and severity."""
    return corrupt(bench.pixels().float(), name, severity, bench.generator(f"corruption, {name}"))


def kinds_of(scene: Scene, subject: str) -> str:
    """What two subjects must share for their corrupted pictures to be the same: the size they are fed."""
    height, width = scene.anatomy(subject).input_size
    return f"{set_for(height, width)}, {height}×{width}"


@dataclass(frozen=True)
class Corruption(SampledExperiment):
    name = "corruption"
    title = "Does it recognise corrupted pictures?"
    title_ko = "손상된 그림도 알아보는가?"
    order = 88
    chapter = "break"
    sources = (
        Source("Park & Kim 2022", "robustness of the released models (poster)"),
        Source("Hendrycks & Dietterich 2019", "Figure 1 and Table 1"),
    )
    how_to_read = (
        "On top: one picture in all fifteen corruptions at severity 3. Curves: accuracy, negative log-likelihood and "
        "over-confidence (confidence minus accuracy) from the clean picture (0) to the strongest corruption (5), over "
        "all types. Below: accuracy for each type, averaged over severities, with clean accuracy dashed; next, by how "
        "many points a subject is better (right of 0) or worse than the first one, on the same pictures. Shades and "
        "bars are 95 % intervals."
    )
    how_to_read_ko = (
        "위: 한 그림의 열다섯 가지 손상(세기 3). 곡선: 원본 그림(0)부터 가장 강한 손상(5)까지의 정확도, 음의 로그 "
        "가능도, 지나친 확신(확신도 − 정확도), 모든 종류에 걸친 값. 아래: 종류별 정확도(세기 평균). 파선은 원본 "
        "그림에서의 정확도이다. 다음: 같은 그림에서 첫 대상보다 더(0 오른쪽) 또는 덜 맞히는 정도. 음영과 선은 95 % "
        "구간이다."
    )
    method = (
        "The fifteen corruptions of Hendrycks & Dietterich (2019), made here at the size a subject is fed, with the "
        "constants of CIFAR-10-C up to 64 pixels and of ImageNet-C above; the same random draws for every subject and "
        "severity. Frost is a texture made by rule with the mean colour, contrast and spectrum of the published "
        "photographs. Pictures are not rounded to 8 bits afterwards. The figure has the signed calibration error, "
        "because on few images the absolute one (ten bins, in the findings) is far from 0 by chance alone."
    )
    quantities = (
        Quantity(
            "corruption_accuracy",
            partial(per_subject, variable="mean"),
            "accuracy, mean over types and severities",
            limits=(0, 1),
        ),
        Quantity(
            "relative_corruption_accuracy",
            partial(per_subject, variable="relative"),
            "the same as a share of the clean accuracy",
            limits=(0, None),
        ),
        Quantity(
            "corruption_advantage",
            partial(vit_minus_cnn, variable="mean", alike="pictures"),
            "mean corruption accuracy, ViT minus CNN",
            limits=(-1, 1),
            paired=True,
        ),
        Quantity(
            "relative_corruption_advantage",
            partial(vit_minus_cnn, variable="relative", alike="pictures"),
            "mean corruption accuracy as a share of clean accuracy, ViT minus CNN",
        ),
    )
    labels = "subjects"
    budget: ClassVar[Mapping[str, float]] = {"normal": 60.0, "full": 600.0}

    def passes(self, anatomy: Anatomy) -> float:
        return 1.0 + len(TYPES) * SEVERITIES

    def tally(self, scene: Scene) -> CorruptionTally:
        height, width = example_size(scene)
        return CorruptionTally.empty(
            fold=scene.folds,
            subject=len(scene.scored_subjects),
            type=len(TYPES),
            severity=SEVERITIES,
            level=1 + SEVERITIES,
            bin=BINS,
            tile=1 + len(TYPES),
            y=height,
            x=width,
            channel=3,
        )

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        bench = labelled(bench.first(self.images))
        if not len(bench) or bench.targets is None or bench.subject.colours is None:
            return {}
        targets = bench.targets.cpu()
        scores = [scored(bench.logits().log_softmax(1), targets)]
        tiles = [bench.pixels()[:1]]
        for name, severity in itertools.product(TYPES, range(1, 1 + SEVERITIES)):
            pictures = corrupted(bench, name, severity)
            scores.append(scored(bench.logits(bench.from_pixels(pictures)).log_softmax(1), targets))
            tiles += [pictures[:1]] if severity == EXAMPLE_SEVERITY else []
        result = {"scores": torch.stack(scores, dim=1), "folds": bench.folds()}
        if bench.batch.start == 0 and len(bench):
            result |= {"image": torch.as_tensor(bench.batch.images[:1]), "tiles": torch.stack(tiles, dim=1).cpu()}
        return result

    def update(self, tally: CorruptionTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = None
        for column, results in views.experiments(scene.scored_subjects):
            folds, scores = results["folds"], results["scores"]
            tally.add("seen", folds, None, column)
            rest = scores[:, 1:].view(len(scores), len(TYPES), SEVERITIES, -1)
            tally.add("right", folds, rest[..., RIGHT], column)
            for level in range(1 + SEVERITIES):
                self.add(tally, folds, column, level, rest[:, :, level - 1] if level else scores[:, :1])
            if "tiles" in results and not len(tally.image):
                tally.append(image=results["image"], example=tiles_of(results["tiles"], example_size(scene)))
        if folds is not None:
            tally.add("images", folds)

    def add(self, tally: CorruptionTally, folds: Tensor, column: int, level: int, scores: Tensor) -> None:
        """Scores (image, type, score) of one severity."""
        tally.add("nll", folds, scores[..., NLL].sum(1), column, level)
        confidence = scores[..., CONFIDENCE]
        sums = [field[:, column, level] for field in (tally.images_in, tally.confidence, tally.right_in)]
        add_to_bins(sums, (folds[:, None].expand_as(confidence),), confidence, scores[..., RIGHT])

    def estimate(self, total: CorruptionTally, scene: Scene) -> xarray.Dataset:
        subjects, seen = scene.scored_subjects, total.seen.numpy()
        kinds = [kinds_of(scene, subject) for subject in subjects]
        pairs = [pair for pair in itertools.combinations(range(len(subjects)), 2) if kinds[pair[0]] == kinds[pair[1]]]
        bins = [getattr(total, name).numpy() for name in ("images_in", "confidence", "right_in")]
        counted = bins[0].sum(2)
        with np.errstate(invalid="ignore", divide="ignore"):
            accuracy = total.right.numpy() / seen[:, None, None]
            by_severity = bins[2].sum(2) / counted
            error, signed = calibration_error(*bins), (bins[1] - bins[2]).sum(2) / counted
            nll = total.nll.numpy() / counted
            relative = accuracy.mean((1, 2)) / np.where(by_severity[:, 0] > 0, by_severity[:, 0], np.nan)
        by_type = accuracy.mean(2)
        share: dict[str, Any] = {"limits": (0.0, 1.0)}
        trials = np.broadcast_to(seen[:, None, None], accuracy.shape)
        return xarray.Dataset(
            {
                "accuracy": (("subject", "type", "severity"), accuracy, {**share, "trials": trials}),
                "by_type": (("subject", "type"), by_type, {**share, "trials": trials[..., 0]}),
                "by_severity": (("subject", "level"), by_severity, {**share, "trials": trials[:, 0, :1]}),
                "nll": (("subject", "level"), nll, {"limits": (0.0, np.inf)}),
                "ece": (("subject", "level"), error, {**share, "smooth": False}),
                "signed_ece": (("subject", "level"), signed, {"limits": (-1.0, 1.0)}),
                "mean": ("subject", by_type.mean(1), {**share, "trials": seen}),
                "relative": ("subject", relative, {"limits": (0.0, np.inf)}),
                "difference": (
                    ("pair", "type"),
                    np.array([by_type[other] - by_type[one] for one, other in pairs]).reshape(-1, len(TYPES)),
                    {"limits": (-1.0, 1.0), "pairs": max(float(seen.max()), 1.0)},
                ),
                "example": (("shown", "tile", "y", "x", "channel"), total.example.numpy()),
            },
            coords={
                **subject_coordinates(scene, subjects),
                "pictures": ("subject", kinds),
                "stranger": strangers(scene),
                "type": list(TYPES),
                "severity": np.arange(1, 1 + SEVERITIES),
                "level": np.arange(1 + SEVERITIES),
                "one": ("pair", np.array([subjects[one] for one, _ in pairs], dtype=object)),
                "other": ("pair", np.array([subjects[other] for _, other in pairs], dtype=object)),
            },
            attrs={"images": int(total.images)},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in finding.subject.values.tolist():
            row = finding.sel(subject=subject)
            if np.isnan(row["mean"]):
                parts.append(f"{subject} is left out: its own transform does more with colours than shift and scale")
                continue
            worst = row.isel(type=int(row.by_type.values.argmin()))
            hardest = named(worst.type.item())
            least, most = (in_points(with_ends(row.isel(level=at), "signed_ece"), "+.1f") for at in (0, -1))
            parts.append(
                f"{subject} names {in_words(row, 'mean', '.1%')} of the corrupted pictures right, and "
                f"{in_words(row.isel(level=0), 'by_severity', '.1%')} of the clean ones; {hardest} is the hardest "
                f"({in_words(worst, 'by_type', '.1%')}), and from severity 0 to 5 its confidence minus accuracy goes "
                f"from {least} to {most} points"
            )
        several = len(set(finding.pictures.values.tolist())) > 1
        sizes = "\nSubjects that are fed another size see other corruptions and are not compared."
        return ". ".join(parts) + f".{sizes if several else ''}{about_strangers(finding)}"


def tiles_of(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    """(image, tile, y, x, channel) of 8 bits from (image, tile, 3, y, x)."""
    small = F.interpolate(pictures.flatten(0, 1), size, mode="area") if pictures.shape[-2:] != size else pictures[0]
    return (small * 255).round().byte().permute(0, 2, 3, 1)[None]
