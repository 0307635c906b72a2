"""M18 on maps whose spectra are known, in real subjects, and taken apart by hand."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor

from eyechart.intervals import with_intervals
from eyechart.measure import Views
from eyechart.measures.fourier.measure import PARTS, Fourier, depth_part, mean_change, stride_to, views_of
from eyechart.methods.spectrum import BANDS, describe
from eyechart.site_choice import attention_of, sub_layers
from eyechart.sites import Anatomy, Kind
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.tracing.bench import Bench
from eyechart.tracing.rasters import on_grid, raster
from tests.measures import staging
from tests.measures.benches import bench_of, whole_and_in_shards


@pytest.fixture(scope="module")
def vit() -> Bench:
    return bench_of("zoo:vit")


@pytest.fixture(scope="module")
def resnet() -> Bench:
    return bench_of("zoo:resnet")


def seen_by_hooks(bench: Bench, path: str) -> Tensor:
    kept: list[Tensor] = []
    module = bench.subject.module.get_submodule(path)
    handle = module.register_forward_hook(lambda module, args, output: kept.append(output))
    with torch.no_grad():
        bench.subject.call(bench.images)
    handle.remove()
    return kept[0]


def test_a_vits_spectrum_is_that_of_its_tokens_on_the_grid(vit: Bench) -> None:
    found = Fourier(images=4).experiment(vit)
    tokens = seen_by_hooks(vit, "blocks.2")
    maps = tokens[:, 1:].transpose(1, 2).reshape(4, -1, 8, 8)
    power = torch.fft.fft2(maps.double()).abs().square().mean(1)
    row = [site.name for site in sub_layers(vit.anatomy)].index("blocks.2 mlp junction")
    expected = torch.stack([power[:, k, k] for k in range(5)], dim=1)
    assert torch.allclose(found["along"][:, row, 0].double(), expected, rtol=1e-4)
    assert torch.allclose(found["energy"][:, row, 0].sum(1), maps.square().mean((1, 2, 3)), rtol=1e-4)


def test_a_skip_is_what_the_sub_layer_before_left_and_parts_add_up(vit: Bench) -> None:
    found = Fourier(images=4).experiment(vit)["along"]
    result, skip = found[:, :, PARTS.index("result")], found[:, :, PARTS.index("skip")]
    assert torch.allclose(skip[:, 1:], result[:, :-1], rtol=1e-4)
    assert found[:, :, PARTS.index("strided")].isnan().all()
    attention = [site.kind == "attention" for site in sub_layers(vit.anatomy)]
    assert not found[:, attention, PARTS.index("values")].isnan().any()


def test_the_attention_matrix_is_seen_as_a_filter_of_its_values(vit: Bench) -> None:
    """Uniform attention passes the mean of the values, class token included, and nothing else."""
    from eyechart.tracing.interventions import ReplaceAttention

    site = vit.anatomy.pick("attention")[3]
    wanted = [view for _, _, where, view in views_of(vit.anatomy, "power") if where.name == site.name]
    plain = vit.look({site.name: wanted})[site.name]
    even = [ReplaceAttention(site.name, lambda weights: torch.full_like(weights, 1 / weights.shape[-1]))]
    flat = vit.look({site.name: wanted}, even)[site.name]
    assert torch.allclose(plain["values spectrum, power"], flat["values spectrum, power"])
    mixed = flat["mixed spectrum, power"]
    assert (mixed[:, 1:5] < 1e-8 * mixed[:, :1]).all()
    assert torch.allclose(mixed[:, -len(BANDS)], mixed[:, -len(BANDS) :].sum(1))


def test_identity_attention_changes_no_frequency(vit: Bench) -> None:
    from eyechart.tracing.interventions import ReplaceAttention

    site = vit.anatomy.pick("attention")[0]
    wanted = [view for _, _, where, view in views_of(vit.anatomy, "power") if where.name == site.name]
    same = [ReplaceAttention(site.name, lambda w: torch.eye(w.shape[-1]).expand_as(w).contiguous())]
    seen = vit.look({site.name: wanted}, same)[site.name]
    assert torch.allclose(seen["mixed spectrum, power"], seen["values spectrum, power"], rtol=1e-4)


def test_the_strided_control_is_the_map_before_with_every_second_position(resnet: Bench) -> None:
    found = Fourier(images=4).experiment(resnet)
    layers = [site.name for site in sub_layers(resnet.anatomy)]
    before = seen_by_hooks(resnet, "layer1.1")
    expected = describe(before[..., ::2, ::2], "power")[:, : -len(BANDS)]
    row = layers.index("layer2.0")
    assert torch.allclose(found["along"][:, row, PARTS.index("strided"), :9], expected, rtol=1e-4)
    striding = [not found["along"][0, row, PARTS.index("strided"), 0].isnan() for row in range(len(layers))]
    assert [layers[row] for row in range(len(layers)) if striding[row]] == ["layer2.0", "layer3.0", "layer4.0"]


def test_windows_and_their_shifts_are_laid_out_as_the_picture() -> None:
    """In Swin the values of all windows, on the grid, are the qkv projection of the tokens in picture order."""
    bench = bench_of("zoo:swin", 2)
    for block in (0, 1):  # plain and shifted windows
        site = bench.anatomy.pick("attention")[block]
        wanted = [view for _, _, where, view in views_of(bench.anatomy, "power") if where.name == site.name]
        seen = bench.look({site.name: wanted})[site.name]["values spectrum, power"]
        attention = next(path for path, _ in bench.subject.module.named_modules() if path.endswith(f"0.blocks.{block}"))
        norm, qkv = (bench.subject.module.get_submodule(f"{attention}.{part}") for part in ("norm1", "attn.qkv"))
        kept: list[Tensor] = []
        handle = bench.subject.module.get_submodule(attention).register_forward_pre_hook(
            lambda module, args, kept=kept: kept.append(args[0])
        )
        with torch.no_grad():
            bench.subject.call(bench.images)
            values = qkv(norm(kept[0].reshape(2, 16, 16, -1))).chunk(3, dim=-1)[2]
        handle.remove()
        assert torch.allclose(seen, describe(values.permute(0, 3, 1, 2), "power"), rtol=1e-3)


def test_rasters_want_each_cell_once() -> None:
    places = np.array([[[np.nan, np.nan], [12, 4], [4, 4], [4, 12], [12, 12]]], dtype=float)
    order = raster(places, (2, 2))
    assert order is not None
    assert order.tolist() == [2, 3, 1, 4]
    assert raster(places[:, :4], (2, 2)) is None
    assert raster(None, (2, 2)) is None
    tokens = torch.arange(5.0).view(1, 1, 1, 5, 1).expand(1, 1, 2, 5, 3)
    maps = on_grid(tokens, places, (2, 2))
    assert maps is not None
    assert maps.shape == (1, 6, 2, 2)
    assert maps[0, 0].tolist() == [[2, 3], [1, 4]]


@pytest.mark.parametrize(
    ("before", "after", "step"),
    [
        ((56, 56), (28, 28), 2),
        ((31, 31), (16, 16), 2),
        ((8, 8), (8, 8), None),
        ((32, 32), (8, 8), 4),
        ((8, 8), (5, 5), None),
    ],
)
def test_strides(before: tuple[int, int], after: tuple[int, int], step: int | None) -> None:
    assert stride_to(staging.site("a", grid=before), staging.site("b", grid=after)) == step


# --- statistics ---------------------------------------------------------------------------------------------------


def toy(blocks: int = 6) -> Anatomy:
    """A stem and blocks of an attention and an MLP, on an 8×8 grid, with a class token."""
    sites = [staging.site("stem", "stem", prefix=1, grid=(8, 8), block=-1)]
    for block in range(blocks):
        depth = (block + 1) / blocks
        sites.append(
            staging.site(
                f"b{block} attn", "attention", "attention", axes="", prefix=1, grid=(8, 8), block=block,
                attention=staging.full_grid(8, 4, 1), heads=1,
            )
        )  # fmt: skip
        kinds: tuple[Kind, ...] = ("attention", "mlp")
        sites += [
            staging.site(f"b{block} {kind}", "junction", kind, prefix=1, grid=(8, 8), block=block, depth=depth)
            for kind in kinds
        ]
        sites.append(staging.site(f"b{block}", "block", "attention", prefix=1, grid=(8, 8), block=block, depth=depth))
    return staging.anatomy("toy", sites)


def finding_of(anatomy: Anatomy, spectra: Tensor, images: int = 64) -> xarray.Dataset:
    """A finding from power spectra (image, site, part, frequency): every batch of 16 gets its share."""
    measure, scene = Fourier(images=images), staging.scene(anatomy, images=images)
    tally = measure.tally(scene)
    for batch in staging.batches(images, 16):
        along = spectra[batch.images]
        energy = along[..., -1:].expand(*along.shape[:-1], len(BANDS))
        found = {"along": along, "energy": energy, "folds": torch.as_tensor(batch.image_folds)}
        measure.update(tally, batch, Views({}, {"toy": found}), scene)
    return with_intervals(measure, tally, scene)


def test_changes_and_their_claims() -> None:
    """Early attention raises the highest frequency by e^0.1, later ones lower it by e^0.2; MLPs raise it by e^0.3."""
    anatomy = toy()
    layers = sub_layers(anatomy)
    power = torch.ones(64, len(layers), len(PARTS), 5, dtype=torch.float64)
    wobble = 1 + 0.01 * torch.randn(64, generator=torch.Generator().manual_seed(0)).double()
    for row, site in enumerate(layers):
        change = {"attention": 0.1 if site.block < 2 else -0.2, "mlp": 0.3}.get(site.kind, 0.0)
        power[:, row, PARTS.index("result"), -1] = math.exp(2 * (change + 0.5)) * wobble
    for part, level in (("skip", 0.5), ("branch", -0.2), ("values", 0.4), ("mixed", -0.9), ("strided", 0.1)):
        power[:, :, PARTS.index(part), -1] = math.exp(2 * level)
    finding = finding_of(anatomy, power)
    read = {
        str(name): float(value)
        for name, value in zip(finding.quantity.values, finding.quantity_value.values, strict=True)
    }
    level = 0.5 * math.log(wobble.mean())
    assert read["early_attention_frequency_change"] == pytest.approx(0.1 + level)
    assert read["late_attention_frequency_change"] == pytest.approx(-0.2 + level)
    assert read["late_mlp_frequency_change"] == pytest.approx(0.3 + level)
    assert read["late_attention_high_energy_change"] == pytest.approx(-0.2 + level)
    assert read["late_mlp_high_energy_change"] == pytest.approx(0.3 + level)
    assert read["early_attention_high_energy_change"] == pytest.approx(0.1 + level)
    assert read["typical_late_mlp_frequency_change"] == pytest.approx(0.3 + level)
    assert finding.branch_change.values == pytest.approx(-0.7)
    assert finding.matrix_change.values == pytest.approx(-1.3)
    assert finding.strided_change.values[1] == pytest.approx(0.5 + level)  # first attention: .5 + .1 − .1
    assert float(finding.highest_high[3] - finding.highest_low[3]) < 0.02
    assert finding.attrs["images"] == 64


def test_last_two_thirds_by_block() -> None:
    finding = finding_of(toy(9), torch.ones(64, 19, len(PARTS), 5, dtype=torch.float64))
    blocks = finding.block.values
    assert blocks[depth_part(finding, "toy", "attention", late=False)].tolist() == [0, 1, 2]
    assert blocks[depth_part(finding, "toy", "mlp", late=True)].tolist() == [3, 4, 5, 6, 7, 8]
    assert mean_change("change", "mlp", late=True)(finding_of(toy(2), torch.ones(64, 5, 6, 5).double())) == {}


def test_attention_belongs_to_the_junction_of_its_block() -> None:
    anatomy = toy(2)
    found = [attention_of(anatomy, site) for site in sub_layers(anatomy)]
    assert [site.name if site else None for site in found] == [None, "b0 attn", None, "b1 attn", None]


def test_attention_that_is_the_whole_block_is_taken_apart_too() -> None:
    """AlterNet's blocks of attention have one sum, so they are read at their output: E5 must not lose them."""
    kept: dict[str, Tensor] = {}
    bench = bench_of("zoo:alternet")
    module = bench.subject.module
    qkv, proj = (module.get_submodule(f"stages.1.blocks.3.attn.{name}") for name in ("qkv", "proj"))
    qkv.register_forward_hook(lambda module, args, output: kept.update(values=output.chunk(3, -1)[2]))
    proj.register_forward_pre_hook(lambda module, args: kept.update(mixed=args[0]))
    found = Fourier(images=4).experiment(bench)["along"]
    row = [site.name for site in sub_layers(bench.anatomy)].index("stages.1.blocks.3")
    for part, tokens in kept.items():
        windows = tokens.reshape(4, 4, 4, 4, 4, -1)  # image, row of windows, column of windows, row, column, channel
        maps = windows.permute(0, 5, 1, 3, 2, 4).reshape(4, -1, 16, 16)
        power = torch.fft.fft2(maps.double()).abs().square().mean(1)
        expected = torch.stack([power[:, k, k] for k in range(9)], dim=1)
        assert torch.allclose(found[:, row, PARTS.index(part), :9].double(), expected, rtol=1e-3)


