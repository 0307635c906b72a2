"""What a tally of Hessian eigenvalues says: shares, means and their intervals, and claims on pairs of snapshots."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
import xarray

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.intervals import with_intervals
from eyechart.measures.hessian.bounds import ape_ends
from eyechart.measures.hessian.quantities import against, kind_of, shell_of, time_of
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.zoo.alternet import alternet
from tests.measures.spectra import curves, stage
from tests.measures.staging import anatomy, site


def read(finding: xarray.Dataset, quantity: str) -> dict[str, float]:
    rows = finding["quantity"].values == quantity
    return dict(zip(finding.quantity_subjects.values[rows].tolist(), finding.quantity_value.values[rows], strict=True))


def test_shares_and_means_are_those_of_the_values() -> None:
    measure, tally, where = stage(vit_warmup=curves(32, 2, 30.0), resnet_warmup=curves(32, 0, 200.0, 1))
    found = with_intervals(measure, tally, where)
    values = curves(32, 2, 30.0)
    own = found.sel(subject="vit@warmup", variant="clean")
    assert float(own.nep) == pytest.approx((values < 0).mean())
    assert float(own.ape) == pytest.approx(values[values > 0].mean())
    assert float(own.negative_size) == pytest.approx(-values[values < 0].mean())
    assert float(own.smallest) == pytest.approx(values.min(1).mean())
    assert float(own.nep_low) < float(own.nep) < float(own.nep_high)
    without = values[np.arange(32) % 16 != 3]
    assert float(found.nep_replicates.sel(subject="vit@warmup", variant="clean")[3]) == pytest.approx(
        (without < 0).mean()
    )
    assert read(found, "nep_gap_clean") == {"vit@warmup | resnet@warmup": pytest.approx((values < 0).mean())}


def test_what_lies_within_its_residual_or_next_to_zero_has_no_sign() -> None:
    values = np.tile([[100.0, -50.0, -0.005, -2.0, 3.0]], (16, 1))
    measure, tally, where = stage(vit=values)
    tally.residuals[..., 3:] = 5.0
    found = measure.estimate(tally.total(), where)
    assert float(found.nep[0, 0]) == pytest.approx(1 / 5)
    assert float(found.ape[0, 0]) == 100


def facts(*names: str) -> dict[str, Facts]:
    return {
        name: Facts(name, "cnn" if "resnet" in name else "transformer", trained=True, recipe="zoo") for name in names
    }


def test_the_claims_on_snapshots() -> None:
    measure, tally, where = stage(
        vit_warmup=curves(80, 2, 30.0),
        resnet_warmup=curves(80, 0, 200.0, 1),
        vit=curves(80, 1, 100.0, 2),
        resnet=curves(80, 1, 90.0, 3),
    )
    found = with_intervals(measure, tally, where)
    verdicts = judge(asked_of([measure]), {"hessian": found}, facts(*where.subjects))
    said = {(verdict.claim, verdict.subjects): verdict.verdict for verdict in verdicts if verdict.subjects}
    early, late = ("vit@warmup", "resnet@warmup"), ("vit", "resnet")
    assert said == {
        ("C44", early): "holds",
        ("C44", late): "fails",
        ("C46", early): "holds",
        ("C46", late): "fails",
    }
    readings = {verdict.subjects: verdict.reading for verdict in verdicts if verdict.claim == "C44"}
    assert readings == {early: "", late: "at the end of training"}


def test_a_cnn_is_called_nearly_convex_only_where_enough_minibatches_say_so() -> None:
    for count, other, verdict in ((32, 0, "undecided"), (71, 0, "undecided"), (72, 0, "holds"), (80, 1, "fails")):
        measure, tally, where = stage(vit_warmup=curves(count, 3, 30.0), resnet_warmup=curves(count, other, 200.0, 1))
        found = with_intervals(measure, tally, where)
        (said,) = [
            one for one in judge(asked_of([measure]), {"hessian": found}, facts(*where.subjects)) if one.claim == "C44"
        ]
        assert said.verdict == verdict
    values = curves(16, 0, 200.0, 1)
    values[3, 4] *= -1  # one negative eigenvalue must not look surer than none
    measure, tally, where = stage(vit_warmup=curves(16, 3, 30.0), resnet_warmup=values)
    found = with_intervals(measure, tally, where)
    row = int(np.flatnonzero(found["quantity"].values == "nep_cnn_clean")[0])
    assert float(found.quantity_value[row]) == pytest.approx(1 / 80)
    assert float(found.quantity_high[row]) == pytest.approx(1 - 0.025 ** (1 / 16))


def test_attention_is_isolated_by_the_cnn_with_the_same_blocks_only() -> None:
    measure, tally, where = stage(alternet=curves(32, 0, 30.0), resnet=curves(32, 0, 90.0, 1))
    found = with_intervals(measure, tally, where)
    means = [curves(32, 0, 30.0).mean(), curves(32, 0, 90.0, 1).mean()]
    assert read(found, "ape_attention_ratio_clean") == {"alternet | resnet": pytest.approx(means[0] / means[1])}
    assert read(found, "ape_ratio_clean") == {}
    pictures = torch.randn(2, 3, 32, 32)
    shells = [shell_of(anatomy_of("a", alternet(msas=count), pictures)) for count in (0, 4)]
    assert shells[0] == shells[1]
    assert shells[0] != shell_of(anatomy_of("r", load_subject("zoo:resnet@random").module, pictures))


def test_stages_are_compared_by_the_share_and_windows_by_the_size_of_negative_eigenvalues() -> None:
    measure, tally, where = stage(
        vit=curves(32, 3, 30.0), pit=curves(32, 1, 30.0, 1), swin=curves(32, 3, 2.0, 2), resnet=curves(32, 0, 9.0, 3)
    )
    found = with_intervals(measure, tally, where)
    shares = {name: (curves(32, count, 1.0) < 0).mean() for name, count in (("vit", 3), ("pit", 1))}
    assert read(found, "nep_over_staged") == {"vit | pit": pytest.approx(shares["vit"] - shares["pit"])}
    sizes = [-values[values < 0].mean() for values in (curves(32, 3, 30.0), curves(32, 3, 2.0, 2))]
    assert read(found, "negative_size_over_windowed") == {"vit | swin": pytest.approx(sizes[0] / sizes[1])}
    verdicts = judge(asked_of([measure]), {"hessian": found}, facts(*where.subjects))
    said = {verdict.subjects: verdict.verdict for verdict in verdicts if verdict.claim == "C51"}
    assert said == {("vit", "pit"): "holds", ("vit", "swin"): "holds"}


@pytest.mark.parametrize(("name", "kind"), [("pit", "staged"), ("swin", "windowed"), ("alternet", "hybrid")])
def test_the_parts_of_real_models(name: str, kind: str) -> None:
    subject = load_subject(f"zoo:{name}@random")
    found = anatomy_of(name, subject.module, torch.randn(2, 3, 32, 32))
    assert kind_of(found) == kind


def test_a_share_of_zero_is_not_certainty() -> None:
    measure, tally, where = stage(vit_warmup=curves(16, 0, 30.0), resnet_warmup=curves(16, 0, 200.0, 1))
    found = with_intervals(measure, tally, where)
    row = int(np.flatnonzero(found["quantity"].values == "nep_gap_clean")[0])
    room = 1 - 0.025 ** (1 / 16)
    assert float(found.quantity_value[row]) == 0
    assert float(found.quantity_low[row]) == pytest.approx(-room)
    assert float(found.quantity_high[row]) == pytest.approx(room)
    assert float(found.nep_high.sel(subject="vit@warmup", variant="clean")) == pytest.approx(room)
    alone = np.flatnonzero(found["quantity"].values == "nep_clean")
    assert found.quantity_high.values[alone] == pytest.approx([room, room])  # of minibatches, not of images
    measure, tally, where = stage(vit_warmup=curves(16, 2, 30.0), resnet_warmup=curves(16, 0, 200.0, 1))
    found = with_intervals(measure, tally, where)
    shares = (curves(16, 2, 30.0) < 0).mean(1)
    half = 2.131 * shares.std(ddof=1) / 4
    assert float(found.quantity_low[row]) == pytest.approx(shares.mean() - half - room, abs=1e-3)
    assert float(found.quantity_high[row]) == pytest.approx(shares.mean() + half, abs=1e-3)


def test_a_mean_that_few_minibatches_carry_has_a_skewed_interval() -> None:
    """By hand: jackknife of the mean and of its logarithm, and the farther end of both."""
    values = 10 * np.exp(np.random.default_rng(0).normal(0, 1.0, (8, 5)))
    other = curves(8, 0, 30.0, 1)
    measure, tally, where = stage(vit_warmup=values, resnet_warmup=other)
    found = with_intervals(measure, tally, where)

    def by_hand(number: Callable[[np.ndarray], float]) -> tuple[float, float]:
        stays = [np.arange(8) != left for left in range(8)]
        ends = []
        for there, back in ((lambda x: x, lambda x: x), (np.log, np.exp)):
            without = np.array([there(number(stay)) for stay in stays])
            half = 2.3646 * np.sqrt(7 / 8 * ((without - without.mean()) ** 2).sum())
            middle = there(number(np.ones(8, dtype=bool)))
            ends.append((back(middle - half), back(middle + half)))
        return min(low for low, _ in ends), max(high for _, high in ends)

    for name, number in (
        ("ape_clean", lambda stay: values[stay].mean()),
        ("ape_ratio_clean", lambda stay: values[stay].mean() / other[stay].mean()),
    ):
        row = int(np.flatnonzero(found["quantity"].values == name)[0])
        expected = by_hand(number)
        assert (found.quantity_low[row], found.quantity_high[row]) == pytest.approx(expected, rel=1e-4)
        middle = float(found.quantity_value[row])
        assert expected[1] - middle > middle - expected[0]
    assert ape_ends(found, "vit@warmup", "clean") == pytest.approx(by_hand(lambda stay: values[stay].mean()), rel=1e-4)
    drawn = json.dumps(measure.chart(found).to_dict())
    assert f"{ape_ends(found, 'vit@warmup', 'clean')[1]:.6f}"[:8] in drawn


def test_a_subject_that_lacks_minibatches_is_compared_over_those_it_has() -> None:
    """It knows fewer of the images; the interval must be about the same number as the value."""
    values, other = curves(8, 1, 30.0), curves(8, 1, 30.0, 1)
    values[6:] = np.nan
    other[6:] *= 10
    other[6:, 1:] *= -1
    measure, tally, where = stage(vit_warmup=values, resnet_warmup=other)
    found = with_intervals(measure, tally, where)
    ends = {}
    for name in ("ape_ratio_clean", "nep_gap_clean"):
        row = int(np.flatnonzero(found["quantity"].values == name)[0])
        ends[name] = [float(found[f"quantity_{end}"][row]) for end in ("low", "value", "high")]
        assert ends[name] == sorted(ends[name])

    def ratio(stay: np.ndarray) -> float:
        one, two = values[stay], other[stay]
        return float(one[one > 0].mean() / two[two > 0].mean())

    without = np.array([ratio(np.arange(8) != left) for left in range(8)])
    half = 2.3646 * np.sqrt(7 / 8 * ((without - without.mean()) ** 2).sum())
    whole = ratio(np.ones(8, dtype=bool))
    assert ends["ape_ratio_clean"][1] == pytest.approx(whole)
    assert ends["ape_ratio_clean"][2] == pytest.approx(
        max(whole + half, whole * np.exp(2.3646 * np.sqrt(7) * np.log(without).std())), rel=1e-3
    )


def test_a_share_of_zero_is_bounded_by_the_subject_s_own_minibatches() -> None:
    values = curves(8, 0, 30.0)
    values[6:] = np.nan
    measure, tally, where = stage(vit_warmup=values, resnet_warmup=curves(8, 0, 30.0, 1))
    found = with_intervals(measure, tally, where).sel(variant="clean")
    assert found.nep_high.values == pytest.approx([1 - 0.025 ** (1 / 6), 1 - 0.025 ** (1 / 8)])
    rows = np.flatnonzero(found["quantity"].values == "nep_clean")
    assert found.quantity_high.values[rows] == pytest.approx([1 - 0.025 ** (1 / 6)] * 2)  # the wider for both


def test_what_was_not_measured_is_not_told_as_a_number() -> None:
    for values in (-curves(8, 0, 30.0), curves(1, 1, 30.0), np.full((8, 5), np.nan)):
        measure, tally, where = stage(vit_warmup=values)
        text = measure.sentence(with_intervals(measure, tally, where))
        assert "nan" not in text
        assert ("none is positive" in text) == (values < 0).all()
        assert ("left out" in text) == np.isnan(values).all()


def test_kinds_and_times() -> None:
    assert time_of("zoo:vit@runs/vit.warmup.safetensors") == "warmup"
    assert time_of("timm:resnet18") == ""
    assert time_of("timm:resnet18@random") == "init"  # not the end of any training
    assert kind_of(anatomy("r", [site("b", stage=s, block=b) for s in (0, 1) for b in (0, 1)], "cnn")) == "cnn"


def test_the_chart_draws_few_values_and_none() -> None:
    for values in (curves(16, 2, 30.0), np.full((16, 5), np.nan)):
        measure, tally, where = stage(vit=values)
        chart = measure.chart(with_intervals(measure, tally, where))
        assert chart.to_dict()


def test_a_class_token_vit_is_compared_with_its_twin_only() -> None:
    names = ["vit@warmup", "twin@warmup", "other@warmup", "resnet@warmup"]
    estimate = xarray.Dataset(
        {"nep": (("subject", "variant"), [[0.5], [0.25], [0.0], [0.0]])},
        coords={
            "subject": names,
            "variant": ["clean"],
            "kind": ("subject", ["vit class-token", "vit mean", "vit mean", "cnn"]),
            "snapshot": ("subject", ["warmup"] * 4),
            "build": ("subject", ["nine blocks", "nine blocks", "twelve blocks", "stages"]),
        },
    )
    twins = against("nep", "clean", lambda one, two: one - two, "class-token", "mean")(estimate)
    assert twins == {("vit@warmup", "twin@warmup"): 0.25}
    assert ("vit@warmup", "resnet@warmup") in against("nep", "clean", lambda one, two: one - two)(estimate)
