"""One Chromium for all tests of a process: starting it takes a second. Each test has a window of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright import sync_api

from .browser import Browser, chromium

DESK = (1400, 900)


@pytest.fixture(scope="session")
def chromium_process() -> Iterator[sync_api.Browser]:
    path = chromium()
    with sync_api.sync_playwright() as playwright:
        process = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield process
        process.close()


@pytest.fixture
def browser(request: pytest.FixtureRequest, chromium_process: sync_api.Browser) -> Iterator[Browser]:
    """A window; indirect parameters: its width and height, and what else it is. Nothing may complain or be fetched."""
    width, height, *more = getattr(request, "param", DESK)
    options = more[0] if more else {}
    context = chromium_process.new_context(viewport={"width": width, "height": height}, **options)
    window = Browser(context)
    yield window
    context.close()
    assert window.complaints == []
    assert {address.split(":")[0] for address in window.requests} <= {"file", "data", "about"}
