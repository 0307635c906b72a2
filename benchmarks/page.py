"""docs/benchmarks.md and its charts, from the files of results alone.

python benchmarks/page.py            after `make bench` or `make bench-gpu`; both end with it
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
WRONG = {"layer_cka": 1e-3, "pairs": 1e-3, "offsets": 1e-3, "hessian": 1e-4}
"""The largest error that is still an answer: the third decimal of a CKA, the accuracy asked for of an eigenvalue."""
NO_NUMBER = "its answer holds NaN or infinity"
Results = Mapping[str, Any]


def main() -> None:
    from charts import draw_all

    cpu, gpu = read("cpu"), read("gpu")
    PAGE.write_text(text(cpu, gpu), encoding="utf-8")
    draw_all(cpu, gpu, PAGE.parent)
    print(f"{PAGE.relative_to(ROOT)} from {', '.join(sorted(path.name for path in RESULTS.glob('*.json')))}")


def read(name: str) -> Results:
    path = RESULTS / f"{name}.json"
    found: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def text(cpu: Results, gpu: Results) -> str:
    parts = [INTRODUCTION, machine(cpu)]
    for name, section in SECTIONS.items():
        if name in cpu:
            parts.append(section(cpu[name]))
    parts.append(on_gpu(gpu))
    parts.append(wrong(cpu, gpu))
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


INTRODUCTION = """
# Benchmarks beside peers

*Made by `make bench` and `make bench-gpu` (`benchmarks/page.py`) from `benchmarks/results/`; do not edit by hand.* What
eyechart's own parts cost on their own is on [the page of measured numbers](../benchmarks/README.md).

