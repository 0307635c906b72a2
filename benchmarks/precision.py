"""Which numbers of an exam change when it computes in fewer bits: each beside its interval in float32.

    python benchmarks/precision.py [--dtypes bfloat16] [--out benchmarks/results/precision.json]

The same exam in float32 and in each dtype, on the bundled pair and on a pair of 224 pixels with random weights (which
shows what the larger maps and sums do, not what training does). A number stays if it lies inside its own float32
interval. `docs/precision.md` and the file that pages of such exams are told from are written from the results.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import eyechart
from eyechart.run import Run

HERE = Path(__file__).parent
TOLD = HERE.parent / "src/eyechart/report/precision.json"
PAGE = HERE.parent / "docs/precision.md"
SMALL = ("zoo:vit", "zoo:resnet")
LARGE = ("timm:vit_tiny_patch16_224@random", "timm:resnet18@random")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="bfloat16,tf32" if torch.cuda.is_available() else "bfloat16")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--out", type=Path, default=HERE / "results/precision.json")
    asked = parser.parse_args()
    dtypes = asked.dtypes.split(",")
    found = {
        "device": "CPU" if asked.device == "cpu" or not torch.cuda.is_available() else torch.cuda.get_device_name(),
        "torch": torch.__version__.partition("+")[0],
        "effort": asked.effort,
        "pairs": [
            compared(SMALL, {}, dtypes, asked),
            compared(LARGE, {"limit": 128, "measures": looked_at_once()}, dtypes, asked),
        ],
    }
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    TOLD.write_text(json.dumps(told(found), indent=1) + "\n")
    PAGE.write_text(page(found))
    print(PAGE)


def looked_at_once() -> list[str]:
    """All that share the pass: the others would take an hour on a CPU at 224 pixels."""
    from passes import shared_measures

    return [*shared_measures(), "probes"]


def compared(
    subjects: Sequence[str], more: dict[str, Any], dtypes: Sequence[str], asked: argparse.Namespace
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:

        def run(dtype: str) -> Run:
            print(f"{' + '.join(subjects)} in {dtype}", flush=True)
            settings = {"effort": asked.effort, "device": asked.device, "page": False, "progress": False, **more}
            return eyechart.exam(list(subjects), dtype=dtype, out=Path(folder) / dtype, **settings)

        full = run("float32")
        return {
            "subjects": list(subjects),
            "images": full.plan["images"]["used"],
            "dtypes": {dtype: beside(full, run(dtype)) for dtype in dtypes},
        }


def beside(full: Run, other: Run) -> dict[str, Any]:
    """By measure: how many numbers have an interval, how many left it, and the one that moved farthest."""
    with_interval, rows = numbers(full), numbers(other)
    measures: dict[str, dict[str, Any]] = {}
    for key, (value, low, high) in with_interval.items():
        if not high > low:  # no interval, or one of no width
            continue
        made = measures.setdefault(key[0], {"numbers": 0, "outside": 0, "farthest": {"half_widths": -1.0}})
        now = rows.get(key, (math.nan,) * 3)[0]
        known = not math.isnan(now)
        half_widths = abs(now - value) / ((high - low) / 2) if known else math.inf
        made["numbers"] += 1
        made["outside"] += not low <= now <= high
        if half_widths > made["farthest"]["half_widths"]:
            row = {"quantity": key[1], "subjects": key[2], "float32": value, "low": low, "high": high}
            made["farthest"] = {**row, "now": now if known else None, "half_widths": half_widths}
    after = {(each.claim, each.subjects, each.reading): each.verdict for each in other.verdicts}
    changed = [
        f"{before.claim} {before.verdict} → {now}"
        for before in full.verdicts
        if (now := after.get((before.claim, before.subjects, before.reading), "not tested")) != before.verdict
    ]
    return {"measures": measures, "verdicts_changed": changed}


def numbers(run: Run) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    import pandas as pd

    table = pd.read_csv(run.path / "summary.csv")
    keys = zip(table["measure"], table["quantity"], table["subjects"], strict=True)
    return dict(zip(keys, zip(table["value"], table["low"], table["high"], strict=True), strict=True))


def told(found: dict[str, Any]) -> dict[str, Any]:
    """What a page in such numbers says: of each measure, how many of how many numbers of the bundled pair left."""
    pair = found["pairs"][0]
    return {
        dtype: {name: [made["outside"], made["numbers"]] for name, made in results["measures"].items()}
        for dtype, results in pair["dtypes"].items()
    }


def page(found: dict[str, Any]) -> str:
    lines = [
        "# Fewer bits",
        "",
        "*Made by `benchmarks/precision.py`; do not edit by hand.* `--dtype` is part of the question: an exam in",
        "bfloat16 (or, on an NVIDIA GPU, `tf32`) has a folder of its own. Views and sums stay float32 and float64; the",
        "subject's own passes have fewer bits. Below, the same exam in float32 and in each: a number has *left* if it",
        "lies outside the interval that it has in float32.",
        "",
        f"Measured on: {found['device']}, torch {found['torch']}, effort {found['effort']}.",
    ]
    for pair in found["pairs"]:
        for dtype, results in pair["dtypes"].items():
            lines += ["", f"## {' + '.join(pair['subjects'])}, {pair['images']:,} images, {dtype}", ""]
            measures = results["measures"]
            left, of_all = (sum(made[what] for made in measures.values()) for what in ("outside", "numbers"))
            changed = ", ".join(results["verdicts_changed"]) or "none"
            lines += [f"{left} of {of_all} numbers left. Verdicts that changed: {changed}.", ""]
            lines += [
                "| measure | left | moved farthest, in half widths of its interval | |",
                "| --- | --- | --- | --- |",
            ]
            for name, made in sorted(measures.items(), key=lambda item: -item[1]["farthest"]["half_widths"]):
                far = made["farthest"]
                lines.append(
                    f"| {name} | {made['outside']} of {made['numbers']} | {far['half_widths']:.2g} | {in_words(far)} |"
                )
    return "\n".join(lines) + "\n"


def in_words(row: dict[str, Any]) -> str:
    now = "no number" if row["now"] is None else f"{row['now']:.4g}"
    who = str(row["subjects"]).replace("|", "and")
    return f"{row['quantity']} of {who}: {row['float32']:.4g} [{row['low']:.4g}, {row['high']:.4g}] → {now}"


if __name__ == "__main__":
    main()
