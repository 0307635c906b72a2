"""The machine's Chromium, driven by Playwright: open a page, ask it things, hear what it complains of and requests."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def chromium() -> str:
    """Where it is. Without one the test is skipped and says so; where one is required (CI), it fails."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        words = f"no browser was tested: found none of {', '.join(NAMES)}; install Debian's chromium"
        if os.environ.get("EYECHART_BROWSER") == "required":
            pytest.fail(f"EYECHART_BROWSER=required, but {words}.", pytrace=False)
        pytest.skip(words)
    return found


class Browser:
    """A window; `complaints` are console errors and policy violations, `requests` the addresses it asked."""

    def __init__(self, context: sync_api.BrowserContext) -> None:
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _console(self, message: sync_api.ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, file: Path, at: str = "") -> None:
        self.page.goto(f"{file.as_uri()}{at}")

    def ask(self, expression: str) -> Any:
        return self.page.evaluate(f"() => ({expression})")

    def wait_for(self, expression: str, seconds: float = 30) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:  # not Playwright's own wait, which makes code from text: the page forbids that
            if self.ask(f"Boolean({expression})"):
                return True
            self.page.wait_for_timeout(50)
        return False

    def click(self, x: float, y: float) -> None:
        self.page.mouse.click(x, y)

    def move(self, x: float, y: float) -> None:
        self.page.mouse.move(x, y)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
