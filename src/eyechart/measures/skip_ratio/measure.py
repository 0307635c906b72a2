"""M5, M5b: what rides the skip? At every residual addition z + f(z), per token,

    ratio = ‖z‖ / ‖f(z)‖            cosine = cos(z, z + f(z))

and the mean over images of the per-token values (not the ratio of means: 1.65 against 0.60 on skewed data).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import xarray

from eyechart.errors import DoesNotApply
from eyechart.measure import Measure, Source, Views, site_coordinates
from eyechart.measures.skip_ratio.phases import (
    KINDS,
    agreement,
    class_token_phase,
    class_token_ratio,
    half_a_depth,
    half_change,
    higher_share,
    late_attention_over_mlp,
    late_mlp_share,
    phase_since_joining,
    profile,
    typical_ratio,
    unmoved_mlp_share,
    with_class_token,
)
from eyechart.measures.skip_ratio.ratio import SKIP_AND_BRANCH, tokens_of
from eyechart.quantity import Quantity, known_to, of_each, subjects_in
from eyechart.reading_estimates import jackknifed, site_indices, spanned
from eyechart.scene import Batch, Scene
from eyechart.site_choice import residual_additions
from eyechart.sites import Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need

CLEAR = 0.1
"""Log ratio: a phase change smaller than this is none. Untrained ViTs differ by .05 (standard deviation of ten) in what
has no cause but the draw of their weights; twice that must be exceeded."""


@dataclass
class SkipRatioTally(Tally):
    ratio: Annotated[torch.Tensor, Sum("fold", "site", "token")]
    cosine: Annotated[torch.Tensor, Sum("fold", "site", "token")]
    branch_cosine: Annotated[torch.Tensor, Sum("fold", "site", "token")]
    finite: Annotated[torch.Tensor, Sum("fold", "site", "token")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


def class_token_place(scene: Scene, subject: str, site: Site) -> int:
    """Which token is the class token here; -1 where there is none, or where the classifier does not read it."""
    anatomy = scene.anatomy(subject)
    has_token = anatomy.cls is not None and anatomy.pooling == "cls" and site.layout.prefix > anatomy.cls
    return anatomy.cls if has_token and anatomy.cls is not None else -1


def mean_where(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Mean of each row over the chosen columns; NaN where one of them is, or where there are none."""
    count = chosen.sum(1)
    return np.where(count > 0, np.where(chosen, values, 0).sum(1) / np.maximum(count, 1), np.nan)


def has_one_grid(finding: xarray.Dataset, subject: str) -> bool:
    """Whether a token is the same place at every junction, so that a column of the heat-map means something."""
    return len(set(finding.stage.values[site_indices(finding, subject)])) == 1


