"""M14: how few labelled pictures does it take to read the classes off frozen features?

Two protocols on what the classifier of a subject reads (`features.py` says what is read where there is
none, or more than one):

- **linear evaluation** (Dosovitskiy et al., Fig. 4): N pictures of every class, ridge regression to ±1 targets with
  λ = 2¹⁰ on features standardised over those pictures and a constant feature of 100 as bias, as Google's code has it;
- **K-way N-shot episodes**: K classes drawn at random, N support pictures of each, 32 query pictures of each that are
  not among them; a query is named after the nearest mean of the supports.

Support and query come from one seeded order of the images for each draw, the same for all subjects. Without a fold its
images leave that order and later ones move up, so a leave-one-out interval is about both supports and queries: it held
the truth in 96–98.5 % of simulated exams, a little wide because the noise of the draws is in it as well.

    linear evaluation  argmin over W of Σ ‖W x − y‖² + λ ‖W‖²        y = ±1, λ = 2¹⁰
    episodes           class of x = argmin over k of ‖x − mean of the supports of k‖
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.kept_rows import RowsTally, kept, rows_at_most
from eyechart.measure import Measure, Source, Views
from eyechart.measures.few_shot.features import CLASSIFIER, FEATURES, width_of, words_for
from eyechart.measures.few_shot.quantities import (
    accuracy_of,
    correlation,
    correlation_z,
    lead,
    leads_together,
    pair_sentence,
    spread_of,
    spread_ratio,
    trend,
)
from eyechart.methods.ridge import solve
from eyechart.quantity import Quantity, of_each
from eyechart.reading_estimates import in_words, quantity_in_words
from eyechart.scene import Batch, Scene
from eyechart.site_choice import classifier_input
from eyechart.tracing.needs import Need

ROWS = 8192
"""Images that leave a row: 25 MB of a ViT-B."""
LARGEST_ROWS = 1 << 30
PENALTY = 2.0**10
BIAS = 100.0
QUERIES = 32
SHOTS = (1, 2, 5, 10, 25)
WAYS = (2, 5, 10, 20)
EPISODES = 60
LINEAR_QUERIES, LINEAR_DRAWS = 64, 32
AT_ONCE = 1 << 23  # numbers made at a time
GATHERING = 8
"""All images are scored, in one product for all draws, unless a draw asks for fewer than one in so many."""


@dataclass
class FewShotTally(RowsTally):
    """The features of all subjects side by side."""


@dataclass(frozen=True)
class Pool:
    """The images that may be drawn, in as many random orders as there are draws."""

    members: list[Tensor]
    """Of each class its images, as positions in the rows."""
    classes: Tensor
    """(draw, class): the classes in random order, of which an episode takes the first K."""
    orders: list[Tensor]
    """(draw, image) of each class: positions in the rows, in random order."""
    least: int
    """Images of the smallest class without its largest fold, so that no leave-one-out asks for more than there are."""

    @classmethod
    def of(cls, tally: FewShotTally, draws: int) -> Pool:
        """Random numbers belong to images, so leaving some out moves the later ones up and changes nothing else."""
        generator = torch.Generator().manual_seed(0)
        counts = tally.fold_weights[tally.fold] > 0
        members = [
            torch.nonzero((tally.label == label) & counts).flatten() for label in sorted(set(tally.label.tolist()))
        ]
        classes = torch.rand(draws, len(members), generator=generator).argsort(1)
        luck = torch.rand(draws, len(tally.label), generator=generator)
        by_fold = torch.zeros(int(tally.label.max()) + 1, len(tally.dealt), dtype=torch.int64)
        by_fold.index_put_((tally.label, tally.fold), torch.ones_like(tally.label), accumulate=True)
        left = (by_fold.sum(1) - by_fold.amax(1))[by_fold.sum(1) > 0]
        orders = [rows[luck[:, rows].argsort(1)] for rows in members]
        return cls(members, classes, orders, int(left.min()))

    def draw(self, shots: int, ways: int, most: int = QUERIES) -> tuple[Tensor, Tensor] | None:
        """Supports (draw, way, shot) and queries (draw, way, query); None where a class has too few images."""
        if self.least <= shots or len(self.members) < ways:
            return None
        queries = min(most, self.least - shots)
        first = torch.stack([order[:, : shots + queries] for order in self.orders], dim=1)
        chosen = self.classes[:, :ways, None].expand(-1, -1, shots + queries)
        drawn = first.gather(1, chosen)
        return drawn[..., :shots], drawn[..., shots:]


Rule = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From features (image, feature) and supports (draw, way, shot) to the weights (draw, feature, way) and biases (draw,
way) of what each draw would answer."""


