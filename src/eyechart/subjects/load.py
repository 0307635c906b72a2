"""A spec or a module in, a subject out. READ FIRST in this folder.

`zoo:NAME[@SNAPSHOT]`, `timm:NAME`, `torchvision:NAME`, `hf:ORG/NAME` or `hf:FOLDER`, or a bare name (zoo, then timm),
each with `@random` (seed 0) or `@PATH` for other weights; or an `nn.Module` with a transform.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from eyechart import zoo
from eyechart.errors import SubjectError, UnknownSubject, UsageError
from eyechart.subjects import preprocessing
from eyechart.subjects.catalogue import CHECKPOINT_SUFFIXES, Spec, names, parse_spec, unknown
from eyechart.subjects.hub import hub_access
from eyechart.subjects.labels import imagenet_classes
from eyechart.subjects.preprocessing import GivenTransform, Preprocessing
from eyechart.subjects.subject import Subject, find_logits, unwrapped
from eyechart.subjects.weights import Convert, fit_to, load_into, read_checkpoint, reproducible

Given = str | nn.Module | Subject | tuple[nn.Module, Any]


def load_subject(
    spec: Given,
    *,
    transform: Any = None,
    name: str | None = None,
    input_size: tuple[int, int] | int | None = None,
) -> Subject:
    """The subject a spec names, or a module made into one.

    A module comes with a `transform`: a callable from PIL picture to tensor, a torchvision preset, a Preprocessing, or
    None. With None, timm modules use their data config; others are given pictures of `input_size` (or what the module
    says, or 224) with ImageNet's mean and deviation, and the card says so. It is put into eval mode.

    >>> load_subject(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10)), name="linear", input_size=8).parameters
    1930
    """
    if isinstance(spec, tuple):
        module, transform = spec
        return load_subject(module, transform=transform, name=name, input_size=input_size)
    if isinstance(spec, Subject):
        return spec
    if isinstance(spec, nn.Module):
        return _from_module(spec, transform, name, input_size)
    if not isinstance(spec, str):
        raise UsageError(
            f"A subject is a spec such as 'timm:resnet50', a module or a Subject, not a {type(spec).__name__}."
        )
    if transform is not None or input_size is not None:
        raise UsageError(f"{spec} brings its own preprocessing; a transform or input size goes with a module.")
    parsed = parse_spec(spec)
    subject = _loader(parsed)(parsed)
    subject.name = name or subject.name
    return subject


def load_subjects(specs: Sequence[Given]) -> list[Subject]:
    """All subjects of an exam, with unique names: modules of one class are numbered, the same spec twice is refused."""
    subjects: list[Subject] = []
    taken: set[str] = set()
    modules: set[int] = set()
    for spec in specs:
        subject = load_subject(spec)
        if id(subject.module) in modules:
            raise UsageError(f"{subject.name} is given twice; drop one.")
        if subject.name in taken:
            if isinstance(spec, (str, Subject)):
                raise UsageError(f"Two subjects are called {subject.name}; drop one, or give it another name.")
            number = next(n for n in range(2, len(specs) + 2) if f"{subject.name}-{n}" not in taken)
            subject.name = f"{subject.name}-{number}"
        taken.add(subject.name)
        modules.add(id(subject.module))
        subjects.append(subject)
    return subjects


def _loader(spec: Spec) -> Callable[[Spec], Subject]:
    if spec.source == "hf":
        if spec.name.startswith("timm/") and spec.name.removeprefix("timm/").partition(".")[0] in names("timm"):
            return _from_timm  # the same weights; timm builds them with its own preprocessing
        from eyechart.subjects.huggingface import from_huggingface

        return from_huggingface
    return {"zoo": _from_zoo, "timm": _from_timm, "torchvision": _from_torchvision}[spec.source]


def _from_zoo(spec: Spec) -> Subject:
    if spec.name not in zoo.names():
        raise unknown(spec.name, "zoo")
    card = dict(zoo.card(spec.name))
    outputs = len(card.get("classes") or range(10))
    notes: list[str] = []

    def build(num_classes: int = outputs) -> nn.Module:
        with reproducible():
            return zoo.build(spec.name, classes=num_classes)

    if spec.weights == "random":
        module = build()
    else:
        module, outputs, notes = _with_checkpoint(spec, _zoo_weights(spec), build, outputs)
    prepare = Preprocessing(
        preprocessing.sides(card.get("input_size", 32)),
        tuple(card.get("mean", preprocessing.IMAGENET_MEAN)),
        tuple(card.get("std", preprocessing.IMAGENET_STD)),
    )
    classes = tuple(card.get("classes") or ())
    return Subject(
        name=str(spec),
        module=module,
        preprocessing=prepare,
        classes=classes if len(classes) == outputs else None,
        trained=spec.weights != "random",
        card=_card(spec, prepare, notes) | {"zoo": card},
    )


def _zoo_weights(spec: Spec) -> Path:
    if spec.weights is not None and (Path(spec.weights).suffix in CHECKPOINT_SUFFIXES or Path(spec.weights).is_file()):
        return Path(spec.weights)
    path = zoo.weights(spec.name, spec.weights)
    if path is None:
        name = f"zoo:{spec.name}"
        what = f"no snapshot called {spec.weights!r}" if spec.weights else "no trained weights"
        raise SubjectError(f"{name} comes with {what}; use {name}@random or {name}@PATH.")
    return Path(path)


def _from_timm(spec: Spec) -> Subject:
    import timm

    name = spec.name.removeprefix("timm/")
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise unknown(name, "timm")
    tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise _unknown_tag("timm", architecture, tag, tags)
    notes: list[str] = []

    def build(**options: Any) -> nn.Module:
        with reproducible():
            return timm.create_model(name, **options)

    if spec.weights == "random":
        module = build()
    elif spec.weights is not None:
        convert = _timm_converter(architecture)
        module, _, notes = _with_checkpoint(spec, spec.weights, build, None, convert)
    elif not tags:
        raise SubjectError(f"timm has no trained weights for {architecture}: use {spec}@random or {spec}@PATH.")
    else:
        with hub_access(str(spec), _elsewhere(spec), huggingface=True):
            module = build(pretrained=True)
    prepare = preprocessing.from_timm(module, str(spec))
    config: dict[str, Any] = module.pretrained_cfg  # type: ignore[assignment]
    outputs = int(module.num_classes)  # type: ignore[arg-type]
    card = _card(spec, prepare, notes)
    if spec.weights is None:
        card |= {key: config[key] for key in ("tag", "license", "origin_url", "paper_name") if config.get(key)}
    return Subject(
        name=str(spec),
        module=module,
        preprocessing=prepare,
        classes=imagenet_classes(outputs) if outputs == config.get("num_classes") else None,
        trained=spec.weights != "random",
        card=card,
        classifier=outputs > 0,
    )


def _timm_converter(architecture: str) -> Convert | None:
    """timm's own checkpoint filter of a model family, which sits beside its entry point under one of these names."""
    import timm

    home = sys.modules[timm.models.model_entrypoint(architecture).__module__]
    convert = getattr(home, "checkpoint_filter_fn", None) or getattr(home, "_filter_fn", None)
    if convert is not None and len(inspect.signature(convert).parameters) == 1:
        return lambda state, module: convert(state)
    return convert


