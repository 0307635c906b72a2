"""M2: how far does each head look? For a query patch i and keys j at positions p, in pixels of the input,

    distance = mean over images and queries of Σ_j A_ij ‖p_i − p_j‖

with the class token's row and column dropped and the rows renormalised; the dropped mass is reported beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd
import torch

from eyechart.claims.verdict import ClaimTest, Part
from eyechart.errors import DoesNotApply
from eyechart.estimates import places_of, subjects_in
from eyechart.measures.measure import Batch, Measure, PerSubjects, Quantity, Scene, Source, Views, site_coordinates
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need, View
from eyechart.tracing.views import Look

if TYPE_CHECKING:
    import altair
    import xarray

    from eyechart.measures.measure import Chart

VANISHED = 1e-6  # a row with less than this on patches says nothing about distance: counted, not averaged
AT_ONCE = 1 << 24  # attention weights multiplied at a time, so that the product never doubles the peak memory
LOCAL = 0.5  # SPEC: a head is local if it looks less than half as far as uniform attention


def how_far(look: Look) -> torch.Tensor:
    """(image, head, 4): distance in pixels, mass on prefix tokens, coverage, share of rows that had mass on patches.

    Coverage tells a head that looks everywhere (uniform: 1, each query at itself: 1) from one that always looks at the
    same place (0), which scores 0.74 to 1.39 of uniform attention by distance alone: it is the spread of the mean
    attention map relative to that of the whole grid.
    """
    geometry = look.site.attention
    assert geometry is not None
    weights = look.weights[:, :, :, geometry.query_prefix :, geometry.key_prefix :]
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    queries = torch.as_tensor(geometry.query_yx)[:, geometry.query_prefix :].to(weights)
    keys = torch.as_tensor(geometry.key_yx)[:, geometry.key_prefix :].to(weights)
    distance = torch.cdist(queries, keys)  # (window, query, key)
    centred = keys - keys.flatten(0, 1).mean(0)
    squares = centred.square().sum(-1, keepdim=True)
    moments = torch.cat([centred, squares], dim=-1)  # (window, key, 3): y, x, y² + x²
    results = []
    for part in torch.split(weights, max(1, AT_ONCE // max(1, weights[0].numel()))):
        mass = part.sum(-1)  # (image, window, head, query)
        there = mass > VANISHED
        per_row = torch.where(there, 1 / mass.clamp_min(VANISHED), 0)
        rows = there.sum((1, 3)).clamp_min(1)
        far = ((part * distance[None, :, None]).sum(-1) * per_row).sum((1, 3)) / rows
        mean_map = (per_row.unsqueeze(-2) @ part).squeeze(-2)  # (image, window, head, key), summed over queries
        place = torch.einsum("nwhk,wkm->nhm", mean_map, moments) / rows[..., None]
        spread = (place[..., 2] - place[..., :2].square().sum(-1)).clamp_min(0)
        coverage = (spread / squares.mean()).sqrt()
        results.append(torch.stack([far, 1 - mass.mean((1, 3)), coverage, there.to(far).mean((1, 3))], dim=-1))
    return torch.cat(results)


HOW_FAR = View("attention distance", how_far)


def attentions(anatomy: Anatomy) -> Sequence[Site]:
    """Attention between places of the picture. Class attention and attention pooling have no queries there."""
    return [
        site
        for site in anatomy.pick("attention")
        if site.attention is not None and site.attention.kind != "other" and site.attention.grid_queries > 1
    ]


@dataclass
class DistanceTally(Tally):
    distance: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    prefix_mass: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    coverage: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    counted: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


def heads_of(estimate: xarray.Dataset, subject: str, places: slice, variable: str = "relative") -> np.ndarray:
    """Values of all heads of the chosen attention sites of one subject, pooled."""
    rows: np.ndarray = estimate[variable].values[places_of(estimate, subject)][places]
    return np.asarray(rows[np.isfinite(rows)])


def vits(estimate: xarray.Dataset) -> list[str]:
    """Single-stage ViTs with at least four attention sites: of these the claims speak."""
    return [
        subject
        for subject in subjects_in(estimate, "vit")
        if len(places_of(estimate, subject)) >= 4
        and np.isfinite(estimate.relative.values[places_of(estimate, subject)]).any(axis=1).all()
    ]


def over_heads(
    summary: Callable[[np.ndarray], float], places: Callable[[xarray.Dataset, str], slice], variable: str = "relative"
) -> Callable[[xarray.Dataset], PerSubjects]:
    """The nearest or farthest head of some attention sites, for every ViT. Not smooth: it gets the bootstrap."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        return {
            (subject,): float(summary(heads_of(estimate, subject, places(estimate, subject), variable)))
            for subject in vits(estimate)
        }

    return compute


