"""What a person reads on every chart: a short label for each subject, never a path. No torch here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from eyechart.errors import UsageError
from eyechart.subjects.catalogue import CHECKPOINT_SUFFIXES, Spec
from eyechart.zoo import SNAPSHOTS

# What stands before the first = is a label only if it cannot be the beginning of a spec or of a path.
_LABELLED = re.compile(r"(?P<label>[^=:@/\\]*)=(?P<spec>.*)", re.DOTALL)
LONGEST_LABEL = 60  # letters; the longest names of timm have 57


def split_label(text: str) -> tuple[str | None, str]:
    """`LABEL=SPEC` taken apart; a spec may have an = in its path.

    >>> split_label("mine=timm:resnet18@a.pth"), split_label("zoo:vit@lr=0.1/vit.safetensors")
    (('mine', 'timm:resnet18@a.pth'), (None, 'zoo:vit@lr=0.1/vit.safetensors'))
    """
    match = _LABELLED.fullmatch(text)
    if match is None:
        return None, text
    if not match["spec"]:
        raise UsageError(f"Nothing follows the = of {text!r}: write LABEL=SPEC, such as mine=timm:resnet18@random.")
    return checked_label(match["label"]), match["spec"]


def checked_label(label: object) -> str:
    """The label without blanks around it, if it can stand in a legend and in a table."""
    if not isinstance(label, str):
        raise UsageError(f"The label of a subject is a text; got {label!r}.")
    text = label.strip()
    if not text or len(text) > LONGEST_LABEL or "|" in text or not text.isprintable():
        raise UsageError(f"The label of a subject has 1 to {LONGEST_LABEL} printable letters and no |; got {label!r}.")
    return text


def short_name(spec: Spec) -> str:
    """The spec itself, unless it has a path: then the name of the model alone.

    >>> from eyechart.subjects.catalogue import parse_spec
    >>> [short_name(parse_spec(text)) for text in ("zoo:vit@warmup", "timm:resnet18@random", "timm:resnet18@a/b.pth")]
    ['zoo:vit@warmup', 'timm:resnet18@random', 'resnet18']
    >>> short_name(parse_spec("zoo:vit@runs/vit.warmup.safetensors"))
    'vit@warmup'
    """
    path = path_of(spec)
    if path is None:
        return str(spec)
    size = f":{spec.size}px" if spec.size else ""
    snapshot = next((f"@{suffix.removeprefix('.')}" for suffix in SNAPSHOTS if path.stem.endswith(suffix)), "")
    return _model_name(spec) + size + snapshot


def path_of(spec: Spec) -> PurePath | None:
    """The file or folder that a spec names, if it names one."""
    weights = spec.weights
    if weights is not None and weights != "random":
        bundled = spec.source == "zoo" and PurePath(weights).suffix not in CHECKPOINT_SUFFIXES
        return None if bundled and not Path(weights).is_file() else PurePath(weights)
    folder = Path(spec.name).expanduser()
    return folder if spec.source == "hf" and folder.is_dir() else None


def _model_name(spec: Spec) -> str:
    folder = Path(spec.name).expanduser()
    return (folder.name or folder.resolve().name) if spec.source == "hf" else spec.name


def short_names(specs: Sequence[Spec]) -> list[str]:
    """A label for each spec. Of several that would read alike, what tells their paths apart follows: file, or folder.

    >>> from eyechart.subjects.catalogue import parse_spec
    >>> short_names([parse_spec(f"timm:resnet18@seed{seed}/model.pth") for seed in (0, 1)])
    ['resnet18@seed0', 'resnet18@seed1']
    >>> short_names([parse_spec(text) for text in ("zoo:vit", "zoo:vit@a/mine.safetensors", "timm:resnet18@b.pth")])
    ['zoo:vit', 'vit@mine', 'resnet18']
    """
    names = [short_name(spec) for spec in specs]
    bare = [spec.name + (f":{spec.size}px" if spec.size else "") for spec in specs if path_of(spec) is None]
    for name in dict.fromkeys(names):
        alike = [at for at, spec in enumerate(specs) if names[at] == name and path_of(spec) is not None]
        if len(alike) + (name in bare) < 2:
            continue
        for at, more in zip(alike, _apart(name, [specs[at] for at in alike], name in bare), strict=True):
            names[at] = name + more
    return names


def _apart(name: str, specs: Sequence[Spec], rival: bool) -> list[str]:
    """What is put behind a name so that these specs differ: a part of their paths, or numbers where none does."""
    paths = [path_of(spec) for spec in specs]
    parts = [[] if path is None else [path.stem, *reversed(path.parts[:-1])] for path in paths]
    for depth in range(min(map(len, parts))):
        words = [_without(name, part[depth]) for part in parts]
        if len(set(words)) == len(words) and not {name, "", "/", ".."} & set(words):
            labels = [f"@{word}" for word in words]
            if max(map(len, labels)) + len(name) <= LONGEST_LABEL:
                return labels
    first = 2 if rival else 1
    return [f"#{number}" if number > 1 else "" for number in range(first, first + len(specs))]


def _without(name: str, word: str) -> str:
    """A part of a path without the name of the model, which stands before it already.

    >>> _without("resnet18", "resnet18_seed0"), _without("resnet18", "resnet18"), _without("vit", "vitamins")
    ('seed0', 'resnet18', 'vitamins')
    """
    rest = word.removeprefix(name)
    return rest.lstrip("-_. ") if rest[:1] in "-_. " and rest.strip("-_. ") else word
