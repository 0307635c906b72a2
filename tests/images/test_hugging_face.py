"""Hugging Face datasets, without the hub: saved to disk, or with `load_dataset` replaced."""

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eyechart import hub
from eyechart.errors import ImagesError
from eyechart.images import open_images

from .conftest import encoded, picture

datasets = pytest.importorskip("datasets")
constants = pytest.importorskip("huggingface_hub.constants")
its_logging = pytest.importorskip("huggingface_hub.utils.logging")


def table(labels: Any = None, kind: Any = None, bad: bool = False) -> Any:
    cells: list[Any] = [{"bytes": encoded(picture(seed)), "path": None} for seed in range(4)]
    if bad:
        cells[1] = {"bytes": b"text", "path": None}
        cells[2] = None
    columns, features = {"text": list("abcd"), "picture": cells}, {"text": datasets.Value("string")}
    features["picture"] = datasets.Image()
    if labels is not None:
        columns["label"], features["label"] = labels, kind
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def test_a_dataset_saved_to_disk(tmp_path: Path) -> None:
    table([1, 0, 0, 1], datasets.ClassLabel(names=["ape", "bat"])).save_to_disk(str(tmp_path / "set"))
    images = open_images(f"hf:{tmp_path}/set")
    assert images.classes == ("ape", "bat")
    assert images.labels is not None
    assert images.labels.tolist() == [1, 0, 0, 1]
    for index in (3, 0):
        assert np.array_equal(np.asarray(images.picture(index)), np.asarray(picture(index)))


def test_a_row_without_a_label(tmp_path: Path) -> None:
    table([1, None, 0, 1], datasets.ClassLabel(names=["ape", "bat"])).save_to_disk(str(tmp_path / "set"))
    images = open_images(f"hf:{tmp_path}/set")
    assert images.labels is not None
    assert images.labels.tolist() == [1, -1, 0, 1]


def test_splits(tmp_path: Path) -> None:
    splits = {"train": table(), "validation": table().select([0, 1])}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "set"))
    assert len(open_images(f"hf:{tmp_path}/set")) == 2  # validation before train
    assert len(open_images(f"hf:{tmp_path}/set:train")) == 4
    with pytest.raises(ImagesError, match="has the splits train, validation; got 'tset'"):
        open_images(f"hf:{tmp_path}/set:tset")


def test_a_dataset_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def load(name: str, split: str) -> Any:
        asked.append((name, split))
        return table([3, 1, 0, 0], datasets.Value("int64"))

    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda name: ["train", "test"])
    monkeypatch.setattr(datasets, "load_dataset", load)
    images = open_images("hf:someone/things")
    assert asked == [("someone/things", "test")]
    assert images.name == "hf:someone/things:test"
    assert images.classes == ("0", "1", "2", "3")
    open_images("hf:someone/things:test[:50%]")
    assert asked[-1] == ("someone/things", "test[:50%]")


def test_a_hub_that_does_not_answer_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, int]] = []

    def splits(name: str) -> list[str]:
        seen.append((constants.HF_HUB_OFFLINE, its_logging.get_verbosity()))
        raise ConnectionError("Couldn't reach the hub")

    before = its_logging.get_verbosity()
    monkeypatch.setattr(hub, "_answers", lambda address: False)
    monkeypatch.setattr(datasets, "get_dataset_split_names", splits)
    with pytest.raises(ImagesError, match="check its name and the network"):
        open_images("hf:a/b")
    assert seen == [(True, logging.ERROR)]
    assert its_logging.get_verbosity() == before != logging.ERROR


@pytest.mark.parametrize(
    ("labels", "kind", "expected", "classes"),
    [
        (["b", "a", None, "b"], "string", [1, 0, -1, 1], ("a", "b")),
        ([0.5, 0.1, 0.2, 0.3], "float32", None, None),
    ],
)
def test_plain_label_columns(
    tmp_path: Path, labels: list[Any], kind: str, expected: list[int] | None, classes: tuple[str, ...] | None
) -> None:
    table(labels, datasets.Value(kind)).save_to_disk(str(tmp_path / "set"))
    images = open_images(f"hf:{tmp_path}/set")
    assert (None if images.labels is None else images.labels.tolist()) == expected
    assert images.classes == classes


def test_unreadable_rows_are_listed(tmp_path: Path) -> None:
    names = datasets.ClassLabel(names=["ape", "bat"])
    table([0, 0, 1, 1], names, bad=True).save_to_disk(str(tmp_path / "set"))
    images = open_images(f"hf:{tmp_path}/set:all")
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1]
    reasons = ["not a picture in a known format", "the file is empty"]
    assert [problem.reason for problem in images.problems] == reasons
    assert [images.origin(index) for index in range(2)] == ["all[0]", "all[3]"]


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(name: str) -> list[str]:
        raise ConnectionError("Couldn't reach the hub\nwith a long trace")

    monkeypatch.setattr(datasets, "get_dataset_split_names", unreachable)
    with pytest.raises(ImagesError, match=r"hf:a/b cannot be loaded \(Couldn't reach the hub\); .* folder of pictures"):
        open_images("hf:a/b")
    table().remove_columns("picture").save_to_disk(str(tmp_path / "set"))
    with pytest.raises(ImagesError, match="no column of pictures; its columns are text"):
        open_images(f"hf:{tmp_path}/set")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImagesError, match="needs the package datasets, which is not installed"):
        open_images("hf:a/b")
