"""Models of the zoo so small that all measures take seconds, with weights on the disk: any process can load them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from eyechart import zoo

TINY: Mapping[str, Mapping[str, Any]] = {
    "vit": {"depth": 3, "width": 16, "heads": 2, "patch": 8},
    "resnet": {"width": 4, "depths": (1, 1, 1, 1)},
    "resnet-mcdropout": {"width": 4, "depths": (1, 1, 1, 1)},
}
#: With a grid of 8×8 tokens and enough blocks for every measure that the bundled pair has.
SMALL: Mapping[str, Mapping[str, Any]] = {
    "vit": {"depth": 5, "width": 32, "heads": 4, "patch": 4},
    "resnet": {"width": 8, "depths": (2, 1, 1, 1)},
}


#: The card of a ViT of somebody's own, and the switches it says.
OWN_CARD: Mapping[str, Any] = {
    "name": "mine",
    "model": "vit",
    "classes": [f"class {number}" for number in range(10)],
    "input_size": [32, 32],
    "mean": [0.5] * 3,
    "std": [0.2] * 3,
    "recipe": "none",
    "switches": {"depth": 1, "width": 32, "heads": 4},
}


def write_subjects(folder: Path, models: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Their specs. The cards say that they were trained as the bundled ViT was, which they were not."""
    specs = []
    for name, switches in models.items():
        torch.manual_seed(0)
        save_file(zoo.build(name, **switches).state_dict(), folder / f"{name}.safetensors")
        card = zoo.card("vit") | {"name": name, "switches": dict(switches)}
        (folder / f"{name}.json").write_text(json.dumps(card))
        specs.append(f"zoo:{name}@{folder / name}.safetensors")
    return specs
