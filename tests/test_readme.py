"""What README.md and docs/ count and list is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eyechart import measures, zoo
from eyechart.claims.table import CLAIMS
from eyechart.cli import main
from eyechart.corruptions import SEVERITIES, TYPES
from tests.families import FAMILIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(README.split())


@pytest.mark.parametrize(
    ("sentence", "count"),
    [
        (r"`eyechart claims` lists (\d+) published sentences", len(CLAIMS)),
        (r"An exam can decide (\d+) of them", sum(bool(claim.tests) for claim in CLAIMS.values())),
        (r"on \[(\d+) architecture families\]", len(FAMILIES)),
        (r"the (\d+) corruptions", len(TYPES) * SEVERITIES),
    ],
)
def test_numbers_are_counted(sentence: str, count: int) -> None:
    assert re.findall(sentence, WORDS) == [str(count)]


def test_every_measure_is_in_the_table_once() -> None:
    table = README.partition("## What is measured")[2].partition("\n\nMeasures that")[0]
    first_column = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    listed = [name for cell in first_column for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(listed) == sorted(measures.names())


def test_every_bundled_model_is_named_with_its_accuracy() -> None:
    named = {name: float(accuracy) for name, accuracy in re.findall(r"`zoo:([\w-]+)` \(([\d.]+) %\)", WORDS)}
    cards = {name: zoo.card(name) for name in zoo.names() if zoo.weights(name) is not None}
    assert named == {name: pytest.approx(100 * card["accuracy"], abs=0.0501) for name, card in cards.items()}


def test_every_command_is_one() -> None:
    commands = set(re.findall(r"(?:^|`|  )eyechart ([a-z]+)", README, re.MULTILINE))
    assert commands
    assert commands <= set(main.commands)


def test_the_page_of_all_claims_has_the_sentences_of_the_table() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(C\d+)\]\(#c\d+\) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert dict(rows) == {claim.id: claim.sentence for claim in CLAIMS.values()}
    assert f"Of {len(CLAIMS)} claims " in page
