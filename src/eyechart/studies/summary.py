"""How many claims are decided, and how surely: what the page of the studies says at its head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eyechart.studies.claim_answers import Answer
from eyechart.studies.side_by_side import DECIDED

TRIAL = (
    "Before row 1 was registered, 11 of its arms had been trained and measured in a trial (2 seeds, 8 minibatches "
    "instead of 64), and their numbers were seen. Mean positive eigenvalue of seeds 0 and 1: vit 86, 76; vit-gap "
    "40, 32; resnet 53, 48; kernel-3 and kernel-5 42, 32; patch-8 78, 68; heads-2 56, 48; swin 60, 59; alternet "
    "298, 221; on 6 % of the data vit 56, 47 and resnet 14, 14. Share of negative ones: vit 0.10, 0.10; resnet 0, 0; "
    "vit on 6 % 0.33, 0.33. They are no records and decide nothing: margins were set before the trial and stayed, and "
    "row 1 was trained anew. But seeds 0 and 1 are among its own, and whoever wrote its tests could know which way "
    "these arms lie: “registered before the runs” says less in row 1 than elsewhere."
)
"""What was known before the first row; the head of the page and of docs/reproduction.md tell it."""


@dataclass(frozen=True)
class Summary:
    """How many claims are decided, and how surely. A claim counts as decided if any verdict on it is."""

    claims: int
    over_seeds: int
    whole: int
    """Of those decided over seeds: all verdicts over seeds say the same, and nothing of the sentence is left to ask."""
    partly: int
    """Some verdicts over seeds are undecided, or a part of the sentence is untested or to come; no two contradict."""
    hold: tuple[int, int]
    """How many hold: of those decided as a whole, of those in part. The others fail."""
    both: tuple[str, ...]
    """Hold in one reading or on one model and fail in another, over seeds."""
    otherwise: tuple[str, ...]
    """Hold or fail on the bundled weights in some reading or on some model, which no verdict over seeds says."""
    stay: int
    """Have a verdict over seeds that stays decided under Holm's correction."""
    intervals: int
    """Of all verdicts over seeds: what was corrected for."""
    later: tuple[str, ...]
    """Decided by no test that was registered before its runs."""
    proxies: tuple[str, ...]
    """Decided as proxies only."""
    of_weights: int
    """Decided on the bundled weights alone."""
    undecided: int
    not_yet: int

    @property
    def sentences(self) -> list[str]:
        told = [
            f"Of the {self.over_seeds} claims decided over seeds, {self.whole} are decided as a whole "
            f"({self.hold[0]} hold, {self.whole - self.hold[0]} fail): alike over seeds in every reading and on every "
            f"model that was asked, with nothing left to ask. {self.partly} are decided in part ({self.hold[1]} hold, "
            f"{self.partly - self.hold[1]} fail): something of them is undecided, not tested, or to come."
        ]
        if self.both:
            told.append(
                f"Over seeds holding in one reading or on one model and failing in another: {', '.join(self.both)}."
            )
        if self.otherwise:
            told.append(
                "Decided the other way on the bundled weights, in some reading or on some model: "
                f"{', '.join(self.otherwise)}."
            )
        if self.proxies:
            told.append(f"Decided by a scaled-down proxy only: {', '.join(self.proxies)}.")
        if self.later:
            told.append(f"Decided by a test that was added or changed after its runs: {', '.join(self.later)}.")
        told.append(
            f"Each interval is a 95 % one by itself; corrected for all {self.intervals:,} of them (Holm), {self.stay} "
            f"of the {self.over_seeds} stay decided, and verdicts that do not are marked."
        )
        return told


def summary(all_answers: Sequence[Answer]) -> Summary:
    by_claim = {each.claim.id: [studied.verdict for studied in each.studied] for each in all_answers}
    decided = {claim: [one for one in mine if one.verdict in DECIDED] for claim, mine in by_claim.items()}
    decided = {claim: mine for claim, mine in decided.items() if mine}
    words = {claim: {verdict.verdict for verdict in by_claim[claim]} for claim in decided}
    on_weights = {each.claim.id: {one.verdict for one in each.examined} & set(DECIDED) for each in all_answers}
    left = {each.claim.id for each in all_answers if each.waiting or each.untested}
    whole = {claim for claim, said in words.items() if len(said) == 1 and claim not in left}
    both = tuple(claim for claim, said in words.items() if said >= set(DECIDED))
    registered = {
        each.claim.id: {one.registered for one in each.studied if one.verdict.verdict in DECIDED}
        for each in all_answers
    }
    of_weights = sum(each.decided and each.claim.id not in decided for each in all_answers)
    return Summary(
        claims=len(all_answers),
        over_seeds=len(decided),
        whole=len(whole),
        partly=len(decided) - len(whole) - len(both),
        hold=(
            sum("holds" in words[claim] for claim in whole),
            sum("holds" in said for claim, said in words.items() if claim not in {*whole, *both}),
        ),
        both=both,
        otherwise=tuple(claim for claim, said in words.items() if on_weights[claim] - said),
        stay=sum(any(verdict.stands for verdict in mine) for mine in decided.values()),
        intervals=sum(
            math.isfinite(part.p) for mine in by_claim.values() for verdict in mine for part in verdict.parts
        ),
        later=tuple(claim for claim in decided if "before the runs" not in registered[claim]),
        proxies=tuple(claim for claim, mine in decided.items() if all(verdict.proxy for verdict in mine)),
        of_weights=of_weights,
        undecided=sum(bool(each.verdicts) and not each.decided for each in all_answers),
        not_yet=sum(not each.verdicts for each in all_answers),
    )
