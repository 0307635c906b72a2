"""Linear probes against a textbook ridge in numpy, and on features whose answer is known (SPEC Appendix A, M8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray
from torch import nn

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.errors import DoesNotApply
from eyechart.intervals import (
    DRAWS,
    SMALL_DRAWS,
    bootstrap,
    bootstrap_weights,
    jackknife,
    leave_one_out_weights,
    small_size,
)
from eyechart.kept_rows import kept
from eyechart.measures.probes.measure import PARTS, Probes, ProbeTally
from eyechart.measures.probes.quantities import (
    class_token_vits,
    depth_of_half,
    divergence,
    early_lead,
    first_token_rise,
    gap_vits,
    half_lead_depth,
    last_block_gap,
    middle_gap,
    middle_over_last_gap,
    of_cnns_with_vits,
    of_twins,
    shortfall_gap,
    token_gap,
)
from eyechart.methods.ridge import PENALTIES
from eyechart.quantity import of_each, of_pairs
from eyechart.reading_estimates import in_words, late_over_rest
from eyechart.scene import Scene
from eyechart.site_choice import blocks_with_grid
from eyechart.sites import Anatomy, Site
from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.needs import View
from eyechart.tracing.readouts import READOUTS, Group, cells, flattening, groups_of, spread_out
from eyechart.tracing.taps import Tap
from eyechart.tracing.views import Look
from tests import cases
from tests.measures.staging import anatomy, batches, measure_tensors, scene, site, tally_of

pytestmark = pytest.mark.all_draws

CLASSES = 3


def labelled(*anatomies: Anatomy, images: int, block: int = 8) -> Scene:
    made = scene(*anatomies, images=images, block=block)
    return replace(made, classes=tuple("abc"))


def blocks(count: int, channels: int = 6, prefix: int = 1) -> list[Site]:
    return [
        replace(site(f"blocks.{at}", prefix=prefix, block=at, depth=(at + 1) / count), channels=channels)
        for at in range(count)
    ]


def tokens_of(labels: np.ndarray, channels: int = 6, signal: float = 1.0, seed: int = 0) -> torch.Tensor:
    """A class token and 2 × 2 patches; the class shows in the second patch more than in the others."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, channels, generator=torch.Generator().manual_seed(7))
    tokens = torch.randn(len(labels), 5, channels, generator=generator)
    strength = signal * torch.tensor([0.6, 0.1, 1.0, 0.2, 0.3])
    return tokens + strength[None, :, None] * centres[torch.as_tensor(labels)][:, None]


def reference(x: np.ndarray, labels: np.ndarray, asked: np.ndarray | None = None) -> np.ndarray:
    """Right or wrong for every held-out image: quarters by position, penalties by squared error, all by hand."""
    x, part = x.astype(np.float64), np.arange(len(x)) % 16 % PARTS
    y = 2.0 * np.eye(CLASSES)[labels] - 1
    right = np.zeros(len(x), dtype=bool)

    def scores(fit_on: np.ndarray, penalty: float, test: np.ndarray) -> np.ndarray:
        mean, scale, middle = x[fit_on].mean(0), x[fit_on].std(0), y[fit_on].mean(0)
        z = (x[fit_on] - mean) / scale
        matrix = z.T @ z / len(z) + penalty * np.eye(z.shape[1])
        weights = np.linalg.solve(matrix, z.T @ (y[fit_on] - middle) / len(z))
        return np.asarray((x[test] - mean) / scale @ weights + middle)

    for own in range(PARTS):
        one, two, three = ((part == (own + step) % PARTS) for step in (1, 2, 3))
        errors = [((y[three] - scores(one | two, penalty, three)) ** 2).sum() for penalty in PENALTIES.tolist()]
        best = PENALTIES.tolist()[int(np.argmin(errors))]
        right[part == own] = scores(part != own, best, part == own).argmax(1) == labels[part == own]
    return right if asked is None else right[asked]


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, CLASSES, 200)


