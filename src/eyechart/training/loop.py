"""The training loop: a run in; records, snapshots and a card out. READ FIRST in this room."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from eyechart.device import choose_device
from eyechart.errors import NotFinite, RunFolderError, UsageError
from eyechart.training.augment import Normalisation, prepare_chunk
from eyechart.training.card import device_name, make_card
from eyechart.training.evaluation import Scores, evaluate
from eyechart.training.optimisers import Average, Schedule, make_optimiser, set_learning_rate
from eyechart.training.progress import Report, plainly
from eyechart.training.records import Records, beyond_half, load_weights
from eyechart.training.run import LAST_GOOD, SNAPSHOTS, TrainingRun, difference
from eyechart.training.sources import load_data_once
from eyechart.training.state import gather, read_state, remove_state, restore, write_state
from eyechart.training.step import Step
from eyechart.training.transfer import begin, freeze, input_size_of
from eyechart.zoo.dropout import has_draws

CHUNK = 51_200  # images of 32 pixels augmented at once: an epoch of CIFAR; 2 GB of float32 at the widest point
CLEAN_IMAGES = 5_000  # training images whose clean NLL is recorded
CLOSING_SECONDS = 20.0  # kept free of the time limit for the last evaluation and the writing
TICK_SECONDS = 1.0
# On an H200, two ViTs and two ResNets side by side: compiling takes 22 s and saves 5 ms a step of the ViT (a third) and
# 3 ms of the ResNet, so it pays from some 4,000 steps.
COMPILED_STEPS = 4_000


def train(run: TrainingRun, report: Report = plainly) -> dict[str, Any]:
    """Train and write everything; returns the card. A training that was stopped goes on, a finished one is left."""
    return Training(run, report).finish()


class Training:
    """All the state of a training in one place: weights, optimiser, average, random numbers, step count."""

    def __init__(self, run: TrainingRun, report: Report = plainly) -> None:
        self.started = time.monotonic()
        self.run = run.checked()
        self.report = report
        self.recipe = run.recipe
        self.device = _device(run.device)
        whole = load_data_once(run.data, input_size_of(run))
        self.data = whole.cut(run).to(self.device)
        if run.shuffle_patches and self.data.image_size % run.shuffle_patches:
            raise UsageError(
                f"--shuffle-patches must divide the images' side; {run.shuffle_patches} does not divide "
                f"{self.data.image_size}."
            )
        self.fingerprint = self.data.fingerprint()
        self.batch = min(self.recipe.batch_size, len(self.data.x_train))
        self.steps_per_epoch = len(self.data.x_train) // self.batch
        self.total = run.steps or self.steps_per_epoch * self.recipe.epochs
        self.schedule = Schedule(self.recipe.learning_rate, self.end_of(self.recipe.warmup_epochs), self.total)
        self.records = Records(Path(run.out), run.label)

        torch.manual_seed(run.seed)
        self.generator = torch.Generator(self.device).manual_seed(run.seed + 1)
        self.beginning = begin(run, self.data.classes, self.data.image_size)
        self.normalisation: Normalisation = self.beginning.normalisation or whole.normalisation()
        self.frozen = freeze(self.beginning.module, run.freeze, self.beginning.head, self.data.image_size)
        self.module = self.beginning.module.to(self.device)
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            # Evaluations are float32 as said. cuDNN tries no kernels out: it would choose by the clock, and a resumed
            # training, or the same one again, would part from the first at the first step.
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.benchmark = False
            torch.backends.cudnn.deterministic = True
            self.module = self.module.to(memory_format=torch.channels_last)
        self.bfloat16 = on_gpu if run.bfloat16 is None else run.bfloat16
        self.average = Average(self.module, self.recipe.ema) if self.recipe.ema else None
        self.optimiser = make_optimiser(self.module, self.recipe, self.beginning.head, run.backbone_lr_scale)
        self.step = Step(
            self.module,
            self.optimiser,
            self.recipe,
            self.average,
            bfloat16=self.bfloat16,
            compiled=on_gpu and self.end_of(run.last_epoch) >= COMPILED_STEPS if run.compiled is None else run.compiled,
            captured=on_gpu if run.captured is None else run.captured and on_gpu,
            own_kernels=on_gpu and self.bfloat16 and run.own_kernels is not False,
        )
        clean = torch.randperm(len(self.data.x_train), generator=torch.Generator().manual_seed(0))[:CLEAN_IMAGES]
        self.clean = clean.to(self.device)
        self.steps = 0
        self.done = 0
        self.seconds_before = 0.0
        self.saved_at = self.started
        self.resumed: list[int] = []
        self.good: dict[str, Tensor] = {}
        """Weights from before the epoch that is being done."""
        self.notices = [*whole.notices, *self.beginning.notices]
        self.noticed = 0

    def end_of(self, epoch: int) -> int:
        """Steps done when an epoch ends. With --steps, epochs are equal parts of them, whatever the data's size."""
        return self.total * epoch // self.recipe.epochs

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def finish(self) -> dict[str, Any]:
        """Every epoch that is left, then the card."""
        self.records.open()
        try:
            if (card := self._begin_or_go_on()) is not None:
                return card
            for epoch in range(self.done + 1, self.run.last_epoch + 1):
                if self._one_epoch(epoch):
                    break
            return self._close()
        finally:
            self.records.close()

    def _begin_or_go_on(self) -> dict[str, Any] | None:
        """Begin, or go on from the state that a stopped training of the same arguments left; its card if finished."""
        mine = {**self.run.identity(), "data": self.fingerprint, "device": self.device.type, "bfloat16": self.bfloat16}
        theirs = None if self.run.overwrite else self.records.identity()
        if theirs is not None and (other := difference(theirs, mine) if theirs else "its arguments are not known"):
            raise RunFolderError(
                f"{self.records.lines} belongs to another training ({other}); give another --out or --name, or "
                "--overwrite to start again."
            )
        if theirs is not None and (card := self.records.finished()):
            self._say(notice=f"{self.run.label} is already trained in {self.run.out}; --overwrite starts again.")
            return card
        state = None if theirs is None else read_state(self.records.state)
        if state is None:
            self._begin(mine)
            return None
        self.done, tensors, facts = state
        if self.done >= self.run.last_epoch and (card := self.records.stopped(self.done)):
            self._say(notice=f"{self.run.label} stopped after epoch {self.done} as asked; it is in {self.run.out}.")
            return card
        restore(tensors, self.module, self.optimiser, self.average, self.generator)
        self.steps, self.seconds_before = facts["steps"], facts["seconds"]
        self.resumed = [*facts["resumed"], self.done]
        self.records.cut(facts["position"])
        self._notice(f"Continuing after epoch {self.done} of {self.recipe.epochs}.")
        return None

    def _begin(self, arguments: dict[str, Any]) -> None:
        remove_state(self.records.state)
        # What another training left under this name would not fit the card of this one.
        self.records.remove_weights(*(("end", *SNAPSHOTS) if self.run.overwrite else ()), LAST_GOOD)
        self.records.cut(0)
        self.records.line(
            {
                "start": self.run.label,
                "parameters": sum(parameter.numel() for parameter in self.module.parameters()),
                "recipe": self.recipe.as_json(),
                "images": len(self.data.x_train),
                "clean_train_images": len(self.clean),
                "steps_per_epoch": self.steps_per_epoch,
                "device": device_name(self.device),
                "arguments": arguments,
            }
        )
        for sentence in self.notices:
            self._notice(sentence)
        self.records.card(make_card(self, self.seconds))
        self._snapshot("init")

    def _one_epoch(self, epoch: int) -> bool:
        """An epoch with all that follows it; whether the time is up."""
        began = time.monotonic()
        loss = self._epoch(epoch)
        seconds = time.monotonic() - began
        self.done = epoch
        for sentence in self.step.notices[self.noticed :]:
            self._notice(sentence)
        self.noticed = len(self.step.notices)
        if epoch == self.recipe.warmup_epochs:
            self._snapshot("warmup")
        if epoch == math.ceil(self.recipe.epochs / 4):
            self._snapshot("quarter")
        time_is_up = self._out_of_time(seconds) and epoch < self.run.last_epoch
        last = epoch == self.run.last_epoch or time_is_up
        self._record(epoch, loss, seconds, scored=last or epoch % self.run.evaluate_every == 0)
        if time_is_up:
            self._notice(
                f"The time limit of {self.run.time_limit:g} s ended the training after epoch {epoch} of "
                f"{self.recipe.epochs}; {self.run.again} continues it."
            )
        stops_early = last and epoch < self.recipe.epochs
        if stops_early or (not last and time.monotonic() - self.saved_at >= self.run.save_seconds):
            self._save()
        return time_is_up

    def _save(self) -> None:
        tensors = gather(self.module, self.optimiser, self.average, self.generator)
        facts = {"steps": self.steps, "seconds": self.seconds, "position": self.records.position}
        write_state(self.records.state, self.done, tensors, {**facts, "resumed": self.resumed})
        self.saved_at = time.monotonic()

    def _epoch(self, epoch: int) -> float:
        """The steps of an epoch; the mean soft-target loss. Loss and weights must be finite."""
        self.good = {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}
        first, count = self.steps, self.end_of(epoch) - self.end_of(epoch - 1)
        losses = torch.empty(count, device=self.device)
        self.module.train()
        for part in self.frozen:
            part.eval()
        ticked = time.monotonic()
        for index, (inputs, targets) in enumerate(self._batches(count)):
            set_learning_rate(self.optimiser, self.schedule.rate(self.steps))
            losses[index] = self.step(inputs, targets)
            self.steps += 1
            if time.monotonic() - ticked > TICK_SECONDS:
                ticked = time.monotonic()
                self._say()
        loss = float(losses.mean())
        if not math.isfinite(loss):
            at = int((~losses.isfinite()).nonzero()[0])
            self._diverged("loss was not finite", first + at + 1, epoch)
        if (name := beyond_half(self.module.state_dict())) is not None:  # the last step may have done it
            self._diverged(f"weights went beyond float16 ({name} first)", self.steps, epoch)
        return loss

    def _diverged(self, what: str, step: int, epoch: int) -> NoReturn:
        """Keep the weights from before the epoch, and say when it happened and at which learning rate."""
        path = self._keep(self.good, LAST_GOOD)
        sentence = (
            f"The {what} at step {step} of {self.run.label} (epoch {epoch}) at a learning rate of "
            f"{self.schedule.rate(step - 1):.2e}; the weights from before this epoch are in {path.name}; lower the "
            "rate or clip."
        )
        self.records.line({"notice": sentence})
        raise NotFinite(sentence)

    def _batches(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """So many batches from shuffled passes over the training images."""
        images, needed = len(self.data.x_train), count * self.batch
        passes = [
            torch.randperm(images, generator=self.generator, device=self.device) for _ in range(-(-needed // images))
        ]
        order = torch.cat(passes)[:needed]
        chunk_images = min(CHUNK, CHUNK * 32**2 // self.data.image_size**2)
        for chunk in torch.split(order, max(1, chunk_images // self.batch) * self.batch):
            inputs, targets = prepare_chunk(
                self.data.x_train[chunk],
                self.data.y_train[chunk],
                self.recipe,
                self.normalisation,
                len(self.data.classes),
                self.batch,
                self.generator,
                self.run.shuffle_patches,
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
            self._keep(self.module.state_dict(), name)

    def _keep(self, state: dict[str, Tensor], name: str) -> Path:
        """Save weights, and their hash in the card: what a killed training leaves can be loaded like the end."""
        path = self.records.snapshot(state, name)
        self.records.card(make_card(self, self.seconds))
        return path

    def _record(self, epoch: int, loss: float, seconds: float, scored: bool) -> None:
        rate = self.schedule.rate(self.steps - 1)
        values: dict[str, Any] = {
            "epoch": epoch,
            "steps": self.steps,
            "learning_rate": rate,
            "augmented_train_nll": loss,
            "seconds": round(seconds, 3),
        }
        words = f"epoch {epoch}/{self.recipe.epochs} loss {loss:.4f}"
        if scored:
            part, x, y = "test", self.data.x_test, self.data.y_test
            if self.data.x_validation is not None and self.data.y_validation is not None:
                part, x, y = "validation", self.data.x_validation, self.data.y_validation
            scores = self._scores(x, y)
            clean = self._scores(self.data.x_train[self.clean], self.data.y_train[self.clean])
            if not math.isfinite(scores.nll + clean.nll):
                self._diverged("NLL of clean images was not finite", self.steps, epoch)
            values |= {"clean_train_nll": clean.nll, "clean_train_error": clean.error}
            values |= {f"{part}_{key}": value for key, value in scores.as_json().items()}
            words += f" clean {clean.nll:.4f} {part} error {100 * scores.error:.2f} % nll {scores.nll:.4f}"
        values["elapsed"] = round(self.seconds, 3)
        self.records.line(values)
        self._say(**({"line": f"{words} rate {rate:.1e} {seconds:.2f} s/epoch {self.seconds:.0f} s"} if scored else {}))

    def _scores(self, images: Tensor, labels: Tensor) -> Scores:
        if self.average is None:
            return evaluate(self.module, images, labels, self.normalisation, bfloat16=self.bfloat16)
        own = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        self.module.load_state_dict(self._state())
        scores = evaluate(self.module, images, labels, self.normalisation, bfloat16=self.bfloat16)
        self.module.load_state_dict(own)
        return scores

    def _notice(self, sentence: str) -> None:
        self.records.line({"notice": sentence})
        self._say(notice=sentence)

    def _say(self, **words: str) -> None:
        self.report({"run": self.run.label, "steps": self.steps, "total": self.total, **words})

    def _close(self) -> dict[str, Any]:
        """Save the end, read it back, measure what was read, and complete the card."""
        seconds = self.seconds
        path = self.records.snapshot(self._state())
        shipped = copy.deepcopy(self.module).to(memory_format=torch.contiguous_format)
        scores = evaluate(load_weights(shipped, path), self.data.x_test, self.data.y_test, self.normalisation)
        if has_draws(shipped):
            words = "Scores are of one draw of its test-time dropout; the measure mc_dropout averages over many."
            self.notices.append(words)  # which the card keeps
            self._say(notice=words)
        card = make_card(self, seconds, scores)
        self.records.card(card)
        if self.done == self.recipe.epochs:
            remove_state(self.records.state)
        self._say(
            line=f"{100 * card['accuracy']:.2f} % of {card['test_images']:,} test images, NLL {scores.nll:.4f}, ECE "
            f"{scores.ece:.4f}, {card['parameters']:,} parameters, {self.done} epochs in {seconds:.0f} s "
            f"({self.step.mode})"
        )
        return card


def _device(name: str) -> torch.device:
    device = choose_device(name)
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"Trainings run on cpu or cuda; got --device {name}.")
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)  # streams, graphs and the tensor of the rate are made on the current one
    return device
