"""Write a measure.

How many activations are zero after each block? A measure says which view of which sites it needs, what it adds up, and
what the sums mean; batches, folds, intervals, resuming and the page come for free. Here the file examines with itself
as the plugin; on the command line that is

    eyechart exam zoo:vit zoo:resnet --plugin examples/write_a_measure.py --measures silence
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import altair as alt
import torch
import xarray

import eyechart
from eyechart import Batch, Measure, Need, Quantity, Scene, Source, Sum, Tally, View, Views
from eyechart.charts.numbers import in_words
from eyechart.charts.tables import subject_colours, table_of
from eyechart.measure import site_coordinates
from eyechart.quantity import of_each, subjects_in
from eyechart.reading_estimates import site_indices
from eyechart.site_choice import blocks

ZEROS = View("share of zeros", lambda look: (look.output == 0).double().flatten(1).mean(1))  # (image,)


@dataclass
class SilenceTally(Tally):
    zeros: Annotated[torch.Tensor, Sum("fold", "site")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


def last_share(estimate: xarray.Dataset, subject: str) -> float:
    return float(estimate.zeros.values[site_indices(estimate, subject)][-1])


@dataclass(frozen=True)
class Silence(Measure):
    name = "silence"
    title = "How many activations are zero?"
    title_ko = "활성값 가운데 0은 얼마나 되는가?"
    order = 60
    sources = (Source("Glorot, Bordes & Bengio 2011", "Section 3"),)
    how_to_read = "Each point is the share of numbers after a block that are exactly zero; ReLUs make them."
    how_to_read_ko = "점은 블록을 지난 값들 가운데 정확히 0인 것의 비율이다."
    method = "Share of exact zeros in the output of every block, averaged over images."
    quantities = (Quantity("last_share", of_each(last_share), "share of zeros after the last block", limits=(0, 1)),)

    def needs(self) -> Sequence[Need]:
        return [Need(ZEROS, blocks)]

    def tally(self, scene: Scene) -> SilenceTally:
        return SilenceTally.empty(fold=scene.folds, site=len(scene.sites(blocks)))

    def update(self, tally: SilenceTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = torch.as_tensor(batch.image_folds)
        for row, (subject, site) in enumerate(scene.sites(blocks)):
            tally.add("zeros", folds, views(subject, site, ZEROS), row)
        tally.add("images", folds)

    def estimate(self, total: SilenceTally, scene: Scene) -> xarray.Dataset:
        shares = (total.zeros / total.images).numpy()
        return xarray.Dataset({"zeros": ("site", shares)}, coords=site_coordinates(scene, scene.sites(blocks)))

    def chart(self, finding: xarray.Dataset) -> alt.Chart:
        lines = alt.Chart(table_of(finding, "zeros")).mark_line(point=True)
        return lines.encode(x="depth:Q", y="zeros:Q", color=subject_colours(subjects_in(finding)))

    def sentence(self, finding: xarray.Dataset) -> str:
        return f"At most {float(finding.zeros.max()):.0%} of the numbers after a block are zero."


if __name__ == "__main__":
    run = eyechart.exam(
        ["zoo:vit", "zoo:resnet"], measures="silence", plugins=[__file__], limit=128, out=tempfile.mkdtemp()
    )
    for row in run.quantities():
        print(f"{row['quantity']} of {row['subjects']}: {in_words(row['value'], row['low'], row['high'])}")
    print(run.path / "report.html")
