"""M19: does a sub-layer smooth the feature map or roughen it?

variance = mean over channels and images of the unbiased variance over positions
relative = variance / mean square, because the variance alone grows with the norm of the residual stream
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch

from eyechart.claims.verdict import ClaimTest, Part
from eyechart.errors import DoesNotApply
from eyechart.estimates import subjects_in
from eyechart.measures.measure import Batch, Measure, PerSubjects, Quantity, Scene, Source, Views, site_coordinates
from eyechart.sites import Anatomy, Layout, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need, View

if TYPE_CHECKING:
    import xarray


def variance_and_square(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """(image, 2): variance over positions and mean square, both averaged over channels.

    Centred by hand and in the model's own layout: `Tensor.var` takes 15 times as long on a CPU.
    """
    features = tensor.float()
    positions = tuple(layout.axes.index(letter) for letter in "YXT" if letter in layout.axes)
    if "T" in layout.axes:
        features = features.narrow(positions[0], layout.prefix, features.shape[positions[0]] - layout.prefix)
    mean = features.mean(positions, keepdim=True)
    count = features[0].numel() // mean[0].numel()
    squares = torch.linalg.vector_norm(features - mean, dim=positions).square()
    mean_square = squares / count + mean.flatten(1).square()
    return torch.stack([(squares / (count - 1)).mean(1), mean_square.mean(1)], dim=1)


SPREAD = View("variance over positions", lambda look: variance_and_square(look.output, look.site.layout))
SKIP_SPREAD = View(
    "variance of the skip", lambda look: variance_and_square(look.skip, look.site.layout)[:, 0], before=True
)


def sub_layers(anatomy: Anatomy) -> Sequence[Site]:
    """The stem, then what each sub-layer leaves on the stream.

    A block with one junction is read at its output, as the next block sees it (after ResNet's last ReLU); a block with
    several (attention, then MLP) at each of its sums.
    """
    chosen = [site for site in anatomy.pick("stem") if has_map(site)]
    for block in anatomy.pick("block"):
        inside = [site for site in anatomy.pick("junction") if site.block == block.block]
        chosen += [site for site in (inside if len(inside) > 1 else [block]) if has_map(site)]
    return chosen


def has_map(site: Site) -> bool:
    plain = site.layout.axes in ("NTC", "NCT", "NCYX", "NYXC")
    return plain and site.grid is not None and site.grid[0] * site.grid[1] > 1


def skip_of(anatomy: Anatomy, site: Site) -> Site | None:
    """The junction at which a sub-layer meets its skip; None where it has none, or where that is projected.

    A projected skip is on another grid or has other channels, so that before and after would not compare.
    """
    inside = [site] if site.role == "junction" else [j for j in anatomy.pick("junction") if j.block == site.block]
    if site.role == "stem" or len(inside) != 1 or inside[0].projected or not has_map(inside[0]):
        return None
    return inside[0]


def skips(anatomy: Anatomy) -> Sequence[Site]:
    return [skip for site in sub_layers(anatomy) if (skip := skip_of(anatomy, site)) is not None]


@dataclass
class VarianceTally(Tally):
    variance: Annotated[torch.Tensor, Sum("fold", "site")]
    square: Annotated[torch.Tensor, Sum("fold", "site")]
    skip_variance: Annotated[torch.Tensor, Sum("fold", "site")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


def steps(estimate: xarray.Dataset) -> np.ndarray:
    """What each sub-layer does to the log variance: its result against the skip it met; NaN where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(estimate.variance.values) - np.log(estimate.skip_variance.values))


def of_kind(estimate: xarray.Dataset, subject: str, kind: str) -> np.ndarray:
    """Positions of a subject's sub-layers of one kind that have an unprojected skip."""
    mine = (estimate.subject.values == subject) & (estimate.kind.values == kind)
    return np.flatnonzero(mine & estimate.has_skip.values)


