"""Where does each patch look? The attention itself, of a few pictures; its rollout; and the entropy of every head,

    H = mean over images and query patches of -Σ_j A_ij ln A_ij        (nats; 0: one key, ln n: all n keys alike)

The rows that are kept feed the page's explorer. Rollout is Abnar and Zuidema's product over blocks of (A + I) / 2, with
A averaged over heads and rows normalised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import SampledExperiment, Source, Views, option, site_coordinates
from eyechart.measures.attention_maps.examples import FEWEST, in_turns, picture_size, take_examples, thinning
from eyechart.measures.attention_maps.rows import (
    NOTHING,
    count_keys,
    count_queries,
    entropy,
    mean_entropy,
    why_no_rollout,
)
from eyechart.quantity import Compute, Quantity, of_each, subjects_in
from eyechart.reading_estimates import quantity_in_words, site_indices
from eyechart.scene import Batch, Scene
from eyechart.site_choice import attentions_with_maps
from eyechart.sites import Anatomy
from eyechart.subjects.labels import readable_class
from eyechart.tally import Concat, Max, Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import View
from eyechart.tracing.views import Look

PADDED_ROOM = 64_000_000  # bytes of the maps of all subjects together, which are padded to one shape
MOST_PADDED = 160_000_000  # and where these are fewer than four pictures


def with_maps(scene: Scene) -> list[Anatomy]:
    return [anatomy for anatomy in scene.anatomies if attentions_with_maps(anatomy)]


def entropies(look: Look) -> Tensor:
    """(image, head, 2): of the queries that have a place, and of the class token; NaN without one."""
    geometry, weights = look.site.attention, look.weights
    assert geometry is not None
    assert geometry.query_yx is not None
    of_patches = mean_entropy(weights, torch.as_tensor(~np.isnan(geometry.query_yx[..., 0])))
    cls = look.anatomy.cls
    if cls is None or geometry.windows > 1 or cls >= geometry.query_prefix:
        return torch.stack([of_patches, torch.full_like(of_patches, torch.nan)], dim=-1)
    return torch.stack([of_patches, entropy(weights[:, 0, :, cls])], dim=-1)


ENTROPIES = View("entropy of attention", entropies)


@dataclass
class MapsTally(Tally):
    entropy: Annotated[Tensor, Sum("fold", "site", "head")]
    class_entropy: Annotated[Tensor, Sum("fold", "site", "head")]
    images: Annotated[Tensor, Sum("fold", counts=True)]
    # What the dry run knows and the plan does not: the same in every shard that has it, so the larger one is it.
    query_place: Annotated[Tensor, Max("site", "query", "query_axis", dtype="int64")]
    key_place: Annotated[Tensor, Max("site", "window", "key", "key_axis", dtype="int64")]
    grids: Annotated[Tensor, Max("site", "grid", dtype="int64")]
    # Of the example pictures, six at most.
    image: Annotated[Tensor, Concat("image", dtype="int64")]
    label: Annotated[Tensor, Concat("image", dtype="int64")]
    maps: Annotated[Tensor, Concat("image", "site", "head", "query", "key", dtype="uint8")]
    peak: Annotated[Tensor, Concat("image", "site", "head", "query", dtype="float32")]
    beside: Annotated[Tensor, Concat("image", "site", "head", "query", dtype="float32")]
    rollout: Annotated[Tensor, Concat("image", "site", "query", "key", dtype="uint8")]
    rollout_peak: Annotated[Tensor, Concat("image", "site", "query", dtype="float32")]
    rollout_beside: Annotated[Tensor, Concat("image", "site", "query", dtype="float32")]
    picture: Annotated[Tensor, Concat("image", "subject", "y", "x", "channel", dtype="uint8")]

    def keep_examples(self, scene: Scene, examples: Mapping[str, Mapping[str, Tensor]]) -> None:
        """The examples of all subjects as rows of one shape: as many as every subject has, and as fit."""
        sizes, first = self.sizes, next(iter(examples.values()))
        each = math.prod(sizes[axis] for axis in ("site", "head", "query", "key"))
        fitting = max(1, PADDED_ROOM // each, min(FEWEST, MOST_PADDED // each))
        count = min(fitting, *(len(of_subject["image"]) for of_subject in examples.values()))
        rows: dict[str, Tensor] = {"image": first["image"][:count], "label": first["label"][:count]}
        for name, law in self.laws.items():
            if isinstance(law, Concat) and name not in rows:
                rows[name] = law.identity((count, *(sizes[axis] for axis in law.dims[1:])))
        for index, of_subject in enumerate(examples.values()):
            lay(rows["picture"][:, index], of_subject["picture"][:count])
        for row, (subject, site) in enumerate(scene.sites(attentions_with_maps)):
            for name in ("maps", "peak", "beside", "rollout", "rollout_peak", "rollout_beside"):
                lay(rows[name][:, row], examples[subject][f"{name} of {site.name}"][:count])
            for name in ("query_place", "key_place", "grids"):
                lay(getattr(self, name)[row], examples[subject][f"{name} of {site.name}"])
        self.append(**rows)


def lay(whole: Tensor, values: Tensor) -> None:
    """Put values at the front of a larger tensor."""
    whole[tuple(slice(length) for length in values.shape)] = values


def relative_of(estimate: xarray.Dataset, subject: str) -> np.ndarray:
    """(attention, head) of one subject; NaN beyond its heads, and where weights can be negative."""
    values: np.ndarray = estimate.relative.values[site_indices(estimate, subject)]
    return values


def summed_up(summary: Callable[[np.ndarray], float]) -> Compute:
    """A number made of the entropies (attention, head) of each subject that has any."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        values = relative_of(estimate, subject)
        return float(summary(values)) if np.isfinite(values).any() else None

    return of_each(number)


