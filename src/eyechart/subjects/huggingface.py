"""Subjects of the Hugging Face hub or a local folder, through transformers; no code from either is run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from eyechart.errors import SubjectError, UnknownSubject, UnsafeWeights, WeightsMismatch
from eyechart.hub import hub_access
from eyechart.subjects import preprocessing
from eyechart.subjects.catalogue import Spec
from eyechart.subjects.labels import meaningful
from eyechart.subjects.preprocessing import Preprocessing
from eyechart.subjects.subject import Subject
from eyechart.subjects.trained_here import trained_here
from eyechart.subjects.weights import INCIDENTAL, Fit, read_checkpoint, reproducible


def from_huggingface(spec: Spec) -> Subject:
    """`hf:ORG/NAME` or `hf:FOLDER`: config, weights and processor as they were saved."""
    transformers = _transformers()
    folder = Path(spec.name).expanduser()
    local = folder.is_dir()
    if not local and spec.name.count("/") != 1:
        raise UnknownSubject(f"{spec} is neither a folder nor of the form hf:ORG/NAME.")
    if local and not (folder / "config.json").is_file():
        raise SubjectError(f"{spec} is not a saved model: the folder has no config.json.")
    location = str(folder) if local else spec.name
    advice = (
        "use hf:FOLDER with a downloaded copy, or timm:NAME@PATH or timm:NAME@random for an architecture timm knows."
    )
    with _quiet(transformers), hub_access(str(spec), advice, huggingface=not local):
        try:
            config = transformers.AutoConfig.from_pretrained(location, trust_remote_code=False)
        except (ValueError, KeyError) as error:
            if "trust_remote_code" in str(error):
                raise _of_its_own_code(spec, "it") from None
            raise SubjectError(f"{spec} has no config that transformers knows ({_first_line(error)}).") from None
        whole, config = config, getattr(config, "vision_config", config)
        channels = getattr(config, "num_channels", 3)
        if channels != 3:
            raise preprocessing.not_colour(str(spec), channels)
        made = None if spec.weights in (None, "random") else trained_here(spec, spec.weights)
        if made is not None:
            config.num_labels = len(made.classes)
        module, classifier, notes = _module(spec, transformers, location, config, whole)
        prepare, assumption = _processor(spec, transformers, location, config)
    labels = getattr(config, "id2label", None) or {}
    classes = meaningful(tuple(str(labels[index]) for index in sorted(labels))) if classifier and labels else None
    if made is not None:
        prepare, classes, assumption = made.prepare(prepare), made.classes, list(made.notes)
    return Subject(
        name=str(spec),
        module=module,
        preprocessing=prepare,
        classes=classes,
        trained=spec.weights != "random",
        card={
            "source": "hf",
            "architecture": type(module).__name__,
            "weights": "random, seed 0" if spec.weights == "random" else spec.weights or spec.name,
            "preprocessing": prepare.as_json(),
            "notes": [*notes, *assumption],
        }
        | ({"zoo": dict(made.card)} if made is not None else {}),
        classifier=classifier,
        keyword="pixel_values",
    )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise SubjectError("Subjects named hf:… need the transformers library: pip install 'eyechart[hf]'.") from None
    return transformers


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Its tables of missing tensors and its progress bars, off: what matters is read and said in a sentence."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _module(spec: Spec, transformers: Any, location: str, config: Any, whole: Any) -> tuple[nn.Module, bool, list[str]]:
    """The model the config was saved with: a classifier if it says so, else the bare features (no random head)."""
    classifier = any("ForImageClassification" in name for name in getattr(config, "architectures", None) or [])
    family = transformers.AutoModelForImageClassification if classifier else transformers.AutoModel
    if family.__name__ in (getattr(whole, "auto_map", None) or {}):  # else transformers takes a class that it knows
        raise _of_its_own_code(spec, "it")
    if spec.weights == "random":
        with reproducible():
            return family.from_config(config, trust_remote_code=False).float(), classifier, []
    notes: list[str] = []
    state, origin = None, location
    options: dict[str, Any] = {"config": config, "output_loading_info": True, "ignore_mismatched_sizes": True}
    options["trust_remote_code"] = False
    if spec.weights is not None:
        state, notes = read_checkpoint(spec.weights)
        if all(name.startswith("module.") for name in state):  # as it is wrapped while it is trained here
            state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
        origin = spec.weights
        kind = type(family.from_config(config, trust_remote_code=False))

        def fetch(**more: Any) -> tuple[nn.Module, dict[str, Any]]:
            return kind.from_pretrained(None, state_dict=dict(state or {}), **options, **more)  # type: ignore[no-any-return]
    else:

        def fetch(**more: Any) -> tuple[nn.Module, dict[str, Any]]:
            return family.from_pretrained(location, weights_only=True, **options, **more)  # type: ignore[no-any-return]

    with reproducible():
        module, info = fetch()
        missing = set(info["missing_keys"])
        if missing and all(name.startswith("pooler.") for name in missing):
            module, info = fetch(add_pooling_layer=False)  # self-supervised checkpoints have no pooler
            notes = [*notes, "the pooling layer, which the checkpoint does not have, is left out"]
    _check(spec, origin, module, info, strict=state is not None and classifier and whole is config)
    return module.float(), classifier, notes


def _check(spec: Spec, origin: str, module: nn.Module, info: dict[str, Any], *, strict: bool) -> None:
    """transformers fills what a checkpoint lacks with random numbers; that must not pass for trained weights."""
    wanted = module.state_dict()
    missing = {
        name: tuple(wanted[name].shape) if name in wanted else ()
        for name in sorted(info["missing_keys"])
        if not name.endswith(INCIDENTAL)
    }
    reshaped = {name: (tuple(actual), tuple(expected)) for name, actual, expected in sorted(info["mismatched_keys"])}
    extra = tuple(sorted(info["unexpected_keys"])) if strict else ()
    fitting = len(wanted) - len(missing) - len(reshaped)
    fit = Fit(fitting, len(wanted), fitting + len(reshaped) + len(info["unexpected_keys"]), missing, reshaped, extra)
    if not fit.complete:
        error: WeightsMismatch = fit.mismatch(origin, str(spec))
        raise error


def _processor(spec: Spec, transformers: Any, location: str, config: Any) -> tuple[Preprocessing, list[str]]:
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(location, trust_remote_code=False)
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise _of_its_own_code(spec, "its image processor") from None
        size = preprocessing.sides(getattr(config, "image_size", None) or 224)
        note = f"no image processor was saved: ImageNet mean and deviation assumed, input size {size[0]}×{size[1]}"
        return Preprocessing(size), [note]
    notes = ["code of its own that prepares pictures was not run; its size, mean and deviation are used"]
    return preprocessing.from_processor(processor), notes if getattr(processor, "auto_map", None) else []


def _of_its_own_code(spec: Spec, what: str) -> UnsafeWeights:
    return UnsafeWeights(
        f"{spec} brings Python code that says what {what} is, and eyechart runs no code of models: build it in a "
        "script of your own and give the module to eyechart.exam, or choose a model that transformers itself knows."
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
