"""Hit-rates of the last block, with the intervals that the section states: in its sentence, its figure and its table.

Those of the variable tell only how the pictures move a rate. That of the quantity also knows how few tokens are
counted: 0 of 4 tokens is 0 % [0 %, 60 %], though hardly a draw of pictures moved it.
"""

from __future__ import annotations

import xarray

from eyechart.quantity import subjects_in
from eyechart.reading_estimates import Ends, ends_of, site_indices, states, with_ends

CONTROLS = ("plain", "colour removed", "patches shuffled")


def quantity_of(control: str) -> str:
    return f"hit_rate_{control.replace(' ', '_')}"


def hits_at_end(finding: xarray.Dataset, control: str) -> dict[str, Ends]:
    """By subject."""

    def of(subject: str) -> Ends:
        if states(finding, quantity_of(control), subject):
            return ends_of(finding, quantity_of(control), subject)
        last = finding.isel(site=site_indices(finding, subject)[-1])
        return with_ends(last.sel(control=control), "hit_rate")

    return {subject: of(subject) for subject in subjects_in(finding)}
