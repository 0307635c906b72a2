"""M4: how far does one place see? The gradient of the middle of each feature map with respect to the input picture.

    map(y, x) = size of ∂f/∂x(y, x) over the channels of f, averaged over images

Its radius is that of the disc that holds half of its mass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
import xarray

from eyechart.errors import DoesNotApply
from eyechart.measure import SampledExperiment, Source, Views, option, site_coordinates
from eyechart.measures.receptive_field.over_depth import (
    early,
    early_beyond_cell,
    gap_of,
    growth,
    jump_ends,
    jump_from_middle,
    late,
    least_growth,
    mean_of,
    own_cell,
    skip_effect,
    steps_above,
    within_a_block,
)
from eyechart.methods.receptive import (
    RINGS,
    SIDE,
    exact_map,
    fixed_weights,
    middle,
    persistence,
    projected_map,
    radius_of_share,
    ring_width,
    summary,
)
from eyechart.quantity import Quantity, of_each, of_pairs, subjects_in
from eyechart.reading_estimates import in_words, site_indices, spanned
from eyechart.scene import Batch, Scene
from eyechart.site_choice import some_blocks_and_mixing_branches
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap
from eyechart.tracing.views import Look

FEW_DEPTHS = 6  # of a subject too large for 12: a ViT-S of 14-pixel patches takes 67 s then, and 38 s so
PIECE = 16  # images whose graph is in memory at once: a ViT-B keeps about 0.2 GB an image


def at_middle(look: Look, tensor: torch.Tensor) -> torch.Tensor:
    """(image, channel) at the middle cell."""
    row, column = middle(look.site.grid or (1, 1))
    return look.map(tensor)[:, :, row, column]


AFTER = View("middle of the map", lambda look: at_middle(look, look.output))
BEFORE = View("middle of the branch", lambda look: at_middle(look, look.branch), before=True)


@dataclass
class ReceptiveTally(Tally):
    map: Annotated[torch.Tensor, Sum("fold", "site", "y", "x")]
    ring: Annotated[torch.Tensor, Sum("fold", "site", "centre", "ring")]
    own: Annotated[torch.Tensor, Sum("fold", "site", "centre")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


@dataclass(frozen=True)
class ReceptiveField(SampledExperiment):
    name = "receptive_field"
    title = "How far does one place see?"
    title_ko = "한 위치는 얼마나 멀리 보는가?"
    order = 24
    chapter = "look"
    sources = (Source("Raghu et al. 2021", "Figures 6, C.1–C.4"),)
    how_to_read = (
        "Each tile is the picture: bright where a change would move the features in the middle of the map, at some "
        "depth, from 0 (black) to the tile's own largest value; the outline is the middle cell itself. First: the "
        "output of a block. Next: the branch alone, before it is added to the skip. A bright outline in the first that "
        "is missing in the next is due to the skip. Below: the radius that holds half of a map, and the share inside "
        "the outline. Short strokes mark the radius of a bare cell: what lies above them comes from outside the cell. "
        "In the paper, low ViT layers already see far, a ResNet's view grows step by step, and the ViT's jumps midway. "
        "A CNN's cells are smaller than a ViT's patch in early blocks and larger in late ones, which alone changes the "
        "share inside them. The dotted line is the share in a disc of 1/64 of the picture, the same for all; the claim "
        "is judged by it, in the last third of the blocks."
    )
    how_to_read_ko = (
        "칸마다 입력 그림이며, 어떤 깊이에서 맵 가운데의 특징을 움직이는 픽셀이 밝다(0은 검정, 칸마다 가장 큰 "
        "값이 기준). 테두리는 그 위치의 칸이다. 처음은 블록의 출력, 다음은 잔차 연결과 더하기 전의 가지이다. "
        "처음에만 있고 다음에 없는 밝은 테두리는 잔차 연결 때문이다. 아래는 질량의 절반을 담는 반지름과 테두리 "
        "안의 비율이다. 짧은 선은 자기 칸만 볼 때의 반지름이며, 그보다 위는 칸 바깥에서 온다. 논문에서는 ViT의 "
        "낮은 층도 이미 멀리 보고, ResNet의 시야는 차츰 넓어지며, ViT의 시야는 중간에서 뛴다. CNN의 칸은 초기 "
        "블록에서 ViT의 패치보다 작고 후기에는 커서, 그것만으로 테두리 안의 비율이 달라진다. 점선은 모두에게 같은 "
        "원반(그림의 1/64) 안의 비율이고, 주장은 마지막 3분의 1 블록에서 이것으로 판정한다."
    )
    method = (
        "Gradient of the feature vector at row h/2, column w/2 (rounded down: an even grid has no centre) with respect "
        "to the picture as it is fed. Mode projection: root mean square over channels and colours, estimated from "
        "random-sign sums of the channels, one for each image and site. Mode exact: mean absolute value, a backward "
        "pass for every channel. Maps are averaged over images. The own patch is the cell of the site's grid, the "
        "radius is counted from its centre; or both about the map's own centre of mass, where that holds more, because "
        "a CNN with padded strides looks up to half a cell beside its cell. Branches are those that mix places, not "
        "MLPs. A bare cell, seen evenly, has the radius sqrt(its area / 2π); growth and steps are counted from that of "
        "the first block. Widths are those of a square as large as the picture. Up to 12 blocks, evenly spaced; "
        "brightness is on a square-root scale."
    )
    quantities = (
        Quantity(
            "early_radius",
            of_each(early),
            "radius of the field, first quarter of depth",
            unit="widths",
            limits=(0, None),
        ),
        Quantity("radius_growth", of_each(growth), "radius of the last block minus the first", unit="widths"),
        Quantity("own_patch_share", of_each(mean_of("own_share")), "own-patch share, mean over blocks", limits=(0, 1)),
        Quantity(
            "shape_persistence",
            of_each(mean_of("persistence")),
            "correlation of maps of neighbouring blocks",
            limits=(-1, 1),
        ),
        Quantity("early_radius_above_cnn", of_pairs(gap_of(early)), "early radius, ViT minus CNN", unit="widths"),
        Quantity(
            "early_view_above_cnn",
            of_pairs(early_beyond_cell),
            "early radius beyond that of a bare cell, ViT minus CNN",
            unit="widths",
        ),
        Quantity(
            "least_growth",
            of_pairs(least_growth),
            "radius of the last block minus that of a bare cell of the first, the smaller of ViT and CNN",
            smooth=False,  # a minimum of two
            unit="widths",
        ),
        Quantity(
            "largest_step_above_cnn",
            of_pairs(steps_above),
            "largest step's share of all growth from the bare cell on, ViT minus CNN",
            smooth=False,
            limits=(-1, 1),
            halving=True,
        ),
        Quantity(
            "jump_from_middle",
            of_pairs(jump_from_middle),
            "depth of the ViT's largest step minus one half",
            smooth=False,
            limits=(-0.5, 0.5),
            halving=True,
            if_unmoved=within_a_block,
        ),
        Quantity(
            "late_own_share_after_minus_before",
            of_pairs(lambda estimate, vit, cnn: skip_effect(estimate, vit)),
            "own-patch share of a ViT's late blocks minus that of their attention branches",
            limits=(-1, 1),
        ),
        Quantity(
            "own_share_above_cnn",
            of_pairs(gap_of(mean_of("own_share"))),
            "own-cell share, ViT minus CNN; cells differ in size, so no claim uses it",
            limits=(-1, 1),
        ),
        Quantity(
            "disc_share_above_cnn",
            of_pairs(gap_of(mean_of("disc_share"))),
            "share in a disc of 1/64 of the picture, mean over all blocks, ViT minus CNN",
            limits=(-1, 1),
        ),
        Quantity(
            "late_disc_share_above_cnn",
            of_pairs(gap_of(late("disc_share"))),
            "share in a disc of 1/64 of the picture, mean over the last third of blocks, ViT minus CNN",
            limits=(-1, 1),
        ),
        Quantity(
            "persistence_above_cnn",
            of_pairs(gap_of(mean_of("persistence"))),
            "shape persistence, ViT minus CNN",
            limits=(-2, 2),
        ),
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 8, "normal": 60, "full": 600}
    least_images, shown_from = 64, 16

    images: int = option(0, "how many; 0: as the effort allows")
    mode: Literal["projection", "exact"] = option(
        "projection", "gradients of random projections of the channels, or of every channel (slow)"
    )
    projections: int = option(1, "random-sign sums for each image and site")
    depths: int = option(12, "blocks that are looked at, at most")

    def sites(self, anatomy: Anatomy) -> Sequence[Site]:
        return some_blocks_and_mixing_branches(anatomy, self.depths)

    def passes(self, anatomy: Anatomy) -> float:
        """A backward pass to the input alone costs what the forward pass up to there did; keeping the graph, a half."""
        times = {site.name: site.channels if self.mode == "exact" else self.projections for site in anatomy.sites}
        return 1.5 + sum(times[site.name] * site.depth for site in self.sites(anatomy))

    def in_fewer_passes(self) -> Self:
        return replace(self, depths=FEW_DEPTHS) if self.depths == ReceptiveField.depths else self

    def experiment(self, bench: Bench) -> Mapping[str, torch.Tensor]:
        few = bench.first(self.images)
        sites = self.sites(bench.anatomy)
        if not len(few) or not sites:
            return {}
        views = {site.name: [AFTER if site.role == "block" else BEFORE] for site in sites}
        tap = Tap(bench.subject.module, bench.anatomy, views)
        generator = bench.generator("signs of the receptive field")
        signs = [  # drawn for the whole batch, so that they do not depend on how many images are used
            torch.randint(0, 2, (self.projections, len(bench), site.channels), generator=generator) * 2 - 1
            for site in sites
        ]

        def work(size: int) -> dict[str, torch.Tensor]:
            summaries: list[dict[str, torch.Tensor]] = []
            for piece in torch.split(torch.arange(len(few)), min(size, PIECE)):
                images = few.images[piece.to(few.images.device)].detach().clone().requires_grad_()
                _, seen = tap.run_with_gradients(images, bench.subject.call)
                for site, sign in zip(sites, signs, strict=True):
                    features = seen[site.name][views[site.name][0].name]
                    exact = self.mode == "exact"
                    maps = exact_map(features, images) if exact else projected_map(features, images, sign[:, piece])
                    summaries.append(summary(maps, site.grid or (1, 1)))
            keys = summaries[0]
            by_site = [summaries[at :: len(sites)] for at in range(len(sites))]
            return {
                key: torch.stack([torch.cat([part[key] for part in parts]) for parts in by_site], 1) for key in keys
            }

        with fixed_weights(bench.subject.module):
            return few.piece_size.fit(len(few), work) | {"fold": few.folds()}

    def tally(self, scene: Scene) -> ReceptiveTally:
        sites = scene.sites(self.sites)
        if not sites:
            raise DoesNotApply("no subject has blocks whose features lie on a grid.")
        return ReceptiveTally.empty(fold=scene.folds, site=len(sites), y=SIDE, x=SIDE, centre=2, ring=RINGS)

    def update(self, tally: ReceptiveTally, batch: Batch, views: Views, scene: Scene) -> None:
        counted = False
        for subject, rows in scene.rows(self.sites).items():
            if results := views.experiment(subject):
                for name in ("map", "ring", "own"):
                    tally.add(name, results["fold"], results[name].double(), rows)
                if not counted:
                    tally.add("images", results["fold"])
                counted = True

    def estimate(self, total: ReceptiveTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(self.sites)
        sizes = [scene.anatomy(subject).input_size for subject, _ in sites]
        grids = [site.grid or (1, 1) for _, site in sites]
        width = torch.tensor([ring_width(size) for size in sizes], dtype=torch.float64)[:, None]
        side = np.array([(height * across) ** 0.5 for height, across in sizes])
        mass = total.ring.sum(2)
        radius = radius_of_share(total.ring, width).amin(1).numpy()
        inside = torch.tensor(side)[:, None, None] / (64 * np.pi) ** 0.5 / width[..., None]  # rings of 1/64 of the area
        disc = (total.ring * (inside - torch.arange(RINGS)).clamp(0, 1)).sum(2)
        maps = total.map.numpy()
        peak = maps.max((1, 2))[:, None, None]
        groups = [(subject, site.role + site.kind) for subject, site in sites]
        blocks = {anatomy.subject: max(len(anatomy.pick("block")), 1) for anatomy in scene.anatomies}
        unseen = [subject for subject in scene.subjects if subject not in {subject for subject, _ in sites}]
        bounds, share = {"limits": (0.0, np.inf)}, {"limits": (0.0, 1.0)}
        return xarray.Dataset(
            {
                "radius": ("site", radius, bounds),
                "reach": ("site", radius / side, bounds),
                "own_share": ("site", (total.own / mass).amax(1).numpy(), share),
                "disc_share": ("site", (disc / mass).amax(1).numpy(), share),
                "persistence": ("site", persistence(maps, groups), {"limits": (-1.0, 1.0)}),
                # In 255ths of the largest value, to be looked at: the numbers above come from the pixels.
                "field": (
                    ("site", "y", "x"),
                    np.divide(255 * maps, peak, where=peak > 0, out=0 * maps).round().astype(np.uint8),
                ),
            },
            coords=site_coordinates(scene, sites)
            | {
                "middle": ("site", [(site.block + 0.5) / blocks[subject] for subject, site in sites]),
                "rows": ("site", [grid[0] for grid in grids]),
                "columns": ("site", [grid[1] for grid in grids]),
            },
            attrs={"images": int(total.images), "mode": self.mode, "left_out": ", ".join(unseen)},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            blocks, branches = (site_indices(finding, subject, role) for role in ("block", "junction"))
            first, last = finding.isel(site=blocks[0]), finding.isel(site=blocks[-1])
            cells = dict.fromkeys(f"{own_cell(finding, subject, block):.1%}" for block in (0, -1))
            text = (
                f"{subject} has half of its gradient within {in_words(first, 'reach', '.0%')} of the picture's width "
                f"after its first block and {in_words(last, 'reach', '.0%')} after its last (a bare cell: "
                f"{' and '.join(cells)})"
            )
            jump = jump_ends(finding, subject)
            if jump is not None:
                text += f"; the largest step lies at {spanned(jump, '.0%')} of the depth"
            text += (
                f". After its last block {in_words(last, 'own_share', '.0%')} lies in its own patch and "
                f"{in_words(last, 'disc_share', '.0%')} in a disc of 1/64 of the picture"
            )
            if len(branches) and np.isfinite(float(finding.own_share[branches[-1]])):  # one may add exactly zero
                own = in_words(finding.isel(site=branches[-1]), "own_share", ".0%")
                text += f"; of its last branch, before the skip is added, {own} lies in its own patch"
            parts.append(text)
        said = ". ".join(parts) + "."
        if finding.attrs["left_out"]:
            said += f" Left out, because their blocks have no grid: {finding.attrs['left_out']}."
        return said
