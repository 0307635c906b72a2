"""Tallies refuse what does not fit, with a sentence that names the place; and know their size."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
import torch
from torch import Tensor

from eyechart.errors import EyechartError, TallyError
from eyechart.tally import Concat, Max, Min, Sum, Tally, added_up, multiplied, sums_by


@dataclass
class MixedTally(Tally):
    unit: ClassVar[str] = "pixels"
    distance: Annotated[Tensor, Sum("fold", "site", "head")]
    images: Annotated[Tensor, Sum("fold", dtype="int64", counts=True)]
    longest: Annotated[Tensor, Max("fold", "site")]
    shortest: Annotated[Tensor, Min("site")]
    passes: Annotated[Tensor, Sum()]
    image: Annotated[Tensor, Concat("image", dtype="int64")]
    correct: Annotated[Tensor, Concat("image", "site", dtype="bool")]


def mixed(**sizes: int) -> MixedTally:
    return MixedTally.empty(**{"fold": 3, "site": 2, "head": 2, **sizes})


def test_empty_holds_the_identities_in_double_precision_on_the_cpu() -> None:
    tally = mixed()
    assert tally.sizes == {"fold": 3, "site": 2, "head": 2, "image": 0}
    assert tally.distance.dtype == torch.float64
    assert tally.images.dtype == torch.int64
    assert {tensor.device.type for tensor in tally.tensors().values()} == {"cpu"}
    assert tally.longest.eq(-torch.inf).all()
    assert tally.shortest.eq(torch.inf).all()
    assert tally.passes.shape == ()


def test_total_is_what_one_would_do_by_hand() -> None:
    tally = mixed()
    tally.distance.copy_(torch.arange(12.0).reshape(3, 2, 2))
    tally.longest.copy_(torch.tensor([[1.0, 9.0], [5.0, 2.0], [3.0, 4.0]]))
    tally.images.copy_(torch.tensor([4, 0, 2]))
    total = tally.total()
    assert total.distance.tolist() == [[12.0, 15.0], [18.0, 21.0]]
    assert total.longest.tolist() == [5.0, 9.0]
    assert float(total.images) == 6
    assert tally.folds == 2
    assert tally.distance.shape == (3, 2, 2), "the tally itself keeps its folds"


def test_weights_multiply_sums_and_leave_out_folds_of_extremes() -> None:
    tally = mixed()
    tally.distance.copy_(torch.arange(12.0).reshape(3, 2, 2))
    tally.longest.copy_(torch.tensor([[1.0, 9.0], [5.0, 2.0], [3.0, 4.0]]))
    drawn = tally.weighted(torch.tensor([0, 2, 1]))
    assert drawn.distance.tolist() == [[16.0, 19.0], [22.0, 25.0]]
    assert drawn.longest.tolist() == [5.0, 4.0]
    assert drawn.shortest.tolist() == tally.shortest.tolist()


def test_an_infinite_fold_is_left_out_when_its_weight_is_zero() -> None:
    tally = mixed()
    tally.distance[1] = torch.inf
    assert torch.isfinite(tally.weighted(torch.tensor([1.0, 0.0, 1.0])).distance).all()
    assert torch.isinf(tally.total().distance).all()


def test_fold_counts_may_have_more_axes() -> None:
    @dataclass
    class BySite(Tally):
        images: Annotated[Tensor, Sum("fold", "site", counts=True)]

    tally = BySite.empty(fold=4, site=2)
    tally.images[2, 1] = 3
    assert tally.fold_counts.tolist() == [0, 0, 3, 0]


def test_a_tally_without_folds_has_none() -> None:
    @dataclass
    class Plain(Tally):
        moment: Annotated[Tensor, Sum("channel")]

    tally = Plain.empty(channel=3)
    tally.moment += 2
    assert tally.folds == 0
    assert tally.total().moment.tolist() == [2, 2, 2]


def test_rows_are_kept_in_the_order_of_their_images() -> None:
    tally = mixed()
    tally.append(image=torch.tensor([5, 1]), correct=torch.tensor([[True, False], [False, False]]))
    tally.append(image=torch.tensor([3]), correct=torch.tensor([[True, True]]))
    assert tally.image.tolist() == [1, 3, 5]
    assert tally.correct.tolist() == [[False, False], [True, True], [True, False]]


def test_bytes_are_those_of_the_fields() -> None:
    tally = mixed(site=5)
    tally.append(image=torch.arange(7), correct=torch.zeros(7, 5, dtype=torch.bool))
    assert tally.nbytes == 8 * (3 * 5 * 2 + 3 + 3 * 5 + 5 + 1 + 7) + 7 * 5


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"field": Tensor}, r"Wrong\.field needs one merge law"),
        ({"field": Annotated[Tensor, "sum"]}, r"Wrong\.field needs one merge law"),
        ({"field": Annotated[Tensor, Sum("site"), Max("site")]}, r"Wrong\.field needs one merge law"),
        ({"field": Annotated[Tensor, Sum("fold", "site")]}, "needs one field that counts.*has 0"),
        (
            {"a": Annotated[Tensor, Sum("fold", counts=True)], "b": Annotated[Tensor, Sum("fold", counts=True)]},
            "needs one field that counts.*has 2",
        ),
        ({"field": Annotated[Tensor, Concat("image")]}, "needs a field image"),
        ({"total": Annotated[Tensor, Sum("site")]}, r"Wrong\.total hides Tally\.total"),
        ({"image": Annotated[Tensor, Concat("image")]}, "needs a field image"),
    ],
)
def test_a_wrong_class_is_refused_when_it_is_defined(annotations: dict[str, object], message: str) -> None:
    with pytest.raises(TallyError, match=message):
        type("Wrong", (Tally,), {"__annotations__": annotations})


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (lambda: Sum("site", "fold"), "fold axis comes first"),
        (lambda: Sum("site", "site"), "different names"),
        (lambda: Sum("image", "site"), "Only Concat"),
        (lambda: Sum("site", dtype="float32"), "float64 or int64; got 'float32'"),
        (lambda: Sum("site", counts=True), "leading fold axis"),
        (lambda: Concat("site"), "first axis of a Concat field is 'image'"),
    ],
)
def test_a_wrong_law_is_refused(law: object, message: str) -> None:
    assert callable(law)
    with pytest.raises(TallyError, match=message):
        law()


def test_merge_names_field_axis_expected_and_came() -> None:
    with pytest.raises(EyechartError, match=r"MixedTally\.distance, axis head: expected 2, got 4"):
        mixed().merge(mixed(head=4))
    with pytest.raises(EyechartError, match=r"MixedTally\.distance, axis fold: expected 3, got 5"):
        mixed().merge(mixed(fold=5))


def test_merge_refuses_what_is_not_its_own_kind() -> None:
    @dataclass
    class Other(Tally):
        images: Annotated[Tensor, Sum("fold", counts=True)]

    with pytest.raises(TallyError, match="MixedTally merges only with another one, got Other"):
        mixed().merge(Other.empty(fold=3))  # type: ignore[arg-type]
    with pytest.raises(TallyError, match="already summed; merge before total"):
        mixed().merge(mixed().total())
    with pytest.raises(TallyError, match="already summed"):
        mixed().total().total()


def test_the_same_image_twice_is_refused() -> None:
    one, two = mixed(), mixed()
    one.append(image=torch.tensor([4, 8]), correct=torch.zeros(2, 2, dtype=torch.bool))
    two.append(image=torch.tensor([8, 9]), correct=torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(TallyError, match="image 8 twice"):
        one.merge(two)


def test_wrong_sizes_and_tensors_are_named() -> None:
    with pytest.raises(TallyError, match=r"needs the sizes of \['fold', 'head', 'site'\], got \['fold', 'site'\]"):
        MixedTally.empty(fold=3, site=2)
    with pytest.raises(TallyError, match="has 3 folds, got weights of shape"):
        mixed().weighted(torch.ones(2))
    with pytest.raises(TallyError, match=r"rows of \['correct', 'image'\] together, got \['image'\]"):
        mixed().append(image=torch.tensor([1]))
    tensors = mixed().tensors()
    with pytest.raises(TallyError, match="has the fields"):
        MixedTally.from_tensors({**tensors, "more": torch.zeros(1)})
    with pytest.raises(TallyError, match=r"MixedTally\.distance should be torch.float64, got torch.float32"):
        MixedTally.from_tensors({**tensors, "distance": tensors["distance"].float()})
    with pytest.raises(TallyError, match=r"MixedTally\.distance should have the axes \('fold', 'site', 'head'\)"):
        MixedTally.from_tensors({**tensors, "distance": tensors["distance"][0]})
    with pytest.raises(TallyError, match=r"MixedTally\.longest, axis site: expected 2 as in distance, got 7"):
        MixedTally.from_tensors({**tensors, "longest": torch.zeros(3, 7, dtype=torch.float64)})


def test_a_failed_append_changes_nothing() -> None:
    tally = mixed()
    tally.append(image=torch.tensor([4]), correct=torch.zeros(1, 2, dtype=torch.bool))
    with pytest.raises(TallyError, match="twice"):
        tally.append(image=torch.tensor([4]), correct=torch.zeros(1, 2, dtype=torch.bool))
    with pytest.raises(TallyError, match="axis image"):
        tally.append(image=torch.tensor([5, 6]), correct=torch.zeros(1, 2, dtype=torch.bool))
    assert tally.image.tolist() == [4]
    assert len(tally.correct) == 1


def test_empty_folds_are_left_out_of_a_file_and_come_back() -> None:
    from eyechart.shard_files import FOLDS, restore

    @dataclass
    class Blocks(Tally):
        table: Annotated[Tensor, Sum("fold", "site")]
        blocks: Annotated[Tensor, Sum("fold", counts=True)]

    tally = Blocks.empty(fold=4, site=3)
    tally.table[2] += torch.tensor([1.0, 0.0, 5.0])
    tally.blocks[2] += 1
    filled = tally.filled_folds("table")
    assert filled is not None
    assert filled.tolist() == [2]
    stored = {"table": tally.table[filled], "table" + FOLDS: filled, "blocks": tally.blocks}
    back = restore(Blocks.empty(fold=4, site=3), stored)
    assert isinstance(back, Blocks)
    assert torch.equal(back.table, tally.table)
    tally.table += 1
    assert tally.filled_folds("table") is None


@dataclass
class RowTally(Tally):
    image: Annotated[Tensor, Concat("image", dtype="int64")]
    right: Annotated[Tensor, Concat("image", dtype="bool")]


def test_sums_by_a_product_are_those_by_adding() -> None:
    """The product is an accelerator's way."""
    torch.manual_seed(0)
    index, values = torch.randint(0, 5, (3, 20)), torch.randint(-9, 9, (3, 4, 20)).double()
    assert torch.equal(multiplied(index, values, 6), added_up(index, values, 6))
    expected = torch.zeros(3, 4, 6).double()
    for row, image in itertools.product(range(3), range(20)):
        expected[row, :, index[row, image]] += values[row, :, image]
    assert torch.equal(sums_by(index, values, 6), expected)


@dataclass
class SiteSums(Tally):
    table: Annotated[Tensor, Sum("fold", "site")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_batch_may_have_nothing_to_add(device: str) -> None:
    """Of 50,000 images few are kept by a probe, and a block without one of them ended the exam on a GPU."""
    tally = SiteSums.empty(fold=4, site=3).to(device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    tally.add("table", none, torch.empty(0, 3, device=device))
    assert tally.table.shape == (4, 3)


def test_a_tally_elsewhere_comes_home_in_order() -> None:
    """Rows are sorted when they come home: asking whether an image came twice would stop an accelerator."""
    tally = RowTally.empty()
    there = tally.to("meta")
    there.append(image=torch.tensor([7, 3]), right=torch.tensor([True, False]))
    assert there.image.device.type == "meta"
    assert there.image.shape == (2,)
    assert len(tally.image) == 0
    shuffled = RowTally(torch.tensor([7, 3]), torch.tensor([True, False]))
    assert shuffled.to("cpu").image.tolist() == [3, 7]
    assert shuffled.to("cpu").right.tolist() == [False, True]
    with pytest.raises(TallyError, match="image 3 twice"):
        RowTally(torch.tensor([3, 3]), torch.tensor([True, False])).to("cpu")
