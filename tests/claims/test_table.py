"""The claim table: complete, resolvable, and free of torch."""

import json
import re
import subprocess
import sys

import pytest

from eyechart import measures
from eyechart.claims.gates import GATES
from eyechart.claims.parts import asked
from eyechart.claims.table import CLAIMS, SOURCES, STUDIES, Claim, read_claim, read_claims
from eyechart.errors import EyechartError
from eyechart.measures import find_measure


def test_every_claim_is_there_once_and_in_order() -> None:
    assert list(CLAIMS) == [f"C{number:02}" for number in range(1, 81)], "those of the specification"


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_numbers_are_written_as_on_the_rest_of_the_page(claim: Claim) -> None:
    """ ".05" stood beside "claimed: more than 0.05"."""
    words = " ".join(str(value) for value in vars(claim).values())
    assert not re.findall(r"(?<![\w.])\.\d+", words)


def test_a_claim_that_stands_there_twice_is_named() -> None:
    entries = [{"id": "C98"}, {"id": "C99"}, {"id": "C98"}]
    with pytest.raises(EyechartError, match="C98 is defined twice"):
        read_claims({"claim": entries})


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_every_claim_is_complete(claim: Claim) -> None:
    for field in ("sources", "figure", "sentence", "korean", "quantity", "measures", "reported", "decide", "wants"):
        assert getattr(claim, field), field
    assert claim.sentence.endswith(".")
    assert claim.korean.endswith(".")
    assert any("가" <= letter <= "힣" for letter in claim.korean)
    assert len(claim.sentence) <= 140, "short enough for a table"
    assert set(claim.measures) <= set(measures.names())
    assert claim.margins
    assert all(claim.citations)
    # Every claim looks at trained weights, and a claim about large-scale data is marked as a proxy by its gate.
    assert {"g1", "g1-trained"} & set(claim.gates)
    assert bool({"g3", "g3-large"} & set(claim.gates)) == (claim.need == "C")


@pytest.mark.parametrize(
    ("claim", "margins", "need"),
    [
        ("C02", [("within", 0.01)], "B"),
        ("C09", [("below", 0.5), ("above", 0.8)], "B"),
        ("C13", [("above", 0.1), ("above", 0.1), ("above", 0.0)], "B"),
        ("C14", [("below", 0.35), ("above", 0.05)], "B"),
        ("C16", [("above", 0.0)], "C"),
        ("C18", [("below", -0.5), ("above", 0.05), ("above", 0.1)], "B"),
        ("C24", [("above", 0.8)], "B"),
        ("C28", [("above", 2.0), ("above", 0.0)], "B"),
        ("C33", [("below", 0.02), ("above", 0.05)], "B"),
        ("C44", [("above", 0.05), ("below", 0.05)], "A"),
        ("C62", [("above", 0.005)], "A"),
        ("C67", [("within", 0.02)], "A"),
        ("C79", [("above", 0.6), ("below", 0.85), ("above", 0.05), ("below", 0.0)], "B"),
    ],
)
def test_margins_and_needs_are_those_of_the_specification(
    claim: str, margins: list[tuple[str, float]], need: str
) -> None:
    assert {(margin.side, margin.margin) for margin in CLAIMS[claim].margins} == set(margins)
    assert CLAIMS[claim].need == need


def test_what_an_exam_settles_has_tests_and_nothing_else_has() -> None:
    for claim in CLAIMS.values():
        assert bool(claim.tests) == (claim.settled_by == "exam"), claim.id
        for test in claim.tests:
            assert test.claim == claim.id
            options = find_measure(test.measure).options
            assert {*test.when, *test.unless} <= set(options), "conditions are about options that there are"


def test_what_people_read_names_papers_not_keys_of_the_table() -> None:
    keys = re.compile(r"(?<![\w.–-])(N\d|M\d+|V|R|P)(?![\w.–-])|notes?\b|slides")
    for claim in CLAIMS.values():
        texts = claim.as_json()
        assert not {"sources", "quantity"} & texts.keys()
        del texts["note"]  # of the table itself: a remark
        assert not keys.search(json.dumps(texts, ensure_ascii=False)), claim.id


def test_nothing_is_defined_and_never_used() -> None:
    assert {claim.settled_by for claim in CLAIMS.values()} == {"exam", *STUDIES}
    assert {source for claim in CLAIMS.values() for source in claim.sources} | {"own"} == set(SOURCES)
    assert {gate for claim in CLAIMS.values() for gate in claim.gates} == set(GATES)


def test_a_margin_in_words() -> None:
    assert asked("above", 0) == "more than 0"
    assert asked("below", -0.5, inclusive=True) == "at most −0.5"
    assert asked("outside", 0.02) == "outside ±0.02"


def test_a_wrong_entry_is_named() -> None:
    known = {"sources": {"V": ""}, "evidence": {"text": ""}, "needs": {"A": ""}, "studies": {}}
    entry = {
        "id": "C99", "sources": ["V"], "figure": "1", "sentence": "S.", "korean": "문장.", "quantity": ["M1"],
        "reported": "yes", "evidence": "text", "need": "A", "decide": "d", "gates": ["g1"], "settled_by": "exam",
        "wants": "w",
        "test": [
            {"measure": "cka", "parts": [{"quantity": "x", "side": "above", "margin": 0.0, "words": "x of {0}"}]},
        ],
    }  # fmt: skip
    assert read_claim(entry, known).margins[0].margin == 0.0
    assert read_claim({**entry, "null": "n", "changed": "c"}, known).changed == "c"
    with pytest.raises(EyechartError, match="C99 names 'Z', which is not among the sources"):
        read_claim({**entry, "sources": ["Z"]}, known)
    with pytest.raises(EyechartError, match="C99 names 'g9', which is not among the gates"):
        read_claim({**entry, "gates": ["g9"]}, known)
    with pytest.raises(EyechartError, match="C99 names 'nowhere', which is not among the studies"):
        read_claim({**entry, "settled_by": "nowhere", "margins": [], "measures": []}, known)
    with pytest.raises(EyechartError, match="C99 lacks wants"):
        read_claim({key: value for key, value in entry.items() if key != "wants"}, known)


def test_a_claim_as_json_carries_its_citations_and_words() -> None:
    data = CLAIMS["C13"].as_json()
    assert "2108.08810" in data["citations"][0]
    first = {"of": "uniformity of A above that of B", "side": "above", "margin": 0.1, "inclusive": True}
    assert data["margins"][0] == first
    assert data["readings"][0]["parts"][0]["asks"] == "at least 0.1"
    assert data["readings"][0]["measure"] == "cka"
    assert data["need_words"].startswith("made at larger scale")
    assert {"changed", "null"} <= data.keys()


def test_neither_the_table_nor_stored_verdicts_import_torch() -> None:
    code = "import eyechart.claims.table, eyechart.claims.verdict, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
