"""Pages that are files of the repository: their links are turned into links between pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from site_text import filled

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "README.ko.md": "index.ko.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "benchmarks/README.md": "measured.md",
}
FOLDERS = {"examples": "examples/index.md", "src/eyechart/measures": "measures/index.md"}
MADE_FROM = {
    "src/eyechart/claims/judge.py": "verdicts.md",
    "src/eyechart/store.py": "run-folder.md",
    "src/eyechart/subjects/load.py": "subjects.md",
}
"""Where a text in docs/ leads those who read it in the repository, and the page that is made from it."""
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def pages(drawn: Mapping[str, Path]) -> dict[str, str]:
    made = {page: linked((ROOT / file).read_text(encoding="utf-8")) for file, page in PAGES.items()}
    contributing = made["contributing.md"]
    own = {name: section(contributing, name) for name in ("Add a measure", "Add a claim", "Add a study")}
    diff = (ROOT / "docs" / "contribution.diff").read_text(encoding="utf-8").rstrip()
    return made | {"own-measures.md": filled("own-measures.md", sections=own, diff=diff)}


def linked(text: str) -> str:
    """Links to files of the repository as links to pages; those to files that have none become plain words.

    >>> linked("[the table](docs/families.md#a), [how](CONTRIBUTING.md), [citation](CITATION.cff)")
    '[the table](families.md#a), [how](contributing.md), citation'
    >>> linked("[a module](examples/own_module.py)")
    '[a module](examples/own_module.md)'
    >>> linked("[from a folder](../docs/scale.md)")
    '[from a folder](scale.md)'
    """

    def page(match: re.Match[str]) -> str:
        words, target, anchor = match.groups()
        target = target.removeprefix("../")
        known = {**PAGES, **FOLDERS, **MADE_FROM}
        if target.startswith("examples/") and target.endswith(".py"):
            known[target] = f"{target.removesuffix('.py')}.md"
        if target not in known and not target.startswith("docs/"):
            return words
        return f"[{words}]({known.get(target, target.removeprefix('docs/'))}{anchor or ''})"

    return LINK.sub(page, text)


def out_of_docs(text: str) -> str:
    """The same for a text in docs/, whose links to its neighbours are right on both sides.

    >>> out_of_docs("[measured](../benchmarks/README.md) ![a figure](one.svg)")
    '[measured](measured.md) ![a figure](one.svg)'
    """
    return LINK.sub(lambda link: linked(link.group()) if link[2].startswith("../") else link.group(), text)


def section(text: str, title: str) -> str:
    """What stands under a heading of the second level."""
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0].strip()
