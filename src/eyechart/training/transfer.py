"""Where a training begins: a model of the zoo with fresh weights, or with those of a subject (`--from`).

Transfer gives the subject a new head for the data's classes, resizes position tables to the input size, and feeds it
images normalised as it is used to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from eyechart import zoo
from eyechart.errors import SubjectError, UsageError, WeightsMismatch
from eyechart.phrases import quoted
from eyechart.subjects.catalogue import CHECKPOINT_SUFFIXES, SOURCES, Spec, parse_spec
from eyechart.subjects.load import load_subject
from eyechart.subjects.preprocessing import Preprocessing
from eyechart.subjects.resizing import resize_positions
from eyechart.subjects.subject import Subject, find_logits
from eyechart.subjects.trained_here import refuse_other_architecture
from eyechart.subjects.weights import INCIDENTAL, State, fit_to, read_checkpoint
from eyechart.training.augment import Normalisation
from eyechart.training.run import TrainingRun

OTHER_DRAWS = 0x9E3779B9
"""Added to the seed where weights are given. With the seed that they were trained with, a new head would be drawn as
theirs was, which they have grown to fit: on CIFAR-10 it was right on 93 % of the images before its first step."""


@dataclass(frozen=True)
class Beginning:
    module: nn.Module
    head: tuple[str, ...]
    """Names of the head's parameters."""
    normalisation: Normalisation | None = None
    """What the first weights are used to; None: the data's own."""
    source: str | None = None
    switches: Mapping[str, Any] | None = None
    """Of a zoo model, where they differ from the table's."""
    notices: tuple[str, ...] = ()


def begin(run: TrainingRun, classes: Sequence[str], image_size: int) -> Beginning:
    """The model a run starts with. Fresh weights are drawn from torch's default generator, which --from seeds anew."""
    if run.begin_from is None:
        module = zoo.build(
            run.model,
            classes=len(classes),
            image_size=image_size,
            drop_path=run.recipe.drop_path,
            **run.switches,
        )
        return Beginning(module, head_names(module, len(classes)), switches=dict(run.switches) or None)
    spec = _source(run)
    torch.manual_seed(run.seed + OTHER_DRAWS)
    beginning = (
        _from_zoo(run, spec, classes, image_size)
        if spec.source == "zoo"
        else _from_elsewhere(run, spec, classes, image_size)
    )
    _try(beginning.module, str(spec), image_size, len(classes))
    return beginning


def input_size_of(run: TrainingRun) -> int | None:
    """What the pictures of a folder are brought to where the run does not say: the size the subject is used to."""
    if run.begin_from is None or run.image_size is not None:
        return run.image_size
    spec = _source(run)
    if spec.source == "zoo":
        return int(_zoo_card(spec)[1].get("input_size", [32])[0])
    return load_subject(str(spec)).input_size[0]


def _source(run: TrainingRun) -> Spec:
    text = run.begin_from or ""
    if Path(text).suffix in CHECKPOINT_SUFFIXES and "@" not in text and text.partition(":")[0] not in SOURCES:
        if run.model not in zoo.names():
            raise UsageError(
                f"{text} names weights but no architecture; write --from {quoted(f'timm:NAME@{text}')}, or "
                "train a model of the zoo."
            )
        return Spec("zoo", run.model, text)
    spec = parse_spec(text)
    if spec.source == "zoo" and run.model in zoo.names() and spec.name in zoo.names() and run.model != spec.name:
        raise UsageError(
            f"--from {spec} is trained on as {spec.name}, so it cannot be called {run.model}; write eyechart train "
            f"{spec.name} --from {quoted(str(spec))}, or a NAME of your own."
        )
    if spec.size is not None:
        raise UsageError(
            f"--from takes no input size; write --from {replace(spec, size=None)} --image-size {spec.size}."
        )
    return spec


def _zoo_card(spec: Spec) -> tuple[Path | None, dict[str, Any]]:
    """The file of weights (None: fresh ones) and the card that says how they were made."""
    if spec.weights == "random":
        return None, {}
    given = Path(spec.weights or "").expanduser()
    path = given if given.suffix in CHECKPOINT_SUFFIXES else zoo.weights(spec.name, spec.weights)
    if path is None:
        raise SubjectError(f"{spec} has no trained weights; zoo:{spec.name}@PATH takes those of a file.")
    card = zoo.card_beside(path)
    if card:
        refuse_other_architecture(spec, path, card)
    return path, card


