"""M7: does a token still know where it came from? CKA of the token at (row, column) with the raw pixels of every patch.

X is one token over the images, Y one patch of the input over the same images, and each pair gets

    CKA = mean HSIC(X, Y) / sqrt(mean HSIC(X, X) · mean HSIC(Y, Y))

over blocks of images. A token that is tied to its place resembles its own patch most. A CNN's token is all channels at
one location, and the picture is cut into as many patches as the map has cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
import xarray

from eyechart.errors import DoesNotApply, UsageError
from eyechart.measure import Measure, Source, Views, option, site_coordinates
from eyechart.measures.localisation.quantities import (
    at_end,
    build_of,
    earlier_gain,
    edge_likeness,
    edges_over_pictures,
    largest_ratio,
    last_block,
    of_last,
    over_best,
    over_untrained,
    peak_of_vit,
    ratio,
    units_sentence,
    unmoved_displacements,
    unmoved_over_gap,
    unmoved_rates,
    unmoved_ratio,
    with_cnn,
    with_gap_twin,
)
from eyechart.methods.hsic import check_blocks, packed, scale_of
from eyechart.methods.places import (
    FINEST,
    Cells,
    asked,
    cells_of,
    picture_patches,
    place_names,
    raw_edge_contrast,
    read,
    tokens_in_cells,
)
from eyechart.methods.token_lengths import TOKEN_WORDS, Tokens
from eyechart.methods.twins import class_token_vits, untrained_twin
from eyechart.quantity import Quantity, of_each, subjects_in
from eyechart.reading_estimates import quantity_in_words
from eyechart.scene import Batch, Scene
from eyechart.site_choice import blocks_with_inner_cells
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need, View
from eyechart.tracing.views import Look


def token_view(lengths: Tokens) -> View:
    name = "packed gram of each token" + ("" if lengths == "plain" else f", {lengths}")
    return View(name, partial(tokens_in_cells, lengths=lengths), reduce=packed)


def patch_view(cells: Cells, colour: Literal["kept", "removed"]) -> View:
    def take(look: Look) -> torch.Tensor:
        return picture_patches(look.output, cells, colour)

    return View(f"packed gram of {cells[0]}×{cells[1]} patches, mean colour {colour}", take, reduce=packed)


@dataclass
class LocalisationTally(Tally):
    hsic: Annotated[torch.Tensor, Sum("fold", "site", "token", "patch")]
    token: Annotated[torch.Tensor, Sum("fold", "site", "token")]
    patch: Annotated[torch.Tensor, Sum("fold", "site", "patch")]
    reference_hsic: Annotated[torch.Tensor, Sum("fold", "site", "reference", "patch")]
    """Of the mean of all patches, and of the class token."""
    raw_hsic: Annotated[torch.Tensor, Sum("fold", "subject", "token", "patch")]
    """The same of the raw patches in place of the tokens of the last block: what pictures do without a model."""
    reference: Annotated[torch.Tensor, Sum("fold", "site", "reference")]
    blocks: Annotated[torch.Tensor, Sum("fold", counts=True)]


@dataclass(frozen=True)
class Localisation(Measure):
    name = "localisation"
    title = "Do tokens know where they came from?"
    title_ko = "토큰은 자기 자리를 기억하는가?"
    order = 22
    adds_up_anywhere = True
    chapter = "place"
    sources = (Source("Raghu et al. 2021", "Figures 9, 10, D.1–D.3"),)
    how_to_read = (
        "Each tile belongs to one token of the last block and stands where the token stands in the picture (of many "
        "tokens, 5 a side are shown); inside it, every cell is a patch of the input, bright where the token resembles "
        "the raw pixels of that patch (CKA). The token's own patch is outlined. A bright spot at the outline means "
        "that the token still represents its own patch; a tile that is bright all over means that it represents the "
        "whole picture. All tiles have one colour scale, and the small panels another. These show a token without a "
        "position (the mean of all patches) and the class token: pictures alone make such maps uneven, and their edges "
        "alike. The curves count how many interior tokens resemble their own patch most, over depth; short strokes "
        "mark chance; dashed lines, where NAME@random was given, are the same network untrained: what it shows was not "
        "learnt. Few images make these counts too low. The peak, over depth as well, does not have this bias: how far "
        "the likeness to the own patch stands above that to the eight patches around it (0: not at all, 1: nothing "
        "around)."
    )
    how_to_read_ko = (
        "타일 하나는 마지막 블록의 토큰 하나이고, 타일의 위치는 그 토큰의 위치이다(토큰이 많으면 한 변에 5개). 타일 "
        "안의 칸은 입력 패치이며, 토큰이 그 패치의 픽셀과 닮을수록 밝다(CKA). 테두리는 토큰 자신의 패치이다. 테두리에 "
        "밝은 점이 있으면 토큰이 아직 자기 패치를 담고 있고, 타일 전체가 밝으면 그림 전체를 담고 있다. 타일의 색 "
        "눈금은 모두 같고, 작은 그림의 눈금은 따로 있다. 작은 그림은 위치가 없는 토큰(모든 패치의 평균)과 클래스 "
        "토큰이다. 그림만으로도 이런 맵은 고르지 않고 가장자리끼리 닮는다. 곡선은 깊이에 따라 자기 패치를 가장 닮은 "
        "안쪽 토큰의 비율이고, 짧은 선은 우연, 파선은 (NAME@random을 주었을 때) 학습하지 않은 같은 모델이다. 그것이 "
        "보이는 것은 학습된 것이 아니다. 이미지가 적으면 이 비율은 낮게 나온다. 역시 깊이에 따라 그린 봉우리(peak)는 "
        "자기 패치가 둘레의 여덟 패치보다 얼마나 더 닮았는지이며(0: 조금도 더 닮지 않음, 1: 둘레와는 전혀 닮지 않음), "
        "이런 치우침이 없다."
    )
    method = (
        "Minibatch CKA with the unbiased HSIC between each token (a CNN's location) and each patch of the picture as "
        "the subject is given it. Maps finer than 14×14 are averaged into cells (the largest divisor from 7 to 14); of "
        "grids finer than 8×8, 8 rows and columns of tokens are asked about, against all patches. Hit-rate, sharpness "
        "and displacement (rows in heights, columns in widths of the picture) are over interior tokens; likeness of "
        "edges leaves out adjoining patches, and is also compared with that of the raw patches themselves. Peak: (own "
        "− around) / (own + around), of the mean CKA with the own patch and with the eight around it; own contrast: "
        "the same with all others. The option colour=removed takes each patch's mean colour away, tokens=normalised "
        "divides every token of every image by its length first; give NAME@random for the floor. Of a CNN all units on "
        "grids of at least 3×3 are looked at (of more than 16 as many, evenly spaced), of others 3 blocks. Where few "
        "tokens are counted and hardly any draw of images moved their hit-rate, its interval is the exact one of so "
        "many tokens; that of the last block is the one that claims use, and wider where the rate still moves between "
        "half of the images and all. The highest of many noisy peaks is too high. So the gain of a CNN before its last "
        "unit is the best of three means, over the lower, middle and upper third of those units; the ViT is compared "
        "with the CNN's single best unit, which favours the CNN."
    )
    quantities = (
        Quantity(
            "hit_rate",
            of_last("hit_rate"),
            "share of interior tokens of the last block that resemble their own patch most",
            smooth=False,
            limits=(0, 1),
            halving=True,
            if_unmoved=unmoved_rates,
        ),
        Quantity(
            "localisation_sharpness",
            of_last("sharpness"),
            "own patch above the mean of the others, in their standard deviations",
        ),
        Quantity(
            "displacement",
            of_last("displacement"),
            "distance of the most similar patch from the own one",
            smooth=False,
            unit="picture widths",
            limits=(0, None),
            if_unmoved=unmoved_displacements,
        ),
        Quantity("token_peak", of_last("peak"), "own patch against the eight around it", limits=(-1, 1)),
        Quantity(
            "edge_likeness",
            edge_likeness,
            "CKA of edge tokens with edge patches minus with interior ones",
            limits=(-2, 2),
        ),
        Quantity(
            "edges_over_pictures",
            of_each(edges_over_pictures, class_token_vits),
            "contrast of edge tokens' likeness to edges and to the inside, minus that of the raw patches",
            limits=(-2, 2),
        ),
        Quantity(
            "hit_rate_ratio",
            with_cnn(ratio),
            "hit-rate of the ViT over that of the CNN, which counts at least as chance",
            smooth=False,
            limits=(0, None),
            halving=True,
            if_unmoved=unmoved_ratio,
            ceiling=with_cnn(largest_ratio),
        ),
        Quantity("peak_beside_cnn", with_cnn(peak_of_vit), "peak of the ViT's last block", limits=(-1, 1)),
        Quantity(
            "earlier_peak_gain",
            with_cnn(earlier_gain),
            "peak of the CNN's units before the last, mean over their best third, minus its last",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "peak_over_best_unit",
            with_cnn(over_best("peak")),
            "peak of the ViT minus the CNN's best unit",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "contrast_over_best_unit",
            with_cnn(over_best("own_contrast")),
            "own patch against all others, ViT minus the CNN's best unit",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "hit_rate_over_gap",
            with_gap_twin(lambda vit, twin: vit - twin, "hit_rate"),
            "hit-rate of the class-token ViT minus its GAP twin",
            smooth=False,
            limits=(-1, 1),
            halving=True,
            if_unmoved=unmoved_over_gap,
        ),
        Quantity(
            "peak_kept_by_gap",
            with_gap_twin(lambda vit, twin: twin - vit / 2, "peak"),
            "peak of the GAP twin minus half that of the class-token ViT",
            limits=(-1.5, 1.5),
        ),
        Quantity(
            "hit_rate_over_untrained",
            over_untrained,
            "hit-rate minus that of the untrained twin",
            smooth=False,
            limits=(-1, 1),
        ),
    )

    depths: int = option(3, "blocks looked at: the last, and others evenly before it")
    units: int = option(16, "the same of a CNN, whose best unit is asked for")
    colour: Literal["kept", "removed"] = option(
        "kept", "pictures with their patches' mean colour, or without it (a control)"
    )
    tokens: Tokens = option("plain", "tokens as they are, or each scaled to length one (against a few very long ones)")

    def __post_init__(self) -> None:
        for name, count in (("depths", self.depths), ("units", self.units)):
            if count < 1:
                raise UsageError(f"localisation.{name} takes at least 1 block; got {count}.")

    @property
    def reading(self) -> str | None:
        return None if self.colour == "removed" else TOKEN_WORDS[self.tokens]  # a control; the paper has raw pixels

    def sites(self, anatomy: Anatomy) -> Sequence[Site]:
        return blocks_with_inner_cells(anatomy, of_cnn=self.units, of_others=self.depths)

    def cells(self, anatomy: Anatomy) -> set[Cells]:
        return {cells_of(site.grid) for site in self.sites(anatomy) if site.grid is not None}

    def needs(self) -> Sequence[Need]:
        def pictures(cells: Cells, anatomy: Anatomy) -> Sequence[Site]:
            return [anatomy.input] if cells in self.cells(anatomy) else []

        sides = range(3, FINEST + 1)
        return [
            Need(token_view(self.tokens), self.sites),
            *(
                Need(patch_view(cells, self.colour), partial(pictures, cells))
                for cells in itertools.product(sides, sides)
            ),
        ]

    def tally(self, scene: Scene) -> LocalisationTally:
        sites = scene.sites(self.sites)
        if not sites:
            raise DoesNotApply("no subject has blocks on a grid of at least 3×3, so no token has a place.")
        check_blocks(scene)
        grids = [cells_of(site.grid) for _, site in sites if site.grid is not None]
        tokens, patches = max(len(asked(cells)) for cells in grids), max(math.prod(cells) for cells in grids)
        return LocalisationTally.empty(
            fold=scene.folds,
            site=len(sites),
            subject=len(scene.subjects),
            token=tokens,
            patch=patches,
            reference=2,
        )

    def update(self, tally: LocalisationTally, batch: Batch, views: Views, scene: Scene) -> None:
        if not batch.whole:
            return
        fold = batch.fold
        seen: dict[tuple[str, Cells], torch.Tensor] = {}
        for row, (subject, site) in enumerate(scene.sites(self.sites)):
            anatomy = scene.anatomy(subject)
            assert site.grid is not None
            tokens = views(subject, site, token_view(self.tokens)).double()
            at = subject, cells_of(site.grid)
            if at not in seen:
                seen[at] = views(subject, anatomy.input, patch_view(at[1], self.colour)).double()
            prefix, grid = tokens[: site.layout.prefix], tokens[site.layout.prefix :]
            patches, mean = seen[at][:-1], seen[at][-1:]
            cells = slice(0, len(patches))
            tally.hsic[fold, row, : len(grid), cells] += grid @ patches.T
            tally.token[fold, row, : len(grid)] += grid.square().sum(1)
            tally.patch[fold, row, cells] += patches.square().sum(1)
            if site.name == last_block(anatomy):
                raw = patches[views.put(asked(cells_of(site.grid)))]
                tally.raw_hsic[fold, scene.subjects.index(subject), : len(raw), cells] += raw @ patches.T
            references = [mean, prefix[anatomy.cls : anatomy.cls + 1] if anatomy.cls is not None else prefix[:0]]
            for column, reference in enumerate(references):
                if len(reference):
                    tally.reference_hsic[fold, row, column, cells] += (reference @ patches.T)[0]
                    tally.reference[fold, row, column] += reference.square().sum()
        tally.blocks[fold] += 1

    def estimate(self, total: LocalisationTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(self.sites)
        # Also NaN: tokens and patches beyond a smaller grid, whose sums are 0.
        token, patch, reference = (scale_of(sums.numpy()) for sums in (total.token, total.patch, total.reference))
        cka = total.hsic.numpy() / (token[:, :, None] * patch[:, None])
        cells = [cells_of(site.grid) for _, site in sites if site.grid is not None]
        readings = [read(table[: len(asked(c)), : math.prod(c)], c) for table, c in zip(cka, cells, strict=True)]
        tokens = [np.array(place_names(c))[asked(c)].tolist() for c in cells]
        last = {anatomy.subject: last_block(anatomy) for anatomy in scene.anatomies}
        raw_edges = [
            raw_edge_contrast(total.raw_hsic.numpy()[scene.subjects.index(subject)], scale, c)
            if site.name == last[subject]
            else math.nan
            for (subject, site), scale, c in zip(sites, patch, cells, strict=True)
        ]
        limits: dict[str, Any] = {"limits": (-1.0, 1.0)}
        interior = np.array([reading.interior for reading in readings])
        share = {"limits": (0.0, 1.0), "smooth": False, "trials": interior}
        return xarray.Dataset(
            {
                "cka": (("site", "token", "patch"), cka, limits),
                "reference_cka": (
                    ("site", "reference", "patch"),
                    total.reference_hsic.numpy() / (reference[:, :, None] * patch[:, None]),
                    limits,
                ),
                "hit_rate": ("site", [reading.hit_rate for reading in readings], share),
                "sharpness": ("site", [reading.sharpness for reading in readings]),
                "displacement": (
                    "site",
                    [reading.displacement for reading in readings],
                    {"limits": (0.0, np.inf), "smooth": False, "unit": "picture widths"},
                ),
                "edge_likeness": ("site", [reading.edge_likeness for reading in readings], {"limits": (-2.0, 2.0)}),
                "peak": ("site", [reading.peak for reading in readings], limits),
                "own_contrast": ("site", [reading.own_contrast for reading in readings], limits),
                "edge_contrast": ("site", [reading.edge_contrast for reading in readings], limits),
                "raw_edge_contrast": ("site", raw_edges, limits),
                "chance": ("site", [1 / (h * w) for h, w in cells], {"exact": True}),
            },
            coords={
                **site_coordinates(scene, sites),
                "rows": ("site", [h for h, _ in cells]),
                "columns": ("site", [w for _, w in cells]),
                "interior": ("site", interior),
                "token_place": (("site", "token"), filled(tokens, cka.shape[1])),
                "patch_place": (("site", "patch"), filled([place_names(c) for c in cells], cka.shape[2])),
                "reference": ["mean of all patches", "class token"],
                "final": ("site", [site.name == last[subject] for subject, site in sites]),
                "classifier_reads": ("site", [str(scene.anatomy(subject).pooling) for subject, _ in sites]),
                "build": ("site", [build_of(scene.anatomy(subject)) for subject, _ in sites]),
            },
            attrs={"images": scene.images_in_blocks},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            hits, twin = at_end(finding, subject), untrained_twin(finding, subject)
            if math.isnan(hits):
                continue
            text = (
                f"in the last block of {subject} {quantity_in_words(finding, 'hit_rate', '.0%', subject)} of the "
                f"interior tokens resemble their own patch most (chance {at_end(finding, subject, 'chance'):.1%}); the "
                f"most similar patch is on average {quantity_in_words(finding, 'displacement', '.2f', subject)} "
                f"picture widths away, and the own patch stands "
                f"{quantity_in_words(finding, 'token_peak', '.2f', subject)} above the eight around it"
            )
            if twin is not None:
                text += f"; untrained it is {quantity_in_words(finding, 'hit_rate', '.0%', twin)}"
            parts += [text, *units_sentence(finding, subject)]
        said = ". ".join(part[0].upper() + part[1:] for part in parts)
        return (said or "No last block has interior tokens whose patches vary") + "."


def filled(rows: Sequence[Sequence[str]], length: int) -> list[list[str]]:
    return [[*row, *[""] * (length - len(row))] for row in rows]
