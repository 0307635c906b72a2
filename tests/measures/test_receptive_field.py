"""Receptive fields with known answers (SPEC Appendix A, M4): stacked convolutions, group norm, no attention."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
import xarray
from torch import Tensor, nn

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.errors import DoesNotApply
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measure import Experiment, Views
from eyechart.measures.receptive_field.measure import ReceptiveField
from eyechart.measures.receptive_field.over_depth import skip_effect
from eyechart.methods.receptive import cell_radius, largest_step, radius_of_share, ring_width, summary
from eyechart.scene import Scene
from eyechart.site_choice import some_blocks_and_mixing_branches
from eyechart.sites import Anatomy
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.tracing.bench import Bench
from tests import cases
from tests.measures.staging import anatomy, batches, scene, site


def bench_of(module: nn.Module, images: Tensor, name: str = "it") -> Bench:
    subject = load_subject(module, label=name, input_size=images.shape[-1])
    found = anatomy_of(name, subject.module, images[:2], call=subject.call)
    (batch,) = batches(len(images), len(images))
    return Bench(subject, found, batch, images, None)


def estimate_of(measure: Experiment, *benches: Bench) -> xarray.Dataset:
    first = benches[0]
    where = scene(*(bench.anatomy for bench in benches), images=len(first), block=len(first))
    tally = measure.tally(where)
    found = {bench.subject.name: measure.experiment(bench) for bench in benches}
    measure.update(tally, first.batch, Views({}, found), where)
    return with_intervals(measure, tally, where)


EXACT = ReceptiveField(images=16, mode="exact")


class NormedUnit(cases.ConvUnit):
    """A unit with a normalisation in its branch."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__(6)
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.norm(self.conv1(x)).relu())


def stack_of(unit: Callable[[], nn.Module], count: int = 3) -> nn.Module:
    """Units of two 3×3 convolutions on the pixels themselves."""
    torch.manual_seed(0)
    return cases.Chain([unit() for _ in range(count)], 6, patch=1).eval()


@pytest.mark.parametrize("norm", [nn.Identity, lambda: nn.BatchNorm2d(6)], ids=["no norm", "BN in eval"])
def test_stacked_convolutions_see_2L_plus_1_pixels(norm: Callable[[], nn.Module]) -> None:
    bench = bench_of(stack_of(lambda: NormedUnit(norm())), cases.images(2))
    seen = EXACT.experiment(bench)["map"].sum(0) > 0
    for place, found in zip(some_blocks_and_mixing_branches(bench.anatomy, 12), seen, strict=True):
        reach = 2 * (place.block + 1)  # L convolutions so far
        expected = torch.zeros(32, 32, dtype=torch.bool)
        expected[16 - reach : 17 + reach, 16 - reach : 17 + reach] = True
        assert torch.equal(found, expected), place.name


def test_group_norm_sees_the_whole_image() -> None:
    bench = bench_of(stack_of(lambda: NormedUnit(nn.GroupNorm(2, 6)), 1), cases.images(2))
    assert (EXACT.experiment(bench)["map"].sum(0) > 0).all()


def without_attention() -> nn.Module:
    module = cases.vit()
    for block in cases.inside(module).blocks:
        nn.init.zeros_(block.attn.proj.weight)
        nn.init.zeros_(block.attn.proj.bias)
    return module


def test_a_vit_without_attention_sees_its_own_patch_only() -> None:
    bench = bench_of(without_attention(), cases.images(16))
    places = some_blocks_and_mixing_branches(bench.anatomy, 12)
    found = ReceptiveField(images=16).experiment(bench)["map"].sum(0)
    for place, one in zip(places, found, strict=True):
        if place.role == "block":
            assert one[16:24, 16:24].min() > 0  # the middle of 4×4 patches of 8 pixels: row 2, column 2
            one[16:24, 16:24] = 0
        assert one.abs().max() == 0, place.name
    finding = estimate_of(ReceptiveField(images=16), bench)
    blocks = finding.role.values == "block"
    assert finding.own_share.values[blocks] == pytest.approx(1)
    assert np.isnan(finding.radius.values[~blocks]).all()  # branches that add nothing see nothing
    assert "nan" not in ReceptiveField().sentence(finding)


def test_a_window_bounds_what_attention_sees() -> None:
    bench = bench_of(cases.swin(), cases.images(2))
    first = ReceptiveField(images=2).experiment(bench)["map"][:, 0].sum(0)  # attention branch of the first block
    assert (first[16:, 16:] > 0).all()  # the window of the middle cell, 4×4 cells of 4 pixels
    assert first[:16].abs().max() == first[:, :16].abs().max() == 0


