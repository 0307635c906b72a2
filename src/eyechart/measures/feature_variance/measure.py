"""M19: does a sub-layer smooth the feature map or roughen it?

    variance = mean over channels and images of the unbiased variance over positions
    relative = variance / mean square, because the variance alone grows with the norm of the residual stream

Neither scale is safe alone: the variance rises with any branch that is not the opposite of the stream, and the relative
one falls with any branch that adds a constant. So claims are read on both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch
import xarray

from eyechart.errors import DoesNotApply
from eyechart.measure import Measure, Source, Views, site_coordinates
from eyechart.methods.steps import KIND_WORDS, UNMOVED, beyond_rounding, surely
from eyechart.quantity import Compute, Quantity, of_each, of_pairs, subjects_in
from eyechart.scene import Batch, Scene
from eyechart.site_choice import skip_of, skips_of_sub_layers, sub_layers
from eyechart.sites import Layout
from eyechart.tally import Sum, Tally
from eyechart.tracing.in_cache import by_images
from eyechart.tracing.needs import Need, View
from eyechart.tracing.views import Look


def variance_and_square(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """(image, 2): variance over positions and mean square, both averaged over channels."""
    if "T" in layout.axes:
        tokens = layout.axes.index("T")
        tensor = tensor.narrow(tokens, layout.prefix, tensor.shape[tokens] - layout.prefix)
    positions = tuple(layout.axes.index(letter) for letter in "YXT" if letter in layout.axes)
    # `torch.var_mean` reads the features once; it takes 15 times as long on a CPU and a third of the time on a GPU.
    of_images = partial(read_once if tensor.is_cuda else centred_first, positions=positions)
    mean, squares = by_images(of_images, tensor).unbind(1)
    count = math.prod(tensor.shape[axis] for axis in positions)
    return torch.stack([squares / (count - 1), squares / count + mean], dim=1)


def read_once(tensor: torch.Tensor, positions: tuple[int, ...]) -> torch.Tensor:
    """(image, 2), averaged over channels: squared mean, and sum of squared differences from it, over positions."""
    variance, mean = torch.var_mean(tensor.float(), positions, correction=0, keepdim=True)
    count = math.prod(tensor.shape[axis] for axis in positions)
    return torch.stack([mean.flatten(1).square().mean(1), (variance.flatten(1) * count).mean(1)], dim=1)


def centred_first(tensor: torch.Tensor, positions: tuple[int, ...]) -> torch.Tensor:
    """The same, with lengths along the last axes, as features lie in memory: over tokens they take 12 times as long."""
    features = tensor.float()
    mean = features.mean(positions, keepdim=True)
    last = positions if tensor.ndim - 1 in positions else (tensor.ndim - 1,)
    lengths = torch.linalg.vector_norm(features - mean, dim=last)
    channels = mean[0].numel()
    return torch.stack([mean.flatten(1).square().mean(1), lengths.flatten(1).square().sum(1) / channels], dim=1)


def spread(look: Look, tensor: torch.Tensor) -> torch.Tensor:
    """What one sub-layer leaves is what the next one's skip carries: where it is the same tensor, it is read once."""
    layout = look.site.layout
    return look.of_same(tensor, ("spread", layout.axes, layout.prefix), lambda: variance_and_square(tensor, layout))


SPREAD = View("variance over positions", lambda look: spread(look, look.output))
SKIP_SPREAD = View("variance of the skip", lambda look: spread(look, look.skip), before=True)


