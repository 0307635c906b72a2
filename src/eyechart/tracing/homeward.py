"""From the accelerator to the CPU: all views of a pass at once, since every copy waits for the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Views = dict[str, dict[str, Tensor]]


def brought_home(seen: Mapping[str, Mapping[str, Tensor]]) -> Views:
    """The same views on the CPU."""
    values = [value for at_site in seen.values() for value in at_site.values()]
    each = iter(values if on_the_cpu(values) else in_one_copy(values))
    return {site: {name: next(each) for name in at_site} for site, at_site in seen.items()}


def on_the_cpu(values: Sequence[Tensor]) -> bool:
    return all(value.device.type == "cpu" for value in values)


def in_one_copy(values: list[Tensor]) -> list[Tensor]:
    """Tensors packed end to end, one copy for each dtype.

    >>> in_one_copy([torch.tensor([1.0, 2.0]), torch.tensor([[3]]), torch.tensor(4.0)])
    [tensor([1., 2.]), tensor([[3]]), tensor(4.)]
    """
    home: dict[int, Tensor] = {}
    for dtype in dict.fromkeys(value.dtype for value in values):
        places = [place for place, value in enumerate(values) if value.dtype == dtype]
        flat = torch.cat([values[place].reshape(-1) for place in places])
        host = torch.empty(flat.shape, dtype=dtype, pin_memory=flat.is_cuda)  # pinned memory is copied to directly
        pieces = torch.split(host.copy_(flat), [values[place].numel() for place in places])
        home |= {place: piece.view(values[place].shape) for place, piece in zip(places, pieces, strict=True)}
    return [home[place] for place in range(len(values))]
