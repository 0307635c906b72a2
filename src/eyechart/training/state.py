"""The state of a training as files that can be moved to another machine: NAME.state/EPOCH/piece-000.safetensors …

No file is above 15 MiB, so tensors are cut into flat pieces; `state.json` says how they were, and holds the counters.
A state is written beside the last one and moved into place, then the last one is removed: there is always a whole one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.optim import Optimizer

from eyechart.errors import RunFolderError
from eyechart.files import cannot_write, move_into_place, write_bytes
from eyechart.training.optimisers import Average

PIECE_BYTES = 14 * 2**20  # a piece's tensors; its header and the last tensor's rounding stay below 15 MiB
FORMAT = 1


def write_state(folder: Path, epoch: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Write the state after an epoch and remove older ones."""
    final = folder / f"{epoch:06d}"
    partial = folder / f"{epoch:06d}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        hashes: dict[str, str] = {}
        for number, piece in enumerate(_pieces(tensors)):
            name, content = f"piece-{number:03d}.safetensors", save(piece)
            write_bytes(partial / name, content)
            hashes[name] = hashlib.sha256(content).hexdigest()
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        manifest = {"format": FORMAT, "epoch": epoch, "facts": facts, "shapes": shapes, "sha256": hashes}
        write_bytes(partial / "state.json", json.dumps(manifest).encode())
        shutil.rmtree(final, ignore_errors=True)
        move_into_place(partial, final)
    except (OSError, RunFolderError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise cannot_write(final, error) from error
        raise
    for other in folder.iterdir():
        if other != final:
            shutil.rmtree(other, ignore_errors=True)
    return final


def read_state(folder: Path) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """Epoch, tensors and facts of the last whole state; None if there is none. A damaged one is refused."""
    states = sorted(state for state in folder.glob("*") if state.name.isdigit())
    if not states:
        return None
    state = states[-1]
    try:
        manifest = json.loads((state / "state.json").read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise RunFolderError(
                f"{state} is of another version (format {manifest['format']}); --overwrite starts again."
            )
        parts: dict[str, list[Tensor]] = {}
        for name, digest in manifest["sha256"].items():
            content = (state / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise RunFolderError(f"{state / name} is damaged; copy it again, or --overwrite starts again.")
            for key, part in load(content).items():  # a tensor has one part in a piece, and pieces are in order
                parts.setdefault(key.rpartition("#")[0], []).append(part)
        tensors = {name: torch.cat(parts[name]).reshape(shape) for name, shape in manifest["shapes"].items()}
    except (OSError, ValueError, KeyError) as error:
        raise RunFolderError(f"The state {state} is not complete ({error}); --overwrite starts again.") from error
    return manifest["epoch"], tensors, manifest["facts"]


def remove_state(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _pieces(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Flat parts named NAME#NUMBER, packed in order; the number grows over a tensor that spans several pieces."""
    piece: dict[str, Tensor] = {}
    free_bytes = PIECE_BYTES
    for name, tensor in tensors.items():
        flat, number = tensor.detach().cpu().contiguous().reshape(-1), 0
        while True:
            count = free_bytes // max(1, flat.element_size())
            part, flat = flat[:count], flat[count:]
            if part.numel() or not number:
                piece[f"{name}#{number}"] = part.clone()
                free_bytes -= part.numel() * part.element_size()
                number += 1
            if not flat.numel():
                break
            yield piece
            piece, free_bytes = {}, PIECE_BYTES
    if piece:
        yield piece


def gather(
    module: torch.nn.Module, optimiser: Optimizer, average: Average | None, generator: torch.Generator
) -> dict[str, Tensor]:
    """Everything that the next epoch depends on."""
    tensors = {f"weights/{name}": tensor for name, tensor in module.state_dict().items()}
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for parameter, values in optimiser.state.items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimiser/{names[id(parameter)]}/{key}"] = value
    if average is not None:
        tensors |= {f"average/{name}": tensor for name, tensor in average.mean.items()}
    tensors["random/loop"] = generator.get_state()
    tensors["random/cpu"] = torch.get_rng_state()
    if generator.device.type == "cuda":
        tensors["random/cuda"] = torch.cuda.get_rng_state(generator.device)
    return tensors


def restore(
    tensors: Mapping[str, Tensor],
    module: torch.nn.Module,
    optimiser: Optimizer,
    average: Average | None,
    generator: torch.Generator,
) -> None:
    """Put a gathered state back.

    Weights and averages are copied in place: the optimiser, the average and, later, a captured CUDA graph hold these
    very tensors. It must happen before the first step, for a graph captured earlier would keep the optimiser's old
    state.
    """
    by_owner: dict[str, dict[str, Tensor]] = {"weights": {}, "optimiser": {}, "average": {}, "random": {}}
    for name, tensor in tensors.items():
        owner, _, rest = name.partition("/")
        by_owner[owner][rest] = tensor
    module.load_state_dict(by_owner["weights"])
    kept: dict[str, dict[str, Tensor]] = {}
    for name, tensor in by_owner["optimiser"].items():
        owner, _, key = name.rpartition("/")
        kept.setdefault(owner, {})[key] = tensor
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for group in optimiser.param_groups:
        counts_on_device = group.get("capturable") or group.get("fused")
        for parameter in group["params"]:
            for key, tensor in kept.get(names[id(parameter)], {}).items():
                if key == "step":
                    placed = tensor.to(parameter.device) if counts_on_device else tensor
                else:  # like the parameter, in its memory layout too
                    placed = torch.zeros_like(parameter, memory_format=torch.preserve_format).copy_(tensor)
                optimiser.state[parameter][key] = placed
    if average is not None:
        for name, mean in average.mean.items():
            mean.copy_(by_owner["average"][name])
    generator.set_state(by_owner["random"]["loop"])
    torch.set_rng_state(by_owner["random"]["cpu"])
    if "cuda" in by_owner["random"]:
        torch.cuda.set_rng_state(by_owner["random"]["cuda"], generator.device)
