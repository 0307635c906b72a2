"""M25: does it go by shape or by texture? Three tests on changed pictures:

- **filters**: accuracy on low-passed minus on high-passed pictures. Shapes are large, textures fine;
- **patch shuffle**: pieces of the picture change places. Textures stay, the shape is gone;
- **cue conflict**: the phases of one picture (where its edges are) with the amplitudes of another (how much of each
  frequency it has). Which of the two classes does the subject name?

Park & Kim infer the shape bias of attention from spectra alone; these ask for it directly.

    filters = (low-passed − high-passed) / clean accuracy        shuffle = 1 − shuffled / clean accuracy
    conflict = answers by phase / (answers by phase + answers by amplitude)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import SampledExperiment, Source, Views, subject_coordinates
from eyechart.methods.patches import orders, partners, shuffled
from eyechart.methods.scoring import has_class, right, scored_by, wanted
from eyechart.methods.spectrum import split, swapped
from eyechart.quantity import Quantity
from eyechart.reading_estimates import in_points, in_words, scored_vit_minus_cnn, with_ends
from eyechart.scene import Batch, Scene
from eyechart.site_choice import gives_answers
from eyechart.sites import Anatomy
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench

CUTOFFS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Radial frequencies at which half of the amplitude passes, in units of π."""
PIECES = (3, 5, 9)
"""Pieces a side that are shuffled."""
CONDITIONS = (
    "intact",
    *(f"low {c}" for c in CUTOFFS),
    *(f"high {c}" for c in CUTOFFS),
    *(f"{n} pieces" for n in PIECES),
)


def examined(scene: Scene) -> list[str]:
    return [anatomy.subject for anatomy in scene.anatomies if gives_answers(anatomy)]


