"""Variance over positions on maps with a known answer (SPEC Appendix A, M19)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from eyechart.exact_bounds import exact_ends
from eyechart.measures.feature_variance.measure import FeatureVariance, share_that, variance_and_square
from eyechart.methods.steps import UNMOVED
from eyechart.site_choice import skip_of, sub_layers
from eyechart.sites import Kind, Site
from eyechart.tracing.views import Look
from tests.measures.staging import anatomy, measure_tensors, scene, site


def variance(features: torch.Tensor) -> float:
    """Of maps (image, channel, y, x), averaged over images."""
    rows, columns = features.shape[2:]
    place = site("s", axes="NCYX", grid=(rows, columns))
    return float(variance_and_square(features, place.layout)[:, 0].mean())


def test_averaging_disjoint_positions_divides_by_their_number() -> None:
    noise = torch.randn(400, 8, 16, 16, generator=torch.Generator().manual_seed(0))
    pooled = torch.nn.functional.avg_pool2d(noise, 2)
    assert variance(pooled) == pytest.approx(variance(noise) / 4, rel=0.02)


def test_sliding_circular_windows() -> None:
    # Var over N positions of circular means of k: N/(N-1) · (1/k - 1/N) of the noise's variance.
    noise = torch.randn(400, 8, 8, 8, generator=torch.Generator().manual_seed(1))
    blurred = torch.stack([noise.roll((y, x), (2, 3)) for y in (0, 1) for x in (0, 1)]).mean(0)
    expected = 64 / 63 * (1 / 4 - 1 / 64)
    assert variance(blurred) == pytest.approx(expected, rel=0.02)


def test_unbiased_and_per_channel() -> None:
    features = torch.randn(3, 5, 4, 4)
    expected = np.mean([np.var(features[n, c].numpy(), ddof=1) for n in range(3) for c in range(5)])
    assert variance(features + 100 * torch.arange(5.0)[:, None, None]) == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
@pytest.mark.parametrize("axes", ["NCYX", "NYXC", "NTC", "NCT"])
def test_all_layouts_some_images_at_a_time(axes: str, offset: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyechart.tracing.in_cache.AT_ONCE", 2 * 5 * 16)
    maps = torch.randn(3, 5, 4, 4, generator=torch.Generator().manual_seed(0)) + offset
    flat = maps.flatten(2).double()
    given = {"NCYX": maps, "NYXC": maps.permute(0, 2, 3, 1), "NCT": maps.flatten(2), "NTC": maps.flatten(2).mT}[axes]
    seen = variance_and_square(given, site("s", axes=axes, grid=(4, 4)).layout).double()
    expected = torch.stack([flat.var(2).mean(1), flat.square().mean((1, 2))], dim=1)
    torch.testing.assert_close(seen, expected, rtol=1e-6 * max(1.0, offset / 10), atol=0)


def test_prefix_tokens_are_no_positions() -> None:
    tokens = torch.randn(2, 5, 6)
    tokens[:, 0] = 1e3
    seen = variance_and_square(tokens, site("s", prefix=1).layout)
    torch.testing.assert_close(seen[:, 0], tokens[:, 1:].var(1).mean(1))


def vit_sites(blocks: int = 2) -> list[Site]:
    sites = [site("stem", "stem", prefix=1, block=-1)]
    for b in range(blocks):
        sites.append(site(f"{b} attention", "junction", "attention", prefix=1, block=b, depth=(b + 0.5) / blocks))
        sites.append(site(f"{b} mlp", "junction", "mlp", prefix=1, block=b, depth=(b + 1) / blocks))
        sites.append(site(f"{b}", "block", "other", prefix=1, block=b, depth=(b + 1) / blocks))
    return sites


def resnet_sites() -> list[Site]:
    sites = [site("stem", "stem", axes="NCYX", grid=(8, 8), block=-1)]
    for b, (grid, projected) in enumerate([((8, 8), False), ((8, 8), False), ((4, 4), True), ((4, 4), False)]):
        stage = 0 if b < 2 else 1
        sites.append(
            site(f"{b} add", "junction", "conv", axes="NCYX", grid=grid, block=b, stage=stage, projected=projected)
        )
        sites.append(site(f"{b}", "block", "conv", axes="NCYX", grid=grid, block=b, stage=stage, depth=(b + 1) / 4))
    return sites


def test_a_block_with_one_addition_is_read_at_its_output() -> None:
    assert [s.name for s in sub_layers(anatomy("v", vit_sites()))] == [
        "stem",
        "0 attention",
        "0 mlp",
        "1 attention",
        "1 mlp",
    ]
    assert [s.name for s in sub_layers(anatomy("c", resnet_sites(), "cnn"))] == ["stem", "0", "1", "2", "3"]


def test_a_step_needs_an_unprojected_skip() -> None:
    cnn, vit = anatomy("c", resnet_sites(), "cnn"), anatomy("v", vit_sites())
    met = [skip_of(cnn, place) for place in sub_layers(cnn)]
    assert [skip and skip.name for skip in met] == [None, "0 add", "1 add", None, "3 add"]
    assert [skip_of(vit, place) for place in sub_layers(vit)] == [None, *vit.pick("junction")]


def chain(sites: list[Site], levels: dict[str, float], noise: torch.Tensor) -> dict[str, Look]:
    """Looks at a stream whose log variance is set by hand: `levels` after each site, the skip before it."""
    looks, level = {}, 0.0
    for place in sites:
        before, level = level, levels.get(place.name, level)
        features = noise[:, noise.shape[1] - place.layout.prefix - 4 :]
        looks[place.name] = Look(
            place, output=features * np.exp(level / 2), skip=features * np.exp(before / 2), branch=features
        )
    return looks


def test_the_finding_and_its_steps() -> None:
    noise = torch.randn(64, 5, 8, generator=torch.Generator().manual_seed(2))
    vit = vit_sites(blocks=10)  # of which the first half counts: five blocks that smooth, then five that do not
    levels, level = {}, 0.0
    for place in vit:
        if place.role == "junction":
            level += (-0.7 if place.block < 5 else 0.4) if place.kind == "attention" else 1.1
        levels[place.name] = level
    cnn = [site("c stem", "stem", block=-1)]
    for b in range(6):
        cnn += [
            site(f"c{b} add", "junction", "conv", block=b),
            site(f"c{b}", "block", "conv", block=b, depth=(b + 1) / 7),
        ]
    cnn.append(site("c6", "block", "conv", grid=(1, 3), block=6, stage=1, depth=1))
    # The sum rises by 2 and the activation takes half of that back: the unit's step is from its skip to its output.
    rises = {f"c{b} add": b + 2.0 for b in range(6)} | {f"c{b}": b + 1.0 for b in range(6)}
    looks = {("v", name): look for name, look in chain(vit, levels, noise).items()}
    looks |= {("c", name): look for name, look in chain(cnn, rises, noise).items()}
    looks["c", "c6"] = Look(cnn[-1], output=noise[:, :3])
    finding = measure_tensors(FeatureVariance(), scene(anatomy("v", vit), anatomy("c", cnn, "cnn")), looks, 4)
    expected = noise[:, 1:].double().var(1).mean(1).mean()
    assert float(finding.variance[0]) == pytest.approx(float(expected), rel=1e-5)
    assert float(finding.relative[0]) == pytest.approx(
        float(expected / noise[:, 1:].double().square().mean()), rel=1e-5
    )
    rows = dict(zip(finding.quantity.values.tolist(), finding.quantity_value.values.tolist(), strict=True))
    lows = dict(zip(finding.quantity.values.tolist(), finding.quantity_low.values.tolist(), strict=True))
    for name, among in (("attention_lowers", 5), ("mlp_raises", 5), ("conv_raises", 6)):
        assert rows[f"{name}_variance"] == 1
        # Not [1, 1]: all of five agree by chance in one case of 32.
        assert lows[f"{name}_variance"] == pytest.approx(0.05 ** (1 / among))


def test_stage_position_of_a_staged_transformer() -> None:
    """Two stages of two blocks, steps set by hand; the first attention of a stage counts, though the grid is new."""
    steps = {0: (-1.0, 0.5), 1: (0.25, 0.5), 2: (-2.0, 0.0), 3: (1.0, 0.5)}  # block: (attention, MLP)
    kinds: tuple[Kind, Kind] = ("attention", "mlp")
    sites, levels, level = [site("stem", "stem", block=-1)], {}, 0.0
    for block, both in steps.items():
        stage, grid = block // 2, (2, 2) if block < 2 else (1, 4)
        for kind, step in zip(kinds, both, strict=True):
            level += step
            place = site(f"{block} {kind}", "junction", kind, block=block, stage=stage, grid=grid)
            levels[place.name] = level
            sites.append(place)
        sites.append(site(f"{block}", "block", "attention", block=block, stage=stage, grid=grid, depth=(block + 1) / 4))
        levels[f"{block}"] = level
    looks = {("s", name): look for name, look in chain(sites, levels, torch.randn(64, 4, 8)).items()}
    finding = measure_tensors(FeatureVariance(), scene(anatomy("s", sites)), looks, 4)
    rows = dict(zip(finding.quantity.values.tolist(), finding.quantity_value.values.tolist(), strict=True))
    # Attention alone: stage 0 from −1 to .25, stage 1 from −2 to 1.
    assert rows["attention_at_stage_start"] == pytest.approx(-1.5, abs=1e-4)
    assert rows["attention_at_stage_end"] == pytest.approx(0.625, abs=1e-4)
    assert rows["attention_stage_contrast"] == pytest.approx(2.125, abs=1e-4)
    # Stretched features keep their variance over the mean square.
    assert rows["attention_stage_contrast_relative"] == pytest.approx(0, abs=1e-4)
    assert FeatureVariance().chart(finding).to_dict()


def test_a_constant_moves_one_scale_and_a_stretch_the_other() -> None:
    """Neither scale is safe alone, so each claim is read on both."""
    noise = torch.randn(64, 4, 8, generator=torch.Generator().manual_seed(3))
    sites = [
        site("stem", "stem", block=-1),
        site("a", "junction", "attention", block=0),
        site("m", "junction", "mlp", block=0),
        site("b", "block", "attention", block=0),
    ]
    looks = {
        ("s", "stem"): Look(sites[0], output=noise),
        ("s", "a"): Look(sites[1], output=noise + 1, skip=noise, branch=torch.ones_like(noise)),
        ("s", "m"): Look(sites[2], output=2 * noise, skip=noise, branch=noise),
        ("s", "b"): Look(sites[3], output=noise),
    }
    finding = measure_tensors(FeatureVariance(), scene(anatomy("s", sites)), looks, 4)
    step, relative = finding.step.values, finding.relative_step.values
    assert abs(step[1]) < UNMOVED
    assert relative[1] == pytest.approx(-np.log(2), abs=0.1)  # mean 1 beside variance 1
    assert step[2] == pytest.approx(2 * np.log(2), abs=1e-5)
    assert abs(relative[2]) < UNMOVED
    assert FeatureVariance().sentence(finding) == (
        "In s the variance clearly rises at 0 of 1 attention sub-layers (over the mean square: at 0) "
        "and at 1 of 1 MLP sub-layers (over the mean square: at 0)."
    )
    assert np.isnan(share_that(rising=True)(step[1:2]))  # what did not move says nothing


@pytest.mark.parametrize("things", range(1, 41))
def test_the_exact_interval_decides_as_the_sign_test_does(things: int) -> None:
    from scipy.stats import binomtest

    for up in range(things + 1):
        share = np.array(share_that(rising=True)(np.array([1.0] * up + [-1.0] * (things - up))))
        low, high = exact_ends(share, share, things)
        assert 0 <= low < high <= 1
        assert low <= share <= high
        ways: tuple[tuple[bool, Literal["greater", "less"]], ...] = (
            (bool(low > 0.5), "greater"),
            (bool(high < 0.5), "less"),
        )
        for clear, way in ways:
            assert clear == (binomtest(up, things, alternative=way).pvalue < 0.05), f"{up} of {things}"


def test_what_images_move_widens_the_exact_interval() -> None:
    """A sub-layer of five that goes either way: the exact bounds of four and of five that agree."""
    low, high = exact_ends(np.array(0.8), np.array(1.0), 5)
    assert float(low) == pytest.approx(0.343, abs=1e-3)
    assert high == 1
