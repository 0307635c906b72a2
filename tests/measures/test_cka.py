"""CKA over blocks of images, its readouts, and what its table says of layers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import xarray

from eyechart.claims.asking import asked_of
from eyechart.errors import UsageError
from eyechart.measure_options import with_option
from eyechart.measures.cka import measure as cka_measure
from eyechart.measures.cka.measure import Cka
from eyechart.measures.cka.quantities import contrast, half_way, lag_map, matched_depth, peak, step, uniformity
from eyechart.methods.hsic import Readout, gram, hsic_table
from eyechart.methods.token_lengths import Tokens
from eyechart.sites import Anatomy, Architecture, Site
from eyechart.tracing.views import Look
from tests.claims.nulls.cka import along, tables
from tests.measures.staging import anatomy, full_grid, measure_tensors, scene, site


def make_run(n: int, block: int) -> tuple[torch.Tensor, torch.Tensor, xarray.Dataset]:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(n, 4, 6, generator=generator)
    y = x @ torch.randn(6, 6, generator=generator) + torch.randn(n, 4, 6, generator=generator)
    where = scene(anatomy("a", [site("one"), site("two", block=1)]), images=n, block=block)
    looks = {("a", "one"): Look(site("one"), output=x), ("a", "two"): Look(site("two"), output=y)}
    return x, y, measure_tensors(Cka(), where, looks, block)


def test_blocks_are_averaged_before_the_ratio() -> None:
    x, y, finding = make_run(64, 8)
    tables = [
        hsic_table(torch.stack([gram(x[start : start + 8]), gram(y[start : start + 8])])) for start in range(0, 64, 8)
    ]
    mean = torch.stack(tables).mean(0)
    expected = float(mean[0, 1] / (mean[0, 0] * mean[1, 1]).sqrt())
    assert float(finding.cka[0, 1]) == pytest.approx(expected, abs=1e-12)
    assert float(finding.cka_low[0, 1]) < expected < float(finding.cka_high[0, 1])


def test_minibatch_value_is_near_the_full_batch_value() -> None:
    x, y, finding = make_run(512, 32)
    table = hsic_table(torch.stack([gram(x), gram(y)]))
    assert float(finding.cka[0, 1]) == pytest.approx(float(table[0, 1] / (table[0, 0] * table[1, 1]).sqrt()), abs=0.03)


def test_a_short_last_block_is_dropped() -> None:
    _, _, whole = make_run(64, 8)
    x, y, longer = make_run(67, 8)
    assert longer.attrs["folds"] == 8
    assert float(longer.cka[0, 1]) != float(whole.cka[0, 1])  # other images; but the last three are in no block:
    where = scene(anatomy("a", [site("one"), site("two", block=1)]), images=64, block=8)
    looks = {("a", "one"): Look(site("one"), output=x[:64]), ("a", "two"): Look(site("two"), output=y[:64])}
    assert float(measure_tensors(Cka(), where, looks, 8).cka[0, 1]) == float(longer.cka[0, 1])


def test_a_constant_layer_is_unknown_not_clamped() -> None:
    where = scene(anatomy("a", [site("one"), site("two", block=1)]), images=64, block=8)
    x = torch.randn(64, 4, 6)
    looks = {("a", "one"): Look(site("one"), output=x), ("a", "two"): Look(site("two"), output=torch.ones(64, 4, 6))}
    finding = measure_tensors(Cka(), where, looks, 8)
    assert np.isnan(finding.cka.values[1]).all()
    assert float(finding.cka[0, 0]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("readout", "expected"),
    [
        ("all", lambda x: x),
        ("spatial", lambda x: x[:, 1:]),
        ("cls", lambda x: x[:, 0]),
        ("gap", lambda x: x[:, 1:].mean(1)),
    ],
)
def test_readouts(readout: Readout, expected: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(8, 5, 6)
    place = site("one", prefix=1)
    taken = Cka(readout=readout).view.take(Look(place, output=x))
    torch.testing.assert_close(taken, expected(x))


def chain(subject: str, stages: list[int], architecture: Architecture) -> list[Site]:
    count = len(stages)
    stem = site(f"{subject} stem", role="stem", block=-1)
    return [stem] + [
        site(f"{subject} {i}", block=i, stage=stage, depth=(i + 1) / count) for i, stage in enumerate(stages)
    ]


def estimate_with(cka_values: np.ndarray, *people: Anatomy) -> xarray.Dataset:
    from eyechart.measure import site_coordinates

    where = scene(*people)
    sites = where.sites(lambda who: who.sites)
    coordinates = site_coordinates(where, sites) | site_coordinates(where, sites, "other_site")
    estimate = xarray.Dataset({"cka": (("site", "other_site"), cka_values)}, coords=coordinates)
    return estimate.assign(match_depth=lag_map(estimate))


def test_contrast_of_a_perfect_two_stage_map_is_one() -> None:
    stages = np.array([0, 0, 1, 1])
    assert contrast((stages[:, None] == stages[None]).astype(float), stages) == 1


def test_an_even_drift_has_a_contrast_but_no_step() -> None:
    stages, places = np.repeat([0, 1, 2], 3), np.arange(9)
    drift = 0.8 ** np.abs(places[:, None] - places)
    assert contrast(drift, stages) > 0.2
    assert step(drift, stages) == pytest.approx(0, abs=1e-12)
    stepped = drift - 0.1 * (stages[:, None] != stages)
    assert step(stepped, stages) == pytest.approx(0.1)
    assert np.isnan(step(drift, np.arange(9)))


def test_a_peak_lies_between_places_and_moves_without_a_jump() -> None:
    depths = np.arange(10) / 9
    for true in (0.3, 0.35, 0.3889, 0.4):
        assert peak(0.8 - (depths - true) ** 2, depths) == pytest.approx(true)
    assert peak(np.arange(10.0), depths) == 1
    assert peak(np.ones(10), depths) == 0  # nothing stands out: the parts about the stem do not hold there
    assert np.isnan(peak(np.full(10, np.nan), depths))


def test_uniformity_is_the_mean_between_outer_thirds() -> None:
    values = np.arange(49.0).reshape(7, 7)
    estimate = estimate_with(values, anatomy("v", chain("v", [0] * 6, "transformer")))
    # Positions 1–2 (lowest third of six blocks; 0 is the stem) against 5–6.
    assert uniformity(estimate)["v",] == pytest.approx(values[np.ix_([1, 2], [5, 6])].mean())


def test_lag_of_a_shifted_diagonal() -> None:
    vit = anatomy("v", chain("v", [0] * 8, "transformer"))
    cnn = anatomy("c", chain("c", [0, 0, 0, 0, 1, 1, 1, 1], "cnn"), architecture="cnn")
    values = np.zeros((18, 18))
    for j in range(9):  # CNN site j looks most like ViT site j // 2
        values[j // 2, 9 + j] = values[9 + j, j // 2] = 1
    estimate = estimate_with(values, vit, cnn)
    assert matched_depth(half_way)(estimate)["v", "c"] == pytest.approx(2 / 8)
    assert estimate.match_depth.sel(matched="v").values[9:].tolist() == [j // 2 / 8 for j in range(9)]


def test_a_match_that_is_the_last_block_in_every_draw_is_known_to_half_a_block() -> None:
    """It used to show 1.00 [1.00, 1.00], as if a depth were ever known so well."""
    short = tables(along((0, 0), (1, 3)))  # a ViT that ends before the CNN does: its last block is the match
    found = short(0)["cka"]
    row = found.isel(quantity_row=found["quantity"].values == "lag_at_end")
    ends = [float(row[f"quantity_{name}"][0]) for name in ("low", "value", "high")]
    assert ends == pytest.approx([1 - 1 / 16, 1, 1])
    row = found.isel(quantity_row=found["quantity"].values == "lag_at_half")  # between blocks: no such bound
    assert float(row.quantity_high[0] - row.quantity_low[0]) < 1 / 16


def test_the_lag_map_has_bootstrap_intervals_and_unknown_rows_stay_unknown() -> None:
    x = torch.randn(64, 4, 6)
    sites = [site("one", depth=0.5), site("two", block=1, depth=1.0)]
    looks = {("a", "one"): Look(sites[0], output=x), ("a", "two"): Look(sites[1], output=torch.ones(64, 4, 6))}
    finding = measure_tensors(Cka(), scene(anatomy("a", sites), images=64, block=8), looks, 8)
    assert float(finding.match_depth[0, 0]) == 0.5
    assert float(finding.match_depth_low[0, 0]) == float(finding.match_depth_high[0, 0]) == 0.5
    assert np.isnan(finding.match_depth.values[1, 0])
    assert "match_depth_replicates" not in finding


def test_patch_tokens_are_compared_without_the_class_token() -> None:
    """The Gram matrix of the class token is taken off: the same as leaving it out of the features."""
    generator = torch.Generator().manual_seed(5)
    with_cls = 10 * torch.randn(64, 5, 6, generator=generator)
    other = torch.randn(64, 4, 6, generator=generator) + with_cls[:, 1:] / 10
    vit, cnn = site("one", prefix=1), site("two")
    where = scene(anatomy("v", [vit], cls=0), anatomy("c", [cnn]), images=64, block=16)
    looks = {("v", "one"): Look(vit, output=with_cls), ("c", "two"): Look(cnn, output=other)}
    found = measure_tensors(Cka(), where, looks, 16)
    without = {("v", "one"): Look(site("one"), output=with_cls[:, 1:]), ("c", "two"): Look(cnn, output=other)}
    bare = scene(anatomy("v", [site("one")]), anatomy("c", [cnn]), images=64, block=16)
    expected = measure_tensors(Cka(), bare, without, 16).cka
    assert found.patch_site.values.tolist() == ["v/one"]
    np.testing.assert_allclose(found.patch_cka.values[0], expected.values[0], atol=1e-5)
    assert abs(float(found.cka[0, 1]) - float(expected[0, 1])) > 0.01  # the class token does matter here


def test_the_top_third_without_its_class_token() -> None:
    """The class token alone makes the highest third differ: without it nothing drops."""
    generator = torch.Generator().manual_seed(6)
    shared = torch.randn(64, 4, 6, generator=generator)
    sites, looks = [], {}
    for at in range(3):
        place = site(f"v {at}", kind="attention", prefix=1, block=at, depth=(at + 1) / 3)
        attention = site(f"a {at}", "attention", "attention", block=at, heads=2, attention=full_grid(2, 8.0, 1))
        sites += [attention, place]
        own = (20 if at == 2 else 0.01) * torch.randn(64, 1, 6, generator=generator)
        looks["v", place.name] = Look(place, output=torch.cat([own, shared], dim=1))
    stages = [site("c 0", stage=0, block=0), site("c 1", stage=1, block=1)]
    looks |= {("c", place.name): Look(place, output=shared) for place in stages}
    people = anatomy("v", sites, cls=0), anatomy("c", stages, architecture="cnn")
    found = measure_tensors(Cka(), scene(*people, images=64, block=16), looks, 16)
    known = {
        str(name): float(value) for name, value in zip(found.quantity.values, found.quantity_value.values, strict=True)
    }
    assert known["top_is_unlike"] > 0.5
    assert known["top_is_unlike_without_cls"] == pytest.approx(0, abs=1e-6)


def test_registers_are_no_class_token() -> None:
    place = site("one", prefix=4)
    looks = {("v", "one"): Look(place, output=torch.randn(64, 8, 6))}
    found = measure_tensors(Cka(), scene(anatomy("v", [place]), images=64, block=16), looks, 16)
    assert found.sizes["patch_site"] == 0


# --- tokens of equal length (SPEC T15) --------------------------------------------------------------------------------


def likeness(x: torch.Tensor, y: torch.Tensor, tokens: Tokens, axes: str = "NTC") -> float:
    places = [site("one", axes=axes), site("two", axes=axes, block=1)]
    looks = {("a", place.name): Look(place, output=each) for place, each in zip(places, (x, y), strict=True)}
    who = scene(anatomy("a", places), images=len(x), block=32)
    return float(measure_tensors(Cka(tokens=tokens), who, looks, 32).cka[0, 1])


@pytest.mark.parametrize("shared", ["registers", "patches"])
def test_two_long_tokens_make_up_plain_cka_but_not_that_of_tokens_of_equal_length(shared: str) -> None:
    """Of 16 independent tokens two are ten times as long; layers share either those two or the other fourteen.

    Tokens add to HSIC with the fourth power of their length: plain CKA is 2·10⁴ / (2·10⁴ + 14) or 14 / (2·10⁴ + 14),
    whatever the other tokens do. Counted alike, they are alike in two of 16, or in fourteen of 16.
    """
    generator = torch.Generator().manual_seed(0)
    x, y = torch.nn.functional.normalize(torch.randn(2, 1024, 16, 24, generator=generator), dim=-1)
    common = slice(0, 2) if shared == "registers" else slice(2, None)
    y[:, common] = x[:, common]
    x[:, :2] *= 10
    y[:, :2] *= 10
    plain, equal = (2e4 / 20014, 2 / 16) if shared == "registers" else (14 / 20014, 14 / 16)
    assert likeness(x, y, "plain") == pytest.approx(plain, abs=0.01)
    assert likeness(x, y, "normalised") == pytest.approx(equal, abs=0.01)


@pytest.mark.parametrize(
    ("axes", "shape", "lengths"),
    [
        ("NTC", (64, 5, 6), (64, 5, 1)),
        ("NCYX", (64, 6, 4, 5), (64, 1, 4, 5)),
        ("NYXC", (64, 4, 5, 6), (64, 4, 5, 1)),
        ("NHTC", (64, 3, 5, 6), (64, 1, 5, 1)),
    ],
)
def test_the_length_of_any_token_of_any_image_does_not_matter_once_normalised(
    axes: str, shape: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator)
    y = x + torch.randn(shape, generator=generator)
    longer = (3 * torch.randn(lengths, generator=generator)).exp() * x
    assert likeness(longer, y, "normalised", axes) == pytest.approx(likeness(x, y, "normalised", axes), abs=1e-6)
    assert abs(likeness(longer, y, "plain", axes) - likeness(x, y, "plain", axes)) > 0.1


def test_a_token_of_zeros_stays_zero() -> None:
    x = torch.randn(8, 4, 6)
    x[:, 1] = 0
    taken = Cka(tokens="normalised").view.take(Look(site("one"), output=x))
    assert taken.isfinite().all()
    assert taken.square().sum(-1)[0].tolist() == pytest.approx([1, 0, 1, 1])


def test_a_token_runs_over_the_channels_of_all_heads() -> None:
    x = torch.randn(8, 3, 5, 6)
    taken = Cka(tokens="normalised").view.take(Look(site("one", axes="NHTC"), output=x))
    torch.testing.assert_close(taken.square().sum((1, 3)), torch.ones(8, 5))


def test_patch_tokens_of_equal_length_are_compared_without_the_class_token() -> None:
    generator = torch.Generator().manual_seed(5)
    x = 10 * torch.randn(64, 5, 6, generator=generator)
    y = torch.randn(64, 5, 6, generator=generator) + x / 10
    places = [site("one", prefix=1), site("two", prefix=1, block=1)]
    looks = {("v", place.name): Look(place, output=each) for place, each in zip(places, (x, y), strict=True)}
    where = scene(anatomy("v", places, cls=0), images=64, block=32)
    found = measure_tensors(Cka(tokens="normalised"), where, looks, 32)
    assert float(found.patch_cka[0, 1]) == pytest.approx(likeness(x[:, 1:], y[:, 1:], "normalised"), abs=1e-6)
    assert float(found.cka[0, 1]) == pytest.approx(likeness(x, y, "normalised"), abs=1e-6)


def test_the_mean_of_tokens_of_equal_length() -> None:
    x = torch.randn(8, 5, 6) * torch.rand(8, 5, 1).mul(9).exp()
    taken = Cka(readout="gap", tokens="normalised").view.take(Look(site("one", prefix=1), output=x))
    torch.testing.assert_close(taken, (x[:, 1:] / x[:, 1:].square().sum(-1, keepdim=True).sqrt()).mean(1))


def test_verdicts_on_tokens_of_equal_length_say_so() -> None:
    measure = with_option(Cka(), "tokens", "normalised")
    readings = [(test.claim, test.reading) for test in asked_of([measure])]
    assert ("C13", "with all tokens of length one") in readings
    assert ("C15", "without the class token, with all tokens of length one") in readings
    assert not asked_of([with_option(measure, "readout", "gap")])
    with pytest.raises(UsageError, match="takes plain, normalised"):
        with_option(Cka(), "tokens", "long")


def shared_by_hand(x: np.ndarray, y: np.ndarray, k: int) -> float:
    """Share of the k nearest others of each row that both tables name, chance taken off."""
    n = len(x)
    named = []
    for table in (x.reshape(n, -1), y.reshape(n, -1)):
        far = [[np.inf if i == j else ((table[i] - table[j]) ** 2).sum() for j in range(n)] for i in range(n)]
        named.append([set(np.argsort(row)[:k]) for row in far])
    share = np.mean([len(a & b) / k for a, b in zip(*named, strict=True)])
    return float((share - k / (n - 1)) / (1 - k / (n - 1)))


def test_neighbours_by_hand() -> None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(64, 4, 6, generator=generator)
    y = x + torch.randn(64, 4, 6, generator=generator)
    places = [site("one"), site("two", block=1), site("three", block=2)]
    outputs = (x, y, torch.ones(64, 4, 6))
    looks = {("a", place.name): Look(place, output=output) for place, output in zip(places, outputs, strict=True)}
    where = scene(anatomy("a", places), images=64, block=16)
    finding = measure_tensors(Cka(index="neighbours"), where, looks, 16)
    blocks = [shared_by_hand(x[at : at + 16].numpy(), y[at : at + 16].numpy(), 5) for at in range(0, 64, 16)]
    assert float(finding.cka[0, 1]) == pytest.approx(np.mean(blocks), abs=1e-12)
    assert float(finding.cka[0, 0]) == pytest.approx(1)
    assert np.isnan(finding.cka.values[2]).all()  # all pictures in one point: there are no neighbours
    assert 0.05 < float(finding.cka_low[0, 1]) < float(finding.cka[0, 1]) < float(finding.cka_high[0, 1]) < 0.95


def test_far_off_images_make_a_cka_but_no_neighbours() -> None:
    """Two of 32 images lie far away in both layers, and nothing else is shared."""
    generator = torch.Generator().manual_seed(4)
    x, y = torch.randn(2, 512, 1, 6, generator=generator)
    for start in range(0, 512, 32):
        x[start : start + 2, 0, 0] += 100
        y[start : start + 2, 0, 1] += 100
    places = [site("one"), site("two", block=1)]
    where = scene(anatomy("a", places), images=512, block=32)
    looks = {("a", "one"): Look(places[0], output=x), ("a", "two"): Look(places[1], output=y)}
    assert float(measure_tensors(Cka(), where, looks, 32).cka[0, 1]) > 0.99
    by_neighbours = measure_tensors(Cka(index="neighbours"), where, looks, 32)
    assert float(by_neighbours.cka[0, 1]) < 0.1


def test_images_that_coincide_make_no_neighbours() -> None:
    """In each of two independent layers most images are one point: which of them are named must not follow an order."""
    generator = torch.Generator().manual_seed(4)
    x, y = torch.randn(2, 1024, 1, 6, generator=generator)
    x[torch.rand(1024, generator=generator) < 0.6] = 0
    y[torch.rand(1024, generator=generator) < 0.6] = 0
    places = [site("one"), site("two", block=1)]
    where = scene(anatomy("a", places), images=1024, block=32)
    looks = {("a", "one"): Look(places[0], output=x), ("a", "two"): Look(places[1], output=y)}
    finding = measure_tensors(Cka(index="neighbours"), where, looks, 32)
    assert abs(float(finding.cka[0, 1])) < 0.06  # taking the first of those at one distance: 0.15
    assert float(finding.cka[0, 0]) == pytest.approx(1)


def test_only_claims_without_a_limit_of_cka_are_read_by_neighbours() -> None:
    by_neighbours, by_cka = asked_of([Cka(index="neighbours")]), asked_of([Cka()])
    assert {test.reading for test in by_neighbours} == {"by nearest neighbours"}
    limited = {
        "uniformity_gap",
        "top_likeness",
        "top_likeness_without_cls",
    }  # compared with a value of CKA itself, which neighbours do not have
    without = {test.claim for test in by_cka if not limited & {part.quantity for part in test.parts}}
    assert {test.claim for test in by_neighbours} == without != {test.claim for test in by_cka}


@pytest.mark.parametrize(("half", "clear"), [(0.02, True), (0.2, False)])
def test_layers_stay_most_alike_only_where_intervals_tell(
    monkeypatch: pytest.MonkeyPatch, half: float, clear: bool
) -> None:
    values = {("a",): 0.7, ("b",): 0.6}
    monkeypatch.setattr(cka_measure, "uniformity", lambda _: values)
    monkeypatch.setattr(cka_measure, "matched_depth", lambda _: lambda _: {})
    ends = {"value": [0.7, 0.6], "low": [0.7 - half, 0.6 - half], "high": [0.7 + half, 0.6 + half]}
    finding = xarray.Dataset(
        {f"quantity_{name}": ("quantity_row", column) for name, column in ends.items()},
        coords={
            "quantity": ("quantity_row", ["uniformity"] * 2),
            "quantity_subjects": ("quantity_row", ["a", "b"]),
        },
        attrs={"index": "CKA"},
    )
    told = Cka().sentence(finding)
    one, two = (f"{value:.2f} [{value - half:.2f}, {value + half:.2f}]" for value in (0.7, 0.6))
    assert told.startswith(f"The lowest and the highest third of the blocks have a mean CKA of {one} in a, {two} in b")
    assert ("the layers of a stay most alike" in told) == clear
