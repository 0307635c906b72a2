"""The measure that CONTRIBUTING.md shows is a working measure."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from eyechart.tracing.views import Look
from tests.measures.staging import anatomy, measure_tensors, scene, site

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_example_measures_the_length_of_features(monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert found
    example = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", example)  # dataclasses look their module up there
    exec(compile(found[1], "CONTRIBUTING.md", "exec"), example.__dict__)
    measure = example.FeatureLength()

    place = site("block 1", depth=1.0)
    features = torch.randn(64, 4, 6)
    where = scene(anatomy("net", [place]))
    finding = measure_tensors(measure, where, {("net", "block 1"): Look(place, output=features)}, 4)
    expected = float(features.norm(dim=-1).mean())
    assert float(finding.length[0]) == pytest.approx(expected, rel=1e-6)
    assert float(finding.length_low[0]) < expected < float(finding.length_high[0])
    assert measure.chart(finding).to_dict()["mark"]
    assert "long" in measure.sentence(finding)
