"""Tables and citations that go into a paper as they are."""

from __future__ import annotations

import csv
import io
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from eyechart.claims.table import CLAIMS, SOURCES
from eyechart.cli import main
from eyechart.measures import measures
from eyechart.report.citations import bibliography, key_of, papers
from eyechart.report.paper_tables import formatted, in_latex, quantity_table, verdict_table

from .synthetic import as_run, synthetic_run

HOSTILE = r"50 % of $x_1$ & {b} # \ ~ ^ | −1 ×2"


def unescaped(latex: str) -> str:
    """What LaTeX would print of a cell."""
    for made, sign in ((r"\textbackslash{}", "\\"), (r"\textasciitilde{}", "~"), (r"\textasciicircum{}", "^")):
        latex = latex.replace(made, f"\0{ord(sign)}\0")
    latex = latex.replace("$-$", "−").replace(r"$\times$", "×")
    latex = re.sub(r"\\([&%$#_{}])", r"\1", latex)
    return re.sub("\0(\\d+)\0", lambda match: chr(int(match[1])), latex)


def test_latex_is_escaped_and_balanced() -> None:
    assert unescaped(in_latex(HOSTILE)) == HOSTILE
    table = pd.DataFrame({"claim": ["C01", HOSTILE], "effect": ["−0.5", "1"]})
    text = formatted(table, "latex", caption="100 % true")
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{longtable}{ll}", r"\end{longtable}"):
        assert rule in text
    assert r"\caption{100 \% true}" in text
    (row,) = [line for line in text.splitlines() if line.startswith("C01")]
    assert row == r"C01 & $-$0.5 \\"
    body = re.sub(r"^%.*", "", text, flags=re.MULTILINE)
    assert not re.search(r"(?<!\\)[#]", body)
    bare = re.sub(r"\\[{}]", "", body)
    assert bare.count("{") == bare.count("}")
    assert body.isascii() or "|" in body


def test_every_claim_can_be_set_in_latex() -> None:
    """pdflatex stops at a letter it does not know: what is not ASCII has become a command, or is an accented letter."""
    texts = [text for claim in CLAIMS.values() for text in (claim.sentence, claim.figure)]
    left = {letter for text in texts for letter in in_latex(text) if not letter.isascii()}
    assert left <= set("–—’“”é§°")


def test_markdown_and_csv() -> None:
    table = pd.DataFrame({"a": [HOSTILE, "=1+1"], "b": ["1", "2"]})
    rows = formatted(table, "markdown").splitlines()
    assert len(rows) == 4
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)
    read = list(csv.DictReader(io.StringIO(formatted(table, "csv"))))
    assert [row["a"] for row in read] == [HOSTILE, "'=1+1"]


def test_a_run_gives_its_tables(tmp_path: Path) -> None:
    run = as_run(synthetic_run(tmp_path))
    verdicts = verdict_table(run)
    tested = [verdict for verdict in run.verdicts if verdict.verdict != "not tested"]
    assert verdicts.claim.tolist() == [verdict.claim for verdict in tested]
    assert set(verdicts.verdict) >= {"holds", "fails", "undecided"}


@pytest.mark.usefixtures("no_charts")
def test_a_notebook_shows_the_run_and_commands_take_it_along(tmp_path: Path) -> None:
    import eyechart

    run = eyechart.exam(
        {"a<b": "zoo:resnet"}, measures="recognition,skip_ratio", limit=16, out=tmp_path / "run", progress=False
    )
    shown = run._repr_html_()
    assert "a&lt;b" in shown
    assert "a<b" not in shown
    assert "report.html" in shown
    bare = eyechart.exam("zoo:resnet", measures="recognition", limit=16, out=tmp_path / "bare", progress=False)
    assert bare.table("verdicts").empty
    assert "accuracy" in bare._repr_html_()  # columns of verdicts stood there, and no row
    quantities = quantity_table(run, "recognition")
    assert set(quantities.measure) == {"recognition"}
    assert len(run.table()) >= len(quantities) > 0

    def call(*words: str) -> str:
        result = CliRunner().invoke(main, [words[0], str(run.path), *words[1:]], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    assert "accuracy" in call("table", "--of", "quantities", "--format", "latex")
    made = call("figures", "--style", "paper", "--width", "60mm", "--format", "svg", "--out", str(tmp_path / "f"))
    assert len(made.split()) == 2
    assert all('width="60mm"' in Path(path).read_text(encoding="utf-8")[:400] for path in made.split())
    wrong = CliRunner().invoke(main, ["figures", str(run.path), "--width", "60mm"])
    assert "--width goes with --style paper" in wrong.stderr


def test_every_paper_that_a_measure_cites_has_an_entry_that_agrees_with_the_references() -> None:
    cited = {source.paper for measure in measures().values() for source in measure.sources} - {"eyechart"}
    assert cited == set(papers())
    listed = tomllib.loads(files("eyechart.report").joinpath("papers.toml").read_text(encoding="utf-8"))
    for name, entry in papers().items():
        (number,) = re.findall(r"eprint = \{([\d.]+)\}", entry)
        reference = next(text for text in [*listed.values(), *SOURCES.values()] if f"arXiv:{number}" in text)
        title = re.findall(r"title = \{(.+)\}", entry)[0].replace("16x16", "16×16")
        assert title.lower().partition("?")[0] in reference.lower(), name
        assert re.findall(r"author = \{(\w+),", entry)[0] in reference, name
        assert re.findall(r"year = \{(\d+)\}", entry)[0] in reference, name
    assert len({key_of(name) for name in papers()}) == len(papers())


def test_cite() -> None:
    text = CliRunner().invoke(main, ["cite", "calibration"]).stdout
    assert re.findall(r"^@\w+\{(\w+),", text, re.MULTILINE) == ["eyechart", "park2022vision", "guo2017calibration"]
    assert text.count("{") == text.count("}")
    every = bibliography(measures().values())
    assert every.count("@inproceedings{") == len(papers())
    assert "calibraton" in CliRunner().invoke(main, ["cite", "calibraton"], catch_exceptions=False).stderr


@pytest.mark.parametrize("format", ["latex", "markdown", "csv"])
def test_an_empty_table_is_a_table(format: str) -> None:
    assert "claim" in formatted(pd.DataFrame(columns=["claim"]), format)