def _from_torchvision(spec: Spec) -> Subject:
    import torchvision

    architecture, _, tag = spec.name.partition(".")
    if architecture not in names("torchvision"):
        raise unknown(spec.name, "torchvision")
    family = torchvision.models.get_model_weights(architecture)
    if tag and tag not in family.__members__:
        raise _unknown_tag("torchvision", architecture, tag, list(family.__members__))
    weights = family[tag] if tag else family.DEFAULT
    outputs = len(weights.meta["categories"])
    notes: list[str] = []

    def build(**options: Any) -> nn.Module:
        with reproducible():
            return torchvision.models.get_model(architecture, **options)  # type: ignore[no-any-return]

    if spec.weights == "random":
        module = build(weights=None)
    elif spec.weights is not None:
        module, outputs, notes = _with_checkpoint(spec, spec.weights, build, outputs)
    else:
        with hub_access(str(spec), _elsewhere(spec), huggingface=False):
            module = build(weights=weights)
    prepare = preprocessing.from_torchvision(weights.transforms(), module)
    card = _card(spec, prepare, notes)
    if spec.weights is None:
        card |= {"tag": str(weights), "recipe": weights.meta.get("recipe")}
    categories = tuple(weights.meta["categories"])
    return Subject(
        name=str(spec),
        module=module,
        preprocessing=prepare,
        classes=categories if len(categories) == outputs else None,
        trained=spec.weights != "random",
        card=card,
    )


