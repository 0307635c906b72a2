"""One Chromium for all tests of a process: starting it takes a second. Each test has a window of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright import sync_api

from .browser import Browser, chromium

DESK = (1280, 9000)


@pytest.fixture(scope="session")
def chromium_process() -> Iterator[sync_api.Browser]:
    path = chromium()
    with sync_api.sync_playwright() as playwright:
        process = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield process
        process.close()


@pytest.fixture
def browser(request: pytest.FixtureRequest, chromium_process: sync_api.Browser) -> Iterator[Browser]:
    """A window; indirect parameters: its width and height."""
    width, height = getattr(request, "param", DESK)
    context = chromium_process.new_context(viewport={"width": width, "height": height})
    yield Browser(context)
    context.close()