def nearest_mean(features: Tensor, supports: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest mean m is the one with the largest x·m − ‖m‖² / 2."""
    centres = features[supports].mean(2)
    return centres.transpose(1, 2), -centres.square().sum(-1) / 2


def linear_evaluation(features: Tensor, supports: Tensor) -> tuple[Tensor, Tensor]:
    """Ridge on standardised features and a constant; the weights are for features as they are."""
    support = features[supports].flatten(1, 2).double()
    mean, ends = support.mean(1, keepdim=True), torch.stack(torch.aminmax(support, dim=1, keepdim=True))
    support -= mean  # in place, as below: these are the largest numbers of a finding, and Tensor.std is slow
    scale = support.square().mean(1, keepdim=True).sqrt()
    scale = torch.where(scale > 1e-6 * ends.abs().amax(0), scale, torch.inf)
    with_bias = torch.nn.functional.pad(support.div_(scale), (0, 1), value=BIAS)
    targets = 2 * torch.nn.functional.one_hot(own_class(supports), supports.shape[1]).double() - 1
    solved = solve(with_bias, targets.expand(len(support), -1, -1), PENALTY)
    weights = solved[:, :-1] / scale.transpose(1, 2)
    return weights.to(features), (BIAS * solved[:, -1:] - mean @ weights).squeeze(1).to(features)


def own_class(drawn: Tensor) -> Tensor:
    """Which of the ways each of (draw, way, image) belongs to, with ways and images flattened."""
    return torch.arange(drawn.shape[1]).repeat_interleave(drawn.shape[2])


def share_right(rule: Rule, features: Tensor, supports: Tensor, queries: Tensor) -> float:
    """Over all draws, of which only so many are answered at a time."""
    draws, ways, shots = supports.shape
    asked, right = queries.flatten(1), 0
    everyone = GATHERING * asked.shape[1] >= len(features)
    images = len(features) if everyone else features.shape[1] * asked.shape[1] // ways
    step = max(1, AT_ONCE // (ways * max(images, shots * features.shape[1])))
    for start in range(0, draws, step):
        weights, bias = rule(features, supports[start : start + step])
        some = asked[start : start + step]
        if everyone:
            scores = features @ weights.transpose(0, 1).flatten(1)  # one product for all draws
            named = (scores.reshape(len(features), -1, ways) + bias).argmax(-1).T.gather(1, some)
        else:
            named = (features[some] @ weights + bias[:, None]).argmax(-1)
        right += int((named == own_class(queries)).sum())
    return right / queries.numel()


def tightness(features: Tensor, members: Sequence[Tensor]) -> tuple[float, float]:
    """Root mean squared distance of two images of one class, and of two classes; each class counts alike."""
    means = torch.stack([features[rows].mean(0) for rows in members])
    squares = torch.stack([features[rows].square().sum(1).mean() for rows in members])
    counts = torch.tensor([len(rows) for rows in members], dtype=torch.float64)
    within = 2 * (squares - means.square().sum(1)) * counts / (counts - 1)
    between = squares[:, None] + squares[None] - 2 * means @ means.T
    apart = ~torch.eye(len(members), dtype=torch.bool)
    return float(within.mean().clamp_min(0).sqrt()), float(between[apart].mean().clamp_min(0).sqrt())


def five_shot(estimate: xarray.Dataset, subject: str) -> float | None:
    """Where classes have enough images for it."""
    return float(estimate["linear"].sel(shot=5, subject=subject)) if 5 in estimate.shot.values else None


@dataclass(frozen=True)
class FewShot(Measure):
    name = "few_shot"
    title = "How few examples does it take?"
    title_ko = "예시가 얼마나 적어도 되는가?"
    order = 55
    adds_up_anywhere = True
    chapter = "tell"
    labels = "images"
    sources = (
        Source("Dosovitskiy et al. 2020", "Figure 4, Table 8"),
        Source("Snell et al. 2017", "episodes of K ways and N shots, nearest class mean"),
    )
    how_to_read = (
        "First, a linear readout of the frozen features is fitted on N pictures of every class and asked about others. "
        "Next, episodes: only K classes are drawn, N pictures of each are shown, and a new picture is named after the "
        "class whose mean is nearest. More examples should help, more classes should hurt. Dashed: guessing, "
        "among as many classes as the curve of that colour. Tight classes (a small distance within a class against "
        "that between two) make it easy, and so does having been trained on these very classes: for a test of "
        "transfer, give pictures of others."
    )
    how_to_read_ko = (
        "처음은 고정된 특징에 클래스마다 N장으로 선형 분류기를 맞춘 뒤 다른 그림을 물은 정확도이다. 다음은 에피소드로, "
        "K개 클래스만 뽑아 N장씩 보여 주고 새 그림을 평균이 가장 가까운 클래스로 부른다. 예시가 많으면 오르고 클래스가 "
        "많으면 내려가야 한다. 파선은 같은 색 곡선의 클래스 수에서 찍을 때이다. 클래스가 조밀하면(클래스 안의 거리가 "
        "클래스 사이의 거리보다 작으면) 쉽고, 바로 이 클래스들로 학습한 모델에게도 쉽다. 전이를 보려면 다른 클래스의 "
        "그림을 주어야 한다."
    )
    method = (
        "Features are what the classifier reads, after the last normalisation and pooling; of a subject without a "
        "classifier, the vector that comes out; where that is not one vector (two classifiers, tokens), class tokens "
        "or mean over positions of the last block, of a ViT normalised over channels: where it is so, the sentence "
        "above says it. Linear evaluation: ridge to ±1 targets, features standardised over the "
        "support, bias feature 100, penalty 1,024. Episodes: nearest mean of the support, features standardised over "
        "all images without labels; 32 queries a class, never among the support. 60 seeded draws, the same for all "
        "subjects. Intervals leave out images both as support and as query. How tight classes are is compared "
        "between trained subjects: of two, lead in episode accuracy (mean over the grid) times lead in spread; of "
        "four or more, the correlation of the two, in standard errors over subjects (three decide nothing)."
    )
    quantities = (
        Quantity(
            "linear_five_shot",
            of_each(five_shot),
            "accuracy of linear evaluation with 5 images a class",
            limits=(0, 1),
            share=True,
        ),
        Quantity("shots_trend", trend("shot"), "episode accuracy for each doubling of the shots"),
        Quantity("ways_trend", trend("way"), "episode accuracy for each doubling of the ways"),
        Quantity(
            "class_spread", spread_ratio, "distance within a class / distance between classes", limits=(0.0, None)
        ),
        Quantity(
            "few_shot_lead",
            lead(accuracy_of),
            "episode accuracy, first subject minus second",
            limits=(-1, 1),
            paired=True,
        ),
        Quantity("class_spread_lead", lead(spread_of), "class spread, first subject minus second"),
        Quantity("tightness_of_the_better", leads_together, "lead in episode accuracy times lead in class spread"),
        Quantity(
            "tightness_correlation",
            correlation,
            "correlation of episode accuracy and class spread over the subjects",
            limits=(-1, 1),
        ),
        Quantity("tightness_z", correlation_z, "the same in standard errors over the subjects, of four or more"),
    )

    def needs(self) -> Sequence[Need]:
        return [Need(FEATURES, classifier_input)]

    def tally(self, scene: Scene) -> FewShotTally:
        if not scene.sites(classifier_input):
            raise DoesNotApply("no subject has blocks whose output is a grid of positions.")
        width = sum(width for _, _, width in columns(scene))
        size = 4 * width * rows_at_most(scene, ROWS)
        if size > LARGEST_ROWS:
            raise DoesNotApply(
                f"the features it keeps would take {size / 2**30:.1f} GiB, more than {LARGEST_ROWS / 2**30:.0f}; "
                "examine fewer subjects at a time."
            )
        return FewShotTally.empty(fold=scene.folds, dealt_fold=scene.folds, feature=width)

    def update(self, tally: FewShotTally, batch: Batch, views: Views, scene: Scene) -> None:
        assert batch.labels is not None  # the images have classes
        features = torch.cat([views(subject, site, FEATURES) for subject, site in scene.sites(classifier_input)], dim=1)
        tally.keep(batch, features, (batch.labels >= 0) & kept(batch, scene, ROWS))

    def estimate(self, total: FewShotTally, scene: Scene) -> xarray.Dataset:
        subjects = [subject for subject, _ in scene.sites(classifier_input)]
        pool = Pool.of(total, EPISODES)
        classes = len(pool.members)
        ways = [way for way in WAYS if way < classes] + [classes]
        linear = np.full((len(subjects), len(SHOTS)), np.nan)
        episodes = np.full((len(subjects), len(ways), len(SHOTS)), np.nan)
        distances = np.full((len(subjects), 2), np.nan)
        drawn_from = torch.cat(pool.members)
        for row, (_, start, width) in enumerate(columns(scene)):
            features = total.features[:, start : start + width]
            scale = features[drawn_from].std(0, correction=0)
            scale = torch.where(scale > 1e-6 * features[drawn_from].abs().amax(0), scale, torch.inf)
            standard = (features - features[drawn_from].mean(0)) / scale
            distances[row] = tightness(standard.double(), pool.members)
            for column, shots in enumerate(SHOTS):
                for index, way in enumerate(ways):
                    drawn = pool.draw(shots, way)
                    if drawn is not None:
                        episodes[row, index, column] = share_right(nearest_mean, standard, *drawn)
                everyone = pool.draw(shots, classes, LINEAR_QUERIES)
                if everyone is not None:
                    some = [part[: max(3, min(LINEAR_DRAWS, 320 // classes))] for part in everyone]
                    linear[row, column] = share_right(linear_evaluation, features, *some)
        limits, far = {"limits": (0.0, 1.0), "trials": len(drawn_from)}, {"limits": (0.0, np.inf)}
        return xarray.Dataset(
            {
                "linear": (("subject", "shot"), linear, limits),
                "episodes": (("subject", "way", "shot"), episodes, limits),
                "within": ("subject", distances[:, 0], far),
                "between": ("subject", distances[:, 1], far),
            },
            coords={
                "subject": subjects,
                "shot": list(SHOTS),
                "way": ways,
                "read": (
                    "subject",
                    [words_for(scene.anatomy(subject), site) for subject, site in scene.sites(classifier_input)],
                ),
            },
            attrs={"images": len(total.image)},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in finding.subject.values.tolist():
            row = finding.sel(subject=subject)
            measured = row.linear.dropna("shot")
            shown = dict.fromkeys([*measured.shot.values[:1].tolist(), *measured.shot.values[-1:].tolist()])
            said = [
                f"{in_words(row.sel(shot=shot), 'linear', '.1%')} of the pictures right with {shot} of each class "
                "to learn from"
                for shot in shown
            ]
            parts.append(f"{subject} names {' and '.join(said) or 'nothing: too few images of a class'}")
            spread = spread_of(finding)[subject]
            if math.isfinite(spread):
                times = quantity_in_words(finding, "class_spread", ".2f", subject)
                parts.append(
                    f"two of its pictures of one class are {times} times as far apart as two of different classes"
                )
        read = [
            f"The features of {subject} are {what}"
            for subject, what in zip(finding.subject.values.tolist(), finding.read.values.tolist(), strict=True)
            if what != CLASSIFIER
        ]
        remarks = ". ".join([*pair_sentence(finding), *read])
        return "; ".join(parts) + (f".\n{remarks}." if remarks else ".")


def columns(scene: Scene) -> Iterator[tuple[str, int, int]]:
    """For each subject where its features begin in a row, and how many they are."""
    start = 0
    for subject, site in scene.sites(classifier_input):
        width = width_of(scene.anatomy(subject), site)
        yield subject, start, width
        start += width
