"""Skip removal against a twin built without the skip, and the known answers of SPEC Appendix A (M6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import vl_convert
import xarray

from eyechart.charts.export import specification
from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.errors import DoesNotApply
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measures.skip_removal.measure import SkipRemoval
from eyechart.measures.skip_removal.variants import (
    cka_of,
    gram_of_blocks,
    lost_share,
    projected_blocks,
    removable,
    share_gap,
    small_block,
    used_of,
)
from eyechart.methods.hsic import gram, hsic_table
from eyechart.scene import Batch, Scene
from eyechart.site_choice import blocks_trained_without_skips
from eyechart.subjects.subject import Subject
from eyechart.tracing.bench import Bench
from eyechart.zoo.resnet import resnet
from eyechart.zoo.vit import ViT
from tests import cases
from tests.claims.nulls.made_up import finding
from tests.measures.on_subjects import module_subject, quantities, staged, tally_of

SIZES: dict[str, Any] = {"width": 24, "depth": 4, "heads": 3, "patch": 8}


def vit(**switches: Any) -> ViT:
    torch.manual_seed(0)
    model = ViT(**{**SIZES, **switches})
    for parameter in model.parameters():  # far from its start, where branches hardly write
        parameter.data += 0.15 * torch.randn(parameter.shape)
    return model.eval()


def labelled(scene: Scene) -> Scene:
    return replace(scene, label_maps={subject: tuple(range(10)) for subject in scene.subjects})


def finding_of(
    *subjects: Subject, images: int = 64, labels: bool = True, block: int = 16, **options: Any
) -> xarray.Dataset:
    people, scene = staged(*subjects, images=images, block=block)
    scene = labelled(scene) if labels else scene
    measure = SkipRemoval(**options)
    return with_intervals(measure, tally_of(measure, people, scene), scene)


def images_and_labels(count: int, subject: Subject) -> tuple[torch.Tensor, torch.Tensor]:
    source = open_images("sample")
    batches = plan_batches(source, limit=count, block=16, blocks_per_shard=4)
    found = [batch for shard in range(len(batches.shards)) for batch in batches.batches(shard)]
    places = np.concatenate([batch.images for batch in found])
    labels = np.concatenate([batch.labels for batch in found])
    return subject.prepare(source.pictures(places.tolist())), torch.from_numpy(labels)


def test_removal_is_the_network_without_that_skip() -> None:
    subject, twin = module_subject(vit(), "vit"), vit(no_skip_at=(2,))
    twin.load_state_dict(subject.module.state_dict())
    finding = finding_of(subject)
    images, labels = images_and_labels(64, subject)
    with torch.no_grad():
        right = [(net(images).argmax(1) == labels).double().mean() for net in (subject.module, twin)]
        changed = (subject.module(images).argmax(1) != twin(images).argmax(1)).double().mean()
    row = finding.sel(variant="vit, block 3", mode="as trained")
    assert float(row.accuracy) == pytest.approx(float(right[1]))
    assert float(row.lost) == pytest.approx(float(right[0] - right[1]))
    assert float(row.changed) == pytest.approx(float(changed))
    assert changed > 0.1


def test_cka_across_the_block_by_brute_force() -> None:
    intact, twin = vit(), vit(no_skip_at=(2,))
    twin.load_state_dict(intact.state_dict())
    subject = module_subject(intact, "vit")
    finding = finding_of(subject)
    images, _ = images_and_labels(64, subject)
    size, means = small_block(16, 0), []
    for net in map(cases.inside, (intact, twin)):
        with torch.no_grad():
            features = [net.patch_embed(images)]
            features[0] = torch.cat([net.cls_token.expand(64, -1, -1), features[0]], 1) + net.pos_embed
            for block in net.blocks:
                features.append(block(features[-1]))
        grams = [torch.stack([gram(part.flatten(1)) for part in each.split(size)]) for each in features]
        hsic = torch.stack([hsic_table(torch.stack([each[at] for each in grams])) for at in range(64 // size)]).mean(0)
        scale = hsic.diagonal().sqrt()
        means.append(float((hsic / torch.outer(scale, scale))[:3, 3:].mean()))
    assert float(finding.across.sel(variant="vit, block 3", mode="as trained")) == pytest.approx(
        means[1] / means[0], rel=1e-4
    )
    assert means[1] < 0.9 * means[0]


def test_a_zero_branch_without_skip_gives_constant_features_and_one_answer() -> None:
    model = vit()
    with torch.no_grad():
        block = cases.inside(model).blocks[1]
        for part in (block.attn.proj, block.mlp.fc2):
            part.weight.zero_(), part.bias.zero_()
    finding = finding_of(module_subject(model, "vit"))
    row = finding.sel(variant="vit, block 2", mode="as trained")
    assert np.isnan(float(row.across))  # nothing varies, so nothing is alike or unlike
    assert float(row.accuracy) == pytest.approx(
        float((images_and_labels(64, module_subject(model, "v"))[1] == answer_to_nothing(model)).double().mean())
    )


def answer_to_nothing(model: ViT) -> int:
    """The class it names when its second block returns zero for every token."""
    with torch.no_grad():
        tokens = torch.zeros(1, 17, SIZES["width"])
        for block in model.blocks[2:]:
            tokens = block(tokens)
        return int(model.head(model.norm(tokens)[:, 0]).argmax())


def test_the_subject_keeps_its_parameters_and_projected_skips() -> None:
    subject = module_subject(resnet(width=8, depths=(2, 1, 1, 1)), "cnn")
    before = {name: value.clone() for name, value in subject.module.state_dict().items()}
    count = sum(p.numel() for p in subject.module.parameters())
    finding = finding_of(subject)
    assert sum(p.numel() for p in subject.module.parameters()) == count
    assert all(torch.equal(value, before[name]) for name, value in subject.module.state_dict().items())
    assert finding.removed.values.tolist() == ["intact", "block 1", "block 2"]
    assert "projected: block 3, block 4, block 5)" in SkipRemoval().sentence(finding)
    assert "recalibrated" in SkipRemoval().sentence(finding)


def test_a_subject_without_such_a_skip_keeps_its_name() -> None:
    """A sentence that began with it wrote "Plain has no block"."""
    said = SkipRemoval().sentence(finding_of(module_subject(cases.plain(), "plain"), module_subject(vit(), "vit")))
    assert said.startswith("In plain no block has skips that pass unchanged; without the skips of one block vit ")


def test_which_skips_pass_unchanged() -> None:
    _, scene = staged(module_subject(cases.resnet(), "cnn"), module_subject(cases.swin(), "swin"))
    cnn, swin = scene.anatomies
    assert [block.name for block, _ in removable(cnn)] == ["layer1.0", "layer2.1"]
    assert projected_blocks(cnn) == ["block 2", "block 4", "block 5"]
    assert [len(junctions) for _, junctions in removable(swin)] == [2, 2, 2, 2]
    assert not blocks_trained_without_skips(cnn)


def test_recalibration_by_brute_force() -> None:
    """Statistics from the eight images of a block that are not scored; in training mode those are the batch's own."""
    net = resnet(width=8, depths=(2, 1, 1, 1))
    torch.manual_seed(0)
    for name, value in net.named_parameters():
        value.data += 0.1 * torch.randn(value.shape) + (0.5 if name.endswith("bn2.weight") else 0)
    subject, twin = module_subject(net, "cnn"), resnet(width=8, depths=(2, 1, 1, 1), no_skip_at=(1,))
    _, scene = staged(subject)
    images, places = cases.images(16), np.arange(16)
    bench = Bench(subject, scene.anatomies[0], Batch(0, 0, places, None, 0, places, True), images, None)
    found = SkipRemoval().experiment(bench)
    assert found["hsic"].shape[:3] == (2, 3, 2)  # modes, variants, small blocks
    for number, (scored, others) in enumerate(((images[:8], images[8:]), (images[8:], images[:8]))):
        twin.load_state_dict(net.state_dict())
        for part in twin.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.momentum = 1.0
        with torch.no_grad():
            twin.train()(others)
            features = gram(cases.inside(twin.eval()).forward_features(scored).flatten(1))
        torch.testing.assert_close(found["hsic"][1, 2, number, -1, -1], hsic_table(features[None])[0, 0])
    assert not torch.allclose(found["hsic"][0], found["hsic"][1])
    assert SkipRemoval(recalibrate="no").experiment(bench)["hsic"].shape[0] == 1


