"""Training data: labelled uint8 images in memory, cut to what a run asks for, moved to the device once.

`sources.py` reads it. Every cut is seeded and stratified, and leaves the test images alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from eyechart.errors import ImagesError, UsageError
from eyechart.phrases import did_you_mean
from eyechart.training.augment import Normalisation
from eyechart.training.run import TrainingRun

HASHED_BYTES = 2**26  # of the pixels: enough to tell data sets apart, a fifth of a second
PIECE = 4096  # images worked on at once where floats are needed


@dataclass(frozen=True)
class TrainingData:
    """Images (N, 3, H, W) uint8 and labels (N,) int64, for training, testing and, if held out, validation."""

    name: str
    classes: tuple[str, ...]
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    x_validation: Tensor | None = None
    y_validation: Tensor | None = None
    notices: tuple[str, ...] = ()
    """What was skipped or decided while reading, in sentences."""

    def __post_init__(self) -> None:
        for part, x, y in (("training", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            if len(x) != len(y) or not len(x):
                raise ImagesError(
                    f"{self.name} has {len(x)} {part} images and {len(y)} labels; one label for each image is needed."
                )
            if x.ndim != 4 or x.shape[1] != 3 or x.shape[2] != x.shape[3] or x.dtype != torch.uint8:
                raise ImagesError(
                    f"The {part} images of {self.name} must be square colour pictures in uint8, (image, y, x, 3); "
                    f"they are {x.dtype} with sides {tuple(x.shape[2:])} and {x.shape[1]} channels."
                )
            wrong = ((y < 0) | (y >= len(self.classes))).nonzero()
            if len(wrong):
                raise ImagesError(
                    f"Labels of {self.name} must be 0 to {len(self.classes) - 1}; "
                    f"{part} image {int(wrong[0])} has label {int(y[wrong[0]])}."
                )

        if self.x_train.shape[2:] != self.x_test.shape[2:]:
            sides = [f"{x.shape[3]}×{x.shape[2]}" for x in (self.x_train, self.x_test)]
            raise ImagesError(
                f"The training images of {self.name} are {sides[0]} and its test images {sides[1]}; one size is needed."
            )

    @property
    def image_size(self) -> int:
        return int(self.x_train.shape[-1])

    def normalisation(self) -> Normalisation:
        """Means and deviations of the training images; for CIFAR-10 the usual four digits, whatever the cut."""
        if self.name == "cifar10":
            return Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
        counts = torch.zeros(3, 256, dtype=torch.float64)
        for piece in torch.split(self.x_train, PIECE):
            for channel in range(3):
                counts[channel] += torch.bincount(piece[:, channel].flatten(), minlength=256).double().cpu()
        levels = torch.arange(256, dtype=torch.float64) / 255
        pixels = counts[0].sum()
        mean = (counts * levels).sum(dim=1) / pixels
        squares = (counts * (levels - mean[:, None]) ** 2).sum(dim=1)
        std = (squares / (pixels - 1)).sqrt().clamp(min=1e-3)  # a channel of one colour would divide by nothing
        a, b = mean.tolist(), std.tolist()
        return Normalisation((a[0], a[1], a[2]), (b[0], b[1], b[2]))

    def fingerprint(self) -> str:
        """A hash of the labels and of pixels spread over all training images: the same under any path."""
        digest = hashlib.sha256(repr((self.name, self.classes, tuple(self.x_train.shape))).encode())
        digest.update(self.y_train.cpu().numpy().tobytes())
        every = -(-self.x_train.numel() // HASHED_BYTES)
        digest.update(self.x_train[::every].cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def to(self, device: torch.device) -> TrainingData:
        tensors = ("x_train", "y_train", "x_test", "y_test", "x_validation", "y_validation")
        moved = {name: tensor.to(device) for name in tensors if (tensor := getattr(self, name)) is not None}
        return replace(self, **moved)

    def cut(self, run: TrainingRun) -> TrainingData:
        """What a run asks for. The held-out part is the same for every fraction, tail and number of shots."""
        data = self.of_classes(run.classes).drawn_classes(run.class_count, run.seed).trainable()
        data = data.held_out(run.validation).long_tailed(run.imbalance, run.seed)
        data = data.few(run.shots, run.seed).part(run.fraction, run.seed).mislabelled(run.label_noise, run.seed)
        return data if run.image_size in (None, data.image_size) else data.resized(int(run.image_size or 0))

    def of_classes(self, names: Sequence[str]) -> TrainingData:
        """Only some classes, numbered in the order given."""
        if not names:
            return self
        for name in names:
            if name not in self.classes:
                near = did_you_mean(name, self.classes, f"it has {', '.join(self.classes[:12])} …")
                raise UsageError(f"{self.name} has no class called {name!r}; {near}")
        if len(set(names)) != len(names) or len(names) < 2:
            raise UsageError(f"--classes takes two or more different classes; got {', '.join(names)}.")
        label_of = torch.full((len(self.classes),), -1)
        for label, name in enumerate(names):
            label_of[self.classes.index(name)] = label
        kept = {}
        for part in ("train", "test"):
            labels = label_of[getattr(self, f"y_{part}")]
            kept[f"x_{part}"] = getattr(self, f"x_{part}")[labels >= 0]
            kept[f"y_{part}"] = labels[labels >= 0]
        return replace(self, classes=tuple(names), **kept)

    def drawn_classes(self, count: int | None, seed: int) -> TrainingData:
        """So many classes, drawn by the seed and kept in their order."""
        if count is None:
            return self
        if count > len(self.classes):
            raise UsageError(f"{count} classes were asked for, but {self.name} has only {len(self.classes)}.")
        chosen = torch.randperm(len(self.classes), generator=torch.Generator().manual_seed(seed))[:count]
        return self.of_classes([self.classes[label] for label in sorted(chosen.tolist())])

    def trainable(self) -> TrainingData:
        """The data itself, or one sentence: a classifier needs two classes, each with a training image."""
        if len(self.classes) < 2:
            raise ImagesError(f"{self.name} has the one class {self.classes[0]!r}; two or more are needed.")
        empty = (torch.bincount(self.y_train, minlength=len(self.classes)) == 0).nonzero()
        if len(empty):
            raise ImagesError(
                f"The class {self.classes[int(empty[0])]!r} of {self.name} has no training image; number labels from 0 "
                "without gaps, or leave the class out with --classes."
            )
        return self

    def held_out(self, count: int) -> TrainingData:
        """The last images of every class, `count` in all, are for validation; shares follow the classes' sizes."""
        if not count:
            return self
        sizes = torch.bincount(self.y_train, minlength=len(self.classes)).double()
        wanted = sizes * count / sizes.sum()
        shares = wanted.floor().long()
        rest = count - int(shares.sum())
        shares[(wanted - shares).argsort(descending=True, stable=True)[:rest]] += 1
        members = [(self.y_train == label).nonzero().squeeze(1) for label in range(len(self.classes))]
        for label, (mine, share) in enumerate(zip(members, shares.tolist(), strict=True)):
            if share >= len(mine) or not share:
                raise UsageError(
                    f"Holding out {count} of {len(self.y_train)} training images leaves the class "
                    f"{self.classes[label]!r} empty in one part ({share} of its {len(mine)} are held out)."
                )
        out = torch.cat([mine[len(mine) - share :] for mine, share in zip(members, shares.tolist(), strict=True)])
        out = out.sort().values
        keep = torch.ones(len(self.y_train), dtype=torch.bool)
        keep[out] = False
        return replace(
            self,
            x_train=self.x_train[keep],
            y_train=self.y_train[keep],
            x_validation=self.x_train[out],
            y_validation=self.y_train[out],
        )

    def long_tailed(self, imbalance: float, seed: int) -> TrainingData:
        """Class c of C keeps n₀ · imbalance^(−c/(C−1)) images, n₀ being the smallest class's: an exponential tail."""
        if imbalance == 1:
            return self
        most = int(torch.bincount(self.y_train, minlength=len(self.classes)).min())
        last = max(1, len(self.classes) - 1)
        counts = [int(most * imbalance ** (-label / last)) for label in range(len(self.classes))]
        return self._drawn(counts, seed, f"An imbalance of {imbalance:g}")

    def few(self, shots: int | None, seed: int) -> TrainingData:
        """So many images of each class: one few-shot episode, drawn by the seed."""
        if shots is None:
            return self
        least = int(torch.bincount(self.y_train, minlength=len(self.classes)).min())
        if shots > least:
            raise UsageError(f"{shots} images of each class were asked for, but {self.name} has only {least} of one.")
        return self._drawn([shots] * len(self.classes), seed, f"{shots} shots")

    def part(self, fraction: float, seed: int) -> TrainingData:
        """A stratified part of the training images: every class keeps the same share, rounded."""
        if not 0 < fraction <= 1:
            raise UsageError(f"The fraction of the training images must be above 0 and at most 1; got {fraction}.")
        if fraction == 1:
            return self
        sizes = torch.bincount(self.y_train, minlength=len(self.classes)).tolist()
        return self._drawn([round(fraction * size) for size in sizes], seed, f"A fraction of {fraction:g}")

    def mislabelled(self, share: float, seed: int) -> TrainingData:
        """This share of each class's training images under another class, drawn evenly; all other labels are true."""
        if not share:
            return self
        generator = torch.Generator().manual_seed(seed)
        labels = self.y_train.clone()
        for label in range(len(self.classes)):
            members = (self.y_train == label).nonzero().squeeze(1)
            chosen = members[torch.randperm(len(members), generator=generator)[: round(share * len(members))]]
            steps = torch.randint(1, len(self.classes), (len(chosen),), generator=generator)
            labels[chosen] = (label + steps) % len(self.classes)
        return replace(self, y_train=labels)

    def _drawn(self, counts: Sequence[int], seed: int, what: str) -> TrainingData:
        """So many images of each class, drawn by the seed and kept in their order."""
        generator = torch.Generator().manual_seed(seed)
        kept = []
        for label, count in enumerate(counts):
            members = (self.y_train == label).nonzero().squeeze(1)
            if not count:
                name = self.classes[label]
                raise UsageError(f"{what} leaves the class {name!r} ({len(members)} images) empty; take more.")
            kept.append(members[torch.randperm(len(members), generator=generator)[:count]])
        chosen = torch.cat(kept).sort().values
        return replace(self, x_train=self.x_train[chosen], y_train=self.y_train[chosen])

    def resized(self, size: int) -> TrainingData:
        """Every image at another size, bicubic with antialiasing, once and for all."""
        held = None if self.x_validation is None else _resized(self.x_validation, size)
        train, test = _resized(self.x_train, size), _resized(self.x_test, size)
        return replace(self, x_train=train, x_test=test, x_validation=held)


def _resized(images: Tensor, size: int) -> Tensor:
    pieces = []
    for piece in torch.split(images, PIECE):
        larger = F.interpolate(piece.float(), size=(size, size), mode="bicubic", antialias=True)
        pieces.append(larger.round().clamp(0, 255).to(torch.uint8))
    return torch.cat(pieces)
