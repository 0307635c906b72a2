"""M22, second part: does it recognise pictures with patches missing or shuffled, and under attack?

Patches are the cells of an 8×8 grid (shuffling: 2×2, 4×4, 8×8), the same for every subject, whatever its tokens.
Attacks move every value of a picture (0 … 1) by at most ε; see `attacks.py`. Accuracy is reported as it is and
relative to the subject's accuracy on the intact pictures.

    relative accuracy = accuracy on changed pictures / on intact ones        attack: max |x' − x| ≤ ε
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.exact_bounds import room_for
from eyechart.measure import SampledExperiment, Source, Views, option, subject_coordinates
from eyechart.measures.robustness.attacks import Gradient, Strength, fgsm, gradient_of, withstands
from eyechart.methods.patches import dropped, orders, shuffled
from eyechart.methods.scoring import about_strangers, answers_of, labelled, strangers
from eyechart.quantity import PerSubjects, Quantity, known_to
from eyechart.reading_estimates import in_words, per_subject, vit_minus_cnn
from eyechart.scene import Batch, Scene
from eyechart.sites import Anatomy
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench, plain_arithmetic

GRID = 8
SHARES = tuple(eighths / 8 for eighths in range(1, 8))
SHUFFLES = (2, 4, 8)
EPSILONS = tuple(parts / 255 for parts in (1, 2, 4, 8))
STEPS = {"quick": 0, "normal": 10, "full": 40}
MEANS = {
    "occlusion": "shares of patches missing",
    "shuffle": "grids of shuffled patches",
    "fgsm": "strengths of FGSM",
    "pgd": "strengths of PGD",
}
KINDS = ("intact", *MEANS)


@dataclass
class RobustnessTally(Tally):
    right: Annotated[Tensor, Sum("fold", "subject", "condition")]
    seen: Annotated[Tensor, Sum("fold", "subject")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def gradient_on(bench: Bench) -> Gradient:
    """Gradients by pixels through the subject, in pieces that fit the memory."""

    def logits(pixels: Tensor) -> Tensor:
        output = bench.subject.logits(bench.subject.call(bench.from_pixels(pixels)))
        assert output is not None  # it has a head
        return output

    find = gradient_of(logits)

    def in_pieces(pixels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        def work(size: int) -> tuple[Tensor, Tensor]:
            # Plain arithmetic: the backward pass of fused attention adds up in another order each time on a GPU, which
            # turns signs of gradients near 0.
            with plain_arithmetic():
                pieces = zip(torch.split(pixels, size), torch.split(targets, size), strict=True)
                scores, gradients = zip(*(find(*piece) for piece in pieces), strict=True)
            return torch.cat(scores), torch.cat(gradients)

        return bench.piece_size.fit(len(pixels), work)

    return in_pieces


def advantage(estimate: xarray.Dataset, kind: str, relative: bool = False) -> PerSubjects:
    """A ViT's mean over all strengths of a kind minus a CNN's; NaN where that kind was not run."""
    values = estimate["kept" if relative else "mean"]
    of_kind = estimate.assign(number=values.sel(kind=kind) if kind in estimate.kind.values else values[:, 0] * np.nan)
    return vit_minus_cnn(of_kind, "number", alike="pictures")


def mean_of(estimate: xarray.Dataset, kind: str, variable: str = "mean") -> PerSubjects:
    if kind not in estimate.kind.values:
        return {}
    return per_subject(estimate.assign(number=estimate[variable].sel(kind=kind)), "number")


def room_of_kept(estimate: xarray.Dataset, subject: str) -> float:
    """Of 64 pictures that are read right intact and changed alike, the next may still be lost."""
    intact = float(estimate.accuracy.sel(subject=subject).values[estimate.met.values == "intact"][0])
    return float(room_for(intact * estimate.attrs["images"]))


@dataclass(frozen=True)
class Robustness(SampledExperiment):
    name = "robustness"
    title = "What can be hidden, shuffled or attacked?"
    title_ko = "가리거나 뒤섞거나 공격하면 얼마나 버티는가?"
    order = 87
    chapter = "break"
    sources = (
        Source("Park & Kim 2022", "robustness tests of the code"),
        Source("Naseer et al. 2021", "Figures 2 and 5"),
        Source("Madry et al. 2018", "PGD"),
    )
    how_to_read = (
        "How often a subject still names the picture right: with a share of its patches replaced by its mean colour, "
        "with its patches in random order (finer to the right), and when every pixel value is changed a little to "
        "mislead it, in one step (FGSM) or in many (PGD). Shades are 95 % intervals; the dashed line is what "
        "guessing among the classes of the images would score. Below, the same as a share of the accuracy on "
        "intact pictures."
    )
    how_to_read_ko = (
        "그림의 조각 일부를 평균색으로 가릴 때, 조각의 순서를 뒤섞을 때(오른쪽일수록 잘게), 모든 값을 조금씩 불리하게 "
        "바꿀 때(한 걸음 FGSM, 여러 걸음 PGD) 대상이 여전히 맞게 답하는 비율. 음영은 95 % 구간, 파선은 이미지의 "
        "클래스 가운데서 찍을 때이다. 아래는 온전한 그림에서의 정확도에 대한 비율이다."
    )
    method = (
        "Random cells of an 8×8 grid, one to seven eighths of them, replaced by the picture's own mean colour; cells "
        "of 2×2, 4×4 and 8×8 grids permuted; the same draws for every subject. Attacks on pixel values of 0 … 1: FGSM "
        "and PGD, from a random start with steps of 2.5 ε / steps. A picture counts as misread within a ball if any "
        "attack within it succeeds. Option setting=paper: FGSM ε 0.007; PGD ε 0.3, steps of 2/255, 40 of them."
    )
    quantities = (
        *(
            Quantity(
                f"{kind}_accuracy",
                partial(mean_of, kind=kind),
                f"accuracy, mean over {words}",
                limits=(0, 1),
                share=True,
            )
            for kind, words in MEANS.items()
        ),
        *(
            Quantity(
                f"{kind}_kept",
                partial(mean_of, kind=kind, variable="kept"),
                f"accuracy as a share of that on intact pictures, mean over {words}",
                limits=(0, None),
                if_unmoved=known_to(room_of_kept, partial(mean_of, kind=kind, variable="kept")),
            )
            for kind, words in MEANS.items()
        ),
        Quantity(
            "occlusion_advantage",
            partial(advantage, kind="occlusion"),
            "accuracy with patches missing, ViT minus CNN",
            paired=True,
            limits=(-1, 1),
        ),
        Quantity(
            "relative_occlusion_advantage",
            partial(advantage, kind="occlusion", relative=True),
            "share of its accuracy that is kept with patches missing, ViT minus CNN",
            paired=True,  # of the accuracy: the bound is too narrow by what the intact subject gets wrong
        ),
        Quantity(
            "attack_advantage",
            partial(advantage, kind="pgd"),
            "accuracy under PGD, ViT minus CNN",
            paired=True,
            limits=(-1, 1),
        ),
        Quantity(
            "relative_attack_advantage",
            partial(advantage, kind="pgd", relative=True),
            "share of its accuracy that is kept under PGD, ViT minus CNN",
            paired=True,  # of the accuracy: the bound is too narrow by what the intact subject gets wrong
        ),
    )
    labels = "subjects"
    budget: ClassVar[Mapping[str, float]] = {"quick": 12.0, "normal": 60.0, "full": 600.0}
    setting: Literal["curve", "paper"] = option("curve", "strengths of the attacks: a curve, or the paper's")
    steps: int = option(-1, "of PGD; −1: by effort (quick 0, normal 10, full 40). Without steps there is no PGD")

    def sized(self, effort: str, scene: Scene, *, asked_for: bool = False, decides: bool = True) -> Self:
        steps = max(STEPS[effort], STEPS["normal"] if asked_for else 0)
        chosen = replace(self, steps=steps) if self.steps < 0 else self
        return SampledExperiment.sized(chosen, effort, scene, asked_for=asked_for, decides=decides)

    def passes(self, anatomy: Anatomy) -> float:
        """A gradient counts as three. PGD goes on with what it has not yet fooled: of all ε together it took the zoo's
        ViT and ResNet 1.2 to 1.5 times the steps of one.
        """
        forward = 1 + len(SHARES) + len(SHUFFLES) + len(self.weak)
        return forward + 3.0 * (1 + 1.5 * (self.strong[0].steps + 1 if self.strong else 0))

    @property
    def weak(self) -> tuple[float, ...]:
        """The ε of FGSM."""
        return EPSILONS if self.setting == "curve" else (0.007,)

    @property
    def strong(self) -> tuple[Strength, ...]:
        """The strengths of PGD."""
        if self.steps <= 0:
            return ()
        if self.setting == "paper":
            return (Strength(0.3, 2 / 255, 40),)
        return tuple(Strength(epsilon, 2.5 * epsilon / self.steps, self.steps) for epsilon in EPSILONS)

    @property
    def conditions(self) -> list[tuple[str, float]]:
        """Kind and strength of everything a picture meets, the intact one first."""
        met: dict[str, Sequence[float]] = {
            "intact": [0.0],
            "occlusion": SHARES,
            "shuffle": SHUFFLES,
            "fgsm": self.weak,
            "pgd": [strength.epsilon for strength in self.strong],
        }
        return [(kind, float(strength)) for kind, strengths in met.items() for strength in strengths]

    def tally(self, scene: Scene) -> RobustnessTally:
        return RobustnessTally.empty(
            fold=scene.folds, subject=len(scene.scored_subjects), condition=len(self.conditions)
        )

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        bench = labelled(bench.first(self.images))
        if not len(bench) or bench.targets is None or bench.subject.colours is None:
            return {}
        pixels, targets = bench.pixels().float(), bench.targets

        def right(images: Tensor) -> Tensor:
            return answers_of(bench.logits(images)) == targets.cpu()

        order = orders(len(bench), GRID, bench.generator("patches dropped"))
        answers = [right(bench.images)]
        answers += [right(bench.from_pixels(dropped(pixels, order, share))) for share in SHARES]
        for side in SHUFFLES:
            order_of_cells = orders(len(bench), side, bench.generator(f"{side} patches shuffled"))
            answers.append(right(bench.from_pixels(shuffled(pixels, order_of_cells))))
        find = gradient_on(bench)
        _, gradient = find(pixels, targets)
        answers += [right(bench.from_pixels(fgsm(pixels, gradient, epsilon))) for epsilon in self.weak]
        result = torch.stack(answers, dim=1)
        if self.strong:
            standing = [self.stands(result, strength.epsilon) for strength in self.strong]
            still_right = torch.stack(standing, dim=1).to(pixels.device)
            stood = withstands(find, pixels, targets, self.strong, still_right, bench.generator("PGD"))
            result = torch.cat([result, stood.cpu()], dim=1)
        return {"right": result, "folds": bench.folds()}

    def stands(self, right: Tensor, epsilon: float) -> Tensor:
        """Which pictures are read right intact and under every FGSM within the ball of ε."""
        within = [
            index
            for index, (kind, strength) in enumerate(self.conditions)
            if kind == "intact" or (kind == "fgsm" and strength <= epsilon)
        ]
        return right[:, within].all(1)

    def update(self, tally: RobustnessTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = None
        for column, results in views.experiments(scene.scored_subjects):
            folds = results["folds"]
            tally.add("right", folds, results["right"].double(), column)
            tally.add("seen", folds, None, column)
        if folds is not None:
            tally.add("images", folds)

    def estimate(self, total: RobustnessTally, scene: Scene) -> xarray.Dataset:
        subjects, seen = scene.scored_subjects, total.seen.numpy()
        met = np.array([kind for kind, _ in self.conditions])
        kinds = [kind for kind in KINDS if kind in met]
        with np.errstate(invalid="ignore", divide="ignore"):
            accuracy = total.right.numpy() / seen[:, None]
            mean = np.stack([accuracy[:, met == kind].mean(1) for kind in kinds], axis=1)
            intact = np.where(accuracy[:, :1] > 0, accuracy[:, :1], np.nan)
            share, kept = accuracy / intact, mean / intact
        unit: dict[str, Any] = {"limits": (0.0, 1.0)}
        trials = np.broadcast_to(seen[:, None], accuracy.shape)
        # Of 64 pictures that are read alike intact and with a little missing, one in twenty may still be lost.
        known = np.where(met == "intact", np.inf, np.broadcast_to(total.right.numpy()[:, :1], accuracy.shape))
        return xarray.Dataset(
            {
                "accuracy": (("subject", "condition"), accuracy, {**unit, "trials": trials}),
                "relative": (("subject", "condition"), share, {"limits": (0.0, np.inf), "pairs": known}),
                "mean": (("subject", "kind"), mean, {**unit, "trials": trials[:, :1]}),
                "kept": (("subject", "kind"), kept, {"limits": (0.0, np.inf)}),
            },
            coords={
                **subject_coordinates(scene, subjects),
                "pictures": ("subject", ["{}×{}".format(*scene.anatomy(subject).input_size) for subject in subjects]),
                "stranger": strangers(scene),
                "kind": kinds,
                "met": ("condition", met),
                "strength": ("condition", [strength for _, strength in self.conditions]),
            },
            attrs={
                "images": int(total.images),
                "steps": self.strong[0].steps if self.strong else 0,
                "classes": len(scene.classes or ()),
            },
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        attack = "pgd" if "pgd" in finding.kind.values else "fgsm"
        for subject in finding.subject.values.tolist():
            row = finding.sel(subject=subject)
            if np.isnan(row["mean"].values).any():
                parts.append(f"{subject} is left out: its own transform does more with colours than shift and scale")
                continue
            half = row.isel(condition=(row.met.values == "occlusion") & (row.strength.values == 0.5)).squeeze()
            first = row.isel(condition=np.flatnonzero(row.met.values == attack)[0])
            intact = row.isel(condition=0)
            right, hidden, attacked = (in_words(each, "accuracy", ".0%") for each in (intact, half, first))
            parts.append(
                f"{subject} names {right} right, {hidden} with half of the patches missing and "
                f"{attacked} under {attack.upper()} of ε = {255 * float(first.strength):.3g}/255"
            )
        more = "" if attack == "pgd" else "\nPGD is added by --effort normal."
        return "; ".join(parts) + f".{more}{about_strangers(finding)}"
