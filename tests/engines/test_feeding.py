"""What subjects are fed: the very numbers of their own preprocessing, resized once for all of equal size."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from eyechart.engines.shard import TappedSubject, pictures_of
from eyechart.images import common_crop, open_images, plan_batches
from eyechart.sites import Anatomy
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.subjects.preprocessing import GivenTransform, Preprocessing, Resizing
from eyechart.subjects.subject import Subject


def to_grey(picture: Image.Image) -> torch.Tensor:
    return torch.full((3, *picture.size), 0.5)


WAYS: dict[str, Preprocessing | GivenTransform] = {
    "timm's": Preprocessing((32, 32), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "ImageNet's": Preprocessing((32, 32)),
    "another filter": Preprocessing((32, 32), interpolation="bilinear"),
    "a user's": GivenTransform((32, 32), to_grey),
}


def fed_otherwise(way: str) -> Subject:
    subject = load_subject("zoo:vit")
    subject.preprocessing = WAYS[way]
    return replace(subject, name=way)


def anatomy_of_subject(subject: Subject) -> Anatomy:
    return anatomy_of(subject.name, subject.module, torch.zeros(2, 3, 32, 32), call=subject.call)


def test_each_subject_is_fed_its_own_preprocessing_and_pictures_are_resized_once_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subjects = [fed_otherwise(way) for way in WAYS]
    tapped = [TappedSubject(subject, anatomy_of_subject(subject), []) for subject in subjects]
    source = open_images("sample")
    batches = plan_batches(source, limit=32).batches(0)
    crops = [common_crop(source.picture(int(index))) for index in batches[0].images]
    expected = [subject.prepare(crops) for subject in subjects]
    resized: list[str] = []
    plain = Resizing.picture

    def counted(way: Resizing, picture: Image.Image) -> Image.Image:
        resized.append(way.interpolation)
        return plain(way, picture)

    monkeypatch.setattr(Resizing, "picture", counted)
    _, fed = next(iter(pictures_of(tapped, source, batches[:1])))
    for mine, theirs in zip(fed, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert sorted(resized) == ["bicubic"] * len(crops) + ["bilinear"] * len(crops)


def test_a_batch_is_fed_in_the_numbers_of_its_subject() -> None:
    subject = fed_otherwise("timm's")
    subject.module.to(torch.bfloat16)
    tapped = TappedSubject(subject, anatomy_of_subject(fed_otherwise("timm's")), [])
    source = open_images("sample")
    batch, fed = next(iter(pictures_of([tapped], source, plan_batches(source, limit=32).batches(0)[:1])))
    crops = [common_crop(source.picture(int(index))) for index in batch.images]
    assert torch.equal(next(fed), subject.prepare(crops).to(torch.bfloat16))
