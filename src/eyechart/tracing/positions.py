"""Where in the picture each number of an activation comes from, carried through a dry run beside the activation.

Guessing the meaning of an axis from its length fails as soon as C = H = W. Instead every activation of the dry run has
a companion of the same shape, its *origins*: one float64 per element that packs (image, y, x) of the input picture. A
view, a roll or a window partition is simply applied to the companion as well; what it then shows is the truth.
An element may have no position (a class token, padding) or no image either (a parameter): those fields are empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_FIELD = 2.0**24  # bits for y and for x each; with the image they stay below the 2**53 a float64 holds exactly
_PIXEL = 1024.0  # positions are kept to 1/1024 pixel
_ORIGIN = _FIELD * _FIELD

#: The origin of a number that belongs to no image: a parameter, padding.
NOWHERE = 0.0


def pack(image: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Origins from image index (-1: none) and position in pixels (NaN: none)."""
    row = torch.where(y.isnan(), 0.0, (y.clamp(min=0) * _PIXEL).round() + 1)
    column = torch.where(x.isnan(), 0.0, (x.clamp(min=0) * _PIXEL).round() + 1)
    return (image.double() + 1) * _ORIGIN + row.double() * _FIELD + column.double()


def image_of(origins: Tensor) -> Tensor:
    """Image index of each element, -1 where there is none."""
    return (origins / _ORIGIN).floor() - 1


def position_of(origins: Tensor) -> tuple[Tensor, Tensor]:
    """(y, x) in pixels of the input picture, NaN where there is none.

    >>> origins = pack(torch.tensor([0.0, 1.0]), torch.tensor([8.0, math.nan]), torch.tensor([24.0, math.nan]))
    >>> position_of(origins)[0].tolist(), image_of(origins).tolist()
    ([8.0, nan], [0.0, 1.0])
    """
    inside = origins.remainder(_ORIGIN)
    row, column = (inside / _FIELD).floor(), inside.remainder(_FIELD)
    nan = torch.full_like(row, math.nan)
    return torch.where(row > 0, (row - 1) / _PIXEL, nan), torch.where(column > 0, (column - 1) / _PIXEL, nan)


def pixels(images: Tensor) -> Tensor:
    """Origins of a batch of pictures (image, channel, y, x): the centre of each pixel."""
    count, channels, height, width = images.shape
    image, y, x = (torch.arange(size, dtype=torch.float64, device=images.device) for size in (count, height, width))
    image, y, x = image.view(-1, 1, 1, 1), y.view(-1, 1) + 0.5, x + 0.5
    return pack(image, y, x).expand(count, channels, height, width)


def without_position(origins: Tensor) -> Tensor:
    return (origins / _ORIGIN).floor() * _ORIGIN


def slim(origins: Tensor) -> Tensor:
    """The same origins with every merely repeated axis cut to length one (expanded axes have stride 0)."""
    for axis in range(origins.dim()):
        if origins.stride(axis) == 0 and origins.shape[axis] > 1:
            origins = origins.narrow(axis, 0, 1)
    return origins


def _differs(values: Tensor, axis: int) -> bool:
    if values.shape[axis] < 2:
        return False
    return bool((values != values.narrow(axis, 0, 1)).any())


def position_varies(origins: Tensor, axis: int) -> bool:
    """Do elements along this axis sit at different positions of the picture?"""
    return _differs(slim(origins).remainder(_ORIGIN), axis)


def axes_of_positions(origins: Tensor) -> list[int]:
    """The axes along which elements sit at different positions of the picture."""
    places = slim(origins).remainder(_ORIGIN)
    return [axis for axis in range(origins.dim()) if _differs(places, axis)]


def axes_of_images(origins: Tensor) -> list[int]:
    """The axes along which elements belong to different images. Those of none (a class token) do not count."""
    images = (slim(origins) / _ORIGIN).floor()
    known = torch.where(images > 0, images, math.inf)
    # Along an axis of one element there is one image or none.
    long = [axis for axis in range(images.dim()) if images.shape[axis] > 1]
    return [axis for axis in long if bool((images.amax(axis) > known.amin(axis)).any())]


def has_position(origins: Tensor) -> bool:
    return bool((slim(origins).remainder(_ORIGIN) > 0).any())


