"""A spec or a module in, a subject out. READ FIRST in this folder.

`zoo:NAME[@SNAPSHOT]`, `timm:NAME`, `torchvision:NAME`, `hf:ORG/NAME` or `hf:FOLDER`, or a bare name (zoo, then timm),
each with `@random` (seed 0) or `@PATH` for other weights and, before that, `:48px` for another input size; or an
`nn.Module` with a transform. `LABEL=SPEC` names a subject; without a label it goes by its spec, or by the name of
its model where the spec has a path (`naming.py`). Weights made by `eyechart train` bring their switches, classes,
input size and normalisation along, in the card beside the file.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from eyechart.errors import SubjectError, UsageError
from eyechart.phrases import printable
from eyechart.subjects import preprocessing, sources
from eyechart.subjects.catalogue import LARGEST_INPUT, Spec, names, parse_spec
from eyechart.subjects.headless import watched
from eyechart.subjects.naming import checked_label, short_name, short_names, split_label
from eyechart.subjects.preprocessing import GivenTransform, Preprocessing
from eyechart.subjects.subject import Subject, find_logits, unwrapped

Given = str | nn.Module | Subject | tuple[nn.Module, Any]


def load_subject(
    spec: Given,
    *,
    transform: Any = None,
    label: str | None = None,
    input_size: tuple[int, int] | int | None = None,
    classes: Sequence[str] | None = None,
    trained: bool | None = None,
) -> Subject:
    """The subject a spec names, or a module made into one.

    `label` is what tables and legends call it. Of a module, `classes` are its class names by logit index, and `trained`
    says whether its weights were trained: unless it is said, or its answers on labelled images are clearly better than
    chance, no claim is decided on it.

    A module comes with a `transform`: a callable from PIL picture to tensor, a torchvision preset, a Preprocessing, or
    None. With None, timm modules use their data config; others are given pictures of `input_size` (or what the module
    says, or 224) with ImageNet's mean and deviation, and the card says so. It is put into eval mode.
    With a spec, `input_size=48` is the same as `:48px`: position tables are resized, what cannot be is refused.

    >>> load_subject(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10)), label="linear", input_size=8).parameters
    1930
    >>> load_subject("mine=zoo:vit").name
    'mine'
    """
    label = None if label is None else checked_label(label)
    if isinstance(spec, tuple):
        spec, transform = spec
    if isinstance(spec, Subject):
        given = (transform, input_size, classes, trained)
        if any(value is not None for value in given):
            raise UsageError(f"{spec.name} is a subject already; only its label can be given.")
        return spec if label is None else replace(spec, name=label)
    if isinstance(spec, nn.Module):
        return _from_module(spec, transform, label, input_size, classes, trained)
    if not isinstance(spec, str):
        raise UsageError(f"A subject is a spec such as 'timm:resnet50', a module or a Subject; got {spec!r}.")
    if transform is not None:
        raise UsageError(f"{spec} has its own preprocessing; a transform can be given only with a module.")
    if classes is not None or trained is not None:
        raise UsageError(f"{spec} says itself what its classes are and whether it is trained; a module cannot.")
    given_label, spec = split_label(spec)
    parsed = parse_spec(spec)
    if input_size is not None:
        parsed = replace(parsed, size=_side(spec, input_size))
    try:
        subject = _loader(parsed)(parsed)
    except OSError as error:  # a name that is too long, a file that may not be read
        raise SubjectError(f"{spec:.300} cannot be loaded ({error.strerror or error}).") from error
    if parsed.size is not None:
        _look_at(subject, parsed.size)
    subject.spec = str(parsed)
    subject.name = label or given_label or short_name(parsed)
    return subject


def _side(spec: str, input_size: tuple[int, int] | int) -> int:
    height, width = preprocessing.sides(input_size)
    if height != width or height < 1:
        raise UsageError(f"{spec} sees the common crop, which is square; got an input size of {height}×{width}.")
    if height > LARGEST_INPUT:
        raise UsageError(f"An input size has at most {LARGEST_INPUT} pixels; got {height}.")
    return height


def _look_at(subject: Subject, size: int) -> None:
    """Feed pictures of the size that was asked for, and see that the subject, built for it, can be called on them."""
    assert isinstance(subject.preprocessing, Preprocessing)  # a spec's is
    subject.preprocessing = replace(subject.preprocessing, size=(size, size))
    notes = [*subject.card["notes"], f"the input size of {size}×{size} was asked for"]
    subject.card = {**subject.card, "preprocessing": subject.preprocessing.as_json(), "notes": notes}
    _try(subject, "leave the size out or choose another.")


def as_list(specs: Given | Sequence[Given] | Mapping[str, Given]) -> list[Given]:
    """One subject alone, as people write it, or several, with or without labels."""
    given: list[Given]
    if isinstance(specs, Mapping):
        given = list(specs.values())
    elif isinstance(specs, (str, nn.Module, Subject)):
        given = [specs]
    elif isinstance(specs, Iterable):
        given = list(specs)
    else:
        raise UsageError(f"A subject is a spec such as 'timm:resnet50', a module or a Subject; got {specs!r}.")
    if not given:
        raise UsageError("An exam takes at least one subject, such as 'timm:resnet50' or a module; got none.")
    return given


def load_subjects(specs: Given | Sequence[Given] | Mapping[str, Given]) -> list[Subject]:
    """All subjects of an exam at once, as `each_subject` gives them.

    >>> [subject.name for subject in load_subjects({"mine": "zoo:vit", "other": "zoo:resnet"})]
    ['mine', 'other']
    """
    return list(each_subject(specs))


def each_subject(
    specs: Given | Sequence[Given] | Mapping[str, Given], places: Container[int] | None = None
) -> Iterator[Subject]:
    """The subjects of an exam, or those at some `places`, with unique labels; each is loaded when it is asked for.

    Those that are given ({label: subject}, or LABEL=SPEC) are kept; specs with paths that would read alike get what
    tells the paths apart, modules of one class are numbered, and the same spec twice is refused.
    """
    labels: list[str | None]
    given, specs = specs, as_list(specs)
    if isinstance(given, Mapping):
        labels = [checked_label(label) for label in given]
    else:
        labels = [split_label(spec)[0] if isinstance(spec, str) else None for spec in specs]
    unlabelled = [
        at for at, (spec, label) in enumerate(zip(specs, labels, strict=True)) if isinstance(spec, str) and not label
    ]
    parsed = [parse_spec(specs[at]) for at in unlabelled]  # type: ignore[arg-type]
    if twice := next((spec for at, spec in enumerate(parsed) if spec in parsed[:at]), None):
        raise UsageError(f"{twice} is given twice; drop one, or give it a label: LABEL={twice}.")
    for at, name in zip(unlabelled, short_names(parsed), strict=True):
        labels[at] = name
    taken: set[str] = set()
    modules: set[int] = set()
    for place, (spec, label) in enumerate(zip(specs, labels, strict=True)):
        wanted = places is None or place in places
        if isinstance(spec, str) and label and not wanted:
            taken.add(label)
            continue
        subject = load_subject(split_label(spec)[1]) if isinstance(spec, str) else load_subject(spec, label=label)
        if isinstance(spec, str):
            subject.name = label or subject.name
        if id(subject.module) in modules:
            raise UsageError(f"{subject.name} is given twice; drop one.")
        if subject.name in taken:
            if label or not _is_called_by_its_class(subject):
                raise UsageError(f"Two subjects are called {subject.name}; give one of them another label.")
            number = next(n for n in range(2, len(specs) + 2) if f"{subject.name}#{n}" not in taken)
            subject = replace(subject, name=f"{subject.name}#{number}")  # the caller's own stays as it is
        taken.add(subject.name)
        modules.add(id(subject.module))
        if wanted:
            yield subject


def _is_called_by_its_class(subject: Subject) -> bool:
    """Of a module without a label."""
    return subject.spec.startswith("module:") and subject.name == type(subject.module).__name__


def _loader(spec: Spec) -> Callable[[Spec], Subject]:
    if spec.source == "hf":
        if spec.name.startswith("timm/") and spec.name.removeprefix("timm/").partition(".")[0] in names("timm"):
            return sources.from_timm  # the same weights; timm builds them with its own preprocessing
        from eyechart.subjects.huggingface import from_huggingface

        return from_huggingface
    loaders = {"zoo": sources.from_zoo, "timm": sources.from_timm, "torchvision": sources.from_torchvision}
    return loaders[spec.source]


def _from_module(
    module: nn.Module,
    transform: Any,
    label: str | None,
    input_size: tuple[int, int] | int | None,
    classes: Sequence[str] | None,
    trained: bool | None,
) -> Subject:
    module = unwrapped(module, label or type(module).__name__)
    name = label or type(module).__name__
    fallback, assumption = preprocessing.for_module(module, name, input_size)
    prepare: Preprocessing | GivenTransform = fallback
    if transform is not None:
        prepare = preprocessing.from_transform(transform, fallback)
        assumption = "preprocessing given"
    subject = Subject(
        name=name,
        module=module,
        preprocessing=prepare,
        classes=None,
        trained=trained,
        card={"source": "module", "class": printable(type(module).__qualname__), "preprocessing": prepare.as_json()},
        keyword="pixel_values" if hasattr(module, "main_input_name") else None,
        spec=f"module:{type(module).__qualname__}{'@random' if trained is False else ''}",
    )
    with watched(module) as last:
        output = _try(subject)
    logits = find_logits(output)
    stated = classes is not None or getattr(module, "num_classes", None) or isinstance(output, Mapping)
    features = logits is not None and not stated and last.gave_features(logits)
    subject.classes = _classes_of_module(module, logits)
    bare = getattr(module, "num_classes", None) == 0 or (features and not subject.classes)
    subject.classifier = logits is not None and not bare
    logits = subject.logits(output)
    if classes is not None:
        subject.classes = _given_classes(name, classes, logits)
    subject.card = {**subject.card, "notes": [assumption]}
    return subject


def _given_classes(name: str, classes: Sequence[str], logits: Tensor | None) -> tuple[str, ...]:
    listed = (classes,) if isinstance(classes, str) else tuple(map(str, classes))
    if logits is None:
        raise UsageError(f"{name} has no classifier, so it has no classes; leave them out.")
    if len(listed) != logits.shape[1]:
        raise UsageError(f"{name} has {logits.shape[1]} outputs, but {len(listed)} classes were given.")
    return listed


def _classes_of_module(module: nn.Module, logits: Tensor | None) -> tuple[str, ...] | None:
    """Class names a module carries itself, as `classes` or in a Hugging Face config; if their number is right."""
    from eyechart.subjects.labels import meaningful

    listed = getattr(module, "classes", None) or getattr(getattr(module, "config", None), "id2label", None)
    if isinstance(listed, dict):
        listed = [listed[index] for index in sorted(listed)]
    if logits is None or not isinstance(listed, (list, tuple)) or len(listed) != logits.shape[1]:
        return None
    return meaningful(tuple(map(str, listed)))


def _try(subject: Subject, advice: str = "a transform or input_size that fits it may be needed.") -> Any:
    """One call on a grey picture, so that a module that cannot be examined says so here and in a sentence."""
    height, width = subject.input_size
    try:
        with torch.no_grad():
            return subject.call(torch.zeros(1, 3, height, width))
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SubjectError(
            f"{subject.name} cannot be called on one colour picture of {height}×{width} (1, 3, {height}, {width}): "
            f"{reason.rstrip('.')}; {advice}"
        ) from error