# --- whole exams --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair() -> list[Subject]:
    return [load_subject("zoo:vit"), load_subject("zoo:resnet")]


def test_a_vit_and_a_resnet_in_one_shard_and_in_many(pair: list[Subject]) -> None:
    measure = Fourier(images=24)
    whole, merged, scene = whole_and_in_shards(measure, pair, 32)
    for name, values in whole.tensors().items():
        assert torch.allclose(values, merged.tensors()[name], rtol=1e-12, equal_nan=True)
    finding = with_intervals(measure, whole, scene)
    assert finding.attrs["images"] == 24
    own = finding.isel(site=finding.subject.values == "zoo:vit")
    assert np.isfinite(own.change.values[1:]).all()
    attention = own.kind.values == "attention"
    assert (own.matrix_change.values[attention] < 0).all()  # the matrix alone is a low-pass (Wang et al. 2022)
    assert np.isnan(own.matrix_change.values[~attention]).all()
    assert np.allclose(own.radians.values[0, :5] / np.pi, [0, 0.25, 0.5, 0.75, 1])
    for each in measure.sentence(finding).split("; "):  # the page makes each a sentence of its own
        assert re.match(r"[Ii]n zoo:\w+ the highest frequency clearly rises against the mean at \d of \d ", each)
    assert measure.chart(finding).to_dict()


