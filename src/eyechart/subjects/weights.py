"""Checkpoints: read without running anything in them, fitted to a module by name and shape, or refused with counts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from eyechart.errors import SubjectError, WeightsMismatch
from eyechart.subjects.pickles import load_pickle

State = dict[str, Tensor]
Convert = Callable[[State, nn.Module], State]

#: Where training scripts put the weights; averaged ones first, as they are what such scripts report.
WRAPPERS = (
    "state_dict_ema",
    "model_ema",
    "ema",
    "state_dict",
    "model_state_dict",
    "model",
    "network",
    "net",
    "weights",
)
#: What wrappers put before every name.
PREFIXES = ("module.", "_orig_mod.", "backbone.", "model.", "network.", "net.", "encoder.", "trunk.")
#: Counters and tables that a module makes itself; versions differ in whether they are saved.
INCIDENTAL = ("num_batches_tracked", "relative_position_index", "relative_coords_table", "attn_mask", "n_averaged")


def read_checkpoint(path: str | Path) -> tuple[State, list[str]]:
    """The tensors of a file by name, and what was said about unwrapping. Nothing in the file is executed."""
    try:
        path = Path(path).expanduser()
        exists = path.is_file()  # follows links, and is False for pipes and devices
    except (OSError, RuntimeError) as error:  # a name that is too long; ~NOBODY
        raise SubjectError(f"There is no checkpoint at {path} ({getattr(error, 'strerror', None) or error}).") from None
    if not exists:
        raise SubjectError(f"There is no checkpoint at {path}; weights are given as @random or @PATH of a file.")
    if path.suffix != ".safetensors":
        state, notes = _unwrap(load_pickle(path), path)
    else:
        try:
            state, notes = safetensors.torch.load_file(path), []
        except Exception as error:  # its own, torch's and those of the file system share no class
            raise SubjectError(f"{path} is damaged or not a safetensors file ({_first_line(error)}).") from None
    if not state:
        raise SubjectError(f"{path} holds no tensors; a state_dict() was expected.")
    size = path.stat().st_size
    for name, tensor in state.items():
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise SubjectError(
                f"{path} holds {name!r:.100} as a sparse, quantised or empty tensor; save it as plain one."
            )
        # One number, told to be a billion, is not yet in memory, but would be soon.
        if tensor.numel() * tensor.element_size() > size:
            raise SubjectError(f"{path} is damaged: its tensor {name!r:.100} claims to be larger than the file.")
    return state, notes


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _unwrap(checkpoint: Any, path: Path) -> tuple[State, list[str]]:
    notes: list[str] = []
    seen: set[int] = set()
    while isinstance(checkpoint, Mapping) and id(checkpoint) not in seen:  # a pickle can hold itself
        seen.add(id(checkpoint))
        key = next((key for key in WRAPPERS if isinstance(checkpoint.get(key), Mapping) and checkpoint[key]), None)
        if key is None:
            break
        checkpoint = checkpoint[key]
        notes.append(f"the weights were taken from {key!r} of the checkpoint")
    if not isinstance(checkpoint, Mapping):
        raise SubjectError(f"{path} holds a {type(checkpoint).__name__}, not the tensors of a state_dict().")
    named = {name: value for name, value in checkpoint.items() if isinstance(name, (str, int))}
    return {str(name): value.detach() for name, value in named.items() if isinstance(value, Tensor)}, notes


@dataclass(frozen=True)
class Fit:
    """How a checkpoint sits on a module: which tensors agree in name and shape, and which do not."""

    fitting: int
    expected: int
    tensors: int
    missing: Mapping[str, tuple[int, ...]]
    """Name → shape expected."""
    reshaped: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    """Name → (shape in the checkpoint, shape expected)."""
    extra: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return not (self.missing or self.reshaped or self.extra)

    def head_size(self, classes: int) -> int | None:
        """The number of classes of the checkpoint, if nothing but the size of the classifier differs; 0: none."""
        if self.extra or not classes:
            return None
        if self.missing:
            only_head = all(shape[:1] == (classes,) for shape in self.missing.values())
            return 0 if only_head and not self.reshaped and self.fitting else None
        sizes = {actual[0] for actual, _ in self.reshaped.values() if actual}
        only_rows = all(
            len(actual) == len(expected) and actual[1:] == expected[1:] and expected[0] == classes
            for actual, expected in self.reshaped.values()
        )
        return sizes.pop() if only_rows and len(sizes) == 1 else None

    def mismatch(self, path: str | Path, name: str, advice: str = "") -> WeightsMismatch:
        wrong = [
            f"{key} ({_shape(actual)}, expected {_shape(wants)})" for key, (actual, wants) in self.reshaped.items()
        ]
        wrong += [f"{key} (missing)" for key in self.missing]
        wrong += [f"{key} (not in the model)" for key in self.extra]
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        pairs = self.reshaped.values()
        stems = [actual[1] for actual, wants in pairs if len(actual) == len(wants) == 4 and 3 == wants[1] != actual[1]]
        if stems and not (
            self.missing or self.extra
        ):  # nothing is wrong with the others: it was made for other pictures
            advice = f"Its first layer takes {stems[0]} channels; pictures are shown in 3, red, green and blue."
        return WeightsMismatch(
            f"{path} is of another architecture than {name}: {self.fitting} of its {self.tensors} tensors fit "
            f"the model's {self.expected} by name and shape; the first that do not are {', '.join(wrong[:3])}{more}."
            + (f" {advice}" if advice else "")
        )


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def compare(state: Mapping[str, Tensor], module: nn.Module) -> Fit:
    wanted = module.state_dict()
    shared = [name for name in wanted if name in state]
    reshaped = {
        name: (tuple(state[name].shape), tuple(wanted[name].shape))
        for name in shared
        if state[name].shape != wanted[name].shape
    }
    return Fit(
        fitting=len(shared) - len(reshaped),
        expected=len(wanted),
        tensors=len(state),
        missing={
            name: tuple(value.shape)
            for name, value in wanted.items()
            if name not in state and not name.endswith(INCIDENTAL)
        },
        reshaped=reshaped,
        extra=tuple(name for name in state if name not in wanted and not name.endswith(INCIDENTAL)),
    )


def fit_to(state: State, module: nn.Module, convert: Convert | None = None) -> tuple[State, Fit]:
    """The checkpoint with the prefixes dropped that keep it from fitting, then `convert`ed if that fits better.

    `convert` is the library's own: timm's resizes position embeddings to the model's grid and renames old layers.
    """
    fits = [(candidate, compare(candidate, module)) for candidate in _without_prefixes(state)]
    state, fit = max(fits, key=lambda pair: pair[1].fitting)  # the first of equals: no prefix is dropped for nothing
    if convert is not None and not fit.complete:
        try:
            converted = convert(dict(state), module)
        except Exception:  # written for one architecture, it fails on another's tensors in any way
            return state, fit
        candidate = compare(converted, module)
        if candidate.fitting > fit.fitting or (candidate.complete and candidate.fitting == fit.fitting):
            return converted, candidate
    return state, fit


def _without_prefixes(state: State) -> Iterator[State]:
    """The state as it is, then with one known prefix after the other taken off, as long as most names have one."""
    yield state
    while True:
        shares = {prefix: sum(name.startswith(prefix) for name in state) for prefix in PREFIXES}
        prefix = max(shares, key=lambda prefix: shares[prefix])
        if not shares[prefix] or 2 * shares[prefix] < len(state):
            return
        state = {name.removeprefix(prefix): value for name, value in state.items()}
        yield state


def load_into(module: nn.Module, state: State) -> None:
    """Copy a state that was found to fit; float16 and bfloat16 checkpoints become the module's float32."""
    wanted = module.state_dict()
    module.load_state_dict({name: value for name, value in state.items() if name in wanted}, strict=False)


