"""Layer-by-layer CKA of two models by eyechart, by its peers, and by brute force in float64. Peers are only called."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from passes import Passes
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from eyechart.images import open_images
from eyechart.scene import Batch
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.subject import Subject

BATCH = 64


@dataclass(frozen=True)
class Models:
    """What everyone is given: subjects, the modules whose outputs are compared, and one loader for all of them."""

    subjects: Sequence[Subject]
    layers: Sequence[Sequence[str]]
    images: Tensor

    @property
    def batch(self) -> int:
        return min(BATCH, len(self.images))

    @property
    def loader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(TensorDataset(self.images, torch.zeros(len(self.images))), batch_size=self.batch)

    @property
    def device(self) -> torch.device:
        return self.images.device

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(one, two) for two in range(len(self.subjects)) for one in range(two)]


def models_of(subjects: Sequence[Subject], count: int, device: torch.device, offset: float = 0.0) -> Models:
    """These subjects and so many bundled pictures, as the first of them is fed.

    With an `offset`, what the first subject keeps in its tokens is raised by so much: its position embeddings are, and
    every layer norm takes it away again, so that the model computes the same and only its block outputs are shifted.
    """
    source = open_images("sample")
    pictures = [source.picture(index % len(source)) for index in range(count)]
    images = subjects[0].prepare(pictures).to(device)
    for subject in subjects:
        subject.to(device).module.requires_grad_(False)
    if offset:
        subjects[0].module.pos_embed.data += offset
    layers = []
    for subject in subjects:
        anatomy = anatomy_of(subject.name, subject.module, images[:2], call=subject.call)
        layers.append([site.path for site in anatomy.sites if site.role == "block"])
    return Models(subjects, layers, images)


def bare(models: Models) -> list[np.ndarray]:
    """The passes alone."""
    with torch.no_grad():
        for images, _ in models.loader:
            for subject in models.subjects:
                subject.module(images)
    return []


def eyechart(models: Models) -> list[np.ndarray]:
    """All subjects in one pass, all pairs of their layers in one table."""
    passes = Passes(models.subjects, ["cka"], len(models.images), block=models.batch)
    loaded = iter(models.loader)

    def feed(batch: Batch) -> list[Tensor]:
        return [next(loaded)[0]] * len(models.subjects)

    passes.take(feed)
    table = passes.estimate("cka").cka
    blocks = [(table.subject.values == s.name) & (table.role.values == "block") for s in models.subjects]
    return [table.values[np.ix_(blocks[one], blocks[two])] for one, two in models.pairs]


def of_each_pair(compare: Callable[[Models, int, int], np.ndarray]) -> Callable[[Models], list[np.ndarray]]:
    """Peers compare two models at a time."""
    return lambda models: [compare(models, one, two) for one, two in models.pairs]


def pytorch_cka(models: Models, one: int, two: int) -> np.ndarray:
    from cka import compute_cka

    (table,) = compute_cka(
        models.subjects[one].module,
        models.subjects[two].module,
        models.loader,
        layers=models.layers[one],
        model2_layers=models.layers[two],
        device=models.device,
        progress=False,
    )
    return table.cpu().numpy()


def torch_cka(models: Models, one: int, two: int) -> np.ndarray:
    from torch_cka import CKA

    compared = CKA(
        models.subjects[one].module,
        models.subjects[two].module,
        model1_layers=list(models.layers[one]),
        model2_layers=list(models.layers[two]),
        device=str(models.device),
    )
    with torch.no_grad():  # its manual does not ask for this; without it the graph of every pass is kept
        compared.compare(models.loader)
    for subject in (models.subjects[one], models.subjects[two]):
        forget_hooks(subject.module)  # it leaves its own behind
    return compared.export()["CKA"].cpu().numpy()


def cka_pytorch(models: Models, one: int, two: int) -> np.ndarray:
    from cka_pytorch.cka import CKACalculator

    calculator = CKACalculator(
        models.subjects[one].module,
        models.subjects[two].module,
        list(models.layers[one]),
        list(models.layers[two]),
        verbose=False,
    )
    table = calculator.calculate_cka_matrix(models.loader, num_epochs=1)  # its default is the same images ten times
    calculator.reset()
    return table.cpu().numpy()


def thingsvision(models: Models, one: int, two: int) -> np.ndarray:
    """Its CKA class on stored features, over all images at once; its own extraction needs TensorFlow."""
    get_cka = thingsvision_cka()
    cka = get_cka("torch", len(models.images), unbiased=True, device=str(models.device))
    stored = [features_of(models, place) for place in (one, two)]
    return np.array([[float(cka.compare(first, second)) for second in stored[1]] for first in stored[0]])


def thingsvision_cka() -> Callable[..., object]:
    """Importing the package imports TensorFlow, which is not needed for this folder of it."""
    if "thingsvision" not in sys.modules:
        spec = find_spec("thingsvision")
        assert spec is not None, "thingsvision is not installed; run `make peers`"
        assert spec.submodule_search_locations is not None
        folder = Path(spec.submodule_search_locations[0])
        for name, place in {"thingsvision": folder, "thingsvision.core": folder / "core"}.items():
            package = types.ModuleType(name)
            package.__path__ = [str(place)]
            sys.modules[name] = package
    from thingsvision.core.cka import get_cka

    return get_cka  # type: ignore[no-any-return]


def features_of(models: Models, place: int) -> list[Tensor]:
    """The outputs of a model's layers on all images, (image, feature) each."""
    parts: dict[str, list[Tensor]] = {path: [] for path in models.layers[place]}
    module = models.subjects[place].module

    def keep(path: str) -> Callable[[nn.Module, object, Tensor], None]:
        return lambda module, given, output: parts[path].append(output.flatten(1).clone())

    hooks = [module.get_submodule(path).register_forward_hook(keep(path)) for path in parts]
    with torch.no_grad():
        for images, _ in models.loader:
            module(images)
    for hook in hooks:
        hook.remove()
    return [torch.cat(parts.pop(path)) for path in list(parts)]