def test_accuracies_equal_a_reference_ridge(labels: np.ndarray) -> None:
    places = blocks(2)
    where = labelled(anatomy("v", places, cls=0), images=200)
    seen = {place.name: tokens_of(labels, signal=1 + at) for at, place in enumerate(places)}
    looks = {("v", place.name): Look(place, output=seen[place.name]) for place in places}
    finding = measure_tensors(Probes(), where, looks, 8, labels)
    for row, tokens in enumerate(seen.values()):
        x = tokens.numpy()
        vectors = {"cls": x[:, 0], "gap": x[:, 1:].mean(1), "gap with cls": x.mean(1), "first": x[:, 1]}
        for readout, vector in vectors.items():
            expected = reference(vector, labels).mean()
            assert float(finding.accuracy.sel(readout=readout)[row]) == pytest.approx(expected, abs=1e-12), readout
        each = np.array([reference(x[:, 1 + token], labels).mean() for token in range(4)])
        np.testing.assert_allclose(finding.token_accuracy.values[row].ravel(), each)
        assert float(finding.accuracy.sel(readout="tokens")[row]) == pytest.approx(each.mean())
        assert each[1] == each.max()  # where the class was put
    assert float(finding.accuracy_low[0, 0]) < float(finding.accuracy[0, 0]) < float(finding.accuracy_high[0, 0])
    assert finding.attrs["images"] == 200


def test_what_all_images_agree_on_is_still_not_certain(labels: np.ndarray) -> None:
    """Folds that all say 1, or 0 for a difference, have no spread; other 200 images might differ by the exact bound."""
    places = blocks(3)
    where = labelled(anatomy("v", places, cls=0), images=200)
    looks = {("v", place.name): Look(place, output=tokens_of(labels, signal=100)) for place in places}
    finding = measure_tensors(Probes(), where, looks, 8, labels)
    least = 0.025 ** (1 / 200)
    assert float(finding.accuracy.sel(readout="cls")[2]) == 1
    assert float(finding.accuracy_low.sel(readout="cls")[2]) == pytest.approx(least)
    assert float(finding.token_accuracy_low[2, 0, 1]) == pytest.approx(least)
    row = finding.isel(quantity_row=finding["quantity"].values.tolist().index("cls_over_mean_last"))
    ends = [float(row[f"quantity_{end}"]) for end in ("low", "value", "high")]
    assert ends == pytest.approx([least - 1, 0, 1 - least])


def test_images_without_a_row_are_in_the_fit(labels: np.ndarray) -> None:
    """Only 64 of 200 images leave a row; the answers about them are those of probes fitted on all."""
    (place,) = blocks(1)
    where = labelled(anatomy("v", [place], cls=0), images=200)
    tokens = tokens_of(labels)
    looks = {("v", place.name): Look(place, output=tokens)}
    tally = tally_of(Probes(rows=64), where, looks, 8, labels)
    assert isinstance(tally, ProbeTally)
    finding = measure_tensors(Probes(rows=64), where, looks, 8, labels)
    rows = np.concatenate([kept(batch, where, 64) for batch in batches(200, 8)])
    assert 48 <= rows.sum() == finding.attrs["images"] <= 64
    assert tally.counts.sum(0).tolist() == np.bincount(labels[~rows]).tolist()
    expected = reference(tokens[:, 0].numpy(), labels, rows).mean()
    assert float(finding.accuracy.sel(readout="cls")[0]) == pytest.approx(expected, abs=1e-12)


def test_permuted_labels_are_at_chance(labels: np.ndarray) -> None:
    (place,) = blocks(1)
    where = labelled(anatomy("v", [place], cls=0), images=200)
    look = Look(place, output=tokens_of(labels, signal=20))
    clear = measure_tensors(Probes(), where, {("v", place.name): look}, 8, labels)
    assert float(clear.accuracy.min()) > 0.9
    shuffled = np.random.default_rng(1).permutation(labels)
    finding = measure_tensors(Probes(), where, {("v", place.name): look}, 8, shuffled)
    np.testing.assert_allclose(finding.accuracy.values, 1 / CLASSES, atol=0.1)
    assert float(finding.chance[0]) == np.bincount(labels).max() / 200


