"""What a whole exam costs: time, memory and disk, pictures read from JPEG files.

    python benchmarks/jobs.py --images 1000                              ViT-B + ResNet-50 on the CPU, --effort quick
    python benchmarks/jobs.py --images 50000 --dtype bfloat16 --shared   on a GPU, the measures of the shared pass alone
    python benchmarks/jobs.py --images 384 --shared --device cpu         a part, where the whole would take hours
    python benchmarks/jobs.py --bundled --effort normal                  the bundled pair on the bundled pictures

Pictures of 500 × 375 pixels are made first and are not timed: coloured clouds with fine grain, about 60 kB each, ten
classes. Weights are random: they cost what trained ones do. Memory is the most that the exam's processes held together,
looked at ten times a second. CPU seconds are those of all its processes: a busy neighbour lengthens them least. How
long the exam waited for pictures is told beside (watched_exam.py).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
from machine import facts
from PIL import Image

SUBJECTS = ("timm:vit_base_patch16_224@random", "timm:resnet50@random")
SIZE = (500, 375)
FINEST = (64, 48)
"""Of the finest of five scales."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", default=SUBJECTS, metavar="SUBJECT")
    parser.add_argument("--images", type=int, default=1_000)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--shared", action="store_true", help="the measures of the shared pass alone")
    parser.add_argument("--bundled", action="store_true", help="the bundled pair on the bundled pictures")
    parser.add_argument("--pictures", type=Path, help="a folder to keep the pictures in; made if it is not there")
    parser.add_argument("--out", type=Path, help="a file of JSON lines; this job's is added")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="eyechart-") as folder:
        if asked.bundled:
            job = []  # what an exam is without arguments
        else:
            pictures = asked.pictures or Path(folder) / "pictures"
            if not pictures.exists():
                make_pictures(pictures, asked.images)
            job = [*asked.subjects, "--images", str(pictures)]
        waits = Path(folder) / "waits.json"
        watched = Path(__file__).with_name("watched_exam.py")
        command = [sys.executable, str(watched), str(waits), "exam", *job]
        command += ["--effort", asked.effort, "--device", asked.device, "--dtype", asked.dtype]
        command += ["--measures", ",".join(shared())] if asked.shared else []
        costs = timed([*command, "--out", f"{folder}/run"], Path(folder) / "run")
        costs |= json.loads(waits.read_text())
    what = {"bundled": True} if asked.bundled else {"subjects": list(asked.subjects), "images": asked.images}
    about = {**what, "effort": asked.effort, "dtype": asked.dtype, "shared": asked.shared}
    record = {**about, **costs, "machine": facts()}
    print(json.dumps(record, indent=1))
    if asked.out:
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def shared() -> list[str]:
    from passes import shared_measures

    return [*shared_measures(), "probes"]


def make_pictures(folder: Path, count: int) -> None:
    for label in range(10):
        (folder / f"class-{label}").mkdir(parents=True)
    with ProcessPoolExecutor() as pool:
        list(pool.map(partial(make_picture, folder), range(count), chunksize=50))


def make_picture(folder: Path, number: int) -> None:
    """Clouds: random colours at five scales, each half as strong as the one before, and grain on top."""
    random = np.random.default_rng(number)
    clouds = np.zeros((FINEST[1], FINEST[0], 3), np.float32)
    for octave in range(5):
        coarse = random.random((3 * 2**octave, 4 * 2**octave, 3))
        layer = Image.fromarray((255 * coarse).astype(np.uint8)).resize(FINEST, Image.Resampling.BICUBIC)
        clouds += np.asarray(layer) / 2 ** (octave + 1)
    # Only the sum is made large: 6 ms a picture, 15 with every layer at full size.
    large = Image.fromarray(clouds.clip(0, 255).astype(np.uint8)).resize(SIZE, Image.Resampling.BICUBIC)
    grainy = np.asarray(large) + 8 * random.standard_normal((SIZE[1], SIZE[0], 3), dtype=np.float32)
    picture = Image.fromarray(grainy.clip(0, 255).astype(np.uint8))
    picture.save(folder / f"class-{number % 10}" / f"{number:06}.jpg", quality=90)


def timed(command: list[str], run: Path) -> dict[str, float]:
    started, used, most = time.perf_counter(), cpu_seconds(), 0
    exam = psutil.Popen(command)
    while exam.poll() is None:
        most = max(most, memory_of(exam))
        time.sleep(0.1)
    if exam.returncode not in (0, 3):  # 3: a measure does not apply to these subjects
        raise SystemExit(f"The exam ended with {exam.returncode}: {subprocess.list2cmdline(command)}")
    disk = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(cpu_seconds() - used, 1),
        "peak_megabytes": round(most / 1e6),
        "run_megabytes": round(disk / 1e6, 1),
    }


def cpu_seconds() -> float:
    """Of all processes that this one began and that have ended, with those they began."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def memory_of(process: psutil.Process) -> int:
    """Bytes that it and its children hold; what they share is counted once for each."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:  # it has just ended
            continue
    return total


if __name__ == "__main__":
    main()
