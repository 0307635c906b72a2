"""How long a bundled model takes to load, beyond importing torch, and that no network is used.

    python benchmarks/loading.py [NAME…] [--repeats 3]

Each load runs in a process of its own, where sockets are refused. "imports" is what the model's code imports (timm and
torchvision for all but the plain ViTs), "loading" is building the model, reading its weights and checking them. Both
torchvision and timm import torch's compiler, torch._dynamo, which `import torch` leaves for later: it is part of torch,
so the limit holds without it, and the time with it is stated behind.
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
    parser.add_argument("--compiler-first", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.one:
        print(json.dumps(load(asked.one, asked.compiler_first)))
        return
    for name in asked.names:
        whole, without = (medians(name, asked.repeats, first) for first in (False, True))
        seconds = without["imports"] + without["loading"]
        verdict = "under" if seconds < LIMIT else "OVER"
        compiler = "with" if whole["compiler"] else "no need of"
        print(
            f"zoo:{name:9} {seconds:5.2f} s beyond torch ({whole['torch']:.2f} s): imports {without['imports']:.2f}, "
            f"loading {without['loading']:.2f}; {verdict} {LIMIT:g} s; {compiler} torch's compiler: "
            f"{whole['imports'] + whole['loading']:.2f} s",
            flush=True,
        )


def medians(name: str, repeats: int, compiler_first: bool) -> dict[str, float]:
    runs = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--one", name, *(["--compiler-first"] if compiler_first else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        runs.append(json.loads(done.stdout))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def load(name: str, compiler_first: bool) -> dict[str, float]:
    import importlib
    import socket

    def refused(*words: object, **options: object) -> None:
        raise OSError("a bundled model asked for the network")

    socket.socket.connect = refused  # type: ignore[method-assign,assignment]
    socket.getaddrinfo = refused  # type: ignore[assignment]
    began = time.perf_counter()
    import torch

    torch.set_num_threads(1)
    if compiler_first:
        importlib.import_module("torch._dynamo")
    has_torch = time.perf_counter()
    from eyechart import zoo
    from eyechart.subjects.load import load_subject

    importlib.import_module(f"eyechart.zoo.{zoo.find(name).builder.split(':')[0]}")
    has_imports = time.perf_counter()
    load_subject(f"zoo:{name}")
    ended = time.perf_counter()
    return {
        "torch": has_torch - began,
        "imports": has_imports - has_torch,
        "loading": ended - has_imports,
        "compiler": "torch._dynamo" in sys.modules,
    }


if __name__ == "__main__":
    main()
