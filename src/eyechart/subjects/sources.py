"""Subjects of the zoo, timm and torchvision: built, given weights, and told what they are fed.

Each is built for the input size of its spec (`:48px`); `load.py` then feeds that size and tries the call.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from eyechart import zoo
from eyechart.errors import EyechartError, SubjectError, UnknownSubject, WeightsMismatch
from eyechart.hub import hub_access
from eyechart.subjects import preprocessing
from eyechart.subjects.catalogue import CHECKPOINT_SUFFIXES, Spec, names, unknown
from eyechart.subjects.labels import imagenet_classes
from eyechart.subjects.preprocessing import Preprocessing
from eyechart.subjects.resizing import resize_positions
from eyechart.subjects.subject import Subject
from eyechart.subjects.trained_here import TrainedHere, trained_here
from eyechart.subjects.weights import Convert, State, fit_to, load_into, read_checkpoint, reproducible

Build = Callable[..., nn.Module]
MANY = 50_000_000
"""Parameters that a model of the zoo may have beyond its weights before it is not built: 0.2 GB."""


def from_zoo(spec: Spec) -> Subject:
    if spec.name not in zoo.names():
        raise unknown(spec.name, "zoo")
    card = dict(zoo.card(spec.name))
    path = None if spec.weights == "random" else _zoo_weights(spec)
    notes, advice = [], ""
    if path is not None and path != zoo.weights(spec.name, spec.weights):  # not a bundled file
        made = trained_here(spec, path)
        card = {key: value for key, value in card.items() if key in ("name", "sentence", "switches", "mean", "std")}
        if made is None:
            advice = f"There is no card beside it, so {spec.model}'s own switches and input size were used."
            notes = [f"there is no card beside the weights: switches and normalisation are {spec.model}'s own"]
        else:
            plain = {"classes": list(made.classes), "input_size": [made.size] * 2, "switches": dict(made.switches)}
            card |= {**made.card, **plain, "mean": list(made.mean), "std": list(made.std)}
            notes = list(made.notes)
    outputs = len(card.get("classes") or range(10))
    own_size = preprocessing.sides(card.get("input_size", 32))
    size = spec.size or own_size[0]
    switches = card.get("switches") or {}

    def build(num_classes: int = outputs) -> nn.Module:
        with reproducible():
            return zoo.build(spec.name, classes=num_classes, image_size=size, **switches)

    if path is None:
        module = build()
    else:
        state, unwrapping = read_checkpoint(path)
        zoo.builder_of(spec.name)  # first, for what it imports: a module's own tensors would be made on the meta device
        _refuse_larger(build, state, path)
        resize = resize_positions if spec.size else None
        module, outputs, more = _fitted(spec, state, path, build, outputs, resize, advice)
        notes = [*notes, *unwrapping, *more]
    prepare = Preprocessing(
        own_size,
        tuple(card.get("mean", preprocessing.IMAGENET_MEAN)),
        tuple(card.get("std", preprocessing.IMAGENET_STD)),
    )
    classes = tuple(card.get("classes") or ())
    return Subject(
        name=str(spec),
        module=module,
        preprocessing=prepare,
        classes=classes if len(classes) == outputs else None,
        trained=path is not None,
        card=_card(spec, prepare, notes) | {"zoo": card},
    )


class Undrawn(TorchFunctionMode):
    """Nothing random is drawn: on the meta device nothing could hold it, and torch imports a computer algebra system
    to draw there, a second in every process. Rates of drop-path, of which older timm asks the values, have some."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs | {"device": "cpu"} if func is torch.linspace else kwargs)


def _refuse_larger(build: Build, state: State, path: Path) -> None:
    """A card says how its model is built: what is far larger than the weights is not built, for it may be of any size.

    It is tried on torch's meta device, where tensors have a shape and take no memory.
    """
    try:
        with torch.device("meta"), Undrawn():
            claimed = sum(parameter.numel() for parameter in build().parameters())
    except EyechartError:
        raise
    except Exception as error:  # switches that do not go together fail anywhere in the model
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise SubjectError(f"The card beside {path} describes a model that cannot be built ({reason}).") from error
    held = sum(tensor.numel() for tensor in state.values())
    if claimed > 4 * held + MANY:
        raise WeightsMismatch(
            f"The card beside {path} describes a model of {claimed:,} parameters, but the file holds {held:,}."
        )