def _from_zoo(run: TrainingRun, spec: Spec, classes: Sequence[str], image_size: int) -> Beginning:
    path, card = _zoo_card(spec)
    table = zoo.find(spec.name).switches
    own_switches = {name: value for name, value in (card.get("switches") or {}).items() if table.get(name) != value}
    switches = {**own_switches, **run.switches}
    module = zoo.build(
        spec.name, classes=len(classes), image_size=image_size, drop_path=run.recipe.drop_path, **switches
    )
    head = head_names(module, len(classes))
    if run.head == "keep":
        refuse_other_classes(str(spec), card.get("classes"), None, classes)
    if path is not None:
        state, fit = fit_to(read_checkpoint(path)[0], module)
        if fit.fitting < fit.expected // 2:
            raise fit.mismatch(path, str(spec))
        module.load_state_dict(fitted_state(state, module, () if run.head == "keep" else head, str(spec)))
    own = Normalisation(tuple(card["mean"]), tuple(card["std"])) if "mean" in card else None
    return Beginning(module, head, own, str(spec), switches or None)


def fitted_state(state: State, module: nn.Module, skip: Sequence[str], name: str) -> State:
    """A checkpoint for a module of another input size: position tables resized, `skip` and counters left as built."""
    state = resize_positions(state, module)
    fitted: State = {}
    for key, wanted in module.state_dict().items():
        stored = state.get(key)
        if key in skip or (key.endswith(INCIDENTAL) and (stored is None or stored.shape != wanted.shape)):
            fitted[key] = wanted
        elif stored is None:
            raise WeightsMismatch(f"{name} lacks {key}; the checkpoint is of another architecture or other switches.")
        elif stored.shape != wanted.shape:
            raise WeightsMismatch(
                f"{name} has {key} of shape {tuple(stored.shape)}, but {tuple(wanted.shape)} is needed: other "
                "switches, other classes, or a part that cannot take another input size."
            )
        else:
            fitted[key] = stored
    return fitted


def _from_elsewhere(run: TrainingRun, spec: Spec, classes: Sequence[str], image_size: int) -> Beginning:
    if run.switches:
        raise UsageError(f"--switch is for models of the zoo; {spec} is not one.")
    subject = load_subject(str(spec), input_size=image_size)
    module = subject.module
    if run.head == "keep":
        refuse_other_classes(str(spec), subject.classes, _outputs(subject), classes)
    elif spec.source == "timm":
        module.reset_classifier(len(classes))  # type: ignore[operator]  # every timm model has it
    else:
        _replace_head(module, _outputs(subject), len(classes), str(spec))
    module = module if subject.keyword is None else LogitsOnly(module, subject.keyword)
    notices = []
    if run.recipe.drop_path:
        notices.append(f"{spec} keeps its own stochastic depth; the recipe's {run.recipe.drop_path:g} is not applied.")
    return Beginning(module, head_names(module, len(classes)), _normalisation(subject), str(spec), None, tuple(notices))


class LogitsOnly(nn.Module):
    """A model that is called by keyword and answers in a structure, as one that maps images to logits."""

    def __init__(self, module: nn.Module, keyword: str) -> None:
        super().__init__()
        self.module = module
        self.keyword = keyword

    def forward(self, images: Tensor) -> Tensor:
        logits = find_logits(self.module(**{self.keyword: images}))
        assert logits is not None  # tried when the training began
        return logits


def _outputs(subject: Subject) -> int:
    height, width = subject.input_size
    with torch.no_grad():
        logits = subject.logits(subject.call(torch.zeros(1, 3, height, width)))
    if logits is None:
        raise SubjectError(f"{subject.name} gives features, not classes; only a classifier can be trained further.")
    return int(logits.shape[1])


def _replace_head(module: nn.Module, outputs: int, classes: int, name: str) -> None:
    linear_paths = [path for path, part in module.named_modules() if isinstance(part, nn.Linear)]
    path = next((path for path in reversed(linear_paths) if module.get_submodule(path).out_features == outputs), None)
    if path is None:
        raise SubjectError(f"{name} has no linear layer with {outputs} outputs that could be replaced by a new head.")
    old = module.get_submodule(path)
    assert isinstance(old, nn.Linear)
    parent, _, last = path.rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Linear(old.in_features, classes, old.bias is not None))


