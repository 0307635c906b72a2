"""Verdicts and quantities as a table for a paper (LaTeX with booktabs), a README (Markdown) or a sheet (CSV)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from eyechart.charts.numbers import with_span
from eyechart.claims.table import CLAIMS
from eyechart.errors import UsageError
from eyechart.phrases import harmless_cell, printable
from eyechart.report.sentences import name_of_quantity

if TYPE_CHECKING:
    from eyechart.run import Run

FORMATS = ("latex", "markdown", "csv")
#: Signs that stand in our texts and that LaTeX knows only in mathematics.
SIGNS = {
    "−": "$-$", "<": "$<$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$", "±": r"$\pm$", "→": r"$\rightarrow$",
    "∞": r"$\infty$", "²": "$^2$", "ᵀ": r"$^\top$", "√": r"$\surd$", "λ": r"$\lambda$", "π": r"$\pi$",
    "σ": r"$\sigma$", "ε": r"$\epsilon$", "…": r"\ldots{}", "\u00a0": "~", "\u2011": "-",
}  # fmt: skip


def verdict_table(run: Run) -> pd.DataFrame:
    """The verdicts that could be given, in the order of the claims."""
    rows = []
    for verdict in run.verdicts:
        if verdict.verdict == "not tested":
            continue
        effect, span = with_span(verdict.effect, verdict.low, verdict.high)
        rows.append(
            {
                "claim": verdict.claim,
                "says": verdict.sentence,
                "source": CLAIMS[verdict.claim].figure,
                "subjects": ", ".join(verdict.subjects),
                "verdict": verdict.verdict + (" (proxy)" if verdict.proxy else ""),
                "effect": effect if verdict.effect is not None else "",
                "95 % interval": f"[{span}]" if span else "",
            }
        )
    return pd.DataFrame(rows, columns=["claim", "says", "source", "subjects", "verdict", "effect", "95 % interval"])


def quantity_table(run: Run, measure: str | None = None) -> pd.DataFrame:
    """Every scalar with its interval, of all measures or of one."""
    if measure is not None and measure not in run.findings:
        raise UsageError(f"This run has no finding {measure!r}; it has {', '.join(run.findings) or 'none'}.")
    rows = []
    for row in run.quantities():
        if (measure is not None and row["measure"] != measure) or not math.isfinite(row["value"]):
            continue
        value, span = with_span(row["value"], row["low"], row["high"])
        rows.append(
            {
                "measure": row["measure"],
                "quantity": name_of_quantity(row["quantity"]),
                "subjects": row["subjects"].replace(" | ", ", "),
                "value": value,
                "95 % interval": f"[{span}]" if span and row["low"] != row["high"] else "",
                "unit": row["unit"],
            }
        )
    return pd.DataFrame(rows, columns=["measure", "quantity", "subjects", "value", "95 % interval", "unit"])


def formatted(table: pd.DataFrame, format: str, caption: str = "") -> str:
    """The text of a table in one of FORMATS."""
    table = table.map(printable)
    if format == "csv":
        return table.map(harmless_cell).to_csv(index=False, lineterminator="\n")
    if format == "markdown":
        return markdown(table)
    if format == "latex":
        return latex(table, caption)
    raise UsageError(f"Tables can be {', '.join(FORMATS)}; got {format!r}.")


def markdown(table: pd.DataFrame) -> str:
    """
    >>> print(markdown(pd.DataFrame({"a": ["x|y"], "b": ["1"]})))
    | a | b |
    |---|---|
    | x\\|y | 1 |
    """
    rows = [list(table.columns), *table.values.tolist()]
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(table.columns), *lines[1:]])


def latex(table: pd.DataFrame, caption: str = "") -> str:
    """A longtable, which may go over several pages; needs the packages booktabs and longtable."""
    shown = table.map(in_latex).rename(columns=in_latex)
    wide = {"says": r">{\raggedright\arraybackslash}p{0.36\linewidth}", "source": r"p{0.12\linewidth}"}
    columns = "".join(wide.get(str(name), "l") for name in table.columns)
    body = shown.style.hide(axis="index").to_latex(
        environment="longtable", hrules=True, column_format=columns, caption=in_latex(caption) or None
    )
    return f"% \\usepackage{{booktabs,longtable,array}}\n{body.rstrip()}"


def in_latex(text: object) -> str:
    r"""
    >>> in_latex("100 % of head_1 & more: −0.5")
    '100 \\% of head\\_1 \\& more: $-$0.5'
    """
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
    return "".join(special.get(letter) or SIGNS.get(letter, letter) for letter in str(text))
