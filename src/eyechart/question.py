"""What an exam asks, out of its plan: everything that decides the numbers, its hash, and what differs from another's.

The hash names the question: a shard carries it, and shards of another question are never read. In it are the weights,
what a subject is fed (its preprocessing, and the very pixels that came of the first pictures), its switches, its
anatomy, the images with their order and blocks, the measures with their options, dtype and claims; the versions of
eyechart and torch; and of timm, torchvision and transformers where a subject is built from their modules. A change of
any of these asks anew. Local parts of a version ("+cpu") do not count, nor do device and number of threads: they
change nothing but rounding, so a run may go on elsewhere.

What the subjects *answer* is not in the hash, for it is only equal up to rounding: numbers of the dry run are kept in
the plan and compared within TOLERANCE. That catches a forward that has changed while weights and names have not.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "tf32": 2e-2, "float16": 2e-2, "bfloat16": 1e-1}
"""By how much two dry runs may differ, relative to the largest number. Of 6 models of the zoo and 11 of timm, 5 gave
other bits with two threads than with one, by at most 5e-7 in float32."""

DECIDING_PACKAGES = ("torch", "timm", "torchvision", "transformers")


def digest(data: object) -> str:
    """The hash of what JSON can say, the same before it is written and after it is read.

    >>> digest({"a": (1, 2), "b": None}) == digest({"b": None, "a": [1, 2]})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def question_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "eyechart": plan["eyechart"],
        "format": plan["format"],
        "packages": {name: version.partition("+")[0] for name, version in plan["built_with"].items()},
        "subjects": [
            {
                "name": subject["name"],
                "weights": subject["weights"],
                "input size": subject["input_size"],
                "classes": subject["labels"]["indices"],
                "preprocessing": [subject["preprocessing"], subject["fed"]],
                "switches": subject["switches"],
                "anatomy": digest(subject["anatomy"]),
            }
            for subject in plan["subjects"]
        ],
        "images": plan["images"]["fingerprint"],
        "batches": plan["batches"],
        "measures": plan["measures"],
        "settings": {key: plan["settings"][key] for key in ("dtype", "seed")},
        "claims": plan["claims"],
    }


def question_hash(plan: Mapping[str, Any]) -> str:
    """Two plans with the same hash ask the same question."""
    return digest(question_of(plan))


def seal_of(plan: Mapping[str, Any]) -> str:
    """The hash of a whole plan, but for the seal itself: an edited plan does not fit its seal."""
    return digest({key: value for key, value in plan.items() if key != "seal"})


def what_differs(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What makes the question of a new plan another one than that of an old plan, in words; empty where nothing does.

    Several things are named, but not all: other images come with another order of them.
    """
    return "; ".join(list(_differences(old, new))[:3])


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, now = (json.loads(json.dumps(question_of(plan))) for plan in (old, new))  # one has been in a file
    if before["eyechart"] != now["eyechart"]:
        yield f"eyechart was {before['eyechart']} and is {now['eyechart']}"
    for name in sorted({*before["packages"], *now["packages"]}):
        was, is_now = before["packages"].get(name), now["packages"].get(name)
        if was and is_now and was != is_now:
            yield f"{name} was {was} and is {is_now}"
    names = [[subject["name"] for subject in plan["subjects"]] for plan in (before, now)]
    if names[0] != names[1]:
        yield f"its subjects are {', '.join(names[0])}"
    else:
        pairs = list(zip(before["subjects"], now["subjects"], strict=True))
        for one, other in pairs:
            yield from _of_subject(one, other)
        yield from _of_answers(old, new, [one == other for one, other in pairs])
    if before["images"] != now["images"]:
        yield "its images are others"
    elif before["batches"] != now["batches"] or before["settings"]["seed"] != now["settings"]["seed"]:
        yield "the number or order of its images differs (--limit, --seed)"
    if before["measures"] != now["measures"]:
        devices = {str(each["settings"].get("device", "cpu")).split(":")[0] for each in (old, new)}
        gpu = ", and on a GPU large subjects get more images" if len(devices) > 1 else ""
        yield f"its measures or their options differ (--measures, --set, --effort{gpu})"
    if before["settings"]["dtype"] != now["settings"]["dtype"]:
        yield f"it was made in {before['settings']['dtype']}"
    if before["claims"] != now["claims"]:
        yield "its own claims differ (--claims)"


def _of_subject(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    changed = [part for part in ("weights", "switches", "input size", "classes") if one[part] != other[part]]
    if one["preprocessing"] != other["preprocessing"] and "input size" not in changed:
        changed.append("preprocessing")
    if one["anatomy"] != other["anatomy"] and not changed:
        changed.append("anatomy (its forward code)")
    for part in changed:
        verb = "are others" if part in ("weights", "switches", "classes") else "is another"
        yield f"the {part} of {one['name']} {verb} now"


def _of_answers(old: Mapping[str, Any], new: Mapping[str, Any], alike_else: Sequence[bool]) -> Iterator[str]:
    tolerance = TOLERANCE.get(new["settings"]["dtype"], math.inf)
    same_device = old["settings"].get("device") == new["settings"].get("device")
    for one, other, same in zip(old["subjects"], new["subjects"], alike_else, strict=True):
        if not same:
            continue  # what differs has been said
        drawn = one["anatomy"]["random"] or other["anatomy"]["random"]
        if not one["steady"] or not other["steady"] or (drawn and not same_device):
            continue
        if not alike(one["answers"], other["answers"], tolerance):
            yield (
                f"{one['name']} answers the first images otherwise than it did there, with the same weights "
                "(its forward code or one of its settings has changed)"
            )


def alike(one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], tolerance: float) -> bool:
    """Whether two dry runs gave the same numbers, each list up to `tolerance` of its largest one.

    >>> alike({"output": [1.0, -20.0]}, {"output": [1.0005, -20.0]}, 1e-4)
    True
    >>> alike({"output": [1.0, -20.0]}, {"output": [1.5, -20.0]}, 1e-4)
    False
    """
    if one.keys() != other.keys():
        return False
    for name, values in one.items():
        others = other[name]
        if len(values) != len(others):
            return False
        largest = max((abs(value) for value in (*values, *others) if math.isfinite(value)), default=0.0)
        for a, b in zip(values, others, strict=True):
            if not (a == b or (a != a and b != b) or abs(a - b) <= tolerance * largest):
                return False
    return True
