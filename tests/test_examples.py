"""Every example runs, in a fresh folder and without a network, and its page is there at the end."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from eyechart import measures

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.fixture
def own_measures() -> Iterator[None]:
    """What an example makes known in this process is taken away again."""
    yield
    measures._from_files.clear()
    measures.measures.cache_clear()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("own_measures", "few_draws", "no_charts")
def test_it_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runpy.run_path(str(path), run_name="__main__")
    *printed, last = capsys.readouterr().out.strip().splitlines()
    assert Path(last).is_file()
    assert any(re.search(r"\d\.\d+ \[\d\.\d+, \d\.\d+\]", line) for line in printed), "a number with its interval"


def test_every_example_is_told_in_a_sentence() -> None:
    for path in EXAMPLES:
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert re.fullmatch(r'"""[A-Z].*\.', first), path.name