def early(estimate: xarray.Dataset, subject: str) -> slice:
    return slice(0, 2)


def late(estimate: xarray.Dataset, subject: str) -> slice:
    """The last attention; the last two where it has fewer than six heads."""
    return slice(-1, None) if len(heads_of(estimate, subject, slice(-1, None))) >= 6 else slice(-2, None)


def farthest_prefix_mass(estimate: xarray.Dataset) -> PerSubjects:
    """What the farthest early head gives to the class token: one with all its mass there reads as uniform."""
    result: PerSubjects = {}
    for subject in vits(estimate):
        rows = places_of(estimate, subject)[:2]
        farthest = np.unravel_index(np.nanargmax(estimate.relative.values[rows]), estimate.relative.values[rows].shape)
        result[subject,] = float(estimate.prefix_mass.values[rows][farthest])
    return result


def local_share(estimate: xarray.Dataset) -> PerSubjects:
    return {(s,): float((heads_of(estimate, s, slice(None)) < LOCAL).mean()) for s in subjects_in(estimate)}


def early_local_gap(estimate: xarray.Dataset) -> PerSubjects:
    """Share of local heads in the first two attentions, of a ViT on patches minus one whose tokens come from a CNN."""

    def share(subject: str) -> float:
        return float((heads_of(estimate, subject, slice(0, 2)) < LOCAL).mean())

    stems = dict(zip(estimate.subject.values.tolist(), estimate.tokens_from.values.tolist(), strict=True))
    return {
        (vit, hybrid): share(vit) - share(hybrid)
        for vit in vits(estimate)
        for hybrid in stems
        if stems[vit] == "patches" and stems[hybrid] == "a CNN" and len(places_of(estimate, hybrid)) >= 4
    }


def tokens_from(anatomy: Anatomy) -> str:
    """What a ViT's tokens are: patches, or the cells of a CNN's map (a hybrid); nothing of the kind for others."""
    attention = [site.attention for site in attentions(anatomy) if site.attention is not None]
    first = min((site.block for site in attentions(anatomy)), default=0)
    one_grid = all(each.kind == "global" and each.cell == attention[0].cell for each in attention)
    later = [site.kind for site in anatomy.pick("block") if site.block >= first]
    if not attention or not one_grid or "conv" in later:
        return ""
    if anatomy.cnn_stem or first > 0:
        return "a CNN"
    return "patches" if anatomy.family == "vit" else ""


def distance_grows(estimate: xarray.Dataset) -> PerSubjects:
    from scipy.stats import spearmanr

    result: PerSubjects = {}
    for subject in vits(estimate):
        rows = estimate.relative.values[estimate.subject.values == subject]
        result[subject,] = float(spearmanr(np.arange(len(rows)), np.nanmean(rows, axis=1)).statistic)
    return result


