"""From the common crop to what a model eats: its own size, interpolation and normalisation, and no crop of its own.

All subjects see one common crop of each picture (the largest central square), so that positions correspond between
them. A model's own resize-then-crop (timm's `crop_pct`, torchvision's 256 → 224) is therefore replaced by a direct
resize of that square to the input size, and accuracies are reported as "common crop".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from eyechart.errors import SubjectError
from eyechart.images.picture import resized
from eyechart.subjects.catalogue import LARGEST_INPUT

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Resizing:
    """One picture resized to `size` (y, x) with PIL, whose filters are antialiased: (3, y, x) of its bytes."""

    size: tuple[int, int]
    interpolation: str

    def __call__(self, picture: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(self.picture(picture))).permute(2, 0, 1).contiguous()

    def picture(self, picture: Image.Image) -> Image.Image:
        return resized(picture, self.size, self.interpolation)


@dataclass(frozen=True)
class Preprocessing:
    """`(pixel · scale − mean) / std` of the picture resized to `size` (y, x).

    In two steps: what happens to one picture (`each`), which subjects of equal size share and which leaves a quarter of
    the bytes to be sent to a device, and what happens to all of a batch wherever it is (`together`).

    >>> half_grey = Image.new("RGB", (64, 64), (128, 128, 128))
    >>> images = Preprocessing(size=(32, 32), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))([half_grey])
    >>> images.shape, round(images[0, 0, 0, 0].item(), 3)
    (torch.Size([1, 3, 32, 32]), 0.004)
    """

    size: tuple[int, int]
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: str = "bicubic"
    scale: float = 1 / 255

    def __post_init__(self) -> None:
        if not all(1 <= side <= LARGEST_INPUT for side in self.size):
            raise SubjectError(
                f"An input size has from 1 to {LARGEST_INPUT} pixels on a side; got {' × '.join(map(str, self.size))}."
            )
        if self.interpolation.upper() not in Image.Resampling.__members__:
            names = ", ".join(name.lower() for name in Image.Resampling.__members__)
            raise SubjectError(f"The interpolation {self.interpolation!r} is not one of PIL's: {names}.")

    def __call__(self, pictures: Sequence[Image.Image]) -> Tensor:
        return self.together(torch.stack([self.each(picture) for picture in pictures]))

    @cached_property
    def each(self) -> Resizing:
        return Resizing(self.size, self.interpolation)

    def together(self, pixels: Tensor) -> Tensor:
        """Bytes (image, 3, y, x) → float32 on the same device. Three operations, each rounded by itself: one fused
        kernel of a GPU would round otherwise than the CPU."""
        mean, std = (_of_channels(values, pixels.device) for values in (self.mean, self.std))
        return pixels.float().mul_(self.scale).sub_(mean).div_(std)

    def as_json(self) -> dict[str, Any]:
        return {
            "crop": "common crop",
            "size": list(self.size),
            "interpolation": self.interpolation,
            "mean": list(self.mean),
            "std": list(self.std),
            "scale": self.scale,
        }


@lru_cache(maxsize=64)
def _of_channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Kept on the device: sending it there with every batch would wait for all that the device still has to do."""
    return torch.tensor(values, device=device).view(1, -1, 1, 1)


@dataclass(frozen=True)
class GivenTransform:
    """A user's transform of one picture. `resize`: it keeps the picture's size, so pictures are resized before it."""

    size: tuple[int, int]
    transform: Callable[[Image.Image], Any]
    resize: Preprocessing | None = None

    def __call__(self, pictures: Sequence[Image.Image]) -> Tensor:
        return self.together(torch.stack([self.each(picture) for picture in pictures]))

    def each(self, picture: Image.Image) -> Tensor:
        return _one(self.transform, self.resize.each.picture(picture) if self.resize is not None else picture)

    def together(self, images: Tensor) -> Tensor:
        return images

    def as_json(self) -> dict[str, Any]:
        return {"crop": "common crop, then the given transform", "size": list(self.size)}


def _one(transform: Callable[[Image.Image], Any], picture: Image.Image) -> Tensor:
    image = transform(picture)
    if not isinstance(image, Tensor) or not image.is_floating_point() or image.ndim != 3 or image.shape[0] != 3:
        actual = f"{image.dtype} {tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
        raise SubjectError(f"A transform must turn a picture into a floating-point tensor (3, y, x); got {actual}.")
    return image.to(torch.float32)