The same work on the same machine, each table in one run: eyechart and what a user would pick instead. Peers are called,
not changed, at the versions of `benchmarks/peers.txt`, in an environment of their own (`build/peers`) that shares
torch, timm, numpy and SciPy with eyechart's. Every way runs in turn with the others, on the CPU in a process of its
own. Before a time is shown its answer is checked: against a brute force in float64 on the same float32 features, or
float64 ARPACK. Seconds on the CPU are those of the process on one thread, which neighbours on a shared machine
lengthen little; the clock's are behind them. Memory is the peak above what was loaded before. A *floor* is what this
work needs here at best: its operations at the rate of a large matrix product, or its bytes at the rate of a copy,
both measured on this machine on one thread or on its GPU.
"""


def machine(results: Results) -> str:
    rows = []
    for name, part in results.items():
        if "machine" not in part:
            continue
        facts = part["machine"]
        loads = " → ".join(f"{at[0]:g}" for at in (facts["load"], part.get("load_after", facts["load"])))
        rate = part.get("rates", {})
        best = f"{rate['float32 operations'] / 1e9:.0f} GFLOP/s, {rate['bytes'] / 1e9:.0f} GB/s" if rate else ""
        versions = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
        rows.append([TITLES.get(name, name), facts["day"], loads, best, versions])
    if not rows:
        return ""
    facts = next(part["machine"] for part in results.values() if "machine" in part)
    told = (
        f"CPU: {facts['processor']}, {facts['cores']} cores, {facts['memory']}, {facts['threads']} thread, Python "
        f"{facts['python']}. The machine is shared: *load* is the number of processes that wanted its cores, before → "
        "after; with more than one for each core the clock's seconds say little."
    )
    head = ["part", "measured", "load", "best matrix product, copy", "versions"]
    return f"## The machine\n\n{told}\n\n{table(head, rows)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rounds(part: Results) -> str:
    count = part["ways"]["eyechart"].get("rounds", 0)
    return "One round." if count == 1 else f"Medians of {count} rounds."


def seconds(result: Results) -> str:
    return f"{result['seconds']:.3g} s ({result['wall']:.3g})"


def error_of(value: float | str | None, limit: float) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return "**no number**" if value == NO_NUMBER else "**fails**"
    return f"**{value:.1e}**" if value > limit else f"{value:.1e}"


def layer_cka(part: Results) -> str:
    told = (
        f"{' × '.join(part['subjects'])}, {part['images']} images in batches of {part['batch']}: every block of one "
        "with every block of the other. eyechart's table holds all pairs within each model, their stems, and all of "
        "it without class token too."
    )
    chart = "![Time above the bare passes](benchmarks-cka.svg)"
    return f"## {TITLES['layer_cka']}\n\n{told} {rounds(part)}\n\n{cka_table(part)}\n\n{lead(part)}\n\n{chart}"


def pairs(part: Results) -> str:
    told = (
        f"{', '.join(part['subjects'])} on {part['images']} images in batches of {part['batch']}. Peers compare two "
        "models at a time, so each model runs again for every partner; eyechart runs each once."
    )
    return f"## {TITLES['pairs']}\n\n{told} {rounds(part)}\n\n{cka_table(part)}\n\n{lead(part)}"


def cka_table(part: Results) -> str:
    """Each way with its time, what it adds to the bare passes, its memory and its error."""
    bare = part["ways"]["bare passes"]
    rows = []
    for way, result in part["ways"].items():
        if "failed" in result:
            rows.append([way, "fails", "", "", ""])
            continue
        above = "" if way == "bare passes" else f" (+{result['seconds'] - bare['seconds']:.3g} s)"
        ratio = f"{result['seconds'] / bare['seconds']:.2f}"
        times = f" ({result['megabytes'] / bare['megabytes']:.2f} ×)" if bare["megabytes"] >= 1 else ""
        memory = f"{result['megabytes']:,.0f} MB{times}"
        rows.append([way, seconds(result), f"{ratio} ×{above}", memory, error_of(result.get("error"), 1e-3)])
    floors = part["floor"]
    rows.append(["*floor*", f"{floors['passes'] + floors['above']:.3g} s", f"(+{floors['above']:.2g} s)", "", ""])
    head = ["way", "seconds (clock)", "over the bare passes", "peak memory (over the bare passes')", "largest error"]
    return table(head, rows)


def lead(part: Results) -> str:
    """Where eyechart stands beside the best of those whose answer is right."""
    own = part["ways"]["eyechart"]
    others = {
        way: result["seconds"]
        for way, result in part["ways"].items()
        if way not in ("eyechart", "bare passes") and "failed" not in result and right(result)
    }
    if not others:
        return "No peer gave the right answer here."
    best = min(others, key=lambda way: others[way])
    return f"The quickest peer with the right answer, {best}, takes {others[best] / own['seconds']:.2f} times as long."


def right(result: Results) -> bool:
    error = result.get("error", 0.0)
    return not isinstance(error, str) and error <= WRONG["layer_cka"]


def shifted(part: Results) -> str:
    offsets = list(next(iter(part["ways"].values())))
    rows = [
        [way, *(error_of(values[offset], WRONG["offsets"]) for offset in offsets)]
        for way, values in part["ways"].items()
    ]
    told = (
        f"The same two models on {part['images']} images, with the tokens of the ViT shifted by a constant (its "
        "position embeddings are; layer norm takes it away again, so the model computes the same). CKA does not depend "
        "on offsets, but uncentred Gram matrices in float32 do. Largest error of any two layers against float64 on "
        "these features; bold: wrong in the third decimal."
    )
    head = ["way", *(f"offset {offset}" for offset in offsets)]
    return f"### Features with an offset\n\n{told}\n\n{table(head, rows)}"


def hessian(part: Results, where: str = "CPU") -> str:
    rows = []
    for way, result in part["ways"].items():
        if "failed" in result:
            rows.append([way, "fails", "", ""])
            continue
        found = error_of(result["error"], WRONG["hessian"])
        rows.append([way, seconds(result), str(result["products"]), found])
    told = (
        f"A ViT of {part['parameters']:,} parameters after a short training, {part['images']} images, {where}. Error: "
        f"the largest of the five relative to float64; asked for: {part['tolerance']:g} (bold: missed). eyechart stops "
        "by itself when all five are that well known; PyHessian and hessian-eigenthings run with their defaults unless "
        "steps are named."
    )
    rows.append(["*floor*", f"{part['floor']:.2g} s for each product", "", ""])
    head = ["way", "seconds (clock)", "Hessian-vector products", "largest relative error"]
    return f"## {TITLES['hessian']}\n\n{told} {rounds(part)}\n\n{table(head, rows)}"


def probes(part: Results) -> str:
    rows = []
    for way, result in part["ways"].items():
        if "failed" in result:
            rows.append([way, "fails", "", "", ""])
            continue
        right = f"{result['accuracy']:.1%}" if result.get("probes") else "–"
        rows.append([way, seconds(result), f"{result['megabytes']:,.0f} MB", str(result.get("probes") or "–"), right])
    rows.append(["*floor*", f"{part['floor']['passes']:.3g} s (passes)", "", "", ""])
    told = (
        f"{', '.join(part['subjects'])}: 24 blocks, {part['images']:,} bundled pictures of ten classes, every picture "
        "answered by probes that did not see it. Accuracy is the mean over blocks of the probes of the mean position. "
        "The features are not quite the same: eyechart brings earlier maps to the grid of the last one and reads more "
        "than 192 numbers (128 at a single place) through a fixed random projection, which bounds its memory; "
        "scikit-learn gets all channels."
    )
    head = ["way", "seconds (clock)", "peak memory", "probes", "accuracy"]
    return f"## {TITLES['probes']}\n\n{told} {rounds(part)}\n\n{table(head, rows)}"


def growth(part: Results) -> str:
    rows = []
    words = {
        "images": "images, bundled pair",
        "subjects": "subjects, 250 images",
        "blocks": "blocks of a ViT, CKA alone",
    }
    for kind, told in words.items():
        grown = part[kind]
        rows.append(
            [
                told,
                " / ".join(f"{size:,}" for size in grown["sizes"]),
                " / ".join(f"{value:.3g}" for value in grown["floor"]),
                " / ".join(f"{value:.3g}" for value in grown["bare"]),
                " / ".join(f"{value:.3g}" for value in grown["seconds"]),
                f"{grown['exponent']:.2f}",
                " / ".join(f"{value:,.0f}" for value in grown["megabytes"]),
                f"{grown['memory_exponent']:.2f}",
            ]
        )
    told = (
        f"All measures of the shared pass on bundled models at 32 px, blocks of {part['block']} images. An exponent is "
        "the slope of the logarithms: 1 is linear, 0 is flat. Peaks are of the resident memory of the process, where "
        "some tens of megabytes are the allocator's; every further subject brings tensors and tallies of its own."
    )
    head = [
        "what grows",
        "sizes",
        "floor s",
        "bare s",
        "measured s",
        "exponent of time",
        "peak MB",
        "exponent of memory",
    ]
    return f"## {TITLES['growth']}\n\n{told}\n\n{table(head, rows)}\n\n![Growth](benchmarks-growth.svg)"


def on_gpu(gpu: Results) -> str:
    if not gpu:
        return "## On a GPU\n\nNot measured in this form yet: `make bench-gpu` on a machine with a GPU."
    from page_gpu import section

    return section(gpu)


def wrong(cpu: Results, gpu: Results) -> str:
    """Every peer that failed or was wrong, with the input that shows it."""
    lines = []
    for where, results in (("", cpu), (" on the GPU", gpu)):
        for name, limit in WRONG.items():
            part = results.get(name, {})
            part = part.get("one", part) if name == "hessian" else part
            for way, result in part.get("ways", {}).items():
                for offset, said in faults(name, result, limit):
                    lines.append(f"- **{way}**{where}: {said}. Shown by: {shown_by(name, part, offset)}")
    told = "\n".join(lines) if lines else "None in these runs."
    return f"## What failed or was wrong\n\n{told}\n\n{KNOWN}"


def faults(name: str, result: Any, limit: float) -> list[tuple[str, str]]:
    values = result if name == "offsets" else {"": result.get("failed") or result.get("error")}
    found = []
    for offset, value in values.items():
        if isinstance(value, str):
            found.append((offset, value))
        elif value is not None and value > limit:
            found.append((offset, f"off by {value:.2g}"))
    return found


def shown_by(name: str, part: Results, offset: str) -> str:
    if name == "offsets":
        return f"tokens of the first model shifted by {offset}, {part['images']} images (`layer_cka.py --offsets`)."
    if name == "hessian":
        asked = f"asked for: five values to {part['tolerance']:g}"
        return f"the small ViT on {part['images']} images, seed 0 (`hessian.py`); {asked}."
    return f"{' × '.join(part['subjects'])}, {part['images']} bundled pictures (`layer_cka.py`)."


KNOWN = """Choices made in the peers' favour: torch_cka runs under `torch.no_grad()`, which its manual does not ask
for and without which it keeps the graph of every pass; cka-pytorch passes over the images once, not ten times as by
default; thingsvision 2.7.3 asks for numpy < 2, torchvision 0.15.2 and TensorFlow < 2.16, not for what is installed
here, and cannot be imported without TensorFlow: only its CKA class is called, on features stored by a hook and over
all images at once, and its answer is checked against that."""

TITLES = {
    "layer_cka": "Layer-by-layer CKA",
    "pairs": "All pairs among eight models",
    "hessian": "The five largest Hessian eigenvalues",
    "probes": "Probes at 24 sites",
    "growth": "Growth",
}
SECTIONS = {
    "layer_cka": layer_cka,
    "offsets": shifted,
    "pairs": pairs,
    "hessian": hessian,
    "probes": probes,
    "growth": growth,
}


if __name__ == "__main__":
    main()
