"""A subject on the bench: for experiments, whose question the shared forward pass cannot answer.

A measure that overrides `Measure.experiment` gets one bench for each subject and batch. There it may run the subject as
often as it needs: with changes made through the tap, on other pictures, under gradients; or read its weights. It leaves
the subject as it found it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from eyechart.errors import DoesNotApply
from eyechart.tracing.pieces import PieceSize
from eyechart.tracing.random_numbers import seeded
from eyechart.tracing.taps import SiteViews, Tap

if TYPE_CHECKING:
    from eyechart.scene import Batch
    from eyechart.sites import Anatomy
    from eyechart.subjects.subject import Subject
    from eyechart.tracing.interventions import Intervention
    from eyechart.tracing.needs import View


@dataclass(frozen=True)
class Bench:
    """One subject and one batch of images, ready to be worked on."""

    subject: Subject
    anatomy: Anatomy
    batch: Batch
    images: Tensor
    """As the subject is fed: (image, 3, y, x), normalised, on its device."""
    targets: Tensor | None
    """The logit of each image's class, on the subject's device, -1 unknown; None where the classes do not match."""
    piece_size: PieceSize = field(default_factory=PieceSize)

    def first(self, count: int) -> Bench:
        """The bench with those images of the batch that are among the first `count` of the exam: often none.

        The order of an exam is random, so its first images are a fair sample of all.
        """
        here = max(0, min(len(self.images), count - self.batch.start))
        return self.picked(torch.arange(here))

    def picked(self, chosen: Tensor) -> Bench:
        """The bench with some images of the batch only; `batch.images` and its other arrays follow."""
        at = chosen.numpy()
        batch = replace(
            self.batch,
            images=self.batch.images[at],
            labels=None if self.batch.labels is None else self.batch.labels[at],
            image_folds=self.batch.image_folds[at],
        )
        on_device = chosen.to(self.images.device)
        targets = None if self.targets is None else self.targets[on_device]
        return replace(self, batch=batch, images=self.images[on_device], targets=targets)

    def __len__(self) -> int:
        return len(self.images)

    # --- running ------------------------------------------------------------------------------------------------

    def logits(self, images: Tensor | None = None, interventions: Sequence[Intervention] = (), draw: int = 0) -> Tensor:
        """(image, class) float32 on the CPU, for these images (its own unless told) and with these changes.

        A stochastic subject draws the same random numbers in every pass of one `draw`.
        """
        images = self.images if images is None else images
        tap = Tap(self.subject.module, self.anatomy, {}, interventions) if interventions else None

        @torch.no_grad()
        def work(size: int) -> Tensor:
            pieces = []
            for piece in torch.split(images, size):
                output = tap.run(piece, self.subject.call)[0] if tap else self.subject.call(piece)
                logits = self.subject.logits(output)
                if logits is None:
                    raise DoesNotApply(f"{self.subject.name} has no logits.")
                pieces.append(logits.float().cpu())
            return torch.cat(pieces)

        with self.seeded(draw):
            return self.piece_size.fit(len(images), work)

    def look(
        self,
        views: Mapping[str, Sequence[View]],
        interventions: Sequence[Intervention] = (),
        images: Tensor | None = None,
    ) -> SiteViews:
        """What taps see, views[site name][view name], on the CPU."""
        images = self.images if images is None else images
        tap = Tap(self.subject.module, self.anatomy, views, interventions)

        def work(size: int) -> SiteViews:
            if size == len(images):
                return tap.run(images, self.subject.call)[1]
            return tap.run_in_pieces(images, size, self.subject.call)[1]

        with self.seeded(0):
            seen = self.piece_size.fit(len(images), work)
        return {site: {name: value.cpu() for name, value in at_site.items()} for site, at_site in seen.items()}

    @contextmanager
    def seeded(self, draw: int = 0) -> Iterator[None]:
        """Passes with and without a change differ by the change alone, not by random numbers drawn in between."""
        if not self.anatomy.random:
            yield
            return
        with seeded(self.batch.index + 1_000_003 * draw):
            yield

    # --- pictures -----------------------------------------------------------------------------------------------

    def pixels(self) -> Tensor:
        """The images as pixel values 0 … 1, in the size the subject takes: its normalisation undone."""
        offset, scale = self._colours()
        return (self.images - offset) / scale

    def from_pixels(self, pixels: Tensor) -> Tensor:
        """Pixel values 0 … 1 normalised as the subject wants them."""
        offset, scale = self._colours()
        return (pixels * scale + offset).to(self.images.dtype)

    def _colours(self) -> tuple[Tensor, Tensor]:
        colours = self.subject.colours
        if colours is None:
            raise DoesNotApply(
                f"{self.subject.name}: its own transform does more with colours than shift and scale, so its pictures "
                "cannot be changed."
            )
        offset, scale = (torch.tensor(values, device=self.images.device).view(1, -1, 1, 1) for values in colours)
        return offset, scale

    # --- what experiments share ---------------------------------------------------------------------------------

    def generator(self, purpose: str) -> torch.Generator:
        """Random numbers that belong to this batch and purpose: the same on every machine, in every order of shards."""
        digest = hashlib.sha256(f"eyechart experiment 1, {purpose}, batch {self.batch.index}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def folds(self) -> Tensor:
        return torch.as_tensor(np.asarray(self.batch.image_folds))


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """Attention written out in plain products: fused attention has no second derivative."""
    with sdpa_kernel([SDPBackend.MATH]):
        yield