def test_unknown_labels_are_left_out(labels: np.ndarray) -> None:
    (place,) = blocks(1)
    where = labelled(anatomy("v", [place], cls=0), images=200)
    labels[:40] = -1
    looks = {("v", place.name): Look(place, output=tokens_of(labels.clip(0)))}
    assert measure_tensors(Probes(), where, looks, 8, labels).attrs["images"] == 160


@pytest.mark.parametrize(("images", "most"), [(1000, 1024), (1030, 1024), (8000, 1024), (5000, 160), (37, 16)])
def test_kept_rows_are_bounded_and_in_all_folds(images: int, most: int) -> None:
    where = labelled(images=images, block=64)
    folds = np.concatenate([batch.image_folds[kept(batch, where, most)] for batch in batches(images, 64)])
    assert len(folds) <= most
    assert len(folds) >= min(images, most) - 16
    counts = np.bincount(folds, minlength=16)
    assert counts.max() - counts.min() <= 1


def test_a_map_is_brought_to_the_last_grid() -> None:
    """4 × 4 cells of 2 channels, read on 2 × 2: neighbours would be averaged, or flattened where channels are few."""
    early = replace(site("early", axes="NCYX", grid=(4, 4)), channels=2)
    last = replace(site("last", axes="NCYX", grid=(2, 2)), channels=8)
    look = Look(early, output=torch.arange(32.0).reshape(1, 2, 4, 4))
    look.anatomy = anatomy("c", [early, last], "cnn")
    assert flattening(early, last) == 2
    assert sorted(cells(look)[0, 0, 1].tolist()) == [2, 3, 6, 7, 18, 19, 22, 23]
    groups = groups_of(labelled(look.anatomy, images=64), Probes().widths)
    assert [(group.readout, group.probes, group.width) for group in groups] == 2 * [
        ("tokens", 4, 8),
        ("gap", 1, 8),
        ("first", 1, 8),
    ]
    look.anatomy = anatomy("c", [early, replace(last, channels=2)], "cnn")
    assert cells(look)[0, 0, 1].tolist() == [4.5, 20.5]
    look.anatomy = anatomy("c", [early, replace(last, layout=replace(last.layout, grid=(3, 3)))], "cnn")
    assert cells(look).shape == (1, 3, 3, 2)


@pytest.mark.parametrize(("size", "expected"), [(8, [0, 2, 4, 6]), (14, [0, 4, 8, 12]), (16, [1, 5, 9, 13]), (1, [0])])
def test_positions_are_spread_out(size: int, expected: list[int]) -> None:
    assert spread_out(size, 4).tolist() == expected


@pytest.mark.parametrize("build", [cases.vit, cases.resnet, cases.swin, cases.hybrid])
def test_rows_are_as_long_as_declared_in_real_subjects(build: Callable[[], nn.Module]) -> None:
    module, images = build(), cases.images(3)
    body = anatomy_of("s", module, images[:2])
    measure = Probes(width=4096, token_width=10)
    _, seen = Tap(module, body, {place.name: [measure.view] for place in blocks_with_grid(body)}).run(images)
    where = labelled(body, images=64)
    groups = groups_of(where, measure.widths)
    for row, place in enumerate(blocks_with_grid(body)):
        declared = sum(group.stop - group.start for group in groups if group.site == row)
        assert seen[place.name][measure.view.name].shape == (3, declared)
    assert {group.width for group in groups if group.readout == "tokens"} <= {6, 8, 10}
    assert ("cls" in {group.readout for group in groups}) == (body.cls is not None)


def test_the_projection_is_fixed_and_only_for_wide_features() -> None:
    places = [replace(each, channels=300) for each in blocks(1)]
    body = anatomy("v", places, cls=0)
    look = Look(places[0], output=torch.randn(4, 5, 300))
    look.anatomy = body
    wide, narrow = (Probes(width=width).view.take(look) for width in (300, 50))
    vectors = wide[:, 4 * 128 :].reshape(4, 4, 300).unbind(1)
    tokens = look.output
    for vector, expected in zip(
        vectors, (tokens[:, 0], tokens[:, 1:].mean(1), tokens.mean(1), tokens[:, 1]), strict=True
    ):
        torch.testing.assert_close(vector, expected)
    numbers = np.random.RandomState(0).standard_normal((300, 50)) / 50**0.5
    by_hand = tokens[:, 0].numpy() @ numbers
    np.testing.assert_allclose(narrow[:, 4 * 128 : 4 * 128 + 50].numpy(), by_hand, rtol=1e-3, atol=1e-4)


