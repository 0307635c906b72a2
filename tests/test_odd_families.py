"""Models whose attention is not all between places of the picture: they are examined, and play no false part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import eyechart
from eyechart.claims.asking import asked_of
from eyechart.measures.skip_ratio.measure import SkipRatio
from eyechart.subjects.anatomy import anatomy_of
from tests.families import FAMILIES, Family

#: As deep and as wide as is needed to have each kind of block: how many there are, `tracing/` looks at.
SHALLOW: dict[str, dict[str, Any]] = {
    "CaiT": {"depth": 3, "embed_dim": 32},
    "XCiT": {"depth": 3, "embed_dim": 32},
    "CrossViT": {"depth": ([1, 2, 0], [1, 2, 0]), "embed_dim": (24, 48)},
    "VOLO": {},
    "ViT with attention pooling (SigLIP)": {"depth": 2, "embed_dim": 48},
}
KNOWN = {family.name: family for family in FAMILIES}


def anatomy(family: Family) -> eyechart.Anatomy:
    return anatomy_of(family.name, family.build(), torch.randn(2, 3, family.size, family.size))


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ViT", "vit"),
        ("DeiT", "vit"),
        ("DINOv2 with registers", "vit"),
        ("Swin", "staged transformer"),
        ("PiT", "staged transformer"),
        ("ResNet-18", "cnn"),
        ("BiT (ResNetV2)", "cnn"),
        ("XCiT", "transformer"),
        ("CrossViT", "branched transformer"),
    ],
)
def test_families(name: str, family: str) -> None:
    assert anatomy(KNOWN[name]).family == family


@pytest.mark.parametrize("name", SHALLOW)
def test_an_exam_of_class_attention_runs_to_its_page(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if name != "CaiT":  # one page is enough
        request.getfixturevalue("no_charts")
    family = replace(KNOWN[name], options={**KNOWN[name].options, **SHALLOW[name]})
    subject = eyechart.load_subject(family.build(), input_size=family.size, label=name)
    run = eyechart.exam([subject], limit=8, effort="quick", out=tmp_path / "run")
    assert (run.path / "report.html").exists()
    assert {"cka", "skip_ratio"} <= set(run.findings)
    tested = {verdict.claim for verdict in run.verdicts if verdict.verdict != "not tested"}
    assert not tested & {test.claim for test in asked_of([SkipRatio()])}
