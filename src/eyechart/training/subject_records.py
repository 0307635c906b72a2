"""What a subject's own training wrote down about it, where its records lie beside its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eyechart.files import read_json_lines
from eyechart.zoo import SNAPSHOTS, WEIGHTS


def record_of(card: Mapping[str, Any]) -> dict[str, Any]:
    """The line of the epoch after which the weights were saved; empty where there is no record of it.

    >>> from eyechart.subjects import load_subject
    >>> record_of(load_subject("zoo:vit").card)["epoch"], record_of(load_subject("zoo:vit@warmup").card)["epoch"]
    (300, 10)
    """
    path, snapshot = records_path(card)
    if path is None or not path.is_file():
        return {}
    lines = [line for line in read_json_lines(path, strict=False) if "epoch" in line]
    recipe = card.get("zoo", card).get("recipe", {})
    if not lines or not isinstance(recipe, Mapping) or snapshot not in ("", "warmup"):
        return {}
    if not snapshot:
        return lines[-1] if lines[-1]["epoch"] == recipe.get("epochs") else {}
    return next((line for line in lines if line["epoch"] == recipe.get("warmup_epochs")), {})


def records_path(card: Mapping[str, Any]) -> tuple[Path | None, str]:
    """Where the records of a zoo model would lie, and which snapshot its weights are (empty: the end)."""
    weights = str(card.get("weights"))
    if card.get("source") != "zoo" or weights.startswith("random"):
        return None, ""
    if weights == "trained" or f".{weights}" in SNAPSHOTS:
        return WEIGHTS / f"{card.get('architecture')}.records.jsonl", weights.removeprefix("trained")
    stem = Path(weights).name.removesuffix(".safetensors")
    snapshot = next((suffix for suffix in SNAPSHOTS if stem.endswith(suffix)), "")
    return Path(weights).with_name(f"{stem.removesuffix(snapshot)}.records.jsonl"), snapshot.removeprefix(".")