@pytest.mark.parametrize(("block", "recalibrate"), [(6, "yes"), (16, "no")])
def test_batch_norms_that_were_not_recalibrated_have_no_number_that_says_so(block: int, recalibrate: str) -> None:
    """A block of six images has none to spare: C27 would be decided by the number of stale statistics, named twice."""
    cnn, other = module_subject(resnet(width=8, depths=(2, 1, 1, 1)), "cnn"), module_subject(vit(), "vit")
    finding = finding_of(cnn, other, images=48, block=block, recalibrate=recalibrate)
    found = quantities(finding)
    assert np.isnan(found["skip_drop_recalibrated", "cnn"][0])
    assert np.isnan(found["skip_drop_gap_recalibrated", "vit | cnn"][0])
    assert np.isfinite(found["skip_drop", "cnn"][0])
    assert found["skip_drop_recalibrated", "vit"][0] == found["skip_drop", "vit"][0]  # nothing there to recalibrate
    assert "(its batch norms as they were trained" in SkipRemoval().sentence(finding)


def test_a_verdict_speaks_of_recalibration_only_where_there_was_some() -> None:
    (both,) = (test for test in asked_of([SkipRemoval()]) if test.claim == "C27")
    (plain,) = (test for test in asked_of([SkipRemoval(recalibrate="no")]) if test.claim == "C27")
    assert ["recalibrated" in part.words for part in both.parts] == [False, True]
    assert ["recalibrated" in part.words for part in plain.parts] == [False]
    assert plain.reading == "with batch norms as they were trained"


