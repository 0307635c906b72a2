"""The trial of a subject, before anything is measured: is its forward a function of the pictures, and what does it say?

An exam takes for granted that a picture gets the same answer whenever and beside whatever it is shown, and that it is
still there afterwards. Here that is checked once, on two pictures: the same twice, the input untouched, both together
against each alone. What fails is mended (a copy of the input) or said (a note that stands on the page). The numbers
that came are kept in the plan, so that a forward that has changed since is noticed (`question.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from eyechart.question import TOLERANCE
from eyechart.subjects.weights import hash_of
from eyechart.tracing.graph import tensors_in
from eyechart.tracing.needs import View
from eyechart.tracing.random_numbers import seeded
from eyechart.tracing.taps import Tap
from eyechart.tracing.views import Look

if TYPE_CHECKING:
    from eyechart.sites import Anatomy
    from eyechart.subjects.subject import Subject

DRAW = 0
"""Dropout that stays on draws the same in each pass: what still differs is not chance."""
SAMPLED = 64
"""Numbers of each output that are kept: enough to notice a change, and few beside an anatomy."""
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}
"""By how much the same picture may be answered otherwise in another batch, relative to the largest number of an output:
other batch sizes take other kernels. Of 6 models of the zoo and 11 of timm none moved by more than 3e-7 in float32; a
batch normalisation left in training mode moves by more than .1."""


def mean_size(look: Look) -> Tensor:
    """Of each image. In float32 where the subject is not in float64, which Apple's GPUs do not have."""
    size = look.output.abs().flatten(1)
    return size.mean(1, dtype=torch.float64 if size.dtype == torch.float64 else torch.float32)


MEAN_SIZE = View("mean size", mean_size)


@dataclass(frozen=True)
class Trial:
    answers: dict[str, list[float]]
    """Sampled numbers of the output, and the mean size of the activations of each picture at every site."""
    fed: str
    """The hash of the first two pictures as the subject is given them: any change of its preprocessing shows."""
    steady: bool
    """The same pictures were answered alike twice: only then may answers of two days be compared."""
    notes: tuple[str, ...]


class Rehearsal:
    """The first pass, which may come before the anatomy: caches are filled, and a forward that writes is found out."""

    def __init__(self, subject: Subject, images: Tensor) -> None:
        self.subject, self.images, self.fed = subject, told_apart(images), hash_of({"images": images})
        self.notes: list[str] = []
        given = self.images.clone()
        self.first = self._call(given)
        if not torch.equal(given, self.images) and bool((given == given).all()):
            subject.copies_input = True
            self.notes.append("It writes into the pictures it is given, so it is given a copy of them.")

    def trial(self, anatomy: Anatomy) -> Trial:
        """The other passes: once more under a tap at every site, and each picture alone."""
        before = self._versions()
        sites = {site.name: [MEAN_SIZE] for site in anatomy.sites}
        with seeded(DRAW):
            tap = Tap(self.subject.module, anatomy, sites)
            again, seen = tap.run_in_pieces(self.images, len(self.images), self.subject.call)  # all in one, to the CPU
        again = numbers_of(again)
        answers = {"output": [value for tensor in again for value in sampled(tensor)]}
        answers |= {name: views["mean size"].tolist() for name, views in seen.items()}
        gap, bound = distance(self.first, again), TOLERANCE[str(self.images.dtype).removeprefix("torch.")]
        steady = gap <= bound
        if not steady:
            self.notes.append(
                f"It does not answer the same pictures twice alike (the largest difference is {100 * gap:.1f} % of its "
                "largest output): it keeps state between batches, so its numbers depend on the order of its passes, "
                "and a resumed exam may differ from one in a single go."
            )
        if not anatomy.random:
            self._alone(again)
        changed = next((name for name, version in self._versions().items() if version != before.get(name)), None)
        if changed is not None and steady:
            self.notes.append(f"Its pass changes its own tensor {changed}, so later batches may meet another model.")
        return Trial(answers, self.fed, steady and changed is None, tuple(self.notes))

    def _alone(self, together: list[Tensor]) -> None:
        try:
            pieces = [self._call(piece) for piece in torch.split(self.images, 1)]
        except Exception as error:  # a user's module: anything may happen in it
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            self.notes.append(
                f"It cannot be called on one picture alone ({reason}): what it answers may depend on the batch."
            )
            return
        if any([tensor.shape[1:] for tensor in piece] != [tensor.shape[1:] for tensor in together] for piece in pieces):
            return
        if not all(tensor.dim() and len(tensor) == len(self.images) for tensor in together):
            return
        alone = [torch.cat(tensors) for tensors in zip(*pieces, strict=True)]
        gap = distance(together, alone)
        if gap > ROUNDING[self.images.dtype]:
            self.notes.append(
                "It answers a picture otherwise beside another one than alone (the largest difference is "
                f"{100 * gap:.1f} % of its largest output), as a batch normalisation left in training mode does: what "
                "is measured of an image depends on the other images of its block."
            )

    def _call(self, images: Tensor) -> list[Tensor]:
        with seeded(DRAW), torch.no_grad():
            return numbers_of(self.subject.call(images))

    def _versions(self) -> dict[str, int]:
        """torch counts how often a tensor was changed in place; not of those that were made in inference mode."""
        module = self.subject.module
        tensors = dict([*module.named_parameters(), *module.named_buffers()])
        return {name: tensor._version for name, tensor in tensors.items() if not tensor.is_inference()}


def told_apart(images: Tensor) -> Tensor:
    """The two pictures, the second mirrored where it is the first: twins would hide that they meet.

    >>> told_apart(torch.tensor([[[[1.0, 2.0]]], [[[1.0, 2.0]]]]))[1]
    tensor([[[2., 1.]]])
    """
    return torch.cat([images[:1], images[:1].flip(-1)]) if torch.equal(images[0], images[1]) else images


def numbers_of(output: Any) -> list[Tensor]:
    """The tensors of numbers in an output, as they are now: a module may go on writing into them."""
    tensors = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors_in(output)]
    return [tensor.detach().cpu().to(torch.float64, copy=True) for tensor in tensors if tensor.dtype != torch.bool]


def sampled(tensor: Tensor) -> list[float]:
    flat = tensor.flatten()
    indices = torch.linspace(0, max(len(flat) - 1, 0), min(SAMPLED, len(flat))).long()
    values: list[float] = flat[indices].tolist()
    return values


def distance(one: list[Tensor], other: list[Tensor]) -> float:
    """The largest difference of two outputs by the largest number of that tensor; infinite where shapes differ.

    >>> distance([torch.tensor([1.0, 4.0])], [torch.tensor([2.0, 4.0])])
    0.25
    """
    if [tensor.shape for tensor in one] != [tensor.shape for tensor in other]:
        return float("inf")
    gaps = [0.0]
    for a, b in zip(one, other, strict=True):
        same = (a == b) | (a.isnan() & b.isnan())
        if not bool(same.all()):
            largest = torch.cat([a.flatten(), b.flatten()]).nan_to_num(0, 0, 0).abs().max().clamp(min=1e-30)
            gaps.append(float(((a - b).abs()[~same] / largest).nan_to_num(float("inf")).max()))
    return max(gaps)