@contextmanager
def reproducible() -> Iterator[None]:
    """Random weights drawn inside are those of seed 0; the caller's random state is as before."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def check_finite(name: str, module: nn.Module) -> None:
    """Refuse weights with NaN or infinity, naming the first tensor. Masks in buffers may hold −∞ and are let be."""
    for path, parameter in module.named_parameters():
        _check(name, path, ~torch.isfinite(parameter))
    for path, buffer in module.named_buffers():
        statistics = path.endswith(("running_mean", "running_var"))
        _check(name, path, ~torch.isfinite(buffer) if statistics else torch.isnan(buffer))


def _check(name: str, path: str, bad: Tensor) -> None:
    if bad.any():
        raise SubjectError(
            f"The weights of {name} are not finite: {path} is the first tensor with NaN or infinity "
            f"({int(bad.sum())} of its {bad.numel()} values)."
        )


def hash_of(state: Mapping[str, Tensor]) -> str:
    """sha256 over name, dtype, shape and bytes of every tensor, in the order of the names.

    >>> hash_of({"a": torch.zeros(2), "b": torch.ones(1)}) == hash_of({"b": torch.ones(1), "a": torch.zeros(2)})
    True
    >>> hash_of({"a": torch.zeros(2)}) == hash_of({"a": torch.zeros(2, 1)})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
