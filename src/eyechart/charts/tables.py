"""From findings to charts: tables of their variables, the colours of subjects, and what the pointer tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import pandas as pd
import xarray

from eyechart.charts import theme


def ends_of(name: str) -> tuple[str, str]:
    """The columns that hold the interval of a column: those of `table_of`, or of `value_table`.

    >>> ends_of("cka"), ends_of("value")
    (('cka_low', 'cka_high'), ('low', 'high'))
    """
    return ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")


def table_of(
    finding: xarray.Dataset,
    *variables: str,
    ends: bool = True,
    also: Sequence[str] = (),
    gaps: bool = False,
    times: float = 1.0,
) -> pd.DataFrame:
    """One row for each cell of these variables, with their intervals, with all coordinates, and `also` these variables.

    Cells whose first variable is not a number are left out: subjects are ragged, and findings are padded. With `gaps`
    they stay: a line breaks there, and a heat-map keeps its row. `times` multiplies the variables; a negative factor
    exchanges the ends of the intervals.
    """
    names = [column for name in variables for column in ((name, *ends_of(name)) if ends else (name,))]
    table: pd.DataFrame = finding[[*names, *also]].to_dataframe().reset_index()
    if times != 1.0:
        table[names] *= times
    if times < 0:
        pairs = [ends_of(name) for name in variables if ends]
        table = table.rename(columns=dict(pairs) | {high: low for low, high in pairs})
    return table if gaps else table.dropna(subset=[variables[0]])


def value_table(
    finding: xarray.Dataset,
    variable: str,
    name: str = "value",
    *,
    also: Sequence[str] = (),
    gaps: bool = False,
    times: float = 1.0,
) -> pd.DataFrame:
    """As `table_of`, with one variable that is called `name`, so that several variables can stand in one column."""
    table = table_of(finding, variable, also=also, gaps=gaps, times=times)
    names = (variable, *ends_of(variable)), (name, *ends_of(name))
    return table.rename(columns=dict(zip(*names, strict=True)))


def subject_colours(subjects: Iterable[str], field: str = "subject", **encoding: Any) -> alt.Color:
    """The colour of each subject, the same on the whole page. `field` names the column that holds them."""
    scale = theme.subject_scale([str(subject) for subject in subjects])
    return alt.Color(f"{field}:N", **{"scale": scale, "title": None, **encoding})


#: What a reader calls a column that a tooltip shows under its own name; without a title Korean would not know it.
COLUMN_WORDS = {"name": "layer"}


def tooltips(*fields: str, **columns: str | tuple[str, str]) -> list[alt.Tooltip]:
    """What the pointer tells: `fields` under their own names, then `columns` with a title, or a title and a format.

    Fields are words unless they end in ":Q"; columns are words without a format and numbers with one ("" for Vega's).

    >>> [(tip["title"], tip["type"]) for tip in (each.to_dict() for each in tooltips("name", "head:Q"))]
    [('layer', 'nominal'), ('head', 'quantitative')]
    >>> [tip.to_dict()["title"] for tip in tooltips(name="block", depth=("relative depth", ".2f"))]
    ['block', 'relative depth']
    """
    named = [(field.partition(":")[0], "Q" if field.endswith(":Q") else "N") for field in fields]
    tips = [alt.Tooltip(f"{field}:{kind}", title=COLUMN_WORDS.get(field, field)) for field, kind in named]
    for column, words in columns.items():
        if isinstance(words, str):
            tips.append(alt.Tooltip(f"{column}:N", title=words))
        else:
            tips.append(alt.Tooltip(f"{column}:Q", title=words[0], format=words[1] or alt.Undefined))
    return tips


def interval_tooltips(
    name: str, title: str, form: str = ".3f", ends: tuple[str, str] | None = None, *, among: bool = False
) -> list[alt.Tooltip]:
    """What the pointer tells of a number that has an interval: page.js puts the three on one line, "0.31 [0.29, 0.33]".

    The interval is in the columns `ends`, those of `ends_of(name)` if not given. `among` others in one tooltip, its
    ends are told apart: Vega keeps one value of each title.
    """
    low, high = ends or ends_of(name)
    before = f"{title}: " if among else ""
    return tooltips(**{name: (title, form), low: (f"{before}from", form), high: (f"{before}to", form)})
