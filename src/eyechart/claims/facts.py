"""What a run knows of its subjects besides their findings: the input of the gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eyechart.claims.gates import Facts
from eyechart.sites import Anatomy

if TYPE_CHECKING:
    import xarray


def facts_of(plan: Mapping[str, Any], findings: Mapping[str, xarray.Dataset]) -> dict[str, Facts]:
    recognition = findings.get("recognition")
    result = {}
    for subject in plan["subjects"]:
        name = subject["name"]
        card = subject["card"].get("zoo", subject["card"])
        accuracy = None
        if recognition is not None and name in recognition.subject.values:
            seen = recognition.sel(subject=name)
            accuracy = (float(seen.accuracy), float(seen.accuracy_low), float(seen.accuracy_high))
        result[name] = Facts.of(
            Anatomy.from_json(subject["anatomy"]),
            trained=subject["trained"],
            images=plan["images"]["name"],
            accuracy=accuracy,
            classes=len(plan["images"]["classes"]) if plan["images"].get("classes") else None,
            recipe=recipe_name(card.get("recipe")),
            settings=card["recipe"] if isinstance(card.get("recipe"), Mapping) else None,
            training_images=card.get("train_images"),
        )
    return result


def recipe_name(recipe: Any) -> str | None:
    """A card holds the whole recipe, or its name."""
    name = recipe.get("name") if isinstance(recipe, Mapping) else recipe
    return None if name is None else str(name)
