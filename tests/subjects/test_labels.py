"""Matching image classes to logits, on hand-made classes and on the real ImageNet lists of three libraries."""

import json
from pathlib import Path

import pytest

from eyechart.errors import UsageError
from eyechart.subjects.labels import (
    check_mapping,
    imagenet_classes,
    match_classes,
    meaningful,
    read_mapping,
    wordnet_ids,
)

FISH = ("tench, Tinca tinca", "goldfish, Carassius auratus", "great white shark, white shark")


@pytest.mark.parametrize("label", ["Great_White-Shark", "great white shark, white shark", "WHITE SHARK", "white_shark"])
def test_names_match_without_case_signs_and_by_any_synonym(label: str) -> None:
    assert match_classes([label], FISH).indices == (2,)


def test_the_order_is_that_of_the_image_classes() -> None:
    assert match_classes(["goldfish", "tench"], FISH).indices == (1, 0)


def test_one_class_without_counterpart_spoils_the_match_and_is_named() -> None:
    match = match_classes(["tench", "submarine", "airship"], FISH)
    assert not match
    assert match.reason == "2 of 3 image classes are not among the subject's 3 classes: submarine, airship."


def test_imagenets_two_cranes_are_ambiguous() -> None:
    match = match_classes(["crane"], imagenet_classes(1000))
    assert match.indices is None
    assert "(134)" in match.reason
    assert "(517)" in match.reason


def test_a_first_name_goes_before_another_classes_synonym() -> None:
    # "missile" is class 657, and also the second name of class 744, "projectile, missile".
    assert match_classes(["missile"], imagenet_classes(1000)).indices == (657,)


def test_two_image_classes_on_one_logit_are_refused() -> None:
    match = match_classes(["white shark", "great white shark"], FISH)
    assert match.indices is None
    assert "both match class 2" in match.reason


def test_wordnet_folders_match_timm_torchvision_and_hugging_face_names_of_imagenet() -> None:
    from torchvision.models import ResNet18_Weights

    timm = imagenet_classes(1000)
    torchvision = tuple(ResNet18_Weights.DEFAULT.meta["categories"])
    hugging_face = tuple(label.lower() for label in timm or ())
    for classes in (timm, torchvision, hugging_face):
        assert match_classes(["n02123045", "n01440764", "n15075141_toilet_tissue"], classes).indices == (281, 0, 999)


def test_wordnet_ids_are_not_guessed_from_the_number_of_classes() -> None:
    assert wordnet_ids(tuple(f"thing {number}" for number in range(1000))) is None
    assert match_classes(["n01440764"], [f"thing {number}" for number in range(1000)]).indices is None


def test_larger_imagenets_have_their_own_order() -> None:
    classes = imagenet_classes(21841)
    assert classes is not None
    assert len(classes) == 21841
    assert match_classes(["n01440764"], classes).indices not in (None, (0,))


def test_a_mapping_goes_first_and_may_give_names_ids_or_indices(tmp_path: Path) -> None:
    mapping: dict[str, str | int] = {"my fish": "tench", "3": 2}
    path = tmp_path / "mapping.json"
    path.write_text(json.dumps(mapping))
    for given in (mapping, path, str(path)):
        assert match_classes(["3", "goldfish", "my fish"], FISH, given).indices == (2, 1, 0)
    assert match_classes(["crane"], imagenet_classes(1000), {"crane": "n02012849"}).indices == (134,)
    assert match_classes(["a", "b"], None, {"a": 4, "b": 1}).indices == (4, 1)
    assert match_classes(["a"], FISH, {"a": 3}).indices is None


@pytest.mark.parametrize("content", ["[1, 2]", '{"a": [1]}', '{"a": true}', "not json"])
def test_a_mapping_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mapping.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="class mapping"):
        match_classes(["a"], FISH, path)


def test_unknown_classes_on_either_side_are_said() -> None:
    assert "no classes" in match_classes(None, FISH).reason
    assert "not known" in match_classes(["tench"], None).reason


def test_placeholders_are_not_class_names() -> None:
    assert meaningful(("LABEL_0", "LABEL_1")) is None
    assert meaningful(("0", "1")) is None
    assert meaningful(("cat", "LABEL_1")) == ("cat", "LABEL_1")


def test_a_mapping_that_is_none_is_named_with_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text('["cat", "dog"]')
    with pytest.raises(UsageError, match=r"not .*list\.json, which holds a list\."):
        read_mapping(tmp_path / "list.json")


def test_classes_of_the_images_are_named_where_none_is_near() -> None:
    with pytest.raises(UsageError, match="'tench', which is no class of the images; theirs are n01, n02"):
        check_mapping({"tench": 0}, ["n01", "n02"])
