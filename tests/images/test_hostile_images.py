"""Sources of pictures that lie about their size, lead in circles or never end: one sentence, at once."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from eyechart.errors import EyechartError, ImagesError, UsageError
from eyechart.images import open_images
from eyechart.images.tar import expand
from tests.mutations import mutated, refusal


def picture(colour: int = 0, size: int = 16) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (size, size), (colour, 0, 0)).save(file, "PNG")
    return file.getvalue()


# --- .npz -------------------------------------------------------------------------------------------------------


def npy(shape: tuple[int, ...] | str, data: bytes = b"", descr: str = "|u1") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


PIXELS = npy((4, 8, 8, 3), bytes(768))


@pytest.mark.parametrize(
    "members",
    [
        {"x": npy((10**12, 3), b"abc")},
        {"x": npy((1000, 1000, 1000, 3), bytes(100))},
        {"x": npy((-1, 8, 8, 3), bytes(768))},
        {"x": npy("(10**9, 8)", bytes(8))},
        {"x": npy("(" * 3000, b"")},
        {"x": b"no array"},
        {"x": PIXELS, "y": npy((4,), struct.pack("<4q", 0, 1, 2, 10**9), "<i8")},
        {"x": PIXELS, "y": npy((4,), struct.pack("<4Q", 0, 1, 2, 2**63 + 5), "<u8")},
        {"x": PIXELS, "y": npy((4,), bytes(32), "<i8"), "classes": npy((10**12, 0), b"", "|S1")},
        {"x": npy((4, 8, 8, 3), bytes(768 * 8), "|O")},
    ],
)
def test_an_npz_that_claims_too_much_is_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    with pytest.raises(ImagesError, match=r"a\.npz"):
        open_images(npz(tmp_path / "a.npz", **members))


def test_an_npz_of_nothing_but_zeros_is_not_unpacked(tmp_path: Path) -> None:
    piece = bytes(1 << 24)
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy((20 << 4, 1024, 1024, 1)))
        for _ in range(20):
            member.write(piece)
    with pytest.raises(ImagesError, match="zip bomb"):
        open_images(tmp_path / "a.npz")


def test_mutated_npz_are_read_or_refused_by_name(tmp_path: Path) -> None:
    labels = npy((4,), struct.pack("<4q", 0, 1, 1, 0), "<i8")
    path = npz(tmp_path / "a.npz", x=PIXELS, y=labels, classes=npy((2,), b"ab", "|S1"))
    for data in mutated(path.read_bytes(), 150):
        path.write_bytes(data)
        said = refusal(ImagesError, open_images, path)
        assert said is None or "a.npz" in said
    for data in mutated(labels, 60):
        said = refusal(ImagesError, open_images, npz(path, x=PIXELS, y=data))
        assert said is None or "a.npz" in said
    path.write_bytes(labels)
    with pytest.raises(ImagesError, match=r"a\.npz is not an \.npz file"):
        open_images(path)


def test_a_label_of_a_billion_is_not_a_billion_classes() -> None:
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(ImagesError, match=r"from 0 to 999,999; got 1000000000"):
        open_images((pixels, np.array([0, 1, 2, 10**9])))


# --- tar --------------------------------------------------------------------------------------------------------


def tar(path: Path, *members: tuple[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in members:
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return path


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    about = tarfile.TarInfo(name)
    about.size, about.type = size, kind
    return about.tobuf(tarfile.GNU_FORMAT)


GOOD = ("0.png", picture(10)), ("0.cls", b"3"), ("1.png", picture(20)), ("1.json", b'{"label": 2}')


def block(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


@pytest.mark.parametrize(
    "tail",
    [
        header("x.png", 1 << 50),
        header("x.png", -512),
        header("x", 1 << 40, tarfile.GNUTYPE_LONGNAME),
        header("x", 1 << 40, tarfile.XHDTYPE),
        header("x", -1024, tarfile.XHDTYPE),
        (header("x", 5, tarfile.GNUTYPE_LONGNAME) + block(b"long\0")) * 3000,
        (header("x", 12, tarfile.XHDTYPE) + block(b"12 path=abc\n")) * 3000,
        header("x", 30, tarfile.XHDTYPE) + block(b"99999999999 path=x\n"),
    ],
)
def test_a_tar_that_lies_is_listed_and_the_rest_is_read(tmp_path: Path, tail: bytes) -> None:
    whole = tar(tmp_path / "a.tar", *GOOD).read_bytes()
    end = sum(512 + len(block(data)) for _, data in GOOD)
    (tmp_path / "a.tar").write_bytes(whole[:end] + tail + bytes(1024))
    images = open_images(tmp_path / "a.tar")
    assert len(images) == 2
    assert [problem.path for problem in images.problems] == ["a.tar"]


def test_a_damaged_header_in_the_middle_is_told(tmp_path: Path) -> None:
    """Python's tarfile takes it for the end, and pictures after it would be missing without a word."""
    whole = bytearray(tar(tmp_path / "a.tar", *GOOD).read_bytes())
    second = sum(512 + len(block(data)) for _, data in GOOD[:2])
    whole[second + 150] ^= 0xFF  # its checksum
    (tmp_path / "a.tar").write_bytes(whole)
    images = open_images(tmp_path / "a.tar")
    assert len(images) == 1
    assert [problem.reason for problem in images.problems] == [
        f"not a complete tar file: there is no header at byte {second:,}, so the rest cannot be read"
    ]