@dataclass(frozen=True)
class SkipRatio(Measure):
    name = "skip_ratio"
    title = "What rides the skip?"
    title_ko = "무엇이 잔차 연결을 타고 가는가?"
    order = 30
    adds_up_anywhere = True
    chapter = "skip"
    sources = (Source("Raghu et al. 2021", "Figures 7, E.1, E.2"),)
    how_to_read = (
        "At every residual addition the incoming vector z meets what the branch adds, f(z). A ratio ‖z‖/‖f(z)‖ of 10 "
        "means that the token passes almost unchanged; 1 means that the branch adds a vector as long as z. Curves: the "
        "ratio over depth, for grid tokens and for a class token that the classifier reads. Maps, on one colour scale: "
        "every token of every junction; tokens without place, such as the class token, are wide columns at the left. "
        "Attention and MLP are drawn and judged apart: one may hide what the other does. In the paper, the class token "
        "passes along the skip in the first half and changes in the second, and grid tokens do the opposite."
    )
    how_to_read_ko = (
        "잔차 덧셈마다 들어온 벡터 z와 가지가 더하는 f(z)를 비교한다. z의 길이가 f(z)의 10배이면(비율 10) 토큰이 거의 "
        "그대로 지나가고, 1이면 가지가 z와 같은 길이의 벡터를 더한다. 곡선은 깊이에 따른 비율로, 격자 토큰과 "
        "분류기가 읽는 클래스 토큰을 따로 보인다. 맵은 한 색 눈금으로 모든 접합점의 모든 토큰을 보이며, 자리가 없는 "
        "토큰(클래스 토큰 등)은 왼쪽의 넓은 열이다. 어텐션과 MLP는 하나가 다른 하나를 가릴 수 있어 따로 그리고 따로 "
        "판정한다. 논문에서는 클래스 토큰이 앞 절반에서 잔차 연결을 타고 지나가고 뒤 절반에서 바뀌며, 격자 토큰은 그 "
        "반대이다."
    )
    method = (
        "Per token, ‖z‖/‖f(z)‖ and cos(z, z + f(z)) before the addition runs, averaged over images (mean of ratios). A "
        "CNN's token is the channel vector of one location; at a projected shortcut z is the projected one. Grids "
        "finer than 16×16 are averaged into 16×16 cells. Branches that add exactly zero have no ratio: they are "
        "counted, not averaged."
    )
    quantities = (
        Quantity(
            "typical_skip_ratio",
            of_each(typical_ratio),
            "grid tokens: skip / branch, median over junctions",
            limits=(0, None),
        ),
        *(
            Quantity(
                f"cls_phase_{kind}",
                class_token_phase("ratio", kind),
                f"class token minus grid tokens at {words}, first minus second half of the blocks",
                unit="log ratio",
            )
            for kind, words in KINDS.items()
        ),
        *(
            Quantity(
                f"cls_phase_since_joining_{kind}",
                phase_since_joining(kind),
                f"the same difference at {words} over the blocks that the class token passes, where it may join late",
                unit="log ratio",
            )
            for kind, words in KINDS.items()
        ),
        *(
            Quantity(
                f"{variable}_agrees_{kind}",
                agreement(variable, kind),
                f"the same difference of {formula} at {words}, above 0 if its sign agrees",
                smooth=False,
                limits=(-4, 4),
            )
            for variable, formula in (("cosine", "cos(z, z + f(z))"), ("branch_cosine", "cos(z, f(z))"))
            for kind, words in KINDS.items()
        ),
        *(
            Quantity(
                f"{token}_first_minus_second_{kind}",
                half_change(token, kind),
                f"{tokens} alone at {words}, first minus second half of the blocks",
                unit="log ratio",
            )
            for token, tokens in (("cls", "class token"), ("grid", "grid tokens"))
            for kind, words in KINDS.items()
        ),
        Quantity(
            "late_cls_attention_over_mlp",
            of_each(late_attention_over_mlp, with_class_token),
            "class token, second half: ratio at attention over ratio at MLP",
            unit="log ratio",
        ),
        Quantity(
            "late_cls_mlp_share",
            of_each(late_mlp_share, with_class_token),
            "class token, second half: share of the blocks whose MLP adds more than their attention",
            smooth=False,
            limits=(0, 1),
            if_unmoved=unmoved_mlp_share,
        ),
        Quantity(
            "skip_higher_share",
            higher_share,
            "share of the depth where the ViT's ratio is above the CNN's, at attention and at MLPs",
            smooth=False,
            limits=(0, 1),
            if_unmoved=known_to(half_a_depth, higher_share),
        ),
    )

    def needs(self) -> Sequence[Need]:
        return [Need(SKIP_AND_BRANCH, residual_additions)]

    def tally(self, scene: Scene) -> SkipRatioTally:
        sites = scene.sites(residual_additions)
        if not sites:
            raise DoesNotApply("no subject has residual additions, so nothing rides a skip.")
        return SkipRatioTally.empty(fold=scene.folds, site=len(sites), token=max(tokens_of(site) for _, site in sites))

    def update(self, tally: SkipRatioTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = views.put(batch.image_folds)
        for rows, seen in views.stacked(scene.sites(residual_additions), SKIP_AND_BRANCH):
            values = seen.transpose(0, 1).double()  # (image, site, token, 4)
            for column, name in enumerate(("ratio", "cosine", "branch_cosine", "finite")):
                tally.add(name, folds, values[..., column], rows, slice(values.shape[2]))
        tally.add("images", folds)

    def estimate(self, total: SkipRatioTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(residual_additions)
        count = total.ratio.shape[1]
        exists = np.arange(count)[None] < np.array([tokens_of(site) for _, site in sites])[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = total.ratio.numpy() / np.where(total.finite > 0, total.finite, np.nan)
        maps = {
            "ratio": np.where(exists, ratio, np.nan),
            "cosine": np.where(exists, (total.cosine / total.images).numpy(), np.nan),
            "branch_cosine": np.where(exists, (total.branch_cosine / total.images).numpy(), np.nan),
        }
        prefix = np.array([site.layout.prefix for _, site in sites])
        grid = exists & (np.arange(count)[None] >= prefix[:, None])
        token = np.array([class_token_place(scene, subject, site) for subject, site in sites])
        limits = {name: {"limits": (0.0, np.inf) if name == "ratio" else (-1.0, 1.0)} for name in maps}
        variables: dict[str, Any] = {name: (("site", "token"), values, limits[name]) for name, values in maps.items()}
        for name, values in maps.items():
            of_class_token = np.where(token >= 0, values[np.arange(len(sites)), token], np.nan)
            variables[f"{name}_grid"] = ("site", mean_where(values, grid), limits[name])
            variables[f"{name}_cls"] = ("site", of_class_token, limits[name])
        cls = [-1 if (place := scene.anatomy(subject).cls) is None else place for subject, _ in sites]
        zero = 1 - total.finite.numpy()[exists].sum() / max(float(total.images) * exists.sum(), 1.0)
        return xarray.Dataset(
            variables,
            coords={
                **site_coordinates(scene, sites),
                "class_token": ("site", token >= 0),
                "prefix": ("site", prefix),
                "cls": ("site", cls),  # which prefix token it is, whether or not the classifier reads it; -1: none
            },
            attrs={"zero_branches": float(zero)},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            ratios = finding.ratio_grid.values[site_indices(finding, subject)]
            if not np.isfinite(ratios).any():
                parts.append(f"in {subject} every branch adds exactly zero, so all rides the skip")
                continue
            typical = spanned(jackknifed(finding, partial(typical_ratio, subject=subject), "ratio_grid"), ".1f")
            text = f"in {subject} the skip carries {typical} times what a branch adds (median over junctions)"
            if subject in with_class_token(finding):
                text += self.of_class_token(finding, subject)
            parts.append(text)
        said = "; ".join(parts)
        no_map = " and ".join(subject for subject in subjects_in(finding) if not has_one_grid(finding, subject))
        why = "the grid changes on the way, so that a column would not be one place"
        return said[0].upper() + said[1:] + "." + (f"\nWithout a map: {no_map} ({why})." if no_map else "")

    @staticmethod
    def of_class_token(finding: xarray.Dataset, subject: str) -> str:
        """ ". For its class token it is 2.4 times at attention …", as the claims read it."""
        phrases = []
        for kind, words in KINDS.items():
            ratios = profile(finding, subject, "ratio", "cls", kind)
            if len(ratios) >= 2 and np.isfinite(ratios).all():
                numbers = (partial(class_token_ratio, subject=subject, kind=kind, half=half) for half in (0, 1))
                early, late = (spanned(jackknifed(finding, number, "ratio_cls"), ".1f") for number in numbers)
                phrases.append(f"{early} times at {words} in the first half of the blocks and {late} in the second")
        return f". For its class token it is {'; '.join(phrases)}" if phrases else ""
