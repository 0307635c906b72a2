"""What README.md and docs/ count and list is what there is."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from eyechart import measures, zoo
from eyechart.claims.table import CLAIMS
from eyechart.cli import main
from eyechart.corruptions import SEVERITIES, TYPES
from tests.families import FAMILIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
KOREAN = (ROOT / "README.ko.md").read_text(encoding="utf-8")
REPRODUCTION = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
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


def test_families_that_are_not_served_whole_are_told() -> None:
    """README counted 149 families and left out those of which the taps miss something."""
    table = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    served, partly, none = (re.findall(rf"\| {status} \|", table) for status in ("served", "partly", "not"))
    assert len(served + partly + none) == len(FAMILIES)
    assert f"{len(served)} are served whole, {len(partly)} in part, {len(none)} not" in WORDS
    korean = " ".join(KOREAN.split())
    assert f"{len(served)}가지는 온전히, {len(partly)}가지는 일부를 보이고, {len(none)}가지는 읽지 못한다" in korean


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
    page = REPRODUCTION
    rows = re.findall(r"^\| \[(C\d+)\]\(#c\d+\) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert dict(rows) == {claim.id: claim.sentence for claim in CLAIMS.values()}
    assert f"Of {len(CLAIMS)} claims, " in page


def test_the_findings_are_those_of_the_records() -> None:
    """Each one: its claim, its verdict over so many seeds, and a number with its interval stand there together."""
    told = README.partition("## Three findings")[2].partition("\n## ")[0]
    findings = re.findall(
        r"\[(C\d+)\]\(docs/reproduction.md#c\d+\) (holds|fails), (\d) seeds\)(?:.(?!\n- ))*?"
        r"(−?\d\.\d+ \[−?\d\.\d+, −?\d\.\d+\])",
        told,
        re.DOTALL,
    )
    assert len(findings) == 3
    for claim, verdict, seeds, number in findings:
        section = REPRODUCTION.partition(f'<a id="{claim.lower()}"></a>')[2].partition("\n## ")[0]
        readings = section.split("\n- **")
        (deciding,) = [text for text in readings if f": {number};" in text]
        bullet = told.partition(f"#{claim.lower()})")[2].partition("\n- ")[0]
        every = re.findall(r"−?\d\.\d+ \[−?\d\.\d+, −?\d\.\d+\]", " ".join(bullet.split()))
        assert [other for other in every if f": {other};" not in section] == [], claim
        assert deciding.startswith(f"{verdict.capitalize()} over {seeds} seeds**"), claim
        assert re.search(rf"^  - {verdict}: .*: {re.escape(number)};", deciding, re.MULTILINE), claim


def test_what_jobs_cost_was_measured() -> None:
    table = " ".join(README.partition("## What is measured")[2].partition("\n## Studies")[0].split())
    measured = " ".join((ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8").split())
    for told, source in {
        "0m52 (idle)": "`--effort quick`: 0m52 on two",
        "10m08 (idle)": "10m08 on two cores",
        "runs everything (19 minutes on one core for the bundled pair)": "19 minutes on one core",
        "1.1 GB for 1,000 and 1.5 GB for 8,000": "1,058 and 1,547 MB",
        "took 81 to 213 s, eight at a time": "81 to 213 s each, eight at a time",
        "costs 1.21 times": "1.21 times",
        "0.097 s a minibatch": "0.097 s a minibatch",
    }.items():
        assert told in table
        assert source in measured


def test_memory_and_disk_of_a_job_are_those_of_a_record() -> None:
    """Each row of README's table says what benchmarks/jobs.py wrote down for such a job, in all columns but the time of
    the bundled pair, which was taken on an idle machine."""
    lines = (ROOT / "benchmarks" / "results" / "jobs.jsonl").read_text(encoding="utf-8").splitlines()
    costs = {
        f"{job['peak_megabytes'] / 1000:.1f} GB | {job['run_megabytes']:.0f} MB": job["seconds"]
        for job in map(json.loads, lines)
    }
    rows = re.findall(r"^\| [^|]*pictures[^|]* \| ([^|]*) \| ([\d.]+ GB \| [\d.]+ MB) \|$", README, re.MULTILINE)
    assert len(rows) >= 3
    for time, cost in rows:
        assert cost in costs
        minutes, seconds = divmod(round(costs[cost]), 60)
        assert "(idle)" in time or time.startswith(f"{minutes}m{seconds:02}")


def test_what_was_not_run_is_counted_up_from_what_was() -> None:
    """The 50,000 pictures on a CPU: on the straight line through two measured sizes, and said to be that."""
    lines = (ROOT / "benchmarks" / "results" / "jobs.jsonl").read_text(encoding="utf-8").splitlines()
    jobs = [job for job in map(json.loads, lines) if job["shared"] and "accelerator" not in job["machine"]]
    small, large = sorted(jobs, key=lambda job: job["images"])
    each = (large["cpu_seconds"] - small["cpu_seconds"]) / (large["images"] - small["images"])
    hours = (large["cpu_seconds"] + each * (50_000 - large["images"])) / 3600
    told = f"{hours:.1f} hours of one core (counted up from {large['images']})"
    memory, disk = f"{large['peak_megabytes'] / 1000:.1f} GB (384)", f"{large['run_megabytes']:.0f} MB (384)"
    assert f"50,000 pictures, shared measures and probes, CPU | {told} | {memory} | {disk} |" in README
    assert f"{hours:.1f}시간 (384장에서 셈해 늘린 값) | {memory[:-1]}장) | {disk[:-1]}장) |" in KOREAN
    took = f"{small['images']} of these pictures took {small['cpu_seconds']:.0f} CPU seconds of one thread"
    then = f"{large['images']} took {large['cpu_seconds']:.0f}, beside other work: {each:.2f} s a picture"
    assert f"{took} and {then}" in WORDS
    growth = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").partition("| images, bundled pair |")[2]
    (exponent,) = re.findall(r"\[exponent (.*?)\]", WORDS)
    assert growth.splitlines()[0].split(" | ")[4] == exponent


def test_the_korean_readme_has_the_same_commands_numbers_and_links() -> None:
    def commands(text: str) -> list[str]:
        blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
        return [re.sub(r" *#.*", "", line) for block in blocks for line in block.splitlines()]

    def parts(text: str, pattern: str) -> list[str]:
        return sorted(re.findall(pattern, re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)))

    assert commands(KOREAN) == commands(README)
    assert len(parts(KOREAN, "(?m)^## ")) == len(parts(README, "(?m)^## "))
    decimals, names = r"\d+\.\d+", r"`[^`\n]+`"
    assert parts(KOREAN, decimals) == parts(README, decimals)
    assert set(parts(KOREAN, names)) == set(parts(README, names))
    links = r"\]\(((?!README|#)[^)]+)\)"
    assert parts(KOREAN, links) == parts(README, links)
    assert "](README.ko.md)" in README


PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "benchmarks" / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    """Of the quick start's links seven led to pages that only the site has."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_pictures_of_the_page_are_those_of_the_script() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "page_pictures.py"), run_name="page_pictures")
    made = {f"docs/example/{name}.webp" for name in script["PICTURES"]}
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "example").glob("*.*")} - made == {
        "docs/example/index.html"
    }
    assert sum((ROOT / path).stat().st_size for path in made) <= script["LARGEST"]
    for readme in (README, KOREAN):
        shown = dict(re.findall(r"!\[([^\]]+)\]\((docs/example/\S+)\)", readme))
        assert set(shown.values()) == made
        assert all(len(words) > 20 for words in shown)


def test_the_example_is_small_enough_and_alive() -> None:
    page = (ROOT / "docs" / "example" / "index.html").read_text(encoding="utf-8")
    assert len(page.encode()) <= 6_000_000
    charts = re.search(r'id="charts">\{"charts":\{"(\w+)":"', page)
    assert charts, "its charts are pictures only"
