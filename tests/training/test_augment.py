"""Known answers of the augmentation."""

from typing import Any

import pytest
import torch
from timm.data.auto_augment import LEVEL_TO_ARG
from torch import Tensor

from eyechart.training.augment import (
    RAND,
    Normalisation,
    augment,
    boxes,
    crop_and_flip,
    erase,
    mix,
    prepare_chunk,
    rand_argument,
    shuffled_patches,
    soft_targets,
    trivial_argument,
)
from eyechart.training.recipes import find_recipe

PLAIN = find_recipe("none")
GREY = torch.full((3,), 127.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int = 64, size: int = 8) -> Tensor:
    return torch.randint(1, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator(9))


def test_every_crop_is_a_window_of_the_padded_image_and_all_are_drawn() -> None:
    image = pictures(1)
    crops = crop_and_flip(image.expand(2000, -1, -1, -1), 1, True, generator())
    padded = torch.nn.functional.pad(image[0], [1] * 4)
    windows = [padded[:, y : y + 8, x : x + 8] for y in range(3) for x in range(3)]
    windows += [window.flip(2) for window in windows]
    counts = [int((crops == window).flatten(1).all(1).sum()) for window in windows]
    assert sum(counts) == 2000
    assert min(counts) > 60  # 111 expected of each of the 18


def test_without_padding_a_crop_is_the_image_or_its_mirror() -> None:
    images = pictures()
    assert torch.equal(crop_and_flip(images, 0, False, generator()), images)
    flipped = crop_and_flip(images, 0, True, generator())
    again = crop_and_flip(flipped, 0, True, generator())
    assert torch.equal(again, images)
    assert not torch.equal(flipped, images)


def test_shuffled_patches_are_the_images_own_in_every_order_and_each_image_has_its_own() -> None:
    image = pictures(1)
    shuffled = shuffled_patches(image.expand(3000, -1, -1, -1), 4, generator())
    patches = [image[0, :, y : y + 4, x : x + 4] for y in (0, 4) for x in (0, 4)]
    places = torch.stack(
        [
            torch.stack([(shuffled[:, :, y : y + 4, x : x + 4] == patch).flatten(1).all(1) for patch in patches], 1)
            for y in (0, 4)
            for x in (0, 4)
        ],
        dim=1,
    )  # (image, place, patch)
    assert bool((places.sum(1) == 1).all()), "every patch is there once, whole and unturned"
    orders = places.int().argmax(2)
    assert len(torch.unique(orders, dim=0)) == 24
    counts = torch.unique(orders, dim=0, return_counts=True)[1]
    assert int(counts.min()) > 85  # 125 expected of each
    assert torch.equal(shuffled_patches(image, 8, generator()), image)