def in_range(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Pictures clipped to 0 … 1, and the share of values (image,) that this touched by more than rounding."""
    clipped = pixels.clamp(0, 1)
    return clipped, ((clipped - pixels).abs() > 1e-4).double().mean((1, 2, 3))


def tile_side(side: int, pieces: int) -> int:
    """Pixels a side of a tile: odd where that costs little, for patches are even, and tiles that fit them stay whole.

    Cut into 8×8 tiles of 4 pixels, which are its patches, pictures cost zoo:vit 38 points of accuracy, zoo:resnet 73.

    >>> [tile_side(side, pieces) for side in (32, 224, 384) for pieces in PIECES]
    [10, 6, 3, 73, 43, 23, 127, 75, 41]
    """
    tile = side // pieces
    return tile if tile <= 10 else (tile - 1) | 1


def cut_apart(images: Tensor, pieces: int, generator: torch.Generator) -> Tensor:
    """Each image cut into pieces × pieces tiles that change places at random; a remainder at the border stays."""
    high, wide = (pieces * tile_side(side, pieces) for side in images.shape[-2:])
    result = images.clone()
    result[..., :high, :wide] = shuffled(images[..., :high, :wide], orders(len(images), pieces, generator))
    return result


def changed(bench: Bench) -> Iterator[tuple[Tensor, Tensor]]:
    """The pictures of every condition but the first, with the share of values (image,) clipped to the valid range."""
    pixels = bench.pixels().float()
    mean = pixels.mean((2, 3), keepdim=True)
    for high, cutoff in product((False, True), CUTOFFS):
        yield in_range(split(pixels, cutoff * math.pi)[1] + mean if high else split(pixels, cutoff * math.pi)[0])
    for pieces in PIECES:
        yield cut_apart(pixels, pieces, bench.generator(f"shuffle {pieces}")), torch.zeros(len(bench)).double()


@dataclass
class ShapeTally(Tally):
    right: Annotated[Tensor, Sum("fold", "subject", "condition")]
    clipped: Annotated[Tensor, Sum("fold", "subject", "condition")]
    seen: Annotated[Tensor, Sum("fold", "subject")]
    by_phase: Annotated[Tensor, Sum("fold", "subject")]
    by_amplitude: Annotated[Tensor, Sum("fold", "subject")]
    pairs: Annotated[Tensor, Sum("fold", "subject")]
    conflict_clipped: Annotated[Tensor, Sum("fold", "subject")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


@dataclass(frozen=True)
class ShapeTexture(SampledExperiment):
    name = "shape_texture"
    title = "By shape or by texture?"
    title_ko = "모양을 보는가, 질감을 보는가?"
    order = 86
    chapter = "break"
    sources = (Source("Park & Kim 2022", "inferred from Figures 2 and 8"), Source("eyechart", "direct tests"))
    how_to_read = (
        "First: accuracy when only frequencies below (solid) or above (dashed) a limit remain; a model that goes by "
        "shape keeps more on the solid line. Second: accuracy when pieces of the picture change places; a model that "
        "goes by shape loses more. In both, the grey line is what guessing would score. Third: pictures with the "
        "phases of one class and the amplitudes of another; of the answers that name either, the share that names the "
        "phases' class. Amplitudes are only a rough stand-in for texture."
    )
    how_to_read_ko = (
        "처음: 한계보다 낮은(실선) 또는 높은(파선) 주파수만 남겼을 때의 정확도. 모양을 볼수록 실선이 높다. 둘째: 그림 "
        "조각을 뒤섞었을 때의 정확도. 모양을 볼수록 많이 떨어진다. 두 그림의 회색 선은 찍었을 때의 정확도이다. 셋째: "
        "한 클래스 그림의 위상과 다른 클래스 그림의 진폭을 합친 그림에서, 두 클래스 가운데 하나를 말한 답 중 위상 쪽을 "
        "말한 비율. 진폭은 질감의 대략적인 대리일 뿐이다."
    )
    method = (
        "All changes are made to pixel values 0 … 1 and clipped to them. Low-pass: Gaussian of radial frequency, half "
        "of the amplitude at the limit; high-pass: the rest, around the picture's mean colour. Shuffle: 3×3, 5×5, 9×9 "
        "tiles, which do not fit the patches of a ViT, seeded. Conflict: phases and amplitudes of two pictures of "
        "different classes, channel by channel. Test 1 is the mean of low- minus high-passed accuracy over clean "
        "accuracy; test 2 one minus shuffled over clean accuracy; test 3 the share of phase among decided answers; "
        "each ViT minus CNN. Two of the three intervals must lie above 0."
    )
    quantities = (
        Quantity(
            "filter_bias_difference",
            partial(scored_vit_minus_cnn, variable="filter_bias"),
            "low- minus high-passed accuracy, ViT minus CNN",
            paired=True,
        ),
        Quantity(
            "shuffle_loss_difference",
            partial(scored_vit_minus_cnn, variable="shuffle_loss"),
            "share of accuracy lost to shuffling, ViT minus CNN",
        ),
        Quantity(
            "phase_share_difference",
            partial(scored_vit_minus_cnn, variable="phase_share"),
            "share of answers by phase, ViT minus CNN",
            paired=True,
            limits=(-1, 1),
        ),
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 18.0, "normal": 60.0, "full": 600.0}
    least_images: ClassVar[int] = 128

    def passes(self, anatomy: Anatomy) -> float:
        return len(CONDITIONS) + 1.0

    def tally(self, scene: Scene) -> ShapeTally:
        if not examined(scene):
            raise DoesNotApply("no subject has a classifier.")
        return ShapeTally.empty(fold=scene.folds, subject=len(examined(scene)), condition=len(CONDITIONS))

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        bench = bench.first(self.images)
        if not len(bench) or not gives_answers(bench.anatomy) or bench.subject.colours is None:
            return {}
        intact = bench.logits()
        target = wanted(bench, intact)
        answers, clipped = [right(intact, target)], [torch.zeros(len(bench)).double()]
        for pixels, touched in changed(bench):
            answers.append(right(bench.logits(bench.from_pixels(pixels)), target))
            clipped.append(touched.cpu())
        partner = partners(bench.folds())
        pixels = bench.pixels()
        mixed, touched = in_range(swapped(pixels, pixels[partner.to(pixels.device)]))
        said = bench.logits(bench.from_pixels(mixed))
        conflict = has_class(target) * has_class(target[partner]) * (target != target[partner])
        return {
            "right": torch.stack(answers, dim=1),
            "clipped": torch.stack(clipped, dim=1),
            "seen": has_class(target),
            "by_phase": right(said, target) * conflict,
            "by_amplitude": right(said, target[partner]) * conflict,
            "pairs": conflict,
            "conflict_clipped": touched.cpu() * conflict,
            "folds": bench.folds(),
        }

    def update(self, tally: ShapeTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = None
        for column, results in views.experiments(examined(scene)):
            folds = results["folds"]
            for name in ("seen", "by_phase", "by_amplitude", "pairs", "conflict_clipped"):
                tally.add(name, folds, results[name], column)
            for name in ("right", "clipped"):
                tally.add(name, folds, results[name] * results["seen"][:, None], column)
        if folds is not None:
            tally.add("images", folds)

    def estimate(self, total: ShapeTally, scene: Scene) -> xarray.Dataset:
        subjects = examined(scene)
        accuracy = (total.right / total.seen[:, None]).numpy()
        clean, rest = accuracy[:, 0], accuracy[:, 1:]
        low, high, pieces = np.split(rest, [len(CUTOFFS), 2 * len(CUTOFFS)], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            filter_bias = (low - high).mean(1) / clean
            shuffle_loss = 1 - pieces.mean(1) / clean
        decided = total.by_phase + total.by_amplitude
        unit = {"limits": (0.0, 1.0), "trials": max(1.0, float(total.seen.max()))}
        paired = {"limits": (0.0, 1.0), "trials": max(1.0, float(total.pairs.max()))}
        # What is lost is lost of the pictures that were right: none moved in so many bounds how many might have.
        same = {"pairs": max(1.0, float(total.right[:, 0].min()))}
        fewest = {"limits": (0.0, 1.0), "trials": max(1.0, float(decided.min()))}
        return xarray.Dataset(
            {
                "clean": ("subject", clean, unit),
                "low_passed": (("subject", "cutoff"), low, unit),
                "high_passed": (("subject", "cutoff"), high, unit),
                "shuffled": (("subject", "pieces"), pieces, unit),
                "filter_bias": ("subject", filter_bias, same),
                "shuffle_loss": ("subject", shuffle_loss, {"limits": (None, 1.0), **same}),
                "phase_share": ("subject", (total.by_phase / decided).numpy(), fewest),
                "decided": ("subject", (decided / total.pairs).numpy(), paired),
                "clipped": ("subject", (total.conflict_clipped / total.pairs).numpy(), {"limits": (0.0, 1.0)}),
                "filters_clipped": (
                    "subject",
                    (total.clipped[:, 1 : 1 + 2 * len(CUTOFFS)].mean(1) / total.seen).numpy(),
                    {"limits": (0.0, 1.0)},
                ),
            },
            coords={
                **subject_coordinates(scene, subjects),
                "scored": ("subject", [scored_by(scene, subject) for subject in subjects]),
                "pictures": ("subject", [str(scene.anatomy(subject).input_size) for subject in subjects]),
                "cutoff": list(CUTOFFS),
                "pieces": list(PIECES),
            },
            attrs={"images": int(total.images), "classes": len(scene.classes or ())},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in finding.subject.values.tolist():
            row = finding.sel(subject=subject)
            if not np.isfinite(float(row.clean)):
                parts.append(
                    f"{subject} is left out, because its own transform does more with colours than shift and scale"
                )
                continue
            named = str(row.scored.item()) == "accuracy"
            what = "accuracy" if named else "agreement with its own answers to the intact pictures"
            parts.append(
                f"{subject} follows the phases in {in_words(row, 'phase_share', '.0%')} of the decided conflicts "
                f"({in_words(row, 'decided', '.0%')} are decided, {in_words(row, 'clipped', '.0%')} of their pixel "
                f"values were clipped) and loses {in_words(row, 'shuffle_loss', '.0%')} of its {what} "
                f"to shuffling; what low-passed pictures keep of it minus what high-passed ones keep is "
                f"{in_points(with_ends(row, 'filter_bias'), '+.0f')} points"
            )
        return f"{'; '.join(parts)}."
