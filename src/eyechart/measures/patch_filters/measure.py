"""M12: what do the first filters look for? Principal components of the weights a picture meets first.

The D filters of a patch embedding (of a CNN: of its first convolution) are vectors of P · P · 3 pixels; their leading
principal components are shown as tiles. How low their frequencies are is the spectral centroid

    centroid = Σ f |F(f)|² / Σ |F(f)|²

It is computed from the weights alone. Only the reference is random: filters as they are initialised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import Experiment, Source, Views, subject_coordinates
from eyechart.measures.patch_filters.filters import (
    principal_components,
    random_centroids,
    smoothness,
    spectral_centroid,
    without_mean,
)
from eyechart.quantity import Bounds, Compute, Quantity, of_each
from eyechart.scene import Batch, Scene
from eyechart.sites import Filters
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench

MOST = 28  # the paper's number of components
LEADING = 7  # its first row of tiles: those that "leading" says most of
DRAWS = 400  # random initialisations; 32 for the shares of variance, which need the filters themselves
SHARE_DRAWS = 32
SCREE_WEIGHTS = 1 << 18  # filters × pixels of these: more take seconds a draw, and the shares hardly vary
TAIL = (0.025, 0.975)


@dataclass
class FilterTally(Tally):
    """Written once, by the first batch."""

    components: Annotated[Tensor, Sum("subject", "component", "colour", "y", "x")]
    strongest: Annotated[Tensor, Sum("subject", "filter", "colour", "y", "x")]
    share: Annotated[Tensor, Sum("subject", "component")]
    random_share: Annotated[Tensor, Sum("subject", "component")]
    random_mean: Annotated[Tensor, Sum("subject", "draw")]
    """Centroid of freshly initialised filters, mean over as many components."""
    random_leading: Annotated[Tensor, Sum("subject", "draw")]
    """The same over the seven strongest."""
    random_weighted: Annotated[Tensor, Sum("subject", "draw")]
    """The same over all, weighted by the components' shares of variance."""
    random_single: Annotated[Tensor, Sum("subject", "draw")]


def components_of(filters: Filters) -> int:
    count, colours, height, width = filters.shape
    return min(MOST, colours * height * width, count - 1)


def weighted(estimate: xarray.Dataset, subject: str, variable: str = "centroid") -> float:
    """Mean over the leading components of a subject, weighted by their shares of the variance."""
    share = estimate.share.sel(subject=subject).values
    return float(np.nansum(share * estimate[variable].sel(subject=subject).values) / np.nansum(share))


def share_held(estimate: xarray.Dataset, subject: str) -> float:
    return float(np.nansum(estimate.share.sel(subject=subject).values))


def plain_mean(estimate: xarray.Dataset, subject: str) -> float:
    """Centroid of the leading 28 components, each counting alike; NaN where there are fewer."""
    return float(estimate.centroid.sel(subject=subject).values.mean())


def leading_mean(estimate: xarray.Dataset, subject: str) -> float:
    """Centroid of the seven strongest components; NaN where there are fewer than 28, as the claim is about those."""
    first = float(estimate.centroid.sel(subject=subject).values[:LEADING].mean())
    return first if np.isfinite(plain_mean(estimate, subject)) else np.nan


def weighted_mean(estimate: xarray.Dataset, subject: str) -> float:
    """The same weighted by variance; NaN where there are fewer, as the claim is about 28."""
    return weighted(estimate, subject) if np.isfinite(plain_mean(estimate, subject)) else np.nan


def vits(estimate: xarray.Dataset) -> list[str]:
    """ViTs whose tokens are patches: the subjects of the claim."""
    chosen = (estimate.family.values == "vit") & (estimate.filter_kind.values == "patches")
    return [str(subject) for subject in estimate.subject.values[chosen]]


def below_random(mean: Callable[[xarray.Dataset, str], float], random: str) -> Compute:
    """Mean of all random initialisations minus these weights; NaN with fewer than 28 components."""
    return of_each(lambda estimate, vit: float(estimate[random].sel(subject=vit).mean()) - mean(estimate, vit), vits)


def spread_of_random(mean: Callable[[xarray.Dataset, str], float], random: str) -> Callable[[xarray.Dataset], Bounds]:
    """The same for the 2.5 % of initialisations with the lowest and with the highest centroid."""

    def bounds(estimate: xarray.Dataset) -> Bounds:
        result: dict[tuple[str, ...], tuple[float, float]] = {}
        for vit in vits(estimate):
            low, high = np.quantile(estimate[random].sel(subject=vit).values, TAIL) - mean(estimate, vit)
            result[vit,] = (float(low), float(high))
        return result

    return bounds