def table(**accuracies: list[list[float]]) -> xarray.Dataset:
    """A finding by hand: for each subject "cls…", "gap…" or "cnn…" its accuracies (block, readout)."""
    subjects = [name for name, rows in accuracies.items() for _ in rows]
    depths = [(at + 1) / len(rows) for rows in accuracies.values() for at in range(len(rows))]
    return xarray.Dataset(
        {"accuracy": (("site", "readout"), np.array([row for rows in accuracies.values() for row in rows]))},
        coords={
            "readout": list(READOUTS),
            "subject": ("site", subjects),
            "family": ("site", ["cnn" if name[:3] == "cnn" else "vit" for name in subjects]),
            "role": ("site", ["block"] * len(subjects)),
            "pooling": ("site", [name[:3].replace("cnn", "gap") for name in subjects]),
            "build": ("site", [name[3:] for name in subjects]),
            "depth": ("site", depths),
        },
    )


def test_quantities_on_a_table_made_by_hand() -> None:
    nothing = float("nan")
    cls = [  # tokens, class token, mean, mean with class token, first
        [0.20, 0.30, 0.40, 0.40, 0.2],
        [0.30, 0.40, 0.40, 0.41, 0.2],
        [0.40, 0.60, 0.54, 0.58, 0.3],  # ahead of the mean without the class token, hardly of the mean of all
        [0.45, 0.80, 0.70, 0.72, 0.3],
        [0.50, 0.90, 0.75, 0.80, 0.3],  # most ahead
        [0.50, 0.92, 0.80, 0.84, 0.3],
    ]
    gap = [[0.2 + 0.1 * at + 0.2 * (at > 3), nothing, 0.5, nothing, 0.1 * at] for at in range(6)]
    made = table(cls=cls, gap=gap)
    assert of_twins(token_gap)(made) == {("gap", "cls"): pytest.approx(0.9 - 0.5)}
    assert of_twins(shortfall_gap)(made) == {("gap", "cls"): pytest.approx((0.92 - 0.5) - (0.5 - 0.9))}
    assert of_each(half_lead_depth, class_token_vits)(made) == {
        ("cls",): pytest.approx((3 + (0.05 - 0.02) / (0.08 - 0.02)) / 6)
    }
    assert of_each(early_lead, class_token_vits)(made) == {("cls",): pytest.approx((-0.10 - 0.01 + 0.02) / 3)}
    assert of_each(first_token_rise, gap_vits)(made) == {("gap",): pytest.approx(0.5 - 0.25)}
    assert of_each(last_block_gap("gap", "gap with cls"), class_token_vits)(made) == {("cls",): pytest.approx(-0.04)}
    assert of_each(last_block_gap("gap", "first"), gap_vits)(made) == {("gap",): pytest.approx(0.0)}
    late, early = (0.8 - 0.5 + 0.9 - 0.5) / 2, (0 + 0 + 0 + 0.05) / 4
    assert of_twins(divergence)(made) == {("gap", "cls"): pytest.approx(late - 2 * early)}
    assert of_each(half_lead_depth, class_token_vits)(table(cls=[[row[0], 0.3, *row[2:]] for row in cls])) == {
        ("cls",): 1.0
    }
    from_the_start = table(cls=[[0, 0.5, 0, 0.4 - 0.02 * at, 0] for at in range(6)])
    assert of_each(half_lead_depth, class_token_vits)(from_the_start) == {("cls",): pytest.approx(1 / 6)}
    ahead = next(q for q in Probes.quantities if q.name == "cls_over_mean_last").compute(made)
    assert ahead == {("cls",): pytest.approx(0.92 - 0.84)}
    other = table(cls=cls, gap_of_another_build=gap)
    assert of_twins(token_gap)(other) == of_twins(divergence)(other) == {}  # a larger ViT is no twin
    of_cnn = table(cls=cls, cnn=gap)
    assert of_cnns_with_vits(token_gap)(of_cnn) == {("cnn", "cls"): pytest.approx(0.9 - 0.5)}
    assert of_pairs(middle_gap)(of_cnn) == {("cls", "cnn"): pytest.approx(0.62 - 0.5)}
    assert of_pairs(middle_over_last_gap)(of_cnn) == {("cls", "cnn"): pytest.approx(0.62 - 0.5 - (0.92 - 0.5))}
    middle = next(q for q in Probes.quantities if q.name == "pooled_over_first_middle").compute(made)
    assert middle == {("gap",): pytest.approx(0.5 - 0.25)}


