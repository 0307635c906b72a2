"""How long a bundled model takes to load, beyond importing torch, and that no network is used.

    python benchmarks/loading.py [NAME…] [--repeats 3]

Each load runs in a process of its own, where sockets are refused. "imports" is what the model's code imports (timm for
all but the plain ViTs), "loading" is building the model, reading its weights and checking them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

LIMIT = 1.0  # seconds


def main(words: Sequence[str] | None = None) -> None:
    from eyechart import zoo

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bundled = [name for name in zoo.names() if zoo.weights(name)]
    parser.add_argument("names", nargs="*", default=bundled, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each model; the median counts")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.one:
        print(json.dumps(load(asked.one)))
        return
    for name in asked.names:
        runs = []
        for _ in range(asked.repeats):
            command = [sys.executable, __file__, "--one", name]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            runs.append(json.loads(done.stdout))
        torch, imports, loading = (
            statistics.median(run[key] for run in runs) for key in ("torch", "imports", "loading")
        )
        verdict = "under" if imports + loading < LIMIT else "OVER"
        print(
            f"zoo:{name:9} {imports + loading:5.2f} s beyond torch ({torch:.2f} s): imports {imports:.2f}, loading "
            f"{loading:.2f}; {verdict} {LIMIT:g} s",
            flush=True,
        )


def load(name: str) -> dict[str, float]:
    import importlib
    import socket

    def refused(*words: object, **options: object) -> None:
        raise OSError("a bundled model asked for the network")

    socket.socket.connect = refused  # type: ignore[method-assign,assignment]
    socket.getaddrinfo = refused  # type: ignore[assignment]
    began = time.perf_counter()
    import torch

    torch.set_num_threads(1)
    has_torch = time.perf_counter()
    from eyechart import zoo
    from eyechart.subjects.load import load_subject

    importlib.import_module(f"eyechart.zoo.{zoo.find(name).builder.split(':')[0]}")
    has_imports = time.perf_counter()
    load_subject(f"zoo:{name}")
    ended = time.perf_counter()
    return {"torch": has_torch - began, "imports": has_imports - has_torch, "loading": ended - has_imports}


if __name__ == "__main__":
    main()
