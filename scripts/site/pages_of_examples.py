"""Examples: scripts of examples/ that `make test` runs, each shown as a page."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import figures
from site_text import as_markdown, filled

EXAMPLES = Path(__file__).parents[2] / "examples"


def scripts() -> list[Path]:
    return sorted(EXAMPLES.glob("*.py"))


def navigation() -> list[Any]:
    return ["examples/index.md", *({title(path): f"examples/{path.stem}.md"} for path in scripts())]


def pages(drawn: Mapping[str, Path]) -> dict[str, str]:
    made = {f"examples/{path.stem}.md": page(path) for path in scripts()}
    listed = [(title(path), path.stem) for path in scripts()]
    return made | {"examples/index.md": filled("examples.md", examples=listed)}


def words(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def title(path: Path) -> str:
    """The first line of its docstring, without the full stop."""
    return words(path).partition("\n")[0].rstrip(".")


def printed(path: Path) -> str:
    """What it prints: kept in runs/examples, and run again when the script is newer."""
    kept = figures.FOLDER / "examples" / f"{path.stem}.txt"
    if not kept.exists() or kept.stat().st_mtime < path.stat().st_mtime:
        done = subprocess.run([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, check=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(done.stdout, encoding="utf-8")
    return without_folder(kept.read_text(encoding="utf-8").strip())


def without_folder(text: str) -> str:
    """What an example printed, without the name that a temporary folder had when it ran.

    >>> without_folder(f"page: {Path(tempfile.gettempdir()) / 'tmpab1_c' / 'comparison.html'}")
    'page: …/comparison.html'
    """
    folder = re.escape(tempfile.gettempdir())
    return re.sub(rf"{folder}[/\\]\w+[/\\]", "…/", text)


def page(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    code = text.partition('"""')[2].partition('"""')[2].strip()
    rest = as_markdown(words(path).partition("\n")[2].strip())
    return filled("example.md", title=title(path), words=rest, code=code, name=path.name, printed=printed(path))