def test_brute_force() -> None:
    """Channel by channel with autograd alone, through hooks: the output of a block, and its attention branch."""
    module, images = cases.vit(), cases.images(2)
    kept: dict[str, Tensor] = {}
    block = cases.inside(module).blocks[1]
    block.register_forward_hook(lambda _m, _a, output: kept.update(block=output))
    block.attn.register_forward_hook(lambda _m, _a, output: kept.update(branch=output))

    def brute(name: str) -> Tensor:
        pictures = images.clone().requires_grad_()
        module(pictures)
        token = kept[name][:, 1 + 2 * 4 + 2]
        grids = [torch.autograd.grad(token[:, c].sum(), pictures, retain_graph=True)[0] for c in range(24)]
        return torch.stack(grids).abs().mean((0, 2))

    expected = torch.stack([brute("branch"), brute("block")], 1)
    found = EXACT.experiment(bench_of(module, images))["map"][:, 2:]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-8)


def test_projections_agree_with_the_exact_mode() -> None:
    bench = bench_of(cases.swin(), cases.images(8))
    exact = estimate_of(ReceptiveField(images=8, mode="exact"), bench)
    projected = estimate_of(ReceptiveField(images=8, projections=4), bench)
    assert np.abs(exact.own_share - projected.own_share).max() < 0.05
    assert np.abs(exact.reach - projected.reach).max() < 0.03
    assert (projected.own_share_low <= projected.own_share_high).all()


def test_one_shard_and_many_see_the_same() -> None:
    vit = load_subject(cases.vit(), label="vit", input_size=32)
    source = open_images("sample")
    found_anatomy = anatomy_of("vit", vit.module, vit.prepare(source.pictures([0, 1])), call=vit.call)
    measure = ReceptiveField(images=24)
    merged = []
    for per_shard in (1, 4):
        plan = plan_batches(source, limit=32, block=8, blocks_per_shard=per_shard)
        where = Scene((found_anatomy,), 32, 4, 8, 16, source.classes)
        station = TappedSubject(vit, found_anatomy, [measure])
        tallies = [
            examine_shard([station], source, plan.batches(shard), [measure], where)["receptive_field"]
            for shard in range(len(plan.shards))
        ]
        total = tallies[0]
        for tally in tallies[1:]:
            total = total.merge(tally)
        merged.append(total.tensors())
    assert torch.allclose(merged[0]["ring"], merged[1]["ring"], rtol=1e-6)
    assert merged[0]["images"].sum() == 24


def test_signs_do_not_depend_on_how_many_images_are_used() -> None:
    bench = bench_of(cases.cnn(), cases.images(4))
    few, all_of_them = (ReceptiveField(images=count).experiment(bench)["own"] for count in (2, 4))
    torch.testing.assert_close(few, all_of_them[:2])


def test_deep_subjects_are_read_at_evenly_spaced_blocks() -> None:
    sites = [site(str(block), block=block, depth=(block + 1) / 24) for block in range(24)]
    chosen = [place.block for place in some_blocks_and_mixing_branches(anatomy("deep", sites), 12)]
    assert len(chosen) == 12
    assert (chosen[0], chosen[-1]) == (0, 23)


def test_without_a_grid_it_does_not_apply() -> None:
    with pytest.raises(DoesNotApply, match="grid"):
        ReceptiveField().tally(scene(anatomy("flat", [site("b", axes="NC", grid=None)])))


def pair() -> tuple[Bench, Bench]:
    return bench_of(cases.vit(), cases.images(16), "vit"), bench_of(cases.resnet(), cases.images(16), "cnn")


def test_claims_are_decided_for_a_vit_and_a_cnn() -> None:
    benches = pair()
    finding = estimate_of(ReceptiveField(images=16), *benches)
    finding.attrs["images"] = 64  # fewer decide nothing
    facts = {bench.subject.name: Facts.of(bench.anatomy, trained=True) for bench in benches}
    verdicts = judge(asked_of([ReceptiveField()]), {"receptive_field": finding}, facts)
    found = {verdict.claim: verdict for verdict in verdicts if verdict.verdict != "not tested"}
    assert found.keys() == {test.claim for test in asked_of([ReceptiveField()])}
    assert found["C20"].subjects == ("vit", "cnn")
    effects = {part.quantity: part.effect for part in found["C20"].parts}
    assert effects["late_own_share_after_minus_before"] == pytest.approx(skip_effect(finding, "vit"))


