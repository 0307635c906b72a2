"""M15: lower error by a better fit, or by regularisation? Test error against the loss on training images.

The loss is that of training, soft-target cross-entropy on augmented images, since clean training loss is not comparable
with the paper's. A soft-target loss has a floor, the entropy of its targets:

    NLL = mean entropy of the targets + mean KL(target ‖ prediction) ≥ entropy,  equal iff predictions are the targets

so the floor is reported beside it. Reading rule: lower error with lower NLL is a stronger representation, lower error
with higher NLL is regularisation, and higher error with lower NLL is over-fitting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
import xarray
from torch import Tensor

from eyechart.images import common_crop, open_images, plan_batches
from eyechart.images.plan import SMALLEST_BLOCK
from eyechart.measure import SampledExperiment, Source, Views, option
from eyechart.methods.ranks import half_a_swap, rank_correlation
from eyechart.methods.scoring import LOGITS, labelled, with_classes
from eyechart.methods.twins import build_of, snapshot
from eyechart.quantity import Compute, PerSubjects, Quantity, known_to
from eyechart.reading_estimates import by_subject, in_words, spec_of
from eyechart.scene import Batch, Scene
from eyechart.site_choice import classifier
from eyechart.sites import Anatomy
from eyechart.subjects.labels import match_classes
from eyechart.tally import Max, Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import Need
from eyechart.training.as_trained import as_trained
from eyechart.training.subject_records import record_of

MIXED = SMALLEST_BLOCK
"""Images that share one draw of mixup or cutmix.

An image is mixed with its neighbour in the group, never with itself, and in a random order that is any other image: so
the expected loss does not depend on the size (zoo:vit at equal shares, groups of 4 against 64: +.20 ± .25 %, by 40
orders of 256 images). Its spread does: .06 with groups of 4, .11 with 16, .19 with 64.
"""
BUNDLED = {"cifar10": "sample:train"}
"""Bundled training images, by the name of the data in a subject's card."""
RECORDED = ("augmented_train_nll", "clean_train_nll", "test_error")
LEAST_FAMILIES = 5
FAMILY_WORDS = {"cnn": "CNN", "windows": "windowed transformer", "vit": "ViT"}


@dataclass
class ErrorNllTally(Tally):
    wrong: Annotated[Tensor, Sum("fold", "subject")]
    clean: Annotated[Tensor, Sum("fold", "subject")]
    images: Annotated[Tensor, Sum("fold", counts=True)]
    augmented: Annotated[Tensor, Sum("fold", "subject", "set")]
    """Soft-target loss on augmented images, of the exam and of training; beside it the entropy of the targets."""
    entropy: Annotated[Tensor, Sum("fold", "subject", "set")]
    shown: Annotated[Tensor, Sum("fold", "subject", "set")]
    train_clean: Annotated[Tensor, Sum("fold", "subject")]
    train_shown: Annotated[Tensor, Sum("fold", "subject")]
    record: Annotated[Tensor, Max("subject", "recorded")]


