"""Draw the README's pictures from an exam of the bundled models: python scripts/readme_figures.py

docs/cka.png is drawn for the README: four panels of one height in a row. docs/page.png is a photograph of the page's
beginning by a headless Chromium (`--browser`). The exam is that of `make docs`, and is not run again if it is there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path
from typing import Any

import eyechart
from eyechart.charts import theme
from eyechart.charts.export import picture_of, specification
from eyechart.measures.cka.chart import best_match, layer_map

ROOT = Path(__file__).parents[1]
HEIGHT = 240
PAGE = (1180, 1500)
"""Width and height of the photograph, in pixels."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    browser = parser.parse_args().browser
    run = eyechart.exam(effort="quick", out=ROOT / "runs" / "docs")
    (ROOT / "docs" / "cka.png").write_bytes(cka_picture(run))
    if browser is None:
        parser.error("no Chromium was found to photograph the page with; name one with --browser.")
    photograph(browser, run.path / "report.html", ROOT / "docs" / "page.png")


def cka_picture(run: eyechart.Run) -> bytes:
    """The maps of the pair, alone and together, and how the ViT's best match in the ResNet goes with depth."""
    vit, cnn = run.scene.subjects
    finding = run.findings["cka"]
    titles = {(vit, vit): "a  ViT", (cnn, cnn): "b  ResNet", (vit, cnn): "c  ViT × ResNet"}
    with theme.drawing(subjects=run.scene.subjects, for_export=True):
        maps: list[Any] = [
            layer_map(finding, *pair, (HEIGHT, HEIGHT)).properties(title=title) for pair, title in titles.items()
        ]
        curve = best_match(finding, vit, cnn).properties(title="d  best match in the ResNet", height=HEIGHT)
        row = theme.panels([theme.panels(maps, columns=3), curve], columns=2, shared=())
        return picture_of(specification(theme.dress(row)), "png", 1.5)


def photograph(browser: str, page: Path, target: Path) -> None:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={PAGE[0]},{PAGE[1]}"]
    command = [browser, *flags, f"--screenshot={target}", page.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
