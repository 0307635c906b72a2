"""The question of an exam, written down before anything is measured: plan.json.

The plan fixes subjects (by the hash of their weights), images (by fingerprint and order), batches, folds, shards and
measures with their options. `question.py` says what of it decides the numbers; its seal shows that nobody edited it.
"""

from __future__ import annotations

import datetime
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from eyechart.claims.asking import quantities_asked
from eyechart.claims.judge import LEAST_IMAGES
from eyechart.errors import DoesNotApply, UsageError
from eyechart.images import BatchPlan
from eyechart.measure import Measure
from eyechart.measures import source_of
from eyechart.phrases import count
from eyechart.question import DECIDING_PACKAGES, question_hash, seal_of
from eyechart.scene import Scene
from eyechart.sites import Anatomy
from eyechart.store import FORMAT

if TYPE_CHECKING:
    from eyechart.engines.prepared import Part
    from eyechart.images import Images
    from eyechart.subjects.subject import Subject
    from eyechart.subjects.trial import Trial

LARGEST_TALLY = 2 << 30  # bytes; refused before anything runs, not when memory is gone after an hour
RECORDED_PACKAGES = ("eyechart", "torch", "torchvision", "timm", "transformers", "numpy", "xarray", "pillow")


def write_plan(
    subjects: Sequence[Subject],
    anatomies: Sequence[Anatomy],
    images: Images,
    batches: BatchPlan,
    measures: Sequence[Measure],
    *,
    label_maps: Mapping[str, tuple[tuple[int, ...] | None, str]],
    settings: Mapping[str, Any],
    trials: Sequence[Trial] | None = None,
    part: Part | None = None,
) -> dict[str, Any]:
    """Everything `plan.json` holds. Measures that do not apply to these subjects are left out, each with its reason.

    Without `trials` the plan is for numbers that nobody resumes (a study's). With `part` these are only some subjects
    of a plan, which has chosen and sized the measures for all of them.
    """
    tried: Sequence[Trial | None] = trials or [None] * len(subjects)
    plan: dict[str, Any] = {
        "format": FORMAT,
        "eyechart": installed("eyechart"),
        "built_with": built_with(subjects),
        "subjects": [
            {
                "name": subject.name,
                "spec": subject.spec,
                "parameters": subject.parameters,
                "input_size": list(subject.input_size),
                "weights": subject.weights_hash,
                "trained": subject.trained,
                "classifier": subject.classifier,
                "card": dict(subject.card),
                "preprocessing": subject.preprocessing.as_json(),
                "switches": subject.switches,
                "labels": {"indices": label_maps[subject.name][0], "reason": label_maps[subject.name][1]},
                "anatomy": anatomy.as_json(),
                "fed": trial.fed if trial else "",
                "answers": trial.answers if trial else {},
                "steady": trial.steady if trial else False,
                "notes": list(trial.notes) if trial else [],
            }
            for subject, anatomy, trial in zip(subjects, anatomies, tried, strict=True)
        ],
        "images": {
            "name": images.name,
            "count": len(images),
            "used": len(batches.order),
            "fingerprint": images.fingerprint,
            "classes": list(images.classes) if images.classes else None,
            "problems": [{"path": problem.path, "reason": problem.reason} for problem in images.problems],
        },
        "batches": batches.as_json(),
        "measures": [
            {"name": measure.name, "options": measure.options, **source_of(measure.name)} for measure in measures
        ],
        "claims": settings.get("claims", ""),
        "sized": [],
        "left_out": [],
        "settings": {name: value for name, value in settings.items() if name != "claims"},
    }
    if part is None:
        size_measures(plan, measures)
    else:
        plan["measures"] = [{**entry, **source_of(entry["name"])} for entry in part.plan["measures"]]
    plan["notices"] = notices(plan)
    plan["question"] = question_hash(plan)
    plan["provenance"] = provenance()
    plan["seal"] = seal_of(plan)
    return plan


def size_measures(plan: dict[str, Any], measures: Sequence[Measure]) -> None:
    """Give the measures of a plan the options that its effort allows, and leave out those that do not apply."""
    scene = scene_of(plan)
    effort, asked_for = plan["settings"]["effort"], plan["settings"]["asked_for"]
    read = quantities_asked(measure.name for measure in measures if asked_for or measure.runs_at(effort))
    for entry, measure in zip(plan["measures"], measures, strict=True):
        try:
            measure.check_labels(scene)
            measure.tally(scene)  # what does not apply to these subjects is not blamed on the effort
            decides = not read.isdisjoint(quantity.name for quantity in measure.quantities)
            measure = measure.sized(effort, scene, asked_for=asked_for, decides=decides)
            plan["sized"] += [measure.name] if measure.options != entry["options"] else []
            entry["options"] = measure.options
            size = measure.tally(scene).nbytes
            if size > LARGEST_TALLY:
                raise DoesNotApply(
                    f"its tally would take {size / 2**30:.1f} GiB, more than {LARGEST_TALLY / 2**30:.0f}; examine "
                    "fewer subjects at a time or choose coarser options."
                )
        except DoesNotApply as reason:
            plan["left_out"].append({"measure": measure.name, "reason": str(reason)})
    gone = {entry["measure"] for entry in plan["left_out"]}
    plan["measures"] = [entry for entry in plan["measures"] if entry["name"] not in gone]
    if not plan["measures"]:
        raise UsageError(f"Nothing is left to measure. {' '.join(reasons(plan))}{advice(plan)}")