def test_differences_that_change_sign_do_not_cancel() -> None:
    """± .2 before and .3 at the end: their means are 0 and .3, but the two ViTs are alike nowhere."""
    signs = [0.2, -0.2, 0.2, -0.2, 0.3, 0.3]
    made = table(cls=[[0.5] * 5 for _ in signs], gap=[[0.5 + sign] * 5 for sign in signs])
    assert of_twins(divergence)(made) == {("gap", "cls"): pytest.approx(0.3 - 2 * 0.2)}


def test_a_remark_beside_the_claim_does_not_make_it_fail() -> None:
    """As on zoo:vit: the mean without the class token tells less, which says nothing about where the two part."""
    numbers = {
        "half_lead_depth": 0.9,
        "cls_over_mean_early": -0.1,
        "cls_over_mean_last": 0.1,
        "mean_without_cls": -0.03,
    }
    rows = [
        list(column)
        for column in zip(*((value, value - 0.01, value + 0.01) for value in numbers.values()), strict=True)
    ]
    found = xarray.Dataset(
        {f"quantity_{end}": ("quantity_row", row) for end, row in zip(("value", "low", "high"), rows, strict=True)},
        coords={
            "quantity": ("quantity_row", list(numbers)),
            "quantity_subjects": ("quantity_row", ["v"] * len(numbers)),
        },
        attrs={"images": 1000},
    )
    facts = {"v": Facts("v", "transformer", True, "sample", (0.95, 0.94, 0.96))}
    verdicts = [verdict for verdict in judge(asked_of([Probes()]), {"probes": found}, facts) if verdict.claim == "C34"]
    assert [(verdict.verdict, len(verdict.parts)) for verdict in verdicts] == [("holds", 3), ("fails", 1)]
    assert "leaving the class token out" in verdicts[1].sentence


CURVES = {
    "a late lead": [0.0, 0.0, 0.0, 0.0, 0.0, 0.02, 0.05, 0.15, 0.25],
    "that of zoo:vit": [-0.084, -0.056, -0.057, -0.025, 0.062, 0.092, 0.146, 0.106, 0.065],
    "an early lead": [0.0, 0.0, 0.05, 0.1, 0.15, 0.2, 0.2, 0.2, 0.2],
}
DIFFERENCES = {
    "none": [0.0] * 9,
    "of changing sign, then late": [0.05, -0.05, 0.05, -0.05, 0.05, -0.05, 0.2, 0.25, 0.3],
    "late alone": [0.0] * 6 + [0.05, 0.1, 0.15],
}


