"""Lesions against networks with the part really taken out, and the known answer of SPEC Appendix A (M20)."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor, nn

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.errors import DoesNotApply
from eyechart.exact_bounds import where_no_pair_moved
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measures.lesion.measure import (
    Lesion,
    at_stage_ends,
    by_place,
    early_convolutions,
    early_convolutions_recalibrated,
    stage_interaction,
)
from eyechart.measures.lesion.units import spatial_convolutions, units_of
from eyechart.scene import Batch
from eyechart.subjects.subject import Subject
from eyechart.tracing.bench import Bench
from tests import cases
from tests.measures.on_subjects import module_subject, quantities, staged, tally_of


def finding_of(*subjects: Subject, images: int = 32, labels: bool = True, **options: Any) -> xarray.Dataset:
    people, scene = staged(*subjects, images=images, block=16)
    if labels:
        scene = replace(scene, label_maps={subject: (*range(5), *range(5)) for subject in scene.subjects})
    measure = Lesion(**options)
    return with_intervals(measure, tally_of(measure, people, scene), scene)


def images_and_targets(count: int, subject: Subject) -> tuple[Tensor, Tensor]:
    source = open_images("sample")
    plan = plan_batches(source, limit=count, block=16, blocks_per_shard=4)
    found = [batch for shard in range(len(plan.shards)) for batch in plan.batches(shard)]
    pictures = source.pictures(np.concatenate([batch.images for batch in found]).tolist())
    labels = np.concatenate([batch.labels for batch in found])
    return subject.prepare(pictures), torch.from_numpy(labels) % 5


def at(finding: xarray.Dataset, name: str) -> xarray.Dataset:
    return finding.isel(unit=int(np.flatnonzero(finding.unit_name.values == name)[0]))


def test_removing_a_unit_whose_branch_is_zero_changes_nothing() -> None:
    model = cases.vit()
    with torch.no_grad():
        cases.inside(model).blocks[1].mlp.fc2.weight.zero_()
        cases.inside(model).blocks[1].mlp.fc2.bias.zero_()
    finding = finding_of(module_subject(model, "vit"))
    unit = at(finding, "block 2 mlp junction")
    assert float(unit.lost) == 0
    assert float(unit.changed) == 0
    assert float(at(finding, "block 1 mlp junction").changed) > 0
    # None of 32 images moved: that is no proof that none ever would.
    assert float(unit.lost_low) == pytest.approx(-(1 - 0.025 ** (1 / 32)))
    assert float(unit.lost_high) == pytest.approx(1 - 0.025 ** (1 / 32))


def test_a_branch_cut_out_by_brute_force() -> None:
    subject = module_subject(cases.vit(), "vit")
    finding = finding_of(subject)
    images, targets = images_and_targets(32, subject)
    without = cases.inside(copy.deepcopy(subject.module))
    without.blocks[0].attn.proj.weight.data.zero_()
    without.blocks[0].attn.proj.bias.data.zero_()
    with torch.no_grad():
        answers = [net(images).argmax(1) for net in (subject.module, without)]
    right = [(answer == targets).double().mean() for answer in answers]
    unit = at(finding, "block 1 attention junction")
    assert float(unit.lost) == pytest.approx(float(right[0] - right[1]))
    assert float(unit.changed) == pytest.approx(float((answers[0] != answers[1]).double().mean()))
    assert float(unit.changed) > 0


def bench_of(subject: Subject, images: Tensor) -> Bench:
    _, scene = staged(subject)
    places = np.arange(len(images))
    return Bench(subject, scene.anatomies[0], Batch(0, 0, places, None, 0, places, True), images, None)


def logits_without(subject: Subject, images: Tensor, name: str, operation: Literal["identity", "zero"]) -> Tensor:
    """What comes out when the measure cuts out one unit."""
    bench = bench_of(subject, images)
    (unit,) = (unit for unit in units_of(bench.anatomy) if unit.name == name)
    change = Lesion(operation=operation).change(unit, spatial_convolutions(bench))
    assert change is not None
    return bench.logits(interventions=[change])


@pytest.mark.parametrize("operation", ["identity", "zero"])
def test_a_convolution_exchanged_by_brute_force(operation: Literal["identity", "zero"]) -> None:
    subject = module_subject(cases.cnn(), "cnn")
    finding = finding_of(subject, operation=operation)
    images, _ = images_and_targets(32, subject)
    without = cases.inside(copy.deepcopy(subject.module))
    if operation == "identity":
        without.units[1].conv2 = nn.Identity()
    else:
        without.units[1].conv2.weight.data.zero_()
        without.units[1].conv2.bias.data.zero_()
    with torch.no_grad():
        expected = without(images)
    torch.testing.assert_close(logits_without(subject, images, "block 2 convolution 2", operation), expected)
    changed = (subject.module(images).argmax(1) != expected.argmax(1)).double().mean()
    assert float(at(finding, "block 2 convolution 2").changed) == pytest.approx(float(changed))


def test_only_convolutions_that_keep_the_shape_are_tried() -> None:
    finding = finding_of(module_subject(cases.resnet(), "cnn"))
    tried = finding.unit_name.values[finding.kind.values == "spatial convolution"].tolist()
    # The first block of stages 2 to 4 begins with a stride; only its other convolution keeps the shape.
    assert tried == [
        *("block 1 convolution 1", "block 1 convolution 2", "block 2 convolution 1", "block 3 convolution 1"),
        *("block 3 convolution 2", "block 4 convolution 1", "block 5 convolution 1"),
    ]
    assert (finding.kind.values == "whole branch").sum() == 5
    assert np.all(np.diff(finding.depth.values[1:]) >= 0)


class InPlace(nn.Module):
    """What follows the convolution works in place: on the skip itself, if the convolution returned its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.last(self.conv(x).relu_())


