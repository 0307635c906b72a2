"""Top-5 Hessian eigenvalues of a small trained ViT: products, error and time, beside PyHessian's in the same run.

    python benchmarks/hessian.py                       # 0.5 M parameters, 16 images; truth: float64 eigsh, tol 1e-10
    python benchmarks/hessian.py --minibatches 64      # zoo:vit, minibatches a second; on a GPU many at once

PyHessian is measured where it can be imported (`pip install --no-deps --target build/pyhessian pyhessian`, then
PYTHONPATH=build/pyhessian); its numbers are those of its defaults. Every time is the median of alternating runs, so
that a busy neighbour disturbs both alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from eyechart import zoo
from eyechart.curvature import Hessian, Hessians, eigenvalues_of, krylov_spaces
from eyechart.curvature.hessian import twice_differentiable
from eyechart.images import open_images
from eyechart.training.augment import Normalisation

BATCH = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150, help="training steps of the small ViT")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minibatches", type=int, default=0, help="measure the throughput on zoo:vit instead")
    parser.add_argument("--group", type=int, default=32, help="minibatches multiplied at once on a GPU")
    parser.add_argument("--subject", default="vit@warmup", help="the zoo's model and snapshot for the throughput")
    asked = parser.parse_args()
    if torch.cuda.is_available():
        torch.backends.cudnn.allow_tf32 = False
    if asked.minibatches:
        throughput(asked.subject, asked.minibatches, asked.group, asked.repeats)
    else:
        accuracy(asked.steps, asked.repeats)


def sample() -> tuple[Tensor, Tensor]:
    """The 500 bundled training images, normalised, in a random order."""
    source = open_images("sample:train")
    pixels = np.stack([np.asarray(picture) for picture in source.pictures(range(len(source)))])
    order = np.random.default_rng(0).permutation(len(pixels))
    assert source.labels is not None
    inputs = Normalisation((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)).apply(
        torch.from_numpy(pixels[order]).permute(0, 3, 1, 2)
    )
    return inputs, torch.from_numpy(np.asarray(source.labels)[order])


def small_vit(inputs: Tensor, labels: Tensor, steps: int) -> nn.Module:
    """A ViT of 0.5 M parameters after a short training."""
    torch.manual_seed(0)
    model = zoo.build("vit", width=120, depth=3, heads=8).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    for _ in range(steps):
        chosen = torch.randint(len(inputs), (32,))
        loss = F.cross_entropy(model(inputs[chosen]), labels[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {steps} steps, loss {loss.item():.3f}", flush=True
    )
    return model.eval()


def loss_of(model: nn.Module) -> Callable[..., Tensor]:
    return lambda weights, images, labels: F.cross_entropy(functional_call(model, weights, (images,)), labels)


def accuracy(steps: int, repeats: int) -> None:
    inputs, labels = sample()
    model = small_vit(inputs, labels, steps)
    images, targets = inputs[:BATCH], labels[:BATCH]
    truth, needed = by_eigsh(model, images, targets)
    print(f"float64 eigsh, tol 1e-10: {truth.round(4)} with {needed} products")
    ways: dict[str, Callable[[], tuple[np.ndarray, int]]] = {"eyechart": lambda: ours(model, images, targets)}
    if find_spec("pyhessian"):
        ways["PyHessian"] = lambda: pyhessian(model, images, targets)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            values, products = way()
            times[name].append(time.perf_counter() - start)
            off = np.abs(values - truth) / np.abs(truth)
            print(f"{turn} {name:9} {products} products, {times[name][-1]:.2f} s, off by at most {off.max():.1e}")
    compare(times, limit=0.5)


def ours(model: nn.Module, images: Tensor, targets: Tensor) -> tuple[np.ndarray, int]:
    found = eigenvalues_of(Hessian(loss_of(model), dict(model.named_parameters()), images, targets))
    return found.values, found.products


def by_eigsh(model: nn.Module, images: Tensor, targets: Tensor) -> tuple[np.ndarray, int]:
    from scipy.sparse.linalg import LinearOperator, eigsh

    parameters = {name: parameter.double() for name, parameter in model.named_parameters()}
    operator = Hessian(loss_of(model), parameters, images.double(), targets)
    products = 0

    def multiply(vector: np.ndarray) -> np.ndarray:
        nonlocal products
        products += 1
        return operator.multiply(torch.from_numpy(vector.reshape(1, -1)))[0].numpy()

    size = operator.parameters
    linear = LinearOperator((size, size), matvec=multiply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)
    values = eigsh(linear, k=5, which="LM", tol=1e-10, v0=start, return_eigenvectors=False)
    return values[np.argsort(-np.abs(values))], products


def pyhessian(model: nn.Module, images: Tensor, targets: Tensor) -> tuple[np.ndarray, int]:
    import pyhessian as package

    counted = 0
    multiply = package.hessian.__init__.__globals__["hessian_vector_product"]

    def counting(*arguments: Any) -> Any:
        nonlocal counted
        counted += 1
        return multiply(*arguments)

    package.hessian.__init__.__globals__["hessian_vector_product"] = counting
    try:
        with twice_differentiable():
            found = package.hessian(model, F.cross_entropy, data=(images, targets), cuda=images.is_cuda)
            values, _ = found.eigenvalues(top_n=5)
    finally:
        package.hessian.__init__.__globals__["hessian_vector_product"] = multiply
        model.zero_grad(set_to_none=True)
    return np.array(values), counted


def throughput(subject: str, minibatches: int, group: int, repeats: int) -> None:
    from eyechart.subjects import load_subject

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    group = group if device.type == "cuda" else 1
    model = load_subject(f"zoo:{subject}").module.to(device)
    inputs, labels = (tensor.to(device) for tensor in sample())
    chosen = torch.arange(minibatches * BATCH).reshape(minibatches, BATCH) % (len(inputs) - len(inputs) % BATCH)
    images, targets = inputs[chosen.to(device)], labels[chosen.to(device)]

    def grouped() -> list[Any]:
        found = []
        for start in range(0, minibatches, group):
            part = slice(start, start + group)
            operators = Hessians(loss_of(model), dict(model.named_parameters()), (images[part], targets[part]))
            found += [space.eigenvalues(5) for space in krylov_spaces(operators, top=5)]
        return found

    def one_by_one(count: int) -> list[Any]:
        return [pyhessian(model, images[place], targets[place]) for place in range(count)]

    few = min(minibatches, 2)  # PyHessian takes seconds for each
    grouped()  # kernels are chosen and memory is taken in the first round
    print("warm", flush=True)
    times: dict[str, list[float]] = {"eyechart": []}
    if find_spec("pyhessian"):
        times["PyHessian"] = []
    for _ in range(repeats):
        spent, found = timed(grouped, device)
        times["eyechart"].append(spent / minibatches)
        print(f"eyechart  {times['eyechart'][-1]:.3f} s for a minibatch", flush=True)
        if "PyHessian" in times:
            spent, theirs = timed(lambda: one_by_one(few), device)
            times["PyHessian"].append(spent / few)
            print(f"PyHessian {times['PyHessian'][-1]:.3f} s for a minibatch", flush=True)
    known = np.mean([values.settled(1e-4).all() for values in found])
    products = np.array([values.products for values in found])
    print(f"zoo:{subject} on {device}, {minibatches} minibatches, {group} at once: {products.mean():.1f} products each")
    print(f"all five known to 1e-4 in {known:.0%} of the minibatches")
    if "PyHessian" in times:
        print(f"PyHessian: {np.mean([products for _, products in theirs]):.1f} products each")
        off = [np.abs(a.values - b).max() / np.abs(a.values).max() for a, (b, _) in zip(found, theirs, strict=False)]
        print(f"its largest difference from ours, in parts of the largest eigenvalue: {max(off):.1e}")
    compare(times, limit=0.2 if device.type == "cuda" else 0.5)
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


def timed(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, found


def compare(times: dict[str, list[float]], limit: float) -> None:
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in medians.items():
        print(f"{name:9} {seconds:.3f} s")
    if "PyHessian" in medians:
        ratio = medians["eyechart"] / medians["PyHessian"]
        print(f"{ratio:.2f} times PyHessian's time (at most {limit}), {1 / ratio:.1f} times its throughput")
    else:
        print("PyHessian is not installed, so nothing is compared.")


if __name__ == "__main__":
    main()
