"""Photograph parts of docs/example/index.html for the README: python scripts/page_pictures.py

Takes a headless Chromium (`--browser`) and half a minute; the page itself is made by scripts/example_page.py.
"""

from __future__ import annotations

import argparse
import io
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "docs" / "example"
WIDTH, SHARPNESS, QUALITY, MARGIN = 1400, 1.25, 72, 16
LARGEST = 400_000
"""Bytes of all pictures together: they travel with every clone."""

CELL = """([subject, name, other, otherName]) => {
  const figure = document.querySelector("[data-chart=cka]"), { view } = window.eyechart.views.get(figure);
  const edge = figure.querySelector("canvas").getBoundingClientRect(), [left, top] = view.origin();
  const find = (item, x, y) => {
    const { datum, bounds } = item, found = [datum?.subject, datum?.name, datum?.other_subject, datum?.other_name];
    if (item.mark?.marktype === "rect" && `${found}` === `${[subject, name, other, otherName]}`) {
      return [x + (bounds.x1 + bounds.x2) / 2, y + (bounds.y1 + bounds.y2) / 2];
    }
    const inside = item.items ?? [], group = item.mark?.marktype === "group";
    for (const each of inside) {
      const place = find(each, x + (group ? item.x ?? 0 : 0), y + (group ? item.y ?? 0 : 0));
      if (place) return place;
    }
    return null;
  };
  return find(view.scenegraph().root, left + edge.x, top + edge.y);
}"""
"""Where the cell of two layers lies on the screen."""


@dataclass(frozen=True)
class Picture:
    show: Callable[[Page], None]
    """Brings the page to what is photographed."""
    parts: tuple[str, ...]
    """What must be on the picture, from the first to the last."""
    height: int = 2000
    """Pixels at most; what is below is cut off."""
    apart: int = MARGIN
    """Pixels above and below; fewer where other words stand so close that their half was on the picture."""
    width: int = WIDTH
    look: tuple[tuple[str, Any], ...] = ()


def opening(page: Page) -> None:
    page.evaluate("window.scrollTo(0, 0)")


def some_verdicts(page: Page) -> None:
    page.evaluate("document.getElementById('decided').open = true")


def two_subjects(page: Page) -> None:
    page.locator("#explorer").scroll_into_view_if_needed()
    until(page, "document.querySelectorAll('#explorer .heads canvas').length > 0")
    page.locator("#explorer canvas[tabindex]").first.click()


def cell_as_curves(page: Page) -> None:
    page.locator("[data-chart=cka]").scroll_into_view_if_needed()
    until(page, "document.querySelector('[data-chart=cka] .live canvas') !== null")
    x, y = page.evaluate(CELL, ["zoo:vit", "block 3", "zoo:resnet", "block 4"])
    page.mouse.click(x, y)
    until(page, "document.querySelector('.cell')?.dataset.shown")
    page.mouse.move(2, 2)  # its tooltip would lie over the map beside it


def in_korean(page: Page) -> None:
    page.evaluate("document.querySelector('[data-language=ko]').click()")


PICTURES = {
    "top": Picture(opening, (".title", "#highlights")),
    "verdicts": Picture(some_verdicts, ("#decided table thead", "#decided table tbody tr >> nth=1"), apart=2),
    "explorer": Picture(two_subjects, ("#explorer .easels",), apart=2),
    "cka": Picture(cell_as_curves, ("#measure-cka h3", ".cell")),
    "korean": Picture(in_korean, (".title", "#highlights"), height=780, width=390, look=(("color_scheme", "dark"),)),
}
"""File names without their ending, and what is on them."""


def until(page: Page, condition: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not page.evaluate(condition):  # not Playwright's own wait, which makes code from text: the page forbids that
        if time.monotonic() > end:
            raise SystemExit(f"The page did not get there in {seconds:.0f} s: {condition}.")
        page.wait_for_timeout(50)


def photograph(browser: Browser, picture: Picture) -> bytes:
    context = browser.new_context(
        viewport={"width": picture.width, "height": 900}, device_scale_factor=SHARPNESS, **dict(picture.look)
    )
    page = context.new_page()
    page.goto((FOLDER / "index.html").as_uri())
    picture.show(page)
    page.evaluate("document.querySelectorAll('.alone').forEach((button) => { button.style.visibility = 'hidden'; })")
    page.wait_for_timeout(1500)  # what slides and fades has arrived
    boxes = [page.locator(part).first.bounding_box() for part in picture.parts]
    seen = [box for box in boxes if box is not None]
    left, right = min(box["x"] for box in seen) - MARGIN, max(box["x"] + box["width"] for box in seen) + MARGIN
    top = min(box["y"] for box in seen) - picture.apart
    bottom = max(box["y"] + box["height"] for box in seen) + picture.apart
    above = page.evaluate("window.scrollY")
    clip = {"x": left, "y": top + above, "width": right - left, "height": min(bottom - top, picture.height)}
    shot = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip)))  # type: ignore[arg-type]
    context.close()
    file = io.BytesIO()
    shot.convert("RGB").save(file, "WEBP", quality=QUALITY, method=6)
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    found = parser.parse_args().browser
    if found is None:
        parser.error("no Chromium was found to photograph the page with; name one with --browser.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        made = {name: photograph(browser, picture) for name, picture in PICTURES.items()}
        browser.close()
    size = sum(map(len, made.values()))
    if size > LARGEST:
        raise SystemExit(f"The pictures have {size:,} bytes, more than the {LARGEST:,} they may have together.")
    for name, data in made.items():
        (FOLDER / f"{name}.webp").write_bytes(data)
        print(f"docs/example/{name}.webp: {len(data) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
