"""M13: does the model know which patches are near? Cosine similarity of position embeddings, patch by patch.

    likeness(i, j) = p_i · p_j / (‖p_i‖ ‖p_j‖)

A table of positions added to the tokens has a vector for each patch. Its cosine with every other patch's, laid out as a
grid of grids, shows what the model has learned of two dimensions; relative tables are shown as they are, over the step
from query to key. It is read off the weights (after whatever resizing the model does); intervals are over patches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import Experiment, Source, Views
from eyechart.measures.position_embeddings.tables import (
    Lines,
    cosines,
    in_line_and_aside,
    likeness_of_steps,
    nearness,
    row_and_column_bonus,
    step_nearness,
    thinned,
    thinned_grid,
)
from eyechart.quantity import Compute, PerSubjects, Quantity, of_each, of_pairs
from eyechart.reading_estimates import in_words
from eyechart.scene import Batch, Scene
from eyechart.sites import Anatomy, PositionTable
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench

LINES: tuple[Lines, ...] = ("rows", "columns")
MOST = 3  # absolute tables of one subject: the first, a middle and the last, where every layer has one


@dataclass
class PositionTally(Tally):
    """Written once, by the first batch."""

    cosine: Annotated[Tensor, Sum("table", "patch", "other_patch")]
    dealt: Annotated[Tensor, Sum("fold", "table", "patch", counts=True)]
    """1 where a patch is in a fold: its weight, once folds are summed."""
    steps: Annotated[Tensor, Sum("steps", "head", "down", "across")]


@dataclass(frozen=True)
class Row:
    """One table on an axis of the tally: whose, and which of its tables."""

    subject: str
    number: int
    table: PositionTable

    @property
    def grid(self) -> tuple[int, int]:
        return thinned_grid(*self.table.shape[1:])

    @property
    def heads(self) -> int:
        return self.table.shape[0] if self.table.kind == "relative bias" else 1


def absolute(anatomy: Anatomy) -> list[Row]:
    rows = [Row(anatomy.subject, at, table) for at, table in enumerate(anatomy.positions) if table.kind == "absolute"]
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(MOST, len(rows))).round().astype(int))
    return [rows[at] for at in chosen]


def relative(anatomy: Anatomy) -> list[Row]:
    return [Row(anatomy.subject, at, table) for at, table in enumerate(anatomy.positions) if table.kind != "absolute"]


def rows_of(scene: Scene, choose: Callable[[Anatomy], list[Row]]) -> list[Row]:
    return [row for anatomy in scene.anatomies for row in choose(anatomy)]


def deal(patches: int, folds: int) -> np.ndarray:
    """The fold of each patch: dealt at random, so that no fold is a column, and the same everywhere."""
    return np.asarray(np.random.default_rng(0).permutation(patches) % folds)


def of_first_table(variable: str) -> Compute:
    """The first absolute table of every ViT that learned it: the tables of the claim."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        rows = np.flatnonzero((estimate.subject.values == subject) & (estimate.learned.values != 0))
        return float(estimate[variable].values[rows[0]]) if len(rows) else None

    return of_each(number, "vit")


def first_cosines(estimate: xarray.Dataset, subject: str) -> np.ndarray | None:
    """How alike the embeddings of every two patches are, in the first absolute table that a subject learned."""
    rows = np.flatnonzero((estimate.subject.values == subject) & (estimate.learned.values != 0))
    if not len(rows):
        return None
    cosine = estimate.cosine.values[rows[0]]
    patches = int(estimate.rows.values[rows[0]] * estimate.columns.values[rows[0]])
    return np.asarray(cosine[:patches, :patches][np.triu_indices(patches, 1)])


def pattern_distance(estimate: xarray.Dataset, one: str, other: str) -> float | None:
    """1 − correlation, over pairs of patches, of two subjects' likeness; what all pairs share is no pattern.

    Both ways round it is the same to the bit: told apart by rounding, a pair stood on the page twice.
    """
    patterns = [first_cosines(estimate, subject) for subject in sorted((one, other))]
    if patterns[0] is None or patterns[1] is None or len(patterns[0]) != len(patterns[1]):
        return None
    return 1 - float(np.corrcoef(patterns[0], patterns[1])[0, 1])


def of_steps(estimate: xarray.Dataset) -> PerSubjects:
    """Mean over all relative tables of a subject: one for each head, or for each layer whose heads share one."""
    names = estimate.steps_subject.values
    return {
        (str(subject),): float(np.nanmean(estimate.steps_nearness.values[names == subject]))
        for subject in dict.fromkeys(names.tolist())
        if np.isfinite(estimate.steps_nearness.values[names == subject]).any()
    }