def test_a_twin_trained_without_a_skip_is_recognised_and_judged() -> None:
    whole, twin = module_subject(vit(), "whole"), module_subject(vit(no_skip_at=(1,)), "twin")
    early = module_subject(vit(no_skip_at=(0,)), "early")
    _, scene = staged(whole, twin)
    assert not blocks_trained_without_skips(scene.anatomies[0])
    assert [block.name for block in blocks_trained_without_skips(scene.anatomies[1])] == ["blocks.1"]
    finding = finding_of(whole, twin, early)
    found = quantities(finding)
    places = {
        (str(s), int(b)): float(v)
        for s, b, v in zip(
            finding.place_subject.values, finding.place_block.values, finding.intact_across.values, strict=True
        )
    }
    assert found["trained_without_skip_across", "whole | twin"][0] == pytest.approx(
        places["twin", 1] / places["whole", 1]
    )
    intact = finding.accuracy.sel(mode="as trained")
    assert found["trained_without_skip_drop", "whole | twin"][0] == pytest.approx(
        float(intact.sel(variant="whole, intact") - intact.sel(variant="twin, intact"))
    )
    assert ("trained_without_skip_across", "whole | early") in found
    assert ("trained_without_skip_drop", "whole | early") not in found  # C26 speaks of middle blocks
    known = {
        name: Facts(name, "transformer", True, "sample", (0.9, 0.85, 0.95), recipe="same")
        for name in ("whole", "twin", "early")
    }
    verdicts = {(v.claim, v.subjects): v for v in judge(asked_of([SkipRemoval()]), {"skip_removal": finding}, known)}
    across, within = verdicts["C25", ("whole", "twin")].parts
    assert across.effect == pytest.approx(places["twin", 1] / places["whole", 1])
    assert within.effect == found["trained_without_skip_within", "whole | twin"][0]
    assert ("C26", ("whole", "twin")) in verdicts
    assert ("C26", ("whole", "early")) not in verdicts


def test_a_large_loss_is_the_effect_and_no_failed_gate() -> None:
    """A twin that is left with 30 % right used to be too bad to be judged, and C26 undecided."""
    numbers = {("trained_without_skip_drop", "whole | twin"): (0.62, 0.58, 0.66)}
    known = {
        name: Facts(name, "transformer", True, "sample", (value, value - 0.04, value + 0.04), recipe="same")
        for name, value in (("whole", 0.92), ("twin", 0.30))
    }
    (verdict,) = (
        v for v in judge(asked_of([SkipRemoval()]), {"skip_removal": finding(numbers)}, known) if v.claim == "C26"
    )
    assert verdict.verdict == "holds"
    failed = judge(asked_of([SkipRemoval()]), {"skip_removal": finding(numbers)}, {**known, "whole": known["twin"]})
    assert next(v for v in failed if v.claim == "C26").verdict == "undecided"


