"""A run: everything that decides one training, as data that travels between processes. No torch here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from eyechart.training.recipes import Recipe, find_recipe

SNAPSHOTS = ("init", "warmup", "quarter")


@dataclass(frozen=True)
class Run:
    """`model` trained on `data` by `recipe`, into `out`."""

    model: str
    data: str
    recipe: Recipe
    out: str
    seed: int = 0
    fraction: float = 1.0
    evaluate_every: int = 1
    snapshots: tuple[str, ...] = SNAPSHOTS
    """Which to keep beside the end."""
    device: str = "auto"
    bfloat16: bool | None = None
    compiled: bool | None = None
    captured: bool | None = None
    """None: on a GPU yes, on a CPU no."""
    time_limit: float | None = None
    """Seconds after which the training ends early, with everything written."""

    def command(self, data: str) -> str:
        """The command that makes this run again, with the data's name in place of where it lay."""
        recipe = find_recipe(self.recipe.name)
        words = ["eyechart", "train", self.model, "--data", data, "--recipe", recipe.name]
        for setting in ("epochs", "warmup_epochs", "batch_size", "learning_rate"):
            if getattr(self.recipe, setting) != getattr(recipe, setting):
                words += [f"--{setting.replace('_', '-')}", str(getattr(self.recipe, setting))]
        if self.fraction != 1:
            words += ["--fraction", str(self.fraction)]
        return shlex.join([*words, "--seed", str(self.seed)])

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Run:
        values: Mapping[str, Any] = json.loads(text)
        return cls(**{**values, "recipe": Recipe.from_json(values["recipe"]), "snapshots": tuple(values["snapshots"])})