def test_identity_does_not_hand_on_the_input_itself() -> None:
    torch.manual_seed(0)
    subject = module_subject(cases.one(InPlace(8)), "cnn")
    images, _ = images_and_targets(16, subject)
    with torch.no_grad():
        module = cases.inside(subject.module)
        unit, x = module.units[0], module.stem(images)
        expected = module.head((x + unit.last(x.relu())).mean((2, 3)))
    torch.testing.assert_close(logits_without(subject, images, "block 1 convolution 1", "identity"), expected)


def hand_made(rows: list[tuple[str, int, int, float]], family: str) -> xarray.Dataset:
    """An estimate of one subject from (kind, stage, block, accuracy lost)."""
    kinds, stages, blocks, lost = zip(*rows, strict=True)
    names = {"subject": "s", "family": family}
    return xarray.Dataset(
        {"lost": ("unit", np.array(lost))},
        coords={
            "kind": ("unit", list(kinds)),
            "stage": ("unit", list(stages)),
            "block": ("unit", list(blocks)),
            **{name: ("unit", [value] * len(rows)) for name, value in names.items()},
        },
    )


def test_the_stage_interaction_by_hand() -> None:
    rows = [
        ("attention", 0, 0, 0.01), ("mlp", 0, 0, 0.05), ("attention", 0, 1, 0.04), ("mlp", 0, 1, 0.01),
        ("attention", 1, 2, 0.0), ("mlp", 1, 2, 0.02), ("attention", 1, 3, 9.0), ("mlp", 1, 3, 7.0),
        ("attention", 1, 4, 0.03), ("mlp", 1, 4, 0.02), ("attention", 2, 5, 0.5), ("mlp", 2, 5, 0.1),
    ]  # fmt: skip
    # Stage 0: (0.04 − 0.01) − (0.01 − 0.05) = 0.07; stage 1: 0.01 − (−0.02) = 0.03; stage 2 has one block only.
    assert stage_interaction(hand_made(rows, "staged transformer")) == {("s",): pytest.approx(0.05)}
    assert stage_interaction(hand_made(rows, "vit")) == {}
    # Of the stages after the first only stage 1 has two blocks.
    assert at_stage_ends("start")(hand_made(rows, "staged transformer")) == {("s",): pytest.approx(0.02)}
    assert at_stage_ends("end")(hand_made(rows, "staged transformer")) == {("s",): pytest.approx(0.01)}