@dataclass
class VarianceTally(Tally):
    variance: Annotated[torch.Tensor, Sum("fold", "site")]
    square: Annotated[torch.Tensor, Sum("fold", "site")]
    skip_variance: Annotated[torch.Tensor, Sum("fold", "site")]
    skip_square: Annotated[torch.Tensor, Sum("fold", "site")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


SCALES = {"step": "", "relative_step": "_relative"}
"""On which scale a sub-layer's step is read, and what that adds to the name of a quantity."""


def of_kind(estimate: xarray.Dataset, subject: str, kind: str) -> np.ndarray:
    """Rows of a subject's sub-layers of one kind that have an unprojected skip."""
    column = estimate.variables  # `estimate.kind` gathers all columns beside it, and this is asked for every draw
    of_subject = (column["subject"].values == subject) & (column["kind"].values == kind)
    return np.flatnonzero(of_subject & column["has_skip"].values)


def of_first_half(estimate: xarray.Dataset, subject: str, kind: str) -> np.ndarray:
    """Those in the first half of a ViT's blocks, of which the paper speaks; a middle block counts.

    With five of nine blocks a sign test can be clear (5 of 5: p = .031), with four it could not (4 of 4: .063).
    """
    block, rows = estimate.variables["block"].values, of_kind(estimate, subject, kind)
    last = block[estimate.variables["subject"].values == subject].max()
    return np.asarray(rows[(block[rows] + 0.5) / (last + 1) <= 0.5])


def moved(changes: np.ndarray) -> np.ndarray:
    """Changes of sub-layers that change anything; those of the others say nothing about which way."""
    return np.asarray(changes[beyond_rounding(changes) != 0])


def share_that(rising: bool) -> Callable[[np.ndarray], float]:
    """The share of the sub-layers that raise (or lower) it, of those that move it at all."""

    def share(changes: np.ndarray) -> float:
        moving = moved(changes)
        if not len(moving) or not np.isfinite(changes).all():
            return float("nan")
        return float(np.mean(moving > 0 if rising else moving < 0))

    return share


def directions(kind: str, scale: str, of: Callable[[np.ndarray], float]) -> Compute:
    """Of the sub-layers of one kind, for every (ViT, CNN) with at least five of each kind."""

    def number(estimate: xarray.Dataset, vit: str, cnn: str) -> float | None:
        rows = {name: of_first_half(estimate, vit, name) for name in ("attention", "mlp")}
        rows["conv"] = of_kind(estimate, cnn, "conv")
        return of(estimate.variables[scale].values[rows[kind]]) if min(map(len, rows.values())) >= 5 else None

    return of_pairs(number)


def at_stage_ends(scale: str, first: float, last: float) -> Compute:
    """Change by attention in the first block of a stage, times `first`, plus that in the last, times `last`; mean."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        rows = of_kind(estimate, subject, "attention")
        stages = [rows[estimate.stage.values[rows] == stage] for stage in set(estimate.stage.values[rows])]
        ends = [beyond_rounding(estimate[scale].values[stage[[0, -1]]]) for stage in stages if len(stage) >= 2]
        return float(np.mean(ends, axis=0) @ [first, last]) if ends else None

    return of_each(number, "staged transformer")


@dataclass(frozen=True)
class FeatureVariance(Measure):
    name = "feature_variance"
    title = "What smooths, what roughens?"
    title_ko = "무엇이 매끄럽게, 무엇이 거칠게 하는가?"
    order = 40
    adds_up_anywhere = True
    chapter = "frequency"
    sources = (Source("Park & Kim 2022", "Figures 9, D.1"),)
    how_to_read = (
        "Top: how much the feature map differs from place to place, after every sub-layer. Grey circles follow "
        "attention, white marks an MLP or a convolution, black circles a change of grid (sub-sampling). First as in "
        "the paper; next divided by the mean square of the features, because the plain variance also grows when all "
        "features grow. The divided one also falls when only the mean of the features grows, so both are read. Below: "
        "what each sub-layer does to either. Below 0 it smooths, as averaging would do; above 0 it sharpens. The "
        "paper's claim is about the first half of a ViT's blocks, left of the dashed line (of an odd number of blocks "
        "the middle one belongs to it). Where windows shift, as in a Swin, first and last blocks of a stage also "
        "differ in that shift."
    )
    how_to_read_ko = (
        "위: 각 부분층 뒤에서 특징 맵이 위치마다 얼마나 다른지를 보인다. 회색 원은 어텐션, 흰 표시는 MLP나 합성곱 뒤, "
        "검은 원은 격자가 바뀐 곳(서브샘플링)이다. 처음은 논문과 같은 분산이고, 다음은 특징의 제곱평균으로 나눈 "
        "값이다. 그냥 분산은 특징이 모두 커지기만 해도 커지고, 나눈 값은 특징의 평균만 커져도 내려가므로 둘 다 읽는다. "
        "아래: 각 부분층이 그 값을 얼마나 바꾸는지를 보인다. 0보다 낮으면 평균을 내듯 평활하고, 높으면 선명하게 한다. "
        "논문의 주장은 ViT 블록의 앞 절반(파선 왼쪽; 블록이 홀수이면 가운데 블록도 든다)에 관한 것이다. Swin처럼 창을 "
        "옮기는 모델이면 단계의 첫 블록과 마지막 블록은 창을 옮기는지도 다르다."
    )
    method = (
        "Unbiased variance over grid positions (prefix tokens dropped), averaged over channels and images, after the "
        "stem and after every sub-layer; a block with a single residual addition is read at its output. A step is the "
        "log of the variance (or of variance over mean square) after a sub-layer minus that of the skip at its "
        "residual addition; projected shortcuts are left out. A sub-layer clearly raises it where the whole interval "
        "of its step lies above 0. Sign tests ask whether most attentions and MLPs in the first half of a ViT, and "
        "most convolution blocks of a CNN, go one way: the exact 90 % interval of the share that does, 5 % on each "
        "side, must lie above one half."
    )
    quantities = (
        *(
            Quantity(
                f"{name}{suffix}",
                directions(kind, scale, share_that(rising)),
                f"{words}: share that {'raise' if rising else 'lower'} the variance{over} (exact 90 % interval, 5 % on "
                "each side)",
                smooth=False,
                limits=(0, 1),
                among=directions(kind, scale, lambda changes: len(moved(changes))),
            )
            for scale, suffix, over in ((*each, " over the mean square" if each[1] else "") for each in SCALES.items())
            for name, kind, rising, words in (
                ("attention_lowers_variance", "attention", False, "attention, first half of the blocks"),
                ("mlp_raises_variance", "mlp", True, "MLP, first half of the blocks"),
                ("conv_raises_variance", "conv", True, "convolution blocks"),
            )
        ),
        *(
            Quantity(
                f"{name}{suffix}",
                at_stage_ends(scale, *ends),
                f"change of the variance at attention, {words}{', over the mean square' if suffix else ''}",
                unit="log",
            )
            for scale, suffix in SCALES.items()
            for name, ends, words in (
                ("attention_at_stage_start", (1.0, 0.0), "first block of a stage"),
                ("attention_at_stage_end", (0.0, 1.0), "last block of a stage"),
                ("attention_stage_contrast", (-1.0, 1.0), "last minus first block of a stage"),
            )
        ),
    )

    def needs(self) -> Sequence[Need]:
        return [Need(SPREAD, sub_layers), Need(SKIP_SPREAD, skips_of_sub_layers)]

    def tally(self, scene: Scene) -> VarianceTally:
        if not scene.sites(sub_layers):
            raise DoesNotApply("no subject has feature maps with more than one position.")
        return VarianceTally.empty(fold=scene.folds, site=len(scene.sites(sub_layers)))

    def update(self, tally: VarianceTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = views.put(batch.image_folds)
        sites = scene.sites(sub_layers)
        after = torch.stack([views(subject, site, SPREAD) for subject, site in sites], dim=1)  # (image, site, 2)
        skips = [skip_of(scene.anatomy(subject), site) for subject, site in sites]
        before = torch.stack(
            [
                torch.zeros_like(after[:, 0]) if skip is None else views(subject, skip, SKIP_SPREAD)
                for (subject, _), skip in zip(sites, skips, strict=True)
            ],
            dim=1,
        )
        for prefix, seen in (("", after.double()), ("skip_", before.double())):
            tally.add(f"{prefix}variance", folds, seen[..., 0])
            tally.add(f"{prefix}square", folds, seen[..., 1])
        tally.add("images", folds)

    def estimate(self, total: VarianceTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(sub_layers)
        has_skip = np.array([skip_of(scene.anatomy(subject), site) is not None for subject, site in sites])
        variance, square, skip_variance, skip_square = (
            (summed / total.images).numpy()
            for summed in (total.variance, total.square, total.skip_variance, total.skip_square)
        )
        skip_variance, skip_square = (np.where(has_skip, each, np.nan) for each in (skip_variance, skip_square))
        relative, skip_relative = (
            each / np.where(squares > 0, squares, np.nan)
            for each, squares in ((variance, square), (skip_variance, skip_square))
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            step, relative_step = np.log(variance / skip_variance), np.log(relative / skip_relative)
        size = {"limits": (0.0, np.inf)}
        return xarray.Dataset(
            {
                "variance": ("site", variance, size),
                "relative": ("site", relative, size),
                "skip_variance": ("site", skip_variance, size),
                "step": ("site", step),
                "relative_step": ("site", relative_step),
            },
            coords=site_coordinates(scene, sites) | {"has_skip": ("site", has_skip)},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            counts = []
            for kind in dict.fromkeys(finding.kind.values[finding.subject.values == subject].tolist()):
                rows = of_kind(finding, subject, kind)
                if len(rows):
                    rising, over = (int((surely(finding, scale)[rows] > UNMOVED).sum()) for scale in SCALES)
                    sub_layers = f"{len(rows)} {KIND_WORDS.get(kind, kind)} sub-layers"
                    counts.append(f"at {rising} of {sub_layers} (over the mean square: at {over})")
            if counts:
                parts.append(f"in {subject} the variance clearly rises {' and '.join(counts)}")
        said = "; ".join(parts) or "no sub-layer has an unprojected skip"
        return f"{said[0].upper()}{said[1:]}."
