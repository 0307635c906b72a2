"""Inputs that reach new code, against every reader: python fuzz/guided.py [INPUTS A READER] [NAME]    (needs atheris)

atheris watches which lines of eyechart an input reaches and changes further those that reached new ones. It begins with
the sound input of `tests/readers.py` and with what earlier runs found (fuzz/corpus). A reader may read or refuse with
one of our errors; anything else stops it, leaves the input as fuzz/crash-*, and ends the script with 1. Each reader has
a process of its own, because libFuzzer ends the process it ran in. Counts go to fuzz/counts.json.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

SLOW, MEMORY = 20, 8192  # seconds and MiB that one input may take
LONGEST = 4096  # bytes of an input, where the sound one is no longer
KEPT, SMALL = 12, 2048  # inputs a reader, and bytes each, that stay in the corpus: what is committed stays small


def fuzz(name: str, count: int, found: Path) -> None:
    """In a process of its own: this reader, so many inputs. Does not return."""
    import atheris

    with atheris.instrument_imports(include=["eyechart", "tomllib", "tarfile", "zipfile"]):
        import torch
        from tests.readers import readers, run_readers

        from eyechart.errors import EyechartError
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    made = run_readers(folder) if name.startswith("run,") else readers(folder)
    sound, read = next(reader for known, reader in made if known == name)
    (found / "sound").write_bytes(sound)

    def one(data: bytes) -> None:
        with contextlib.suppress(EyechartError):
            read(data)

    limits = [
        f"-runs={count}",
        f"-timeout={SLOW}",
        f"-rss_limit_mb={MEMORY}",
        f"-max_len={max(LONGEST, 2 * len(sound))}",
    ]
    options = ["-seed=1", f"-artifact_prefix={HERE}/crash-", "-print_final_stats=1", str(found)]
    atheris.Setup([sys.argv[0], *limits, *options], one)
    atheris.Fuzz()


def names() -> list[str]:
    from tests.readers import readers, run_readers

    with tempfile.TemporaryDirectory() as folder:
        return [name for made in (readers, run_readers) for name, _ in made(Path(folder))]


def main(count: int, wanted: str) -> int:
    from readers import record

    failed = 0
    for name in names():
        if wanted not in name:
            continue
        corpus = HERE / "corpus" / re.sub(r"\W+", "-", name).strip("-")
        with tempfile.TemporaryDirectory() as found:
            known = sorted(corpus.glob("*")) if corpus.is_dir() else []
            for path in known:
                (Path(found) / path.name).write_bytes(path.read_bytes())
            command = [sys.executable, __file__, "--reader", name, str(count), found]
            ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            done = re.search(r"number_of_executed_units:\s*(\d+)", ended.stderr)
            reached = [int(number) for number in re.findall(r"cov: (\d+)", ended.stderr)] or [0]
            counted = {"inputs": int(done[1]) if done else 0, "not ours": int(ended.returncode != 0)}
            counted |= {"places reached first": reached[0], "places reached": reached[-1]}
            record("guided", name, counted)
            print(f"{name:40} {counted}", flush=True)
            if ended.returncode:
                failed += 1
                print(ended.stderr[-3000:], flush=True)
            fresh = [path for path in Path(found).iterdir() if path.name != "sound" and path.stat().st_size <= SMALL]
            corpus.mkdir(parents=True, exist_ok=True)
            for path in sorted(fresh, key=lambda path: (path.name not in {one.name for one in known}, path.name))[
                :KEPT
            ]:
                (corpus / path.name).write_bytes(path.read_bytes())
    return int(failed > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reader"]:
        fuzz(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    words = [*sys.argv[1:3], *("1000", "")[len(sys.argv) - 1 :]]
    sys.exit(main(int(words[0]), words[1]))
