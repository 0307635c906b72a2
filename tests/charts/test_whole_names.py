"""Names of 60 letters, as training scripts make them, are shown whole in every figure, however many lines they take."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import xarray

from eyechart.charts import theme
from eyechart.charts.export import specification, svg_with_room
from eyechart.measures import find_measure, names
from eyechart.report.words import titles
from tests.charts.findings import CNN, SWIN, VIT, finding_of

WORDS = "small_with_a_label_of_sixty_letters_seed_0_epoch_300_of_300"
LONG = {name: f"{name.removeprefix('net:')}_{WORDS}"[:60] for name in (VIT, CNN, SWIN)}


def renamed(finding: xarray.Dataset) -> xarray.Dataset:
    """The finding of subjects with long labels."""

    def of(value: Any) -> Any:
        return LONG.get(value, value)

    texts = {
        str(name): (variable.dims, np.vectorize(of, otypes=[object])(variable.values))
        for name, variable in finding.variables.items()
        if variable.dtype.kind in "OUT" and variable.size
    }
    return finding.assign({name: text for name, text in texts.items() if name in finding.data_vars}).assign_coords(
        {name: text for name, text in texts.items() if name in finding.coords}
    )


@pytest.mark.parametrize("measure", names())
def test_no_name_ends_in_dots(measure: str) -> None:
    """In legends of 220 pixels, beside rows, above and along maps."""
    with theme.drawing(subjects=tuple(LONG.values()), for_export=True):
        chart = find_measure(measure).chart(renamed(finding_of(measure)))
        spec = specification(theme.dress(chart), validate=False)
    written = re.findall(r">([^<>]*)</text>", svg_with_room(spec))
    assert [words for words in written if words.endswith("…")] == []
    assert list(titles(spec))