def test_what_is_lost_is_a_share_of_what_there_is_to_lose() -> None:
    """By hand: .9 → .5 with ten classes loses half of what is above guessing; who guesses has nothing to lose."""
    accuracy = np.array([[0.9], [0.5], [0.1], [0.05]]).repeat(2, 1)
    made = xarray.Dataset(
        {"accuracy": (("variant", "mode"), accuracy), "lost": (("variant", "mode"), accuracy[[0, 0, 2, 2]] - accuracy)},
        coords={
            "mode": ["as trained", "recalibrated"],
            "subject": ("variant", ["vit", "vit", "cnn", "cnn"]),
            "family": ("variant", ["vit", "vit", "cnn", "cnn"]),
            "removed": ("variant", ["intact", "1", "intact", "1"]),
            "normalised": ("variant", [0, 0, 0, 0]),
            "stale": ("variant", [0, 0, 0, 0]),
        },
        attrs={"guessing": 0.1},
    )
    assert lost_share("as trained")(made)["vit",] == pytest.approx(0.4 / 0.8)
    assert np.isnan(lost_share("as trained")(made)["cnn",])
    assert np.isnan(share_gap("recalibrated")(made)["vit", "cnn"])


def test_without_labels_answers_are_compared() -> None:
    finding = finding_of(module_subject(vit(), "vit"), labels=False)
    assert np.isnan(finding.lost.values).all()
    assert np.isfinite(finding.changed.sel(mode="as trained").values).all()
    assert "of its answers" in SkipRemoval().sentence(finding)
    picture = vl_convert.vegalite_to_svg(specification(SkipRemoval().chart(finding)))
    assert picture.count(">vit</text>") == 3  # over two panels of maps, and in the one legend of the curves
    assert picture.count(">CKA</text>") == 1


def test_a_subject_without_classifier_still_has_its_maps() -> None:
    module = vit()
    cases.inside(module).head = torch.nn.Identity()
    subject = module_subject(module, "features")
    subject.classifier = False
    people, scene = staged(subject)
    finding = with_intervals(SkipRemoval(), tally_of(SkipRemoval(), people, scene), scene)
    assert np.isnan(finding.changed.values).all()
    assert np.isfinite(finding.across.sel(mode="as trained").values[1:]).all()
    SkipRemoval().chart(finding).to_dict()
    assert "of its CKA across" in SkipRemoval().sentence(finding)


@pytest.mark.parametrize(("images", "used"), [(1000, 132), (256, 128), (500, 135), (100, 96)])
def test_what_is_left_of_a_block_does_not_keep_it_from_deciding(images: int, used: int) -> None:
    """At --effort quick zoo:vit is allowed 80 images: as many are taken as decide, in whole small blocks."""
    _, scene = staged("zoo:vit", images=images, block=images // 16)
    quick = SkipRemoval().sized("quick", scene)
    assert isinstance(quick, SkipRemoval)
    assert used_of(scene.block, quick.images) == used
    assert SkipRemoval(images=48).sized("quick", scene) == SkipRemoval(images=48)


def test_shards_change_nothing() -> None:
    people, scene = staged(module_subject(resnet(width=8, depths=(2, 1, 1, 1)), "cnn"), images=96)
    measure = SkipRemoval(images=80)
    one, many = (tally_of(measure, people, labelled(scene), per_shard).tensors() for per_shard in (1, 6))
    for name in one:
        torch.testing.assert_close(one[name], many[name], rtol=1e-4, atol=1e-6)
    assert one["images"].sum() == 80
    assert (one["images"] > 0).sum() == 10  # two small blocks of eight images to each of five blocks


def test_a_network_without_residuals_does_not_apply() -> None:
    _, scene = staged(module_subject(cases.plain(), "plain"))
    with pytest.raises(DoesNotApply, match="unchanged"):
        SkipRemoval().tally(scene)


def test_features_that_differ_by_rounding_have_no_cka() -> None:
    same = torch.randn(1, 50).repeat(8, 1)
    assert (gram_of_blocks(4)(same * (1 + 1e-7 * torch.randn(8, 50))) == 0).all()
    assert (gram_of_blocks(4)(same + 0.01 * torch.randn(8, 50)) != 0).any()
    assert np.isnan(cka_of(np.array([[0.0, 0.0], [0.0, 1.0]]))[0]).all()
