"""Every reader of files, names and arguments that others made, with a sound input: what tests and fuzzers change.

A reader may read what it is given or refuse it with one of our errors; anything else is a fault of ours.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import safetensors.torch
import torch
from click.testing import CliRunner

from eyechart.claims.table import CLAIMS, add_claims
from eyechart.cli import main
from eyechart.errors import EyechartError, UsageError
from eyechart.files import json_of, read_text
from eyechart.images import open_images
from eyechart.images.tar import expand
from eyechart.question import question_hash, seal_of
from eyechart.run import Run
from eyechart.store import CHECKSUMS
from eyechart.studies.study import find
from eyechart.subjects.catalogue import parse_spec
from eyechart.subjects.labels import read_mapping
from eyechart.subjects.list_file import listed_subjects
from eyechart.subjects.naming import split_label
from eyechart.subjects.trained_here import trained_here
from eyechart.subjects.weights import read_checkpoint
from eyechart.training.settings import read_list
from tests.images.test_hostile_images import GOOD, PIXELS, npy, npz, picture, tar
from tests.small_exam import examined
from tests.small_subjects import OWN_CARD
from tests.subjects.test_hostile_weights import seeds
from tests.test_store import read_all

Reader = tuple[bytes, Callable[[bytes], object]]

LIST = b'[[subject]]\nspec = "timm:resnet18@a/b.pth"\nlabel = "one"\n[[subject]]\nspec = "two=zoo:vit:48px"\n'
RUNS = b"""[common]
model = "vit"
epochs = 2
[[run]]
name = "a"
seed = 1
switches = { depth = 2 }
[[run]]
name = "b"
"""
CLAIM = b"""[[claim]]
id = "L01"
sentence = "Features grow."
[[claim.test]]
measure = "skip_ratio"
parts = [{ quantity = "skip_ratio", side = "above", margin = 0.0, words = "ratio of {0}" }]
"""
WORDS = b"zoo:vit\0mine=timm:resnet18@a.pth\0--limit\x0012\0--set\0cka.readout=gap\0--effort\0quick\0--device\0cpu"


def readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    """Of what a user gives: checkpoints, images, cards, lists, names, arguments."""

    def through(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
        def run(data: bytes) -> object:
            path = folder / name
            path.write_bytes(data)
            return read(path)

        return run

    sound = seeds(folder)
    for name, data in sound.items():
        yield f"checkpoint {name}", (data, through(name, read_checkpoint))
    with zipfile.ZipFile(io.BytesIO(sound["deep.pt"])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    inner = next(name for name in members if name.endswith("data.pkl"))

    def rezipped(data: bytes) -> object:
        with zipfile.ZipFile(folder / "inner.pth", "w") as archive:
            for name, content in members.items():
                archive.writestr(name, data if name == inner else content)
        return read_checkpoint(folder / "inner.pth")

    yield "pickle in a sound zip", (members[inner], rezipped)
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}).encode()

    def headed(data: bytes) -> object:
        (folder / "h.safetensors").write_bytes(struct.pack("<Q", len(data)) + data + bytes(16))
        return read_checkpoint(folder / "h.safetensors")

    yield "safetensors header", (header, headed)
    labels = npy((4,), struct.pack("<4q", 0, 1, 1, 0), "<i8")
    whole = npz(folder / "a.npz", x=PIXELS, y=labels, classes=npy((2,), b"ab", "|S1"))
    yield ".npz", (whole.read_bytes(), through("b.npz", open_images))
    yield "array of labels in a sound .npz", (labels, lambda data: open_images(npz(folder / "c.npz", x=PIXELS, y=data)))
    yield "array of pixels in a sound .npz", (PIXELS, lambda data: open_images(npz(folder / "d.npz", x=data)))
    yield "tar", (tar(folder / "a.tar", *GOOD).read_bytes(), through("b.tar", open_images))
    yield "picture", (picture(), through("a.png", open_images))
    yield "folder", (b"cat/a.png\0cat/b.png\0dog/c.png\0notes.txt", lambda data: folder_of(data, folder / "classes"))
    safetensors.torch.save_file({"a": torch.zeros(2)}, folder / "mine.safetensors")

    def carded(data: bytes) -> object:
        (folder / "mine.json").write_bytes(data)
        return trained_here(parse_spec("zoo:vit@random"), folder / "mine.safetensors")

    yield "card", (json.dumps(OWN_CARD).encode(), carded)
    yield "--classes", (b'{"left": 3, "right": "dog", "other": "n01440764"}', through("map.json", read_mapping))
    yield "--subjects-from", (LIST, through("list.toml", listed_subjects))
    yield "--claims", (CLAIM, through("claims.toml", claimed))
    yield "train --list", (RUNS, through("runs.toml", lambda path: read_list(path, {"data": "data"})))
    study = Path(sys.modules[find.__module__].__file__ or "").with_name("warmup.toml").read_bytes()
    yield "study", (study, through("study.toml", lambda path: find(str(path))))
    yield "spec", (b"zoo:vit:160px@some/weights.pth", lambda data: parse_spec(data.decode("utf-8", "surrogateescape")))
    yield "label", (b"mine=zoo:vit", lambda data: split_label(data.decode("utf-8", "surrogateescape")))
    yield "pattern of shards", (b"a-{000..010}-{x,y}.tar", lambda data: expand(data.decode("utf-8", "replace")))
    yield "arguments", (WORDS, commanded)


def folder_of(data: bytes, folder: Path) -> object:
    """Images in a folder whose file names are these, one picture behind each; names that no disk takes are left out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in data.split(b"\0")[:50]:
        path = folder / name.decode("utf-8", "surrogateescape")
        with contextlib.suppress(OSError, ValueError):
            if folder in path.resolve().parents:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(picture())
    return open_images(folder)


