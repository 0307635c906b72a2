"""The training loop: a run in; records, snapshots and a card out. READ FIRST in this room."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from eyechart import zoo
from eyechart.errors import NotFinite, UsageError
from eyechart.training.augment import Normalisation, prepare_chunk
from eyechart.training.data import load_data
from eyechart.training.evaluation import Scores, evaluate
from eyechart.training.optimisers import Average, learning_rate, make_optimiser, set_learning_rate
from eyechart.training.records import Records, load_weights, sha256
from eyechart.training.run import Run
from eyechart.training.step import Step

CHUNK = 51_200  # images augmented at once: an epoch of CIFAR; 2 GB of float32 at the widest point
CLEAN_IMAGES = 5_000  # training images whose clean NLL is recorded
CLOSING_SECONDS = 20.0  # kept free of the time limit for the last evaluation and the writing


def train(run: Run) -> dict[str, Any]:
    """Train and write everything; returns the card."""
    return Training(run).finish()


class Training:
    """All the state of a training in one place: weights, optimiser, average, random numbers, step count."""

    def __init__(self, run: Run) -> None:
        self.started = time.monotonic()
        self.run = run
        self.recipe = run.recipe.checked()
        self.device = _device(run.device)
        self.data = load_data(run.data).part(run.fraction, run.seed).to(self.device)
        self.normalisation: Normalisation = self.data.normalisation()
        self.batch = min(self.recipe.batch_size, len(self.data.x_train))
        self.steps_per_epoch = len(self.data.x_train) // self.batch
        self.records = Records(Path(run.out), run.model)

        torch.manual_seed(run.seed)
        self.generator = torch.Generator(self.device).manual_seed(run.seed + 1)
        self.module = self._build(self.recipe.drop_path).to(self.device)
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            # Evaluations are float32 as said; cuDNN may try its kernels out, because shapes never change.
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.benchmark = True
            self.module = self.module.to(memory_format=torch.channels_last)
        self.module.train()
        self.bfloat16 = on_gpu if run.bfloat16 is None else run.bfloat16
        self.average = Average(self.module, self.recipe.ema) if self.recipe.ema else None
        self.optimiser = make_optimiser(self.module, self.recipe)
        self.step = Step(
            self.module,
            self.optimiser,
            self.recipe,
            self.average,
            bfloat16=self.bfloat16,
            compiled=on_gpu if run.compiled is None else run.compiled,
            captured=on_gpu if run.captured is None else run.captured and on_gpu,
        )
        clean = torch.randperm(len(self.data.x_train), generator=torch.Generator().manual_seed(0))[:CLEAN_IMAGES]
        self.clean = clean.to(self.device)
        self.steps = 0
        self.noticed = 0

    def _build(self, drop_path: float) -> nn.Module:
        return zoo.build(
            self.run.model, classes=len(self.data.classes), image_size=self.data.image_size, drop_path=drop_path
        )

    def finish(self) -> dict[str, Any]:
        """Every epoch that is left, then the card."""
        self.records.line(
            {
                "start": self.run.model,
                "parameters": sum(parameter.numel() for parameter in self.module.parameters()),
                "recipe": self.recipe.as_json(),
                "images": len(self.data.x_train),
                "clean_train_images": len(self.clean),
                "steps_per_epoch": self.steps_per_epoch,
                "device": _device_name(self.device),
            }
        )
        self._snapshot("init")
        ended = self.recipe.epochs
        for epoch in range(1, self.recipe.epochs + 1):
            began = time.monotonic()
            loss = self._epoch(epoch)
            seconds = time.monotonic() - began
            self._say_notices()
            if epoch == self.recipe.warmup_epochs:
                self._snapshot("warmup")
            if epoch == math.ceil(self.recipe.epochs / 4):
                self._snapshot("quarter")
            out_of_time = self._out_of_time(seconds)
            last = epoch == self.recipe.epochs or out_of_time
            self._record(epoch, loss, seconds, scored=last or epoch % self.run.evaluate_every == 0)
            if out_of_time and epoch < self.recipe.epochs:
                ended = epoch
                self._notice(
                    f"The time limit of {self.run.time_limit:g} s ended the training after epoch {epoch} of "
                    f"{self.recipe.epochs}."
                )
                break
        return self._close(ended)

    def _epoch(self, epoch: int) -> float:
        """One pass over the shuffled training images; the mean soft-target loss, which must be finite."""
        good = {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}
        losses = torch.empty(self.steps_per_epoch, device=self.device)
        first = self.steps
        for number, (inputs, targets) in enumerate(self._batches()):
            set_learning_rate(self.optimiser, learning_rate(self.recipe, self.steps, self.steps_per_epoch))
            losses[number] = self.step(inputs, targets)
            self.steps += 1
        loss = float(losses.mean())
        if not math.isfinite(loss):
            at = int((~losses.isfinite()).nonzero()[0])
            path = self.records.snapshot(good, "last-good")
            rate = learning_rate(self.recipe, first + at, self.steps_per_epoch)
            sentence = (
                f"The loss of {self.run.model} was not finite at step {first + at + 1} (epoch {epoch}) at a learning "
                f"rate of {rate:.2e}; the weights from before this epoch are in {path.name}; lower the rate or clip."
            )
            self.records.line({"notice": sentence})
            raise NotFinite(sentence)
        return loss

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.data.x_train), generator=self.generator, device=self.device)
        order = order[: self.steps_per_epoch * self.batch]
        for chunk in torch.split(order, max(1, CHUNK // self.batch) * self.batch):
            inputs, targets = prepare_chunk(
                self.data.x_train[chunk],
                self.data.y_train[chunk],
                self.recipe,
                self.normalisation,
                len(self.data.classes),
                self.batch,
                self.generator,
            )
            yield from zip(inputs, targets, strict=True)

    def _out_of_time(self, epoch_seconds: float) -> bool:
        if self.run.time_limit is None:
            return False
        used = time.monotonic() - self.started
        return used + 1.5 * epoch_seconds + CLOSING_SECONDS > self.run.time_limit

    def _state(self) -> dict[str, Tensor]:
        """What the end is: the average of the weights where the recipe keeps one."""
        return self.average.state_dict(self.module) if self.average else self.module.state_dict()

    def _snapshot(self, name: str) -> None:
        if name in self.run.snapshots:
            self.records.snapshot(self.module.state_dict(), name)

    def _record(self, epoch: int, loss: float, seconds: float, scored: bool) -> None:
        rate = learning_rate(self.recipe, self.steps - 1, self.steps_per_epoch)
        values: dict[str, Any] = {
            "epoch": epoch,
            "steps": self.steps,
            "learning_rate": rate,
            "augmented_train_nll": loss,
            "seconds": round(seconds, 3),
        }
        words = f"{self.run.model} epoch {epoch}/{self.recipe.epochs} loss {loss:.4f}"
        if scored:
            test, clean = self._scores(self.data.x_test, self.data.y_test), self._clean_scores()
            values |= {"clean_train_nll": clean.nll, "clean_train_error": clean.error}
            values |= {f"test_{key}": value for key, value in test.as_json().items()}
            words += f" clean {clean.nll:.4f} test error {100 * test.error:.2f} % nll {test.nll:.4f}"
        values["elapsed"] = round(time.monotonic() - self.started, 3)
        self.records.line(values)
        if scored:
            print(
                f"{words} rate {rate:.1e} {seconds:.2f} s/epoch {values['elapsed']:.0f} s", file=sys.stderr, flush=True
            )

    def _scores(self, images: Tensor, labels: Tensor) -> Scores:
        if self.average is None:
            return evaluate(self.module, images, labels, self.normalisation, bfloat16=self.bfloat16)
        own = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        self.module.load_state_dict(self._state())
        scores = evaluate(self.module, images, labels, self.normalisation, bfloat16=self.bfloat16)
        self.module.load_state_dict(own)
        return scores

    def _clean_scores(self) -> Scores:
        return self._scores(self.data.x_train[self.clean], self.data.y_train[self.clean])

    def _say_notices(self) -> None:
        for sentence in self.step.notices[self.noticed :]:
            self._notice(sentence)
        self.noticed = len(self.step.notices)

    def _notice(self, sentence: str) -> None:
        self.records.line({"notice": sentence})
        print(f"{self.run.model}: {sentence}", file=sys.stderr, flush=True)

    def _close(self, epochs: int) -> dict[str, Any]:
        """Save the end, read it back, measure what was read, and write the card."""
        seconds = time.monotonic() - self.started
        path = self.records.snapshot(self._state())
        shipped = load_weights(self._build(0.0), path).to(self.device)
        scores = evaluate(shipped, self.data.x_test, self.data.y_test, self.normalisation)
        card: dict[str, Any] = {
            "name": self.run.model,
            "data": self.data.name,
            "train_images": len(self.data.x_train),
            "test_images": len(self.data.x_test),
            "classes": list(self.data.classes),
            "input_size": [self.data.image_size, self.data.image_size],
            **self.normalisation.as_json(),
            "parameters": sum(parameter.numel() for parameter in shipped.parameters()),
            "accuracy": 1 - scores.error,
            "nll": scores.nll,
            "ece": scores.ece,
            "measured": "on all test images after the float16 round trip, in float32 with TF32 off; ECE with 15 bins",
            "command": self.run.command(self.data.name),
            "recipe": self.recipe.as_json(),
            "seed": self.run.seed,
            "fraction": self.run.fraction,
            "epochs": epochs,
            "steps": self.steps,
            "seconds": round(seconds, 1),
            "device": _device_name(self.device),
            "step": self.step.mode,
            "notices": self.step.notices,
            "torch": torch.__version__,
            "sha256": {
                saved.name: sha256(saved)
                for saved in map(self.records.weights_path, ("end", *self.run.snapshots))
                if saved.is_file()
            },
        }
        self.records.card(card)
        print(
            f"{self.run.model}: {100 * card['accuracy']:.2f} % of {card['test_images']:,} test images, NLL "
            f"{scores.nll:.4f}, ECE {scores.ece:.4f}, {card['parameters']:,} parameters, {epochs} epochs in "
            f"{seconds:.0f} s ({self.step.mode})",
            file=sys.stderr,
            flush=True,
        )
        return card


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("There is no CUDA device here; leave --device out or say --device cpu.")
    return torch.device(name)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