def sign_test(changes: np.ndarray, rising: bool) -> float:
    """How clearly most sub-layers go one way: the z of a sign test, corrected for continuity (5 % one-sided: 1.645)."""
    moved = changes[changes != 0]
    if len(moved) == 0 or not np.isfinite(moved).all():
        return float("nan")
    agree, half = float(np.sum(moved > 0 if rising else moved < 0)), len(moved) / 2
    return float(np.sign(agree - half) * max(abs(agree - half) - 0.5, 0) / (np.sqrt(len(moved)) / 2))


def directions(kind: str, rising: bool, of: Literal["vit", "cnn"]) -> Callable[[xarray.Dataset], PerSubjects]:
    """Sign test over the sub-layers of one kind, for every (ViT, CNN) with at least five of each kind."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        change, result = steps(estimate), PerSubjects()
        for vit in subjects_in(estimate, "vit"):
            for cnn in subjects_in(estimate, "cnn"):
                needed = ((vit, "attention"), (vit, "mlp"), (cnn, "conv"))
                if all(len(of_kind(estimate, *who)) >= 5 for who in needed):
                    places = of_kind(estimate, vit if of == "vit" else cnn, kind)
                    result[vit, cnn] = sign_test(change[places], rising)
        return result

    return compute


def stage_position(estimate: xarray.Dataset) -> PerSubjects:
    """Attention minus MLP, at the last block of a stage minus at the first; mean over a staged transformer's stages."""
    change, result = steps(estimate), PerSubjects()
    blocks, stages = estimate.block.values, estimate.stage.values
    for subject in subjects_in(estimate, "staged transformer"):
        attention = {blocks[place]: place for place in of_kind(estimate, subject, "attention")}
        mlp = {blocks[place]: place for place in of_kind(estimate, subject, "mlp")}
        gaps: dict[int, list[float]] = {}
        for block in sorted(attention.keys() & mlp.keys()):
            gap = change[attention[block]] - change[mlp[block]]
            gaps.setdefault(int(stages[attention[block]]), []).append(float(gap))
        contrasts = [gap[-1] - gap[0] for gap in gaps.values() if len(gap) >= 2]
        if contrasts:
            result[subject,] = float(np.mean(contrasts))
    return result


KIND_WORDS = {"mlp": "MLP", "conv": "convolution"}  # in sentences, as the legends have them


