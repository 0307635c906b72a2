"""The callbacks in the real loops of Lightning and Hugging Face: the same weights, and a run for each epoch."""

from __future__ import annotations

import csv
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import eyechart
from eyechart.errors import UsageError
from tests.watch.test_watch import LABELS, NAMES, PICTURES, Small, watch_of

STEPS = [0, 1, 2]


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning(package: str, tmp_path: Path) -> None:
    lightning: Any = import_module(package)

    class Task(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Small()

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    def trained(watched: bool) -> tuple[dict[str, Tensor], eyechart.Watch | None]:
        torch.manual_seed(5)
        task = Task()
        watch = watch_of(task.model, tmp_path / "watch", measures="recognition", strict=True) if watched else None
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            callbacks=[watch.lightning()] if watch else [],
            logger=lightning.loggers.CSVLogger(tmp_path, name="log", version=int(watched)),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1,
        )
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(PICTURES, LABELS), 16, shuffle=True)
        trainer.fit(task, loader)
        assert task.model.training
        return task.state_dict(), watch

    plain, _ = trained(False)
    state, watch = trained(True)
    assert watch is not None
    assert list(watch.runs) == STEPS
    assert [name for name in state if not torch.equal(state[name], plain[name])] == []
    with (tmp_path / "log" / "version_1" / "metrics.csv").open() as file:
        logged = [row for row in csv.DictReader(file) if row["eyechart/recognition/nll"]]
    assert [int(row["step"]) for row in logged] == [0, 2, 4], "batches done before each look"
    seen = [watch.numbers(step)["eyechart/recognition/nll"] for step in STEPS]
    assert [float(row["eyechart/recognition/nll"]) for row in logged] == pytest.approx(seen)
    assert len(set(seen)) == 3


def test_hugging_face(tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=8,
        patch_size=4,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        hidden_dropout_prob=0.2,
        id2label=dict(enumerate(NAMES)),
    )
    items = [{"pixel_values": picture, "labels": int(label)} for picture, label in zip(PICTURES, LABELS, strict=True)]

    def trained(watched: bool) -> tuple[dict[str, Tensor], eyechart.Watch | None]:
        torch.manual_seed(5)
        model = ViTForImageClassification(config)
        watch = watch_of(model, tmp_path / "watch", measures="recognition", strict=True) if watched else None
        arguments = TrainingArguments(
            output_dir=str(tmp_path / "trainer"),
            num_train_epochs=2,
            per_device_train_batch_size=16,
            learning_rate=0.01,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        callbacks: list[Any] = [watch.hugging_face()] if watch else []
        Trainer(model, arguments, train_dataset=items, callbacks=callbacks).train()
        return model.state_dict(), watch

    plain, _ = trained(False)
    state, watch = trained(True)
    assert watch is not None
    assert list(watch.runs) == STEPS
    assert [name for name in state if not torch.equal(state[name], plain[name])] == []
    assert watch.table[watch.table.quantity == "nll"].value.nunique() == 3


def test_without_the_library_each_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_of(Small(), tmp_path)
    for name in ("lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"not installed; pip install 'eyechart\[lightning\]'"):
        watch.lightning()
    with pytest.raises(UsageError, match=r"not installed; pip install 'eyechart\[hf\]'"):
        watch.hugging_face()
