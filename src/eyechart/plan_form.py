"""The form of plan.json, as far as its readers rely on it: what does not have it is refused before anything is read."""

from __future__ import annotations

import re
from typing import Any

MEASURE_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,99}")
"""It is part of a path."""

OURS: dict[str, Any] = {
    "format": int,
    "eyechart": str,
    "question": str,
    "subjects": [{"name": str}],
    "images": {"fingerprint": str},
    "batches": {"shards": [[int]]},
    "measures": [{"name": str}],
}
"""What the plans of all versions have in common: a folder with one is a run's."""
FORM: dict[str, Any] = {
    "eyechart": str,
    "built_with": {},
    "subjects": [
        {
            "name": str,
            "spec": str,
            "parameters": int,
            "input_size": [int],
            "weights": str,
            "trained": (bool, None),
            "classifier": bool,
            "card": {},
            "labels": {"indices": ([int], None), "reason": str},
            "anatomy": {},
            "fed": str,
            "answers": {},
            "steady": bool,
            "notes": [str],
        }
    ],
    "images": {
        "name": str,
        "count": int,
        "used": int,
        "fingerprint": str,
        "classes": ([str], None),
        "problems": [{"path": str, "reason": str}],
    },
    "batches": {"order": [int], "block": int, "folds": int, "shards": [[int]]},
    "measures": [{"name": str, "options": {}}],
    "claims": str,
    "sized": [str],
    "left_out": [{"measure": str, "reason": str}],
    "settings": {"dtype": str, "seed": int, "effort": str},
    "notices": [str],
    "provenance": {"made": str, "command": [str], "python": str, "machine": str, "packages": {}},
    "question": str,
    "seal": str,
}
"""What a plan is made of, as far as its readers rely on it: a type, a list of one form, the keys of an object, or a
choice."""


def misfit(data: Any, form: Any, where: str = "the plan") -> str | None:
    """The first place where data does not have a form, in words.

    >>> misfit({"a": [1, "2"]}, {"a": [int]})
    'a of the plan'
    """
    if isinstance(form, tuple):
        return None if any(misfit(data, choice, where) is None for choice in form) else where
    if isinstance(form, list):
        if not isinstance(data, list):
            return where
        return next((where for entry in data if misfit(entry, form[0], where) is not None), None)
    if isinstance(form, dict):
        if not isinstance(data, dict):
            return where
        parts = (misfit(data.get(key), part, f"{key} of {where}") for key, part in form.items())
        return next((part for part in parts if part is not None), None)
    if form is None:
        return where if data is not None else None
    return None if isinstance(data, form) and (form is bool or not isinstance(data, bool)) else where


def is_ours(plan: Any) -> bool:
    """Whether this is the plan of an exam, made by any version."""
    return (
        misfit(plan, OURS) is None
        and re.fullmatch(r"[0-9a-f]{64}", plan["question"]) is not None
        and all(MEASURE_NAME.fullmatch(entry["name"]) for entry in plan["measures"])
    )


def what_is_wrong(plan: dict[str, Any]) -> str | None:
    """Where a plan does not have the form that this version writes, in words."""
    wrong = misfit(plan, FORM)
    if wrong is None and not all(MEASURE_NAME.fullmatch(entry["name"]) for entry in plan["measures"]):
        return "the name of a measure"
    return wrong
