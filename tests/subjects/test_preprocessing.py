"""Each model's own preprocessing, compared with the transform its own library makes once the crop is taken out."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from eyechart.errors import SubjectError
from eyechart.subjects import preprocessing
from eyechart.subjects.load import load_subject
from eyechart.subjects.preprocessing import Preprocessing


def picture(side: int, seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (side // 4, side // 4, 3), dtype=np.uint8))
    return coarse.resize((side, side), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("side", [300, 224, 60])
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18", "mobilenetv3_small_050"])
def test_timm_models_see_what_timms_transform_gives_without_its_crop(name: str, side: int) -> None:
    from timm.data import create_transform, resolve_model_data_config

    subject = load_subject(f"timm:{name}@random")
    transform = create_transform(**{**resolve_model_data_config(subject.module), "crop_pct": 1.0})
    images = subject.prepare([picture(side), picture(side, seed=1)])
    assert images.dtype == torch.float32
    torch.testing.assert_close(images, torch.stack([transform(picture(side)), transform(picture(side, seed=1))]))


def test_torchvision_models_see_what_their_preset_gives_without_its_crop() -> None:
    from torchvision.models import EfficientNet_B1_Weights

    subject = load_subject("torchvision:efficientnet_b1@random")
    preset = EfficientNet_B1_Weights.DEFAULT.transforms()
    preset.resize_size = preset.crop_size
    assert subject.input_size == (240, 240)
    torch.testing.assert_close(subject.prepare([picture(300)])[0], preset(picture(300)))


def test_an_untrained_vit_h_is_not_fed_the_size_of_its_larger_trained_brother() -> None:
    from torchvision.models import ViT_H_14_Weights
    from torchvision.models.vision_transformer import VisionTransformer

    small = VisionTransformer(224, 14, 1, 1, 16, 16)
    assert ViT_H_14_Weights.DEFAULT.transforms().crop_size == [518]
    assert preprocessing.from_torchvision(ViT_H_14_Weights.DEFAULT.transforms(), small).size == (224, 224)


@pytest.mark.parametrize(
    ("kind", "options", "side"),
    [
        ("ViTImageProcessor", {}, 224),
        ("DeiTImageProcessor", {}, 224),  # resizes to 256 and crops 224: the input size is 224
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 192}}, 192),
        ("CLIPImageProcessor", {}, 224),
        ("EfficientNetImageProcessor", {"include_top": True}, 346),  # normalises twice
        ("EfficientNetImageProcessor", {"include_top": False, "rescale_offset": True}, 346),
    ],
)
def test_hugging_face_processors_agree_on_pictures_of_the_input_size(
    kind: str, options: dict[str, object], side: int
) -> None:
    import transformers

    processor = getattr(transformers, kind)(**options)
    ours = preprocessing.from_processor(processor)
    assert ours.size == (side, side)
    whole = picture(side)
    theirs = processor(whole, do_resize=False, do_center_crop=False, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(ours([whole]), theirs, atol=1e-5, rtol=1e-5)


def test_hugging_face_resize_is_the_processors_own() -> None:
    import transformers

    processor = transformers.ViTImageProcessor(size={"height": 48, "width": 48}, resample=3)
    ours = preprocessing.from_processor(processor)
    theirs = processor(picture(100), return_tensors="pt")["pixel_values"]
    assert ours.interpolation == "bicubic"
    # Pixels are rounded to whole numbers after the resize here or there: one grey level is 2/255.
    assert (ours([picture(100)]) - theirs).abs().max() < 2.5 / 255


def test_a_picture_of_the_right_size_is_not_touched() -> None:
    prepare = Preprocessing((32, 32), mean=(0.0,) * 3, std=(1.0,) * 3, scale=1.0)
    exact = picture(32)
    assert prepare.each.picture(exact) is exact
    assert np.array_equal(prepare([exact])[0].permute(1, 2, 0).numpy(), np.asarray(exact))


def test_grey_pictures_become_colour() -> None:
    images = Preprocessing((8, 8))([Image.new("L", (8, 8), 200)])
    assert images.shape == (1, 3, 8, 8)


def test_an_unknown_interpolation_is_refused() -> None:
    with pytest.raises(SubjectError, match="'random' is not one of PIL's"):
        Preprocessing((8, 8), interpolation="random")


class Tiny(nn.Module):
    def __init__(self, channels: int = 3, **attributes: object) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.conv(images).mean((2, 3))


def test_a_module_alone_is_fed_imagenet_statistics_at_its_size_and_the_card_says_so() -> None:
    assert load_subject(Tiny()).input_size == (224, 224)
    assert load_subject(Tiny(img_size=48)).input_size == (48, 48)
    assert load_subject(Tiny(input_size=(3, 40, 56))).input_size == (40, 56)
    given = load_subject(Tiny(img_size=48), input_size=96)
    assert given.input_size == (96, 96)
    assert "assumed" in given.card["notes"][0]


def test_a_given_transform_is_used_as_it_is() -> None:
    from torchvision.transforms import v2

    transform = v2.Compose([v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Resize((20, 24))])
    subject = load_subject(Tiny(), transform=transform)
    assert subject.input_size == (20, 24)
    torch.testing.assert_close(subject.prepare([picture(64)])[0], transform(picture(64)))


def test_a_transform_that_does_not_resize_gets_pictures_of_the_modules_size() -> None:
    from torchvision.transforms import v2

    transform = v2.Compose([v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
    subject = load_subject(Tiny(img_size=40), transform=transform)
    images = subject.prepare([picture(64), picture(100)])
    assert images.shape == (2, 3, 40, 40)
    resized = picture(64).resize((40, 40), Image.Resampling.BICUBIC)
    torch.testing.assert_close(images[0], transform(resized))


def test_a_torchvision_preset_as_transform_loses_its_crop() -> None:
    from torchvision.models import ResNet50_Weights

    subject = load_subject(Tiny(), transform=ResNet50_Weights.IMAGENET1K_V1.transforms())
    assert subject.preprocessing == Preprocessing((224, 224), interpolation="bilinear")


@pytest.mark.parametrize(
    ("transform", "came"), [(lambda p: p, "Image"), (lambda p: torch.zeros(3, 8, 8, dtype=torch.uint8), "uint8")]
)
def test_a_transform_that_gives_no_float_tensor_is_refused(transform: object, came: str) -> None:
    with pytest.raises(SubjectError, match=f"floating-point tensor .*; got .*{came}"):
        load_subject(Tiny(), transform=transform)


def test_a_grey_model_is_refused_with_the_channels_it_wants() -> None:
    with pytest.raises(SubjectError, match=r"Tiny cannot be called on one colour picture .*1 channels"):
        load_subject(Tiny(channels=1))
