"""Many subjects in one file: `--subjects-from LIST.toml`. No torch here."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from eyechart.errors import EyechartError, UsageError
from eyechart.files import read_text
from eyechart.phrases import printable
from eyechart.subjects.catalogue import parse_spec
from eyechart.subjects.naming import checked_label, split_label

MOST_SUBJECTS = 1000
"""A list that is longer is taken for a mistake: every two subjects are compared, and tables have a row for each."""
KEYS = {"spec", "label"}
FORM = '[[subject]] with spec = "timm:resnet50" and, if you like, label = "mine"'


def listed_subjects(path: str | Path) -> list[str]:
    """The subjects of a list, as the command line takes them: SPEC or LABEL=SPEC, in the order of the file.

        [[subject]]
        spec = "timm:resnet50@runs/a.safetensors"    # as on the command line; a path is relative to where you are
        label = "seed 0"                             # optional

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "subjects.toml")
    >>> _ = file.write_text('[[subject]]\\nspec = "zoo:vit"\\n[[subject]]\\nspec = "zoo:resnet"\\nlabel = "a CNN"')
    >>> listed_subjects(file)
    ['zoo:vit', 'a CNN=zoo:resnet']
    """
    text = read_text(path, "--subjects-from")
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib follows nested arrays by recursion; int() has its own limit
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"{path} is not TOML ({reason}); a list of subjects has {FORM}.") from None
    if unknown := sorted(document.keys() - {"subject"}):
        raise UsageError(f"{path}: {printable(unknown[0])!r} is not known there; a list of subjects has {FORM}.")
    entries = document.get("subject")
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} lists no subjects; each is written as {FORM}.")
    if len(entries) > MOST_SUBJECTS:
        raise UsageError(f"{path} lists {len(entries)} subjects; an exam takes at most {MOST_SUBJECTS}.")
    return [_subject(entry, f"{path}, subject {number}") for number, entry in enumerate(entries, 1)]


def _subject(entry: Any, where: str) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("spec"), str):
        raise UsageError(f"{where} has no spec; it is written as {FORM}.")
    if unknown := sorted(entry.keys() - KEYS):
        raise UsageError(
            f"{where} has the key {printable(unknown[0])!r}, which is not known; it may have spec and label."
        )
    try:
        given, spec = split_label(entry["spec"])
        parse_spec(spec)  # all mistakes of a long list are told before anything is loaded
        if "label" not in entry:
            return str(entry["spec"])
        label = checked_label(entry["label"])
        if given is not None:
            raise UsageError(f"its spec has the label {given!r} already; drop one.")
        if split_label(f"{label}={spec}") != (label, spec):
            raise UsageError(f"a label has none of = : @ / and \\; got {label!r}.")
    except EyechartError as error:
        raise type(error)(f"{where}: {error}") from None
    return f"{label}={spec}"