def _zoo_weights(spec: Spec) -> Path:
    if spec.weights is not None and (Path(spec.weights).suffix in CHECKPOINT_SUFFIXES or Path(spec.weights).is_file()):
        return Path(spec.weights)
    path = zoo.weights(spec.name, spec.weights)
    if path is None:
        what = f"no snapshot called {spec.weights!r}" if spec.weights else "no trained weights"
        raise SubjectError(f"{spec.model} comes with {what}; use {spec.model}@random or {spec.model}@PATH.")
    return Path(path)


def from_timm(spec: Spec) -> Subject:
    import timm

    name = spec.name.removeprefix("timm/")
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise unknown(name, "timm")
    tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise _unknown_tag("timm", architecture, tag, tags)
    made = _made_here(spec)
    size = spec.size or (made.size if made else None)
    default = timm.get_pretrained_cfg(architecture)
    # timm says which models are built for one size; the others take no such argument and any size.
    sized: dict[str, Any] = {"img_size": size} if size and default is not None and default.fixed_input_size else {}
    notes: list[str] = []

    def build(**options: Any) -> nn.Module:
        with reproducible(), _for_its_size(spec):
            return timm.create_model(name, **sized, **options)

    if spec.weights == "random":
        module = build()
    elif spec.weights is not None:
        state, notes = read_checkpoint(spec.weights)
        module, _, more = _fitted(spec, state, spec.weights, build, None, _timm_converter(architecture))
        notes = [*notes, *more]
    elif not tags:
        raise SubjectError(f"timm has no trained weights for {architecture}: use {spec}@random or {spec}@PATH.")
    else:
        with hub_access(str(spec), _elsewhere(spec), huggingface=True):
            module = build(pretrained=True)
    prepare = preprocessing.from_timm(module, str(spec))
    config: dict[str, Any] = module.pretrained_cfg  # type: ignore[assignment]
    outputs = int(module.num_classes)  # type: ignore[arg-type]
    card: dict[str, Any] = {}
    if spec.weights is None:
        card = {key: config[key] for key in ("tag", "license", "origin_url", "paper_name") if config.get(key)}
    classes = imagenet_classes(outputs) if outputs == config.get("num_classes") else None
    return _subject(spec, module, prepare, classes, outputs, made, notes, card)


def _timm_converter(architecture: str) -> Convert | None:
    """timm's own checkpoint filter of a model family, which sits beside its entry point under one of these names."""
    import timm

    home = sys.modules[timm.models.model_entrypoint(architecture).__module__]
    convert = getattr(home, "checkpoint_filter_fn", None) or getattr(home, "_filter_fn", None)
    if convert is not None and len(inspect.signature(convert).parameters) == 1:
        return lambda state, module: convert(state)
    return convert


def from_torchvision(spec: Spec) -> Subject:
    import torchvision

    architecture, _, tag = spec.name.partition(".")
    if architecture not in names("torchvision"):
        raise unknown(spec.name, "torchvision")
    family = torchvision.models.get_model_weights(architecture)
    if tag and tag not in family.__members__:
        raise _unknown_tag("torchvision", architecture, tag, list(family.__members__))
    weights = family[tag] if tag else family.DEFAULT
    categories = tuple(weights.meta["categories"])
    outputs = len(categories)
    made = _made_here(spec)
    size = spec.size or (made.size if made else None)
    # Of torchvision's models only the ViTs are built for one size.
    sized = {"image_size": size} if size and architecture.startswith("vit_") else {}
    notes: list[str] = []

    def build(**options: Any) -> nn.Module:
        with reproducible(), _for_its_size(spec):
            return torchvision.models.get_model(architecture, **sized, **options)  # type: ignore[no-any-return]

    if spec.weights == "random":
        module = build(weights=None)
    elif spec.weights is not None:
        state, notes = read_checkpoint(spec.weights)
        resize = resize_positions if spec.size else None
        module, outputs, more = _fitted(spec, state, spec.weights, build, outputs, resize)
        notes = [*notes, *more]
    else:
        with hub_access(str(spec), _elsewhere(spec), huggingface=False):
            if sized:  # torchvision refuses its own weights at another size
                state = weights.get_state_dict(progress=True, check_hash=True)
                module, _, notes = _fitted(spec, state, str(weights), build, outputs, resize_positions)
            else:
                module = build(weights=weights)
    prepare = preprocessing.from_torchvision(weights.transforms(), module)
    card = {"tag": str(weights), "recipe": weights.meta.get("recipe")} if spec.weights is None else {}
    classes = categories if len(categories) == outputs else None
    return _subject(spec, module, prepare, classes, outputs, made, notes, card)


