"""What a training leaves behind, all named after the model: NAME.records.jsonl (one line an epoch),
NAME.SNAPSHOT.safetensors, NAME.safetensors (the end) and NAME.json, the card. Weights are float16.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from eyechart.errors import NotFinite, RunFolderError


class Records:
    """The folder and the name that a training writes under."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.lines = folder / f"{name}.records.jsonl"
            self.lines.write_text("", encoding="utf-8")
        except OSError as error:
            raise RunFolderError(f"The training cannot write into {folder}: {error}.") from error

    def line(self, values: Mapping[str, Any]) -> None:
        """One more line of the record, on the disk at once."""
        try:
            with self.lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values, allow_nan=False) + "\n")
        except OSError as error:
            raise RunFolderError(f"The record {self.lines} cannot be written: {error}.") from error

    def weights_path(self, snapshot: str = "end") -> Path:
        return self.folder / (
            f"{self.name}.safetensors" if snapshot == "end" else f"{self.name}.{snapshot}.safetensors"
        )

    def snapshot(self, state: Mapping[str, Tensor], snapshot: str = "end") -> Path:
        """Save a state in float16, whole or not at all."""
        path = self.weights_path(snapshot)
        halves = {name: half(name, tensor) for name, tensor in state.items()}
        partial = path.with_suffix(".partial")
        try:
            # One entry only: safetensors writes several in random order, and equal weights should be equal files.
            save_file(halves, partial, metadata={"zoo": f"{self.name}@{snapshot}"})
            partial.chmod(0o644)  # safetensors makes it readable by its owner only
            os.replace(partial, path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RunFolderError(f"The weights {path} cannot be written: {error}.") from error
        return path

    def card(self, values: Mapping[str, Any]) -> Path:
        path = self.folder / f"{self.name}.json"
        partial = path.with_suffix(".json.partial")
        try:
            partial.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
            os.replace(partial, path)
        except OSError as error:
            raise RunFolderError(f"The card {path} cannot be written: {error}.") from error
        return path


def half(name: str, tensor: Tensor) -> Tensor:
    """A float tensor as contiguous float16 on the CPU; counters stay integers. What float16 cannot hold is refused."""
    tensor = tensor.detach().cpu().contiguous()
    if not tensor.is_floating_point():
        return tensor
    halved = tensor.to(torch.float16)
    if not bool(halved.isfinite().all()):
        raise NotFinite(f"{name} has values that float16 cannot hold (largest {float(tensor.abs().max()):g}).")
    return halved


def load_weights(module: nn.Module, path: Path) -> nn.Module:
    """The module with the saved weights, in its own precision."""
    module.load_state_dict(load_file(path))
    return module


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
