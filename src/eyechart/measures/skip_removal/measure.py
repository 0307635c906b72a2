"""M6: what does a skip hold together? At one block at a time, sum = branch instead of sum = skip + branch.

Raghu et al. retrain a ViT without the skips of one block (attention and MLP). Here they are removed from trained
subjects, ViT and CNN alike; subjects that were trained without a skip are read beside their intact twins.

    across(i) = mean CKA(a, b) over sites a before block i and b from block i on

relative to the same mean of the intact subject, and the accuracy lost on the same images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
import xarray

from eyechart.claims.judge import LEAST_IMAGES
from eyechart.errors import DoesNotApply
from eyechart.images.plan import FOLDS
from eyechart.measure import SampledExperiment, Source, Views, option
from eyechart.measures.skip_removal import variants as skips
from eyechart.measures.skip_removal.variants import MODES, Variant, sites_of, variants_of
from eyechart.methods.hsic import check_blocks, hsic_table, read_out
from eyechart.methods.scoring import COUNTS, LOGITS, accuracy_of, changed_of, images_with_class, outcomes
from eyechart.quantity import Quantity, subjects_in
from eyechart.reading_estimates import ends_of, in_points, jackknifed, quantity_in_words, spanned
from eyechart.scene import Batch, Scene
from eyechart.site_choice import classifier
from eyechart.sites import Anatomy
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import View
from eyechart.tracing.recalibration import batch_norms, recalibrated


@dataclass
class SkipRemovalTally(Tally):
    hsic: Annotated[torch.Tensor, Sum("fold", "variant", "mode", "site", "other_site")]
    counted: Annotated[torch.Tensor, Sum("fold", "variant", "mode", "outcome")]
    stale: Annotated[torch.Tensor, Sum("fold", "variant")]
    """Blocks in which batch normalisations kept the statistics of training and were not recalibrated."""
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


@dataclass(frozen=True)
class SkipRemoval(SampledExperiment):
    name = "skip_removal"
    title = "What if a skip is removed?"
    title_ko = "잔차 연결을 없애면 어떻게 되는가?"
    order = 20
    chapter = "skip"
    sources = (Source("Raghu et al. 2021", "Figure 8, which retrains; removal at test time and CNNs are ours"),)
    how_to_read = (
        "The skips of one block at a time are removed from the trained model; nothing is retrained. First panel: the "
        "accuracy lost, by the depth of the block. Second: how alike the layers before the block and from it on still "
        "are, relative to the intact model; 1 means as alike as before. Dashed: batch normalisation has been given "
        "statistics that fit the changed network. Maps: a model's layers compared with one another (CKA, input at the "
        "lower left), intact and without the skips of its first, a middle and its last but one block, each under the "
        "accuracy that is left. An interval cut off by its panel is wider than can be drawn. Two bright squares with "
        "darkness between them mean that the model falls in two at that block; a map that is dark all over does not. A "
        "ViT and a CNN are compared by the share of their accuracy above guessing (one of the images' classes) that "
        "they lose."
    )
    how_to_read_ko = (
        "학습된 모델에서 한 번에 한 블록의 잔차 연결만 없애고 다시 학습하지 않는다. 첫 그림은 블록의 깊이에 따라 "
        "잃은 정확도, 둘째는 블록 앞의 층들과 그 뒤의 층들이 온전한 모델에 비해 얼마나 닮았는지이다(1이면 "
        "그대로). 파선은 배치 정규화의 통계를 바뀐 망에 맞게 다시 잰 것이다. 맵은 한 모델의 층끼리의 비교(CKA, "
        "입력이 왼쪽 아래)로, 온전할 때와 첫 블록, 가운데 블록, 끝에서 둘째 블록의 잔차 연결이 없을 때이며, 위에 "
        "남은 정확도를 적었다. 그림 끝에서 잘린 구간은 그릴 수 있는 것보다 넓다. 밝은 정사각형 둘이 어둠으로 "
        "갈라지면 모델이 그 블록에서 끊어진 것이고, 전체가 어두운 맵은 그렇지 않다. ViT와 CNN은 (이미지의 클래스 "
        "가운데서) 찍어서 맞힐 몫을 넘는 정확도 가운데 잃은 몫으로 비교한다."
    )
    method = (
        "All residual additions of a block (attention and MLP) return their branch alone; blocks whose skip is "
        "projected are left out, since removing it would remove weights too. Minibatch CKA of stem and block outputs "
        "(unbiased HSIC); the mean over all pairs across the block, divided by the intact subject's. Accuracy with and "
        "without the skips is of the same images. Where there is batch normalisation its statistics no longer fit the "
        "changed network, so everything is measured a second time with mean and variance re-estimated in the changed "
        "network, on images of the same block of the exam that are not being scored, and compared with the intact "
        "network treated likewise."
    )
    quantities = (
        Quantity(
            "skip_drop",
            skips.mean_of("lost", MODES[0]),
            "accuracy lost without a block's skips, mean over blocks",
            paired=True,
            limits=(-1, 1),
        ),
        Quantity(
            "skip_drop_recalibrated",
            skips.mean_of("lost", MODES[1]),
            "accuracy lost without a block's skips, batch norms recalibrated, mean over blocks",
            paired=True,
            limits=(-1, 1),
        ),
        Quantity(
            "skip_across", skips.mean_of("across", MODES[0]), "CKA across a block without skips, relative to intact"
        ),
        Quantity(
            "skip_drop_gap",
            skips.drop_gap(MODES[0]),
            "accuracy lost without a block's skips, ViT minus CNN",
            paired=True,
            limits=(-2, 2),
        ),
        Quantity(
            "skip_drop_gap_recalibrated",
            skips.drop_gap(MODES[1]),
            "accuracy lost without a block's skips, batch norms recalibrated, ViT minus CNN",
            paired=True,
            limits=(-2, 2),
        ),
        Quantity(
            "skip_loss_share_gap",
            skips.share_gap(MODES[0]),
            "share of the accuracy above guessing lost without a block's skips, ViT minus CNN",
        ),
        Quantity(
            "skip_loss_share_gap_recalibrated",
            skips.share_gap(MODES[1]),
            "share of the accuracy above guessing lost, batch norms recalibrated, ViT minus CNN",
        ),
        Quantity(
            "trained_without_skip_across",
            skips.twin_relative("intact_across"),
            "CKA across the block that was trained without skip, relative to the intact twin",
        ),
        Quantity(
            "trained_without_skip_within",
            skips.twin_relative("intact_within"),
            "CKA on either side of the block that was trained without skip, relative to the intact twin",
        ),
        Quantity(
            "trained_without_skip_drop",
            skips.twin_drop,
            "accuracy, intact minus trained without the skip of a middle block",
            paired=True,
            limits=(-1, 1),
        ),
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 10.0, "normal": 60.0, "full": 600.0}
    least_images: ClassVar[int] = 80

    recalibrate: Literal["yes", "no"] = option(
        "yes", "whether subjects with batch normalisation are measured a second time with re-estimated statistics"
    )

    def sized(self, effort: str, scene: Scene, *, asked_for: bool = False, decides: bool = True) -> Self:
        """Only whole small blocks are used; so many more images are taken that those used still decide."""
        chosen = super().sized(effort, scene, asked_for=asked_for, decides=decides)
        assert isinstance(chosen, SkipRemoval)
        images = chosen.images
        while not self.images and images < scene.images and skips.used_of(scene.block, images) < LEAST_IMAGES:
            images = min(images + scene.folds, scene.images)
        return replace(chosen, images=images)

    def passes(self, anatomy: Anatomy) -> float:
        # Anatomies do not list batch norms; subjects with convolutions are taken to have some: estimate, score again.
        twice = self.recalibrate == "yes" and anatomy.architecture not in ("transformer", "mixer")
        return len(variants_of(anatomy)) * (3.0 if twice else 1.0)

    # --- the experiment -----------------------------------------------------------------------------------------

    def experiment(self, bench: Bench) -> Mapping[str, torch.Tensor]:
        """HSIC (mode, variant, block, site, other_site) and outcomes (mode, variant, image, outcome)."""
        size = skips.small_block(len(bench), self.images)
        used = len(bench.first(self.images) if self.images else bench) // size * size
        if not bench.batch.whole or not used:
            return {}
        variants, images = variants_of(bench.anatomy), torch.arange(len(bench))
        by_mode = [self._score(bench, variants, size, [(images[:used], None)])]
        norms = bool(batch_norms(bench.subject.module))
        if self.recalibrate == "yes" and norms and size < len(bench):
            cut = (used // size + 1) // 2 * size
            halves = [half for half in (images[:cut], images[cut:used]) if len(half)]
            others = [(half, images[~torch.isin(images, half)]) for half in halves]
            by_mode.append(self._score(bench, variants, size, others))
        seen = {name: torch.stack([each[at] for each in by_mode]) for at, name in enumerate(("hsic", "counted"))}
        return seen | {"stale": torch.tensor(float(norms and len(by_mode) < len(MODES)))}

    @staticmethod
    def _score(
        bench: Bench,
        variants: Sequence[Variant],
        size: int,
        parts: Sequence[tuple[torch.Tensor, torch.Tensor | None]],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All variants on all `parts`: (places that are scored, places the batch norms are recalibrated on)."""
        tables, counts = [], []
        intact: list[torch.Tensor] = []
        for variant in variants:
            seen = []
            for number, (scored, others) in enumerate(parts):
                part = bench.picked(scored)
                if others is None:
                    hsic, logits = look_at(part, variant, size)
                else:
                    with recalibrated(bench, bench.picked(others).images, variant.changes):
                        hsic, logits = look_at(part, variant, size)
                if variant.block is None:
                    intact.append(logits)
                seen.append((hsic, outcomes(logits, intact[number], part.targets)))
            tables.append(torch.cat([hsic for hsic, _ in seen]))
            counts.append(torch.cat([counted for _, counted in seen]))
        return torch.stack(tables), torch.stack(counts)

    # --- the tally ----------------------------------------------------------------------------------------------

    def tally(self, scene: Scene) -> SkipRemovalTally:
        if not any(skips.removable(anatomy) for anatomy in scene.anatomies):
            raise DoesNotApply("no subject has a block whose skips pass unchanged.")
        check_blocks(scene)
        sites = max(len(sites_of(anatomy)) for anatomy in scene.anatomies)
        return SkipRemovalTally.empty(
            fold=scene.folds,
            variant=sum(len(variants_of(anatomy)) for anatomy in scene.anatomies),
            mode=len(MODES),
            site=sites,
            other_site=sites,
            outcome=COUNTS,
        )

    def update(self, tally: SkipRemovalTally, batch: Batch, views: Views, scene: Scene) -> None:
        size = skips.small_block(scene.block, self.images)
        for at, (subject, variants) in enumerate(scene.rows(variants_of).items()):
            results = views.experiment(subject)
            for number in range(results["hsic"].shape[2] if results else 0):
                # Small blocks are dealt to the folds one by one: CKA and accuracy of a fold are of the same images.
                fold = (batch.index * (scene.block // size) + number) % scene.folds
                for mode, hsic in enumerate(results["hsic"]):
                    sites = slice(0, hsic.shape[-1])
                    tally.hsic[fold, variants, mode, sites, sites] += hsic[:, number]
                    images = results["counted"][mode, :, number * size : (number + 1) * size]
                    tally.counted[fold, variants, mode] += images.sum(1)
                tally.stale[fold, variants] += results["stale"]
                tally.images[fold] += size if at == 0 else 0

    def estimate(self, total: SkipRemovalTally, scene: Scene) -> xarray.Dataset:
        variants = [variant for anatomy in scene.anatomies for variant in variants_of(anatomy)]
        owner = np.maximum.accumulate([at if v.block is None else 0 for at, v in enumerate(variants)])
        accuracy, images = accuracy_of(total.counted), int(total.images)
        cka = skips.cka_of(total.hsic.numpy())
        relative = np.full(accuracy.shape, np.nan)
        for at, variant in enumerate(variants):
            if variant.block is not None and variant.block in sites_of(variant.anatomy):
                count, place = len(sites_of(variant.anatomy)), sites_of(variant.anatomy).index(variant.block)
                without, intact = (skips.across(cka[row, :, :count, :count], place) for row in (at, owner[at]))
                relative[at] = without / intact
        labelled = images_with_class(total.counted)
        pairs = {"limits": (-1.0, 1.0), "pairs": labelled}
        normalised = (total.hsic[owner, 1] != 0).any(-1).any(-1).numpy()
        variables: dict[str, Any] = {
            "accuracy": (("variant", "mode"), accuracy, {"limits": (0.0, 1.0), "trials": labelled}),
            "lost": (("variant", "mode"), accuracy[owner] - accuracy, pairs),
            "changed": (("variant", "mode"), changed_of(total.counted), {"limits": (0.0, 1.0)}),
            "across": (("variant", "mode"), relative),
        }
        estimate = xarray.Dataset(
            variables | skips.intact_across(variants, cka),
            coords=skips.coordinates(variants, normalised, total.stale.numpy() > 0),
            attrs={"images": images, "guessing": 1 / len(scene.classes) if scene.classes else np.nan},
        )
        return estimate.merge(skips.shown_maps(variants, cka, normalised))

    # --- the report ---------------------------------------------------------------------------------------------

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        lost, again = (skips.mean_of("lost", mode)(finding) for mode in MODES)
        kept, moved = (skips.mean_of(name, MODES[0])(finding) for name in ("across", "changed"))
        for subject in subjects_in(finding):
            of_subject, phrases = finding.isel(variant=finding.subject.values == subject), []
            if (subject,) not in lost:
                parts.append(f"in {subject} no block has skips that pass unchanged")
                continue
            if np.isfinite(lost[subject,]):
                drop, anew = (
                    in_points(ends_of(finding, name, subject), ".0f") if np.isfinite(values[subject,]) else "nan"
                    for name, values in (("skip_drop", lost), ("skip_drop_recalibrated", again))
                )
                phrases.append(f"loses {drop} points of accuracy")
                if of_subject.normalised.values.all():
                    phrases[0] += f" ({anew} with its batch norms recalibrated)"
                elif of_subject.stale.values.any():
                    more = f": to recalibrate them takes {FOLDS * skips.DIVISIBLE} images or more"
                    phrases[0] += f" (its batch norms as they were trained{more if self.recalibrate == 'yes' else ''})"
            elif np.isfinite(moved[subject,]):
                share = jackknifed(finding, partial(answers_changed, subject=subject), "changed")
                phrases.append(f"changes {spanned(share, '.0%')} of its answers")
            if np.isfinite(kept[subject,]):
                phrases.append(
                    f"keeps {quantity_in_words(finding, 'skip_across', '.2f', subject)} of its CKA across the block"
                )
            else:
                phrases.append("has features there that are the same for all pictures, so that CKA is unknown")
            projected = str(of_subject.projected.values[0])
            left_out = f" (left out, because projected: {projected})" if projected else ""
            parts.append(f"without the skips of one block {subject} {' and '.join(phrases)}{left_out}")
        said = "; ".join(parts)
        return said[0].upper() + said[1:] + ".\nAll these are means over the blocks."


def answers_changed(estimate: xarray.Dataset, subject: str) -> float:
    return skips.mean_of("changed", MODES[0])(estimate)[subject,]


def look_at(bench: Bench, variant: Variant, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One pass: HSIC (block, site, other_site), and the logits, of no class where the subject has no classifier."""
    grams = View(f"gram of every {size}", read_out("all"), reduce=skips.gram_of_blocks(size))
    heads = classifier(variant.anatomy) if bench.subject.classifier else []
    sites = sites_of(variant.anatomy)
    views = {site.name: [grams] for site in sites} | {head.name: [LOGITS] for head in heads}
    seen = bench.look(views, variant.changes)
    tables = torch.stack([seen[site.name][grams.name] for site in sites], 1)
    logits = seen[heads[0].name][LOGITS.name] if heads else torch.zeros(len(bench), 0)
    return torch.stack([hsic_table(table) for table in tables]), logits
