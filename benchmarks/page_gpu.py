"""The part of docs/benchmarks.md that comes from `benchmarks/results/gpu.json`."""

from __future__ import annotations

from typing import Any

from page import Results, cka_table, error_of, hessian, lead, shifted, table


def section(gpu: Results) -> str:
    parts = [f"## On a GPU\n\n{machine(gpu['machine'])}"]
    for name, told in {
        "ratios": ratios,
        "profile": profile,
        "exam": exam,
        "layer_cka": layer_cka,
        "offsets": shifted,
        "pairs": pairs,
        "hessian": curvature,
    }.items():
        part = gpu.get(name)
        if part:
            parts.append(f"`{name}` failed: {part['failed']}" if "failed" in part else told(part))
    left_out = gpu.get("left_out", {}).get("parts", [])
    missing = [name for name in left_out if name not in gpu]
    if missing:
        parts.append(f"Not measured, since the time was up: {', '.join(missing)}.")
    return "\n\n".join(parts)


def machine(facts: Results) -> str:
    best = facts["rates"]
    rates = ", ".join(
        f"{name.removesuffix(' operations')} {value / 1e12:.1f} TFLOP/s"
        for name, value in best.items()
        if name != "bytes"
    )
    versions = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
    return (
        f"{facts.get('accelerator', facts['processor'])}, {facts['cores']} cores, {facts['day']}; TF32 off; "
        f"{versions}. Best matrix product: {rates}; copy {best['bytes'] / 1e9:,.0f} GB/s. Images are on the device "
        "before anything is timed; seconds are the clock's."
    )


def ratios(part: Results) -> str:
    names = list(part["rows"][0]["measures"])
    rows = []
    for row in part["rows"]:
        bare = min(found["bare"]["seconds"] for found in row["measures"].values())
        rows.append(
            [
                f"{' + '.join(row['subjects'])}, {row['dtype']}",
                f"{row['images_a_second']:,.0f} images/s ({bare / row['floor']:.1f} × its floor)",
                *(f"{row['measures'][name]['ratio']:.2f}" for name in names),
            ]
        )
    told = "Time over the bare passes of the same images, which it takes turns with:"
    listed = table(["subjects", "bare", *names], rows)
    chart = "![Measures over the bare passes](benchmarks-gpu.svg)"
    return f"### Measures over the bare passes\n\n{told}\n\n{listed}\n\n{chart}"


def profile(part: Results) -> str:
    rows = []
    for row in part["rows"]:
        shares = [f"{row[key] / row['wall']:.0%}" for key in ("kernels", "copies", "idle")]
        counts = [f"{row[key]:,}" for key in ("launches", "copy_calls", "waits")]
        name = f"{' + '.join(row['subjects'])}, {row['dtype']}, {row['block']} images"
        rows.append([name, f"{row['wall'] * 1e3:.1f} ms", *shares, *counts])
    head = [
        "one batch, all shared measures",
        "clock, profiled",
        "kernels",
        "copies",
        "device idle",
        "launches",
        "copy calls",
        "waits",
    ]
    dearest = [
        f"- {' + '.join(row['subjects'])}, {row['dtype']}: "
        + ", ".join(
            f"`{event['name']}` {event['device'] * 1e3:.2f} ms ({event['calls']}×)" for event in row["dearest"][:4]
        )
        for row in part["rows"]
    ]
    listed = "\n".join(dearest)
    return f"### Where the time of a batch goes\n\n{table(head, rows)}\n\nDearest on the device:\n\n{listed}"


def exam(part: Results) -> str:
    phases = sorted(part["phases"].items(), key=lambda phase: -phase[1])
    rows = [[name, f"{seconds:.1f} s"] for name, seconds in phases if seconds >= 0.1]
    return f"### The default exam of the bundled pair: {part['seconds']:.0f} s\n\n{table(['phase', 'seconds'], rows)}"


def layer_cka(part: Results) -> str:
    told = f"{' × '.join(part['subjects'])}, {part['images']} images in batches of {part['batch']}."
    return f"### Layer-by-layer CKA on the GPU\n\n{told}\n\n{cka_table(part)}\n\n{lead(part)}"


def pairs(part: Results) -> str:
    told = f"{', '.join(part['subjects'])}, {part['images']} images."
    return f"### All pairs on the GPU\n\n{told}\n\n{cka_table(part)}\n\n{lead(part)}"


def curvature(part: Results) -> str:
    said = hessian(part["one"], "GPU").replace("## ", "### ", 1) if "one" in part else ""
    if "many" not in part:
        return said
    many: Any = part["many"]
    rows = [
        [way, f"{result['seconds']:.3f} s", f"{result['products']:.0f}", error_of(result.get("difference"), 1e-4)]
        for way, result in many["ways"].items()
    ]
    head = ["way", "seconds for a minibatch", "products", "difference from eyechart's"]
    told = f"{many['subject']}, {many['minibatches']} minibatches of 16 images, {many['group']} at once:"
    return f"{said}\n\n{told}\n\n{table(head, rows)}"