@pytest.mark.parametrize("error", [0.006, 0.02], ids=["1,000 images", "100 images"])
@pytest.mark.parametrize(
    ("curve", "compute"),
    [
        *((curve, lambda lead: depth_of_half(lead, (np.arange(9) + 1) / 9)) for curve in CURVES.values()),
        *((curve, lambda lead: late_over_rest(np.abs(lead))) for curve in DIFFERENCES.values()),
    ],
    ids=[*CURVES, *DIFFERENCES],
)
def test_bootstrap_intervals_hold_what_curves_say(
    curve: list[float], compute: Callable[[np.ndarray], float], error: float
) -> None:
    """Half of the largest lead, and sizes of differences: 200 exams of 16 folds, blocks that err alike by half."""
    truth, dice = compute(np.array(curve)), np.random.default_rng(0)
    factor = np.linalg.cholesky(error**2 * (np.eye(9) + 1) / 2)
    weights = [bootstrap_weights(16, DRAWS, 0), bootstrap_weights(16, SMALL_DRAWS, 1, small_size(16))]
    means = [(each / each.sum(1, keepdim=True)).numpy() for each in weights]
    covered = []
    for _ in range(200):
        folds = np.array(curve) + 4 * dice.normal(size=(16, 9)) @ factor.T
        draws, small = (np.apply_along_axis(compute, 1, each @ folds) for each in means)
        low, high = bootstrap(np.array(compute(folds.mean(0))), draws, small, 16)
        covered.append(bool(low - 1e-9 <= truth <= high + 1e-9))
    print(f"covered {np.mean(covered):.3f}")
    assert np.mean(covered) >= 0.9


def test_where_there_is_nothing_to_probe() -> None:
    (place,) = blocks(1)
    body = anatomy("v", [place], cls=0)
    with pytest.raises(DoesNotApply, match="no classes"):
        Probes().check_labels(scene(body))
    with pytest.raises(DoesNotApply, match="too few"):
        Probes().tally(labelled(body, images=10))
    with pytest.raises(DoesNotApply, match="grid"):
        Probes().tally(labelled(anatomy("v", [replace(place, layout=replace(place.layout, grid=None))]), images=64))
    with pytest.raises(DoesNotApply, match="GiB"):
        Probes(rows=1 << 30).tally(labelled(body, images=1 << 24))


def test_intervals_hold_the_expected_accuracy() -> None:
    """400 exams of 320 images: the 95 % interval of a cross-fitted accuracy against the mean over exams."""
    group = Group(0, "gap", (1, 1), 6, 0)
    results = []
    for seed in range(400):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, CLASSES, (320,), generator=generator)
        centres = torch.randn(CLASSES, 6, generator=torch.Generator().manual_seed(1))
        features = centres[labels] + 1.5 * torch.randn(320, 6, generator=generator)
        tally = ProbeTally.empty(fold=16, dealt_fold=16, feature=6, part=0, product=21, summed=6, **{"class": CLASSES})
        folds = torch.arange(320) % 16
        tally.append(image=torch.arange(320), fold=folds, label=labels, features=features)
        right, held = Probes().right_by_fold(tally, [group]), torch.bincount(folds).double()
        value = float(right.sum() / 320)
        without = [float(weights @ right[:, 0] / (weights @ held)) for weights in leave_one_out_weights(held)]
        results.append((value, *jackknife(np.array(value), np.array(without))))
    value, low, high = np.array(results, dtype=float).T
    covered = ((low <= value.mean()) & (value.mean() <= high)).mean()
    print(f"covered {covered:.3f}")
    assert 0.9 <= covered <= 0.98


def test_the_chart_and_the_sentence_are_made_from_the_numbers(labels: np.ndarray) -> None:
    places = blocks(2)
    where = labelled(anatomy("v", places, cls=0), images=200)
    looks = {("v", place.name): Look(place, output=tokens_of(labels, signal=20)) for place in places}
    finding = measure_tensors(Probes(), where, looks, 8, labels)
    said = Probes().sentence(finding)
    assert f"{in_words(finding.isel(site=-1).sel(readout='cls'), 'accuracy', '.1%')} from the class token" in said
    assert f"{np.bincount(labels).max() / 200:.1%}" in said
    assert "commonest class" in str(Probes().chart(finding).to_dict())
    assert "projection" not in said  # six features are read as they are
    narrow = Probes(width=4, token_width=3)
    told = narrow.sentence(measure_tensors(narrow, where, looks, 8, labels))
    assert "random projection" in told
    assert "single tokens of v (6 features read as 3), pooled readouts of v (6 features read as 4)" in told
    assert isinstance(Probes().view, View)
