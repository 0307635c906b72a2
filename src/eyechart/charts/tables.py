"""From findings to charts: tables of their variables, the colours of subjects, and what the pointer tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from eyechart.charts import theme

if TYPE_CHECKING:
    import xarray

ENDS = ("", "_low", "_high")
"""Of a variable's name: the value, and both ends of its interval."""

Told = str | tuple[str, str]


def table_of(
    finding: xarray.Dataset, *variables: str, ends: bool = True, rename: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """One row a cell of these variables, with their intervals (`ends`) and all coordinates.

    Cells whose first variable is not a number are left out: subjects are ragged, and tables are padded. `rename` gives
    variables other names, their intervals too.
    """
    names = [f"{name}{end}" for name in variables for end in (ENDS if ends else ("",))]
    table: pd.DataFrame = finding[names].to_dataframe().reset_index().dropna(subset=[variables[0]])
    new = {f"{old}{end}": f"{name}{end}" for old, name in (rename or {}).items() for end in ENDS}
    return table.rename(columns=new)


def subject_colours(subjects: Sequence[str], field: str = "subject", **legend: Any) -> alt.Color:
    """The colour of each subject, the same on the whole page. `field` names the column that holds them."""
    return alt.Color(f"{field}:N", **{"scale": theme.subject_scale(subjects), "title": None, **legend})


def tooltips(**columns: Told) -> list[alt.Tooltip]:
    """What the pointer tells, in order: a column with its title, and the format of one that holds numbers.

    >>> [tip.to_dict()["title"] for tip in tooltips(subject="subject", depth=("depth", ".2f"))]
    ['subject', 'depth']
    """
    return [
        alt.Tooltip(f"{column}:N", title=told)
        if isinstance(told, str)
        else alt.Tooltip(f"{column}:Q", title=told[0], format=told[1])
        for column, told in columns.items()
    ]


def interval_tooltips(name: str, title: str, form: str = ".3f") -> list[alt.Tooltip]:
    """What the pointer tells of a number that has an interval, in columns `name`, `name_low` and `name_high`."""
    return tooltips(**{name: (title, form), f"{name}_low": ("from", form), f"{name}_high": ("to", form)})
