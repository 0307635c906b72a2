"""One law test for every tally: those of all measures, and one that uses every law at once.

The tallies are filled at random from their annotations alone, with whole numbers, so that sums are exact.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from eyechart.measures import measures
from eyechart.tally import Concat, Max, Min, Sum, Tally


@dataclass
class EveryLawTally(Tally):
    hsic: Annotated[Tensor, Sum("fold", "site", "other_site")]
    images: Annotated[Tensor, Sum("fold", dtype="int64", counts=True)]
    moment: Annotated[Tensor, Sum("site", "channel")]
    scalar: Annotated[Tensor, Sum()]
    highest: Annotated[Tensor, Max("fold", "site")]
    lowest: Annotated[Tensor, Min("site")]
    latest: Annotated[Tensor, Max("site", dtype="int64")]
    image: Annotated[Tensor, Concat("image", dtype="int64")]
    right: Annotated[Tensor, Concat("image", "site", dtype="bool")]
    loss: Annotated[Tensor, Concat("image", dtype="float32")]


def every_tally() -> list[type[Tally]]:
    """Tallies of the measures, found by importing their files: a new measure is under the law without being listed."""
    measures()

    def kinds(base: type[Tally]) -> Iterator[type[Tally]]:
        for kind in base.__subclasses__():
            yield kind
            yield from kinds(kind)

    return [EveryLawTally, *(kind for kind in kinds(Tally) if kind.__module__.startswith("eyechart.measures."))]


def sizes_of(kind: type[Tally]) -> dict[str, int]:
    dims = {dim for law in kind.laws.values() for dim in law.dims} - {"image"}
    return {dim: 5 if dim == "fold" else random.randint(1, 4) for dim in sorted(dims)}


def fill(kind: type[Tally], sizes: dict[str, int], images: list[int]) -> Tally:
    tally = kind.empty(**sizes)
    rows = {}
    for name, law in kind.laws.items():
        if isinstance(law, Concat):
            values = torch.randint(0, 2, (len(images), *(sizes[dim] for dim in law.dims[1:])))
            rows[name] = torch.tensor(images) if name == "image" else values.to(law.dtype)
        else:
            getattr(tally, name).copy_(torch.randint(-50, 50, getattr(tally, name).shape))
    if rows:
        tally.append(**rows)
    return tally


def same(one: Tally, two: Tally) -> bool:
    tensors, others = one.tensors(), two.tensors()
    return tensors.keys() == others.keys() and all(
        tensors[name].dtype == others[name].dtype and torch.equal(tensors[name], others[name]) for name in tensors
    )


def merge(tallies: list[Tally]) -> Tally:
    return reduce(lambda one, two: one.merge(two), tallies)


@pytest.fixture(params=every_tally(), ids=lambda kind: kind.__name__)
def shards(request: pytest.FixtureRequest) -> list[Tally]:
    """Six shards of one exam, of disjoint images."""
    torch.manual_seed(0)
    random.seed(0)
    sizes = sizes_of(request.param)
    images = random.sample(range(100), 18)
    return [fill(request.param, sizes, images[start : start + 3]) for start in range(0, 18, 3)]


def test_empty_is_the_identity(shards: list[Tally]) -> None:
    sizes = {dim: size for dim, size in shards[0].sizes.items() if dim != "image"}
    empty = type(shards[0]).empty(**sizes)
    assert same(empty.merge(shards[0]), shards[0])
    assert same(shards[0].merge(empty), shards[0])
    assert not same(empty, shards[0])


def test_merge_is_associative(shards: list[Tally]) -> None:
    one, two, three = shards[:3]
    assert same(one.merge(two).merge(three), one.merge(two.merge(three)))


def test_any_order_gives_the_same(shards: list[Tally]) -> None:
    whole = merge(shards)
    for seed in range(5):
        assert same(merge(random.Random(seed).sample(shards, len(shards))), whole)


def test_split_is_whole(shards: list[Tally]) -> None:
    """Adding everything into one tally is what merging pieces gives: the laws written out once more, in plain loops."""
    split = merge([merge(shards[:1]), merge(shards[1:4]), merge(shards[4:])])
    images = torch.cat([shard.tensors().get("image", torch.zeros(0)) for shard in shards])
    for name, law in shards[0].laws.items():
        values = [shard.tensors()[name] for shard in shards]
        if isinstance(law, Concat):
            whole = torch.cat(values)[images.argsort()]
        else:
            stack = torch.stack(values)
            whole = {Sum: stack.sum(0), Max: stack.amax(0), Min: stack.amin(0)}[type(law)]
        assert torch.equal(split.tensors()[name], whole), name


def test_merge_leaves_its_arguments_alone(shards: list[Tally]) -> None:
    before = {name: tensor.clone() for name, tensor in shards[0].tensors().items()}
    merged = shards[0].merge(shards[1])
    for name in merged.laws:
        getattr(merged, name).zero_()
    assert same(shards[0], type(shards[0]).from_tensors(before))


def test_save_and_load(shards: list[Tally], tmp_path: Path) -> None:
    whole = merge(shards)
    save_file(whole.tensors(), tmp_path / "tally.safetensors")
    loaded = type(whole).from_tensors(load_file(tmp_path / "tally.safetensors"))
    assert same(loaded, whole)
    assert same(loaded.merge(type(whole).empty(**{d: s for d, s in whole.sizes.items() if d != "image"})), whole)


def test_folds_add_up(shards: list[Tally]) -> None:
    """Leave-one-out sums: fold by fold they are the total less that fold."""
    tally = merge(shards)
    folds = tally.sizes.get("fold", 0)
    total = tally.total().tensors()
    for left_out in range(folds):
        weights = torch.ones(folds)
        weights[left_out] = 0
        without = tally.weighted(weights).tensors()
        for name, law in tally.laws.items():
            if isinstance(law, Sum) and law.dims[:1] == ("fold",):
                assert torch.equal(without[name], total[name] - tally.tensors()[name][left_out]), name


def test_size_grows_only_with_declared_rows(shards: list[Tally]) -> None:
    whole = merge(shards)
    assert (whole.nbytes > shards[0].nbytes) == ("image" in whole.sizes)
