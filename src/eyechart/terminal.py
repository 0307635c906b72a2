"""What a person reads in a terminal: tables, the tree of an anatomy, a forecast; plain text when it is piped."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.markup import escape as escape_markup
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.tree import Tree

from eyechart.phrases import count, printable
from eyechart.sites import Anatomy, Site

if TYPE_CHECKING:
    from eyechart.claims.verdict import Verdict
    from eyechart.engines.forecast import Forecast
    from eyechart.run import Run
    from eyechart.zoo.switches import Switch

VERDICT_COLOURS = {"holds": "green", "fails": "red", "undecided": "yellow", "not tested": "dim"}


def escape(text: str) -> str:
    """A text as it stands: neither rich nor the terminal takes a part of it for a command."""
    return escape_markup(printable(text))


def show(thing: Any, stack: bool = False) -> None:
    """Print to stdout. Piped, a row stays one line, so that grep and cut work on it, and has no blanks at its end.

    With `stack` the cells of a row stand below one another where the terminal would break the words of the table, or a
    cell of one whose columns are all kept whole (`no_wrap`).
    """
    if sys.stdout.isatty():
        console = Console(highlight=False, emoji=False)
        unbounded = console.options.update(max_width=10_000)
        whole = stack and all(column.no_wrap for column in thing.columns)
        needed = Measurement.get(console, unbounded, thing)
        if stack and (needed.maximum if whole else needed.minimum) > console.width:
            for line in stacked(thing):
                console.print(line)
        else:
            console.print(thing)
        return
    console = Console(width=10_000, highlight=False, emoji=False, no_color=True)
    with console.capture() as captured:
        console.print(thing)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def stacked(rows: Table) -> Iterator[RenderableType]:
    """Each row of a table as its first cell and the others below it, without those that are empty."""
    cells = [[*([column.header] if rows.show_header else []), *column.cells] for column in rows.columns]
    for first, *others in zip(*cells, strict=True):
        yield first
        yield Padding("  ".join(str(cell) for cell in others if cell), (0, 0, 0, 4))


def line_width() -> int:
    """Letters in a line: what the terminal has, at most 100; also where the output is piped (`| head`)."""
    size = shutil.get_terminal_size((0, 0))  # COLUMNS, or the terminal behind stdout
    for stream in () if size.columns else (sys.stderr, sys.stdin):
        try:
            size = os.get_terminal_size(stream.fileno())
            break
        except (AttributeError, OSError, ValueError):  # no file, not a terminal, closed
            continue
    return min(100, size.columns or 100)


ONE_NUMBER = re.compile(r"(?<=\d) %|\[[\d−.,% ]+\]")
UNBROKEN = "\ue000"


def wrapped(text: str, indent: int = 0, hang: int = 0) -> str:
    """Text in lines that end between words; `hang` is added to all but the first.

    No line ends before a per cent sign or within an interval.
    """
    blank = " " * indent
    lines = textwrap.fill(
        ONE_NUMBER.sub(lambda number: number[0].replace(" ", UNBROKEN), text),
        line_width(),
        initial_indent=blank,
        subsequent_indent=blank + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(UNBROKEN, " ")


def table(*headings: str) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made


def print_verdicts(run: Run) -> None:
    """A line for each verdict that could be given, what it says below it, then how many there are of each kind.

    A reason that many share is said once, before them.
    """
    from eyechart.claims.shared_reasons import SharedReasons
    from eyechart.claims.summary import summarise

    tested = [verdict for verdict in run.verdicts if verdict.verdict != "not tested"]
    shared = SharedReasons(tested)
    if tested:
        for line in shared.lines():
            show(escape(wrapped(line, hang=4)))
        for verdict in tested:
            colour = VERDICT_COLOURS[verdict.verdict]
            word = verdict.verdict + (" (proxy)" if verdict.proxy else "") + (" †" if verdict.stands is False else "")
            effect = escape(effect_of(verdict))
            show(f"{verdict.claim}  [{colour}]{word}[/]{' ' * (12 - len(word))}  {effect}".rstrip())
            text = [quantity_of(verdict), verdict.sentence]
            text += [f"Undecided: {shared.remarks(verdict)}"] if verdict.verdict == "undecided" else []
            for paragraph in text:
                show(escape(wrapped(paragraph, indent=5)))
        for line in not_checked(tested, "recognition" in run.measures):
            show(escape(wrapped(line)))
        if any(verdict.stands is False for verdict in tested):
            show(wrapped("† not clear enough to stay decided under Holm's correction for all intervals of this exam."))
    show(wrapped(str(summarise(run.verdicts))))


def effect_of(verdict: Verdict) -> str:
    from eyechart.charts.numbers import with_span

    if verdict.effect is None or not math.isfinite(verdict.effect):
        return "–"
    value, span = with_span(verdict.effect, verdict.low, verdict.high)
    return f"{value} [{span}]" if span else value


def quantity_of(verdict: Verdict) -> str:
    """What the shown number is, of whom, what is asked of it, and of how many parts it is the decisive one."""
    subjects = ", ".join(verdict.subjects)
    part = verdict.shown
    if part is None:
        return subjects
    whose = "" if all(subject in part.words for subject in verdict.subjects) else f"{subjects}: "
    many = f" (1 of {len(verdict.parts)} parts)" if len(verdict.parts) > 1 else ""
    return f"{whose}{part.words}; asked: {part.asks}{many}"


def not_checked(verdicts: Sequence[Verdict], recognised: bool) -> list[str]:
    """One line for each gate that decided verdicts passed unasked, because what it asks for is not known."""
    unknown: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        for gate in verdict.gates if verdict.verdict in ("holds", "fails") else ():
            if gate.outcome == "unknown":
                unknown.setdefault(gate.title, {}).update(dict.fromkeys(gate.words.split("; ")))
    advice = "" if recognised else " (recognition was not among the measures)"
    return [
        f"Decided without a check of {title}: {'; '.join(words)}{advice if 'accuracy' in title else ''}."
        for title, words in unknown.items()
    ]


def print_findings(run: Run) -> None:
    from eyechart.charts.numbers import with_span

    rows = table("measure", "quantity", "subjects", "value", "95 % interval")
    for row in run.quantities():
        number, span = with_span(row["value"], row["low"], row["high"])
        value = f"{number} {row['unit']}".strip() if math.isfinite(row["value"]) else "not defined here"
        interval = f"[{span}]" if span and math.isfinite(row["value"]) else "–"
        rows.add_row(*map(escape, (row["measure"], row["quantity"], row["subjects"], value, interval)))
    for column in rows.columns:  # one cell is one name or one number: at 100 letters "vit | resnet" stood on two lines
        column.no_wrap = True
    show(rows, stack=True)


def print_forecast(forecast: Forecast) -> None:
    """What each measure would cost, dearest last so that it stands above the sum."""

    def shared_out(seconds: float) -> str:
        return duration(seconds / forecast.processes)

    rows = table("measure", "images", "time", "memory", "disk")
    for row in sorted(forecast.rows, key=lambda row: row.seconds):
        images = f"{row.images:,}" if row.images else "(weights)"
        rows.add_row(row.name, images, shared_out(row.seconds), megabytes(row.memory), megabytes(row.disk))
    shared = f"{forecast.images:,}" if forecast.shared_seconds else ""
    rows.add_row("(the pass they share)", shared, shared_out(forecast.shared_seconds), "", "")
    held = megabytes(forecast.memory) if forecast.memory else "?"
    rows.add_row("in all", "", duration(forecast.seconds), held, megabytes(forecast.disk))
    show(rows)
    for notice in forecast.notices:
        show(escape(wrapped(notice, hang=4)))
    show(escape(wrapped(forecast.method)))
    several = f", once for each of the {forecast.processes} processes that would share the work"
    show(
        wrapped(
            "Memory: the tally of each measure; in all, what this process held at most while it timed them"
            f"{several if forecast.processes > 1 else ''}. Disk: at most, until the run is finished; findings and page "
            "then stay (20 MB for the bundled pair)."
        )
    )


def duration(seconds: float) -> str:
    """
    >>> duration(0.2), duration(75), duration(4000)
    ('0.2 s', '1:15 min', '1:06:40 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02} h"


def megabytes(size: int) -> str:
    """
    >>> megabytes(300), megabytes(52_000_000), megabytes(3_000_000_000)
    ('< 0.1 MB', '52 MB', '3.0 GB')
    """
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return "< 0.1 MB" if size < 5e4 else f"{size / 1e6:.1f} MB" if size < 1e7 else f"{size / 1e6:.0f} MB"


def print_anatomy(anatomy: Anatomy) -> None:
    """The sites as a tree: stages, blocks, and what is inside each block."""
    size = "×".join(map(str, anatomy.input_size))
    tree = Tree(f"[bold]{escape(anatomy.subject)}[/]  {anatomy.architecture}, {size} input")
    stage, branch, blocks = None, tree, {site.block: site for site in anatomy.pick("block")}
    opened: dict[int, Tree] = {}
    for site in anatomy.sites:
        if site.role in ("stem", "features", "head"):
            tree.add(describe(site))
            continue
        owner = blocks.get(site.block, site)
        if owner.stage != stage:
            stage = owner.stage
            branch = tree.add(f"[bold]stage {stage + 1}[/]" + (f"  grid {grid_words(owner)}" if owner.grid else ""))
        if site.block not in opened:
            words = anatomy.words(owner)
            opened[site.block] = branch.add((f"{words}  " if words != owner.name else "") + describe(owner))
        if site is not owner:
            opened[site.block].add(describe(site))
    show(tree)
    counts = [count(len(anatomy.pick(role)), role) for role in ("block", "junction", "attention")]
    show(", ".join(counts))
    for note in anatomy.notes:
        show(f"note: {escape(note)}")


def describe(site: Site) -> str:
    facts: list[str] = [site.kind] if site.role in ("junction", "block") else []
    facts += [f"{site.channels} channels"] if site.channels else []
    facts += [f"grid {grid_words(site)}"] if site.grid and site.role != "block" else []
    facts += [f"{site.layout.prefix} prefix"] if site.layout.prefix else []
    if site.attention is not None:
        window = f" {site.attention.window[0]}×{site.attention.window[1]}" if site.attention.window else ""
        facts += [f"{site.heads} heads", site.attention.kind + window]
    if site.projected:
        facts.append("projected skip")
    return f"{escape(site.name)}  [dim]{site.role} · {' · '.join(facts)} · depth {site.depth:.2f}[/]"


def grid_words(site: Site) -> str:
    return "×".join(map(str, site.grid or ()))


def print_subjects(rows: Sequence[Mapping[str, Any]], counts: Mapping[str, int] | None) -> None:
    if not any("card" in row for row in rows):
        show("\n".join(row["spec"] for row in rows))
        return
    listed = table("subject", "parameters", "accuracy", "data", "recipe", "what it is")
    listed.columns[0].no_wrap = True  # it is to be copied; the sentence at the end of the row can be broken
    for row in rows:
        card = row.get("card", {})
        recipe = card.get("recipe", {})
        listed.add_row(
            escape(row["spec"]),
            f"{card['parameters']:,}" if "parameters" in card else "",
            accuracy_of(card),
            escape(str(card.get("data", ""))),
            escape(str(recipe.get("name", "") if isinstance(recipe, dict) else recipe)),
            escape(str(card.get("sentence", ""))),
        )
    show(listed, stack=True)
    if counts:
        others = ", ".join(f"{count:,} from {source}" for source, count in counts.items() if source != "zoo")
        show(f"and {others}: `eyechart subjects timm:PATTERN` searches them; from the hub, any hf:ORG/NAME.")


def accuracy_of(card: Mapping[str, Any]) -> str:
    """On the test images of its data; a snapshot has parameters, but was not measured."""
    if "accuracy" in card:
        return f"{card['accuracy']:.2%}"
    return "" if "parameters" in card or not card else "untrained"


def print_card(spec: str, card: Mapping[str, Any], switches: Sequence[Switch], own_values: Mapping[str, Any]) -> None:
    """What is known of a model of the zoo, and what can be changed in it when it is trained."""
    rows = table("", "")
    rows.show_header = False
    for key, value in card.items():
        if value not in ([], {}) and key != "switches":
            rows.add_row(key.replace("_", " "), escape(fact(key, value)))
    show(f"[bold]{escape(spec)}[/]")
    show(rows)
    show("")
    listed = table("--switch", "own value", "takes", "meaning")
    for switch in switches:
        listed.add_row(
            switch.name, switch_value(own_values[switch.name]), escape(switch.allowed), escape(switch.meaning)
        )
    show(listed)
    model = spec.removeprefix("zoo:").partition("@")[0]
    show(f"`eyechart subjects timm:{model}` and `eyechart subjects torchvision:{model}` search those libraries.")


def switch_value(value: Any) -> str:
    """As it is typed behind --switch NAME=.

    >>> switch_value((2, 4, 2)), switch_value(True), switch_value(()), switch_value("cls")
    ('2,4,2', 'on', 'none', 'cls')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return (",".join(map(str, value)) or "none") if isinstance(value, (list, tuple)) else str(value)


def fact(key: str, value: Any) -> str:
    """One entry of a card as people write it.

    >>> fact("accuracy", 0.9326000000000001), fact("steps", 58500), fact("input_size", [32, 32])
    ('93.26%', '58,500', '32, 32')
    """
    if key in ("accuracy", "ece"):
        return f"{value:.2%}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {content}" for name, content in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
