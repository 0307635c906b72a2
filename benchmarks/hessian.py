"""Top-5 Hessian eigenvalues of a small trained ViT: products, error and time, beside its peers' in the same run.

    python benchmarks/hessian.py                       # 0.5 M parameters, 16 images; truth: float64 eigsh, tol 1e-10
    python benchmarks/hessian.py --minibatches 64      # zoo:vit, minibatches a second; on a GPU many at once

Peers are measured where they can be imported (`make peers`, then build/peers/bin/python); PyHessian's numbers are
those of its defaults. Every time is the median of alternating runs, so that a busy neighbour disturbs all alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hessian_peers import TOLERANCE, TOP, WAYS, float64, loss_of, pyhessian, ways_here
from machine import facts, floor, medians, metered, operations_of, rates, write
from torch import Tensor, nn

from eyechart import zoo
from eyechart.curvature import Hessians, krylov_spaces
from eyechart.curvature.hessian import twice_differentiable
from eyechart.device import allow_tf32
from eyechart.images import open_images
from eyechart.training.augment import Normalisation

BATCH = 16
PACKAGES = ("pyhessian", "curvlinops-for-pytorch", "hessian-eigenthings", "scipy")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150, help="training steps of the small ViT")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minibatches", type=int, default=0, help="measure the throughput on zoo:vit instead")
    parser.add_argument("--group", type=int, default=32, help="minibatches multiplied at once on a GPU")
    parser.add_argument("--subject", default="vit@warmup", help="the zoo's model and snapshot for the throughput")
    parser.add_argument("--out", help="the file of results")
    asked = parser.parse_args(words)
    allow_tf32(False)
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    if asked.minibatches:
        found = throughput(asked.subject, asked.minibatches, asked.group, asked.repeats)
    else:
        found = accuracy(asked.steps, asked.repeats)
    if asked.out:
        write(asked.out, "hessian_throughput" if asked.minibatches else "hessian", found)


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
    return model.eval()


def accuracy(steps: int, repeats: int, device: str = "cpu", names: Sequence[str] | None = None) -> dict[str, Any]:
    """Every way on one minibatch, in turn: products, error against float64 and seconds."""
    begun = facts(PACKAGES)
    inputs, labels = sample()
    model = small_vit(inputs, labels, steps).to(device)
    images, targets = inputs[:BATCH].to(device), labels[:BATCH].to(device)
    truth, needed = float64(model, images, targets)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{size:,} parameters; float64 eigsh, tol 1e-10: {truth.round(4)} with {needed} products", flush=True)
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in names or ways_here()}
    for turn in range(repeats):
        for way, results in rounds.items():
            results.append(one_round(WAYS[way], model, images, targets, truth))
            print(f"{turn} {way:30} {results[-1]}", flush=True)
    at_best = rates(torch.device(device), small=steps < 10)
    return {
        "machine": begun,
        "load_after": facts()["load"],
        "rates": at_best,
        "floor": floor(product_operations(model, images, targets), 0, at_best),
        "parameters": size,
        "images": BATCH,
        "tolerance": TOLERANCE,
        "truth": truth.tolist(),
        "ways": {
            way: medians(results) | {key: results[0][key] for key in ("products", "error") if key in results[0]}
            for way, results in rounds.items()
        },
    }


def product_operations(model: nn.Module, images: Tensor, targets: Tensor) -> int:
    """Of one Hessian-vector product, which is at least twice a gradient: reverse mode over forward or reverse mode."""
    parameters = list(model.parameters())
    with twice_differentiable():
        return 2 * operations_of(lambda: torch.autograd.grad(F.cross_entropy(model(images), targets), parameters))


def one_round(
    way: Callable[[nn.Module, Tensor, Tensor], tuple[np.ndarray, int]],
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    truth: np.ndarray,
) -> dict[str, Any]:
    try:
        with metered(images.device) as taken:
            values, products = way(model, images, targets)
    except Exception as error:  # a peer that fails is a result
        return {"failed": f"{type(error).__name__}: {error}"[:300]}
    off = np.abs(values - truth) / np.abs(truth)
    return {**taken, "products": products, "error": float(off.max())}


def throughput(
    subject: str, minibatches: int, group: int, repeats: int, device_name: str | None = None
) -> dict[str, Any]:
    from eyechart.subjects import load_subject

    device = torch.device(device_name or ("cuda" if torch.cuda.is_available() else "cpu"))
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
            found += [space.eigenvalues(TOP) for space in krylov_spaces(operators, top=TOP)]
        return found

    few = min(minibatches, 2)  # PyHessian takes seconds for each
    grouped()  # kernels are chosen and memory is taken in the first round
    rounds: dict[str, list[dict[str, Any]]] = {"eyechart": []}
    if "PyHessian" in ways_here():
        rounds["PyHessian"] = []
    theirs: list[Any] = []
    for _ in range(repeats):
        with metered(device) as taken:
            found = grouped()
        rounds["eyechart"].append(for_each(taken, minibatches))
        if "PyHessian" in rounds:
            with metered(device) as taken:
                theirs = [pyhessian(model, images[place], targets[place]) for place in range(few)]
            rounds["PyHessian"].append(for_each(taken, few))
    ways = {way: medians(results) for way, results in rounds.items()}
    ways["eyechart"]["products"] = float(np.mean([values.products for values in found]))
    if theirs:
        off = [np.abs(a.values - b).max() / np.abs(a.values).max() for a, (b, _) in zip(found, theirs, strict=False)]
        ways["PyHessian"]["products"] = float(np.mean([products for _, products in theirs]))
        ways["PyHessian"]["difference"] = float(max(off))
    for way, told in ways.items():
        print(f"{way:9} {told['seconds']:.3f} s for a minibatch, {told['products']:.1f} products", flush=True)
    known = float(np.mean([values.settled(TOLERANCE).all() for values in found]))
    print(
        f"zoo:{subject} on {device}, {minibatches} minibatches, {group} at once; known to 1e-4 in {known:.0%} of them"
    )
    return {
        "machine": facts(PACKAGES),
        "subject": f"zoo:{subject}",
        "minibatches": minibatches,
        "group": group,
        "settled": known,
        "ways": ways,
    }


def for_each(taken: dict[str, float], count: int) -> dict[str, float]:
    return taken | {"seconds": taken["seconds"] / count, "wall": taken["wall"] / count}


if __name__ == "__main__":
    main()
