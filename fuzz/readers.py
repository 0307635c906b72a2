"""Random changes of sound files against every reader: python fuzz/readers.py [INPUTS A READER] [SEED] [NAME]

Counts what became of each input: read, refused with one of our errors, another error, or too slow. Anything but the
first two is printed with its input's number and ends the script with 1. Inputs are made by `tests/mutations.py`, so one
can be made again from its seed and number; the readers are those of `tests/readers.py` that have NAME in their name.
`fuzz/guided.py` looks at what the code does with an input. Counts go to fuzz/counts.json, where `make faults` finds
them.
"""

from __future__ import annotations

import datetime
import itertools
import json
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import torch  # noqa: E402
from tests.mutations import mutated  # noqa: E402
from tests.readers import readers, run_readers  # noqa: E402

from eyechart.errors import EyechartError  # noqa: E402

COUNTS = ROOT / "fuzz" / "counts.json"
SLOW = 10  # seconds for an input of a few kilobytes
MEMORY = 24 << 30  # bytes of address space, of which torch alone takes eight


class TooSlow(BaseException):
    pass


def too_slow(number: int, frame: object) -> None:
    raise TooSlow


def record(kind: str, name: str, counted: dict[str, Any]) -> None:
    """Keep what was counted for a reader, in place of what was counted before."""
    counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    counts.setdefault(kind, {})[name] = counted | {"on": str(datetime.date.today())}
    COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")


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
            ours = outcomes["read"] + outcomes["refused"]
            record("random", name, {"inputs": count, "refused": outcomes["refused"], "not ours": count - ours})
    return int(failures > 0)


if __name__ == "__main__":
    words = [*sys.argv[1:4], *("1000", "0", "")[len(sys.argv) - 1 :]]
    sys.exit(main(int(words[0]), int(words[1]), words[2]))
