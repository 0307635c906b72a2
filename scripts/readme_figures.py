"""Draw docs/cka.png for the README from an exam of the bundled pair: python scripts/readme_figures.py

Four panels of one size, two beside two: in a row they were twice as wide as a page of text, and their letters five
pixels high. The exam is that of `make docs`, and is not run again if it is there. Pictures of the page are taken by
scripts/page_pictures.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt

import eyechart
from eyechart.charts import theme
from eyechart.charts.export import picture_of, specification
from eyechart.measures.cka.chart import best_match, layer_map

ROOT = Path(__file__).parents[1]
HEIGHT = 270
"""Of all panels: ten rows of the ViT and nine of the ResNet fit exactly."""
TITLE_DOWN = 6
"""Pixels by which the curve's title stands lower: the label of 1.0 reaches above its panel and would lift it."""


def main() -> None:
    run = eyechart.exam(effort="quick", out=ROOT / "runs" / "docs")
    (ROOT / "docs" / "cka.png").write_bytes(cka_picture(run))


def cka_picture(run: eyechart.Run) -> bytes:
    """The maps of the pair, alone and together, and how the ViT's best match in the ResNet goes with depth."""
    vit, cnn = run.scene.subjects
    finding = run.findings["cka"]
    titles = {(vit, vit): "a  ViT", (cnn, cnn): "b  ResNet", (vit, cnn): "c  ViT × ResNet"}
    with theme.drawing(subjects=run.scene.subjects, for_export=True):
        maps: list[Any] = [
            layer_map(finding, *pair, (HEIGHT, HEIGHT)).properties(title=title) for pair, title in titles.items()
        ]
        title = alt.TitleParams("d  best match in the ResNet", dy=TITLE_DOWN)
        curve = best_match(finding, vit, cnn).properties(title=title, width=HEIGHT, height=HEIGHT)
        four = theme.panels([*maps, curve], columns=2, shared=())
        return picture_of(specification(theme.dress(four)), "png", 2)


if __name__ == "__main__":
    main()