def _unknown_tag(source: str, architecture: str, tag: str, tags: list[str]) -> UnknownSubject:
    there_are = f"there are {', '.join(tags)}" if tags else "there are none"
    return UnknownSubject(f"{source} knows {architecture} but no weights called {tag!r} of it; {there_are}.")


def _elsewhere(spec: Spec) -> str:
    return f"use {spec}@PATH with a downloaded checkpoint, or {spec}@random."


def _with_checkpoint(
    spec: Spec,
    path: str | Path,
    build: Callable[..., nn.Module],
    outputs: int | None,
    convert: Convert | None = None,
) -> tuple[nn.Module, int, list[str]]:
    """The model with the tensors of a file, its number of classes, notes; `outputs` None: the module says it.

    It is built with the checkpoint's number of classes if that is all that differs.
    """
    state, notes = read_checkpoint(path)
    module = build()
    state, fit = fit_to(state, module, convert)
    outputs = int(module.num_classes) if outputs is None else outputs  # type: ignore[arg-type]
    size = None if fit.complete else fit.head_size(outputs)
    if size is not None:
        module, outputs = build(num_classes=size), size
        state, fit = fit_to(state, module, convert)
        notes = [*notes, f"the classifier {f'has {size} classes' if size else 'is left out'}, as in the checkpoint"]
    if not fit.complete:
        raise fit.mismatch(path, f"{spec.source}:{spec.name}")
    load_into(module, state)
    return module, outputs, notes


def _from_module(
    module: nn.Module, transform: Any, name: str | None, input_size: tuple[int, int] | int | None
) -> Subject:
    module = unwrapped(module, name or type(module).__name__)
    name = name or type(module).__name__
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
        trained=True,
        card={"source": "module", "class": type(module).__qualname__, "preprocessing": prepare.as_json()},
        keyword="pixel_values" if hasattr(module, "main_input_name") else None,
    )
    output = _try(subject)
    subject.classifier = find_logits(output) is not None and getattr(module, "num_classes", None) != 0
    subject.classes = _classes_of_module(module, subject.logits(output))
    subject.card = {**subject.card, "notes": [assumption]}
    return subject


def _classes_of_module(module: nn.Module, logits: Tensor | None) -> tuple[str, ...] | None:
    """Class names a module carries itself, as `classes` or in a Hugging Face config; if their number is right."""
    from eyechart.subjects.labels import meaningful

    listed = getattr(module, "classes", None) or getattr(getattr(module, "config", None), "id2label", None)
    if isinstance(listed, dict):
        listed = [listed[index] for index in sorted(listed)]
    if logits is None or not isinstance(listed, (list, tuple)) or len(listed) != logits.shape[1]:
        return None
    return meaningful(tuple(map(str, listed)))


def _try(subject: Subject) -> Any:
    """One call on a grey picture, so that a module that cannot be examined says so here and in a sentence."""
    height, width = subject.input_size
    try:
        with torch.no_grad():
            return subject.call(torch.zeros(1, 3, height, width))
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SubjectError(
            f"{subject.name} cannot be called on one colour picture of {height}×{width} (1, 3, {height}, {width}): "
            f"{reason.rstrip('.')}; a transform or input_size that fits it may be needed."
        ) from error


def _card(spec: Spec, prepare: Preprocessing, notes: list[str]) -> dict[str, Any]:
    weights = "random, seed 0" if spec.weights == "random" else spec.weights or "trained"
    return {
        "source": spec.source,
        "architecture": spec.name,
        "weights": weights,
        "preprocessing": prepare.as_json(),
        "notes": notes,
    }