def _normalisation(subject: Subject) -> Normalisation | None:
    prepare = subject.preprocessing
    if not isinstance(prepare, Preprocessing):
        return None
    unit = 255 * prepare.scale  # (pixel · scale − mean) / std, with pixels in 0…1
    mean, std = [value / unit for value in prepare.mean], [value / unit for value in prepare.std]
    return Normalisation((mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))


def head_names(module: nn.Module, classes: int) -> tuple[str, ...]:
    """The parameters of the last layer with one output a class; of both heads where a timm model has two (DeiT)."""
    several = module.get_classifier() if hasattr(module, "get_classifier") else None  # type: ignore[operator]
    if isinstance(several, (tuple, list)):
        theirs = {id(parameter) for part in several for parameter in part.parameters()}
        return tuple(name for name, parameter in module.named_parameters() if id(parameter) in theirs)
    for path, part in reversed(list(module.named_modules())):
        outputs = getattr(part, "out_features", None) or getattr(part, "out_channels", None)
        if isinstance(part, (nn.Linear, nn.Conv2d)) and outputs == classes:
            return tuple(f"{path}.{name}" for name, _ in part.named_parameters())
    raise SubjectError(f"No layer with {classes} outputs was found that could be the head.")


def refuse_other_classes(
    name: str, own_classes: Sequence[str] | None, count: int | None, classes: Sequence[str]
) -> None:
    """--head keep makes sense only for the very classes the head was trained on."""
    if (own_classes is not None and tuple(own_classes) == tuple(classes)) or (
        own_classes is None and count == len(classes)
    ):
        return
    had = f"{len(own_classes)} ({', '.join(own_classes[:3])} …)" if own_classes else f"{count or 'unknown ones'}"
    raise WeightsMismatch(
        f"The classes of {name}, {had}, are not those of the data, {len(classes)} ({', '.join(classes[:3])} …); leave "
        "--head keep out for a new head."
    )


def freeze(module: nn.Module, how: str, head: Sequence[str], image_size: int) -> list[nn.Module]:
    """Switch gradients off; the parts that are wholly frozen, which must stay in eval mode (batch statistics!)."""
    if how == "none":
        return []
    names = [name for name, _ in module.named_parameters()]
    frozen = set(names) - set(head) if how == "all-but-head" else _low_third(module, image_size)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in frozen)
    parts = [part for part in module.modules() if next(part.parameters(), None) is not None]
    return [part for part in parts if not any(parameter.requires_grad for parameter in part.parameters())]


def _low_third(module: nn.Module, image_size: int) -> set[str]:
    """The parameters before those of the blocks above the lowest third: stem and low blocks.

    And those, outside of the blocks above, that act only through the low ones: a ViT's 2-D position tables come last.
    """
    from eyechart.subjects.anatomy import anatomy_of

    pictures = torch.rand(2, 3, image_size, image_size)
    with torch.no_grad():
        anatomy = anatomy_of("the model", module.eval(), pictures)
    paths = list(dict.fromkeys(site.path for site in anatomy.pick("block")))
    low = math.ceil(len(paths) / 3)
    if low >= len(paths):
        raise UsageError(f"--freeze low-third needs a model of at least two blocks; got {len(paths)}.")
    cut = module.get_submodule(paths[low - 1]).register_forward_hook(lambda _module, _inputs, output: _detached(output))
    try:
        with torch.enable_grad():
            total = module(pictures).sum()
    finally:
        cut.remove()
    names, parameters = zip(*module.named_parameters(), strict=True)
    slopes = torch.autograd.grad(total, parameters, allow_unused=True)
    above = [any(name.startswith(f"{path}.") for path in paths[low:]) for name in names]
    return {
        name
        for index, (name, slope) in enumerate(zip(names, slopes, strict=True))
        if index < above.index(True) or (slope is None and not above[index])
    }


def _detached(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.detach()
    return type(output)(map(_detached, output)) if isinstance(output, (tuple, list)) else output


def _try(module: nn.Module, name: str, image_size: int, classes: int) -> None:
    module.eval()
    try:
        with torch.no_grad():
            shape = tuple(module(torch.zeros(2, 3, image_size, image_size)).shape)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise SubjectError(
            f"{name} cannot be called on images of {image_size}×{image_size} ({reason.rstrip('.')}); another "
            "--image-size may fit."
        ) from error
    if shape != (2, classes):
        raise SubjectError(f"{name} gave an output of shape {shape} for 2 images, but {classes} classes are trained.")