def mean_known(values: np.ndarray) -> float:
    return float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else math.nan


@dataclass(frozen=True)
class AttentionMaps(SampledExperiment):
    name = "attention_maps"
    title = "Where does each patch look?"
    title_ko = "각 패치는 어디를 보는가?"
    order = 14
    chapter = "look"
    sources = (
        Source("Dosovitskiy et al. 2020", "Figures 6, 14"),
        Source("Abnar & Zuidema 2020", "Section 3 (attention rollout)"),
    )
    how_to_read = (
        "First, for some pictures: the rollout, which shows the parts of the picture that the last block depends on "
        "(bright: most, dark: least), and the attention of one head of a low, a middle and a high block, always the "
        "head that looks most narrowly there from the query drawn. That query is the class token; without one, the "
        "mean over all patches or, where attention stays within windows, the patch in the middle (outlined). Each head "
        "is drawn from 0 to its own largest weight. Next: the entropy of every head over depth, with patches as "
        "queries (circles) and with the class token (diamonds); 1 is attention spread evenly over all keys, 0 "
        "attention to a single one. A map shows where a head reads from, not what it reads: values may be small where "
        "weights are large."
    )
    how_to_read_ko = (
        "처음은 그림 몇 장에 대해, 마지막 블록이 그림의 어느 곳에 의존하는지(롤아웃; 밝을수록 많이, 어두울수록 적게)와 "
        "낮은·중간·높은 블록에서 그린 쿼리로 가장 좁게 보는 헤드의 어텐션이다. 그 쿼리는 클래스 토큰이고, 없으면 모든 "
        "패치의 평균이나, 어텐션이 창 안에 머무는 곳에서는 가운데 패치(테두리)이다. 헤드마다 0에서 자기의 가장 큰 "
        "가중치까지 칠한다. 다음은 깊이에 따른 모든 헤드의 엔트로피이다(원은 패치가, 마름모는 클래스 토큰이 쿼리일 "
        "때). 1은 모든 키를 고르게, 0은 하나만 보는 것이다. 맵은 헤드가 어디에서 읽는지를 보일 뿐 무엇을 읽는지는 "
        "보이지 않는다. 가중치가 큰 곳에서도 값은 작을 수 있다."
    )
    method = (
        "Entropy −Σ A ln A of each row of attention weights, prefix tokens among the keys, averaged over query patches "
        "and images; relative: divided by ln(keys of the window, masked ones included). Rollout: R = product over "
        "blocks of (A + I)/2 with A averaged over heads and rows normalised, from the input up to each block; only "
        "where all blocks attend globally over the same tokens. Class attention and attention pooling have no query "
        "patches and are not shown. Kept maps have 8 bits of the square root of each weight's share of the "
        "largest on a patch; grids finer than 16×16 keep 16 rows and columns of queries or fewer, and more than 576 "
        "keys are summed in square groups."
    )
    quantities = (
        Quantity(
            "first_attention_entropy",
            summed_up(lambda values: mean_known(values[0])),
            "mean entropy of the heads of the first attention, queries: patches, uniform = 1",
            limits=(0, 1),
        ),
        Quantity(
            "last_attention_entropy",
            summed_up(lambda values: mean_known(values[-1])),
            "mean entropy of the heads of the last attention, queries: patches, uniform = 1",
            limits=(0, 1),
        ),
        Quantity(
            "narrowest_head",
            summed_up(lambda values: float(np.nanmin(values))),
            "least entropy of any head, queries: patches, uniform = 1",
            smooth=False,
            limits=(0, 1),
        ),
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 2, "normal": 20, "full": 120}
    least_images = shown_from = 16  # one in each fold

    images: int = option(0, "images whose entropy is measured; 0: as many as the effort allows")

    def passes(self, anatomy: Anatomy) -> float:
        return (
            1.4 if attentions_with_maps(anatomy) else 0.0
        )  # measured: weights and entropy take 0.4 of a pass of the bundled ViT

    def tally(self, scene: Scene) -> MapsTally:
        if not scene.sites(attentions_with_maps):
            raise DoesNotApply(
                f"{' and '.join(scene.subjects)} {'have' if len(scene.subjects) > 1 else 'has'} no attention over "
                "positions that the taps can read, so there are no maps to show."
            )
        return MapsTally.empty(fold=scene.folds, **self.sizes(scene))

    def sizes(self, scene: Scene) -> dict[str, int]:
        """The axes of the tally, as long as the largest attention of any subject needs."""
        attentions = [
            (anatomy, site, site.attention)
            for anatomy in with_maps(scene)
            for site in attentions_with_maps(anatomy)
            if site.attention
        ]
        sides = {
            anatomy.subject: thinning(attentions_with_maps(anatomy), anatomy.input_size)[0]
            for anatomy in with_maps(scene)
        }
        queries = [
            count_queries(geometry, anatomy.input_size, sides[anatomy.subject]) for anatomy, _, geometry in attentions
        ]
        pictures = [picture_size(anatomy.input_size) for anatomy in with_maps(scene)]
        return {
            "site": len(attentions),
            "head": max(site.heads or 1 for _, site, _ in attentions),
            "query": max(queries),
            "query_axis": 3,
            "window": max(min(each.windows, many) for (_, _, each), many in zip(attentions, queries, strict=True)),
            "key": max(count_keys(geometry) for _, _, geometry in attentions),
            "key_axis": 2,
            "grid": 5,
            "subject": len(pictures),
            "y": max(height for height, _ in pictures),
            "x": max(width for _, width in pictures),
            "channel": 3,
        }

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        sites, bench = attentions_with_maps(bench.anatomy), bench.first(self.images)
        if not sites or not len(bench):
            return {}
        seen = bench.look({site.name: [ENTROPIES] for site in sites})
        results = {f"entropy of {site.name}": seen[site.name][ENTROPIES.name] for site in sites}
        results["folds"] = bench.folds()
        return results | take_examples(bench, sites) if bench.batch.index == 0 else results

    def update(self, tally: MapsTally, batch: Batch, views: Views, scene: Scene) -> None:
        results = {anatomy.subject: views.experiment(anatomy.subject) for anatomy in with_maps(scene)}
        if not all(results.values()):  # beyond the images that are used
            return
        folds = next(iter(results.values()))["folds"]
        for row, (subject, site) in enumerate(scene.sites(attentions_with_maps)):
            spread = results[subject][f"entropy of {site.name}"].double()
            tally.add("entropy", folds, spread[..., 0], row, slice(spread.shape[1]))
            tally.add("class_entropy", folds, spread[..., 1], row, slice(spread.shape[1]))
        tally.add("images", folds)
        if batch.index == 0:
            tally.keep_examples(scene, results)

    def estimate(self, total: MapsTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(attentions_with_maps)
        keys = np.array([site.attention.keys for _, site in sites if site.attention])
        exists = np.arange(total.entropy.shape[1])[None] < np.array([site.heads or 1 for _, site in sites])[:, None]
        images = total.images.numpy()
        nats, of_class = (
            np.where(exists, each.numpy() / images, np.nan) for each in (total.entropy, total.class_entropy)
        )
        uniform = np.log(keys)[:, None]
        share, axes = {"limits": (0.0, 1.0)}, ("site", "head")
        without = [anatomy.subject for anatomy in scene.anatomies if not attentions_with_maps(anatomy)]
        words = f"{' and '.join(without)} {'have' if len(without) > 1 else 'has'} no attention to show"
        return xarray.Dataset(
            {
                "entropy": (axes, nats, {"unit": "nats", "limits": (0.0, np.inf)}),
                "relative": (axes, nats / uniform, share),
                "class_relative": (axes, of_class / uniform, share),
            },
            coords=site_coordinates(scene, sites)
            | {"head": np.arange(exists.shape[1]), "keys": ("site", keys), "head_count": ("site", exists.sum(1))}
            | shown(total, scene),
            attrs={"images": int(images), "left_out": words if without else ""},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            values = relative_of(finding, subject)
            if not np.isfinite(values).any():
                parts.append(f"The weights of {subject} can be negative, so its heads have no entropy")
                continue
            told = {each.name: quantity_in_words(finding, each.name, ".2f", subject) for each in self.quantities}
            row, head = np.unravel_index(np.nanargmin(values), values.shape)
            name = finding.name.values[site_indices(finding, subject)[row]].removesuffix(" attention")
            parts.append(
                f"With patches as queries, heads of {subject} have {told['first_attention_entropy']} of the entropy of "
                f"uniform attention in its first block, on average, and {told['last_attention_entropy']} in its last; "
                f"the narrowest is head {head + 1} of {name} with {told['narrowest_head']}"
            )
        reasons = zip(finding.shown_subject.values.tolist(), finding.no_rollout.values.tolist(), strict=True)
        parts += [f"There is no rollout for {subject}: {reason}" for subject, reason in reasons if reason]
        parts += [finding.attrs["left_out"]] if finding.attrs["left_out"] else []
        return ". ".join(parts) + "."


def shown(total: MapsTally, scene: Scene) -> dict[str, Any]:
    """Coordinates with what the explorer shows: rows of attention as `coded`, and where they lie."""
    sizes = [picture_size(anatomy.input_size) for anatomy in with_maps(scene)]
    classes = scene.classes or ()
    order = in_turns(total.label.tolist())  # merging sorts images by number; a page with room for four shows the first
    labels = [
        readable_class(classes[label]) if 0 <= label < len(classes) else "" for label in total.label[order].tolist()
    ]
    rows, row = ("example", "site", "head", "query"), ("example", "site", "query")
    packed = {"zlib": True, "complevel": 4}  # coordinates are not packed by themselves, and most of this is padding
    positions = {
        name: np.maximum(getattr(total, name).numpy(), NOTHING).astype(np.int16)
        for name in ("query_place", "key_place", "grids")
    }
    return {
        "example": total.image[order].numpy(),
        "class_name": ("example", np.array(labels, dtype=object)),
        "shown_subject": [anatomy.subject for anatomy in with_maps(scene)],
        "no_rollout": (
            "shown_subject",
            [why_no_rollout(anatomy, attentions_with_maps(anatomy)) for anatomy in with_maps(scene)],
        ),
        "picture": (("example", "shown_subject", "y", "x", "channel"), total.picture[order].numpy()),
        "picture_size": (("shown_subject", "side"), np.array(sizes)),
        "maps": ((*rows, "key"), total.maps[order].numpy(), {}, packed),
        "peak": (rows, total.peak[order].numpy()),
        "beside": (rows, total.beside[order].numpy()),
        "rollout": ((*row, "key"), total.rollout[order].numpy(), {}, packed),
        "rollout_peak": (row, total.rollout_peak[order].numpy()),
        "rollout_beside": (row, total.rollout_beside[order].numpy()),
        "query_place": (("site", "query", "query_axis"), positions["query_place"]),
        "key_place": (("site", "window", "key", "key_axis"), positions["key_place"]),
        "grids": (("site", "grid"), positions["grids"]),
    }
