"""M1: which sites hold the same information, within and between subjects?

Centred kernel alignment with the unbiased estimator of Song et al. (2012), averaged over minibatches before the ratio
(Nguyen, Raghu & Kornblith 2021). For Gram matrices K, L of n images with their diagonals set to zero,

    HSIC(K, L) = [ Σ K∘L + (ΣK)(ΣL) / ((n-1)(n-2)) - 2/(n-2) · (K1)·(L1) ] / (n(n-3))
    CKA = mean HSIC(K, L) / sqrt(mean HSIC(K, K) · mean HSIC(L, L))

HSIC is bilinear, so all pairs of sites of all subjects are three matrix products over the stacked Gram matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch

from eyechart.claims.verdict import ClaimTest, Part
from eyechart.errors import DoesNotApply
from eyechart.estimates import places_of, subjects_in, thirds
from eyechart.measures.measure import Batch, Measure, PerSubjects, Quantity, Scene, Source, Views, site_coordinates
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need, View
from eyechart.tracing.views import Look

if TYPE_CHECKING:
    import xarray

    from eyechart.measures.measure import Chart

Readout = Literal["all", "spatial", "cls", "gap"]
COLUMNS_AT_ONCE = 1 << 16  # features centred and multiplied at a time: a ResNet stem has 800,000 of them


def gram(features: torch.Tensor) -> torch.Tensor:
    """Gram matrix of the images, each feature centred over them first.

    Centring changes nothing in exact arithmetic and everything in float32: with an offset of 1000 the uncentred Gram
    matrix gives a CKA that is wrong by 4e-2, the centred one by 4e-7.

    >>> gram(torch.tensor([[1001.0], [1003.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    flat = features.flatten(1)
    number = torch.promote_types(flat.dtype, torch.float32)  # bfloat16 features are multiplied in float32
    result = flat.new_zeros(len(flat), len(flat), dtype=number)
    for columns in torch.split(flat, COLUMNS_AT_ONCE, dim=1):
        centred = columns.to(number)
        centred = centred - centred.mean(0)
        result.addmm_(centred, centred.T)
    return result


def hsic_table(grams: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
    """Unbiased HSIC of every pair of a stack of Gram matrices (site, n, n), as (site, other_site) in float64.

    With `others`, of every one of the first stack with every one of the second.
    """
    n = grams.shape[1]
    flat, rows = _hollow(grams)
    other_flat, other_rows = (flat, rows) if others is None else _hollow(others)
    corner = torch.outer(rows.sum(1), other_rows.sum(1)) / ((n - 1) * (n - 2))
    return (flat @ other_flat.T + corner - 2 / (n - 2) * rows @ other_rows.T) / (n * (n - 3))


def _hollow(grams: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gram matrices with their diagonals set to zero, flat, and the sums of their rows."""
    hollow = grams.double() * (1 - torch.eye(grams.shape[1], dtype=torch.float64))
    return hollow.flatten(1), hollow.sum(2)


def read_out(readout: Readout) -> Callable[[Look], torch.Tensor]:
    def take(look: Look) -> torch.Tensor:
        if readout == "all":
            return look.output
        tokens, prefix = look.tokens(look.output), look.site.layout.prefix
        if readout == "cls":
            return tokens[:, 0]
        return tokens[:, prefix:] if readout == "spatial" else tokens[:, prefix:].mean(1)

    return take


def prefix_tokens(look: Look) -> torch.Tensor:
    return look.tokens(look.output)[:, : look.site.layout.prefix]


#: Gram matrices of whole layers, and of their class and register tokens alone. A Gram matrix is a sum over features, so
#: the difference is that of the patch tokens, for a hundredth of the work of taking it from them.
WHOLE = View("gram[all]", read_out("all"), reduce=gram)
PREFIX = View("gram[prefix]", prefix_tokens, reduce=gram)


def patch_gram(views: Views, subject: str, site: Site) -> torch.Tensor:
    """Gram matrix of the patch tokens; where there is no prefix, that of the layer."""
    whole = views(subject, site, WHOLE)
    return whole if not site.layout.prefix else whole.double() - views(subject, site, PREFIX).double()


@dataclass
class CkaTally(Tally):
    hsic: Annotated[torch.Tensor, Sum("fold", "site", "other_site")]
    patch_hsic: Annotated[torch.Tensor, Sum("fold", "patch_site", "other_site")]
    """Sites that have a class token, without it, with all sites, without theirs."""
    blocks: Annotated[torch.Tensor, Sum("fold", counts=True)]


def uniformity(estimate: xarray.Dataset) -> PerSubjects:
    result: PerSubjects = {}
    for subject in subjects_in(estimate):
        low, high = thirds(places_of(estimate, subject, "block"))
        if len(low):
            result[subject,] = float(estimate.cka.values[np.ix_(low, high)].mean())
    return result


def uniformity_gap(estimate: xarray.Dataset) -> PerSubjects:
    of = uniformity(estimate)
    return {
        (vit, cnn): of[vit,] - of[cnn,]
        for vit in subjects_in(estimate, "vit")
        for cnn in subjects_in(estimate, "cnn")
        if (vit,) in of and (cnn,) in of
    }


def contrast(cka: np.ndarray, stages: np.ndarray) -> float:
    """Mean CKA of two blocks of the same part minus that of two blocks of different parts."""
    one, two = np.triu_indices(len(stages), k=1)
    same = stages[one] == stages[two]
    if same.all() or not same.any():
        return float("nan")
    values = cka[one, two]
    return float(values[same].mean() - values[~same].mean())


def block_contrast(estimate: xarray.Dataset) -> PerSubjects:
    result: PerSubjects = {}
    for subject in subjects_in(estimate):
        places = places_of(estimate, subject, "block")
        stages = estimate.stage.values[places]
        if len(set(stages)) > 1:
            result[subject,] = contrast(estimate.cka.values[np.ix_(places, places)], stages)
    return result


def staged_block_contrast(estimate: xarray.Dataset) -> PerSubjects:
    """Contrast of a staged transformer minus that of a ViT cut at the same relative depths.

    CKA falls with distance in any network, so a contrast above zero proves nothing; equal cuts cancel that.
    """
    own, result = block_contrast(estimate), PerSubjects()
    for staged in subjects_in(estimate, "staged transformer"):
        stages = estimate.stage.values[places_of(estimate, staged, "block")]
        for vit in subjects_in(estimate, "vit"):
            places = places_of(estimate, vit, "block")
            cuts = stages[((np.arange(len(places)) + 0.5) / len(places) * len(stages)).astype(int)]
            result[staged, vit] = own[staged,] - contrast(estimate.cka.values[np.ix_(places, places)], cuts)
    return result


def lag_map(estimate: xarray.Dataset) -> xarray.DataArray:
    """For every site, the depth of the stem or block of each subject that it resembles most."""
    import xarray

    subjects = subjects_in(estimate)
    depths = np.full((estimate.sizes["site"], len(subjects)), np.nan)
    for column, subject in enumerate(subjects):
        places = places_of(estimate, subject, "stem", "block")
        table = np.where(np.isnan(estimate.cka.values[:, places]), -np.inf, estimate.cka.values[:, places])
        if len(places):
            best = estimate.depth.values[places][table.argmax(1)]
            depths[:, column] = np.where(np.isinf(table).all(1), np.nan, best)
    attributes = {"smooth": False, "limits": (0.0, 1.0)}
    return xarray.DataArray(depths, dims=("site", "matched"), coords={"matched": subjects}, attrs=attributes)


def best_matches(estimate: xarray.Dataset, rows: str = "site", cka: str = "cka") -> xarray.DataArray:
    """The highest CKA of each row with a stem or block of each subject."""
    import xarray

    subjects = subjects_in(estimate)
    best = np.full((estimate.sizes[rows], len(subjects)), np.nan)
    for column, subject in enumerate(subjects):
        table = estimate[cka].values[:, places_of(estimate, subject, "stem", "block")]
        best[:, column] = np.where(np.isnan(table), -np.inf, table).max(1, initial=-np.inf)
    attributes = {"smooth": False, "limits": (-1.0, 1.0)}
    found = np.where(np.isinf(best), np.nan, best)
    return xarray.DataArray(found, dims=(rows, "matched"), coords={"matched": subjects}, attrs=attributes)


def lag_at_half(estimate: xarray.Dataset) -> PerSubjects:
    """How deep in the ViT the half-way blocks of the CNN land: output depth of the most similar ViT site.

    At the half-way mark and not over the whole lower half, because with no lag at all that mean would be 0.25.
    """
    result: PerSubjects = {}
    for cnn in subjects_in(estimate, "cnn"):
        places = places_of(estimate, cnn, "block")
        depths = (np.arange(len(places)) + 1) / len(places)
        half = places[(depths > 3 / 8) & (depths <= 1 / 2)]
        if not len(half):
            half = places[depths <= 1 / 2][-1:]
        for vit in subjects_in(estimate, "vit"):
            result[vit, cnn] = float(estimate.match_depth.sel(matched=vit).values[half].mean())
    return result


def top_is_unlike(estimate: xarray.Dataset) -> PerSubjects:
    """Best match of the ViT's lowest third with any CNN site minus that of its highest third."""
    places = {vit: places_of(estimate, vit, "block") for vit in subjects_in(estimate, "vit")}
    return _drop_of_the_best(estimate, estimate.match_cka, places)


def top_is_unlike_without_cls(estimate: xarray.Dataset) -> PerSubjects:
    """The same for the patch tokens of ViTs that have a class token: is the top third only the class token's work?"""
    blocks = estimate.patch_role.values == "block"
    places = {
        vit: np.flatnonzero(blocks & (estimate.patch_subject.values == vit)) for vit in subjects_in(estimate, "vit")
    }
    return _drop_of_the_best(estimate, estimate.patch_match_cka, places)


def _drop_of_the_best(
    estimate: xarray.Dataset, matches: xarray.DataArray, places: Mapping[str, np.ndarray]
) -> PerSubjects:
    result: PerSubjects = {}
    for vit, blocks in places.items():
        low, high = thirds(blocks) if len(blocks) else (blocks, blocks)
        for cnn in subjects_in(estimate, "cnn"):
            if len(low):
                best = matches.sel(matched=cnn).values
                result[vit, cnn] = float(best[low].max() - best[high].max())
    return result


@dataclass(frozen=True)
class Cka(Measure):
    name = "cka"
    title = "What do layers share?"
    title_ko = "층들은 무엇을 공유하는가?"
    order = 10
    sources = (
        Source("Raghu et al. 2021", "Figures 1, 2, 8, B.1"),
        Source("Park & Kim 2022", "Figures 10, D.3"),
        Source("Nguyen, Raghu & Kornblith 2021", "minibatch CKA"),
    )
    how_to_read = (
        "Each cell compares two layers: 1 (bright) means that they arrange these pictures in the same way, up to "
        "rotation and scale; 0 (dark) means nothing in common. Axes run from input to output; white lines mark where "
        "the grid changes size. One large bright square is a model whose layers stay alike; a chain of squares is a "
        "model that works in stages. In the panel of two models, follow the brightest cell of each column: it says "
        "which depth of one model corresponds to which depth of the other. The curves say how alike each block of a "
        "ViT is to the most similar layer of a CNN, as it is and without its class token."
    )
    how_to_read_ko = (
        "칸 하나는 두 층의 비교이다. 1(밝음)은 두 층이 그림들을 같은 방식으로 배열한다는 뜻이고 0(어두움)은 공통점이 "
        "없다는 뜻이다. 축은 입력에서 출력으로 가며 흰 선은 격자 크기가 바뀌는 곳이다. 큰 밝은 정사각형 하나면 층들이 "
        "서로 닮았고, 정사각형이 사슬처럼 이어지면 단계별로 일한다. 곡선은 ViT의 각 블록이 CNN의 가장 비슷한 "
        "층과 얼마나 닮았는지를 클래스 토큰이 있을 때와 없을 때로 보인다."
    )
    method = (
        "Linear minibatch CKA with the unbiased HSIC estimator: the three HSIC terms are averaged over blocks of "
        "images before the ratio. Each feature is centred over its block before the Gram matrix, so offsets do no "
        "harm. Blocks are equal by plan, in seeded random order."
    )
    quantities = (
        Quantity(
            "uniformity",
            uniformity,
            "mean CKA between the lowest and the highest third of the blocks",
            limits=(-1, 1),
        ),
        Quantity("block_contrast", block_contrast, "mean CKA within a stage minus mean CKA between stages"),
        Quantity("uniformity_gap", uniformity_gap, "uniformity of the ViT minus that of the CNN"),
        Quantity(
            "lag_at_half",
            lag_at_half,
            "ViT depth most similar to the CNN's half-way blocks",
            smooth=False,
            limits=(0, 1),
        ),
        Quantity(
            "top_is_unlike", top_is_unlike, "best CKA with the CNN, lowest third minus highest third", smooth=False
        ),
        Quantity(
            "top_is_unlike_without_cls",
            top_is_unlike_without_cls,
            "the same for patch tokens, without the class token",
            smooth=False,
        ),
        Quantity("staged_block_contrast", staged_block_contrast, "block contrast above that of the ViT at equal cuts"),
    )
    claims = (
        ClaimTest(
            "C13", (Part("uniformity_gap", "above", 0.1, "uniformity of {0} above that of {1}", inclusive=True),)
        ),
        ClaimTest(
            "C14", (Part("lag_at_half", "below", 0.35, "depth of {0} that the half-way layers of {1} resemble"),)
        ),
        ClaimTest(
            "C15",
            (
                Part(
                    "top_is_unlike",
                    "above",
                    0.1,
                    "drop of the best CKA with {1} from the lowest to the highest third of {0}",
                    inclusive=True,
                ),
            ),
        ),
        ClaimTest(
            "C15",
            (
                Part(
                    "top_is_unlike_without_cls",
                    "above",
                    0.1,
                    "drop of the best CKA with {1} from the lowest to the highest third of {0} without its class token",
                    inclusive=True,
                ),
            ),
            reading="without the class token",
        ),
        ClaimTest("C60", (Part("staged_block_contrast", "above", 0, "block contrast of {0} above that of {1}"),)),
    )

    readout: Readout = "all"
    granularity: Literal["blocks", "fine"] = "blocks"

    @property
    def view(self) -> View:
        return WHOLE if self.readout == "all" else View(f"gram[{self.readout}]", read_out(self.readout), reduce=gram)

    def sites(self, anatomy: Anatomy) -> Sequence[Site]:
        """The stem and block outputs; `fine` adds every residual sum and attention output."""
        roles = ("stem", "block") if self.granularity == "blocks" else ("stem", "junction", "attention", "block")
        return [site for site in anatomy.sites if site.role in roles and self._readable(site, anatomy)]

    def _readable(self, site: Site, anatomy: Anatomy) -> bool:
        if not site.layout.axes.startswith("N"):
            return False
        if self.readout == "cls":
            return anatomy.cls == 0 and site.layout.prefix > 0
        return self.readout == "all" or site.grid is not None

    def tests(self) -> Sequence[ClaimTest]:
        return self.claims if self.readout == "all" else ()  # the papers compare whole layers

    def patch_sites(self, anatomy: Anatomy) -> Sequence[Site]:
        """Stem and blocks that hold other tokens than patches, to be compared without those too."""
        chosen = self.sites(anatomy) if self.readout == "all" else ()
        return [site for site in chosen if site.role in ("stem", "block") and site.layout.prefix and site.grid]

    def needs(self) -> Sequence[Need]:
        return [Need(self.view, self.sites), Need(PREFIX, self.patch_sites)]

    def tally(self, scene: Scene) -> CkaTally:
        if scene.whole_blocks == 0:
            raise DoesNotApply(f"CKA needs blocks of at least 4 images; there are {scene.images}.")
        sites = len(scene.sites(self.sites))
        if sites == 0:
            raise DoesNotApply(f"no subject has a site with the readout {self.readout!r}.")
        patch_sites = len(scene.sites(self.patch_sites))
        return CkaTally.empty(fold=scene.folds, site=sites, other_site=sites, patch_site=patch_sites)

    def update(self, tally: CkaTally, batch: Batch, views: Views, scene: Scene) -> None:
        if not batch.whole:
            return
        sites, patch_sites = scene.sites(self.sites), scene.sites(self.patch_sites)
        grams = torch.stack([views(subject, site, self.view) for subject, site in sites]).double()
        tally.hsic[batch.fold] += hsic_table(grams)
        if patch_sites:
            places = [sites.index(place) for place in patch_sites]
            grams[places] = torch.stack([patch_gram(views, subject, site) for subject, site in patch_sites]).double()
            tally.patch_hsic[batch.fold] += hsic_table(grams[places], grams)
        tally.blocks[batch.fold] += 1

    def estimate(self, total: CkaTally, scene: Scene) -> xarray.Dataset:
        import xarray

        sites, patch_sites = scene.sites(self.sites), scene.sites(self.patch_sites)
        hsic, patch_hsic = (total.hsic / total.blocks).numpy(), (total.patch_hsic / total.blocks).numpy()
        own = np.diagonal(hsic)
        places = [sites.index(place) for place in patch_sites]
        patch_own = own.copy()
        patch_own[places] = patch_hsic[np.arange(len(places)), places]
        # A self-HSIC that is not positive has no root: the site is reported as unknown, never clamped.
        scale, patch_scale = (np.sqrt(np.where(each > 0, each, np.nan)) for each in (own, patch_own))
        coordinates = site_coordinates(scene, sites) | site_coordinates(scene, sites, "other_site")
        limits = {"limits": (-1.0, 1.0)}
        estimate = xarray.Dataset(
            {
                "cka": (("site", "other_site"), hsic / np.outer(scale, scale), limits),
                "patch_cka": (
                    ("patch_site", "other_site"),
                    patch_hsic / np.outer(patch_scale[places], patch_scale),
                    limits,
                ),
            },
            coords=coordinates | site_coordinates(scene, patch_sites, "patch_site"),
        )
        return estimate.assign(
            match_depth=lag_map(estimate),
            match_cka=best_matches(estimate),
            patch_match_cka=best_matches(estimate, "patch_site", "patch_cka"),
        ).assign_attrs(images=scene.whole_blocks * scene.block)  # what is left over is in no block

    def chart(self, finding: xarray.Dataset) -> Chart:
        from eyechart.report.drawings.cka import draw

        return draw(finding)

    def sentence(self, finding: xarray.Dataset) -> str:
        values = {subject[0]: value for subject, value in uniformity(finding).items()}
        if not values:
            return "No subject has the three blocks that uniformity needs."
        best = max(values, key=lambda subject: values[subject])
        said = ", ".join(f"{value:.2f} in {subject}" for subject, value in values.items())
        text = f"The lowest and the highest third of the blocks have a mean CKA of {said}"
        if len(values) > 1:
            text += f": the layers of {best} stay most alike"
        for (vit, cnn), depth in lag_at_half(finding).items():
            text += f". The half-way layers of {cnn} look most like {vit} at {depth:.0%} of its depth"
        return text + "."
