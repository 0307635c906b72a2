"""M8: where can the class be read off? A linear probe at every block, for each way of reading it out.

Ridge regression to ±1 targets in closed form (`methods.ridge`), fitted on three quarters of the images and asked about
the last one, in turn,

    w = argmin  mean ‖y − b − z w‖² + penalty ‖w‖²        z: standardised features, y = ±1, b = mean y

so that each image is answered by a probe that never saw it. The penalty is chosen within the three quarters, two
against the third.

What is kept. Held-out answers need the features of single images, so up to 1,024 images leave a row; in a larger exam
all others go into float64 sums Σ x xᵀ and Σ x yᵀ of their quarter, and the probes of pooled readouts are exact over all
images. Probes of single tokens are fitted on the rows alone (77 images a class on CIFAR-10; the paper had 10 a class),
because their sums would take gigabytes. Features wider than 192 (tokens: 128) pass a fixed Gaussian random projection.
A row of zoo:vit and zoo:resnet together is 173 kB (4 × 160 numbers and 16 tokens × 128 at each of 9 blocks of the
first), so the rows of an exam take 177 MB at most; the sums of zoo:vit, where there are any, 17 MB a shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.kept_rows import RowsTally, kept, rows_at_most
from eyechart.measure import Measure, Source, Views, option, site_coordinates
from eyechart.measures.probes.quantities import (
    DIFFERENCES,
    TWICE,
    class_token_vits,
    divergence,
    half_lead_depth,
    middle_accuracy,
    of_twins,
    through_a_projection,
    widths_read,
)
from eyechart.methods.ridge import Moments, choose, fit
from eyechart.methods.twins import build_of
from eyechart.quantity import Quantity, of_each, subjects_in
from eyechart.reading_estimates import in_words, site_indices
from eyechart.scene import Batch, Scene
from eyechart.site_choice import blocks_with_grid
from eyechart.tally import Sum
from eyechart.tracing.needs import Need, View
from eyechart.tracing.readouts import READOUTS, Group, Widths, groups_of, read_out

PARTS = 4
LARGEST_ROWS = 1 << 30  # bytes; the rows of all images together
SUMMED = READOUTS[1:]


@dataclass
class ProbeTally(RowsTally):
    products: Annotated[Tensor, Sum("part", "product")]
    """Σ x xᵀ of images without a row: upper triangles of all readouts of one vector, one after the other."""
    sums: Annotated[Tensor, Sum("part", "summed", "class")]
    counts: Annotated[Tensor, Sum("part", "class")]


@dataclass(frozen=True)
class Probes(Measure):
    name = "probes"
    title = "Where can the class be read off?"
    title_ko = "어디에서 클래스를 읽어 낼 수 있는가?"
    order = 50
    adds_up_anywhere = True
    chapter = "tell"
    labels = "images"
    sources = (Source("Raghu et al. 2021", "Figures 11, 13, D.4, F.1–F.3"),)
    how_to_read = (
        "After every block: the share of pictures, not used to fit it, that a linear probe names right. First, a probe "
        "for each single token (of a CNN: each place), averaged: high where the class can be read at every position. "
        "Then one probe for the class token, for the mean of the patch tokens with and without it, and for the first "
        "patch token. The depth at which class token and mean part is where the class token has half of its largest "
        "lead. Below, the accuracy of each token's own probe, at its place in the picture. The dashed line is what "
        "naming the commonest class would score."
    )
    how_to_read_ko = (
        "블록마다 선형 프로브가 학습에 쓰지 않은 그림을 맞힌 비율이다. 처음은 토큰(CNN은 위치) 하나하나에 따로 학습한 "
        "프로브의 평균으로, 모든 자리에서 클래스를 읽을 수 있으면 높다. 다음은 클래스 토큰, 패치 토큰의 평균(클래스 "
        "토큰 포함/제외), 첫 패치 토큰의 프로브이다. 클래스 토큰과 평균이 갈라지는 깊이는 그 차이가 최댓값의 절반에 "
        "이르는 곳이다. 아래는 토큰마다의 정확도를 그림 속 위치에 그린 것이다. 파선은 가장 흔한 클래스만 답할 때의 "
        "정확도이다."
    )
    method = (
        "Ridge regression to ±1 targets on standardised features, in closed form; each quarter of the images is "
        "answered by a probe fitted on the other three, whose penalty was chosen by squared error on one of the three "
        "after fitting on two. Pooled readouts are fitted on all images; single tokens on up to 1,024, at 16 evenly "
        "spaced places. Features wider than 192 (tokens: 128) pass a fixed Gaussian projection (options width, "
        "token_width): on the bundled ResNet it moves probes by up to 9 points, and the sentence above says where it "
        "was used. CNN maps are brought to the grid of the last block: neighbours are flattened into channels, then "
        "positions averaged. Intervals are over held-out images, for the probes that were fitted."
    )
    quantities = (
        *(
            Quantity(name, compute, words, paired=True, limits=(-2, 2) if name in TWICE else (-1, 1))
            for name, compute, words in DIFFERENCES
        ),
        Quantity(
            "middle_probe",
            of_each(middle_accuracy),
            "probe of the mean token at the middle third of blocks",
            limits=(0.0, 1.0),
        ),
        Quantity(
            "half_lead_depth",
            of_each(half_lead_depth, class_token_vits),
            "depth at which the lead of the class token's probe over that of all tokens' mean reaches half of its "
            "largest value, 1 if it never leads",
            smooth=False,
            limits=(0.0, 1.0),
        ),
        Quantity(
            "probe_divergence",
            of_twins(divergence),
            "size of the difference of the single-token probes of a GAP and a class-token ViT, block by block, last "
            "third minus twice the rest",
            smooth=False,
            limits=(-2, 1),
        ),
    )
    width: int = option(192, "features of a pooled readout above which a random projection is used")
    token_width: int = option(128, "the same of a single token")
    positions: int = option(4, "tokens along each side of the grid that get a probe of their own")
    rows: int = option(1024, "images that leave a row")

    @property
    def widths(self) -> Widths:
        return Widths(self.width, self.token_width, self.positions)

    @property
    def view(self) -> View:
        return View(f"probe features, {self.widths}", partial(read_out, widths=self.widths))

    def needs(self) -> Sequence[Need]:
        return [Need(self.view, blocks_with_grid)]

    def tally(self, scene: Scene) -> ProbeTally:
        assert scene.classes is not None  # the plan has checked
        if scene.images < PARTS * len(scene.classes):
            raise DoesNotApply(
                f"{scene.images} images are fewer than {PARTS} for each of {len(scene.classes)} classes, too few to "
                "fit probes and to test them on others."
            )
        groups = groups_of(scene, self.widths)
        if not groups:
            raise DoesNotApply("no subject has blocks whose output is a grid of positions.")
        size = groups[-1].stop * 4 * rows_at_most(scene, self.rows)
        if size > LARGEST_ROWS:
            raise DoesNotApply(
                f"the features it keeps would take {size / 2**30:.1f} GiB, more than {LARGEST_ROWS / 2**30:.0f}; "
                "examine fewer subjects at a time, or set probes.positions=2 or fewer probes.rows."
            )
        widths = [group.width for group in groups if group.readout in SUMMED]
        return ProbeTally.empty(
            fold=scene.folds,
            dealt_fold=scene.folds,
            feature=groups[-1].stop,
            part=PARTS if rows_at_most(scene, self.rows) < scene.images else 0,
            product=sum(width * (width + 1) // 2 for width in widths),
            summed=sum(widths),
            **{"class": len(scene.classes)},
        )

    def update(self, tally: ProbeTally, batch: Batch, views: Views, scene: Scene) -> None:
        assert batch.labels is not None  # the images have classes
        features = torch.cat(
            [views(subject, site, self.view) for subject, site in scene.sites(blocks_with_grid)], dim=1
        )
        labelled, chosen = batch.labels >= 0, kept(batch, scene, self.rows)
        tally.keep(batch, features, labelled & chosen)
        parts = batch.image_folds % PARTS
        for part in range(tally.sizes["part"]):
            here = np.flatnonzero(labelled & ~chosen & (parts == part))
            labels, rows = views.put(batch.labels[here]), features[views.put(here)]
            for group, sums, products in summed(groups_of(scene, self.widths)):
                seen = Moments.of(group.features(rows), labels, tally.sizes["class"])
                tally.products[part, products] += seen.products[0][upper(group.width, rows.device)]
                tally.sums[part, sums] += seen.sums[0]
            tally.counts[part].index_add_(0, labels, torch.ones_like(labels, dtype=tally.counts.dtype))

    def estimate(self, total: ProbeTally, scene: Scene) -> xarray.Dataset:
        groups, sites = groups_of(scene, self.widths), scene.sites(blocks_with_grid)
        if len(total.image) not in total.computed:
            total.computed[len(total.image)] = self.right_by_fold(total, groups)
        weights, held = total.fold_weights, torch.bincount(total.fold, minlength=scene.folds).double()
        shares = (weights @ total.computed[len(total.image)] / (weights @ held)).numpy()
        accuracy = np.full((len(sites), len(READOUTS)), np.nan)
        of_tokens = np.full((len(sites), *np.max([group.grid for group in groups], axis=0)), np.nan)
        at = 0
        for group in groups:
            of_group = shares[at : at + group.probes].reshape(group.grid)
            accuracy[group.site, READOUTS.index(group.readout)] = of_group.mean()
            if group.readout == "tokens":
                of_tokens[group.site, : group.grid[0], : group.grid[1]] = of_group
            at += group.probes
        limits = {"limits": (0.0, 1.0), "trials": float(weights @ held)}
        coordinates = site_coordinates(scene, sites) | {"readout": list(READOUTS)}
        coordinates["pooling"] = ("site", [scene.anatomy(subject).pooling or "" for subject, _ in sites])
        coordinates |= widths_read(groups, len(sites))
        coordinates["build"] = ("site", [str(build_of(scene.anatomy(subject))) for subject, _ in sites])
        commonest = float(torch.bincount(total.label).max()) / max(1, len(total.label))
        return xarray.Dataset(
            {
                "accuracy": (("site", "readout"), accuracy, limits),
                "token_accuracy": (("site", "y", "x"), of_tokens, limits),
                "chance": ("site", np.full(len(sites), commonest), {"exact": True}),
            },
            coords=coordinates,
            attrs={"images": len(total.image)},
        )

    def right_by_fold(self, tally: ProbeTally, groups: Sequence[Group]) -> Tensor:
        """How many held-out images of each fold every probe names right, (fold, probe)."""
        classes, here = tally.sizes["class"], [tally.fold % PARTS == part for part in range(PARTS)]
        others = {group: (sums, products) for group, sums, products in summed(groups) if len(tally.counts)}
        columns = []
        for group in groups:
            features = group.features(tally.features)
            moments = [Moments.of(features[rows], tally.label[rows], classes) for rows in here]
            if group in others:
                moments = [
                    of_rows + from_sums(tally, part, group.width, *others[group])
                    for part, of_rows in enumerate(moments)
                ]
            right = torch.zeros(len(features), group.probes, dtype=torch.float64)
            for part, rows in enumerate(here):
                one, two, three = (moments[(part + step) % PARTS] for step in range(1, PARTS))
                readout = fit(one + two + three, choose(one + two, three))
                right[rows] = (readout.scores(features[rows]).argmax(-1) == tally.label[rows, None]).double()
            by_fold = torch.zeros(tally.sizes["dealt_fold"], group.probes, dtype=torch.float64)
            columns.append(by_fold.index_add_(0, tally.fold, right))
        return torch.cat(columns, dim=1)

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            last = finding.isel(site=site_indices(finding, subject)[-1])
            said = {"tokens": "a single token", "cls": "the class token", "gap": "the mean token"}
            numbers = [
                f"{in_words(last.sel(readout=readout), 'accuracy', '.1%')} from {words}"
                for readout, words in said.items()
                if np.isfinite(last.accuracy.sel(readout=readout))
            ]
            said_of = ", ".join(numbers).replace(" from ", " of the pictures right from ", 1)
            parts.append(f"after the last block of {subject} a probe names {said_of}")
        said_all = "; ".join(parts)
        remarks = [f"The commonest class alone is {float(finding.chance[0]):.1%}.", *through_a_projection(finding)]
        return "\n".join([f"{said_all[0].upper()}{said_all[1:]}.", *remarks])


def summed(groups: Sequence[Group]) -> Iterator[tuple[Group, slice, slice]]:
    """The readouts that have sums, with their places in `ProbeTally.sums` and `ProbeTally.products`."""
    at_sum = at_product = 0
    for group in groups:
        if group.readout in SUMMED:
            size = group.width * (group.width + 1) // 2
            yield group, slice(at_sum, at_sum + group.width), slice(at_product, at_product + size)
            at_sum, at_product = at_sum + group.width, at_product + size


def upper(width: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    rows, columns = torch.triu_indices(width, width, device=device)
    return rows, columns


def from_sums(tally: ProbeTally, part: int, width: int, sums: slice, products: slice) -> Moments:
    """The moments of the images without a row, for one readout and one quarter of the images."""
    triangle = torch.zeros(width, width, dtype=torch.float64)
    triangle[upper(width)] = tally.products[part, products]
    return Moments((triangle + triangle.triu(1).T)[None], tally.sums[part, sums][None], tally.counts[part])
