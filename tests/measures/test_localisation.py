"""Localisation on tokens whose place is known (SPEC Appendix A, M7), and its parts against plain loops."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
import xarray

from eyechart.charts.tables import table_of
from eyechart.claims.asking import asked_of
from eyechart.errors import DoesNotApply, UsageError
from eyechart.intervals import bootstrap, bootstrap_weights, small_size
from eyechart.measures import find_measure
from eyechart.measures.localisation.chart import at_the_last_block
from eyechart.measures.localisation.measure import Localisation
from eyechart.measures.localisation.quantities import best_third, earlier_gain, over_best, units_sentence, with_cnn
from eyechart.methods.hsic import gram, hsic_table
from eyechart.methods.places import (
    asked,
    cell_means,
    cells_of,
    cut,
    picture_patches,
    place_names,
    read,
    tokens_in_cells,
)
from eyechart.sites import Anatomy, Layout, Site
from eyechart.tracing.views import Look
from tests.measures.on_subjects import finding_of
from tests.measures.staging import anatomy, measure_tensors, scene, site


@pytest.mark.parametrize(("size", "cells"), [((12, 8), (3, 4)), ((11, 9), (4, 4))])
def test_pictures_are_cut_row_by_row(size: tuple[int, int], cells: tuple[int, int]) -> None:
    pictures = torch.randn(2, 3, *size)
    patches = cut(pictures, cells)
    y, x = -(-size[0] // cells[0]), -(-size[1] // cells[1])
    if size != (y * cells[0], x * cells[1]):
        pictures = torch.nn.functional.interpolate(pictures, (y * cells[0], x * cells[1]), mode="bilinear")
    for row in range(cells[0]):
        for column in range(cells[1]):
            expected = pictures[:, :, row * y : (row + 1) * y, column * x : (column + 1) * x]
            torch.testing.assert_close(patches[:, row * cells[1] + column], expected)


@pytest.mark.parametrize("cells", [(4, 5), (9, 9)])
def test_readings_against_loops(cells: tuple[int, int]) -> None:
    tokens = asked(cells)
    table = np.random.default_rng(0).random((len(tokens), cells[0] * cells[1]))
    table[::3, tokens[::3]] += np.eye(len(tokens))[::3, ::3]  # some tokens hit
    hits, sharp, away, edges, own, around = [], [], [], [], [], []
    for row, token in enumerate(tokens):
        y, x = divmod(int(token), cells[1])
        places = [divmod(patch, cells[1]) for patch in range(cells[0] * cells[1])]
        at_edge = [v in (0, cells[0] - 1) or u in (0, cells[1] - 1) for v, u in places]
        if at_edge[token]:
            far = [patch for patch, (v, u) in enumerate(places) if max(abs(v - y), abs(u - x)) > 1]
            means = [np.mean([table[row, p] for p in far if at_edge[p] == edge]) for edge in (True, False)]
            edges.append(means)
            continue
        others = np.delete(table[row], token)
        best = places[int(table[row].argmax())]
        hits.append(best == (y, x))
        own.append(table[row, token])
        near = [patch for patch, (v, u) in enumerate(places) if max(abs(v - y), abs(u - x)) == 1]
        around.append(np.mean([table[row, patch] for patch in near]))
        sharp.append((table[row, token] - others.mean()) / others.std())
        away.append(np.hypot((best[0] - y) / cells[0], (best[1] - x) / cells[1]))
    reading = read(table, cells)
    assert 0 < reading.hit_rate < 1
    found = (reading.hit_rate, reading.sharpness, reading.displacement, reading.edge_likeness)
    gaps = [edge - inside for edge, inside in edges]
    assert found == pytest.approx([np.mean(each) for each in (hits, sharp, away, gaps)], abs=1e-9)
    assert reading.peak == pytest.approx((np.mean(own) - np.mean(around)) / (np.mean(own) + np.mean(around)))
    rest = np.mean(
        [np.delete(table[row], token).mean() for row, token in enumerate(tokens) if table[row, token] in own]
    )
    assert reading.own_contrast == pytest.approx((np.mean(own) - rest) / (np.mean(own) + rest))
    edge, inside = np.mean(edges, axis=0)
    assert reading.edge_contrast == pytest.approx((edge - inside) / (edge + inside))
    assert reading.interior == len(hits)


def test_a_patch_that_never_varies_is_left_out() -> None:
    table = np.eye(16)
    table[:, 5] = np.nan  # an interior patch: its own token has nothing to hit
    table[6, 6], table[6, 9] = 0, 1  # and one of the other three interior tokens misses
    assert read(table, (4, 4)).hit_rate == pytest.approx(2 / 3)


def smooth_pictures(n: int, side: int, generator: torch.Generator) -> torch.Tensor:
    """Noise whose amplitude falls as 1/frequency, as in natural pictures, cut out of larger ones so nothing wraps."""
    big = 2 * side
    y, x = torch.meshgrid(torch.fft.fftfreq(big), torch.fft.fftfreq(big), indexing="ij")
    fall = 1 / torch.hypot(y, x).clamp_min(1 / big)
    spectrum = torch.fft.fft2(torch.randn(n, 3, big, big, generator=generator)) * fall
    return torch.fft.ifft2(spectrum).real[..., :side, :side]


def raw_patches(pictures: torch.Tensor, cells: tuple[int, int]) -> torch.Tensor:
    return cut(pictures, cells).flatten(2)


def run(
    pictures: torch.Tensor,
    tokens: torch.Tensor,
    grid: tuple[int, int],
    measure: Localisation | None = None,
    prefix: int = 0,
    block: int = 16,
) -> xarray.Dataset:
    place = site("last", prefix=prefix, grid=grid)
    who = vit("v", place, pooling="cls" if prefix else "gap")
    looks = {("v", "last"): Look(place, output=tokens), ("v", who.input.name): Look(who.input, output=pictures)}
    where = scene(who, images=len(pictures), block=block)
    return measure_tensors(measure or Localisation(), where, looks, block)


def vit(name: str, place: Site, pooling: Literal["cls", "gap"]) -> Anatomy:
    cls = 0 if pooling == "cls" else None
    return Anatomy(name, (place,), (), (16, 16), "transformer", cls, pooling)


def quantities(finding: xarray.Dataset) -> dict[tuple[str, str], float]:
    names = zip(finding.quantity.values.tolist(), finding.quantity_subjects.values.tolist(), strict=True)
    return dict(zip(names, finding.quantity_value.values.tolist(), strict=True))


def test_a_token_that_is_its_own_raw_patch_hits() -> None:
    pictures = smooth_pictures(128, 16, torch.Generator().manual_seed(1))
    finding = run(pictures, raw_patches(pictures, (4, 4)), (4, 4))
    own = np.diagonal(finding.cka.values[0])
    assert quantities(finding)["hit_rate", "v"] == 1
    assert quantities(finding)["displacement", "v"] == 0
    row = finding.isel(quantity_row=finding["quantity"].values == "displacement")
    assert float(row.quantity_high[0]) > 0.2, "of four inner tokens that all hit one may well miss: no bare [0, 0]"
    assert own == pytest.approx(np.ones(16), abs=1e-5)


def test_a_token_that_is_its_right_neighbour_misses_by_one_cell() -> None:
    pictures = torch.randn(128, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    patches = raw_patches(pictures, (4, 4)).unflatten(1, (4, 4))
    finding = run(pictures, patches.roll(-1, dims=2).flatten(1, 2), (4, 4))
    assert quantities(finding)["hit_rate", "v"] == 0
    assert quantities(finding)["displacement", "v"] == pytest.approx(1 / 4)


def test_the_global_mean_is_flat_on_white_pictures_and_a_dome_on_natural_ones() -> None:
    generator = torch.Generator().manual_seed(3)
    cells = (8, 8)

    def mean_map(pictures: torch.Tensor) -> np.ndarray:
        patches = raw_patches(pictures, cells)
        token = patches.mean(1, keepdim=True).expand(-1, 64, -1)
        finding = run(pictures, token, cells, block=64)
        table: np.ndarray = finding.cka.values[0]
        np.testing.assert_allclose(table, np.broadcast_to(finding.reference_cka.values[0, 0], (64, 64)), atol=1e-5)
        assert quantities(finding)["hit_rate", "v"] <= 1 / 36  # one place for all tokens: at most one of 36 hits
        return table[0].reshape(8, 8)

    white = mean_map(torch.randn(1024, 3, 16, 16, generator=generator))
    natural = mean_map(smooth_pictures(1024, 16, generator))
    corners = natural[[0, 0, -1, -1], [0, -1, 0, -1]]
    assert white.max() - white.min() < 0.05
    assert corners.max() + 0.15 < natural[3:5, 3:5].min()


def test_the_class_token_is_told_from_the_grid() -> None:
    pictures = torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    patches = raw_patches(pictures, (4, 4))
    finding = run(pictures, torch.cat([patches[:, 5:6], patches], dim=1), (4, 4), prefix=1)
    assert quantities(finding)["hit_rate", "v"] == 1
    assert int(finding.reference_cka.sel(reference="class token").values[0].argmax()) == 5
    assert finding.token_place.values[0, :2].tolist() == ["row 1, column 1", "row 1, column 2"]
    without = run(pictures, patches, (4, 4))
    assert np.isnan(without.reference_cka.sel(reference="class token").values).all()


def test_without_mean_colour_a_token_of_mean_colours_knows_nothing() -> None:
    pictures = torch.randn(256, 3, 16, 16, generator=torch.Generator().manual_seed(5))
    colours = cut(pictures, (4, 4)).mean((3, 4))
    assert quantities(run(pictures, colours, (4, 4)))["hit_rate", "v"] == 1
    removed = run(pictures, colours, (4, 4), Localisation(colour="removed"))
    assert np.abs(removed.cka.values).max() < 0.1
    assert not asked_of([Localisation(colour="removed")])
    textures = cut(pictures, (4, 4)).flatten(2)
    assert quantities(run(pictures, textures, (4, 4), Localisation(colour="removed")))["hit_rate", "v"] == 1


def test_the_length_of_tokens_does_not_matter_once_normalised() -> None:
    """A few long tokens in a few images outweigh all others; of equal length they count as one."""
    generator = torch.Generator().manual_seed(9)
    pictures = torch.randn(128, 3, 16, 16, generator=generator)
    patches = raw_patches(pictures, (4, 4))
    lengths = torch.where(torch.rand(128, 16, 1, generator=generator) < 0.1, 100.0, 1.0)
    equal = Localisation(tokens="normalised")
    found = run(pictures, patches, (4, 4), equal)
    np.testing.assert_allclose(run(pictures, lengths * patches, (4, 4), equal).cka.values, found.cka.values, atol=1e-5)
    own, moved = (np.diagonal(run(pictures, x, (4, 4)).cka.values[0]) for x in (patches, lengths * patches))
    assert own.min() > 0.99
    assert moved.max() < 0.8  # the pictures whose token is long make up the Gram matrix
    assert np.diagonal(found.cka.values[0]).min() > 0.95
    assert all(test.reading.endswith("with all tokens of length one") for test in asked_of([equal]))
    assert not asked_of([Localisation(tokens="normalised", colour="removed")])


def test_locations_of_a_cnn_get_their_length_before_they_are_averaged_into_cells() -> None:
    generator = torch.Generator().manual_seed(10)
    features = (
        torch.randn(64, 5, 32, 32, generator=generator) * torch.rand(64, 1, 32, 32, generator=generator).mul(9).exp()
    )
    place = Site(**{**site("last").__dict__, "layout": Layout("NCYX", 0, (32, 32))})
    taken = tokens_in_cells(Look(place, output=features), "normalised")
    unit = features / features.square().sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(taken[:, 10], unit[:, :, 4:8, 8:12].mean((2, 3)))  # row 2, column 3 of 8×8 cells


def test_of_a_fine_grid_some_tokens_are_asked_about_all_patches() -> None:
    pictures = torch.randn(64, 3, 28, 28, generator=torch.Generator().manual_seed(6))
    finding = run(pictures, raw_patches(pictures, (14, 14)), (14, 14))
    assert finding.cka.shape == (1, 64, 196)
    assert quantities(finding)["hit_rate", "v"] == 1
    names = place_names((14, 14))
    for token, best in enumerate(finding.cka.values[0].argmax(1)):
        assert finding.token_place.values[0, token] == names[best] == finding.patch_place.values[0, best]


def test_a_finer_map_is_averaged_into_cells() -> None:
    assert cells_of((32, 28)) == (8, 14)
    pictures = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(7))
    place = Site(**{**site("last").__dict__, "layout": Layout("NCYX", 0, (32, 32))})
    who = anatomy("c", [place], architecture="cnn")
    looks = {("c", "last"): Look(place, output=pictures), ("c", who.input.name): Look(who.input, output=pictures)}
    finding = measure_tensors(Localisation(), scene(who, images=64, block=16), looks, 16)
    assert finding.cka.shape == (1, 64, 64)
    means, patches = cut(pictures, (8, 8)).mean((3, 4)), raw_patches(pictures, (8, 8))
    tables = [
        hsic_table(torch.stack([gram(x[s : s + 16, p]) for x, p in ((means, 9), (patches, 10))]))
        for s in (0, 16, 32, 48)
    ]
    total = torch.stack(tables).mean(0)
    assert float(finding.cka[0, 9, 10]) == pytest.approx(
        float(total[0, 1] / (total[0, 0] * total[1, 1]).sqrt()), abs=1e-5
    )


def test_the_last_block_and_others_evenly_before_it() -> None:
    blocks = [site(f"b{i}", grid=(4, 4), block=i) for i in range(9)] + [site("tiny", grid=(2, 2), block=9)]
    names = [place.name for place in Localisation().sites(anatomy("v", blocks))]
    assert names == ["b2", "b5", "b8"]
    assert [place.name for place in Localisation(depths=1).sites(anatomy("v", blocks))] == ["b8"]
    with pytest.raises(UsageError, match="at least 1 block; got 0"):
        Localisation(depths=0)
    with pytest.raises(UsageError, match=r"localisation\.units takes at least 1 block; got 0"):
        Localisation(units=0)
    with pytest.raises(DoesNotApply, match="at least 3×3"):
        Localisation().tally(scene(anatomy("v", blocks[-1:])))


def units_of(count: int) -> list[Site]:
    return [site(f"u{i}", grid=(4, 4), stage=i // 4, block=i) for i in range(count)]


def test_all_units_of_a_cnn_are_looked_at_and_of_a_deep_one_sixteen() -> None:
    assert len(Localisation().sites(anatomy("c", units_of(8), "cnn"))) == 8
    deep = [place.name for place in Localisation().sites(anatomy("c", units_of(48), "cnn"))]
    assert deep == [f"u{i}" for i in range(2, 48, 3)]
    assert [p.name for p in Localisation(units=2).sites(anatomy("c", units_of(8), "cnn"))] == ["u3", "u7"]


def peaks(units: list[float], vit_peak: float = 1.0) -> xarray.Dataset:
    """An estimate of a class-token ViT's last block and a CNN's units."""
    count = len(units)
    return xarray.Dataset(
        {"peak": ("site", np.array([vit_peak, *units]))},
        coords={
            "subject": ("site", ["v"] + ["c"] * count),
            "family": ("site", ["vit"] + ["cnn"] * count),
            "name": ("site", ["blocks.8", *(f"unit {i}" for i in range(count))]),
            "final": ("site", [True] + [False] * (count - 1) + [True]),
            "classifier_reads": ("site", ["cls"] + ["gap"] * count),
        },
    )


def test_the_best_third_of_the_earlier_units_and_the_best_unit_by_hand() -> None:
    # Seven earlier units: (.1 .2 .3), (.9 .3), (0 .4); the last has .2.
    estimate = peaks([0.1, 0.2, 0.3, 0.9, 0.3, 0.0, 0.4, 0.2])
    assert with_cnn(earlier_gain)(estimate) == {("v", "c"): pytest.approx(0.6 - 0.2)}
    assert with_cnn(over_best("peak"))(estimate) == {("v", "c"): pytest.approx(1.0 - 0.9)}
    assert with_cnn(earlier_gain)(peaks([0.5, 0.1])) == {("v", "c"): pytest.approx(0.4)}
    assert np.isnan(with_cnn(earlier_gain)(peaks([0.1]))["v", "c"])
    assert with_cnn(over_best("peak"))(peaks([0.1, 0.7], 0.5)) == {("v", "c"): pytest.approx(-0.2)}
    ends = estimate.assign(peak_low=estimate.peak - 0.1, peak_high=estimate.peak + 0.1)
    assert units_sentence(ends, "c") == [
        "its highest peak, of the 8 units that were looked at, is that of unit 3 (0.90 [0.80, 1.00])"
    ]
    assert units_sentence(ends, "v") == []


def test_units_that_are_all_alike_do_not_seem_to_gain_before_the_last() -> None:
    """Fifteen units and the last, 36 tokens, whose population hit-rate is one half each: the best single one would
    look better than the last in more than a fifth of the exams, the best third in hardly more than 2.5 %.
    """
    generator, folds = np.random.default_rng(0), 16
    sizes = [None, *(bootstrap_weights(folds, *how).numpy() for how in ((250, 0), (150, 1, small_size(folds))))]
    seemed = {"third": 0, "single": 0}
    for _ in range(150):
        margin = np.abs(generator.normal(0, 2, (16, 36))) * np.where(np.arange(36) < 18, 1, -1)
        noisy = margin + 4 * generator.normal(size=(folds, 16, 36))
        value, draws, small = (
            (np.einsum("rk,kut->rut", np.ones((1, folds)) if w is None else w, noisy) > 0).mean(-1) for w in sizes
        )
        gains = {
            "third": lambda rates: np.array([best_third(row[:-1]) - row[-1] for row in rates]),
            "single": lambda rates: rates[:, :-1].max(1) - rates[:, -1],
        }
        for name, gain in gains.items():
            seemed[name] += bool(bootstrap(gain(value)[0], gain(draws), gain(small), folds)[0] > 0)
    print({name: count / 150 for name, count in seemed.items()})
    assert seemed["third"] <= 0.07 * 150
    assert seemed["single"] > 0.15 * 150


def test_comparisons_of_subjects() -> None:
    """A class-token ViT whose tokens are their patches; a GAP twin, a CNN and an untrained twin that know less."""
    generator = torch.Generator().manual_seed(8)
    pictures = torch.randn(128, 3, 16, 16, generator=generator)
    patches, noise = raw_patches(pictures, (4, 4)), torch.randn(128, 16, 48, generator=generator)
    half = torch.where((torch.arange(16) // 4 == 1)[None, :, None], patches, patches.roll(1, dims=1))  # row 2 hits

    place, cls_place = site("last", grid=(4, 4)), site("last", prefix=1, grid=(4, 4))
    units = [site("early", grid=(4, 4)), site("last", grid=(4, 4), stage=1, block=1)]
    people = [
        vit("v", cls_place, "cls"),
        vit("v@random", cls_place, "cls"),
        vit("gap", place, "gap"),
        anatomy("c", units, architecture="cnn"),
    ]
    outputs = {
        ("v", "last"): torch.cat([noise[:, :1], patches], 1),
        ("v@random", "last"): torch.cat([noise[:, :1], half], 1),
        ("gap", "last"): half,
        ("c", "early"): half,
        ("c", "last"): patches.roll(1, dims=1),
    }
    looks = {
        key: Look(next(p for p in people if p.subject == key[0]).site(key[1]), output=o) for key, o in outputs.items()
    }
    looks |= {(who.subject, who.input.name): Look(who.input, output=pictures) for who in people}
    finding = measure_tensors(Localisation(), scene(*people, images=128, block=16), looks, 16)
    found = quantities(finding)
    assert found["hit_rate_over_gap", "v | gap"] == 0.5
    assert ("hit_rate_over_gap", "v | v@random") not in found  # of the same build, but no GAP twin
    assert found["hit_rate_over_untrained", "v | v@random"] == 0.5
    assert ("hit_rate_over_untrained", "gap | v@random") not in found
    assert found["hit_rate_ratio", "v | c"] == 16  # none of the CNN's last tokens hits: chance, 1/16, stands in
    assert found["earlier_peak_gain", "v | c"] > 0.3
    assert found["peak_over_best_unit", "v | c"] > 0.1
    assert (
        found["peak_beside_cnn", "v | c"] == found["token_peak", "v"] > 0.9
    )  # white pictures: nothing around is alike
    assert found["peak_kept_by_gap", "v | gap"] == pytest.approx(
        found["token_peak", "gap"] - found["token_peak", "v"] / 2
    )
    rows = finding.quantity.values == "hit_rate_ratio"
    low, high = (float(finding[f"quantity_{end}"].values[rows][0]) for end in ("low", "high"))
    assert high == 16  # the most that is possible
    assert low < 2  # four inner cells of the CNN say little, though no draw of images moved them
    assert ("hit_rate_ratio", "gap | c") not in found
    assert "untrained it is 50%" in Localisation().sentence(finding)


def test_the_figure_has_the_interval_of_the_sentence_at_the_last_block() -> None:
    """Of few tokens the bootstrap alone said [0 %, 6 %] where the sentence and the claim say [0 %, 60 %]."""
    estimate = peaks([0.1, 0.3])
    rows = {"quantity_value": [0.3], "quantity_low": [-0.5], "quantity_high": [0.9]}
    finding = estimate.assign(peak_low=estimate.peak - 0.1, peak_high=estimate.peak + 0.1).assign(
        {name: ("quantity_row", values) for name, values in rows.items()}
    )
    named = {"quantity": ("quantity_row", ["token_peak"]), "quantity_subjects": ("quantity_row", ["c"])}
    finding = finding.assign_coords(named)
    table = table_of(finding, "peak")
    at_the_last_block(table, finding, "token_peak", "peak")
    assert table["peak_low"].tolist() == pytest.approx([0.9, 0.0, -0.5])
    assert table["peak_high"].tolist() == pytest.approx([1.1, 0.2, 0.9])


@pytest.mark.parametrize("grid", [(56, 28), (28, 42), (16, 37)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cells_are_means_over_their_locations(grid: tuple[int, int], dtype: torch.dtype) -> None:
    maps = torch.randn(2, 3, *grid, dtype=dtype) + 10
    torch.testing.assert_close(cell_means(maps, (14, 14)), torch.nn.functional.adaptive_avg_pool2d(maps, (14, 14)))


@pytest.mark.parametrize("size", [12, 14])
def test_patches_of_pictures_without_their_colour(size: int) -> None:
    pictures = torch.randn(2, 3, size, size) + torch.arange(3.0)[:, None, None]
    given, patches = pictures.clone(), cut(pictures, (4, 4))
    for colour, expected in (("kept", patches), ("removed", patches - patches.mean((3, 4), keepdim=True))):
        found = picture_patches(pictures, (4, 4), colour)  # type: ignore[arg-type]
        torch.testing.assert_close(found[:, :-1], expected.flatten(2))
        torch.testing.assert_close(found[:, -1], expected.mean(1).flatten(1))
    assert torch.equal(pictures, given)


@pytest.mark.parametrize("name", ["cka", "localisation", "head_subsets"])
def test_only_images_in_whole_blocks_are_counted(name: str) -> None:
    """Two of these said that they had used all images of the exam."""
    finding = finding_of(find_measure(name), "zoo:vit", "zoo:resnet", images=37, block=16)
    assert finding.attrs["images"] == 32