def from_transform(transform: Any, fallback: Preprocessing) -> Preprocessing | GivenTransform:
    """What a user's transform asks for. A torchvision preset is read; any other callable is tried on two pictures.

    If the tensors come out in the sizes the pictures went in, the transform does not resize: `fallback`'s size is used.
    """
    if isinstance(transform, Preprocessing):
        return transform
    if hasattr(transform, "crop_size") and hasattr(transform, "mean") and hasattr(transform, "interpolation"):
        return from_torchvision(transform)
    sizes = []
    for side in (256, 320):
        _, height, width = _one(transform, Image.new("RGB", (side, side), (127, 127, 127))).shape
        sizes.append((height, width))
    if sizes[0] == sizes[1]:
        return GivenTransform(sizes[0], transform)
    return GivenTransform(fallback.size, transform, resize=fallback)


def from_torchvision(preset: Any, module: nn.Module | None = None) -> Preprocessing:
    """A torchvision preset without its crop. An untrained vision transformer is built smaller than some presets say."""
    own_size = getattr(module, "image_size", None)
    return Preprocessing(
        sides(own_size if own_size is not None else preset.crop_size[0]),
        tuple(preset.mean),
        tuple(preset.std),
        interpolation=str(preset.interpolation.value),
    )


def from_timm(module: nn.Module, name: str) -> Preprocessing:
    """timm's data config of a model it built, without its crop."""
    from timm.data.config import resolve_model_data_config

    config = resolve_model_data_config(module)  # type: ignore[no-untyped-call]
    if config["input_size"][0] != 3:
        raise not_colour(name, config["input_size"][0])
    return _from_data_config(config)


def _from_data_config(config: Mapping[str, Any]) -> Preprocessing:
    _, height, width = config["input_size"]
    return Preprocessing(
        (height, width), tuple(config["mean"]), tuple(config["std"]), interpolation=config["interpolation"]
    )


def from_processor(processor: Any) -> Preprocessing:
    """A Hugging Face image processor's fields, without its crop."""
    if hasattr(processor, "data_config"):  # timm models in transformers' clothes
        return _from_data_config(processor.data_config)
    fields = processor.to_dict()
    size = (fields.get("crop_size") if fields.get("do_center_crop") else None) or fields["size"]
    height, width = sides(size)
    mean, std = tuple(fields.get("image_mean") or (0.0,) * 3), tuple(fields.get("image_std") or (1.0,) * 3)
    if not fields.get("do_normalize", True):
        mean, std = (0.0,) * 3, (1.0,) * 3
    if fields.get("include_top"):
        std = tuple(value**2 for value in std)  # EfficientNet's divides by the deviation twice
    if fields.get("rescale_offset"):
        mean = tuple(value + 1 for value in mean)  # pixels go to −1 … 1 before the mean is taken off
    scale = float(fields.get("rescale_factor", 1 / 255)) if fields.get("do_rescale", True) else 1.0
    resample = fields.get("resample", Image.Resampling.BILINEAR)
    interpolation = Image.Resampling(int(getattr(resample, "value", resample))).name.lower()
    return Preprocessing((height, width), mean, std, interpolation, scale)


def sides(size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        height = size.get("height", size.get("shortest_edge", size.get("longest_edge")))
        width = size.get("width", height)
    else:
        height, width = (size, size) if isinstance(size, int) else size
    if height is None or width is None:
        raise SubjectError(f"The processor gives its size as {size}, from which no height and width can be read.")
    return int(height), int(width)


def for_module(module: nn.Module, name: str, input_size: tuple[int, int] | int | None) -> tuple[Preprocessing, str]:
    """Preprocessing of a bare module, and where it is from: timm's, or ImageNet's mean and deviation at its size."""
    if hasattr(module, "pretrained_cfg") and input_size is None:
        return from_timm(module, name), "timm's data config"
    said = input_size if input_size is not None else _size_of(module)
    size = sides(said if said is not None else 224)
    source = "given" if input_size is not None else "stated by the module" if said is not None else "assumed"
    return Preprocessing(size), f"ImageNet mean and deviation assumed, input size {size[0]}×{size[1]} {source}"


def _size_of(module: nn.Module) -> tuple[int, int] | int | None:
    holders = (module, getattr(module, "config", None), getattr(module, "patch_embed", None))
    for holder in holders:
        for attribute in ("input_size", "img_size", "image_size"):
            value = getattr(holder, attribute, None)
            if isinstance(value, int):
                return value
            if (
                isinstance(value, (tuple, list))
                and all(isinstance(side, int) for side in value)
                and len(value) in (2, 3)
            ):
                return (value[-2], value[-1])
    return None


def not_colour(name: str, channels: int) -> SubjectError:
    return SubjectError(
        f"{name} takes pictures of {channels} channel(s), but an exam shows colour pictures (3 channels)."
    )
