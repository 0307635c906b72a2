"""Model cards of the bundled weights, from the cards and training records that lie beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from site_text import filled

from eyechart import zoo
from eyechart.files import read_json_lines
from eyechart.subjects.catalogue import available

WEIGHTS = Path(zoo.__file__).with_name("weights")


def pages(drawn: Mapping[str, Path]) -> dict[str, str]:
    return {"models.md": filled("models.md", cards=list(cards()))}


def cards() -> Iterator[dict[str, Any]]:
    described = {row["spec"]: row["card"] for row in available()}
    for path in sorted(WEIGHTS.glob("*.json")):
        name = path.stem
        card = zoo.card(name)
        records = read_json_lines(WEIGHTS / f"{name}.records.jsonl")
        epochs = [record for record in records if "epoch" in record]
        files = {file: (WEIGHTS / file).stat().st_size for file in card["sha256"]}
        yield {
            **card,
            "spec": f"zoo:{name}",
            "about": described[f"zoo:{name}"]["sentence"],
            "files": files,
            "last": epochs[-1],
            "records": len(epochs),
            "snapshots": [file.split(".")[1] for file in files if file.count(".") == 2],
        }
