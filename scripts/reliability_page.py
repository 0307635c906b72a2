"""docs/reliability.md from what was counted: python scripts/reliability_page.py

`scripts/faults.py` (make faults) keeps its counts in `scripts/fault_counts.json`, `fuzz/` in `fuzz/counts.json`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COUNTS, FUZZED = ROOT / "scripts" / "fault_counts.json", ROOT / "fuzz" / "counts.json"
PAGE = ROOT / "docs" / "reliability.md"

STAGES = (
    "before the plan",
    "before the first shard",
    "shards",
    "findings, verdicts and page",
    "after the page",
)
"""What the folder of an exam holds, in the order in which it comes."""


def read(path: Path) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return counts


def fuzzed(counts: Mapping[str, Any]) -> str:
    """What `fuzz/` counted, as far as it has been run."""
    kinds = {"random": "random changes (`fuzz/readers.py`)", "guided": "guided by coverage (`fuzz/guided.py`)"}
    lines = []
    for kind, words in kinds.items():
        entries = counts.get(kind, {}).values()
        total, wrong = (sum(entry[key] for entry in entries) for key in ("inputs", "not ours"))
        last = max((entry["on"] for entry in entries), default="never")
        lines.append(f"| {words} | {len(entries)} | {total:,} | {wrong} | {last} |")
    return "\n".join(lines)


def kills_in(sessions: Sequence[Mapping[str, Any]]) -> int:
    return sum(sum(session["kills"].values()) for session in sessions)


def stages_of(sessions: Sequence[Mapping[str, Any]]) -> str:
    counts = sum((Counter(session["kills"]) for session in sessions), Counter[str]())
    return "\n".join(f"| {stage} | {counts[stage]} |" for stage in STAGES)


def sessions_of(sessions: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(
        f"| {session['on']} | {session['machine']} | {sum(session['kills'].values())} | {session['exams']} | "
        f"{session['longest']} | {session['seconds']:.1f} |"
        for session in sessions
    )


def log_of(tried: Mapping[str, Any] | None) -> str:
    """What was tried on a cluster, as it was said, after the day on which that was."""
    if not tried:
        return "(not tried)"
    return "\n".join([f"{tried['on']}, {tried['machine']}", *tried["log"]])


def text(counts: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    sessions, clusters = counts.get("sessions", []), counts.get("clusters", {})
    exams, equal, left_over = (sum(session[key] for session in sessions) for key in ("exams", "equal", "left over"))
    together, apart, hungry = (log_of(clusters.get(name)) for name in ("together", "apart", "without memory"))
    return f"""# Reliability: what was tried, and what was lost

Made by `scripts/reliability_page.py` from what `make faults` and `fuzz/` counted; do not edit by hand.

## Killed exams

{kills_in(sessions)} times an exam was killed (SIGKILL) at a random moment and begun again by the same call, until it
ended: {exams} exams. In **{equal} of {exams}** every finding equals that of an undisturbed exam bit for bit, and the
verdicts byte for byte.
Temporary files left at the end: {left_over}.

| what the folder held when it was killed | kills |
|---|---|
{stages_of(sessions)}

| counted on | by | kills | exams | most kills in one | an exam undisturbed, seconds |
|---|---|---|---|---|---|
{sessions_of(sessions)}

## A cluster that loses a machine

The same exam on a Ray cluster of a head and two nodes, of which one is killed in the middle:

```
{together}
```

The same with each subject in a task of its own, as where not all of them fit into one worker. What a task saw on the
node that is lost has to be seen again before its shard can be added up:

```
{apart}
```

## A cluster without memory

An exam on a Ray cluster whose memory monitor kills every task, as it does where a machine's memory is short:

```
{hungry}
```

## Hostile files

Every reader of files, names and arguments (`tests/readers.py`) on inputs that were changed. A reader may read or refuse
with one of our errors; what else came, or took longer than seconds, is counted as not ours.

| changes | readers | inputs | not ours | last run |
|---|---|---|---|---|
{fuzzed(inputs)}
"""


if __name__ == "__main__":
    PAGE.write_text(text(read(COUNTS), read(FUZZED)), encoding="utf-8")
    print(PAGE)