@dataclass(frozen=True)
class AttentionDistance(Measure):
    name = "attention_distance"
    title = "How far do they look?"
    title_ko = "얼마나 멀리 보는가?"
    order = 20
    sources = (
        Source("Dosovitskiy et al. 2020", "Figures 7 (right), 11"),
        Source("Raghu et al. 2021", "Figures 3, 4, C.5, C.6"),
    )
    how_to_read = (
        "Each point is one attention head: the mean distance, in pixels, between a patch and what it attends to. Left, "
        "the heads of the two lowest and two highest blocks, sorted; right, all heads over depth. The upper dashed "
        "line is attention spread evenly over the picture, the lower one a patch that attends to itself. Low points in "
        "early blocks are local heads, as a convolution would be. A head far from its patch is not yet global: one "
        "that always looks at a corner is far too, so the coverage in the tooltip says whether it looks everywhere (1) "
        "or at one place (0)."
    )
    how_to_read_ko = (
        "점 하나가 어텐션 헤드 하나이고, 높이는 패치와 그 패치가 보는 곳 사이의 평균 거리(픽셀)이다. 왼쪽은 가장 낮은 "
        "두 블록과 가장 높은 두 블록의 헤드를 정렬한 것, 오른쪽은 깊이에 따른 모든 헤드이다. 위 점선은 그림 전체를 "
        "고르게 볼 때, 아래 점선은 자기 자신만 볼 때이다."
    )
    method = (
        "Attention weights are recomputed beside the model's own attention and checked to reproduce its output. Prefix "
        "tokens are dropped and rows renormalised; the dropped mass is reported. Distances are Euclidean between cell "
        "centres in input pixels, averaged over queries and images. Windowed attention is measured with the true "
        "positions of its windows, against the same whole-picture reference."
    )
    quantities = (
        Quantity(
            "local_heads", local_share, "share of heads below half of uniform attention", smooth=False, limits=(0, 1)
        ),
        Quantity(
            "early_nearest_head",
            over_heads(np.min, early),
            "nearest head of the first two blocks, uniform = 1",
            smooth=False,
        ),
        Quantity(
            "early_farthest_head",
            over_heads(np.max, early),
            "farthest head of the first two blocks, uniform = 1",
            smooth=False,
        ),
        Quantity(
            "early_farthest_prefix_mass",
            farthest_prefix_mass,
            "its attention to the class token",
            smooth=False,
            limits=(0, 1),
        ),
        Quantity(
            "late_nearest_head", over_heads(np.min, late), "nearest head of the last block, uniform = 1", smooth=False
        ),
        Quantity(
            "late_coverage",
            over_heads(np.min, late, "coverage"),
            "least coverage of a head of the last block",
            smooth=False,
        ),
        Quantity(
            "early_local_gap",
            early_local_gap,
            "share of local heads in the first two attentions, ViT minus hybrid",
            smooth=False,
            limits=(-1, 1),
        ),
        Quantity(
            "distance_grows",
            distance_grows,
            "rank correlation of distance with depth",
            smooth=False,
            limits=(-1, 1),
        ),
    )
    claims = (
        ClaimTest(
            "C09",
            (
                Part("early_nearest_head", "below", 0.5, "distance of the nearest early head of {0}, uniform = 1"),
                Part("early_farthest_head", "above", 0.8, "distance of the farthest early head of {0}, uniform = 1"),
            ),
        ),
        ClaimTest(
            "C11", (Part("early_local_gap", "above", 0.0, "share of local early heads of {0} above that of {1}"),)
        ),
        ClaimTest(
            "C10",
            (
                Part("late_nearest_head", "above", 0.7, "distance of the nearest late head of {0}, uniform = 1"),
                Part("distance_grows", "above", 0, "rank correlation of distance and depth in {0}"),
                Part("late_coverage", "above", 0.5, "least share of the picture that a late head of {0} covers"),
            ),
        ),
    )

    def needs(self) -> Sequence[Need]:
        return [Need(HOW_FAR, attentions)]

    def tally(self, scene: Scene) -> DistanceTally:
        sites = scene.sites(attentions)
        if not sites:
            raise DoesNotApply(
                f"{' and '.join(scene.subjects)} {'have' if len(scene.subjects) > 1 else 'has'} no attention over "
                "positions that the taps can read, so there is no distance to measure."
            )
        return DistanceTally.empty(fold=scene.folds, site=len(sites), head=max(site.heads or 0 for _, site in sites))

    def update(self, tally: DistanceTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = torch.as_tensor(batch.image_folds)
        for row, (subject, site) in enumerate(scene.sites(attentions)):
            distance, prefix_mass, coverage, share = views(subject, site, HOW_FAR).double().unbind(-1)
            counted = (share > 0).double()
            for total, values in (
                (tally.distance, distance * counted),
                (tally.coverage, coverage * counted),
                (tally.prefix_mass, prefix_mass),
                (tally.counted, counted),
            ):
                total[:, row, : values.shape[1]].index_add_(0, folds, values)
        tally.images.index_add_(0, folds, torch.ones(len(folds), dtype=torch.float64))

    def estimate(self, total: DistanceTally, scene: Scene) -> xarray.Dataset:
        import xarray

        sites = scene.sites(attentions)
        counted = np.where(total.counted > 0, total.counted, np.nan)
        heads = np.array([site.heads for _, site in sites])
        there = np.arange(total.distance.shape[1])[None] < heads[:, None]
        uniform = np.array([site.attention.uniform_distance for _, site in sites if site.attention])
        distance = total.distance.numpy() / counted
        return xarray.Dataset(
            {
                "distance": (("site", "head"), distance, {"unit": "px", "limits": (0.0, np.inf)}),
                "relative": (("site", "head"), distance / uniform[:, None], {"limits": (0.0, np.inf)}),
                "coverage": (("site", "head"), total.coverage.numpy() / counted, {"limits": (0.0, np.inf)}),
                "prefix_mass": (
                    ("site", "head"),
                    np.where(there, (total.prefix_mass / total.images).numpy(), np.nan),
                    {"limits": (0.0, 1.0)},
                ),
                "uniform": ("site", uniform, {"unit": "px", "exact": True}),
            },
            coords={
                **site_coordinates(scene, sites),
                "tokens_from": ("site", [tokens_from(scene.anatomy(subject)) for subject, _ in sites]),
                "head": np.arange(total.distance.shape[1]),
            },
        )

    def chart(self, finding: xarray.Dataset) -> Chart:
        from eyechart.report import theme

        panels = []
        for subject in subjects_in(finding):
            table = head_table(finding, subject)
            uniform = float(finding.uniform.values[finding.subject.values == subject].max())
            panels += [sorted_heads(table, subject, uniform), heads_by_depth(table, subject, uniform)]
        return theme.panels(panels, columns=2, shared=())

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            heads = heads_of(finding, subject, slice(None))
            first, last = heads_of(finding, subject, slice(0, 1)), heads_of(finding, subject, slice(-1, None))
            parts.append(
                f"{(heads < LOCAL).sum()} of {len(heads)} heads of {subject} look less than half as far as uniform "
                f"attention; its first block spans {first.min():.2f} to {first.max():.2f} of uniform, its last "
                f"{last.min():.2f} to {last.max():.2f}"
            )
        return "; ".join(parts) + "."


def head_table(finding: xarray.Dataset, subject: str) -> pd.DataFrame:
    """One row a head, with its rank within its block by distance."""
    columns = ["distance", "distance_low", "distance_high", "relative", "coverage", "prefix_mass"]
    part = finding[columns].isel(site=finding.subject.values == subject)
    table = part.to_dataframe().reset_index().dropna(subset=["distance"])
    table["rank"] = table.groupby("site")["distance"].rank(method="first").astype(int)
    table["block"] = table["block"] + 1
    return table


def tooltips() -> list[altair.Tooltip]:
    import altair as alt

    numbers = [("distance", ".1f"), ("relative", ".2f"), ("coverage", ".2f"), ("prefix_mass", ".2f")]
    return [
        alt.Tooltip("name:N"),
        alt.Tooltip("head:Q"),
        *(alt.Tooltip(f"{name}:Q", format=form) for name, form in numbers),
    ]


def sorted_heads(table: pd.DataFrame, subject: str, uniform: float) -> Chart:
    """R's figure: heads sorted by distance, for the two lowest and the two highest attentions."""
    import altair as alt

    from eyechart.report import theme

    names = list(dict.fromkeys(table["name"]))
    shown = table[table["name"].isin(names[:2] + names[-2:])]
    labels = list(dict.fromkeys(shown["name"]))
    lines = theme.curve(
        shown,
        x=alt.X("rank:Q", title="head, sorted by distance", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("distance:Q", title="mean attention distance (px)"),
        color=alt.Color("name:N", scale=theme.ordered_scale(labels), sort=None, title=None),
        low="distance_low",
        high="distance_high",
    )
    references = theme.reference(uniform, "uniform attention", at="start") + theme.reference(0, "attends itself")
    return (lines + references).properties(width=400, height=260, title=f"{subject}: lowest and highest blocks")


def heads_by_depth(table: pd.DataFrame, subject: str, uniform: float) -> Chart:
    """V's figure: every head as a dot over depth."""
    import altair as alt

    from eyechart.report import theme

    x = alt.X("depth:Q", title="depth (input → output)", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("distance:Q", title="mean attention distance (px)")
    colour = alt.value(theme.subject_colour(subject))
    dots = (
        alt.Chart(table).mark_point(filled=True, size=46, opacity=0.75).encode(x, y, color=colour, tooltip=tooltips())
    )
    bars = theme.error_bars(table, x, y, "distance_low", "distance_high", color=colour)
    references = theme.reference(uniform, "uniform attention") + theme.reference(0, "attends itself")
    chart: Chart = (bars + dots + references).properties(width=400, height=260, title=f"{subject}: all heads")
    return chart