@dataclass(frozen=True)
class PositionEmbeddings(Experiment):
    name = "position_embeddings"
    title = "Does it know which patches are near?"
    title_ko = "어느 패치가 가까운지 아는가?"
    order = 66
    chapter = "place"
    sources = (Source("Dosovitskiy et al. 2020", "Figures 7 (centre), 10; Table 8"),)
    how_to_read = (
        "Each small square belongs to one patch and stands where the patch stands; inside it, how alike (cosine) its "
        "position embedding is to that of every patch. A bright spot at the patch's own position means that near "
        "patches are alike; a bright cross, that patches in one row or column are. The curves show the likeness over "
        "distance, for patches in one row, in one column, and for others as far away: gaps show that the model knows "
        "rows and columns. Relative tables are drawn over the step from the patch that looks to the one looked at, in "
        "the middle no step; orange (positive) makes it look there more, blue less. The points are the rank "
        "correlation of each table with nearness: each head has its own, or all heads of a layer share one."
    )
    how_to_read_ko = (
        "작은 정사각형 하나는 그 자리에 있는 패치의 것이고, 그 안은 그 패치의 위치 임베딩이 다른 모든 패치의 것과 "
        "얼마나 비슷한지(코사인)이다. 제자리의 밝은 점은 가까운 패치끼리, 밝은 십자는 같은 행과 열끼리 비슷하다는 "
        "뜻이다. 곡선은 거리에 따른 유사도로, 같은 행, 같은 열, 같은 거리의 다른 패치를 견준다. 곡선이 벌어지면 모델이 "
        "행과 열을 아는 것이다. 상대 위치 표는 보는 패치에서 보이는 패치로의 걸음 위에 그렸고(가운데가 걸음 없음), "
        "주황(양수)은 그쪽을 더, 파랑은 덜 보게 한다. 점은 표마다 가까움과의 순위 상관이다. 표는 헤드마다 따로 있거나 "
        "한 층의 모든 헤드가 함께 쓴다."
    )
    method = (
        "Tables as they are added, found in the forward pass. Nearness: Spearman correlation of cosine with minus "
        "distance over all pairs of patches. Row-and-column bonus: mean cosine of pairs in one row or column, two or "
        "more apart, above that of other pairs at the same distance, interpolated over the squared distance, which "
        "never favours rows; the claim asks for it within rows and within columns, each by itself. Intervals leave out "
        "a sixteenth of the patches in turn, with all their pairs: they are about the choice of patches, not about the "
        "weights."
    )
    quantities = (
        Quantity(
            "position_nearness",
            of_first_table("nearness"),
            "rank correlation of position embeddings' cosine with nearness",
            limits=(-1, 1),
        ),
        Quantity(
            "position_bonus",
            of_first_table("bonus"),
            "cosine within a row or column above that of others as far apart",
            limits=(-2, 2),
        ),
        *(
            Quantity(
                f"position_{line}_bonus",
                of_first_table(f"{line}_bonus"),
                f"cosine within a {line} above that of others as far apart",
                limits=(-2, 2),
            )
            for line in ("row", "column")
        ),
        Quantity(
            "position_pattern_distance",
            of_pairs(pattern_distance, "vit", "vit"),
            "1 − correlation, over all pairs of patches, of how alike two subjects' position embeddings are",
            exact=True,
        ),
        Quantity(
            "relative_nearness",
            of_steps,
            "rank correlation of relative tables with nearness, mean over tables",
            exact=True,
        ),
    )

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        if bench.batch.index != 0:
            return {}
        tables = {}
        for row in absolute(bench.anatomy) + relative(bench.anatomy):
            values = row.table.values
            assert values is not None  # the anatomy is fresh from its dry run
            if row.table.kind == "absolute":
                values = cosines(thinned(values))
            elif row.table.kind == "relative vectors":
                values = likeness_of_steps(values)
            tables[str(row.number)] = torch.from_numpy(values)
        return tables

    def tally(self, scene: Scene) -> PositionTally:
        tables, steps = rows_of(scene, absolute), rows_of(scene, relative)
        if not tables and not steps:
            raise DoesNotApply(
                "no subject adds a table of positions to its tokens or attention scores (a CNN has none; rotary and "
                "convolutional positions are no tables)."
            )
        patches = max((row.grid[0] * row.grid[1] for row in tables), default=0)
        down, across = (max((row.table.shape[axis] for row in steps), default=0) for axis in (1, 2))
        return PositionTally.empty(
            fold=scene.folds,
            table=len(tables),
            patch=patches,
            other_patch=patches,
            steps=len(steps),
            head=max((row.heads for row in steps), default=0),
            down=down,
            across=across,
        )

    def update(self, tally: PositionTally, batch: Batch, views: Views, scene: Scene) -> None:
        if batch.index != 0:
            return
        for at, row in enumerate(rows_of(scene, absolute)):
            cosine = views.experiment(row.subject)[str(row.number)]
            tally.cosine[at, : len(cosine), : len(cosine)] += cosine
            folds = torch.from_numpy(deal(len(cosine), scene.folds))
            tally.dealt[folds, at, torch.arange(len(cosine))] += 1
        for at, row in enumerate(rows_of(scene, relative)):
            values = views.experiment(row.subject)[str(row.number)]
            heads, down, across = values.shape
            tally.steps[at, :heads, :down, :across] += values

    def estimate(self, total: PositionTally, scene: Scene) -> xarray.Dataset:
        tables, steps = rows_of(scene, absolute), rows_of(scene, relative)
        far = max((max(row.grid) for row in tables), default=1) - 1
        near, bonus, *bonuses = np.full((4, len(tables)), np.nan)
        curves = np.full((3, len(tables), far), np.nan)
        cosine = total.cosine.numpy().copy()
        for at, row in enumerate(tables):
            count = row.grid[0] * row.grid[1]
            cosine[at, count:], cosine[at, :, count:] = np.nan, np.nan
            table, weights = cosine[at, :count, :count], total.dealt[at, :count].numpy()
            near[at] = nearness(table, row.grid, weights)
            bonus[at] = row_and_column_bonus(*in_line_and_aside(table, row.grid, weights))
            for line, lines in enumerate(LINES):
                in_line, aside, mass = in_line_and_aside(table, row.grid, weights, lines)
                bonuses[line][at] = row_and_column_bonus(in_line, aside, mass)
                curves[line, at, : len(in_line)], curves[2, at, : len(aside)] = in_line, aside
        heads = total.steps.shape[1]
        stepped = np.full(total.steps.shape, np.nan)
        stepped_near = np.full((len(steps), heads), np.nan)
        for at, row in enumerate(steps):
            place = (at, slice(row.heads), slice(row.table.shape[1]), slice(row.table.shape[2]))
            stepped[place] = total.steps[place].numpy()
            stepped_near[at, : row.heads] = step_nearness(stepped[place], row.table.kind == "relative bias")
        exact, limits = {"exact": True}, {"limits": (-1.0, 1.0)}
        return xarray.Dataset(
            {
                "cosine": (("table", "patch", "other_patch"), cosine, exact),
                "nearness": ("table", near, limits),
                "bonus": ("table", bonus, {"limits": (-2.0, 2.0)}),
                "row_bonus": ("table", bonuses[0], {"limits": (-2.0, 2.0)}),
                "column_bonus": ("table", bonuses[1], {"limits": (-2.0, 2.0)}),
                "in_row": (("table", "distance"), curves[0], limits),
                "in_column": (("table", "distance"), curves[1], limits),
                "aside": (("table", "distance"), curves[2], limits),
                "steps": (("relative", "head", "down", "across"), stepped, exact),
                "steps_nearness": (("relative", "head"), stepped_near, exact),
            },
            coords={
                **coordinates(scene, tables, "table", ""),
                **coordinates(scene, steps, "relative", "steps_"),
                "distance": np.arange(1, far + 1),
            },
            attrs={
                "of_weights": 1,
                "left_out": ", ".join(anatomy.subject for anatomy in scene.anatomies if not anatomy.positions),
                "sample": "Read off the weights, no image drawn; intervals from 16 parts of the patches, each left out "
                "in turn",
            },
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for at, subject in enumerate(finding.subject.values.tolist()):
            table = finding.isel(table=at)
            bonuses = [in_words(table, name, "+.2f") for name in ("row_bonus", "column_bonus")]
            parts.append(
                f"{subject}: likeness of the {int(finding.rows[at])}×{int(finding.columns[at])} position embeddings "
                f"{where(int(finding.block[at]))} goes with nearness at a rank correlation of "
                f"{in_words(table, 'nearness', '.2f')}, and is {bonuses[0]} within rows and {bonuses[1]} within "
                "columns against others as far apart"
            )
        for (subject,), value in of_steps(finding).items():
            parts.append(
                f"{subject}: its relative tables go with nearness at a mean rank correlation of {value:.2f} (exact)"
            )
        gone = finding.attrs.get("left_out", "")
        said = ". ".join(parts) + "."
        return said + (f" No table of positions is added in {gone}." if gone else "")


def where(block: int) -> str:
    return "at the stem" if block < 0 else f"after block {block + 1}"


def coordinates(scene: Scene, rows: Sequence[Row], dim: str, prefix: str) -> dict[str, tuple[str, list[object]]]:
    columns: dict[str, list[object]] = {
        "subject": [row.subject for row in rows],
        "family": [scene.anatomy(row.subject).family for row in rows],
        "path": [row.table.path for row in rows],
        "kind": [row.table.kind for row in rows],
        "learned": [int(row.table.learned) for row in rows],
        "block": [row.table.block for row in rows],
        "depth": [(row.table.block + 1) / max(1, len(scene.anatomy(row.subject).pick("block"))) for row in rows],
        "rows": [row.grid[0] if row.table.kind == "absolute" else row.table.shape[1] for row in rows],
        "columns": [row.grid[1] if row.table.kind == "absolute" else row.table.shape[2] for row in rows],
        "heads": [row.heads for row in rows],
    }
    return {prefix + name: (dim, values) for name, values in columns.items()}