def contract(origins: Tensor, axes: Sequence[int], *, keep: bool = False) -> Tensor:
    """Origins after the elements along `axes` were summed into one.

    Several positions become their mean (a patch flattened into channels gives the patch's centre), unless nothing else
    tells positions apart any more: then the picture as a whole was pooled and there is no position left.
    """
    axes = sorted({axis % origins.dim() for axis in axes})
    sizes = list(origins.shape)
    thin = slim(origins)
    spread = [axis for axis in axes if position_varies(origins, axis)]
    images = (thin / _ORIGIN).floor().amax(axes, keepdim=True)
    if not spread:
        merged = images * _ORIGIN + thin.remainder(_ORIGIN).amax(axes, keepdim=True)
    else:
        y, x = (value.nanmean(axes, keepdim=True) for value in position_of(thin))
        merged = pack(images - 1, y, x)
        placed = merged.remainder(_ORIGIN)
        if len(torch.unique(placed[placed > 0])) < 2:
            merged = without_position(merged)
    for axis, size in enumerate(sizes):
        if axis in axes:
            sizes[axis] = 1
        elif merged.shape[axis] != size:
            merged = merged.expand([size if at == axis else -1 for at in range(len(sizes))])
    return merged if keep else merged.reshape([size for axis, size in enumerate(sizes) if axis not in axes])


def resample(origins: Tensor, shape: Sequence[int]) -> Tensor | None:
    """Origins of a map (image, channel, y, x) after a convolution, pooling or interpolation gave it another size.

    The new cells divide the same stretch of the picture evenly. None if the map is no upright grid.
    """
    count, channels, *sizes = shape
    map_ = contract(origins, [1], keep=True) if position_varies(origins, 1) else origins[:, :1]
    if list(map_.shape[2:]) == sizes:
        return map_.expand(count, channels, *sizes)
    if len(sizes) != 2 or map_.shape[0] != count:
        return None
    values = torch.stack(position_of(map_[:, 0]))  # (coordinate, image, y, x)
    if values.isnan().all():
        return without_position(map_[:, :, :1, :1]).expand(count, channels, *sizes)
    centre = values.nanmean((2, 3), keepdim=True)
    rows, columns = values.nanmean(3, keepdim=True) - centre, values.nanmean(2, keepdim=True) - centre
    if ((rows + columns + centre - values).abs().nan_to_num() > 0.5).any():
        return None
    y, x = centre + _stretch(rows, 2, sizes[0]) + _stretch(columns, 3, sizes[1])
    image = image_of(map_[:, 0]).amax((1, 2), keepdim=True)
    return pack(image, y, x).unsqueeze(1).expand(count, channels, *sizes)


def _stretch(profile: Tensor, axis: int, size: int) -> Tensor:
    """Spread `size` cells evenly over what the cells along `axis` covered; padding at the ends (NaN) is not counted."""
    line = profile.movedim(axis, -1).reshape(-1, profile.shape[axis])
    cells_inside = torch.nonzero(~line.isnan().any(0)).flatten()
    first, last = int(cells_inside[0]), int(cells_inside[-1])
    step = (line[:, last] - line[:, first]) / max(last - first, 1)
    extent = step * (last - first + 1)
    cells = (torch.arange(size, dtype=line.dtype, device=line.device) + 0.5) / size
    spread = (line[:, first] - step / 2).unsqueeze(1) + extent.unsqueeze(1) * cells
    lead = [length for at, length in enumerate(profile.shape) if at != axis]
    return spread.reshape(*lead, size).movedim(-1, axis)


def blend(origins: Sequence[Tensor | None], shape: Sequence[int]) -> Tensor | None:
    """Origins of an elementwise result: those of the first operand that has any, element by element."""
    candidates = [origin.expand(shape) for origin in origins if origin is not None]
    if not candidates:
        return None
    result = candidates[0]
    for other in candidates[1:]:
        if other is result or (other.stride() == result.stride() and other.data_ptr() == result.data_ptr()):
            continue
        lacking = result.remainder(_ORIGIN) == 0
        if lacking.any():
            better = lacking & ((other.remainder(_ORIGIN) > 0) | (result == NOWHERE))
            result = torch.where(better, other, result)
    return result
