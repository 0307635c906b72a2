"""Where and in which numbers an exam or a training computes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import torch

from eyechart.errors import UsageError

DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
"""Numbers of an exam by name. TF32 is float32 whose products a GPU makes from 10 bits of each factor."""


def allow_tf32(allowed: bool) -> None:
    """Products are float32's unless TF32 was asked for: CKA shows it. Trainings leave torch's own setting."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def choose_device(name: str) -> torch.device:
    """`auto` takes a GPU if there is one; of several processes that one launcher started, each its own."""
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        rank = os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID"))
        return torch.device("cuda" if rank is None else f"cuda:{int(rank) % torch.cuda.device_count()}")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise UsageError(f"The device {name!r} cannot be used here ({reason}); try --device cpu.") from error
    return device


def choose_dtype(name: str, device: torch.device | None = None) -> torch.dtype:
    if name not in DTYPES:
        raise UsageError(f"--dtype takes {', '.join(DTYPES)}; got {name!r}.")
    if name == "tf32" and device is not None and device.type != "cuda":
        raise UsageError(f"--dtype tf32 needs an NVIDIA GPU; on {device.type} take float32, or bfloat16 to be faster.")
    return DTYPES[name]


def put(values: np.ndarray | Sequence[int], device: torch.device | str) -> torch.Tensor:
    """Numbers that are known on the CPU, as a tensor elsewhere; unlike a plain copy it does not wait for the device."""
    return torch.as_tensor(values).to(device, non_blocking=True)
