"""A subject: a model, how it is called, what it is fed, where its logits are. After this nobody asks whose it is."""

from __future__ import annotations

import contextlib
import copy
import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from PIL import Image
from torch import Tensor, nn

from eyechart.errors import EyechartError, SubjectError
from eyechart.phrases import printable
from eyechart.subjects.parking import Parked
from eyechart.subjects.weights import check_finite, hash_of


class Prepare(Protocol):
    """Pictures, already cut to the common crop, to what the module eats: `together` of the stack of `each`."""

    @property
    def size(self) -> tuple[int, int]: ...

    @property
    def each(self) -> Callable[[Image.Image], Tensor]: ...

    def together(self, pixels: Tensor, /) -> Tensor: ...

    def __call__(self, pictures: Sequence[Image.Image]) -> Tensor: ...

    def as_json(self) -> dict[str, Any]: ...


@dataclass(eq=False)
class Subject:
    """A module in eval mode with its name, preprocessing and class names.

    >>> import eyechart.subjects
    >>> subject = eyechart.subjects.load_subject("timm:resnet10t@random")
    >>> subject.name, subject.input_size, subject.parameters, subject.trained
    ('timm:resnet10t@random', (176, 176), 5435488, False)
    >>> images = subject.prepare([Image.new("RGB", (300, 300))])
    >>> subject.logits(subject.call(images)).shape
    torch.Size([1, 1000])
    """

    name: str
    module: nn.Module
    preprocessing: Prepare
    classes: tuple[str, ...] | None
    """Class names by logit index; None: unknown."""
    trained: bool | None
    """Whether its weights are trained; None: nobody said."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from, its recipe and licence where known, and what was assumed; fits into JSON."""
    classifier: bool = True
    """False: it ends in features, and has no logits."""
    keyword: str | None = None
    """The argument that takes the images, if it is not the first (Hugging Face: `pixel_values`)."""
    copies_input: bool = False
    """Its forward writes into what it is given, as its trial found out: each call gets a copy."""
    spec: str = ""
    """Where it comes from in full, path and all, where `name` is only its label; by default the same as the name."""

    _parked: Parked | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = printable(self.name).replace("\n", "\\n")  # it stands in tables, charts and file names
        self.module = unwrapped(self.module, self.name).eval()
        check_finite(self.name, self.module)
        self.spec = printable(self.spec or self.name)

    @property
    def input_size(self) -> tuple[int, int]:
        return self.preprocessing.size

    @cached_property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.module.parameters())

    @cached_property
    def weights_hash(self) -> str:
        return hash_of(self.module.state_dict())

    @property
    def switches(self) -> dict[str, Any]:
        """What a model of the zoo was built with."""
        return dict(self.card.get("zoo", {}).get("switches") or {})

    @property
    def device(self) -> torch.device:
        # Not of `state_dict`, which gathers them all: asked for in every pass, that was 2 ms of a small one's 30.
        tensors = itertools.chain(self.module.parameters(), self.module.buffers())
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    def park(self) -> None:
        """Keep the weights in a file, and in memory only while it runs; for a module that is nobody else's."""
        self._parked = Parked([*self.module.parameters(), *self.module.buffers()])

    def rest(self) -> None:
        """Its turn is over: what a parked subject took of memory is free."""
        if self._parked is not None:
            self._parked.rest()

    def to(self, device: str | torch.device) -> Subject:
        self.module.to(device)
        return self

    def in_numbers(self, dtype: torch.dtype, device: torch.device, *, borrowed: bool) -> Subject:
        """The subject in these numbers on this device; a `borrowed` module is copied first, for it is its owner's."""
        moved = dtype != torch.float32 or self.device.type != device.type
        if borrowed and moved:
            try:
                module = copy.deepcopy(self.module)
            except Exception as error:  # a user's module: some hold locks, files or graphs
                raise SubjectError(
                    f"{self.name} cannot be copied ({type(error).__name__}: {error}), and an exam in another dtype or "
                    "on another device must not change your module; use float32 on its own device, or give a copy."
                ) from error
            own = replace(self, module=module)
        else:
            own = self
        own.module.to(device, dtype)
        return own

    def prepare(self, pictures: Sequence[Image.Image]) -> Tensor:
        """Pictures cut to the common crop → (image, 3, y, x) float32 on the CPU."""
        return self.preprocessing(pictures)

    @cached_property
    def colours(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """(offset, scale) of each channel: a pixel value p of 0 … 1 is fed as `offset + scale · p`. None: no such rule.

        Read off plain-coloured pictures, so that it holds for a user's transform as well.
        """
        height, width = self.input_size
        shades = [(0, 0, 0), (255, 255, 255), (51, 102, 204), (204, 51, 102), (102, 204, 51)]
        fed = self.prepare([Image.new("RGB", (width, height), shade) for shade in shades])
        middle = fed[:, :, fed.shape[2] // 2, fed.shape[3] // 2]
        offset, scale = middle[0], middle[1] - middle[0]
        expected = offset + scale * torch.tensor(shades) / 255
        if (fed - expected[:, :, None, None]).abs().max() > 1e-3 * scale.abs().max() or not bool((scale != 0).all()):
            return None
        return tuple(offset.tolist()), tuple(scale.tolist())

    def call(self, images: Tensor) -> Any:
        """The module's own output. Parts that were compiled run eagerly: the taps must see every operation."""
        images = images.to(self.device)
        if self.copies_input:
            images = images.clone()
        with torch.compiler.set_stance("force_eager") if self._compiled else contextlib.nullcontext():
            return self.module(images) if self.keyword is None else self.module(**{self.keyword: images})

    def logits(self, output: Any) -> Tensor | None:
        """The (image, class) logits within an output; None for a subject without a classifier.

        Of a tuple or list the first such tensor; of a dictionary or Hugging Face output `logits`, or else the only one.
        """
        return find_logits(output) if self.classifier else None

    @cached_property
    def _compiled(self) -> bool:
        return any(
            hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) is not None
            for part in self.module.modules()
        )


@contextmanager
def blamed(subject: Subject, when: str) -> Iterator[None]:
    """What a subject's own forward raises inside becomes one sentence; an error of anybody else passes as it is."""
    try:
        yield
    except EyechartError:
        raise
    except Exception as error:
        frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        if Subject.call.__code__ not in frames[:-1]:
            raise
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise SubjectError(
            f"{subject.name} raised {type(error).__name__} {when}{f' ({reason:.300})' if reason else ''}; what was "
            "finished before is kept."
        ) from error


def find_logits(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output if output.ndim == 2 and not output.is_complex() else None
    if isinstance(output, Mapping):  # Hugging Face outputs are ordered dictionaries
        if isinstance(output.get("logits"), Tensor):
            return find_logits(output["logits"])
        if hasattr(output, "last_hidden_state"):
            return None  # a feature extractor; its pooled features are not logits
        candidates = [tensor for value in output.values() if (tensor := find_logits(value)) is not None]
        return candidates[0] if len(candidates) == 1 else None
    if isinstance(output, (tuple, list)):
        return next((tensor for value in output if (tensor := find_logits(value)) is not None), None)
    return find_logits(output.logits) if hasattr(output, "logits") else None


def unwrapped(module: nn.Module, name: str) -> nn.Module:
    """The module itself, out of `torch.compile` and data-parallel wrappers; scripted ones are refused."""
    while True:
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod  # type: ignore[assignment]
        elif isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        else:
            break
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            where = f"its part {path}" if path else "it"
            raise SubjectError(
                f"{name} cannot be examined because {where} is a scripted or traced module, which hides operations; "
                "give the Python module it was made from."
            )
    if any(isinstance(weight, nn.parameter.UninitializedParameter) for weight in module.parameters()):
        raise SubjectError(f"{name} has lazy layers without weights; call it once on images before the exam.")
    for path, weight in module.named_parameters():
        if weight.is_floating_point() and weight.dtype != torch.float32:
            kind = str(weight.dtype).removeprefix("torch.")
            raise SubjectError(
                f"{name} holds {kind} weights ({path}), but an exam runs in float32; give module.float()."
            )
    return module
