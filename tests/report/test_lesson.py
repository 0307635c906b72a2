"""The explorer's lesson: what is carried into it, and that each step is called what it is, in both languages."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
import xarray

from eyechart.report import explorer, lesson, page

from .browser import Browser
from .synthetic import as_run, synthetic_run
from .test_explorer import DESK, opened, place, run_with_maps, state

PLACE = {
    "name": "block 9",
    "images": 7,
    "grid": [4, 4],  # coarser than the patches that can be asked
    "tokens": [[0, 0], [1, 3], [3, 0]],
    "largest": 0.5,
    "values": lesson.in_bytes(np.eye(16)[[5, 11, 2]]),
}


WORDS = {
    "en": (
        "zoo:vit, likeness of pixels, nothing learned",
        "zoo:vit, block 9, likeness of its token to each patch",
        "Of zoo:vit, the final token of row 2, column 4 is most like the patch in row 3, column 4: CKA 0.50.",
        "zoo:vit, block 5, what its middle answers to",
    ),
    "ko": (
        "zoo:vit, 픽셀의 닮음, 학습된 것 없음",
        "zoo:vit, 블록 9, 토큰과 각 패치의 닮음",
        "zoo:vit: 2행 4열의 마지막 토큰과 가장 닮은 패치: 3행 4열, CKA 0.50.",
        "zoo:vit, 블록 5, 가운데가 반응하는 곳",
    ),
}


@pytest.mark.parametrize("browser", [DESK], indirect=True)
@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_map_is_called_what_it_is(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    """Pixels are of no block, final tokens of the last block; and of the token that is kept, not of the asked patch."""
    reach = {"images": 7, "grid": [4, 4], "blocks": {"block 5": lesson.in_bytes(np.eye(4))}}
    monkeypatch.setattr(explorer, "lesson", lambda *_: {"place": PLACE, "reach": reach})
    run = run_with_maps(tmp_path)
    page.write_report(as_run(run), lang=language)
    opened(browser, run)
    browser.click(*place(browser, "picture", 2, 6))
    assert state(browser)["layer"] == 4

    def show(step: str) -> tuple[str, str]:
        browser.page.click(f".steps [data-show={step}]")
        assert browser.wait_for(f"document.getElementById('explorer').dataset.show === '{step}'")
        what, said = (browser.page.inner_text(f"#explorer [data-part={part}]") for part in ("what", "said"))
        return what, said

    pixels, final, token, reached = WORDS[language]
    what, said = show("pixels")
    assert what == pixels
    assert said.startswith(
        "Of zoo:vit, by pixels alone the patch in row 3, column 7 looks most at row"
        if language == "en"
        else "zoo:vit: 픽셀만으로"
    )
    assert browser.page.is_disabled("#explorer [data-part=tokens] button")  # no pixels, no likeness
    assert show("place") == (final, token)
    assert show("reach")[0] == reached
    assert browser.page.is_disabled("#explorer [data-part=tokens] button")  # it is the middle that is asked


def test_a_lesson_carries_place_and_reach_where_they_were_measured(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path)
    assert lesson.lesson(as_run(run), "zoo:vit") == {"place": None, "reach": None}
    names = [f"row {row}, column {column}" for row in (1, 2) for column in (1, 2)]
    cka = np.array([[0.4, -0.1, 0.0, 0.2], [0.1, 0.3, 0.0, 0.0], [np.nan] * 4])
    run.findings["localisation"] = xarray.Dataset(
        {"cka": (("site", "token", "patch"), np.stack([cka, 0 * cka]))},
        coords={
            "subject": ("site", ["zoo:vit", "zoo:vit"]),
            "name": ("site", ["block 9", "block 1"]),
            "final": ("site", [True, False]),
            "rows": ("site", [2, 2]),
            "columns": ("site", [2, 2]),
            "token_place": (("site", "token"), [[*names[::3], "class token"]] * 2),
        },
        attrs={"images": 7},
    )
    found = lesson.lesson(as_run(run), "zoo:vit")["place"]
    assert (found["name"], found["tokens"], found["largest"], found["images"]) == ("block 9", [[0, 0], [1, 1]], 0.4, 7)
    assert list(base64.b64decode(found["values"])) == [255, 0, 0, 128, 64, 191, 0, 0]
