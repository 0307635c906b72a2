"""M1: which sites hold the same information, within and between subjects?

Centred kernel alignment with the unbiased HSIC of Gram matrices K, L (`methods.hsic`), averaged over minibatches before
the ratio (Nguyen, Raghu & Kornblith 2021):

    CKA = mean HSIC(K, L) / sqrt(mean HSIC(K, K) · mean HSIC(L, L))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
import xarray

from eyechart.errors import DoesNotApply
from eyechart.measure import Measure, Source, Views, option, site_coordinates
from eyechart.measures.cka.neighbours import NEAREST, neighbour_table
from eyechart.measures.cka.quantities import (
    best_matches,
    block_contrast,
    contrast_over_vit,
    half_way,
    lag_map,
    last_quarter,
    match_above_stem,
    matched_depth,
    step_beside_vit,
    top_is_unlike,
    top_is_unlike_without_cls,
    top_likeness,
    top_likeness_without_cls,
    top_quarter_is_matched,
    turned,
    uniformity,
    within_half_a_block,
)
from eyechart.methods.hsic import Readout, check_blocks, gram_view, hsic_table, patch_gram, scale_of
from eyechart.methods.token_lengths import TOKEN_WORDS, Tokens, has_tokens
from eyechart.quantity import Quantity, minus_cnn, of_each, of_pairs
from eyechart.reading_estimates import clearly_above, ends_of, quantity_in_words, spanned
from eyechart.scene import Batch, Scene
from eyechart.site_choice import layers_inside_too, stem_and_blocks
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need, View


@dataclass
class CkaTally(Tally):
    hsic: Annotated[torch.Tensor, Sum("fold", "site", "other_site")]
    """Or neighbours shared: both become an index when divided by the roots of their own diagonal."""
    patch_hsic: Annotated[torch.Tensor, Sum("fold", "patch_site", "other_site")]
    """Sites that have a class token, without it, with all sites, without theirs."""
    blocks: Annotated[torch.Tensor, Sum("fold", counts=True)]


@dataclass(frozen=True)
class Cka(Measure):
    name = "cka"
    title = "What do layers share?"
    title_ko = "층들은 무엇을 공유하는가?"
    order = 10
    adds_up_anywhere = True
    chapter = "share"
    sources = (
        Source("Raghu et al. 2021", "Figures 1, 2, 8, B.1"),
        Source("Park & Kim 2022", "Figures 10, D.3"),
        Source("Nguyen, Raghu & Kornblith 2021", "minibatch CKA"),
    )
    how_to_read = (
        "Each cell compares two layers: 1 (bright) means that they arrange these pictures in the same way, up to "
        "rotation and scale; 0 (dark) means nothing in common. Axes run from input to output; white lines mark where "
        "the grid changes size. One large bright square is a model whose layers stay alike; a chain of squares is a "
        "model that works in stages. In the panel of two models, follow the brightest cell of each row: it says "
        "which depth of one model corresponds to which depth of the other. The curves say how alike each block of a "
        "ViT is to the most similar layer of a CNN, as it is and without its class token."
    )
    how_to_read_ko = (
        "칸 하나는 두 층의 비교이다. 1(밝음)은 회전과 크기를 빼면 두 층이 그림들을 같은 방식으로 배열한다는 "
        "뜻이고 0(어두움)은 공통점이 없다는 뜻이다. 축은 입력에서 출력으로 가며 흰 선은 격자 크기가 바뀌는 "
        "곳이다. 큰 밝은 정사각형 하나면 층들이 서로 닮았고, 정사각형이 사슬처럼 이어지면 단계별로 일한다. 두 "
        "모델의 그림에서는 행마다 가장 밝은 칸을 따라가면 한 모델의 어느 깊이가 다른 모델의 어느 깊이에 "
        "해당하는지 보인다. 곡선은 ViT의 각 블록이 CNN의 가장 비슷한 층과 얼마나 닮았는지를 클래스 토큰이 있을 "
        "때와 없을 때로 보인다."
    )
    method = (
        "Linear minibatch CKA with the unbiased HSIC estimator: the three HSIC terms are averaged over blocks of "
        "images before the ratio. Each feature is centred over its block before the Gram matrix, so that offsets do "
        "not matter. Blocks are equal by plan, in seeded random order. A few very long tokens can dominate the "
        "likeness of two layers: tokens=normalised first divides every token (a CNN's location) of every image by its "
        f"length. A few outlying images can too: index=neighbours instead counts how many of the {NEAREST} nearest "
        "pictures of each picture two layers share, scaled so that chance is 0 and all of them is 1. Which depth of a "
        "ViT a layer of a CNN resembles is read off the parabola through the best match and its two neighbours. "
        "granularity=fine adds the layers inside the blocks, except those whose first axis is not the image (windows, "
        "mixed tokens)."
    )
    quantities = (
        Quantity(
            "uniformity",
            uniformity,
            "mean likeness of the lowest and the highest third of the blocks",
            limits=(-1, 1),
        ),
        Quantity(
            "block_contrast",
            of_each(block_contrast),
            "mean likeness within a stage minus that between stages",
            limits=(-2, 2),
        ),
        Quantity(
            "uniformity_gap",
            minus_cnn(uniformity),
            "uniformity of the ViT minus that of the CNN",
            limits=(-2, 2),
        ),
        Quantity(
            "cnn_block_contrast",
            turned(of_pairs(contrast_over_vit, "cnn", "vit")),
            "block contrast of the CNN above that of the ViT at equal cuts",
            limits=(-4, 4),
        ),
        Quantity(
            "cnn_stage_step",
            turned(of_pairs(step_beside_vit, "cnn", "vit")),
            "mean likeness of two blocks of one stage of the CNN minus that of two equally far apart across a boundary",
            limits=(-2, 2),
        ),
        Quantity(
            "lag_at_half",
            matched_depth(half_way),
            "ViT depth most similar to the CNN's half-way blocks, between its blocks",
            smooth=False,
            halving=True,
            limits=(0, 1),
            if_unmoved=within_half_a_block(half_way),
        ),
        Quantity(
            "half_above_stem",
            match_above_stem(half_way),
            "likeness of the CNN's half-way blocks to their best match in the ViT minus that to its stem",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "lag_at_end",
            matched_depth(last_quarter),
            "ViT depth most similar to the CNN's last quarter of blocks, between its blocks",
            smooth=False,
            halving=True,
            limits=(0, 1),
            if_unmoved=within_half_a_block(last_quarter),
        ),
        Quantity(
            "end_above_stem",
            match_above_stem(last_quarter),
            "likeness of the CNN's last quarter of blocks to their best match in the ViT minus that to its stem",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "top_quarter_is_matched",
            of_pairs(top_quarter_is_matched),
            "highest lead, over CNN layers, of the ViT's last quarter of blocks over all before as the best match",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "top_is_unlike",
            of_pairs(top_is_unlike),
            "best likeness to the CNN, lowest third minus highest third",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "top_is_unlike_without_cls",
            of_pairs(top_is_unlike_without_cls),
            "best likeness to the CNN, lowest third minus highest third, patch tokens only",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "top_likeness",
            of_pairs(top_likeness),
            "best likeness of the highest third to the CNN",
            smooth=False,
            limits=(-1, 1),
        ),
        Quantity(
            "top_likeness_without_cls",
            of_pairs(top_likeness_without_cls),
            "best likeness of the highest third to the CNN, patch tokens only",
            smooth=False,
            limits=(-1, 1),
        ),
        Quantity(
            "staged_block_contrast",
            of_pairs(contrast_over_vit, "staged transformer", "vit"),
            "block contrast above that of the ViT at equal cuts",
            limits=(-4, 4),
        ),
        Quantity(
            "stage_step",
            of_pairs(step_beside_vit, "staged transformer", "vit"),
            "mean likeness of two blocks of one stage minus that of two equally far apart across a boundary",
            limits=(-2, 2),
        ),
    )

    readout: Readout = option(
        "all", "what of a layer is compared: all of it, its mean over positions, or its class token"
    )
    granularity: Literal["blocks", "fine"] = option("blocks", "stem and blocks, or also the layers inside them")
    tokens: Tokens = option("plain", "tokens as they are, or each scaled to length one (against a few very long ones)")
    index: Literal["cka", "neighbours"] = option(
        "cka", "similarity of layers: linear CKA, or shared nearest neighbours"
    )

    @property
    def view(self) -> View:
        return gram_view(self.readout, self.tokens)

    @property
    def prefix_view(self) -> View:
        return gram_view("prefix", self.tokens)

    def sites(self, anatomy: Anatomy) -> Sequence[Site]:
        choose = stem_and_blocks if self.granularity == "blocks" else layers_inside_too
        return [site for site in choose(anatomy) if self._readable(site, anatomy)]

    def _readable(self, site: Site, anatomy: Anatomy) -> bool:
        if self.readout == "cls":
            return anatomy.cls == 0 and site.layout.prefix > 0
        if self.readout == "all":
            return self.tokens == "plain" or has_tokens(site)
        return site.grid is not None

    @property
    def reading(self) -> str | None:
        if self.readout != "all":
            return None  # the papers compare whole layers
        by_neighbours = "by nearest neighbours" if self.index == "neighbours" else ""
        return ", ".join(words for words in (by_neighbours, TOKEN_WORDS[self.tokens]) if words)

    def patch_sites(self, anatomy: Anatomy) -> Sequence[Site]:
        """Stem and blocks that hold a class token, to be compared without it (and without registers) too."""
        chosen = self.sites(anatomy) if self.readout == "all" and anatomy.cls is not None else ()
        return [site for site in chosen if site.role in ("stem", "block") and site.layout.prefix and site.grid]

    def needs(self) -> Sequence[Need]:
        return [Need(self.view, self.sites), Need(self.prefix_view, self.patch_sites)]

    def tally(self, scene: Scene) -> CkaTally:
        check_blocks(scene)
        sites = len(scene.sites(self.sites))
        if sites == 0:
            raise DoesNotApply(f"no subject has a site with the readout {self.readout!r}.")
        patch_sites = len(scene.sites(self.patch_sites))
        return CkaTally.empty(fold=scene.folds, site=sites, other_site=sites, patch_site=patch_sites)

    def update(self, tally: CkaTally, batch: Batch, views: Views, scene: Scene) -> None:
        if not batch.whole:
            return
        sites, patch_sites = scene.sites(self.sites), scene.sites(self.patch_sites)
        likeness = hsic_table if self.index == "cka" else neighbour_table
        grams = torch.stack([views(subject, site, self.view) for subject, site in sites]).double()
        tally.hsic[batch.fold] += likeness(grams)
        if patch_sites:
            rows = views.put([sites.index(site) for site in patch_sites])
            patches = [patch_gram(views, *site, self.view, self.prefix_view) for site in patch_sites]
            grams[rows] = torch.stack(patches).double()
            tally.patch_hsic[batch.fold] += likeness(grams[rows], grams)
        tally.blocks[batch.fold] += 1

    def estimate(self, total: CkaTally, scene: Scene) -> xarray.Dataset:
        sites, patch_sites = scene.sites(self.sites), scene.sites(self.patch_sites)
        hsic, patch_hsic = (total.hsic / total.blocks).numpy(), (total.patch_hsic / total.blocks).numpy()
        self_hsic = np.diagonal(hsic)
        rows = [sites.index(site) for site in patch_sites]
        patch_self_hsic = self_hsic.copy()
        patch_self_hsic[rows] = patch_hsic[np.arange(len(rows)), rows]
        scale, patch_scale = scale_of(self_hsic), scale_of(patch_self_hsic)
        coordinates = site_coordinates(scene, sites) | site_coordinates(scene, sites, "other_site")
        limits = {"limits": (-1.0, 1.0)}
        estimate = xarray.Dataset(
            {
                "cka": (("site", "other_site"), hsic / np.outer(scale, scale), limits),
                "patch_cka": (
                    ("patch_site", "other_site"),
                    patch_hsic / np.outer(patch_scale[rows], patch_scale),
                    limits,
                ),
            },
            coords=coordinates | site_coordinates(scene, patch_sites, "patch_site"),
        )
        return estimate.assign(
            match_depth=lag_map(estimate),
            match_cka=best_matches(estimate),
            patch_match_cka=best_matches(estimate, "patch_site", "patch_cka"),
        ).assign_attrs(
            images=scene.images_in_blocks,
            index="CKA" if self.index == "cka" else "share of neighbours",
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        values = {subject[0]: value for subject, value in uniformity(finding).items()}
        if not values:
            return "No subject has the three blocks that uniformity needs."
        best, *others = sorted(values, key=lambda subject: -values[subject])
        ends = {subject: ends_of(finding, "uniformity", subject) for subject in values}
        said = ", ".join(f"{spanned(ends[subject], '.2f')} in {subject}" for subject in values)
        text = f"The lowest and the highest third of the blocks have a mean {finding.attrs['index']} of {said}"
        if others and clearly_above(ends[best], ends[others[0]]):
            text += f": the layers of {best} stay most alike"
        for vit, cnn in matched_depth(half_way)(finding):
            depth = quantity_in_words(finding, "lag_at_half", ".0%", vit, cnn)
            text += f". The half-way layers of {cnn} look most like {vit} at {depth} of its depth"
        return text + "."
