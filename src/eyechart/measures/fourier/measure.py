"""M18: which frequencies does a sub-layer damp, which does it raise?

    Δ log amplitude(f) = log amplitude at (f, f) − log amplitude at 0        amplitude = sqrt(mean |FFT of a map|²)

along the half diagonal, at true frequencies including Nyquist, averaged over channels and images. A sub-layer's change
is that of the highest frequency, from the skip it met to its result: always on one grid. Beside it stand

- absolute band energies, because a block that only lowers the mean looks high-pass relative to it, and one that only
  adds a constant low-pass;
- the strided identity where the grid shrinks: what taking every second position alone would do to the same map;
- three steps apart: mixing by the attention matrix (its output against its values), the branch against the skip, and
  branch + skip against the skip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import SampledExperiment, Source, Views, option, site_coordinates
from eyechart.methods.spectrum import BANDS, Average, describe, diagonal, log_amplitude
from eyechart.methods.steps import KIND_WORDS, beyond_rounding, surely, within_rounding
from eyechart.quantity import Compute, Quantity, known_to, of_each, subjects_in
from eyechart.scene import Batch, Scene
from eyechart.site_choice import attention_of, skip_of, sub_layers
from eyechart.sites import Anatomy, AttentionGeometry, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import View
from eyechart.tracing.rasters import on_grid
from eyechart.tracing.views import Look

PARTS = ("result", "skip", "branch", "values", "mixed", "strided")
"""Whose spectrum: the sub-layer's result, the skip it met, its branch, what its attention mixed and what came out, and
the map before a change of grid with only every n-th position kept."""


def bins(site: Site) -> int:
    assert site.grid is not None  # sub-layers have one
    return min(site.grid) // 2 + 1


def stride_to(before: Site, after: Site) -> int | None:
    """Every how many positions of one map make the grid of the next; None where they are equal or none does."""
    assert before.grid is not None
    assert after.grid is not None
    step = round(before.grid[0] / after.grid[0])
    fits = step > 1 and all(-(-large // step) == small for large, small in zip(before.grid, after.grid, strict=True))
    return step if fits else None


def mixing_view(average: Average, part: str) -> View:
    """The spectrum of an attention's values or of their weighted sums; NaN where they do not lie on the grid."""

    def take(look: Look) -> Tensor:
        geometry, grid = look.site.attention, look.site.grid
        assert isinstance(geometry, AttentionGeometry)
        assert grid is not None
        tokens, positions = (look.values, geometry.key_yx) if part == "values" else (look.output, geometry.query_yx)
        maps = on_grid(tokens, positions, grid)
        if maps is None:
            return torch.full((len(tokens), bins(look.site) + len(BANDS)), torch.nan, device=tokens.device)
        return describe(maps, average)

    return View(f"{part} spectrum, {average}", take)


def views_of(anatomy: Anatomy, average: Average) -> list[tuple[int, str, Site, View]]:
    """Everything an experiment looks at: (row among the sub-layers, part, at which site, view)."""

    def strided(step: int) -> View:
        name = f"every {step}th, {average}"
        return View(name, lambda look: describe(look.map(look.output)[..., ::step, ::step], average))

    result = View(f"spectrum, {average}", lambda look: describe(look.map(look.output), average))
    skip_view = View(f"skip spectrum, {average}", lambda look: describe(look.map(look.skip), average), before=True)
    branch = View(f"branch spectrum, {average}", lambda look: describe(look.map(look.branch), average), before=True)
    wanted: list[tuple[int, str, Site, View]] = []
    before: Site | None = None
    for row, site in enumerate(sub_layers(anatomy)):
        wanted.append((row, "result", site, result))
        skip, attention = skip_of(anatomy, site), attention_of(anatomy, site)
        if skip is not None and skip.grid == site.grid:
            wanted += [(row, "skip", skip, skip_view), (row, "branch", skip, branch)]
        if attention is not None:
            wanted += [(row, part, attention, mixing_view(average, part)) for part in ("values", "mixed")]
        step = None if before is None else stride_to(before, site)
        if before is not None and step is not None:
            wanted.append((row, "strided", before, strided(step)))
        before = site
    return wanted