def test_the_papers_average_is_an_option(vit: Bench) -> None:
    paper = Fourier(average="paper", images=4).experiment(vit)
    tokens = seen_by_hooks(vit, "blocks.2")
    maps = tokens[:, 1:].transpose(1, 2).reshape(4, -1, 8, 8)
    logs = (torch.fft.fft2(maps.double()).abs() + 1e-6).log().mean(1)
    row = [site.name for site in sub_layers(vit.anatomy)].index("blocks.2 mlp junction")
    expected = torch.stack([logs[:, k, k] for k in range(5)], dim=1)
    assert torch.allclose(paper["along"][:, row, 0].double(), expected, rtol=1e-3)
    plain = Fourier(images=4).experiment(vit)
    assert torch.equal(paper["energy"].nan_to_num(), plain["energy"].nan_to_num())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("timm:vit_tiny_patch16_224@random", {"depth": 2}),
        ("timm:resnet18@random", {"layers": (1, 1, 1, 1)}),
        ("torchvision:resnet18@random", {}),
    ],
)
def test_large_pictures_and_odd_grids(name: str, options: dict[str, Any]) -> None:
    import timm

    model = timm.create_model(name.split(":")[1].split("@")[0], **options) if name.startswith("timm") else name
    bench = bench_of(model, 2)
    found = Fourier(images=2).experiment(bench)
    grids = [site.grid for site in sub_layers(bench.anatomy)]
    for row, grid in enumerate(grids):
        assert grid is not None
        ends = min(grid) // 2 + 1
        assert found["along"][:, row, 0, :ends].isfinite().all()
        assert found["along"][:, row, 0, ends:].isnan().all()
    if "resnet" in name:
        assert grids[-1] == (7, 7)
