"""A page of one figure, opened in a browser, and what is asked of its panels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import xarray as xr

from eyechart.report import page

from .browser import Browser
from .synthetic import as_run, synthetic_run

#: Widths of the panels of a live chart, and the names of its dashed lines.
PANELS_OF = """(() => {
  const widths = [], names = [], upright = [], { view } = window.eyechart.views.get(%s);
  const look = (group) => group.items.forEach((mark) => mark.items.forEach((item) => {
    if (/concat_\\d+_group$/.test(mark.name)) widths.push(item.width);
    if (mark.marktype === 'text' && item.fontStyle === 'italic' && item.text && item.stroke) names.push(item.text);
    if (mark.role === 'axis-title' && item.angle === -90) upright.push([item.bounds.y2 - item.bounds.y1, item.text]);
    if (mark.marktype === 'group') look(item);
  }));
  view.scenegraph().root.items.forEach(look);
  return [widths, names, upright];
})()"""


def drawn(browser: Browser, tmp_path: Path, chart: Callable[[xr.Dataset], Any]) -> str:
    """Where the page shows this chart, once it is drawn."""
    run = synthetic_run(tmp_path)
    run.measures["feature_variance"].chart = chart
    run.findings = {"feature_variance": run.findings["feature_variance"]}  # the others' charts take a second
    browser.open(page.write_report(as_run(run)))
    figure = "document.querySelector('figure[data-chart=feature_variance]')"
    browser.ask(f"{figure}.scrollIntoView()")
    assert browser.wait_for(f"!{figure}.querySelector('.live').hidden")
    return figure


PLACES = """(() => {
  const found = [], look = (group) => group.items.forEach((mark) => mark.items.forEach((item) => {
    if (/concat_\\d+_group$/.test(mark.name)) found.push([Math.round(item.x), Math.round(item.y)]);
    if (mark.marktype === 'group') look(item);
  }));
  window.eyechart.views.get(%s).view.scenegraph().root.items.forEach(look);
  return found;
})()"""
