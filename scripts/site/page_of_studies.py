"""The page of the studies: what docs/reproduction.md says, with figures and in two languages."""

from __future__ import annotations

from eyechart.studies.bundled_exams import BundledExams
from eyechart.studies.claim_answers import all_records, answers
from eyechart.studies.page import page
from eyechart.studies.questions import questions
from eyechart.studies.records import records_folder
from eyechart.studies.repeats import in_words, repeats

NAME = "studies.html"
LINK = f"[The same as one page, with figures, in English and Korean]({NAME})."


def content() -> str:
    records, exams = all_records(), BundledExams.read()
    claims = answers(records, exams.verdicts)
    again = in_words(repeats(records, records_folder()))
    return page(claims, records, questions(records, claims, exams), exams, made_again=again)


def linked(text: str) -> str:
    """The text with a link to the page under its first paragraph.

    >>> linked("# Title\\n\\nMade by it.\\n\\nData.").splitlines()[4][:12]
    '[The same as'
    """
    head, first, rest = text.split("\n\n", 2)
    return "\n\n".join([head, first, LINK, rest])
