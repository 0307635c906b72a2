"""Look at a page in all its widths, themes and languages: python scripts/look_at.py PAGE.html --out FOLDER

Opens it in headless Chromium, unfolds everything, draws every figure, and lists what can be told to be broken without
eyes (look/faults.js): words over words, cut off, too small, beyond an edge. With `--pictures` the page is photographed,
too, in slices of one screen. A fault that only eyes can find is not found here.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent / "look"
FAULTS, PARTS = (HERE / "faults.js").read_text(), (HERE / "parts.js").read_text()
BROADEST = 1200
BAR_BELOW = 1100
"""Where exam.css makes a bar of what stands beside the page."""
HEIGHTS = {1440: 980, 800: 1400, 390: 980}
"""So that a picture is about one megapixel, which is shown without shrinking."""
UNFOLD = "document.querySelectorAll('details:not(.menu)').forEach((fold) => { fold.open = true; })"
"""All but the contents, which lie over the whole screen of a phone."""
ALIVE = "!document.querySelectorAll('figure[data-chart]')[%d].querySelector('.live')?.hidden"


def drawn(page: Page) -> None:
    """Every figure is drawn when it comes near the window: each is shown until it is."""
    many = page.evaluate("document.querySelectorAll('figure[data-chart]').length")
    for number in range(many):
        figure = f"document.querySelectorAll('figure[data-chart]')[{number}]"
        if not page.evaluate(f"{figure}.checkVisibility()"):
            continue
        page.evaluate(f"{figure}.scrollIntoView()")
        end = time.monotonic() + 20
        while not page.evaluate(ALIVE % number) and time.monotonic() < end:
            page.wait_for_timeout(30)
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(600)


def pictures(page: Page, folder: Path, combination: str) -> None:
    """Each part in slices of one window, as many beside one another as are read without shrinking.

    They are called PART-1440-light-en-0.png and so on.
    """
    width, height = page.evaluate("[window.innerWidth, window.innerHeight]")
    if width <= BAR_BELOW:  # it would lie over the first lines of every slice
        page.evaluate("document.querySelector('.side')?.style.setProperty('position', 'static', 'important')")
    left = page.evaluate("document.querySelector('.paper')?.getBoundingClientRect().left ?? 0")
    abreast = max(1, BROADEST // (width - left))
    for name, top, tall in page.evaluate(PARTS):
        shots = []
        for start in range(0, int(tall), height):
            page.evaluate(f"window.scrollTo(0, {top + start})")
            page.wait_for_timeout(60)
            above = page.evaluate(f"{top + start} - window.scrollY")  # at the end of the page it does not scroll so far
            clip: Any = {"x": left, "y": above, "width": width - left, "height": min(height - above, tall - start + 8)}
            shots.append(Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB"))
        for number, some in enumerate(shots[at : at + abreast] for at in range(0, len(shots), abreast)):
            sheet = Image.new(
                "RGB", (sum(one.width + 8 for one in some) - 8, max(one.height for one in some)), "#888888"
            )
            x = 0
            for one in some:
                sheet.paste(one, (x, 0))
                x += one.width + 8
            sheet.save(folder / f"{name}-{combination}-{number}.png")


def look(browser: Browser, address: str, combination: tuple[int, Any, str], options: Any) -> list[dict[str, str]]:
    width, theme, language = combination
    height = options.height or HEIGHTS.get(width, 980)
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, has_touch=width < 500
    )
    page = context.new_page()
    page.set_default_timeout(180_000)
    said: list[dict[str, str]] = []

    def hear(words: str) -> None:
        said.append({"kind": "console", "where": "page", "what": words})

    page.on("console", lambda line: hear(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: hear(str(error)))
    page.goto(address)
    if page.evaluate("document.documentElement.lang") != language:
        page.evaluate(f"document.querySelector('[data-language={language}]')?.click()")
    for each in options.do:
        page.evaluate(each)
    if not options.folded:
        page.evaluate(UNFOLD)
    drawn(page)
    faults = page.evaluate(FAULTS)
    if options.pictures:
        pictures(page, options.out, f"{width}-{theme}-{language}")
    context.close()
    return [*said, *faults]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/look"))
    parser.add_argument("--widths", default="1440,800,390")
    parser.add_argument("--themes", default="light,dark")
    parser.add_argument("--languages", default="en,ko")
    parser.add_argument("--do", action="append", default=[], help="JavaScript to run after opening, such as a click")
    parser.add_argument("--folded", action="store_true", help="leave folded what is folded")
    parser.add_argument("--pictures", action="store_true")
    parser.add_argument("--height", type=int, help="of the window, and so of each picture")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    combinations = itertools.product(
        map(int, options.widths.split(",")), options.themes.split(","), options.languages.split(",")
    )
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    program = next(path for name in names if (path := shutil.which(name)))
    found: dict[tuple[str, str, str], list[str]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        for combination in combinations:
            faults = look(browser, options.page.resolve().as_uri(), combination, options)
            name = "-".join(map(str, combination))
            print(name, dict(Counter(each["kind"] for each in faults)), flush=True)
            for each in faults:
                places = found.setdefault((each["kind"], each["where"], each["what"]), [])
                if name not in places:
                    places.append(name)
        browser.close()
    lines = [
        {"kind": kind, "where": where, "what": what, "in": places}
        for (kind, where, what), places in sorted(found.items())
    ]
    (options.out / "faults.json").write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n")
    print(f"{len(lines)} faults: {options.out / 'faults.json'}")


if __name__ == "__main__":
    main()
