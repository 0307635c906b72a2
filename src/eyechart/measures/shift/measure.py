"""E14: what happens when the picture moves? Do features move along (equivariance), does the answer stay (invariance)?

    similarity = 1 − Σ|a − b|² / (Σ|a − m|² + Σ|b − m|²)        a = f(shifted), b = shifted f, m their mean

It is 1 if features move along, 0 if they are unrelated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
import xarray

from eyechart.errors import DoesNotApply
from eyechart.images.plan import FOLDS
from eyechart.measure import SampledExperiment, Source, Views, option, site_coordinates
from eyechart.measures.shift.shifts import (
    Border,
    cells_moved,
    compare,
    positions,
    room,
    shifts_of,
    similarity,
    variation,
)
from eyechart.quantity import Compute, PerSubjects, Quantity, minus_cnn, of_each
from eyechart.reading_estimates import quantity_in_words, site_indices
from eyechart.scene import Batch, Scene
from eyechart.site_choice import some_blocks_with_grid
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap

DEPTHS = 12  # blocks that are looked at, at most
PIECE = 16  # images whose maps are in memory at once
KINDS = ("one pixel", "one patch")
PIXEL, PATCH = range(2)
MAP = View("whole map", lambda look: look.map(look.output).float())


def blocks(anatomy: Anatomy) -> Sequence[Site]:
    """Blocks with a map of at least 4×4 cells: a coarser one cannot move by a cell within the room there is."""
    return some_blocks_with_grid(anatomy, DEPTHS, least_side=4)


def patch_of(anatomy: Anatomy) -> int:
    """The shift that every map can follow: the cell of the coarsest grid; a ViT's patch. Pixels; 0 without a grid."""
    height, width = anatomy.input_size
    cells = [max(height / site.grid[0], width / site.grid[1]) for site in blocks(anatomy) if site.grid]
    return min(round(max(cells)), room((height, width))) if cells else 0


def pixels(anatomy: Anatomy) -> list[int]:
    """All shifts of a subject."""
    return shifts_of(anatomy.input_size, patch_of(anatomy) or 1)


