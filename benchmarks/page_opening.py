"""How long a page takes to open in the machine's Chromium: page_opening.py REPORT.html [REPORT.html …] [--repeats N].

Until its text can be read, until its first chart is alive after a jump to it, and how many megabytes it has.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ALIVE = "() => document.querySelector('figure.chart .live canvas') !== null"


def seconds_to_open(browser: Browser, path: Path) -> tuple[float, float]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    start = time.perf_counter()
    page.goto(path.resolve().as_uri(), wait_until="domcontentloaded")
    readable = time.perf_counter() - start
    page.evaluate("document.querySelector('figure.chart').scrollIntoView()")
    while not page.evaluate(ALIVE):
        page.wait_for_timeout(10)
    alive = time.perf_counter() - start
    page.close()
    return readable, alive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise SystemExit("This needs chromium or google-chrome; found neither. Install Debian's chromium.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for path in asked.pages:
            times = [seconds_to_open(browser, path) for _ in range(asked.repeats)]
            readable, alive = (statistics.median(each) for each in zip(*times, strict=True))
            size = path.stat().st_size / 1e6
            print(json.dumps({"page": str(path), "MB": round(size, 2), "readable": readable, "first chart": alive}))
        browser.close()


if __name__ == "__main__":
    main()