def claimed(path: Path) -> object:
    before = dict(CLAIMS)
    try:
        return add_claims(read_text(path, "--claims"), str(path))
    finally:
        CLAIMS.clear()
        CLAIMS.update(before)


def commanded(data: bytes) -> object:
    """`eyechart exam` with these words; the exam itself is not begun."""
    words = [word.decode("utf-8", "surrogateescape") for word in data.split(b"\0")]
    begun = mock.Mock(side_effect=UsageError("It would begin."))
    with mock.patch.object(sys.modules["eyechart.exam"], "exam", begun):
        result = CliRunner().invoke(main, ["exam", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def run_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    """Of the files of a run: as they are read, and with a checksum or seal made by somebody who knows how."""
    with mock.patch("eyechart.report.page.render", return_value="<p>"):
        run = examined(folder / "run").path

    def put(name: str, then: Callable[[], object] = lambda: None) -> Reader:
        whole, sums = (run / name).read_bytes(), (run / CHECKSUMS).read_bytes()

        def read(data: bytes) -> None:
            (run / name).write_bytes(data)
            try:
                then()
                read_all(run)
            finally:
                (run / CHECKSUMS).write_bytes(sums)
                (run / name).write_bytes(whole)

        return whole, read

    for name in ("plan.json", "verdicts.json", "checksums.json", "findings/skip_ratio.nc", "shards/00001.safetensors"):
        yield f"run, {name}", put(name)
    for name in ("verdicts.json", "findings/skip_ratio.nc"):
        yield f"run, {name}, checksum", put(name, lambda name=name: Run(run).record([name]))  # type: ignore[misc]
    whole = (run / "plan.json").read_bytes()

    def read_sealed(data: bytes) -> None:
        with contextlib.suppress(ValueError):
            data = sealed(json_of(data))
        (run / "plan.json").write_bytes(data)
        try:
            with contextlib.suppress(EyechartError):
                Run(run).record(["findings/skip_ratio.nc", "verdicts.json"], anew=True)
            read_all(run)
        finally:
            (run / "plan.json").write_bytes(whole)

    yield "run, plan.json, sealed", (whole, read_sealed)


def sealed(plan: Any) -> bytes:
    if not isinstance(plan, dict):
        raise ValueError("it has no seal")
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        plan["question"] = question_hash(plan)
    return json.dumps(plan | {"seal": seal_of(plan)}).encode()
