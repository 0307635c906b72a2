"""The documentation site's pages that are made from the code, for mkdocs: `make docs` builds them all.

mkdocs calls `on_config` (the navigation lists what there is), `on_files` (the pages themselves) and `on_page_markdown`
(files of docs/ lead to pages, reproduction.md also to that of the studies). What a measure, a claim or a model card
already says is read from it here and nowhere written twice; templates/ has the order of a page.
"""

from __future__ import annotations

from typing import Any

import page_of_claims
import page_of_studies
import pages_of_code
import pages_of_examples
import pages_of_measures
import pages_of_models
import pages_of_repository
from figures import figures
from markdown.extensions.toc import slugify_unicode
from mkdocs.structure.files import File, Files

ROOMS = (pages_of_repository, pages_of_measures, page_of_claims, pages_of_code, pages_of_models, pages_of_examples)


def on_config(config: Any) -> Any:
    """Put lists of pages in the place of the words "measures" and "examples" of the navigation; name headings."""
    lists = {"measures": pages_of_measures.navigation(), "examples": pages_of_examples.navigation()}
    config.nav = [_filled(entry, lists) for entry in config.nav]
    config.mdx_configs["toc"]["slugify"] = slugify_unicode  # by default Korean headings are called _1, _2, …
    return config


def _filled(entry: Any, lists: dict[str, list[Any]]) -> Any:
    if not isinstance(entry, dict):
        return entry
    ((title, value),) = entry.items()
    if isinstance(value, list):
        return {title: [_filled(part, lists) for part in value]}
    return {title: lists.get(value, value)}


def on_files(files: Files, config: Any) -> Files:
    drawn = figures()
    pages: dict[str, str | bytes] = {f"figures/{name}.svg": figure.read_bytes() for name, figure in drawn.items()}
    for room in ROOMS:
        pages |= room.pages(drawn)
    pages[page_of_studies.NAME] = page_of_studies.content()
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    if page.file.generated_by is not None:
        return markdown
    text = pages_of_repository.out_of_docs(markdown)
    return page_of_studies.linked(text) if page.file.src_uri == "reproduction.md" else text
