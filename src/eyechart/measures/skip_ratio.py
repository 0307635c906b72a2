"""M5, M5b: what rides the skip? At every residual addition z + f(z), per token,

    ratio = ‖z‖ / ‖f(z)‖            cosine = cos(z, z + f(z))

and the mean over images of the per-token values (not the ratio of means: 1.65 against 0.60 on skewed data).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch

from eyechart.claims.verdict import ClaimTest, Part
from eyechart.errors import DoesNotApply
from eyechart.estimates import halves, places_of, subjects_in
from eyechart.measures.measure import Batch, Measure, PerSubjects, Quantity, Scene, Source, Views, site_coordinates
from eyechart.methods.skip_ratio import SKIP_AND_BRANCH, junctions, tokens_of
from eyechart.sites import Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need

if TYPE_CHECKING:
    import xarray


@dataclass
class SkipRatioTally(Tally):
    ratio: Annotated[torch.Tensor, Sum("fold", "site", "token")]
    cosine: Annotated[torch.Tensor, Sum("fold", "site", "token")]
    branch_cosine: Annotated[torch.Tensor, Sum("fold", "site", "token")]
    finite: Annotated[torch.Tensor, Sum("fold", "site", "token")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


def profile(estimate: xarray.Dataset, subject: str, variable: str, token: str, kind: str | None = None) -> np.ndarray:
    """One value a block: `variable` at the class token or averaged over the grid, averaged over the block's junctions.

    Ratios are read as logarithms: they are skewed, and one block with a ratio of 50 would decide a plain mean.
    """
    mine = estimate.subject.values == subject
    if kind is not None:
        mine &= estimate.kind.values == kind
    part = estimate.isel(site=mine)
    values = part[f"{variable}_{token}"].values
    values = np.log(values) if variable == "ratio" else values
    blocks = part.block.values
    return np.array([values[blocks == block].mean() for block in dict.fromkeys(blocks.tolist())])


def with_class_token(estimate: xarray.Dataset) -> list[str]:
    """ViTs whose class token is there at every junction and is what the classifier reads (CaiT's enters late)."""
    return [s for s in subjects_in(estimate, "vit") if estimate.class_token.values[places_of(estimate, s)].all()]


def class_token_phase(variable: str) -> Callable[[xarray.Dataset], PerSubjects]:
    """First half minus second half of (class token minus grid): above 0 if the class token rides the skip early."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        result: PerSubjects = {}
        for subject in with_class_token(estimate):
            gap = profile(estimate, subject, variable, "cls") - profile(estimate, subject, variable, "grid")
            if len(gap) >= 2:
                first, second = halves(gap)
                result[subject,] = first - second
        return result

    return compute


def half_change(token: str) -> Callable[[xarray.Dataset], PerSubjects]:
    """The phase change of one kind of token by itself: the other may make up the difference of the two alone."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        result: PerSubjects = {}
        for subject in with_class_token(estimate):
            ratios = profile(estimate, subject, "ratio", token)
            if len(ratios) >= 2:
                first, second = halves(ratios)
                result[subject,] = first - second
        return result

    return compute


def agreement(variable: str) -> Callable[[xarray.Dataset], PerSubjects]:
    """The phase change by a cosine, counted positive where it goes the way of the ratio's.

    Not smooth: a ratio that may go either way makes the sign jump, which leaving out one fold in turn hardly ever sees.
    Of 40 exams without any phase change of the ratio the jackknife let 27 decide, at random; the bootstrap 4.
    """

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        ratio, cosine = class_token_phase("ratio")(estimate), class_token_phase(variable)(estimate)
        return {subjects: float(np.sign(ratio[subjects])) * cosine[subjects] for subjects in cosine}

    return compute


def late_attention_over_mlp(estimate: xarray.Dataset) -> PerSubjects:
    """Class token, second half: log ratio at attention minus at the MLP. Above 0 if it is the MLPs that change it."""
    result: PerSubjects = {}
    for subject in with_class_token(estimate):
        attention = profile(estimate, subject, "ratio", "cls", "attention")
        mlp = profile(estimate, subject, "ratio", "cls", "mlp")
        if len(attention) == len(mlp) >= 2:
            result[subject,] = halves(attention - mlp)[1]
    return result


def share_above(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.mean(one > other)) if np.isfinite(one + other).all() else float("nan")


def higher_share(estimate: xarray.Dataset) -> PerSubjects:
    """Share of the depth at which the ViT's grid tokens have a higher skip ratio than the CNN's locations."""
    depths = (np.arange(100) + 0.5) / 100
    curve_of = {}
    for subject in subjects_in(estimate):
        # A CNN is read junction by junction, a transformer block by block: both in order of execution.
        values = profile(estimate, subject, "ratio", "grid")
        if len(values) >= 2:
            curve_of[subject] = np.interp(depths, (np.arange(len(values)) + 0.5) / len(values), values)
    return {
        (vit, cnn): share_above(curve_of[vit], curve_of[cnn])
        for vit in subjects_in(estimate, "vit")
        for cnn in subjects_in(estimate, "cnn")
        if vit in curve_of and cnn in curve_of
    }


def class_token_place(scene: Scene, subject: str, site: Site) -> int:
    """Which token is the class token here; -1 where there is none, or where the classifier does not read it."""
    anatomy = scene.anatomy(subject)
    there = anatomy.cls is not None and anatomy.pooling == "cls" and site.layout.prefix > anatomy.cls
    return anatomy.cls if there and anatomy.cls is not None else -1


def mean_where(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Mean of each row over the chosen columns; NaN where one of them is, or where there are none."""
    count = chosen.sum(1)
    return np.where(count > 0, np.where(chosen, values, 0).sum(1) / np.maximum(count, 1), np.nan)


@dataclass(frozen=True)
class SkipRatio(Measure):
    name = "skip_ratio"
    title = "What rides the skip?"
    title_ko = "무엇이 스킵 연결을 타고 가는가?"
    order = 30
    sources = (Source("Raghu et al. 2021", "Figures 7, E.1, E.2"),)
    how_to_read = (
        "At every residual addition the incoming vector z meets what the branch adds, f(z). A ratio ‖z‖/‖f(z)‖ of 10 "
        "means that the token passes almost unchanged; 1 means that the branch writes as much as was there. Curves: "
        "the ratio over depth, for grid tokens and for the class token. Maps, on one colour scale: every token of "
        "every junction; the class token is the first column. In the original, the class token rides the skip in "
        "the first half and changes in the second, and grid tokens do the opposite."
    )
    how_to_read_ko = (
        "잔차 덧셈마다 들어온 벡터 z와 가지가 더하는 f(z)를 비교한다. 비율 ‖z‖/‖f(z)‖이 10이면 토큰이 거의 그대로 "
        "지나가고, 1이면 가지가 있던 만큼을 새로 쓴다. 곡선은 깊이에 따른 비율, 지도는 모든 토큰과 접점이다(첫 열이 "
        "CLS)."
    )
    method = (
        "Per token, ‖z‖/‖f(z)‖ and cos(z, z + f(z)) before the addition runs, averaged over images (mean of ratios). A "
        "CNN's token is the channel vector of one location; at a projected shortcut z is the projected one. Grids "
        "finer than 16×16 are averaged into 16×16 cells. Branches that add exactly zero have no ratio: they are "
        "counted, not averaged."
    )
    quantities = (
        Quantity(
            "cls_phase",
            class_token_phase("ratio"),
            "class token against grid, first against second half",
            unit="log ratio",
        ),
        Quantity(
            "cosine_agrees",
            agreement("cosine"),
            "the same with cos(z, z + f(z)), above 0 if the sign agrees",
            smooth=False,
        ),
        Quantity("branch_cosine_agrees", agreement("branch_cosine"), "the same with cos(z, f(z))", smooth=False),
        Quantity(
            "cls_first_minus_second", half_change("cls"), "class token alone, first minus second half", unit="log ratio"
        ),
        Quantity(
            "grid_first_minus_second",
            half_change("grid"),
            "grid tokens alone, first minus second half",
            unit="log ratio",
        ),
        Quantity(
            "late_cls_attention_over_mlp",
            late_attention_over_mlp,
            "class token, second half: ratio at attention over ratio at MLP",
            unit="log ratio",
        ),
        Quantity(
            "skip_higher_share",
            higher_share,
            "share of the depth where the ViT's ratio is above the CNN's",
            smooth=False,
            limits=(0, 1),
        ),
    )
    claims = (
        ClaimTest(
            "C21",
            (
                Part(
                    "cls_phase", "above", 0, "log ratio of class token over grid tokens in {0}, first half minus second"
                ),
            ),
            reading="as the class token against the patch tokens",
        ),
        ClaimTest(
            "C21",
            (
                Part(
                    "cls_first_minus_second", "above", 0, "log ratio of the class token in {0}, first half minus second"
                ),
                Part(
                    "grid_first_minus_second", "below", 0, "log ratio of patch tokens in {0}, first half minus second"
                ),
            ),
            reading="for each kind of token by itself",
        ),
        ClaimTest(
            "C22",
            (
                Part(
                    "late_cls_attention_over_mlp", "above", 0, "late class-token log ratio of {0}, attention minus MLP"
                ),
            ),
        ),
        ClaimTest(
            "C23",
            (
                Part("cosine_agrees", "above", 0, "phase change of {0} by cos(z, z + f), in the ratio's direction"),
                Part("branch_cosine_agrees", "above", 0, "phase change of {0} by cos(z, f), in the ratio's direction"),
            ),
            disagreement="undecided",
        ),
        ClaimTest(
            "C24",
            (
                Part(
                    "skip_higher_share",
                    "above",
                    0.8,
                    "share of depth where the skip ratio of {0} is above that of {1}",
                    inclusive=True,
                ),
            ),
        ),
    )

    def needs(self) -> Sequence[Need]:
        return [Need(SKIP_AND_BRANCH, junctions)]

    def tally(self, scene: Scene) -> SkipRatioTally:
        sites = scene.sites(junctions)
        if not sites:
            raise DoesNotApply("no subject has residual additions, so nothing rides a skip.")
        return SkipRatioTally.empty(fold=scene.folds, site=len(sites), token=max(tokens_of(site) for _, site in sites))

    def update(self, tally: SkipRatioTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = torch.as_tensor(batch.image_folds)
        for row, (subject, site) in enumerate(scene.sites(junctions)):
            values = views(subject, site, SKIP_AND_BRANCH).double()
            for column, total in enumerate((tally.ratio, tally.cosine, tally.branch_cosine, tally.finite)):
                total[:, row, : values.shape[1]].index_add_(0, folds, values[:, :, column])
        tally.images.index_add_(0, folds, torch.ones(len(folds), dtype=torch.float64))

    def estimate(self, total: SkipRatioTally, scene: Scene) -> xarray.Dataset:
        import xarray

        sites = scene.sites(junctions)
        count = total.ratio.shape[1]
        there = np.arange(count)[None] < np.array([tokens_of(site) for _, site in sites])[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = total.ratio.numpy() / np.where(total.finite > 0, total.finite, np.nan)
        maps = {
            "ratio": np.where(there, ratio, np.nan),
            "cosine": np.where(there, (total.cosine / total.images).numpy(), np.nan),
            "branch_cosine": np.where(there, (total.branch_cosine / total.images).numpy(), np.nan),
        }
        prefix = np.array([site.layout.prefix for _, site in sites])
        grid = there & (np.arange(count)[None] >= prefix[:, None])
        token = np.array([class_token_place(scene, subject, site) for subject, site in sites])
        variables: dict[str, Any] = {name: (("site", "token"), values) for name, values in maps.items()}
        for name, values in maps.items():
            variables[f"{name}_grid"] = ("site", mean_where(values, grid))
            variables[f"{name}_cls"] = ("site", np.where(token >= 0, values[np.arange(len(sites)), token], np.nan))
        zero = 1 - total.finite.numpy()[there].sum() / max(float(total.images) * there.sum(), 1.0)
        return xarray.Dataset(
            variables,
            coords={**site_coordinates(scene, sites), "class_token": ("site", token >= 0), "prefix": ("site", prefix)},
            attrs={"zero_branches": float(zero)},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            ratios = finding.ratio_grid.values[places_of(finding, subject)]
            if not np.isfinite(ratios).any():
                parts.append(f"in {subject} every branch adds exactly zero, so all rides the skip")
                continue
            typical = float(np.nanmedian(ratios))
            text = f"in {subject} the skip carries {typical:.1f} times what a branch adds (median over junctions)"
            if subject in with_class_token(finding):
                first, second = halves(profile(finding, subject, "ratio", "cls"))
                early, late = np.exp(first), np.exp(second)
                text += f", for its class token {early:.1f} times in the first half and {late:.1f} times in the second"
            parts.append(text)
        said = "; ".join(parts)
        return said[0].upper() + said[1:] + "."
