"""Webdataset shards: index, labels, damage. The webdataset package is the oracle for what belongs together."""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from eyechart.errors import ImagesError
from eyechart.images import open_images, tar
from eyechart.images.tar import expand

from .conftest import encoded, picture


def shard(path: Path, members: Sequence[tuple[str, bytes]], mode: Literal["w", "w:gz"] = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in members:
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return path


def png(seed: int) -> bytes:
    return encoded(picture(seed))


def test_pictures_and_labels_of_several_shards(tmp_path: Path) -> None:
    for number in range(3):
        members = []
        for place in range(4):
            seed = number * 4 + place
            members += [(f"d/{seed:03d}.cls", str(seed % 3).encode()), (f"d/{seed:03d}.png", png(seed))]
        shard(tmp_path / f"set-{number:02d}.tar", members)
    images = open_images(f"{tmp_path}/set-{{00..02}}.tar")
    assert len(images) == 12
    assert images.labels is not None
    assert images.labels.tolist() == [seed % 3 for seed in range(12)]
    assert images.classes == ("0", "1", "2")
    for index in (11, 0, 5):  # in any order
        assert np.array_equal(np.asarray(images.picture(index)), np.asarray(picture(index)))
    assert images.origin(5) == "set-01.tar/d/005.png"
    (tmp_path / "classnames.txt").write_text("ape\nbat\ncat\n")
    folder = open_images(tmp_path)
    assert folder.classes == ("ape", "bat", "cat")
    assert len(folder) == 12
    assert len(open_images(tmp_path / "set-01.tar")) == 4


def test_grouping_agrees_with_webdataset(tmp_path: Path) -> None:
    import webdataset

    path = tmp_path / "oracle.tar"
    with webdataset.TarWriter(str(path)) as sink:
        for seed in range(5):
            sink.write({"__key__": f"a.b/{seed}", "left.png": png(seed), "json": {"label": f"class {seed % 2}"}})
    ours = open_images(path)
    theirs = list(webdataset.WebDataset(str(path), shardshuffle=False))
    assert len(ours) == len(theirs)
    assert ours.labels is not None
    assert ours.classes is not None
    for index, sample in enumerate(theirs):
        assert sample["left.png"] == png(index)
        assert np.array_equal(np.asarray(ours.picture(index)), np.asarray(picture(index)))
        assert ours.classes[ours.labels[index]] == json.loads(sample["json"])["label"]


@pytest.mark.parametrize(
    ("notes", "labels", "classes"),
    [
        ([("cls", "1"), ("cls", "0"), ("cls", "1"), ("cls", "1")], [1, 0, 1, 1], ("0", "1")),
        ([("cls", "cat"), ("cls", "ape"), ("x", ""), ("cls", "cat")], [1, 0, -1, 1], ("ape", "cat")),
        ([("json", '{"label": 2}'), ("json", "[]"), ("json", "{"), ("json", '{"cls": 0}')], [2, -1, -1, 0], "012"),
        ([("json", '{"label": true}')] * 4, None, None),
        ([("txt", "dog\n"), ("txt", "dog"), ("txt", "cow"), ("txt", "cow")], [1, 1, 0, 0], ("cow", "dog")),
        ([("txt", f"a picture of {thing}") for thing in "abcd"], None, None),
        ([("x", "")] * 4, None, None),
    ],
)
def test_labels(
    tmp_path: Path, notes: list[tuple[str, str]], labels: list[int] | None, classes: Sequence[str] | None
) -> None:
    members = []
    for seed, (suffix, text) in enumerate(notes):
        members += [(f"{seed}.png", png(seed)), (f"{seed}.{suffix}", text.encode())]
    images = open_images(shard(tmp_path / "set.tar", members))
    assert (None if images.labels is None else images.labels.tolist()) == labels
    assert images.classes == (None if classes is None else tuple(classes))


def test_damage_is_listed_and_the_rest_is_read(tmp_path: Path) -> None:
    members = [(f"{seed}.{suffix}", data) for seed in range(6) for suffix, data in [("png", png(seed)), ("cls", b"0")]]
    members[4] = ("2.png", b"no picture")
    path = shard(tmp_path / "a.tar", members)
    path.write_bytes(path.read_bytes()[: 512 * 17 + 700])
    shard(tmp_path / "b.tar", [("x.png", png(9))])
    (tmp_path / "c.tar").write_bytes(b"not a tar")
    images = open_images(tmp_path)
    assert images.origin(0) == "a.tar/0.png"
    assert images.origin(len(images) - 1) == "b.tar/x.png"
    reasons = {problem.path: problem.reason for problem in images.problems}
    assert "not a complete tar file" in reasons["a.tar"]
    assert "not a complete tar file" in reasons["c.tar"]
    assert reasons["a.tar/2.png"] == "not a picture in a known format"
    assert images.labels is not None
    assert images.labels[-1] == -1


def test_refusals(tmp_path: Path) -> None:
    shard(tmp_path / "words.tar", [("a.txt", b"a")])
    with pytest.raises(ImagesError, match=r"1 tar files of words.tar hold no pictures"):
        open_images(tmp_path / "words.tar")
    with pytest.raises(
        ImagesError, match=r"1 of 2 shards are missing, the first .*wards.tar; did you mean .*words.tar"
    ):
        open_images(f"{tmp_path}/w{{o,a}}rds.tar")
    packed = shard(tmp_path / "packed.tar.gz", [("1.png", png(0))], "w:gz")
    with pytest.raises(ImagesError, match="is not a source of images"):
        open_images(packed)
    packed.rename(tmp_path / "packed.tar")
    with pytest.raises(ImagesError, match=r"hold no pictures .*packed.tar: not a complete tar file"):
        open_images(tmp_path / "packed.tar")


def test_a_link_in_a_shard_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "set.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("a.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        about = tarfile.TarInfo("b.png")
        about.size = len(png(1))
        archive.addfile(about, io.BytesIO(png(1)))
    images = open_images(path)
    assert [images.origin(index) for index in range(len(images))] == ["set.tar/b.png"]
    assert images.problems == []


def test_opening_keeps_no_pictures_in_memory(tmp_path: Path) -> None:
    path = shard(tmp_path / "set.tar", [(f"{seed}.png", png(seed)) for seed in range(8)])
    images = open_images(path)
    assert isinstance(images, tar.TarImages)
    assert all(isinstance(entry, tar.Member) for entry in images._entries)
    path.unlink()
    with pytest.raises(ImagesError, match=r"set.tar/3.png in set.tar .* cannot be read now"):
        images.picture(3)


def test_brace_patterns() -> None:
    assert expand("{00..01}/x-{a,b}.tar") == ["00/x-a.tar", "00/x-b.tar", "01/x-a.tar", "01/x-b.tar"]
    assert expand("plain.tar") == ["plain.tar"]
    assert expand("{9..11}") == ["9", "10", "11"]
