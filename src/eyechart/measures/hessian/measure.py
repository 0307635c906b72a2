"""M16: is the loss convex here, and how sharp? The largest eigenvalues of the Hessian, minibatch by minibatch.

Park & Kim collect the five eigenvalues of largest magnitude of each minibatch of 16 and read off two numbers: the
share of negative ones (NEP: not convex) and the mean of the positive ones (APE: sharp). Both depend on whether images
are augmented and whether a weight penalty belongs to the loss, which is why Chen et al. (2021) could report the
reverse; so all four losses are measured, and the warm-up snapshots beside the end make the third factor.

    H = ∂² loss / ∂θ²        NEP = share of its eigenvalues below 0        APE = mean of those above 0

The mathematics is in `curvature/`: the penalty's two losses share one Lanczos space, so that it costs nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
import xarray
from torch import Tensor

from eyechart.curvature import Penalty, spectra
from eyechart.curvature.lanczos import NOISE
from eyechart.errors import DoesNotApply, UsageError
from eyechart.measure import SampledExperiment, Source, Views, option
from eyechart.measures.hessian.bounds import as_tensors, spectra_in_words
from eyechart.measures.hessian.loss import no_second_derivative, weights_and_loss
from eyechart.measures.hessian.quantities import (
    PAPER,
    VARIANTS,
    against,
    kind_of,
    of_second,
    per_variant,
    ratio,
    share_gap,
    shell_of,
    small_share,
    steepness,
    taken_at,
    time_of,
)
from eyechart.methods.scoring import labelled
from eyechart.methods.twins import build_of
from eyechart.scene import Batch, Scene
from eyechart.sites import Anatomy
from eyechart.tally import Concat, Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.training.as_trained import as_trained

TOLERANCE = 1e-3
"""Relative, of every eigenvalue (see `curvature/lanczos.py`); true errors were at most 2e-4 on the zoo."""
PRODUCTS = 40
"""At most, for a minibatch; 16 to 27 were needed on the zoo."""
LOOSE = 1e-2
"""An eigenvalue whose error is above this part of it counts as unsettled."""
BARELY = 1e-4
"""Of the largest magnitude: nearer to zero than this nothing is called negative or positive."""


@dataclass
class HessianTally(Tally):
    image: Annotated[Tensor, Concat("image", dtype="int64")]
    """The number of the minibatch."""
    fold: Annotated[Tensor, Concat("image", dtype="int64")]
    values: Annotated[Tensor, Concat("image", "subject", "variant", "rank")]
    residuals: Annotated[Tensor, Concat("image", "subject", "variant", "rank")]
    errors: Annotated[Tensor, Concat("image", "subject", "variant", "rank")]
    ends: Annotated[Tensor, Concat("image", "subject", "variant", "end")]
    """The algebraically smallest and largest eigenvalue."""
    end_errors: Annotated[Tensor, Concat("image", "subject", "variant", "end")]
    products: Annotated[Tensor, Concat("image", "subject", "variant")]
    refused: Annotated[Tensor, Sum("fold", "subject")]
    """Minibatches without result: some operation of the subject has no second derivative."""
    dealt: Annotated[Tensor, Sum("fold", "dealt_fold")]
    minibatches: Annotated[Tensor, Sum("fold", counts=True)]


@dataclass(frozen=True)
class HessianSpectrum(SampledExperiment):
    name = "hessian"
    title = "Is the loss convex here, and how sharp?"
    title_ko = "손실은 여기서 볼록한가, 얼마나 날카로운가?"
    order = 70
    chapter = "loss"
    sources = (
        Source("Park & Kim 2022", "Figures 1c, 4, 6"),
        Source("Chen, Hsieh & Gong 2022", "the reverse: converged ViTs in sharp minima"),
    )
    how_to_read = (
        "The curves show where the largest eigenvalues (in magnitude) of the loss's Hessian lie, over minibatches: "
        "first the negative ones, next the positive ones, on their own scales. Negative mass means directions in which "
        "the "
        "loss curves downwards, so it is not convex there; positive mass far from 0 means a sharp loss. Ticks are "
        "single "
        "eigenvalues. Below: the share of negative ones (NEP) and the mean of the positive ones (APE), and the "
        "algebraically smallest and largest eigenvalue, with and without augmentation and weight penalty, because the "
        "answer depends on them. An open mark holds eigenvalues that are not known to 1 %. An interval cut off by its "
        "panel is wider than can be drawn."
    )
    how_to_read_ko = (
        "곡선은 미니배치마다 구한 손실 헤시안의 (크기로) 큰 고윳값들의 분포이다. 처음은 음수, 다음은 양수이고 눈금이 "
        "서로 다르다. 음수에 질량이 있으면 손실이 아래로 휘는 방향이 있어 볼록하지 않고, 양수가 0에서 멀리 있으면 "
        "날카롭다. 짧은 눈금은 고윳값 하나하나이다. 아래는 음수의 비율(NEP)과 양수의 평균(APE)이며, 증강과 가중치 "
        "벌점의 유무에 따라 답이 달라지므로 넷을 모두 보인다. 그 아래는 가장 작은 고윳값과 가장 큰 고윳값이다. 속이 빈 "
        "표에는 1 %까지 확정되지 않은 고윳값이 섞여 있다. 그림 끝에서 잘린 구간은 그릴 수 있는 것보다 넓다."
    )
    method = (
        "For each minibatch of 16 images the five eigenvalues of largest magnitude of the exact Hessian of the loss in "
        "all parameters (norms in eval mode, attention unfused), by Lanczos with full reorthogonalisation until every "
        "estimated error is below 1e-3, or 40 products are spent; the algebraically smallest and largest are computed "
        "to 1e-2. Eigenvalues that are then not known to 1 % are marked. Negative or positive is what lies beyond 1e-4 "
        "of the largest and beyond its residual. Losses: soft-target cross-entropy on images augmented by a recipe "
        "(options augmentation, recipe) or plain cross-entropy on clean ones; penalty 0.05·Σ‖p‖ over tensors p as in "
        "the paper's code (options l2, weight), near-zero tensors left out. The images are those of the exam, usually "
        "test images, where the paper took training images (--images sample:train gives some). Intervals are over "
        "minibatches, those of APE and its ratios on a plain and a logarithmic scale, whichever reaches farther, "
        "because such a mean depends on a few steep minibatches. With few minibatches, one of them far steeper than "
        "the rest, these intervals are too narrow."
    )
    labels = "subjects"
    # 8 and 80 minibatches of zoo:vit (C44's .05 takes 72 without a negative eigenvalue); one second says nothing
    budget = {"normal": 340.0, "full": 3500.0}  # noqa: RUF012
    least_images = 128
    quantities = (
        *per_variant(),
        share_gap(
            "nep_class_token_over_gap",
            taken_at("warmup", against("nep", PAPER, operator.sub, "class-token", "mean")),
            "share of negative Hessian eigenvalues, ViT with class token minus its twin with average pooling",
            PAPER,
        ),
        share_gap(
            "nep_over_staged",
            against("nep", PAPER, operator.sub, "vit", "staged"),
            "share of negative Hessian eigenvalues, ViT minus a transformer with stages and global attention",
            PAPER,
        ),
        steepness(
            "negative_size_over_windowed",
            against("negative_size", PAPER, ratio, "vit", "windowed"),
            "mean size of negative Hessian eigenvalues, ViT divided by a transformer with windows",
            PAPER,
            "negative",
        ),
        small_share(
            "nep_windowed",
            of_second("nep", PAPER, "vit", "windowed"),
            "share of negative Hessian eigenvalues of the transformer with windows beside a ViT",
            PAPER,
        ),
    )

    images: int = option(0, "how many images are used, in whole minibatches; 0: as many as the effort allows")
    batch: int = option(16, "images in a minibatch: the negative share depends on it")
    top: int = option(5, "how many of the largest eigenvalues of each minibatch are computed")
    augmentation: Literal["both", "recipe", "none"] = option(
        "both", "pictures as the recipe augments them, as they are (none), or both"
    )
    recipe: str = option("zoo", "what augmentation means, for all subjects alike")
    l2: Literal["norms", "half", "none"] = option(
        "norms", "the weight penalty: the sum of norms (the paper's code), half of squares, or none"
    )
    weight: float = option(0.05, "the penalty's: the weight decay of Park & Kim's recipe and of the zoo's")

    def __post_init__(self) -> None:
        if self.batch < 1 or self.top < 1:
            raise UsageError("hessian.batch and hessian.top take at least 1.")

    def variants(self) -> list[str]:
        penalised = {"": True, " + penalty": self.l2 != "none"}
        shown = {"augmented": self.augmentation != "none", "clean": self.augmentation != "recipe"}
        return [name for name in VARIANTS if shown[name.split()[0]] and penalised[name.removeprefix(name.split()[0])]]

    def passes(self, anatomy: Anatomy) -> float:
        runs = 2 if self.augmentation == "both" else 1
        return runs * (20 * 6 + 4)  # 20 products, each as dear as six forward passes, and the gradient

    def subjects(self, scene: Scene) -> list[str]:
        return [subject for subject in scene.subjects if subject in scene.label_maps]

    def tally(self, scene: Scene) -> HessianTally:
        if scene.block < self.batch:
            raise DoesNotApply(
                f"it needs minibatches of {self.batch} images, and {scene.images} images come in blocks of "
                f"{scene.block}; give at least {16 * self.batch} images."
            )
        return HessianTally.empty(
            fold=scene.folds,
            dealt_fold=scene.folds,
            subject=len(self.subjects(scene)),
            variant=len(self.variants()),
            rank=self.top,
            end=2,
        )

    # --- on the bench -------------------------------------------------------------------------------------------

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        if bench.targets is None or (self.augmentation != "none" and bench.subject.colours is None):
            return {}
        with_classes = labelled(bench)
        block = bench.batch.start // bench.batch.index if bench.batch.index else len(bench)
        first = bench.batch.index * (block // self.batch)  # minibatches never reach over two blocks
        count = max(0, min(len(with_classes) // self.batch, self.images // self.batch - first))
        if not count:
            return {}
        numbers = {"number": first + torch.arange(count)}
        try:
            return numbers | self.spectra(with_classes.picked(torch.arange(count * self.batch)))
        except RuntimeError as error:
            if not no_second_derivative(error):
                raise
            return numbers

    def spectra(self, bench: Bench) -> dict[str, Tensor]:
        """Eigenvalues (minibatch, variant, …); a minibatch of augmented and one of clean pictures are two problems."""
        weights, loss = weights_and_loss(bench.subject)
        classes = bench.logits(bench.images[:1]).shape[1]
        shown: dict[str, tuple[Tensor, Tensor]] = {}
        if self.augmentation != "none":
            shown["augmented"] = as_trained(bench, self.recipe, self.batch, "hessian", classes)
        if self.augmentation != "recipe":
            assert bench.targets is not None
            shown["clean"] = bench.images, F.one_hot(bench.targets, classes).to(bench.images.dtype)
        together = [torch.cat(parts) for parts in zip(*shown.values(), strict=True)]
        batches = [part.reshape(-1, self.batch, *part.shape[1:]) for part in together]
        penalty = Penalty(self.l2, self.weight, weights)
        pairs = spectra(loss, weights, batches, penalty, top=self.top, tolerance=TOLERANCE, most=PRODUCTS)
        count = len(pairs) // len(shown)
        by_picture = {name: pairs[index * count : (index + 1) * count] for index, name in enumerate(shown)}
        tables = as_tensors(
            [
                [each.penalised if "penalty" in variant else each.plain for each in by_picture[variant.split()[0]]]
                for variant in self.variants()
            ]
        )
        # The penalty repeats its own eigenvalues, of which Lanczos sees one copy: below them the list may have gaps.
        penalised = torch.tensor(["penalty" in variant for variant in self.variants()])[:, None]
        doubtful = penalised & (tables["values"].abs() <= penalty.steepest_repeated)
        tables["errors"] = torch.where(doubtful, torch.inf, tables["errors"])
        return tables

    def update(self, tally: HessianTally, batch: Batch, views: Views, scene: Scene) -> None:
        seen = {subject: views.experiment(subject) for subject in self.subjects(scene)}
        longest = max((results["number"] for results in seen.values() if results), key=len, default=torch.zeros(0))
        if not len(longest):
            return
        rows: dict[str, Tensor] = {}
        for name in ("values", "residuals", "errors", "ends", "end_errors", "products"):
            shape = getattr(tally, name).shape[1:]
            rows[name] = torch.full((len(longest), *shape), torch.nan, dtype=torch.float64)
            for column, results in enumerate(seen.values()):
                if name in results:
                    rows[name][: len(results[name]), column] = results[name]
        fold = longest % scene.folds
        for column, results in enumerate(seen.values()):
            if results and "values" not in results:
                tally.add("refused", fold, None, column)
        ones = torch.ones(len(fold), dtype=torch.float64)
        tally.append(image=longest, fold=fold, **rows)
        tally.add("minibatches", fold)
        tally.dealt.index_put_((fold, fold), ones, accumulate=True)

    # --- the numbers --------------------------------------------------------------------------------------------

    def estimate(self, total: HessianTally, scene: Scene) -> xarray.Dataset:
        subjects, folds = self.subjects(scene), total.dealt.shape[0]
        in_fold = torch.bincount(total.fold, minlength=folds).clamp_min(1)
        counted = (total.dealt / in_fold)[total.fold].numpy()[:, None, None]
        values, residuals = total.values.numpy(), total.residuals.numpy()
        beyond = np.maximum(BARELY * np.abs(values[..., :1]), residuals)
        computed, negative, positive = ~np.isnan(values), values < -beyond, values > beyond
        sized = np.abs(np.nan_to_num(values))

        def mean(numbers: np.ndarray, of: np.ndarray) -> np.ndarray:
            """(subject, variant): `numbers` summed over what is counted, by how many; NaN of nothing."""
            many = (counted * of.sum(-1)).sum(0)
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(np.where(many > 0, (counted * numbers.sum(-1)).sum(0) / many, np.nan))

        each = ("subject", "variant")
        here = ("minibatch", *each)
        unsettled = computed & (total.errors.numpy() > LOOSE * np.abs(values))
        ends, end_errors = total.ends.numpy(), total.end_errors.numpy()
        end_known, rounding = ~np.isnan(ends), NOISE * np.abs(values).max(-1, keepdims=True, initial=0, where=computed)
        loose = end_known & (end_errors > np.maximum(LOOSE * np.abs(ends), rounding))  # the smallest may be zero
        minibatches = int(counted.sum())
        seen = computed.any(-1).sum(0)  # a subject that knows fewer of the classes may have met fewer minibatches
        share = {"limits": (0.0, 1.0), "trials": np.maximum(seen, 1)}
        return xarray.Dataset(
            {
                "nep": (each, mean(negative, computed), share),
                "ape": (each, mean(sized * positive, positive), {"limits": (0.0, np.inf)}),
                "negative_size": (each, mean(sized * negative, negative), {"limits": (0.0, np.inf)}),
                "smallest": (each, mean(np.nan_to_num(ends[..., :1]), end_known[..., :1])),
                "largest": (each, mean(np.nan_to_num(ends[..., 1:]), end_known[..., 1:])),
                "unsettled": (each, mean(unsettled, computed), share),
                "smallest_unsettled": (each, mean(loose[..., :1], end_known[..., :1]), share),
                "largest_unsettled": (each, mean(loose[..., 1:], end_known[..., 1:]), share),
                "products": (each, mean(np.nan_to_num(total.products.numpy())[..., None], computed[..., :1])),
                "negative": (here, np.where(computed.any(-1), negative.mean(-1), np.nan), {"exact": True}),
                "positive_sum": (here, np.where(computed.any(-1), (sized * positive).sum(-1), np.nan), {"exact": True}),
                "positive_count": (here, positive.sum(-1).astype(float), {"exact": True}),
                "negative_sum": (here, np.where(computed.any(-1), (sized * negative).sum(-1), np.nan), {"exact": True}),
                "negative_count": (here, negative.sum(-1).astype(float), {"exact": True}),
                "eigenvalue": ((*here, "rank"), values, {"exact": True}),
                "residual": ((*here, "rank"), residuals, {"exact": True}),
            },
            coords={
                "subject": subjects,
                "variant": self.variants(),
                "rank": np.arange(1, self.top + 1),
                "minibatch": total.image.numpy(),
                "kind": ("subject", [kind_of(scene.anatomy(subject)) for subject in subjects]),
                "shell": ("subject", [shell_of(scene.anatomy(subject)) for subject in subjects]),
                "build": ("subject", [str(build_of(scene.anatomy(subject))) for subject in subjects]),
                "snapshot": ("subject", [time_of(scene.spec(subject)) for subject in subjects]),
                "refused": ("subject", (total.refused.numpy() > 0).astype(int)),
            },
            attrs={
                "images": minibatches * self.batch,
                "minibatches": minibatches,
                "trials": int(seen[seen > 0].min(initial=max(minibatches, 1))),  # the eigenvalues of one come together
                "batch": self.batch,
            },
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        return spectra_in_words(finding)