def scene_of(plan: Mapping[str, Any]) -> Scene:
    """What measures may know, read back from a plan."""
    subjects, images = plan["subjects"], plan["images"]
    batches = BatchPlan.from_json(plan["batches"])
    return Scene(
        anatomies=tuple(Anatomy.from_json(subject["anatomy"]) for subject in subjects),
        images=len(batches),
        whole_blocks=batches.blocks,
        block=batches.block,
        folds=batches.folds,
        classes=tuple(images["classes"]) if images["classes"] else None,
        label_maps={
            subject["name"]: tuple(subject["labels"]["indices"]) for subject in subjects if subject["labels"]["indices"]
        },
        trained={subject["name"]: subject["trained"] for subject in subjects if subject["trained"] is not None},
        cards={subject["name"]: subject["card"].get("zoo", subject["card"]) for subject in subjects},
        specs={
            subject["name"]: subject["spec"]
            for subject in subjects
            if subject.get("spec") not in (None, subject["name"])
        },
        accelerated=str(plan["settings"].get("device", "cpu")).startswith("cuda"),
    )


TOO_LONG = re.compile(
    r"it needs at least (?P<images>[\d,]+) images, which takes longer than (?P<effort>--effort \w+) allows for the "
    r"largest subject; (?P<runs>.*)--measures \w+ runs it\."
)
"""What `SampledExperiment.sized` says, and what is said of several."""
IN_GENERAL = (
    r"as many images as they need (in brackets) take longer than \g<effort> allows for the largest subject; "
    r"\g<runs>--measures NAME runs them."
)


def reasons(plan: Mapping[str, Any], verbs: tuple[str, str] = ("was", "were")) -> list[str]:
    """Why measures were left out, each reason once: "probes, lesion were left out: no subject's classes match …".

    Those that differ only in how many images a measure needs are one: ten for a large subject filled a screen.
    """
    groups: dict[str, list[Mapping[str, str]]] = {}
    for entry in plan["left_out"]:
        groups.setdefault(TOO_LONG.sub(IN_GENERAL, entry["reason"]), []).append(entry)
    return [left_out(general, entries, verbs) for general, entries in groups.items()]


def left_out(general: str, entries: Sequence[Mapping[str, str]], verbs: tuple[str, str]) -> str:
    alike = len({entry["reason"] for entry in entries}) == 1
    needs = [TOO_LONG.sub(r" (\g<images>)", entry["reason"]) for entry in entries]
    names = [entry["measure"] + ("" if alike else need) for entry, need in zip(entries, needs, strict=True)]
    reason = entries[0]["reason"] if alike else general
    return f"{', '.join(names)} {verbs[len(names) > 1]} left out: {reason}"


def advice(plan: Mapping[str, Any]) -> str:
    """What gives subjects the labels they lack."""
    unmatched = [
        subject["labels"]["reason"]
        for subject in plan["subjects"]
        if subject["labels"]["indices"] is None and subject.get("classifier", True)
    ]
    if not unmatched or "class" not in " ".join(entry["reason"] for entry in plan["left_out"]):
        return ""
    if plan["images"]["classes"]:
        return f" {' '.join(unmatched)} Use --classes MAP.json to say which class of the subject each of them is."
    return " For labelled images, give for example a folder with one subfolder for each class."


def notices(plan: Mapping[str, Any]) -> list[str]:
    """What a reader must know before trusting the numbers: what was dropped, skipped or left out, and why."""
    said = reasons(plan)
    batches, images = BatchPlan.from_json(plan["batches"]), plan["images"]
    if batches.left_over and batches.blocks:
        said.append(
            f"Statistics of whole blocks (CKA) use {batches.blocks * batches.block:,} of {len(batches):,} images: "
            f"every block has {batches.block}, and the {batches.left_over} left over "
            f"{'is' if batches.left_over == 1 else 'are'} dropped there."
        )
    for subject in plan["subjects"]:
        if subject["labels"]["indices"] is None:
            mappable = images["classes"] and subject.get("classifier", True)
            hint = " Use --classes MAP.json to say which class is which." if mappable else ""
            said.append(f"{subject['name']}: accuracy is not reported: {subject['labels']['reason']}{hint}")
        said += [f"{subject['name']}: {note}" for note in (*subject["anatomy"]["notes"], *subject["notes"])]
        if subject["trained"] is False:
            said.append(f"{subject['name']} has random weights: what it shows is its architecture, not learning.")
        elif subject["trained"] is None:
            said.append(
                f"Whether {subject['name']} is trained is not known; unless its answers are clearly better than "
                "chance, no claim is decided on it. load_subject(module, trained=True) says that it is."
            )
    limit = plan["settings"]["limit"]
    if limit is not None and limit > images["count"]:
        said.append(f"--limit {limit} is more than there are ({count(images['count'], 'image')}): all were used.")
    if images["used"] < LEAST_IMAGES:
        said.append(
            f"A claim needs at least {LEAST_IMAGES} images to be decided; with {images['used']} the numbers are "
            "shown, but only claims that are read from the weights alone are decided."
        )
    if images["problems"]:
        skipped = len(images["problems"])
        were = "was skipped; it is" if skipped == 1 else "were skipped; they are"
        said.append(f"{count(skipped, 'image file')} {were} listed below.")
    return said


def built_with(subjects: Sequence[Subject]) -> dict[str, str]:
    """The libraries whose code the subjects run, with their versions: torch, and those their modules come from."""
    homes = {type(part).__module__.partition(".")[0] for subject in subjects for part in subject.module.modules()}
    return {name: installed(name) for name in DECIDING_PACKAGES if name == "torch" or name in homes}


def provenance() -> dict[str, Any]:
    return {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": sys.argv[:],
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: installed(name) for name in RECORDED_PACKAGES},
    }


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # The GPU machine runs the source tree without installing it.
        if package == "eyechart":
            import eyechart

            return eyechart.__version__
        return "absent"
