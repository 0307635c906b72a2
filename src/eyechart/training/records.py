"""What a training leaves behind, all called after it: NAME.records.jsonl (one line an epoch), the weights in float16
as NAME.SNAPSHOT.safetensors and NAME.safetensors (the end), NAME.json, the card, which says from the beginning how the
weights beside it are built and fed, and at the end how good they are; NAME.state/ until it is finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from eyechart import zoo
from eyechart.errors import BeingTrained, NotFinite
from eyechart.files import cannot_write, claim, read_json_lines, write_bytes

HALF_MAX = torch.finfo(torch.float16).max


class Records:
    """The folder and the name that a training writes under. `open` claims them for this process."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.lines = folder / f"{name}.records.jsonl"
        self.state = folder / f"{name}.state"
        self.file: BinaryIO | None = None

    def open(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.file = self.lines.open("ab")
        except OSError as error:
            raise cannot_write(self.lines, error) from error
        if not claim(self.file):
            self.file.close()
            raise BeingTrained(
                f"Another process is training {self.name} into {self.folder}; wait for it or give another --out."
            )

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def identity(self) -> dict[str, Any] | None:
        """What the training written here was asked for; None if nothing worth keeping is here.

        A record without an epoch is nothing; one of unknown arguments has an empty identity, which fits none.
        """
        lines = read_json_lines(self.lines, strict=False)
        if not any("epoch" in line for line in lines) and not self.weights_path().is_file():
            return None
        return dict(lines[0].get("arguments", {})) if lines else {}

    def finished(self) -> dict[str, Any] | None:
        """The card of a training that has come to its end."""
        if not self.card_path.is_file() or not self.weights_path().is_file() or self.state.exists():
            return None
        card = zoo.card_beside(self.weights_path())
        return card if "accuracy" in card else None

    def stopped(self, epochs: int) -> dict[str, Any] | None:
        """The card of a training that was asked to stop after so many epochs, and did."""
        card = zoo.card_beside(self.weights_path()) if self.weights_path().is_file() else {}
        return card if "accuracy" in card and card.get("epochs") == epochs else None

    def remove_weights(self, *snapshots: str) -> None:
        for snapshot in snapshots:
            self.weights_path(snapshot).unlink(missing_ok=True)

    @property
    def position(self) -> int:
        assert self.file is not None
        return self.file.tell()

    def cut(self, position: int) -> None:
        """Forget the lines after a position: those of epochs that will be done again."""
        assert self.file is not None
        self.file.truncate(position)
        self.file.seek(position)

    def line(self, values: Mapping[str, Any]) -> None:
        """One more line of the record, on the disk at once; a line that does not fit leaves nothing behind."""
        assert self.file is not None
        before = self.position
        try:
            self.file.write(json.dumps(values, allow_nan=False).encode() + b"\n")
            self.file.flush()
        except OSError as error:
            self.file = self.lines.open("ab")  # drops what the old one still holds back
            self.cut(before)
            raise cannot_write(self.lines, error) from error

    def weights_path(self, snapshot: str = "end") -> Path:
        return self.folder / (
            f"{self.name}.safetensors" if snapshot == "end" else f"{self.name}.{snapshot}.safetensors"
        )

    @property
    def card_path(self) -> Path:
        return self.folder / f"{self.name}.json"

    def snapshot(self, state: Mapping[str, Tensor], snapshot: str = "end") -> Path:
        """Save a state in float16, whole or not at all."""
        halves = {name: half(name, tensor) for name, tensor in state.items()}
        # One entry only: safetensors writes several in random order, and equal weights should be equal files.
        return write_bytes(self.weights_path(snapshot), save(halves, metadata={"zoo": f"{self.name}@{snapshot}"}))

    def card(self, values: Mapping[str, Any]) -> Path:
        return write_bytes(self.card_path, (json.dumps(values, indent=2, allow_nan=False) + "\n").encode())


def beyond_half(state: Mapping[str, Tensor]) -> str | None:
    """The first tensor with a value that float16 cannot hold, NaN among them; None if all can be saved.

    >>> beyond_half({"a": torch.tensor([65504.0]), "b": torch.tensor([-1e6]), "c": torch.tensor([torch.nan])})
    'b'
    """
    floats = {name: tensor for name, tensor in state.items() if tensor.is_floating_point() and tensor.numel()}
    fits = torch.stack([tensor.detach().abs().amax() <= HALF_MAX for tensor in floats.values()])  # NaN is not ≤
    return next((name for name, good in zip(floats, fits.tolist(), strict=True) if not good), None)


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
