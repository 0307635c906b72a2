"""The record of the epoch after which weights were saved."""

from __future__ import annotations

import json
from pathlib import Path

from eyechart.training.subject_records import record_of


def test_records_lie_beside_the_weights(tmp_path: Path) -> None:
    recipe = {"name": "zoo", "epochs": 3, "warmup_epochs": 1}
    card = {"source": "zoo", "architecture": "vit", "zoo": {"recipe": recipe}}
    lines = [{"start": "mine"}, *({"epoch": epoch, "test_error": 1 / epoch} for epoch in (1, 2, 3))]
    (tmp_path / "mine.records.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert record_of({**card, "weights": str(tmp_path / "mine.safetensors")})["epoch"] == 3
    assert record_of({**card, "weights": str(tmp_path / "mine.warmup.safetensors")})["epoch"] == 1
    assert record_of({**card, "weights": str(tmp_path / "mine.quarter.safetensors")}) == {}
    assert record_of({**card, "weights": str(tmp_path / "other.safetensors")}) == {}
    assert record_of({**card, "weights": "random, seed 0"}) == {}
    assert record_of({"source": "timm"}) == {}
