"""The figure beside the answer to a question: the numbers of its text, drawn from the same records.

A contrast of a study is an interval with a dot for each seed; a quantity of models, over seeds or of the bundled ones,
a row for each of them on one scale; a correlation over arms a dot for each arm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.numbers import number, with_span
from eyechart.charts.palette import SUBJECT_COLOURS
from eyechart.quantity import Quantity
from eyechart.report.embed import picture
from eyechart.report.highlights import Contrast as OnOneScale
from eyechart.report.highlights import chart as one_scale
from eyechart.report.verdict_rows import KINDS, interval_drawing
from eyechart.studies.contrasts import Contrast
from eyechart.studies.questions import AT_EQUAL, Numbers, Question, alike, arm_means
from eyechart.studies.recorded import unequal_sizes
from eyechart.studies.records import Records
from eyechart.studies.verdicts import draws_of, interval_of

GREY = "#7f7f7f"
COLOURS = dict(zip(("vit", "resnet", "vit-gap"), SUBJECT_COLOURS, strict=False))
"""Of models; what compares two of them is grey."""
TITLES = {
    "test_accuracy": "test accuracy",
    "test_ece": "calibration error",
    "nep_augmented_penalty": "negative share of the five largest eigenvalues",
    "ape_augmented_penalty": "mean positive eigenvalue",
}
SAME, OTHER = "same data and recipe", "less data or another recipe"


def figures_of(question: Question, numbers: Numbers, quantities: Mapping[str, Quantity]) -> dict[str, Any]:
    """What is drawn beside an answer; `quantities` are those of all measures, by name."""
    asked = [(kind, *what.rpartition(" of ")[::2]) for kind, what in question.blanks if kind != "claim"]
    contrasts = [
        drawn_contrast(numbers.records[study].study.contrasts[name], numbers.records[study])
        for kind, name, study in asked
        if kind == "contrast"
    ]
    correlations = dict.fromkeys(
        (names, where.removesuffix(AT_EQUAL)) for kind, names, where in asked if kind == "correlation"
    )
    return {
        "contrasts": [each for each in contrasts if each],
        "scales": drawn_quantities([each for each in asked if each[0] in ("seeds", "exam")], numbers, quantities),
        "pictures": [scatter(numbers.records[study], *names.split(", ")) for names, study in correlations],
    }


def drawn_contrast(contrast: Contrast, records: Records) -> dict[str, Any] | None:
    """A contrast without a margin; None where it is not recorded, or compares an arm with itself."""
    interval = interval_of(contrast, records)
    if interval is None or interval.same_arms:
        return None
    numbers = (interval.value, interval.low, interval.high)
    effect, span = with_span(*numbers)
    about = {"words": contrast.words, "effect": effect, "span": span, "how": interval.words, "added": contrast.added}
    about["sizes"] = unequal_sizes(contrast.arms, records)
    neutral = 1.0 if contrast.scale == "ratio" else 0.0
    look = {"kind": KINDS["not tested"], "said": f"{contrast.words}: {effect}"}
    return {**about, **look, **interval_drawing(numbers, "", (), draws_of(contrast, records), neutral)}


def drawn_quantities(
    asked: Sequence[tuple[str, str, str]], numbers: Numbers, quantities: Mapping[str, Quantity]
) -> list[dict[str, Any]]:
    """A small chart for each quantity, with a row for each model that the answer names. One of a second study bears its
    name: it may have examined the same arm on fewer seeds."""
    by_quantity: dict[str, dict[str, tuple[float, float, float]]] = {}
    seeds: dict[str, int] = {}
    first = next((where.rpartition(" in ")[2] for kind, _, where in asked if kind == "seeds"), "")
    for kind, name, where in asked:
        arms, _, study = where.rpartition(" in ")
        subject = where if kind == "exam" else arms if study == first else f"{arms} ({study})"
        found = numbers.over_seeds(name, where) if kind == "seeds" else None
        if found is not None:
            seeds[subject] = found.seeds
        ends = (found.value, found.low, found.high) if found else numbers.exam[name, where.replace(", ", " | ")]
        by_quantity.setdefault(name, {})[subject] = ends
    subjects = list(dict.fromkeys(subject for values in by_quantity.values() for subject in values))

    def label(name: str) -> dict[str, str]:
        return {"name": name, "colour": COLOURS.get(name.partition(" (")[0].removeprefix("zoo:"), GREY)}

    drawn = []
    for name, values in by_quantity.items():
        explain, unit = quantities[name].explain, quantities[name].unit
        rows = [
            {"subject": label(subject), "effect": effect, "span": span, "seeds": seeds.get(subject)}
            for subject, (effect, span) in ((subject, with_span(*ends)) for subject, ends in values.items())
        ]
        chart = one_scale(OnOneScale("", "", explain, unit, values, 0.0), label, subjects)
        drawn.append({"words": explain, "unit": unit, "rows": rows, "chart": chart})
    return drawn


def scatter(records: Records, one: str, other: str) -> dict[str, Any]:
    """A dot for each arm: two quantities, each the mean over its seeds."""
    import altair as alt
    import pandas as pd

    means = arm_means(records, one, other)
    same = alike(records, means)
    table = pd.DataFrame(
        [{"one": x, "other": y, "trained": SAME if arm in same else OTHER} for arm, (x, y) in means.items()]
    )
    with theme.drawing(for_export=True):
        x, y = alt.X("one:Q", title=TITLES[one]), alt.Y("other:Q", title=TITLES[other])
        scale = alt.Scale(domain=[SAME, OTHER], range=[SUBJECT_COLOURS[0], GREY])
        legend = alt.Legend(title=None, orient="top", direction="vertical", labelLimit=260)
        colour = alt.Color("trained:N", scale=scale, legend=legend)
        dots = alt.Chart(table).mark_circle(size=44, opacity=0.9).encode(x=x, y=y, color=colour)
        made = picture(specification(theme.dress(dots.properties(width=300, height=200))))
    r = float(np.corrcoef(np.array(list(means.values())).T)[0, 1])
    return made | {
        "said": f"A dot for each of {len(means)} arms of the study {records.study.name}; r = {number(r, 2)}."
    }