@dataclass(frozen=True)
class FeatureVariance(Measure):
    name = "feature_variance"
    title = "What smooths, what roughens?"
    title_ko = "무엇이 매끄럽게, 무엇이 거칠게 하는가?"
    order = 40
    sources = (Source("Park & Kim 2022", "Figures 9, D.1"),)
    how_to_read = (
        "How much the feature map differs from place to place, after every sub-layer. Grey circles follow attention, "
        "white marks an MLP or a convolution, blue a change of grid. A step down is smoothing, as averaging would do; "
        "a step up is sharpening. Left as in the paper; right divided by the mean square of the features, because the "
        "plain variance also grows when all features grow. In Swin, first and last blocks of a stage also differ in "
        "the shift of their windows."
    )
    how_to_read_ko = (
        "각 부분층 뒤에서 특징 지도가 위치마다 얼마나 다른지를 보인다. 회색 원은 어텐션, 흰 표시는 MLP나 합성곱 뒤, "
        "파란색은 격자가 바뀐 곳이다. 내려가면 평활, 올라가면 선명화이다. 오른쪽은 특징의 제곱평균으로 나눈 값이다."
    )
    method = (
        "Unbiased variance over grid positions (prefix tokens dropped), averaged over channels and images, after the "
        "stem and after every sub-layer; a block with a single residual addition is read at its output. A step is "
        "the log variance of a sub-layer's result minus that of the skip it met; projected shortcuts are left out."
    )
    quantities = (
        Quantity(
            "attention_lowers_variance",
            directions("attention", False, "vit"),
            "attention, sign test",
            smooth=False,
            unit="z",
        ),
        Quantity("mlp_raises_variance", directions("mlp", True, "vit"), "MLP, sign test", smooth=False, unit="z"),
        Quantity(
            "conv_raises_variance", directions("conv", True, "cnn"), "convolution, sign test", smooth=False, unit="z"
        ),
        Quantity(
            "stage_position_interaction", stage_position, "attention minus MLP, stage end minus stage start", unit="log"
        ),
    )
    claims = (
        ClaimTest(
            "C58",
            (
                Part(
                    "attention_lowers_variance",
                    "above",
                    1.645,
                    "sign test (z) that most attentions of {0} lower the variance",
                    fails_at=0,
                ),
                Part(
                    "mlp_raises_variance",
                    "above",
                    1.645,
                    "sign test (z) that most MLPs of {0} raise the variance",
                    fails_at=0,
                ),
                Part(
                    "conv_raises_variance",
                    "above",
                    1.645,
                    "sign test (z) that most convolutions of {1} raise the variance",
                    fails_at=0,
                ),
            ),
        ),
        ClaimTest(
            "C59",
            (
                Part(
                    "stage_position_interaction",
                    "above",
                    0,
                    "log change of variance in {0}, attention minus MLP, last minus first block of a stage",
                ),
            ),
        ),
    )

    def needs(self) -> Sequence[Need]:
        return [Need(SPREAD, sub_layers), Need(SKIP_SPREAD, skips)]

    def tally(self, scene: Scene) -> VarianceTally:
        if not scene.sites(sub_layers):
            raise DoesNotApply("no subject has feature maps with more than one position.")
        return VarianceTally.empty(fold=scene.folds, site=len(scene.sites(sub_layers)))

    def update(self, tally: VarianceTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = torch.as_tensor(batch.image_folds)
        for row, (subject, site) in enumerate(scene.sites(sub_layers)):
            seen = views(subject, site, SPREAD).double()
            tally.variance[:, row].index_add_(0, folds, seen[:, 0])
            tally.square[:, row].index_add_(0, folds, seen[:, 1])
            skip = skip_of(scene.anatomy(subject), site)
            if skip is not None:
                tally.skip_variance[:, row].index_add_(0, folds, views(subject, skip, SKIP_SPREAD).double())
        tally.images.index_add_(0, folds, torch.ones(len(folds), dtype=torch.float64))

    def estimate(self, total: VarianceTally, scene: Scene) -> xarray.Dataset:
        import xarray

        sites = scene.sites(sub_layers)
        variance, square = (total.variance / total.images).numpy(), (total.square / total.images).numpy()
        has_skip = np.array([skip_of(scene.anatomy(subject), site) is not None for subject, site in sites])
        skip_variance = np.where(has_skip, (total.skip_variance / total.images).numpy(), np.nan)
        return xarray.Dataset(
            {
                "variance": ("site", variance, {"limits": (0.0, np.inf)}),
                "relative": ("site", variance / np.where(square > 0, square, np.nan), {"limits": (0.0, np.inf)}),
                "skip_variance": ("site", skip_variance, {"limits": (0.0, np.inf)}),
            },
            coords=site_coordinates(scene, sites) | {"has_skip": ("site", has_skip)},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        change, parts = steps(finding), []
        for subject in subjects_in(finding):
            counts = []
            for kind in dict.fromkeys(finding.kind.values[finding.subject.values == subject].tolist()):
                places = of_kind(finding, subject, kind)
                if len(places):
                    rising = int((change[places] > 0).sum())
                    counts.append(f"{rising} of {len(places)} {KIND_WORDS.get(kind, kind)} sub-layers")
            if counts:
                parts.append(f"in {subject} the variance rises in {' and '.join(counts)}")
        said = "; ".join(parts) or "no sub-layer has an unprojected skip"
        return said[0].upper() + said[1:] + "."
