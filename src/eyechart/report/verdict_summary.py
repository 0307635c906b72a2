"""What the page says of all verdicts together: how many of each kind, and how far they can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eyechart.report.verdict_rows import KINDS, at_a_glance, claim_spans

if TYPE_CHECKING:
    from eyechart.claims.summary import Summary
    from eyechart.run import Run

HOLM = (
    "The others are marked “not under Holm”: each is clear of its margin by itself, but among so many intervals some "
    "are so by chance. (For bootstrap intervals the correction is approximate.)"
)


def of_weights(run: Run) -> list[str]:
    """Claims whose interval is not about images, because their measure reads weights only."""
    read = {name for name, finding in run.findings.items() if finding.attrs.get("of_weights")}
    return sorted({verdict.claim for verdict in run.verdicts if verdict.parts and verdict.measure in read})


def verdict_context(
    verdict_rows: list[dict[str, Any]], counted: Summary, without_images: Sequence[str] = ()
) -> dict[str, Any]:
    by_word = {word: [row for row in verdict_rows if row["kind"].word == word] for word in KINDS}
    numbers = {word: len(part) for word, part in by_word.items()}
    decided, undecided, not_tested = by_word["holds"] + by_word["fails"], by_word["undecided"], by_word["not tested"]
    tested = len(decided) + len(undecided)
    several = {
        "holds": "tests hold",
        "fails": "tests fail",
        "undecided": "tests undecided",
        "not tested": "claims not tested",
    }
    one = {
        "holds": "test holds",
        "fails": "test fails",
        "undecided": "test undecided",
        "not tested": "claim not tested",
    }
    targets = {"holds": "decided", "fails": "decided", "undecided": "undecided", "not tested": "not-tested"}
    groups = [("decided", "Decided", decided), ("undecided", "Undecided", undecided)]
    return {
        "tally": [
            {
                "slug": kind.slug,
                "number": numbers[word],
                "caption": plural(numbers[word], one[word], several[word]),
                "target": targets[word],
            }
            for word, kind in KINDS.items()
        ],
        "summary": summary(tested, numbers, len({row["claim"] for row in decided + undecided if row["changed"]})),
        "notes": [multiplicity(counted), about_intervals(without_images)],
        "glance": at_a_glance(verdict_rows),
        "corrected_away": any(row["corrected_away"] for row in verdict_rows),
        "kinds": [KINDS[word] for word in ("holds", "fails", "undecided")],
        "verdict_groups": [
            {"id": name, "heading": heading, "rows": claim_spans(part)} for name, heading, part in groups if part
        ],
        "not_tested": not_tested,
    }


def summary(tested: int, numbers: Mapping[str, int], changed: int = 0) -> str:
    if not tested:
        return "None of the published claims could be tested on these subjects."
    return (
        f"{tested} {plural(tested, 'test', 'tests')} of published claims on exactly these weights: "
        f"{numbers['holds']} {plural(numbers['holds'], 'holds', 'hold')}, "
        f"{numbers['fails']} {plural(numbers['fails'], 'fails', 'fail')}, "
        f"{numbers['undecided']} {plural(numbers['undecided'], 'is', 'are')} undecided. "
        f"{numbers['not tested']} more {plural(numbers['not tested'], 'claim needs', 'claims need')} other subjects, "
        "measures or training."
    ) + after_results(changed)


def after_results(changed: int) -> str:
    """How many claims are decided in another way than when results were first seen.

    >>> after_results(1), after_results(0)
    (' How 1 of the tested claims is decided was changed after results were seen; it says how.', '')
    """
    if not changed:
        return ""
    are, says = plural(changed, "is", "are"), plural(changed, "it says how", "each says how")
    return f" How {changed} of the tested claims {are} decided was changed after results were seen; {says}."


def plural(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def multiplicity(counted: Summary) -> str:
    """How many intervals there were, because some 95 % intervals miss by chance, and what a correction leaves."""
    were = plural(counted.intervals, "interval was", "intervals were")
    correction = f" {counted.correction}" if counted.correction else ""
    others = f" {HOLM}" if counted.stand is not None and counted.stand < counted.decided else ""
    return (
        f"{counted.intervals} {were} compared with a margin. About one in twenty 95 % intervals misses the truth by "
        f"chance: expect {counted.expected} here.{correction}{others}"
    )


def about_intervals(without_images: Sequence[str] = ()) -> str:
    """What intervals and margins are."""
    others = ", ".join(without_images)
    except_for = f" (those of {others} do not: they read weights alone, and their measures say what varied)"
    return (
        f"Intervals cover which images were drawn{except_for if others else ''}; margins are eyechart's own, "
        "all in the table that `eyechart claims` prints. In the small pictures the shaded side of the dashed margin is "
        "where the claim says the effect lies; beyond a dotted line, where there is one, it fails, and between the two "
        "nothing is decided."
    )


# --- measures ---------------------------------------------------------------------------------------------------------
