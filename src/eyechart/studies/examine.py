"""What a study measures of its arms, on the machine that trained them: no run folder, only numbers for the records."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.device import allow_tf32, choose_device
from eyechart.engines.plan import scene_of, write_plan
from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.errors import UsageError
from eyechart.files import read_json_lines
from eyechart.images import Images, common_crop, open_images, plan_batches
from eyechart.images.arrays import ArrayImages
from eyechart.intervals import with_intervals
from eyechart.measures import choose_measures, planned_measures
from eyechart.quantity import quantities_in
from eyechart.studies.records import share_bounds
from eyechart.studies.study import hash_of, key_of
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.labels import match_classes
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.training.records import Records
from eyechart.training.run import TrainingRun
from eyechart.training.sources import load_data_once
from eyechart.training.transfer import input_size_of

CURVE = ("epoch", "augmented_train_nll", "clean_train_nll", "clean_train_error", "test_error", "test_nll")
RECORDED_FACTS = ("architecture", "grid", "last_grid", "heads", "pooling")
"""What gates ask about an arm that its scores and recipe do not tell."""


def of_training(run: TrainingRun, card: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a finished training: how it was made, what it became, and how it went."""
    files = Records(Path(run.out), run.label)
    lines = [line for line in read_json_lines(files.lines, strict=False) if "epoch" in line]
    scored = [line for line in lines if "test_error" in line]
    test = int(card["test_images"])
    accuracy = float(card["accuracy"])
    low, high = share_bounds(accuracy, test)
    last = scored[-1] if scored else lines[-1]
    scores = {
        "test_accuracy": (accuracy, low, high, test),
        "test_error": (1 - accuracy, 1 - high, 1 - low, test),
        "test_nll": (card["nll"], None, None, test),
        "test_ece": (card["ece"], None, None, test),
        "augmented_train_nll": (lines[-1]["augmented_train_nll"], None, None, int(card["train_images"])),
        "clean_train_nll": (last.get("clean_train_nll"), None, None, 5_000),
    }
    subject = load_subject(f"zoo:{run.model}@{files.weights_path()}", label=run.label)
    anatomy = anatomy_of(subject.name, subject.module, torch.zeros(2, 3, *subject.input_size), call=subject.call)
    facts = Facts.of(anatomy, trained=True)
    return {
        "command": card["command"],
        "data": card["data"],
        "model": run.model,
        "switches": card.get("switches"),
        "recipe": card["recipe"],
        "train_images": card["train_images"],
        "classes": len(card["classes"]),
        "epochs": card["epochs"],
        "steps": card["steps"],
        "parameters": card["parameters"],
        "scores": scores,
        "curve": {name: [line[name] for line in scored] for name in CURVE if scored and name in scored[-1]},
        "facts": {name: getattr(facts, name) for name in RECORDED_FACTS},
        "seconds": card["seconds"],
        "step": card["step"],
        **where(),
        "notices": card["notices"],
    }


def where() -> dict[str, Any]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {"device": device, "torch": torch.__version__}


def examine_arms(task: Mapping[str, Any], advance: Callable[[int, int], None]) -> dict[str, Any]:
    """The rows of one exam: some arms of one seed, side by side, on images of their own data."""
    exam, runs = task["exam"], [TrainingRun.from_json(json.dumps(run)) for run in task["runs"]]
    allow_tf32(False)
    device = choose_device("auto")
    torch.set_num_threads(max(1, int(task.get("threads", 1))))
    source = images_of(runs, exam["images"])
    subjects = [subject_of(arm, run, exam["snapshot"]).to(device) for arm, run in zip(exam["arms"], runs, strict=True)]
    batches = plan_batches(source, limit=exam["limit"], block=exam["block"])
    first = [common_crop(source.picture(index)) for index in batches.order[:2]]
    anatomies = [
        anatomy_of(
            subject.name,
            subject.module,
            subject.prepare(first).to(device),
            call=subject.call,
            classifier=subject.classifier,
        )
        for subject in subjects
    ]
    matches = {subject.name: match_classes(source.classes, subject) for subject in subjects}
    plan = write_plan(
        subjects,
        anatomies,
        source,
        batches,
        choose_measures(list(exam["measures"]), exam["options"]),
        label_maps={name: (match.indices, match.reason) for name, match in matches.items()},
        settings={"dtype": "float32", "seed": 0, "limit": exam["limit"], "effort": "normal", "asked_for": True},
    )
    if plan["left_out"]:
        raise UsageError("; ".join(f"{left['measure']} was left out: {left['reason']}" for left in plan["left_out"]))
    scene = scene_of(plan)
    measures = planned_measures(plan["measures"])
    tapped = [TappedSubject(subject, anatomy, measures) for subject, anatomy in zip(subjects, anatomies, strict=True)]
    totals = {measure.name: measure.tally(scene) for measure in measures}
    done = 0
    for shard in range(len(batches.shards)):
        tallies = examine_shard(tapped, source, batches.batches(shard), measures, scene)
        totals = {name: total.merge(tallies[name]) for name, total in totals.items()}
        done += sum(len(batch.images) for batch in batches.batches(shard))
        advance(done, len(batches.order))
    rows: list[list[Any]] = []
    kept: dict[str, Any] = {}
    for measure in measures:
        finding = with_intervals(measure, totals[measure.name], scene)
        images = int(finding.attrs.get("images", scene.images))
        for row in quantities_in(finding):
            numbers = [row[f"quantity_{part}"] for part in ("value", "low", "high")]
            rows.append([measure.name, row["quantity"], row["quantity_subjects"].split(" | "), *numbers, images])
        for variable in exam["keep"].get(measure.name, ()):
            table = finding[variable]
            kept[f"{measure.name}.{variable}"] = {
                "dims": list(table.dims),
                "coords": {dim: table[dim].values.tolist() for dim in table.dims if dim in table.coords},
                "values": np.vectorize(lambda value: float(f"{value:.4g}"))(table.values).tolist(),
            }
    tests = {key_of(test): hash_of(test) for test in asked_of(measures)}
    return {
        "measures": list(exam["measures"]),
        "rows": rows,
        "kept": kept,
        "options": {f"{measure.name}.{key}": value for measure in measures for key, value in measure.options.items()},
        "images": len(batches.order),
        "tests": tests,
    } | where()


def subject_of(arm: str, run: TrainingRun, snapshot: str) -> Subject:
    """An arm as a subject, called as people read it: "vit@warmup", or "vit" at the end of its training."""
    path = Records(Path(run.out), run.label).weights_path(snapshot)
    return load_subject(f"zoo:{run.model}@{path}", label=arm if snapshot == "end" else f"{arm}@{snapshot}")


def images_of(runs: list[TrainingRun], part: str) -> Images:
    """The training or test images of these trainings, which must be the same for all of them; or other images."""
    if part not in ("train", "test"):
        return open_images(part)
    run = runs[0]
    for other in runs[1:]:
        mine, theirs = (
            [
                getattr(each, name)
                for name in ("data", "fraction", "classes", "class_count", "shots", "imbalance", "image_size")
            ]
            for each in (run, other)
        )
        if mine != theirs and part == "train":
            raise UsageError(
                f"{run.label} and {other.label} were trained on different images; examine them separately."
            )
    data = load_data_once(run.data, input_size_of(run)).cut(run)
    pixels, labels = (data.x_train, data.y_train) if part == "train" else (data.x_test, data.y_test)
    return ArrayImages(
        f"{data.name}:{part}", pixels.permute(0, 2, 3, 1).contiguous().numpy(), labels.numpy(), data.classes
    )
