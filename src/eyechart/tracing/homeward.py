"""From the accelerator to the CPU: all views of a pass at once, since every copy waits for the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Views = dict[str, dict[str, Tensor]]


def brought_home(seen: Mapping[str, Mapping[str, Tensor]]) -> tuple[Views, bool]:
    """The same views on the CPU, and whether every number in them is finite."""
    values = [value for at_site in seen.values() for value in at_site.values()]
    if on_the_cpu(values):
        home, finite = values, all(bool(value.isfinite().all()) for value in values)
    else:
        home, finite = in_one_copy(values)
    each = iter(home)
    return {site: {name: next(each) for name in at_site} for site, at_site in seen.items()}, finite


def on_the_cpu(values: Sequence[Tensor]) -> bool:
    return all(value.device.type == "cpu" for value in values)


def in_one_copy(values: list[Tensor]) -> tuple[list[Tensor], bool]:
    """Tensors packed end to end, one copy for each dtype; and whether all of it is finite, asked of the device once.

    >>> home, finite = in_one_copy([torch.tensor([1.0, 2.0]), torch.tensor([[3]]), torch.tensor(4.0)])
    >>> home, finite
    ([tensor([1., 2.]), tensor([[3]]), tensor(4.)], True)
    """
    home: dict[int, Tensor] = {}
    finite = []
    for dtype in dict.fromkeys(value.dtype for value in values):
        places = [place for place, value in enumerate(values) if value.dtype == dtype]
        flat = torch.cat([values[place].reshape(-1) for place in places])
        finite.append(flat.isfinite().all())
        host = torch.empty(flat.shape, dtype=dtype, pin_memory=flat.is_cuda)  # pinned memory is copied to directly
        pieces = torch.split(host.copy_(flat), [values[place].numel() for place in places])
        home |= {place: piece.view(values[place].shape) for place, piece in zip(places, pieces, strict=True)}
    return [home[place] for place in range(len(values))], bool(torch.stack(finite).all()) if finite else True
