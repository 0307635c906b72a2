"""Each corruption does what its name says, by brute force or in closed form (SPEC Appendix A, M22)."""

from __future__ import annotations

import colorsys
import io
import itertools
import math
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Generator, Tensor

from eyechart.corruptions import SEVERITIES, STRENGTHS, TYPES, corrupt, set_for
from eyechart.corruptions.blur import disc, dragged, enlarged, gaussian, scattered
from eyechart.corruptions.digital import affine, grid, sampled
from eyechart.corruptions.weather import FROST_COLOUR, clouds, crystals
from eyechart.images import open_images

NOT_IN_ORDER = {"glass_blur", "frost", "elastic_transform"}
"""Types whose published constants do not lead away from the clean picture step by step: see `strengths`."""


def dice(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    seen = open_images("sample").pictures(range(16))
    return torch.from_numpy(np.stack([np.asarray(picture) for picture in seen])).permute(0, 3, 1, 2) / 255


@pytest.fixture(scope="module")
def photographs(pictures: Tensor) -> Tensor:
    """Larger, and not square."""
    return torch.nn.functional.interpolate(pictures[:4], (96, 120), mode="bicubic").clamp(0, 1)


def everything() -> list[tuple[str, int]]:
    return list(itertools.product(TYPES, range(1, 1 + SEVERITIES)))


def test_fifteen_types_of_five_severities_by_their_published_names() -> None:
    assert len(TYPES) == 15
    for table in STRENGTHS.values():
        assert tuple(table) == TYPES
        assert all(len(strengths) == SEVERITIES for strengths in table.values())
    assert set_for(32, 32) == "CIFAR-10-C"
    assert set_for(224, 224) == "ImageNet-C"


def test_severity_0_is_the_clean_picture(pictures: Tensor) -> None:
    for name in TYPES:
        assert corrupt(pictures, name, 0, dice()) is pictures


@pytest.mark.parametrize("large", [False, True])
def test_every_corruption_is_a_picture_and_another_one(pictures: Tensor, photographs: Tensor, large: bool) -> None:
    given = photographs if large else pictures
    for name, severity in everything():
        found = corrupt(given, name, severity, dice())
        assert found.shape == given.shape, name
        assert found.dtype == given.dtype, name
        assert found.min() >= 0, name
        assert found.max() <= 1, name
        assert (found - given).abs().mean() > 1e-3, name


@pytest.mark.parametrize("large", [False, True])
def test_severity_leads_away_from_the_clean_picture(pictures: Tensor, photographs: Tensor, large: bool) -> None:
    given = photographs if large else pictures
    for name in TYPES:
        far = [float((corrupt(given, name, severity, dice()) - given).square().mean()) for severity in range(1, 6)]
        if name not in NOT_IN_ORDER:
            assert all(later > 0.995 * earlier for earlier, later in itertools.pairwise(far)), (name, far)
            assert far[-1] > 1.3 * far[0], (name, far)


def test_draws_are_the_generator_s(pictures: Tensor) -> None:
    for name in TYPES:
        once, again, other = (corrupt(pictures, name, 4, dice(seed)) for seed in (1, 1, 2))
        assert torch.equal(once, again), name
        assert torch.equal(once, other) == (name in {"defocus_blur", "zoom_blur", *deterministic()}), name


def deterministic() -> set[str]:
    return {"brightness", "contrast", "pixelate", "jpeg_compression"}


def test_noise_has_the_stated_strength() -> None:
    grey = torch.full((4, 3, 128, 128), 0.5)
    gaussian_noise, shot, impulse = (
        corrupt(grey, name, 2, dice(), "CIFAR-10-C") for name in ("gaussian_noise", "shot_noise", "impulse_noise")
    )
    assert float(gaussian_noise.std()) == pytest.approx(0.06, rel=0.02)
    assert float(shot.std()) == pytest.approx(math.sqrt(0.5 / 250), rel=0.02)
    assert float(shot.mean()) == pytest.approx(0.5, abs=0.001)
    assert float((impulse != 0.5).float().mean()) == pytest.approx(0.02, abs=0.002)
    assert float((impulse == 1).float().mean()) == pytest.approx(0.01, abs=0.0015)
    assert set(impulse.unique().tolist()) == {0.0, 0.5, 1.0}


def fine_detail(pictures: Tensor) -> float:
    """Energy in the upper half of the frequencies."""
    waves = torch.fft.fft2(pictures).abs().square()
    up, across = (torch.fft.fftfreq(size).abs() for size in pictures.shape[-2:])
    return float(waves[..., torch.maximum(up[:, None], across) > 0.25].mean())


def test_blurs_take_fine_detail(pictures: Tensor, photographs: Tensor) -> None:
    for name in ("defocus_blur", "motion_blur", "zoom_blur"):
        assert fine_detail(corrupt(pictures, name, 5, dice())) < 0.5 * fine_detail(pictures), name
    speckled = (photographs + 0.1 * torch.randn(photographs.shape, generator=dice())).clamp(0, 1)
    for name in ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"):
        assert fine_detail(corrupt(speckled, name, 5, dice())) < 0.5 * fine_detail(speckled), name


def test_disc_is_a_disc() -> None:
    kernel = disc(4, 0.01)
    assert float(kernel.sum()) == pytest.approx(1, abs=1e-6)
    half = kernel.shape[0] // 2
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    inside = y**2 + x**2 <= 16
    assert np.allclose(kernel.numpy(), inside / inside.sum(), atol=1e-6)


@pytest.mark.parametrize(("severity", "brighter"), [(3, 1.0), (4, 1.012976), (5, 1.010786)])
def test_wide_defocus_brightens_as_the_published_scripts_do(severity: int, brighter: float) -> None:
    """Sums of the kernels that `cv2.GaussianBlur` (OpenCV 5.0) makes of their discs: it mirrors at the border."""
    grey = torch.full((1, 3, 64, 64), 0.5)
    blurred = corrupt(grey, "defocus_blur", severity, dice(), "ImageNet-C")
    assert torch.allclose(blurred, torch.tensor(0.5 * brighter), atol=1e-5)


def test_gaussian_is_scipy_s_also_where_it_is_wider_than_the_picture() -> None:
    maps = torch.rand(2, 20, 28, generator=dice())
    ways: dict[str, Literal["nearest", "reflect"]] = {"nearest": "nearest", "mirror": "reflect"}  # ours, scipy's
    for sigma, border in ((1.3, "nearest"), (9.0, "nearest"), (20.0, "mirror")):
        expected = ndimage.gaussian_filter(maps.numpy(), (0, sigma, sigma), mode=ways[border], truncate=3.0)
        assert np.allclose(gaussian(maps, sigma, border=border, truncate=3.0).numpy(), expected, atol=1e-5)
    assert torch.equal(gaussian(maps, 0, border="mirror"), maps)


@pytest.mark.parametrize("reach", [1, 3])
def test_glass_moves_pixels_as_the_published_loop_does(reach: int) -> None:
    """A pixel takes over what another holds by then, from the lower right to the upper left."""
    height, width = 14, 17
    pixels = torch.rand(3, 1, height, width, generator=dice())
    source = scattered(pixels, reach, dice(5))
    steps = torch.randint(-reach, reach, (2, 3, height, width), generator=dice(5)).numpy()
    for image in range(3):
        held = np.arange(height * width).reshape(height, width)
        for y in range(height - reach, reach, -1):
            for x in range(width - reach, reach, -1):
                held[y, x] = held[y + steps[0, image, y, x], x + steps[1, image, y, x]]
        assert np.array_equal(source[image].numpy(), held.ravel())


def test_numpy_s_swap_of_pixels_copies() -> None:
    """Why `scattered` copies: what the published loop does to pixels of three colours."""
    picture = np.arange(6).reshape(1, 2, 3)
    picture[0, 0], picture[0, 1] = picture[0, 1], picture[0, 0]
    assert picture.tolist() == [[[3, 4, 5], [3, 4, 5]]]


def test_motion_is_half_a_gaussian_along_a_line() -> None:
    dot = torch.zeros(2, 1, 21, 21)
    dot[..., 10, 10] = 1
    level, upright = dragged(dot, 3, 2.0, torch.tensor([0.0, 90.0]))[:, 0]
    taps = torch.exp(-(torch.arange(7.0) ** 2) / 8)
    assert torch.allclose(level[10, 4:11].flip(0), taps / taps.sum(), atol=1e-6)  # what lies to the right is seen
    assert torch.equal(level.T, upright)
    assert float(level.sum()) == pytest.approx(1, abs=1e-6)


def test_zoom_enlarges_the_middle() -> None:
    ramp = torch.linspace(0, 1, 33).expand(1, 1, 33, 33)
    larger = enlarged(ramp, 1.5)
    assert larger.shape == ramp.shape
    assert float(larger[0, 0, 16, 16]) == pytest.approx(0.5, abs=0.5 / 32)  # cut at whole pixels
    assert float(larger[0, 0, 0, 20] - larger[0, 0, 0, 12]) == pytest.approx(8 / 32 / 1.5, rel=0.05)
    assert torch.equal(enlarged(ramp, 1.0), ramp)


def test_brightness_raises_the_value_and_keeps_hue_and_saturation(pictures: Tensor) -> None:
    found = corrupt(pictures, "brightness", 3, dice())
    assert found.mean() > pictures.mean()
    for place in itertools.product(range(4), (3, 20), (7, 30)):
        image, y, x = place
        hue, saturation, value = colorsys.rgb_to_hsv(*pictures[image, :, y, x].tolist())
        expected = colorsys.hsv_to_rgb(hue, saturation, min(1, value + 0.15))
        assert found[image, :, y, x].tolist() == pytest.approx(expected, abs=1e-5)
    assert torch.allclose(corrupt(torch.zeros(1, 3, 4, 4), "brightness", 3, dice()), torch.tensor(0.15))


def test_contrast_is_what_is_left_of_the_deviation(pictures: Tensor) -> None:
    found = corrupt(pictures, "contrast", 5, dice())
    assert torch.allclose(found.std((2, 3)), 0.15 * pictures.std((2, 3)), atol=1e-5)
    assert torch.allclose(found.mean((2, 3)), pictures.mean((2, 3)), atol=1e-5)


def test_pixelate_leaves_cells_of_one_colour(photographs: Tensor) -> None:
    found = corrupt(photographs, "pixelate", 5, dice())
    cells = found.unfold(2, 4, 4).unfold(3, 4, 4)  # a quarter of the width
    assert torch.equal(cells.amax((-2, -1)), cells.amin((-2, -1)))


def test_jpeg_is_pillow_s(pictures: Tensor) -> None:
    found = corrupt(pictures[:1], "jpeg_compression", 3, dice())
    file = io.BytesIO()
    picture = Image.fromarray((pictures[0] * 255).round().byte().permute(1, 2, 0).numpy())
    picture.save(file, "JPEG", quality=58)
    expected = np.asarray(Image.open(file)) / 255
    assert np.allclose(found[0].permute(1, 2, 0).numpy(), expected, atol=1e-6)


def test_elastic_map_shifts_three_points_and_reads_between_pixels(pictures: Tensor) -> None:
    places = affine(5, 32, 40, shift=3.0, generator=dice())
    moved = torch.tensor([[26.0, 30.0], [6.0, 30.0], [6.0, 10.0]])  # ± a third of 32 around (16, 20)
    moved = moved + 3 * (2 * torch.rand(5, 3, 2, generator=dice()) - 1)
    linear = places[:, 1, 1] - places[:, 0, 1] - places[:, 1, 0] + places[:, 0, 0]
    assert linear.abs().max() < 1e-4
    for image in range(5):  # a shifted point shows what was at the corner
        down, across = places[image, 1, 0] - places[image, 0, 0], places[image, 0, 1] - places[image, 0, 0]
        origin = places[image, 0, 0] + moved[image, :, :1] * down + moved[image, :, 1:] * across
        assert torch.allclose(origin, torch.tensor([[26.0, 30.0], [6.0, 30.0], [6.0, 10.0]]), atol=1e-3)
    assert torch.allclose(affine(1, 8, 8, shift=0.0, generator=dice())[0], grid(8, 8), atol=1e-4)
    for border in ("centre", "edge"):
        still = sampled(pictures, grid(32, 32).expand(16, 32, 32, 2), border=border)
        assert torch.allclose(still, pictures, atol=1e-5)
        half = sampled(pictures, (grid(32, 32) + torch.tensor([0.0, 0.5])).expand(16, 32, 32, 2), border=border)
        assert torch.allclose(half[..., :-1], (pictures[..., :-1] + pictures[..., 1:]) / 2, atol=1e-5)


def test_fog_lies_on_the_picture_and_keeps_its_brightest_value(pictures: Tensor) -> None:
    thick = clouds(3, 30, 1.75, dice())
    assert thick.shape == (3, 1, 32, 32)
    assert torch.equal(thick.amin((1, 2, 3)), torch.zeros(3))
    assert torch.equal(thick.amax((1, 2, 3)), torch.ones(3))
    rough, smooth = (clouds(64, 32, decay, dice()).diff(dim=3).square().mean() for decay in (1.4, 3.0))
    assert rough > 2 * smooth
    found = corrupt(pictures, "fog", 5, dice())
    assert (found.amax((1, 2, 3)) <= pictures.amax((1, 2, 3)) + 1e-6).all()
    assert found.std() < pictures.std()


def test_snow_and_frost_brighten(pictures: Tensor) -> None:
    dark = 0.3 * pictures
    assert (corrupt(dark, "snow", 4, dice()) >= dark - 1e-6).float().mean() > 0.99
    assert (corrupt(dark, "frost", 1, dice()) >= dark).all()
    ice = crystals(torch.zeros(200, 3, 64, 64), dice())
    assert ice.mean((0, 2, 3)).tolist() == pytest.approx(FROST_COLOUR, abs=0.02)
    assert float(ice.mean(1).std((1, 2)).mean()) == pytest.approx(0.1, abs=0.02)
    shade = ice.mean(1) - ice.mean((1, 2, 3))[:, None, None]
    waves = torch.fft.fft2(shade).abs().square().mean(0)
    assert waves[0, 4] > 4 * waves[0, 16]  # a power law of −1.5 gives 8, white noise 1