@dataclass
class FourierTally(Tally):
    along: Annotated[Tensor, Sum("fold", "site", "part", "frequency")]
    energy: Annotated[Tensor, Sum("fold", "site", "part", "band")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def depth_part(estimate: xarray.Dataset, subject: str, kind: str, *, late: bool) -> np.ndarray:
    """Sub-layers of one kind in the first third of a subject's blocks, or in the other two."""
    of_subject = estimate.subject.values == subject
    blocks = estimate.block.values[of_subject & (estimate.role.values != "stem")]
    middle = (estimate.block.values + 0.5) / (blocks.max() + 1 if len(blocks) else 1)
    where = (middle >= 1 / 3) if late else (middle < 1 / 3)
    return np.flatnonzero(of_subject & where & (estimate.kind.values == kind) & (estimate.role.values != "stem"))


Averaging = Callable[[np.ndarray], "np.floating[Any]"]


def mean_change(variable: str, kind: str, *, late: bool, over: Averaging = np.mean) -> Compute:
    """Mean over a ViT's sub-layers of one kind; no key where it has fewer than three blocks or none of them."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        deep = estimate.block.values[estimate.subject.values == subject].max() >= 2
        rows = depth_part(estimate, subject, kind, late=late)
        return float(over(beyond_rounding(estimate[variable].values[rows]))) if deep and len(rows) else None

    return of_each(number, "vit")


def conv_change(variable: str, over: Averaging) -> Compute:
    """Mean over a CNN's blocks that keep their grid."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        rows = (estimate.subject.values == subject) & (estimate.kind.values == "conv") & estimate.has_skip.values
        return float(over(beyond_rounding(estimate[variable].values[rows]))) if rows.any() else None

    return of_each(number, "cnn")


SCALES = {
    "change": ("frequency_change", "the highest frequency against the mean"),
    "high_change": ("high_energy_change", "the absolute amplitude of high frequencies"),
}
"""On which scale a change is read: adding a constant lowers the first, adding almost anything raises the second."""


AVERAGES: dict[str, tuple[Averaging, str]] = {"": (np.mean, "mean"), "typical_": (np.median, "median")}
"""Over sub-layers: one of five may make the mean. zoo:resnet raises high frequencies by .05 in the mean and lowers them
in four of five blocks. The median's jackknife will do: images move a sub-layer far less than sub-layers differ."""


def asked(variable: str, over: Averaging) -> dict[str, tuple[str, Compute]]:
    """Which sub-layers are averaged, by the first part of the quantity's name: in words, and how it is computed."""
    late, early = (partial(mean_change, variable, late=late, over=over) for late in (True, False))
    return {
        "late_attention": ("attention, last two thirds of the blocks", late("attention")),
        "late_mlp": ("MLP, last two thirds of the blocks", late("mlp")),
        "early_attention": ("attention, first third of the blocks", early("attention")),
        "convolution": ("convolution blocks that keep their grid", conv_change(variable, over)),
    }


QUANTITIES = (
    *(
        (f"{prefix}{part}_{name}", compute, f"{words}, {average}: change of {what}")
        for variable, (name, what) in SCALES.items()
        for prefix, (over, average) in AVERAGES.items()
        for part, (words, compute) in asked(variable, over).items()
    ),
    (
        "late_attention_matrix_change",
        mean_change("matrix_change", "attention", late=True),
        "attention matrix alone, last two thirds: change of the highest frequency against the mean",
    ),
)


@dataclass(frozen=True)
class Fourier(SampledExperiment):
    name = "fourier"
    title = "Which frequencies pass?"
    title_ko = "어떤 주파수가 남는가?"
    order = 40
    chapter = "frequency"
    sources = (Source("Park & Kim 2022", "Figures 2a, 8, D.2"), Source("Wang et al. 2022", "attention as a low-pass"))
    how_to_read = (
        "First, one curve for each depth: how much weaker each frequency of the feature map is than its mean. Then the "
        "highest frequency over depth: grey circles follow attention, white marks an MLP or a convolution, black "
        "circles a change of grid (sub-sampling). A cross beside one is what merely keeping every second position "
        "would give; only the difference is due to the block. The next two panels show what a sub-layer does (below 0: "
        "it smooths) to the highest frequency against the mean, and to the amplitude of high frequencies itself: where "
        "the first falls and the second rises, only the mean has grown. The next panel shows its parts (the attention "
        "matrix alone, and what the branch adds). Last, the mean square of the features at frequency 0 (constant), in "
        "the lowest third of the frequencies and in the highest; the third between them is not drawn. A grid of few "
        "cells, 4×4 for one, has no frequency in the lowest third, so that its curve ends there."
    )
    how_to_read_ko = (
        "첫 곡선들은 깊이마다 특징 맵의 각 주파수가 평균(주파수 0)보다 얼마나 약한지를 보인다. 다음은 깊이에 따른 최고 "
        "주파수이다. 회색 원은 어텐션, 흰 표시는 MLP나 합성곱, 검은 원은 격자가 바뀐 곳(서브샘플링)이고, 그 곁의 "
        "십자는 단순히 두 칸마다 골랐을 때의 값이며 그 차이만이 블록이 한 일이다. 다음 두 그림은 부분층이 평균 대비 "
        "최고 주파수와 고주파의 절대 진폭을 어떻게 바꾸는지 보인다(0보다 낮으면 평활). 앞의 것이 내려가고 뒤의 것이 "
        "올라가면 평균이 커진 것뿐이다. 다음 그림은 그 부분(어텐션 행렬만, 가지가 더하는 것)을 보인다. 마지막은 특징의 "
        "제곱평균을 주파수 0(상수), 주파수의 가장 낮은 3분의 1, 가장 높은 3분의 1에서 보인 것이며, 그 사이의 3분의 1은 "
        "그리지 않는다. 칸이 적은 격자(4×4 등)에는 가장 낮은 3분의 1에 드는 주파수가 없어 그 곡선은 거기에서 끝난다."
    )
    method = (
        "2-D Fourier transform of every channel (prefix tokens dropped), half log of the power averaged over channels "
        "and images, along the half diagonal to its true end, minus the value at frequency 0; the option average=paper "
        "takes Park & Kim's mean of logs, which reads white noise 0.35 too high away from 0 and Nyquist. A change is "
        "after minus before, on one grid, and is clear where its whole interval lies on one side of 0; a block with a "
        "single residual addition is read at its output. The bands, 0 and thirds of (0, π], split the mean square of "
        "the features by the larger of both frequencies. A claim holds where mean and median over sub-layers agree on "
        "both scales."
    )
    quantities = tuple(
        Quantity(name, compute, words, unit="log", if_unmoved=known_to(within_rounding, compute))
        for name, compute, words in QUANTITIES
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 2.6, "normal": 30.0, "full": 300.0}
    shown_from = 16
    average: Average = option("power", "what is averaged over images and channels: the power, or its logarithm")

    def passes(self, anatomy: Anatomy) -> float:
        return 2.0  # the transforms of every map take about as long as the pass itself

    def tally(self, scene: Scene) -> FourierTally:
        sites = scene.sites(sub_layers)
        if not sites:
            raise DoesNotApply("no subject has feature maps with more than one position.")
        longest = max(bins(site) for _, site in sites)
        return FourierTally.empty(
            fold=scene.folds, site=len(sites), part=len(PARTS), frequency=longest, band=len(BANDS)
        )

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        bench, layers = bench.first(self.images), sub_layers(bench.anatomy)
        if not len(bench) or not layers:
            return {}
        wanted = views_of(bench.anatomy, self.average)
        views: dict[str, dict[str, View]] = {}
        for _, _, site, view in wanted:
            views.setdefault(site.name, {})[view.name] = view
        seen = bench.look({name: tuple(here.values()) for name, here in views.items()})
        longest = max(bins(site) for site in layers)
        along = torch.full((len(bench), len(layers), len(PARTS), longest), torch.nan)
        energy = torch.full((len(bench), len(layers), len(PARTS), len(BANDS)), torch.nan)
        for row, part, site, view in wanted:
            spectrum, index = seen[site.name][view.name], PARTS.index(part)
            along[:, row, index, : bins(layers[row])] = spectrum[:, : -len(BANDS)]
            energy[:, row, index] = spectrum[:, -len(BANDS) :]
        return {"along": along, "energy": energy, "folds": bench.folds()}

    def update(self, tally: FourierTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = None
        for subject, rows in scene.rows(sub_layers).items():
            if results := views.experiment(subject):
                folds, along = results["folds"], results["along"].double()
                tally.add("along", folds, along, rows, slice(None), slice(along.shape[-1]))
                tally.add("energy", folds, results["energy"].double(), rows)
        if folds is not None:
            tally.add("images", folds)

    def estimate(self, total: FourierTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(sub_layers)
        ends = np.array([bins(site) for _, site in sites])
        level = log_amplitude(total.along / total.images, self.average).numpy()
        level[np.broadcast_to(np.arange(level.shape[-1]) >= ends[:, None, None], level.shape)] = np.nan
        level[np.isneginf(level)] = np.nan  # a branch that is zero, as in a ResNet before training, has no spectrum
        delta = level - level[..., :1]
        highest = {part: delta[np.arange(len(sites)), index, ends - 1] for index, part in enumerate(PARTS)}
        energy = (total.energy / total.images).numpy()
        positive = np.where(energy > 0, energy, np.nan)
        high = {part: np.log(positive[:, index, -1]) / 2 for index, part in enumerate(PARTS)}
        radians = np.full(level[:, 0].shape, np.nan)
        for row, (_, site) in enumerate(sites):
            assert site.grid is not None
            radians[row, : ends[row]] = diagonal(site.grid)[2].numpy()
        has_skip = np.array([skip_of(scene.anatomy(subject), site) is not None for subject, site in sites])
        return xarray.Dataset(
            {
                "delta": (("site", "frequency"), delta[:, 0]),
                "highest": ("site", highest["result"]),
                "energy": (("site", "band"), energy[:, 0], {"limits": (0.0, np.inf)}),
                "change": ("site", highest["result"] - highest["skip"]),
                "branch_change": ("site", highest["branch"] - highest["skip"]),
                "matrix_change": ("site", highest["mixed"] - highest["values"]),
                "high_change": ("site", high["result"] - high["skip"]),
                "matrix_high_change": ("site", high["mixed"] - high["values"]),
                "strided": ("site", highest["strided"]),
                "strided_change": ("site", highest["result"] - highest["strided"]),
            },
            coords=site_coordinates(scene, sites)
            | {"radians": (("site", "frequency"), radians), "has_skip": ("site", has_skip), "band": list(BANDS)},
            attrs={"images": int(total.images), "average": self.average},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        said = []
        for subject in subjects_in(finding):
            of_subject, counts = finding.isel(site=finding.subject.values == subject), []
            for kind in dict.fromkeys(of_subject.kind.values.tolist()):
                here = (of_subject.kind.values == kind) & np.isfinite(of_subject.change.values)
                if here.any():
                    rising, louder = (
                        int((surely(of_subject, name)[here] > 0).sum()) for name in ("change", "high_change")
                    )
                    sub_layers = f"{here.sum()} {KIND_WORDS.get(kind, kind)} sub-layers"
                    counts.append(f"at {rising} of {sub_layers} (the amplitude of high frequencies: at {louder})")
            rises = f"the highest frequency clearly rises against the mean {' and '.join(counts)}"
            said.append(f"in {subject} {rises if counts else 'no sub-layer has a skip of its own grid'}")
        words = "; ".join(said)
        return f"{words[0].upper()}{words[1:]}."
