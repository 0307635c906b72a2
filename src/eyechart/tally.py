"""What a measure accumulates: a dataclass of tensors, each field written with its dimensions and its merge law.

    empty ⊕ a = a        (a ⊕ b) ⊕ c = a ⊕ (b ⊕ c)        tally(images) = tally(some) ⊕ tally(the others)

so shards may be computed anywhere and merged. Nothing is ever inferred from shapes: a law that is missing is an error
when the class is defined, sizes that differ are an error that names the field and the axis.

>>> from dataclasses import dataclass
>>> @dataclass
... class DistanceTally(Tally):
...     distance: Annotated[Tensor, Sum("fold", "site", "head")]
...     images: Annotated[Tensor, Sum("fold", counts=True)]
>>> one, two = DistanceTally.empty(fold=16, site=2, head=3), DistanceTally.empty(fold=16, site=2, head=3)
>>> one.distance[0] += 5.0
>>> one.images[0] += 1
>>> two.distance[7] += 4.0
>>> two.images[7] += 2
>>> both = one.merge(two)
>>> both.folds, both.total().distance[0, 0] / both.total().images
(2, tensor(3., dtype=torch.float64))
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self, get_origin, get_type_hints

import torch
from torch import Tensor

from eyechart.errors import TallyError

__all__ = ["Concat", "Max", "Min", "Sum", "Tally", "TallyError"]


def sums_by(index: Tensor, values: Tensor, size: int) -> Tensor:
    """Sums (…, row, size) of the values (…, row, image) of one index each (…, image).

    >>> sums_by(torch.tensor([0, 2, 2]), torch.tensor([[1.0, 2.0, 3.0]]), 3)
    tensor([[1., 0., 5.]])
    """
    return (added_up if values.device.type == "cpu" else multiplied)(index, values, size)


def added_up(index: Tensor, values: Tensor, size: int) -> Tensor:
    sums = values.new_zeros(*values.shape[:-1], size)
    return sums.scatter_add_(-1, index.unsqueeze(-2).expand(values.shape), values)


def multiplied(index: Tensor, values: Tensor, size: int) -> Tensor:
    """The same by a product with ones and zeros. On an accelerator, threads that add to one place do so in any order,
    and the same exam would not give the same bits twice."""
    ones = values.new_zeros(*index.shape, size).scatter_(-1, index[..., None], 1.0)
    return values @ ones


class Law:
    """How two values of a field become one, and the names of the field's axes."""

    dtypes: ClassVar[tuple[str, ...]] = ("float64", "int64")
    counts = False

    def __init__(self, *dims: str, dtype: str = "float64") -> None:
        if dtype not in self.dtypes:
            raise TallyError(f"{type(self).__name__} accumulates in {' or '.join(self.dtypes)}; got {dtype!r}.")
        if len(set(dims)) < len(dims):
            raise TallyError(f"The axes of a field need different names, got {dims}.")
        if "fold" in dims[1:]:
            raise TallyError(f"The fold axis comes first, got {dims}.")
        if "image" in dims and not isinstance(self, Concat):
            raise TallyError(f"Only Concat fields may have an image axis (they grow with the images), got {dims}.")
        self.dims = dims
        self.dtype: torch.dtype = getattr(torch, dtype)

    def identity(self, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError

    def merge(self, one: Tensor, two: Tensor) -> Tensor:
        raise NotImplementedError

    def over_folds(self, values: Tensor, weights: Tensor) -> Tensor:
        raise NotImplementedError


class Sum(Law):
    """Added. `counts` marks the field that says how much each fold holds, so that empty folds are known as such."""

    def __init__(self, *dims: str, dtype: str = "float64", counts: bool = False) -> None:
        super().__init__(*dims, dtype=dtype)
        self.counts = counts
        if counts and dims[:1] != ("fold",):
            raise TallyError(f"The field that counts needs a leading fold axis, got {dims}.")

    def identity(self, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype)

    def merge(self, one: Tensor, two: Tensor) -> Tensor:
        return one + two

    def over_folds(self, values: Tensor, weights: Tensor) -> Tensor:
        # A fold of weight 0 is left out, not multiplied: 0 · inf would be NaN in every leave-one-out sum.
        used = weights != 0
        combined: Tensor = torch.tensordot(weights[used], values[used].double(), dims=1)
        return combined


class Max(Law):
    """The larger one. A NaN stays."""

    def identity(self, shape: tuple[int, ...]) -> Tensor:
        low = -math.inf if self.dtype.is_floating_point else torch.iinfo(self.dtype).min
        return torch.full(shape, low, dtype=self.dtype)

    def merge(self, one: Tensor, two: Tensor) -> Tensor:
        return torch.maximum(one, two)

    def over_folds(self, values: Tensor, weights: Tensor) -> Tensor:
        return torch.cat([self.identity((1, *values.shape[1:])), values[weights != 0]]).amax(0)


class Min(Law):
    """The smaller one. A NaN stays."""

    def identity(self, shape: tuple[int, ...]) -> Tensor:
        high = math.inf if self.dtype.is_floating_point else torch.iinfo(self.dtype).max
        return torch.full(shape, high, dtype=self.dtype)

    def merge(self, one: Tensor, two: Tensor) -> Tensor:
        return torch.minimum(one, two)

    def over_folds(self, values: Tensor, weights: Tensor) -> Tensor:
        return torch.cat([self.identity((1, *values.shape[1:])), values[weights != 0]]).amin(0)


class Concat(Law):
    """One row an image, kept in the order of the field `image`. This declares that the tally grows with the images."""

    dtypes = ("float64", "float32", "int64", "uint8", "bool")

    def __init__(self, *dims: str, dtype: str = "float64") -> None:
        super().__init__(*dims, dtype=dtype)
        if dims[:1] != ("image",):
            raise TallyError(f"The first axis of a Concat field is 'image', got {dims}.")

    def identity(self, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype)

    def merge(self, one: Tensor, two: Tensor) -> Tensor:
        return torch.cat([one, two])


class Tally:
    """Base of all tallies: subclass it as a dataclass of `Annotated[Tensor, law]` fields."""

    laws: ClassVar[dict[str, Law]] = {}
    summed: bool = False
    """The fold axis has been summed out (`total`, `weighted`): ready to be estimated from, no longer to be merged."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.laws = {}
        for name, hint in get_type_hints(cls, include_extras=True).items():
            if name in Tally.__annotations__ or get_origin(hint) is ClassVar:
                continue
            if hasattr(Tally, name):
                raise TallyError(f"{cls.__name__}.{name} hides Tally.{name}; give the field another name.")
            laws = [law for law in getattr(hint, "__metadata__", ()) if isinstance(law, Law)]
            if get_origin(hint) is not Annotated or len(laws) != 1:
                raise TallyError(
                    f"{cls.__name__}.{name} needs one merge law: Annotated[Tensor, Sum('fold', …)] or Max, Min, Concat."
                )
            cls.laws[name] = laws[0]
        if any(law.dims[:1] == ("fold",) for law in cls.laws.values()) and len(cls._counters()) != 1:
            raise TallyError(
                f"{cls.__name__} has a fold axis and so needs one field that counts, Sum('fold', counts=True); "
                f"it has {len(cls._counters())}."
            )
        if any(isinstance(law, Concat) for law in cls.laws.values()):
            index = cls.laws.get("image")
            if not isinstance(index, Concat) or index.dims != ("image",) or index.dtype != torch.int64:
                raise TallyError(
                    f"{cls.__name__} has Concat fields and so needs a field image: Concat('image', dtype='int64')."
                )

    def __post_init__(self) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for name, law in self.laws.items():
            values = getattr(self, name)
            where = f"{type(self).__name__}.{name}"
            if values.dtype != law.dtype:
                raise TallyError(f"{where} should be {law.dtype}, got {values.dtype}.")
            if values.ndim != len(law.dims):
                raise TallyError(f"{where} should have the axes {law.dims}, got shape {tuple(values.shape)}.")
            for dim, size in zip(law.dims, values.shape, strict=True):
                expected, first = sizes.setdefault(dim, (size, name))
                if size != expected:
                    raise TallyError(f"{where}, axis {dim}: expected {expected} as in {first}, got {size}.")

    @classmethod
    def empty(cls, **sizes: int) -> Self:
        """The identity of merge: zeros, infinities, no rows. `sizes` gives each axis but `image`, which starts at 0."""
        cls._check_sizes(sizes, without={"image"})
        shapes = {name: tuple({**sizes, "image": 0}[dim] for dim in law.dims) for name, law in cls.laws.items()}
        return cls(**{name: law.identity(shapes[name]) for name, law in cls.laws.items()})

    def merge(self, other: Self) -> Self:
        """Both together, as a new tally. Total and exact for tallies of one class and size; refuses all others."""
        if type(other) is not type(self):
            raise TallyError(f"A {type(self).__name__} merges only with another one, got {type(other).__name__}.")
        if self.summed or other.summed:
            raise TallyError(f"The folds of this {type(self).__name__} are already summed; merge before total().")
        for name, law in self.laws.items():
            pairs = zip(law.dims, getattr(self, name).shape, getattr(other, name).shape, strict=True)
            for dim, expected, actual in pairs:
                if dim != "image" and expected != actual:
                    raise TallyError(f"{type(self).__name__}.{name}, axis {dim}: expected {expected}, got {actual}.")
        merged = {name: law.merge(getattr(self, name), getattr(other, name)) for name, law in self.laws.items()}
        return type(self)(**self._in_order(merged))

    def add(self, field: str, folds: Tensor, values: Tensor | None = None, *at: int | slice) -> None:
        """Add one value for each image (nothing given: 1) to its fold of a sum, in place: field[fold, *at] += value.

        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class RightTally(Tally):
        ...     right: Annotated[Tensor, Sum("fold", "subject")]
        ...     images: Annotated[Tensor, Sum("fold", counts=True)]
        >>> tally = RightTally.empty(fold=2, subject=3)
        >>> tally.add("right", torch.tensor([0, 1, 1]), torch.tensor([1.0, 0.0, 1.0]), 2)
        >>> tally.add("images", torch.tensor([0, 1, 1]))
        >>> tally.right.tolist(), tally.images.tolist()
        ([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]], [1.0, 2.0])
        """
        total: Tensor = getattr(self, field)
        ones = values is None
        values = torch.ones(len(folds), device=folds.device) if values is None else values
        if ones and total[(slice(None), *at)].ndim > 1:
            raise TallyError(
                f"{type(self).__name__}.{field} has more axes than the index {at} covers; pass the values to add."
            )
        values = values.to(total)
        if total.device.type == "cpu":
            total[(slice(None), *at)].index_add_(0, folds, values)
        else:
            rows = values.reshape(len(folds), math.prod(values.shape[1:]))  # -1 would ask how wide no rows are
            total[(slice(None), *at)] += sums_by(folds, rows.T, len(total)).T.reshape(-1, *values.shape[1:])

    def append(self, **rows: Tensor) -> None:
        """Add rows to the Concat fields, in place; all of them at once, `image` (the position in the source) included.

        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class CorrectTally(Tally):
        ...     image: Annotated[Tensor, Concat("image", dtype="int64")]
        ...     correct: Annotated[Tensor, Concat("image", dtype="bool")]
        >>> tally = CorrectTally.empty()
        >>> tally.append(image=torch.tensor([7, 3]), correct=torch.tensor([True, False]))
        >>> tally.correct
        tensor([False,  True])
        """
        growing = {name: law for name, law in self.laws.items() if isinstance(law, Concat)}
        if rows.keys() != growing.keys():
            raise TallyError(f"{type(self).__name__} takes rows of {sorted(growing)} together, got {sorted(rows)}.")
        rows = {name: rows[name].to(getattr(self, name).device, law.dtype) for name, law in growing.items()}
        type(self)(**{**self.tensors(), **rows})  # Refuses rows that do not fit, before anything is changed.
        longer = {name: torch.cat([getattr(self, name), rows[name]]) for name in growing}
        # Sorting asks an accelerator whether an image came twice, and waits for it: that is done when it comes home.
        for name, values in (self._in_order(longer) if longer["image"].device.type == "cpu" else longer).items():
            setattr(self, name, values)

    def to(self, device: torch.device | str) -> Self:
        """The same on another device, where sums may be added up beside what is summed."""
        there = copy.copy(self)
        fields = {name: getattr(self, name).to(device) for name in self.laws}
        for name, values in (self._in_order(fields) if torch.device(device).type == "cpu" else fields).items():
            setattr(there, name, values)
        return there

    def weighted(self, weights: Tensor) -> Self:
        """Folds combined with `weights` (fold,): leave-one-out has one 0 among ones, a bootstrap draw has counts.

        Sums are weighted; of maxima and minima the folds of weight 0 are left out; fields without folds stay as they
        are. Weighted sums are float64, also of whole numbers.
        """
        if self.summed:
            raise TallyError(f"The folds of this {type(self).__name__} are already summed.")
        folds = self.sizes.get("fold", len(weights))
        if weights.shape != (folds,):
            raise TallyError(f"{type(self).__name__} has {folds} folds, got weights of shape {tuple(weights.shape)}.")
        result = copy.copy(self)
        for name, law in self.laws.items():
            if law.dims[:1] == ("fold",):
                setattr(result, name, law.over_folds(getattr(self, name), weights.double()))
        result.summed = True
        return result

    def total(self) -> Self:
        """All folds together: what `Measure.estimate` reads."""
        return self.weighted(torch.ones(self.sizes.get("fold", 0), dtype=torch.float64))

    @property
    def fold_counts(self) -> Tensor:
        """How much each fold holds, (fold,); no folds at all, (0,), where a tally has no fold axis."""
        counters = self._counters()
        if not counters:
            return torch.zeros(0, dtype=torch.float64)
        counts: Tensor = getattr(self, counters[0])
        return counts.reshape(len(counts), -1).sum(1)

    def filled_folds(self, field: str) -> Tensor | None:
        """Which folds of a sum are not all zero, where some are; None where nothing could be left out of a file."""
        law, values = self.laws[field], getattr(self, field)
        if not isinstance(law, Sum) or law.dims[:1] != ("fold",) or self.summed:
            return None
        filled = (values.reshape(len(values), -1) != 0).any(1).nonzero().flatten()
        return filled if len(filled) < len(values) else None

    @property
    def folds(self) -> int:
        """The number of folds that hold anything."""
        return int((self.fold_counts > 0).sum())

    @property
    def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for name, law in self.laws.items():
            dims = [dim for dim in law.dims if not (self.summed and dim == "fold")]
            sizes.update(zip(dims, getattr(self, name).shape, strict=True))
        return sizes

    @property
    def nbytes(self) -> int:
        return sum(values.nbytes for values in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """The fields by name, as safetensors takes them."""
        return {name: getattr(self, name).contiguous() for name in self.laws}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        if tensors.keys() != cls.laws.keys():
            raise TallyError(f"{cls.__name__} has the fields {sorted(cls.laws)}, got {sorted(tensors)}.")
        return cls(**tensors)

    @classmethod
    def _counters(cls) -> list[str]:
        return [name for name, law in cls.laws.items() if law.counts]

    @classmethod
    def _check_sizes(cls, sizes: Mapping[str, int], without: set[str]) -> None:
        needed = {dim for law in cls.laws.values() for dim in law.dims} - without
        if sizes.keys() != needed:
            raise TallyError(f"{cls.__name__} needs the sizes of {sorted(needed)}, got {sorted(sizes)}.")

    @classmethod
    def _in_order(cls, fields: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rows sorted by image, so that the order of merging cannot be told from the result."""
        if not isinstance(cls.laws.get("image"), Concat):
            return fields
        images, order = fields["image"].sort()
        twice = images[1:][images[1:] == images[:-1]]
        if len(twice):
            raise TallyError(f"{cls.__name__} was given image {int(twice[0])} twice; shards must not overlap.")
        return {
            name: values[order] if isinstance(cls.laws[name], Concat) else values for name, values in fields.items()
        }
