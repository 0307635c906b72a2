"""Attention replaced by hand in a network written out, and networks whose attention cannot matter (E12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor, nn

from eyechart.errors import DoesNotApply
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measures.attention_role.kernels import REPLACEMENTS, even, kernel_spread, mean_of_others, of_another
from eyechart.measures.attention_role.measure import AttentionRole, all_replaced
from eyechart.methods.scoring import SAME
from eyechart.scene import Batch
from eyechart.site_choice import attentions
from eyechart.subjects.subject import Subject
from eyechart.tracing.bench import Bench
from eyechart.tracing.pieces import PieceSize
from tests import cases
from tests.measures.on_subjects import module_subject, quantities, staged, tally_of


def finding_of(*subjects: Subject, images: int = 32, labels: bool = True, **options: Any) -> xarray.Dataset:
    people, scene = staged(*subjects, images=images, block=16)
    if labels:
        scene = replace(scene, label_maps={subject: (*range(5), *range(5)) for subject in scene.subjects})
    measure = AttentionRole(**options)
    return with_intervals(measure, tally_of(measure, people, scene), scene)


def by_hand(module: nn.Module, images: Tensor, put_in: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor]]:
    """A timm ViT written out: its logits with given weights (None: its own), and the weights it used."""
    model = cases.inside(module)
    x = model.patch_embed(images)
    x = torch.cat([model.cls_token.expand(len(x), -1, -1), x], 1) + model.pos_embed
    used = []
    for block, given in zip(model.blocks, put_in, strict=True):
        n, tokens, width = x.shape
        q, k, v = block.attn.qkv(block.norm1(x)).view(n, tokens, 3, 3, width // 3).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / (width // 3) ** 0.5).softmax(-1) if given is None else given
        used.append(weights)
        x = x + block.attn.proj((weights @ v).transpose(1, 2).flatten(2))
        x = x + block.mlp(block.norm2(x))
    return model.head(model.norm(x)[:, 0]), used


def pictures(subject: Subject, count: int) -> list[Tensor]:
    source = open_images("sample")
    plan = plan_batches(source, limit=count, block=16, blocks_per_shard=4)
    batches = [batch for shard in range(len(plan.shards)) for batch in plan.batches(shard)]
    return [subject.prepare(source.pictures(batch.images.tolist())) for batch in batches]


def bench_of(subject: Subject, images: Tensor, piece: int | None = None) -> Bench:
    _, scene = staged(subject)
    places = np.arange(len(images))
    batch = Batch(0, 0, places, None, 0, places, True)
    return Bench(subject, scene.anatomies[0], batch, images, None, PieceSize(piece))


def kernels_by_hand(own: list[Tensor]) -> dict[str, list[Tensor]]:
    others = [torch.stack([torch.cat([w[:i], w[i + 1 :]]).mean(0) for i in range(len(w))]) for w in own]
    return {
        "even": [torch.full_like(weights, 1 / 17) for weights in own],
        "mean of others": others,
        "another picture's": [torch.cat([w[1:], w[:1]]) for w in own],
    }


def test_by_hand_all_at_once() -> None:
    subject = module_subject(cases.vit(), "vit")
    images = pictures(subject, 16)[0]
    bench = bench_of(subject, images)
    logits, _ = all_replaced(bench, attentions(bench.anatomy))
    with torch.no_grad():
        intact, own = by_hand(subject.module, images, [None, None])
        torch.testing.assert_close(logits[0], intact, rtol=1e-4, atol=1e-4)
        for found, weights in zip(logits[1:], kernels_by_hand(own).values(), strict=True):
            torch.testing.assert_close(found, by_hand(subject.module, images, list(weights))[0], rtol=1e-4, atol=1e-4)
            assert not torch.allclose(found, intact, atol=1e-2)


def test_the_finding_counts_answers_all_at_once_and_alone() -> None:
    subject = module_subject(cases.vit(), "vit")
    finding = finding_of(subject, each="yes")
    together: dict[str, list[Tensor]] = {name: [] for name in REPLACEMENTS}
    alone: dict[str, list[Tensor]] = {name: [] for name in REPLACEMENTS}
    with torch.no_grad():
        for images in pictures(subject, 32):
            intact, own = by_hand(subject.module, images, [None, None])
            for name, weights in kernels_by_hand(own).items():
                for found, put_in in ((together, list(weights)), (alone, [None, weights[1]])):
                    answers = by_hand(subject.module, images, put_in)[0].argmax(1)
                    found[name].append(answers != intact.argmax(1))
    for name in REPLACEMENTS:
        expected = [float(torch.cat(found[name]).double().mean()) for found in (together, alone)]
        assert float(finding.changed.sel(each_subject="vit", replacement=name)) == pytest.approx(expected[0])
        second = finding.changed_alone.sel(site="vit/blocks.1 attention", replacement=name)
        assert float(second) == pytest.approx(expected[1])


def test_attention_that_is_even_already_can_be_replaced_by_anything() -> None:
    model = cases.vit()
    for block in cases.inside(model).blocks:
        block.attn.qkv.weight.data[:24].zero_()  # queries: all scores are equal
        block.attn.qkv.bias.data[:24].zero_()
    finding = finding_of(module_subject(model, "vit"), each="yes")
    assert (finding.changed.values == 0).all()
    assert (finding.changed_alone.values == 0).all()
    np.testing.assert_allclose(finding.data_specific.values, 0, atol=1e-10)
    np.testing.assert_allclose(finding.head_specific.values, 0, atol=1e-10)


def test_pictures_that_are_all_the_same_lose_nothing_by_exchange() -> None:
    subject = module_subject(cases.vit(), "vit")
    found = AttentionRole(each="no").experiment(bench_of(subject, cases.images(1).repeat(6, 1, 1, 1)))
    assert (found["together"][:, [0, 2, 3], SAME] == 1).all()
    np.testing.assert_allclose(found["spread"][..., 1], 0, atol=1e-9)
    assert (found["spread"][..., 2] > 1e-4).all()  # heads differ


def test_kernels_by_hand() -> None:
    weights = torch.rand(5, 2, 3, 4, 6).softmax(-1)
    for kernel in (even, mean_of_others, of_another):
        torch.testing.assert_close(kernel(weights).sum(-1), torch.ones(5, 2, 3, 4))
    torch.testing.assert_close(mean_of_others(weights)[2], weights[[0, 1, 3, 4]].mean(0))
    torch.testing.assert_close(of_another(weights)[4], weights[0])
    spread = kernel_spread(weights).mean(0)
    torch.testing.assert_close(spread[:, 0], weights.square().sum(-1).mean((0, 1, 3)).double())
    torch.testing.assert_close(spread[:, 1], weights.var(0).sum(-1).mean((0, 2)).double())
    heads = (weights - weights.mean(2, keepdim=True)).square().sum(-1).mean((0, 1, 3))
    torch.testing.assert_close(spread[:, 2], heads.double())


def test_masked_keys_stay_masked_in_a_shifted_window() -> None:
    subject = module_subject(cases.swin(), "swin")
    _, scene = staged(subject)
    shifted = scene.anatomies[0].site("layers.0.blocks.1 attention")
    from eyechart.tracing.needs import View
    from eyechart.tracing.taps import Tap

    seen = View("weights", lambda look: look.weights)
    tap = Tap(subject.module, scene.anatomies[0], {shifted.name: [seen]})
    weights = tap.run(pictures(subject, 16)[0], subject.call)[1][shifted.name]["weights"]
    flat = even(weights)
    hidden = weights.amax((0, 2)) < 1e-20
    assert hidden.any()
    assert not hidden.all()
    assert (flat.amax((0, 2))[hidden] == 0).all()
    torch.testing.assert_close(flat.sum(-1), torch.ones_like(flat.sum(-1)))


def test_windows_class_tokens_and_subjects_without_attention() -> None:
    people = [
        module_subject(cases.swin(), "swin"),
        module_subject(cases.cnn(), "cnn"),
        module_subject(cases.vit(), "v"),
    ]
    finding = finding_of(*people, each="no")
    assert finding.each_subject.values.tolist() == ["swin", "v"]
    assert "Left out: cnn" in AttentionRole().sentence(finding)
    assert np.isnan(finding.changed_alone.values).all()
    assert ("data_specific_attention", "swin") in quantities(finding)
    assert 0 < quantities(finding)["data_specific_attention", "v"][0] < 1.2
    AttentionRole().chart(finding).to_dict()
    _, scene = staged(people[1])
    with pytest.raises(DoesNotApply, match="attention"):
        AttentionRole().tally(scene)


def test_without_labels_answers_are_compared() -> None:
    finding = finding_of(module_subject(cases.vit(), "vit"), labels=False, each="yes")
    assert np.isnan(finding.lost.values).all()
    assert np.isfinite(finding.changed.values).all()
    assert "answers change" in AttentionRole().sentence(finding)
    AttentionRole().chart(finding).to_dict()


def test_shards_change_nothing_and_groups_fit_the_memory() -> None:
    people, scene = staged(module_subject(cases.vit(), "vit"), images=48)
    measure = AttentionRole(images=40, each="no")
    one, many = (tally_of(measure, people, scene, per_shard).tensors() for per_shard in (1, 3))
    for name in one:
        torch.testing.assert_close(one[name], many[name], rtol=1e-6, atol=1e-9)
    assert one["images"].sum() == 40
    found = measure.experiment(bench_of(people[0], cases.images(7), piece=1))
    assert len(found["together"]) == 7
    assert found["spread"].isfinite().all()


def test_each_attention_alone_is_for_more_effort() -> None:
    _, scene = staged(module_subject(cases.vit(), "vit"), images=64)
    assert AttentionRole().sized("quick", scene).each == "no"
    normal = AttentionRole().sized("normal", scene)
    assert normal.each == "yes"
    assert normal.passes(scene.anatomies[0]) == 1 + 3 * 3
    assert AttentionRole(each="yes").sized("quick", scene).each == "yes"