@dataclass(frozen=True)
class PatchFilters(Experiment):
    name = "patch_filters"
    title = "What do the first filters look for?"
    title_ko = "첫 필터는 무엇을 찾는가?"
    order = 65
    chapter = "frequency"
    sources = (Source("Dosovitskiy et al. 2020", "Figure 7 (left)"),)
    how_to_read = (
        "Each tile is a principal component of the filters that read the pixels, the strongest at the upper left, its "
        "colours stretched to the full range. Plain colours, slopes and broad stripes are a smooth basis, as a cosine "
        "transform has; speckles are what filters begin with. Of a convolution the filters themselves are shown below. "
        "Next, the mean frequency of each component (1: stripes one pixel wide) beside the band where 95 % of "
        "random components lie; the seven strongest lie left of the upright line: they must have low frequencies by "
        "themselves if the leading components are a low-frequency basis. Below, the share of the filters' variance "
        "that the components hold together (dashed: random filters)."
    )
    how_to_read_ko = (
        "타일 하나는 픽셀을 읽는 필터들의 주성분이며 가장 강한 것이 왼쪽 위이다(색은 범위 전체로 늘렸다). 민무늬, "
        "완만한 기울기, 넓은 줄무늬는 코사인 변환 같은 매끄러운 기저이고, 얼룩은 학습 전의 필터이다. 합성곱은 그 "
        "아래에 필터 자체도 보인다. 다음은 주성분의 평균 주파수(1은 한 픽셀 줄무늬)와 무작위 주성분의 95 %가 놓이는 "
        "띠이다. 세로선 왼쪽이 가장 강한 일곱이며, 선두 주성분이 저주파 기저라면 이 일곱의 주파수도 그 자체로 낮아야 "
        "한다. 아래는 주성분들이 함께 지닌 분산의 몫(파선은 무작위 필터)이다."
    )
    method = (
        "Singular values of the filters as they are applied (standardised kernels standardised), mean filter removed. "
        "Spectral centroid: mean frequency weighted by power, over the three colours. The reference is the components "
        f"of {DRAWS:,} random initialisations of the same shape; the interval of the difference is where 95 % of them "
        "lie. The weights themselves are exact."
    )
    quantities = (
        Quantity(
            "filter_frequency",
            of_each(weighted),
            "mean frequency of the leading components by the variance they hold, Nyquist = 1",
            exact=True,
        ),
        Quantity(
            "filter_smoothness",
            of_each(partial(weighted, variable="smoothness")),
            "likeness of neighbouring pixels in the leading components, white noise = 0",
            exact=True,
        ),
        Quantity(
            "filter_variance",
            of_each(share_held),
            "share of the filters' variance that the leading components hold",
            exact=True,
        ),
        Quantity(
            "leading_centroid_below_random",
            below_random(leading_mean, "random_leading"),
            "mean frequency of the seven strongest components, random initialisation minus these weights",
            bounds=spread_of_random(leading_mean, "random_leading"),
        ),
        Quantity(
            "centroid_below_random",
            below_random(plain_mean, "random_mean"),
            "mean frequency of the 28 leading components, random initialisation minus these weights",
            bounds=spread_of_random(plain_mean, "random_mean"),
        ),
        Quantity(
            "weighted_centroid_below_random",
            below_random(weighted_mean, "random_weighted"),
            "mean frequency weighted by the variance of each component, random initialisation minus these weights",
            bounds=spread_of_random(weighted_mean, "random_weighted"),
        ),
    )

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        filters = bench.anatomy.filters
        if bench.batch.index != 0 or filters is None:
            return {}
        assert filters.values is not None  # the anatomy is fresh from its dry run
        weights = torch.from_numpy(filters.values)
        tiles, share = principal_components(weights, MOST)
        generator = bench.generator("patch filters")
        shape = (filters.shape[1], filters.shape[2], filters.shape[3])
        centred = without_mean(weights)
        random = random_centroids(shape, len(tiles), DRAWS, generator, centred)
        random_share = random_shares(filters.shape, len(tiles), generator, centred)
        return {
            "components": tiles,
            "strongest": weights[weights.flatten(1).norm(dim=1).argsort(descending=True)[:MOST]],
            "share": share,
            "random_share": random_share,
            "random_mean": random.mean(1),
            "random_leading": random[:, :LEADING].mean(1),
            "random_weighted": random @ (random_share / random_share.sum()),
            "random_single": random[:, 0],
        }

    def tally(self, scene: Scene) -> FilterTally:
        subjects = with_filters(scene)
        if not subjects:
            raise DoesNotApply(
                "the first weights of no subject read patches of RGB pixels, so there are no tiles to show."
            )
        _, colours, height, width = np.max([filters.shape for filters in subjects.values()], axis=0).tolist()
        return FilterTally.empty(
            subject=len(subjects), component=MOST, filter=MOST, colour=colours, y=height, x=width, draw=DRAWS
        )

    def update(self, tally: FilterTally, batch: Batch, views: Views, scene: Scene) -> None:
        for row, subject in enumerate(with_filters(scene)):
            for name, values in views.experiment(subject).items():
                field = getattr(tally, name)
                field[(row, *map(slice, values.shape))] += values.double()

    def estimate(self, total: FilterTally, scene: Scene) -> xarray.Dataset:
        subjects = with_filters(scene)
        shapes = [filters.shape for filters in subjects.values()]
        centroid, smooth = np.full((2, len(subjects), MOST), np.nan)
        exists = np.zeros((len(subjects), MOST), bool)
        for row, filters in enumerate(subjects.values()):
            count, height, width = components_of(filters), filters.shape[2], filters.shape[3]
            tiles = total.components[row, :count, :, :height, :width]
            centroid[row, :count], smooth[row, :count] = spectral_centroid(tiles), smoothness(tiles)
            exists[row, :count] = True
        exact = {"exact": True}
        tile = ("subject", "component", "colour", "y", "x")
        return xarray.Dataset(
            {
                "component_tile": (tile, total.components.numpy(), exact),
                "filter_tile": (("subject", "filter", *tile[2:]), total.strongest.numpy(), exact),
                "centroid": (tile[:2], centroid, exact),
                "smoothness": (tile[:2], smooth, exact),
                "share": (tile[:2], np.where(exists, total.share.numpy(), np.nan), exact),
                "random_share": (tile[:2], np.where(exists, total.random_share.numpy(), np.nan), exact),
                "random_mean": (("subject", "draw"), total.random_mean.numpy(), exact),
                "random_leading": (("subject", "draw"), total.random_leading.numpy(), exact),
                "random_weighted": (("subject", "draw"), total.random_weighted.numpy(), exact),
                "random_single": (("subject", "draw"), total.random_single.numpy(), exact),
            },
            coords={
                **subject_coordinates(scene, list(subjects)),
                "filter_kind": ("subject", [filters.kind for filters in subjects.values()]),
                "filter_path": ("subject", [filters.path for filters in subjects.values()]),
                "filters": ("subject", [shape[0] for shape in shapes]),
                "height": ("subject", [shape[2] for shape in shapes]),
                "width": ("subject", [shape[3] for shape in shapes]),
                "component": np.arange(MOST),
            },
            attrs={
                "of_weights": 1,
                "left_out": ", ".join(subject for subject in scene.subjects if subject not in subjects),
                "sample": f"Read off the weights, no image drawn; the interval is where 95 % of {DRAWS:,} random "
                "initialisations lie",
            },
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in map(str, finding.subject.values):
            at = finding.sel(subject=subject)
            low, high = np.quantile(at.random_weighted.values, TAIL)
            frequency = weighted(finding, subject)
            first = ""
            if np.isfinite(at.centroid.values).all():
                mean, ends = at.centroid.values[:LEADING].mean(), np.quantile(at.random_leading.values, TAIL)
                first = f"; that of the {LEADING} strongest is {mean:.2f}, {where(mean, *ends)} "
                first += f"{ends[0]:.2f} to {ends[1]:.2f}"
            parts.append(
                f"the {int(np.isfinite(at.centroid.values).sum())} leading components of the {int(at.filters)} filters "
                f"of {subject} ({int(at.height)}×{int(at.width)} pixels) hold {share_held(finding, subject):.0%} of "
                f"their variance; weighted by it their mean frequency is {frequency:.2f} of Nyquist, "
                f"{where(frequency, low, high)} the {low:.2f} to {high:.2f} of random filters{first}"
            )
        said = ". ".join(part[0].upper() + part[1:] for part in parts) + "."
        gone = finding.attrs.get("left_out", "")
        said += f" The first weights of {gone} do not read patches of RGB pixels." if gone else ""
        return f"{said}\nAll this is exact, read off the weights; ranges hold 95 % of {DRAWS} random initialisations."


def where(value: float, low: float, high: float) -> str:
    return "below" if value < low else "above" if value > high else "within"


def with_filters(scene: Scene) -> dict[str, Filters]:
    return {anatomy.subject: anatomy.filters for anatomy in scene.anatomies if anatomy.filters is not None}


def random_shares(shape: tuple[int, int, int, int], count: int, generator: torch.Generator, centred: bool) -> Tensor:
    """Mean share of variance of each component of freshly initialised filters."""
    draws = SHARE_DRAWS if np.prod(shape) <= SCREE_WEIGHTS else 1
    total = torch.zeros(count, dtype=torch.float64)
    for _ in range(draws):
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        noise = noise - noise.mean((1, 2, 3), keepdim=True) if centred else noise
        total += principal_components(noise, count)[1]
    return total / draws
