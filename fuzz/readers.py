"""Mutated files against every reader: python fuzz/readers.py [INPUTS A READER] [SEED] [READERS WHOSE NAME HAS THIS]

Counts what became of each input: read, refused with one of our errors, another error, or too slow. Anything but the
first two is printed with its input's number and ends the script with 1. Inputs are made by `tests/mutations.py`, so one
can be made again from its seed and number. Coverage-guided fuzzing (atheris) would find more; it is not installed here.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from tests.images.test_hostile_images import GOOD, PIXELS, npy, npz, picture, tar  # noqa: E402
from tests.mutations import mutated  # noqa: E402
from tests.subjects.test_hostile_weights import FACTS, seeds  # noqa: E402
from tests.test_trust import examined, read_all  # noqa: E402

from eyechart.errors import EyechartError  # noqa: E402
from eyechart.files import json_of  # noqa: E402
from eyechart.images import open_images  # noqa: E402
from eyechart.images.tar import expand  # noqa: E402
from eyechart.question import question_hash, seal_of  # noqa: E402
from eyechart.report import page  # noqa: E402
from eyechart.run import Run  # noqa: E402
from eyechart.store import CHECKSUMS  # noqa: E402
from eyechart.subjects.catalogue import parse_spec  # noqa: E402
from eyechart.subjects.labels import read_mapping  # noqa: E402
from eyechart.subjects.trained_here import trained_here  # noqa: E402
from eyechart.subjects.weights import read_checkpoint  # noqa: E402

SLOW = 10  # seconds for an input of a few kilobytes
MEMORY = 24 << 30  # bytes of address space, of which torch alone takes eight
Reader = tuple[bytes, Callable[[bytes], object]]


class TooSlow(BaseException):
    pass


def readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    """Each reader with a sound input."""

    def through(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
        def run(data: bytes) -> object:
            path = folder / name
            path.write_bytes(data)
            return read(path)

        return run

    for name, data in seeds(folder).items():
        yield f"checkpoint {name}", (data, through(name, read_checkpoint))
    with zipfile.ZipFile(io.BytesIO(seeds(folder)["deep.pt"])) as archive:
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
    card = json.dumps(FACTS).encode()
    safetensors.torch.save_file({"a": torch.zeros(2)}, folder / "mine.safetensors")

    def carded(data: bytes) -> object:
        (folder / "mine.json").write_bytes(data)
        return trained_here(parse_spec("zoo:vit@random"), folder / "mine.safetensors")

    yield "card", (card, carded)
    yield "--classes", (b'{"left": 3, "right": "dog", "other": "n01440764"}', through("map.json", read_mapping))
    yield "spec", (b"zoo:vit:160px@some/weights.pth", lambda data: parse_spec(data.decode("utf-8", "surrogateescape")))
    yield "pattern of shards", (b"a-{000..010}-{x,y}.tar", lambda data: expand(data.decode("utf-8", "replace")))


def run_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    """The files of a run: as they are read, and with a checksum or seal made by somebody who knows how."""
    page.render = lambda run, undrawn=None: "<p>"  # type: ignore[assignment]
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

    def sealed() -> None:
        plan = json_of((run / "plan.json").read_bytes())
        if isinstance(plan, dict):
            with contextlib.suppress(KeyError, TypeError, AttributeError):
                plan["question"] = question_hash(plan)
            (run / "plan.json").write_text(json.dumps(plan | {"seal": seal_of(plan)}))

    def read_sealed(data: bytes) -> None:
        (run / "plan.json").write_bytes(data)
        with contextlib.suppress(ValueError):
            sealed()
        try:
            with contextlib.suppress(EyechartError):
                Run(run).record(["findings/skip_ratio.nc", "verdicts.json"], anew=True)
            read_all(run)
        finally:
            (run / "plan.json").write_bytes(whole)

    whole = (run / "plan.json").read_bytes()
    yield "run, plan.json, sealed", (whole, read_sealed)


def too_slow(number: int, frame: object) -> None:
    raise TooSlow


def main(count: int, seed: int, wanted: str) -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, too_slow)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (sound, read) in itertools.chain(readers(Path(folder)), run_readers(Path(folder))):
            if wanted not in name:
                continue
            began, outcomes = time.monotonic(), Counter[str]()
            for number, data in enumerate(mutated(sound, count, seed)):
                signal.alarm(SLOW)
                try:
                    read(data)
                    outcome = "read"
                except EyechartError:
                    outcome = "refused"
                except TooSlow:
                    outcome = "TOO SLOW"
                except BaseException as error:
                    outcome = f"NOT OURS: {type(error).__name__}"
                    if not outcomes[outcome]:
                        traceback.print_exc(limit=-3)
                finally:
                    signal.alarm(0)
                if outcome not in ("read", "refused"):
                    failures += 1
                    print(f"{name}: input {number} of seed {seed}: {outcome}", flush=True)
                outcomes[outcome] += 1
            said = ", ".join(f"{many} {outcome}" for outcome, many in outcomes.items())
            print(f"{name:32} {count:7,} inputs: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    words = [*sys.argv[1:4], *("1000", "0", "")[len(sys.argv) - 1 :]]
    sys.exit(main(int(words[0]), int(words[1]), words[2]))