def soft_nll(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Soft-target cross-entropy and the entropy of the targets, each (image,), in nats."""
    logits, targets = logits.double(), targets.double()
    return -(targets * logits.log_softmax(1)).sum(1), -torch.special.xlogy(targets, targets).sum(1)


def gap(variable: str) -> Compute:
    """Differences of every two subjects, in both orders."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        values = by_subject(estimate, variable)
        return {(one, two): values[one] - values[two] for one, two in permutations(values, 2)}

    return compute


def over_families(number: Callable[[xarray.Dataset], float]) -> Compute:
    """A number of all families together, where they are enough."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        subjects = families(estimate)
        return {} if subjects is None else {subjects: number(estimate.sel(subject=list(subjects)))}

    return compute


error_nll_correlation = over_families(lambda rows: rank_correlation(rows.error.values, rows.nll_train.values))
"""Rank correlation of error and training loss over families."""
BIAS = {"cnn": 4, "windows": 3, "staged transformer": 2, "vit": 1, "mixer": 0}
"""Park & Kim's order of inductive biases, strongest first: CNN, Swin, PiT, ViT, Mixer. Other kinds are not in it."""


def bias_correlation(variable: str) -> Compute:
    """Rank correlation of the weakness of the bias with error or loss, over the families in Park & Kim's order."""

    def number(rows: xarray.Dataset) -> float:
        ordered = [row for row, kind in enumerate(rows.kind.values.tolist()) if kind in BIAS]
        weakness = np.array([-BIAS[kind] for kind in rows.kind.values[ordered].tolist()])
        return rank_correlation(weakness, rows[variable].values[ordered])

    return over_families(number)


def half_a_swap_of_families(estimate: xarray.Dataset, *subjects: str) -> float:
    return half_a_swap(len(subjects))


def steps(variable: str, lower: str, higher: str) -> Compute:
    """The first family of the kind `higher` minus the first of the kind `lower`, as a number of all families."""

    def number(rows: xarray.Dataset) -> float:
        first = {kind: rows[variable].values[rows.kind.values == kind][0] for kind in (lower, higher)}
        return float(first[higher] - first[lower])

    return over_families(number)


def families(estimate: xarray.Dataset) -> tuple[str, ...] | None:
    """One subject of each build, where a CNN, a Swin and a ViT are among at least five of different builds.

    Of several, the one trained longest, and of those the first: snapshots and seeds of one build are one family. Early
    snapshots err more and fit worse, so that ranked with the ends they would make any correlation high; untrained ones
    are no family at all.
    """
    if estimate.sizes["subject"] < LEAST_FAMILIES:  # asked for every draw
        return None
    chosen: dict[int, str] = {}
    for subject, build in zip(estimate.subject.values.tolist(), estimate.build.values.tolist(), strict=True):
        late = snapshot(spec_of(estimate, subject))[1]
        if late and (build not in chosen or late > snapshot(spec_of(estimate, chosen[build]))[1]):
            chosen[build] = subject
    kinds = set(estimate.kind.sel(subject=list(chosen.values())).values.tolist())
    enough = len(chosen) >= LEAST_FAMILIES and {"cnn", "windows", "vit"} <= kinds
    return tuple(chosen.values()) if enough else None


@dataclass(frozen=True)
class ErrorVsNll(SampledExperiment):
    name = "error_vs_nll"
    title = "Does it fit better, or is it held back?"
    title_ko = "더 잘 맞추는가, 아니면 억제되어 있는가?"
    order = 68
    chapter = "loss"
    sources = (Source("Park & Kim 2022", "Figures 5, C.1 to C.3"),)
    how_to_read = (
        "Each point is a subject: to the left it fits training images better, further down it errs less on the exam's "
        "pictures. Of two subjects the one below and to the left has the stronger representation; the one below and to "
        "the right is regularised; the one above and to the left over-fits. Where the training left a record, a "
        "diamond shows its values, with drop path and on all of its images. Where the training images of a subject are "
        "not known, its mark is a triangle and its loss is measured on the exam's pictures."
    )
    how_to_read_ko = (
        "점 하나가 모델 하나이다. 왼쪽일수록 학습 그림을 잘 맞추고, 아래일수록 검사의 그림에서 덜 틀린다. 두 모델 "
        "가운데 왼쪽 아래에 있는 쪽이 표현이 더 강하고, 오른쪽 아래는 정칙화된 것이며, 왼쪽 위는 과적합이다. 학습 "
        "기록이 있으면 그 값(드롭 패스를 쓰며 모든 학습 그림에서)을 마름모로 보이고, 학습 그림이 알려지지 않은 모델이 "
        "있으면 손실을 검사의 그림에서 재어 세모로 보인다."
    )
    method = (
        "Error: share of the exam's pictures named wrong (common crop); it is a test error if they are test pictures. "
        "Training NLL: soft-target cross-entropy in eval mode on augmented training images (option recipe), and plain "
        "cross-entropy on the same ones clean. Training images are those of option train, or the bundled CIFAR-10 ones "
        "where the card says so; the loss on the exam's own pictures, augmented, is reported as well. Intervals over "
        "images of both sets."
    )
    labels = "subjects"
    budget = {"quick": 4.0, "normal": 30.0, "full": 120.0}  # noqa: RUF012
    quantities = (
        Quantity(
            "error_gap", gap("error"), "share named wrong, one subject minus another", limits=(-1.0, 1.0), paired=True
        ),
        Quantity("nll_train_gap", gap("nll_train"), "augmented training NLL, one subject minus another", unit="nats"),
        Quantity(
            "error_nll_rank",
            error_nll_correlation,
            "rank correlation of error and augmented training NLL over families",
            smooth=False,
            halving=True,
            limits=(-1.0, 1.0),
            if_unmoved=known_to(half_a_swap_of_families, error_nll_correlation),
        ),
        *(
            Quantity(
                f"{variable}_bias_rank",
                bias_correlation(variable),
                f"rank correlation over families of the weakness of their inductive bias with {words}",
                smooth=False,
                halving=True,
                limits=(-1.0, 1.0),
                if_unmoved=known_to(half_a_swap_of_families, bias_correlation(variable)),
            )
            for variable, words in (("error", "the share named wrong"), ("nll_train", "augmented training NLL"))
        ),
        *(
            Quantity(
                f"{variable}_{lower}_to_{higher}",
                steps(variable, lower, higher),
                f"{words}, {FAMILY_WORDS[higher]} minus {FAMILY_WORDS[lower]}",
                limits=(-1.0, 1.0) if variable == "error" else (None, None),
            )
            for variable, words in (("error", "share named wrong"), ("nll_train", "augmented training NLL"))
            for lower, higher in (("cnn", "windows"), ("windows", "vit"))
        ),
    )

    images: int = option(
        0,
        "images to augment, of the exam and of training; 0: as many as the effort allows. The error is of all images",
    )
    train: str = option("", "training images; without it the bundled ones where they are a subject's own")
    recipe: str = option("zoo", "the recipe whose augmentation is used")

    def needs(self) -> Sequence[Need]:
        return [Need(LOGITS, classifier)]

    def passes(self, anatomy: Anatomy) -> float:
        return 3.0  # exam images augmented; training images clean and augmented

    def tally(self, scene: Scene) -> ErrorNllTally:
        count = len(scene.scored_subjects)
        return ErrorNllTally.empty(fold=scene.folds, subject=count, set=2, recorded=len(RECORDED))

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        few = bench.first(self.images)
        results = dict(self.augmented(few, "exam"))
        if bench.batch.index == 0:
            written = record_of(bench.subject.card)
            results["record"] = torch.tensor([float(written.get(name, -torch.inf)) for name in RECORDED])
            training = self.training(bench)
            if training is not None:
                results |= self.augmented(training, "train")
                assert training.targets is not None
                clean = F.cross_entropy(training.logits().double(), training.targets.cpu(), reduction="none")
                results |= {"train clean": clean, "train clean fold": training.folds()}
        return results

    def augmented(self, bench: Bench, name: str) -> Iterator[tuple[str, Tensor]]:
        """Loss and floor of each image that has a class, augmented, with the number of its group in the batch.

        A group shares one draw of mixup or cutmix and is mixed with itself, so it stays together in a fold: dealt to
        sixteen folds it would change them all alike, and no interval would see the draw.
        """
        if bench.targets is None or bench.subject.colours is None:
            return
        few = labelled(bench)
        few = few.picked(torch.arange(len(few) - len(few) % MIXED))
        if not len(few):
            return
        classes = few.logits(few.images[:1]).shape[1]
        images, targets = as_trained(few, self.recipe, MIXED, f"error_vs_nll {name}", classes)
        nll, entropy = soft_nll(few.logits(images), targets.cpu())
        group = torch.arange(len(few)) // MIXED
        yield from {f"{name} nll": nll, f"{name} entropy": entropy, f"{name} group": group}.items()

    def training(self, bench: Bench) -> Bench | None:
        """A bench with training images in place of the exam's; None where they are not known."""
        card: Mapping[str, Any] = bench.subject.card
        name = self.train or BUNDLED.get(str(card.get("zoo", card).get("data")), "")
        if not name:
            return None
        source = open_images(name)
        logits_of = match_classes(source.classes, bench.subject).indices
        if logits_of is None or source.labels is None:
            return None
        batch = plan_batches(source, limit=self.images, block=max(4, self.images)).batch(0)
        images = bench.subject.prepare([common_crop(source.picture(int(index))) for index in batch.images])
        labels = torch.as_tensor(batch.labels)
        targets = torch.as_tensor(logits_of)[labels]
        device, dtype = bench.images.device, bench.images.dtype
        made = Bench(
            bench.subject, bench.anatomy, batch, images.to(device, dtype), targets.to(device), bench.piece_size
        )
        labelled_images = made.picked((labels >= 0).nonzero().flatten())
        return labelled_images if len(labelled_images) else None

    def update(self, tally: ErrorNllTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds, answers = with_classes(batch, views, scene)
        tally.add("images", folds)
        for column, (subject, (logits, target)) in enumerate(zip(scene.scored_subjects, answers, strict=True)):
            tally.add("wrong", folds, (logits.argmax(1) != target).double(), column)
            tally.add("clean", folds, F.cross_entropy(logits, target, reduction="none"), column)
            results = views.experiment(subject)
            earlier = batch.index * (scene.block // MIXED)
            for index, name in enumerate(("exam", "train")):
                if f"{name} nll" in results:
                    group_folds = (earlier + results[f"{name} group"]) % scene.folds
                    tally.add("augmented", group_folds, results[f"{name} nll"], column, index)
                    tally.add("entropy", group_folds, results[f"{name} entropy"], column, index)
                    tally.add("shown", group_folds, None, column, index)
            if "train clean" in results:
                group_folds = results["train clean fold"]
                tally.add("train_clean", group_folds, results["train clean"], column)
                tally.add("train_shown", group_folds, None, column)
            if "record" in results:
                tally.record[column] = torch.maximum(tally.record[column], results["record"].double())

    def estimate(self, total: ErrorNllTally, scene: Scene) -> xarray.Dataset:
        subjects = scene.scored_subjects

        def mean(sums: Tensor, counts: Tensor) -> np.ndarray:
            return np.asarray(sums.numpy() / np.where(counts > 0, counts, np.nan))

        augmented, floor = (mean(sums, total.shown) for sums in (total.augmented, total.entropy))
        record = np.where(total.record.isfinite(), total.record, np.nan)
        images, positive = float(total.images), {"limits": (0.0, np.inf), "unit": "nats"}
        clean = mean(total.clean, total.images.expand_as(total.clean))
        wrong = mean(total.wrong, total.images.expand_as(total.wrong))
        used = [count for count in total.shown.flatten().tolist() if count > 0]
        builds = [build_of(scene.anatomy(subject)) for subject in subjects]  # numbered by the first subject of each
        return xarray.Dataset(
            {
                "error": ("subject", wrong, {"limits": (0.0, 1.0), "trials": max(images, 1.0)}),
                "nll": ("subject", clean, positive),
                "nll_augmented": ("subject", augmented[:, 0], positive),
                "nll_train": ("subject", augmented[:, 1], positive),
                "nll_train_clean": ("subject", mean(total.train_clean, total.train_shown), positive),
                "floor": ("subject", floor[:, 0], positive),
                "floor_train": ("subject", floor[:, 1], positive),
                **{
                    f"recorded_{name}": ("subject", record[:, index], {"exact": True})
                    for index, name in enumerate(RECORDED)
                },
            },
            coords={
                "subject": subjects,
                "kind": ("subject", [kind_of(scene.anatomy(subject)) for subject in subjects]),
                "build": ("subject", [builds.index(build_of(scene.anatomy(subject))) for subject in subjects]),
            },
            attrs={"images": int(min([images, *used]))} | what_of_how_many(images, total.shown) | not_mixed(scene),
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        said = []
        for subject in finding.subject.values.tolist():
            row = finding.sel(subject=subject)
            wrong = f"{subject} errs on {in_words(row, 'error', '.1%')}"
            if not np.isfinite(row.nll_train):
                said.append(f"{wrong}, its training images are not known")
                continue
            written = float(row.recorded_augmented_train_nll)
            noted = f" (its training recorded {written:.2f})" if np.isfinite(written) else ""
            said.append(f"{wrong} with an augmented training NLL of {in_words(row, 'nll_train', '.2f')}{noted}")
        readings = {
            (one, two): reading(finding, one, two) for one, two in combinations(finding.subject.values.tolist(), 2)
        }
        said += [f"{one} against {two}: {words}" for (one, two), words in readings.items() if words]
        silent = sum(not words for words in readings.values())
        some = f"{silent} of" if silent < len(readings) else "any of the"
        which = "the pair" if len(readings) == 1 else f"{some} {len(readings)} pairs"
        remark = f"\nNothing is read from {which}, because not both numbers are clearly apart." if silent else ""
        return "; ".join(said) + f".{remark}"


def reading(finding: xarray.Dataset, one: str, two: str) -> str:
    """The reading rule for two subjects; nothing unless the intervals of both differences are clear of zero."""
    signs = {}
    for name in ("error_gap", "nll_train_gap"):
        rows = (finding["quantity"].values == name) & (finding.quantity_subjects.values == f"{one} | {two}")
        low, high = (float(finding[f"quantity_{end}"].values[rows][0]) for end in ("low", "high"))
        signs[name] = 1 if low > 0 else -1 if high < 0 else 0
    error, nll = signs["error_gap"], signs["nll_train_gap"]
    if not error or not nll:
        return ""
    better, worse = (one, two) if error < 0 else (two, one)
    if error == nll:
        return f"{better} has the stronger representation"
    return f"{better} is regularised, or {worse} over-fits"


def what_of_how_many(images: float, shown: Tensor) -> dict[str, str]:
    """What the page says beside the number of images, which is the smallest of several."""
    augmented, training = (int(count) for count in shown.amax(0).tolist())
    if not 0 < augmented < images:
        return {}
    of_training = f"; losses on training pictures are of {training:,} others" if training else ""
    return {"note": f"So many are augmented; the errors are of all {int(images):,}{of_training}"}


def not_mixed(scene: Scene) -> dict[str, str]:
    """What the page says beside the number of images where they are too few to be augmented."""
    if scene.images >= MIXED:
        return {}
    return {"note": f"No picture is augmented: they are mixed in groups of {MIXED}, and there are {scene.images}"}


def kind_of(anatomy: Anatomy) -> str:
    """The part a subject plays in C42."""
    windows = any(
        site.attention is not None and site.attention.kind == "windowed" for site in anatomy.pick("attention")
    )
    return "windows" if windows and anatomy.family == "staged transformer" else anatomy.family
