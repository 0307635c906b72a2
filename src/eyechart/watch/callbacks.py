"""A watch in the training loops of Lightning and of Hugging Face: before the first epoch and after each.

Steps are epochs that are done. Of several processes only the first examines, on the module itself without its wrapper.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from eyechart.errors import UsageError

if TYPE_CHECKING:
    from eyechart.watch.watch import Watch


def lightning_callback(watch: Watch) -> Any:
    """For `Trainer(callbacks=[…])`; what is seen also goes to the trainer's own loggers."""

    class WatchCallback(_lightning().Callback):  # type: ignore[misc]
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.look(trainer, trainer.current_epoch)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self.look(trainer, trainer.current_epoch + 1)

        def look(self, trainer: Any, epoch: int) -> None:
            def log(step: int, numbers: Mapping[str, float]) -> None:
                for logger in trainer.loggers:
                    logger.log_metrics(dict(numbers), step=trainer.global_step)

            if trainer.is_global_zero:
                watch(epoch, log)

    return WatchCallback()


def hugging_face_callback(watch: Watch) -> Any:
    """For `Trainer(callbacks=[…])` of transformers."""
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise UsageError(
            "hugging_face() needs the library transformers, which is not installed; pip install 'eyechart[hf]'."
        ) from error

    class WatchCallback(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.look(state)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.look(state)

        def look(self, state: Any) -> None:
            if state.is_world_process_zero:
                watch(round(state.epoch or 0))

    return WatchCallback()


def _lightning() -> Any:
    """Lightning under either of its names; their hooks are the same."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise UsageError(
        "lightning() needs the library lightning, which is not installed; pip install 'eyechart[lightning]'."
    )
