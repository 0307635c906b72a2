"""Each operation against Pillow or torchvision, image by image."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from eyechart.training.operations import COLOUR, GEOMETRY, operate

FILL = torch.zeros(3)


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Smooth random pictures of full and of narrow range."""
    torch.manual_seed(0)
    coarse = torch.rand(6, 3, 5, 5)
    pictures = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic").clamp(0, 1)
    pictures[3:] = 0.3 + 0.2 * pictures[3:]
    return (pictures * 255).to(torch.uint8)


def by_pillow(images: Tensor, function: Callable[[Image.Image, int], Image.Image]) -> Tensor:
    out = [np.asarray(function(Image.fromarray(image.permute(1, 2, 0).numpy()), i)) for i, image in enumerate(images)]
    return torch.from_numpy(np.stack(out)).permute(0, 3, 1, 2)


def apart(a: Tensor, b: Tensor) -> int:
    return int((a.int() - b.int()).abs().max())


FACTORS = torch.tensor([0.1, 0.4, 0.9, 1.0, 1.5, 1.9])


@pytest.mark.parametrize(
    ("name", "enhance"),
    [
        ("brightness", ImageEnhance.Brightness),
        ("colour", ImageEnhance.Color),
        ("contrast", ImageEnhance.Contrast),
        ("sharpness", ImageEnhance.Sharpness),
    ],
)
def test_enhancements_equal_pillows(images: Tensor, name: str, enhance: Callable[[Image.Image], Any]) -> None:
    expected = by_pillow(images, lambda picture, i: enhance(picture).enhance(float(FACTORS[i])))
    assert apart(operate(name, images, FACTORS, FILL), expected) <= 2


@pytest.mark.parametrize(
    ("name", "argument", "function"),
    [
        ("autocontrast", torch.zeros(6), lambda picture, _: ImageOps.autocontrast(picture)),
        ("equalise", torch.zeros(6), lambda picture, _: ImageOps.equalize(picture)),
        ("invert", torch.zeros(6), lambda picture, _: ImageOps.invert(picture)),
        ("posterise", torch.arange(1.0, 7), lambda picture, i: ImageOps.posterize(picture, i + 1)),
        ("solarise", torch.arange(6.0) * 50, lambda picture, i: ImageOps.solarize(picture, i * 50)),
    ],
)
def test_point_operations_equal_pillows(
    images: Tensor, name: str, argument: Tensor, function: Callable[[Image.Image, int], Image.Image]
) -> None:
    assert apart(operate(name, images, argument, FILL), by_pillow(images, function)) <= 1


def test_equalising_is_exactly_pillows(images: Tensor) -> None:
    assert apart(COLOUR["equalise"](images, FACTORS), by_pillow(images, lambda p, _: ImageOps.equalize(p))) == 0


def test_solarise_add_brightens_the_dark_half_only() -> None:
    ramp = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(1, 3, 16, 16)
    out = operate("solarise-add", ramp, torch.tensor([110.7]), FILL)[0, 0].flatten()
    assert out[:128].tolist() == [value + 110 for value in range(128)]
    assert out[128:].tolist() == list(range(128, 256))


@pytest.mark.parametrize("name", GEOMETRY)
def test_geometry_equals_torchvisions(images: Tensor, name: str) -> None:
    amounts: dict[str, tuple[Any, Any]] = {"shear": (0.3, -0.2), "translate": (5, -3), "rotate": (30, -77)}
    for amount in amounts[name.split("-")[0]]:
        shift, degrees = [0, 0], [0.0, 0.0]
        angle = 0.0
        if name.startswith("shear"):
            degrees[name == "shear-y"] = float(torch.rad2deg(torch.atan(torch.tensor(amount))))
        elif name.startswith("translate"):
            shift[name == "translate-y"] = int(amount)
        else:
            angle = -amount  # torchvision's affine turns clockwise, Pillow's and torchvision's rotate the other way
        expected = tv.affine(
            images, angle, shift, 1.0, degrees, interpolation=tv.InterpolationMode.BILINEAR,
            center=[0, 0] if name.startswith("shear") else None,
        )  # fmt: skip
        mine = operate(name, images, torch.full((6,), float(amount)), FILL)
        assert apart(mine, expected) <= 2, (name, amount)


def test_rotation_is_counter_clockwise_as_in_pillow(images: Tensor) -> None:
    mine = operate("rotate", images, torch.full((6,), 90.0), FILL)
    assert apart(mine, by_pillow(images, lambda picture, _: picture.rotate(90))) <= 1


def test_what_comes_from_outside_has_the_fill_colour(images: Tensor) -> None:
    fill = torch.tensor([10.0, 20.0, 30.0])
    out = operate("translate-x", images, torch.full((6,), 4.0), fill)
    assert bool((out[:, :, :, :4] == fill.to(torch.uint8).reshape(1, 3, 1, 1)).all())
    assert torch.equal(out[:, :, :, 4:], images[:, :, :, :-4])


@pytest.mark.parametrize(
    ("name", "nothing"),
    [*((name, 0.0) for name in GEOMETRY), *((name, 1.0) for name in ("brightness", "colour", "contrast", "sharpness")),
     ("posterise", 8.0), ("solarise", 256.0), ("solarise-add", 0.0), ("identity", 0.0)],
)  # fmt: skip
def test_no_strength_changes_nothing(images: Tensor, name: str, nothing: float) -> None:
    assert torch.equal(operate(name, images, torch.full((6,), nothing), FILL + 99), images)


@pytest.mark.parametrize("name", [*COLOUR, *GEOMETRY])
def test_an_image_of_two_pixels_a_side_has_no_inside_to_sharpen(images: Tensor, name: str) -> None:
    small = images[:, :, :2, :2]
    assert operate(name, small, torch.full((6,), 2.0), FILL).shape == small.shape
    assert torch.equal(operate("sharpness", small, torch.full((6,), 2.0), FILL), small)


def test_every_image_has_its_own_argument(images: Tensor) -> None:
    together = operate("rotate", images, FACTORS * 40, FILL)
    alone = torch.cat([operate("rotate", images[i : i + 1], FACTORS[i : i + 1] * 40, FILL) for i in range(6)])
    assert apart(together, alone) <= 1