def test_patches_are_shuffled_before_the_batch_is_mixed() -> None:
    images, labels = pictures(4), torch.arange(4)
    normalisation = Normalisation((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    inputs, _ = prepare_chunk(images, labels, PLAIN, normalisation, 4, 4, generator(), 4)
    assert torch.equal(inputs[0], normalisation.apply(shuffled_patches(images, 4, generator())))
    plain, _ = prepare_chunk(images, labels, PLAIN, normalisation, 4, 4, generator())
    assert torch.equal(plain[0], normalisation.apply(images))


def test_levels_are_timms() -> None:
    level = torch.tensor([0.0, 0.35, 0.85, 1.0])
    one = torch.ones(4)
    theirs = {
        "rotate": "Rotate", "posterise": "Posterize", "solarise": "Solarize", "solarise-add": "SolarizeAdd",
        "colour": "Color", "contrast": "Contrast", "brightness": "Brightness", "sharpness": "Sharpness",
        "shear-x": "ShearX", "shear-y": "ShearY",
    }  # fmt: skip
    levels: dict[str, Any] = LEVEL_TO_ARG  # None where an operation has no level
    for name, other in theirs.items():
        expected = [abs(levels[other](10 * float(value), {})[0]) for value in level]
        mine = rand_argument(name, level, one, 32, increasing=False)
        mine = mine.floor() if name == "solarise-add" else mine  # the operation itself adds whole levels
        assert mine.tolist() == pytest.approx(expected, abs=1e-4)
    for name, other in (("posterise", "PosterizeIncreasing"), ("solarise", "SolarizeIncreasing")):
        expected = [levels[other](10 * float(value), {})[0] for value in level]
        assert rand_argument(name, level, one, 32, increasing=True).tolist() == pytest.approx(expected)
    assert rand_argument("translate-x", level, -one, 32, False).tolist() == pytest.approx([0, -5.04, -12.24, -14.4])
    assert rand_argument("colour", level, -one, 32, True).tolist() == pytest.approx([1, 0.685, 0.235, 0.1], abs=1e-4)


def test_trivial_augments_weakest_level_changes_nothing() -> None:
    nothing = torch.zeros(1)
    assert trivial_argument("posterise", nothing, nothing + 1, 32).item() == 8
    assert trivial_argument("solarise", nothing, nothing + 1, 32).item() == 255
    assert trivial_argument("contrast", nothing, nothing + 1, 32).item() == 1
    assert trivial_argument("rotate", nothing + 1, nothing - 1, 32).item() == -135


def test_augment_with_probability_0_or_no_layers_changes_nothing() -> None:
    images = pictures()
    for recipe in (
        find_recipe("strong").changed(augment_probability=0.0),
        find_recipe("strong").changed(augment_layers=0),
    ):
        assert torch.equal(augment(images, recipe, GREY, generator()), images)


def test_half_of_the_images_of_one_layer_are_touched() -> None:
    images = pictures(3000)
    recipe = find_recipe("strong").changed(augment_layers=1)
    touched = (augment(images, recipe, GREY, generator()) != images).flatten(1).any(1).float().mean()
    # Of 15 operations, autocontrast does nothing to noise of full range: between 13/15 and 15/15 of one half.
    assert 0.40 < float(touched) < 0.52
    assert len(RAND) == 15


@pytest.mark.parametrize("kind", ["rand", "trivial"])
def test_augment_draws_from_its_generator_only(kind: str) -> None:
    images, recipe = pictures(), find_recipe("strong").changed(augment=kind)
    first, second = (augment(images, recipe, GREY, generator(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, augment(images, recipe, GREY, generator(2)))


def test_soft_targets_sum_to_one() -> None:
    targets = soft_targets(torch.tensor([0, 2]), 4, 0.1)
    torch.testing.assert_close(targets, torch.tensor([[0.925, 0.025, 0.025, 0.025], [0.025, 0.025, 0.925, 0.025]]))


def chunk() -> tuple[Tensor, Tensor]:
    """Images that are constant at their own number, and one-hot targets of the same number: 60 batches of 5."""
    images = torch.arange(5.0).reshape(1, 5, 1, 1, 1).expand(60, 5, 3, 16, 16)
    return images, torch.eye(5).expand(60, 5, 5)


def test_mixup_mixes_images_and_targets_alike() -> None:
    images, targets = chunk()
    mixed, soft = mix(images, targets, PLAIN.changed(mixup=1.0), generator())
    assert float(mixed.std(dim=(2, 3, 4)).max()) < 1e-6
    torch.testing.assert_close(soft.sum(-1), torch.ones(60, 5))
    torch.testing.assert_close(mixed[..., 0, 0, 0], (soft * torch.arange(5.0)).sum(-1))
    assert 0.2 < float(soft[:, 0, 0].std()) < 0.4  # uniform shares: 0.29


def test_cutmix_pastes_a_box_of_exactly_the_targets_share() -> None:
    images, targets = chunk()
    mixed, soft = mix(images, targets, PLAIN.changed(cutmix=1.0), generator())
    own = (mixed == images).all(2).float().mean(dim=(2, 3))
    torch.testing.assert_close(soft.diagonal(dim1=1, dim2=2), own)
    assert bool(((mixed == images) | (mixed == images.roll(1, 1))).all())
    assert float(own.mean()) < 0.95


def test_both_are_drawn_and_some_batches_stay() -> None:
    images, targets = chunk()
    recipe = PLAIN.changed(mixup=1.0, cutmix=1.0, mix_probability=0.5)
    mixed, soft = mix(images, targets, recipe, generator())
    clean = (soft.amax(-1) == 1).all(1)
    pasted = ((mixed == images) | (mixed == images.roll(1, 1))).flatten(1).all(1) & ~clean
    assert 18 <= int(clean.sum()) <= 42
    assert 6 <= int(pasted.sum()) <= 26
    assert torch.equal(mixed[clean], images[clean])


def test_boxes_are_cut_off_at_the_border() -> None:
    half = torch.tensor([0.5])
    assert int(boxes(half, half, half, half, 8, 8).sum()) == 16
    assert int(boxes(half * 0, half * 0, half, half, 8, 8).sum()) == 4


def test_erasing_replaces_one_box_in_the_asked_share_of_images() -> None:
    images = torch.full((400, 3, 32, 32), 7.0)
    out = erase(images, 0.25, generator())
    changed = (out != 7).all(1)
    touched = changed.flatten(1).any(1)
    assert 0.17 < float(touched.float().mean()) < 0.33
    for mask in changed[touched]:
        rows, columns = mask.any(1).sum(), mask.any(0).sum()
        assert int(mask.sum()) == int(rows * columns)
    assert torch.equal(erase(images, 0.0, generator()), images)


def test_erased_boxes_have_their_whole_area_inside_the_image() -> None:
    images = torch.full((2000, 3, 32, 32), 7.0)
    changed = (erase(images, 1.0, generator()) != 7).all(1)
    areas = changed.float().mean(dim=(1, 2))
    assert float(areas.min()) > 0.015  # 2 %, but for the rounding of the sides
    assert 0.30 < float(areas.max()) < 0.36
    assert float(areas.mean()) == pytest.approx((0.02 + 1 / 3) / 2, abs=0.01)  # areas are drawn evenly
    sides = torch.stack([changed.any(2).sum(1), changed.any(1).sum(1)]).float()
    assert 0.25 < float((sides[0] / sides[1]).min()) < 0.4
    assert float(sides[0].mean()) == pytest.approx(float(sides[1].mean()), rel=0.05)
    assert int((changed.any(0) == 0).sum()) == 0


def test_a_chunk_without_augmentation_is_the_normalised_images() -> None:
    images, labels = pictures(6), torch.arange(6) % 3
    normalisation = Normalisation((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    inputs, targets = prepare_chunk(images, labels, PLAIN, normalisation, 3, 2, generator())
    assert inputs.shape == (3, 2, 3, 8, 8)
    expected = (images[3, 1, 4, 5] / 255 - 0.4) / 0.3
    assert float(inputs[1, 1, 1, 4, 5]) == pytest.approx(float(expected), abs=1e-5)
    assert targets.argmax(-1).flatten().tolist() == labels.tolist()
