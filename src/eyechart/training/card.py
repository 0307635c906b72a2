"""The card of a trained model: what it is, how it was made, and how good the saved file is."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

import torch

from eyechart import zoo
from eyechart.methods.calibration import BINS
from eyechart.subjects.catalogue import parse_spec
from eyechart.training.evaluation import Scores
from eyechart.training.records import sha256
from eyechart.training.run import LAST_GOOD

if TYPE_CHECKING:
    from eyechart.training.loop import Training


def make_card(training: Training, seconds: float, scores: Scores | None = None) -> dict[str, Any]:
    """Facts that fit into JSON; `scores` are those of the saved end on all test images, None while there is no end."""
    run, data, beginning = training.run, training.data, training.beginning
    card: dict[str, Any] = {
        "name": run.label,
        "data": data.name,
        "train_images": len(data.x_train),
        "test_images": len(data.x_test),
        "classes": list(data.classes),
        "input_size": [data.image_size, data.image_size],
        **training.normalisation.as_json(),
        "parameters": sum(parameter.numel() for parameter in training.module.parameters()),
        **(_measured(scores) if scores else {}),
        "command": run.command(data.name),
        "recipe": training.recipe.as_json(),
        "seed": run.seed,
        "fraction": run.fraction,
        "epochs": training.done,
        "steps": training.steps,
        "seconds": round(seconds, 1),
        "device": device_name(training.device),
        "step": training.step.mode,
        "notices": [*training.notices, *training.step.notices],
        "torch": torch.__version__,
        "sha256": {
            saved.name: sha256(saved)
            for saved in map(training.records.weights_path, ("end", *run.snapshots, LAST_GOOD))
            if saved.is_file()
        },
    }
    if run.label != run.model:
        card["model"] = run.model
    architecture = parse_spec(beginning.source or f"zoo:{run.model}")
    if architecture.source == "zoo":  # all of them, because the zoo's own may change and these weights will not
        switches = {**zoo.find(architecture.name).switches, **(beginning.switches or {})}
        card["switches"] = json.loads(json.dumps(switches))  # lists for tuples, as in the file
    if beginning.source is not None:
        card |= {"from": beginning.source, "freeze": run.freeze, "backbone_lr_scale": run.backbone_lr_scale}
    if run.label_noise:
        card["label_noise"] = run.label_noise
    if run.shuffle_patches:
        card["shuffle_patches"] = run.shuffle_patches
    if data.x_validation is not None:
        card["validation_images"] = len(data.x_validation)
    if training.resumed:
        card["resumed_after_epochs"] = training.resumed
    return card


def _measured(scores: Scores) -> dict[str, Any]:
    return {
        "accuracy": 1 - scores.error,
        "nll": scores.nll,
        "ece": scores.ece,
        "measured": "on all test images after the float16 round trip, in float32 with TF32 off; "
        f"ECE with {BINS} equal-width bins",
    }


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
