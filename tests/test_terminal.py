"""What a person sees in a terminal of a given width."""

import sys

import pytest
from rich.table import Table

from eyechart.terminal import show, table


def names_and_numbers() -> Table:
    rows = table("measure", "quantity", "value")
    rows.add_row("attention_distance", "early_farthest_head", "[0.9113, 0.9158]")
    rows.add_row("cka", "uniformity", "")
    return rows


@pytest.mark.parametrize("columns", ["48", "100"])
def test_words_of_a_table_are_not_broken(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 60 letters `show` printed "recognitio" above "n", and `subjects` "2,803," above "850"."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(names_and_numbers(), stack=True)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    if columns == "100":
        assert lines[1] == ["attention_distance", "early_farthest_head", "[0.9113,", "0.9158]"]
    else:
        assert lines[2:] == [
            ["attention_distance"],
            ["early_farthest_head", "[0.9113,", "0.9158]"],
            ["cka"],
            ["uniformity"],
        ]