@dataclass
class ShiftTally(Tally):
    along: Annotated[torch.Tensor, Sum("fold", "site", "shift")]
    stayed: Annotated[torch.Tensor, Sum("fold", "site", "shift")]
    squares: Annotated[torch.Tensor, Sum("fold", "site", "shift")]
    cells: Annotated[torch.Tensor, Sum("fold", "site", "shift")]
    both: Annotated[torch.Tensor, Sum("fold", "site", "shift", "channel")]
    variation: Annotated[torch.Tensor, Sum("fold", "each_subject", "pixels")]
    agreement: Annotated[torch.Tensor, Sum("fold", "each_subject", "pixels")]
    answered: Annotated[torch.Tensor, Sum("fold", "each_subject")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


def of_features(variable: str, kind: int) -> Compute:
    """Mean over a subject's blocks."""
    return of_each(
        lambda estimate, subject: float(estimate[variable].values[site_indices(estimate, subject), kind].mean())
    )


def of_answers(variable: str, kind: int) -> Compute:
    """What a shift by one pixel, or by the subject's own patch, does to its answers; NaN without any."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        asked = [1] * estimate.sizes["each_subject"] if kind == PIXEL else estimate.patch.values
        column = [int(np.flatnonzero(row == shift)[0]) for row, shift in zip(estimate.px.values, asked, strict=True)]
        values = estimate[variable].values[np.arange(len(column)), column]
        return {
            (str(subject),): float(value) for subject, value in zip(estimate.each_subject.values, values, strict=True)
        }

    return compute


@dataclass(frozen=True)
class Shift(SampledExperiment):
    name = "shift"
    title = "What happens when the picture moves?"
    title_ko = "그림이 움직이면 어떻게 되는가?"
    order = 26
    chapter = "break"
    sources = (Source("eyechart", "shift tests of equivariance and invariance"),)
    how_to_read = (
        "The picture moves by a few pixels. Above: how well the features after each block move along. 1 means that "
        "they are the same features at another place (equivariance), 0 that they are unrelated. First by one cell of "
        "the coarsest grid (a ViT's patch); the dashed line leaves the map where it was, and what lies between the two "
        "lines is what moving along explains. Next by one pixel: a hollow point marks a map whose cells are larger "
        "than that, so that it cannot follow and is compared as it stands. Below: how much of the answer changes, and "
        "how often the first choice stays; rings mark each subject's own patch. Convolutions move along by "
        "construction, except for their padding and their strides; attention does where it is not given positions."
    )
    how_to_read_ko = (
        "그림을 몇 픽셀 옮긴다. 위: 블록마다 특징이 얼마나 함께 움직이는가. 1이면 자리만 다른 같은 "
        "특징이고(등변), 0이면 무관하다. 처음은 가장 성긴 격자의 한 칸(ViT의 패치)만큼 옮긴다. 파선은 맵을 "
        "제자리에 두고 비교한 것이며, 두 선의 차이가 함께 움직여서 설명되는 몫이다. 다음은 한 픽셀만큼 옮긴다. "
        "속이 빈 점은 칸이 한 픽셀보다 커서 따라갈 수 없어 그대로 비교한 맵이다. 아래: 답이 얼마나 바뀌는지와 "
        "첫째 답이 얼마나 자주 그대로인지이며, 고리는 대상마다 자기 패치의 크기이다. 합성곱은 패딩과 "
        "스트라이드를 빼면 만듦새 때문에 함께 움직이고, 어텐션은 위치를 받지 않는 만큼 그렇다."
    )
    method = (
        "Both pictures are windows of one picture enlarged by a quarter, along x for half of the images and along y "
        "for the others. New pixels enter on one side, so only places in the inner half of both maps are compared. "
        "Similarity of two maps a, b: 1 − Σ|a − b|²/(Σ|a − m|² + Σ|b − m|²), with m the mean vector over all places "
        "and images. Answers: total variation of the softmax and share of equal top-1 answers. Option border=wrap lets "
        "pixels that leave on one side enter on the other instead."
    )
    quantities = (
        Quantity(
            "patch_equivariance",
            of_features("similarity", PATCH),
            "similarity of features that move along with a shift of one patch, mean over blocks",
            limits=(None, 1),
        ),
        Quantity(
            "patch_unmoved",
            of_features("unmoved", PATCH),
            "similarity after a shift of one patch, with the map left where it was, mean over blocks",
            limits=(None, 1),
        ),
        Quantity(
            "pixel_equivariance",
            of_features("similarity", PIXEL),
            "similarity of features after a shift of one pixel, mean over blocks",
            limits=(None, 1),
        ),
        Quantity(
            "patch_variation",
            of_answers("variation", PATCH),
            "share of the answer that changes with one patch",
            limits=(0, 1),
        ),
        Quantity(
            "pixel_variation",
            of_answers("variation", PIXEL),
            "share of the answer that changes with one pixel",
            limits=(0, 1),
        ),
        Quantity(
            "pixel_agreement",
            of_answers("agreement", PIXEL),
            "share of equal top-1 answers after one pixel",
            limits=(0, 1),
            share=True,
        ),
        Quantity(
            "patch_equivariance_above_cnn",
            minus_cnn(of_features("similarity", PATCH)),
            "similarity of features that move along with one cell of their own grid (a ViT's patch, a CNN's last "
            "stride), mean over blocks, ViT minus CNN",
        ),
        Quantity(
            "pixel_variation_above_cnn",
            minus_cnn(of_answers("variation", PIXEL)),
            "share of the answer that changes with one pixel, ViT minus CNN",
            limits=(-1, 1),
        ),
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 5, "normal": 40, "full": 300}

    images: int = option(0, "how many; 0: as the effort allows")
    border: Border = option(
        "crop", "what a shifted picture shows at its border: cropped from a larger one, or wrapped around"
    )

    def passes(self, anatomy: Anatomy) -> float:
        return 1.0 + len(pixels(anatomy))

    def experiment(self, bench: Bench) -> Mapping[str, torch.Tensor]:
        few = bench.first(self.images)
        if not len(few):
            return {}
        number = torch.arange(len(few))
        place = number + few.batch.start
        across = (place + place // FOLDS) % 2 == 0  # half of every fold: folds must not differ by how they move

        def work(size: int) -> dict[str, torch.Tensor]:
            ways = ((3, number[across]), (2, number[~across]))
            pieces = [(axis, piece) for axis, some in ways for piece in torch.split(some, min(size, PIECE))]
            parts = [
                self._moved(few, piece, axis) | {"fold": few.folds()[piece]} for axis, piece in pieces if len(piece)
            ]
            return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}

        return few.piece_size.fit(len(few), work)

    def _moved(self, bench: Bench, piece: torch.Tensor, axis: int) -> dict[str, torch.Tensor]:
        """Some images, all shifts: see `compare` and `variation`."""
        sites, shifts = blocks(bench.anatomy), pixels(bench.anatomy)
        tap = Tap(bench.subject.module, bench.anatomy, {site.name: [MAP] for site in sites})
        plain = Tap(bench.subject.module, bench.anatomy)
        asked = ((1, PIXEL), (patch_of(bench.anatomy), PATCH))  # the same shift where a cell is a pixel
        images = bench.images[piece.to(bench.images.device)]
        pictures = positions(images, shifts, axis, self.border)
        widest = max((site.channels for site in sites), default=0)
        sums = torch.zeros(len(piece), len(sites), 2, 4, dtype=torch.float64)
        both = torch.zeros(len(piece), len(sites), 2, widest, dtype=torch.float64)
        answers, still = list[torch.Tensor](), dict[str, dict[str, torch.Tensor]]()
        for shift, picture in zip((0, *shifts), pictures, strict=True):
            kinds = [kind for pixel, kind in asked if pixel == shift]
            with bench.seeded():  # a stochastic subject draws the same numbers for every position
                output, seen = (tap if shift == 0 or kinds else plain).run(picture, bench.subject.call)
            logits = bench.subject.logits(output)
            answers += [] if logits is None else [logits]
            still = seen if shift == 0 else still
            for kind in kinds if shift else ():
                for at, site in enumerate(sites):
                    one, other = still[site.name][MAP.name], seen[site.name][MAP.name]
                    steps, _ = cells_moved(shift, picture.shape[axis], one.shape[axis])
                    compared, channels = compare(one, other, steps, axis, self.border)
                    sums[:, at, kind], both[:, at, kind, : channels.shape[1]] = compared.cpu(), channels.cpu()
        result = {"sums": sums, "both": both}
        if answers:
            first, *moved = answers
            result["variation"] = torch.stack([variation(first, answer) for answer in moved], 1).cpu()
            result["agreement"] = torch.stack([first.argmax(1) == answer.argmax(1) for answer in moved], 1).cpu()
        return result

    def tally(self, scene: Scene) -> ShiftTally:
        sites = scene.sites(blocks)
        if not sites:
            raise DoesNotApply("no subject has blocks with feature maps of at least 4×4 cells.")
        return ShiftTally.empty(
            fold=scene.folds,
            site=len(sites),
            shift=len(KINDS),
            channel=max(site.channels for _, site in sites),
            each_subject=len(scene.subjects),
            pixels=max(len(pixels(anatomy)) for anatomy in scene.anatomies),
        )

    def update(self, tally: ShiftTally, batch: Batch, views: Views, scene: Scene) -> None:
        counted = False
        for row, (subject, sites) in enumerate(scene.rows(blocks).items()):
            if results := views.experiment(subject):
                folds = results["fold"]
                for column, name in enumerate(("along", "stayed", "squares", "cells")):
                    tally.add(name, folds, results["sums"][..., column], sites)
                tally.add("both", folds, results["both"], sites, slice(None), slice(results["both"].shape[-1]))
                if "variation" in results:
                    shifts = results["variation"].shape[1]
                    tally.add("variation", folds, results["variation"].double(), row, slice(shifts))
                    tally.add("agreement", folds, results["agreement"].double(), row, slice(shifts))
                    tally.add("answered", folds, None, row)
                if not counted:
                    tally.add("images", folds)
                counted = True

    def estimate(self, total: ShiftTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(blocks)
        shifts = [pixels(anatomy) for anatomy in scene.anatomies]
        longest = total.variation.shape[1]
        px = np.array([[*row, *[0] * (longest - len(row))] for row in shifts])
        patches = [patch_of(anatomy) for anatomy in scene.anatomies]
        moves = [self._steps(scene.anatomy(subject), site) for subject, site in sites]
        measured = torch.as_tensor(px > 0) & (total.answered > 0)[:, None]
        of_all = (total.squares, total.both, total.cells)
        share, below = {"limits": (0.0, 1.0)}, {"limits": (None, 1.0)}
        answers = {
            name: (values / total.answered[:, None]).where(measured, torch.nan).numpy()
            for name, values in (("variation", total.variation), ("agreement", total.agreement))
        }
        dims = ("site", "shift")
        return xarray.Dataset(
            {
                "similarity": (dims, similarity(total.along, *of_all).numpy(), below),
                "unmoved": (dims, similarity(total.stayed, *of_all).numpy(), below),
                "variation": (("each_subject", "pixels"), answers["variation"], share),
                "agreement": (
                    ("each_subject", "pixels"),
                    answers["agreement"],
                    share | {"trials": float(total.images)},
                ),
                "follows": (dims, np.array([[exact for _, exact in row] for row in moves])),
            },
            coords=site_coordinates(scene, sites)
            | {
                "shift": list(KINDS),
                "each_subject": list(scene.subjects),
                "px": (("each_subject", "pixels"), px),
                "patch": ("each_subject", [patch or 1 for patch in patches]),
                "side": ("each_subject", [anatomy.input_size[1] for anatomy in scene.anatomies]),
            },
            attrs={"images": int(total.images), "border": self.border},
        )

    @staticmethod
    def _steps(anatomy: Anatomy, site: Site) -> list[tuple[int, bool]]:
        grid = site.grid or (1, 1)
        return [cells_moved(shift, anatomy.input_size[1], grid[1]) for shift in (1, patch_of(anatomy))]

    def sentence(self, finding: xarray.Dataset) -> str:
        moved = of_features("similarity", PATCH)(finding)
        changed = of_answers("variation", PIXEL)(finding)
        parts = []
        for at, subject in enumerate(finding.each_subject.values.tolist()):
            text = f"{subject}: no maps to compare"
            if (subject,) in moved:
                patch = int(finding.patch.values[at])
                text = (
                    f"{subject}: when the picture moves by {patch} px, features that move along keep a similarity "
                    f"of {quantity_in_words(finding, 'patch_equivariance', '.2f', subject)}, mean over its blocks "
                    f"(left where they were: {quantity_in_words(finding, 'patch_unmoved', '.2f', subject)})"
                )
            if np.isfinite(changed[subject,]):
                share = quantity_in_words(finding, "pixel_variation", ".1%", subject)
                text += f", and one pixel changes {share} of the answer"
            parts.append(text)
        return "; ".join(parts) + "."