def test_quantities_by_hand() -> None:
    """A ViT that jumps and keeps its patch, a CNN that grows evenly and does not."""
    reach = {"vit": [0.1, 0.1, 0.3, 0.3], "cnn": [0.02, 0.04, 0.06, 0.08]}
    share = {"vit": [0.5, 0.5, 0.5, 0.5], "cnn": [0.1, 0.1, 0.1, 0.1]}
    rows = [(who, block) for who in ("vit", "cnn") for block in range(4)]
    estimate = xarray.Dataset(
        {
            "reach": ("site", [reach[who][block] for who, block in rows]),
            "own_share": ("site", [share[who][block] for who, block in rows]),
            "disc_share": ("site", [0.9, 0.3, 0.2, 0.3, 0.9, 0.9, 0.2, 0.1]),
            "persistence": ("site", [np.nan, 0.9, 0.9, 0.9, np.nan, 0.5, 0.5, 0.5]),
        },
        coords={
            "subject": ("site", [who for who, _ in rows]),
            "family": ("site", [who for who, _ in rows]),
            "role": ("site", ["block"] * 8),
            "block": ("site", [block for _, block in rows]),
            "middle": ("site", [(block + 0.5) / 4 for _, block in rows]),
            "rows": ("site", [8] * 4 + [32] * 4),
            "columns": ("site", [8] * 4 + [32] * 4),
        },
    )
    value = {quantity.name: quantity.compute(estimate) for quantity in ReceptiveField.quantities}
    assert value["early_radius_above_cnn"]["vit", "cnn"] == pytest.approx(0.08)
    bare = {"vit": 0.0499, "cnn": 0.0125}  # cells of 4 and of 1 of 32 pixels
    assert value["early_view_above_cnn"]["vit", "cnn"] == pytest.approx(0.08 - bare["vit"] + bare["cnn"], abs=1e-3)
    assert value["least_growth"]["vit", "cnn"] == pytest.approx(0.08 - bare["cnn"], abs=1e-3)
    steps = 0.2 / (0.3 - bare["vit"]), 0.02 / (0.08 - bare["cnn"])
    assert value["largest_step_above_cnn"]["vit", "cnn"] == pytest.approx(steps[0] - steps[1], abs=1e-3)
    assert value["jump_from_middle"]["vit", "cnn"] == pytest.approx(0.625 - 0.5)  # made by the third block of four
    assert value["late_disc_share_above_cnn"]["vit", "cnn"] == pytest.approx(0.2)  # the last of four blocks
    assert value["own_share_above_cnn"]["vit", "cnn"] == pytest.approx(0.4)
    assert value["persistence_above_cnn"]["vit", "cnn"] == pytest.approx(0.4)
    assert np.isnan(value["late_own_share_after_minus_before"]["vit", "cnn"])  # no branch was looked at
    assert largest_step(np.array(reach["vit"]), 4) == 1
    assert cell_radius((8, 8)) == pytest.approx(bare["vit"], abs=1e-4)


@pytest.mark.parametrize(
    "build",
    [
        cases.plain,
        cases.hybrid,
        lambda: timm.create_model("resnet10t", num_classes=5),
        lambda: timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=0, global_pool="avg", class_token=False),
    ],
    ids=["no junctions", "hybrid", "branches that add zero", "224 px without classes"],
)
def test_other_subjects_are_drawn_and_told(build: Callable[[], nn.Module]) -> None:
    size = 224 if "Transformer" in type(build()).__name__ else 64
    bench = bench_of(build().eval(), cases.images(2, size))
    measure = ReceptiveField(images=2)
    finding = estimate_of(measure, bench)
    assert np.isfinite(finding.reach.values[finding.role.values == "block"]).all()
    assert measure.chart(finding).to_dict()
    assert re.search(r"\d% \[[^]]+\] lies in its own patch", measure.sentence(finding))


def test_a_batch_beyond_the_images_wanted_costs_nothing() -> None:
    bench = bench_of(cases.cnn(), cases.images(4))
    later = replace(bench, batch=replace(bench.batch, start=64))
    assert ReceptiveField(images=64).experiment(later) == {}


def test_passes_count_how_deep_each_backward_pass_goes() -> None:
    sites = [site(str(block), block=block, depth=(block + 1) / 4) for block in range(4)]
    found: Anatomy = anatomy("it", sites)
    assert ReceptiveField().passes(found) == pytest.approx(1.5 + 2.5)
    assert ReceptiveField(mode="exact").passes(found) == pytest.approx(1.5 + 3 * 2.5)


def test_padded_strides_do_not_widen_a_view() -> None:
    """Identity through strided convolutions looks at one pixel, at the corner of its cell."""

    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(3, 3, 3, 2, 1, bias=False) for _ in range(3))
            self.units, self.head = nn.ModuleList(cases.ConvUnit(3) for _ in range(2)), nn.Linear(3, 5)

        def forward(self, x: Tensor) -> Tensor:
            for conv in self.convs:
                x = conv(x)
            for unit in self.units:
                x = unit(x)
            return self.head(x.mean((2, 3)))

    module = cases.inside(Strided())
    for conv in module.convs:
        nn.init.dirac_(conv.weight)
    for unit in module.units:
        nn.init.zeros_(unit.conv2.weight)
    finding = estimate_of(ReceptiveField(images=16), bench_of(module.eval(), cases.images(16)))
    assert (finding.radius.values[finding.role.values == "block"] < 1).all()


def test_the_radius_of_a_bare_cell_is_measured_as_it_is_computed() -> None:
    maps = torch.zeros(1, 32, 32)
    maps[:, 16:20, 16:20] = 1
    kept = summary(maps, (8, 8))
    radius = radius_of_share(kept["ring"][:, 0].double(), torch.tensor([ring_width((32, 32))], dtype=torch.float64))
    assert float(radius) / 32 == pytest.approx(cell_radius((8, 8)), rel=0.02)