def _subject(
    spec: Spec,
    module: nn.Module,
    prepare: Preprocessing,
    classes: tuple[str, ...] | None,
    outputs: int,
    made: TrainedHere | None,
    notes: list[str],
    more: dict[str, Any],
) -> Subject:
    """A library's model as a subject; what was trained here has classes and normalisation of its own."""
    if made is not None:
        prepare = made.prepare(prepare)
        classes = made.classes if len(made.classes) == outputs else None
        notes = [*notes, *made.notes]
        more = {**more, "zoo": dict(made.card)}
    return Subject(
        name=str(spec),
        module=module,
        preprocessing=prepare,
        classes=classes,
        trained=spec.weights != "random",
        card=_card(spec, prepare, notes) | more,
        classifier=outputs > 0,
    )


def _made_here(spec: Spec) -> TrainedHere | None:
    return None if spec.weights in (None, "random") else trained_here(spec, spec.weights)


def _unknown_tag(source: str, architecture: str, tag: str, tags: list[str]) -> UnknownSubject:
    available = f"there are {', '.join(tags)}" if tags else "there are none"
    return UnknownSubject(f"{source} knows {architecture} but no weights called {tag!r} of it; {available}.")


def _elsewhere(spec: Spec) -> str:
    return f"use {spec}@PATH with a downloaded checkpoint, or {spec}@random."


@contextmanager
def _for_its_size(spec: Spec) -> Iterator[None]:
    """Whatever a library says when it cannot build a model for the size asked for becomes one sentence."""
    try:
        yield
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        if spec.size is None or isinstance(error, OSError):  # a network's errors may be ValueErrors as well
            raise
        lines = [line.strip().rstrip(".:") for line in str(error).splitlines() if line.strip()]
        reason = next((line for line in lines if not line.startswith("Error(s) in")), type(error).__name__)
        raise _size_refused(spec, reason) from error


def _size_refused(spec: Spec, reason: str) -> SubjectError:
    return SubjectError(f"{spec.model} cannot take pictures of {spec.size}×{spec.size}: {reason.rstrip('.!')}.")


def _fitted(
    spec: Spec,
    state: State,
    origin: str | Path,
    build: Build,
    outputs: int | None,
    convert: Convert | None = None,
    advice: str = "",
) -> tuple[nn.Module, int, list[str]]:
    """The model with these tensors, its number of classes, notes; `outputs` None: the module says it.

    It is built with the checkpoint's number of classes if that is all that differs.
    """
    module = build()
    shapes_before = {name: tensor.shape for name, tensor in state.items()}
    state, fit = fit_to(state, module, convert)
    outputs = int(module.num_classes) if outputs is None else outputs  # type: ignore[arg-type]
    size = None if fit.complete else fit.head_size(outputs)
    notes = []
    if size is not None:
        module, outputs = build(num_classes=size), size
        state, fit = fit_to(state, module, convert)
        notes = [f"the classifier {f'has {size} classes' if size else 'is left out'}, as in the checkpoint"]
    if spec.size and fit.reshaped and not fit.missing and not fit.extra:
        name, (had, needed) = next(iter(fit.reshaped.items()))
        shapes = " and not ".join("×".join(map(str, shape)) for shape in (had, needed))
        raise _size_refused(spec, f"{name} is {shapes}, and only position tables can be resized")
    if not fit.complete:
        raise fit.mismatch(origin, spec.model, advice)
    resized = [name for name, tensor in state.items() if name in shapes_before and shapes_before[name] != tensor.shape]
    if resized:
        notes.append(f"{len(resized)} position table(s) were resized to the input size, {resized[0]} first")
    load_into(module, state)
    return module, outputs, notes


def _card(spec: Spec, prepare: Preprocessing, notes: list[str]) -> dict[str, Any]:
    weights = "random, seed 0" if spec.weights == "random" else spec.weights or "trained"
    return {
        "source": spec.source,
        "architecture": spec.name,
        "weights": weights,
        "preprocessing": prepare.as_json(),
        "notes": notes,
    }