def forget_hooks(module: nn.Module) -> None:
    for part in module.modules():
        part._forward_hooks.clear()


def brute_force(models: Models, size: int) -> list[np.ndarray]:
    """CKA in float64 by its definition, from the same float32 features: HSIC averaged over blocks, then the ratio."""
    grams = []
    for place in range(len(models.subjects)):
        of_layers = []
        for layer in features_of(models, place):
            blocks = [centred(part.double()) for part in layer.split(size) if len(part) == size]
            of_layers.append([part @ part.T for part in blocks])
        grams.append(of_layers)

    def mean_hsic(one: list[Tensor], two: list[Tensor]) -> float:
        return float(np.mean([hsic(*of_block) for of_block in zip(one, two, strict=True)]))

    own = [[mean_hsic(layer, layer) for layer in of_layers] for of_layers in grams]
    return [
        np.array(
            [
                [mean_hsic(layer, other) / np.sqrt(own[one][i] * own[two][j]) for j, other in enumerate(grams[two])]
                for i, layer in enumerate(grams[one])
            ]
        )
        for one, two in models.pairs
    ]


def centred(features: Tensor) -> Tensor:
    return features - features.mean(0)


def hsic(one: Tensor, two: Tensor) -> float:
    """Unbiased, term by term as Song et al. 2012 write it."""
    n = len(one)
    ones, hollow = torch.ones(n).to(one), 1 - torch.eye(n).to(one)
    one, two = one * hollow, two * hollow
    whole = torch.trace(one @ two) + (ones @ one @ ones) * (ones @ two @ ones) / ((n - 1) * (n - 2))
    return float(whole - 2 / (n - 2) * (ones @ one @ two @ ones)) / (n * (n - 3))


WAYS: dict[str, Callable[[Models], list[np.ndarray]]] = {
    "bare passes": bare,
    "eyechart": eyechart,
    "pytorch-cka": of_each_pair(pytorch_cka),
    "torch_cka": of_each_pair(torch_cka),
    "cka-pytorch": of_each_pair(cka_pytorch),
    "thingsvision": of_each_pair(thingsvision),
}
IMPORTED = {
    "pytorch-cka": "cka",
    "torch_cka": "torch_cka",
    "cka-pytorch": "cka_pytorch",
    "thingsvision": "thingsvision",
}
WHOLE = ("thingsvision",)
"""Compare all images at once; the others average over batches of `BATCH`."""


def ways_here() -> list[str]:
    """Those whose packages are installed."""
    return [way for way in WAYS if way not in IMPORTED or IMPORTED[way] in sys.modules or find_spec(IMPORTED[way])]