def test_labels_of_a_tar_are_read_within_limits(tmp_path: Path) -> None:
    samples = [(f"{number}.png", picture(number)) for number in range(4)]
    deep, digits = ("0.json", b'{"label": ' + b"[" * 100_000), ("1.cls", b"9" * 5000)
    assert open_images(tar(tmp_path / "deep.tar", *samples, deep)).classes is None
    named = open_images(tar(tmp_path / "digits.tar", *samples, digits)).classes
    assert named is not None
    assert len(named[0]) == 1000
    with pytest.raises(ImagesError, match=r"a\.tar must number its classes"):
        open_images(tar(tmp_path / "a.tar", *samples, ("0.cls", b"1000000000")))
    (tmp_path / "classes.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(ImagesError, match=r"classes\.txt is no list of class names"):
        open_images(tar(tmp_path / "b.tar", *GOOD))


def test_mutated_tars_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    whole = tar(path, *GOOD).read_bytes()
    for data in mutated(whole, 80):
        path.write_bytes(data)
        said = refusal(ImagesError, open_images, path)
        assert said is None or "a.tar" in said


@pytest.mark.parametrize("pattern", ["{0..99999999999}.tar", "{0.." + "9" * 5000 + "}.tar", "{0..999}" * 3 + ".tar"])
def test_a_pattern_of_a_billion_shards_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="more than 100,000 shards"):
        expand(pattern)


# --- folders ----------------------------------------------------------------------------------------------------

any_bytes = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a file be called by any bytes")


@any_bytes
def test_a_folder_with_traps_is_read_without_them(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "good.png").write_bytes(picture())
    (folder / "endless.png").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.png")
    with open(folder / "sparse.png", "wb") as file:
        file.truncate(5 << 30)
    (folder / "gone.png").symlink_to(folder / "nowhere.png")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.png")).write_bytes(picture(3))
    Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff.png")).write_bytes(b"no picture")
    images = open_images(folder)
    assert [images.origin(index) for index in range(len(images))] == ["caf\\xe9.png", "good.png"]
    reasons = {problem.path: problem.reason for problem in images.problems}
    assert set(reasons) == {"endless.png", "pipe.png", "sparse.png", "gone.png", "bad\\xff.png"}
    assert "not a plain file" in reasons["endless.png"]
    assert "not a plain file" in reasons["pipe.png"]
    assert "more than" in reasons["sparse.png"]
    json.dumps(reasons, ensure_ascii=False).encode()  # all of it can be written down


@any_bytes
def test_classes_whose_names_are_no_text_can_be_written_down(tmp_path: Path) -> None:
    for name in (b"caf\xe9", b"tea"):
        place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/set/" + name))
        place.mkdir(parents=True)
        (place / "0.png").write_bytes(picture())
    assert open_images(tmp_path / "set").classes == ("caf\\xe9", "tea")


@pytest.mark.parametrize("name", ["a" * 5000, "x" * 300 + ".npz", "~nobody-there/photos", "y" * 300 + ".tar", "a\0b"])
def test_odd_names_of_images_are_one_sentence(name: str) -> None:
    with pytest.raises(EyechartError):
        open_images(name)