def test_the_first_mlp_of_the_network_is_no_start_of_a_stage() -> None:
    """As zoo:pit: 75 points without its very first MLP, nothing without any other; interaction .256 [.226, .286]."""
    rows = [(kind, block // 2, block, 0.0) for block in range(6) for kind in ("attention", "mlp")]
    rows[1] = ("mlp", 0, 0, 0.75)
    estimate = hand_made(rows, "staged transformer")
    assert stage_interaction(estimate) == {("s",): pytest.approx(0.25)}
    assert at_stage_ends("start")(estimate) == at_stage_ends("end")(estimate) == {("s",): 0.0}


def test_early_convolutions_by_hand() -> None:
    convolutions = [("spatial convolution", 0, at, cost) for at, cost in enumerate((0.5, 0.3, 9.0, 0.1, 0.1))]
    estimate = hand_made(convolutions, "cnn")
    assert early_convolutions(estimate) == {("s",): pytest.approx(0.3)}
    again = estimate.assign(lost_recalibrated=estimate.lost / 10)
    assert early_convolutions_recalibrated(again) == {("s",): pytest.approx(0.03)}
    unknown = estimate.assign(lost_recalibrated=estimate.lost * np.nan)
    assert early_convolutions_recalibrated(unknown) == {("s",): pytest.approx(0.3)}  # no batch norms: nothing is stale
    assert np.isnan(early_convolutions_recalibrated(unknown.assign_attrs(stale="s"))["s",])


def test_without_recalibration_convolutions_are_read_as_trained() -> None:
    asked, unasked = (asked_of([Lesion(recalibrate=answer)]) for answer in ("yes", "no"))
    assert [len(test.parts) for test in asked] == [2, 2]
    assert [len(test.parts) for test in unasked] == [2, 1]
    assert unasked[1].reading.endswith("with batch norms as they were trained")


def test_a_staged_transformer_is_judged() -> None:
    finding = finding_of(module_subject(cases.swin(), "swin"), images=64)
    assert ("lesion_stage_interaction", "swin") in quantities(finding)
    facts = {"swin": Facts("swin", "transformer", True, "sample", (0.9, 0.85, 0.95))}
    verdicts = [v for v in judge(asked_of([Lesion()]), {"lesion": finding}, facts) if v.claim == "C61"]
    assert [v.subjects for v in verdicts] == [("swin",)]
    assert verdicts[0].verdict != "not tested"
    assert set(finding.place.values) == {"first", "last"}
    Lesion().chart(finding).to_dict()
    assert "swin misses" in Lesion().sentence(finding)


def test_without_labels_answers_are_compared() -> None:
    finding = finding_of(module_subject(cases.vit(), "vit"), labels=False)
    assert np.isnan(finding.lost.values).all()
    assert np.isfinite(finding.changed.values).all()
    assert "of its answers change" in Lesion().sentence(finding)
    Lesion().chart(finding).to_dict()


def test_features_are_no_answers() -> None:
    module = cases.vit()
    cases.inside(module).reset_classifier(0)
    _, scene = staged(module_subject(module, "features"))
    with pytest.raises(DoesNotApply, match="classifier"):
        Lesion().tally(scene)
    subject = module_subject(cases.resnet(), "cnn")
    subject.classifier = False
    plain = module_subject(cases.plain(), "plain")  # every convolution changes the shape
    finding = finding_of(subject, plain, module_subject(cases.vit(), "vit"))
    assert set(finding.subject.values) == {"vit"}
    assert "cut out: cnn and plain" in Lesion().sentence(finding)
    Lesion().chart(finding_of(plain)).to_dict()
    assert "cut out: plain" in Lesion().sentence(finding_of(plain))


def test_the_images_asked_for_are_used_and_shards_change_nothing() -> None:
    people, scene = staged(module_subject(cases.vit(), "vit"), images=48)
    measure = Lesion(images=40)
    one, many = (tally_of(measure, people, scene, per_shard).tensors() for per_shard in (1, 3))
    assert all(torch.equal(one[name], many[name]) for name in one)
    assert one["images"].sum() == 40
    assert measure.passes(scene.anatomies[0]) == len(units_of(scene.anatomies[0])) == 5


def test_places_where_no_answer_was_lost_have_the_bound_of_their_images() -> None:
    """Their mean stood in the figure without an interval beside units that have one of ±10 points."""
    rows = [("attention", stage, 2 * stage + place, 0.0) for stage in (0, 1) for place in (0, 1)]
    cost = by_place(hand_made(rows, "staged transformer"), 36.0).place_cost
    low, high = where_no_pair_moved(cost.values, cost.values, cost.values, cost.attrs["pairs"])
    assert (low < -0.09).all()
    assert (high > 0.09).all()
