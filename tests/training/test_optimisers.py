"""Optimisers, schedule, SAM and the average of the weights, against hand calculation."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from eyechart import zoo
from eyechart.errors import UsageError
from eyechart.training.optimisers import Average, Sam, Schedule, decay_groups, make_optimiser
from eyechart.training.recipes import RECIPES, Recipe, find_recipe
from eyechart.training.step import Step, soft_cross_entropy


def test_warm_up_then_cosine_per_step() -> None:
    schedule = Schedule(peak=0.5, warm=20, total=100)
    rates = [schedule.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.025)
    assert rates[19] == pytest.approx(0.5)
    assert rates[60] == pytest.approx(0.25)
    assert rates[99] == pytest.approx(0.25 * (1 + math.cos(math.pi * 79 / 80)))
    assert max(rates) == 0.5


def test_only_matrices_and_kernels_decay() -> None:
    module = zoo.build("vit", depth=1)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    decayed, kept = ([names[id(p)] for p in group["params"]] for group in decay_groups(module, 0.05))
    assert {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "head.weight"} <= set(decayed)
    assert {"cls_token", "pos_embed", "norm.weight", "head.bias"} <= set(kept)
    assert len(decayed) + len(kept) == len(names)


@pytest.mark.parametrize(
    ("model", "switches"),
    [
        *((model, {}) for model in zoo.names()),
        ("vit", {"position": "relative"}),
        ("vit", {"position": "2d", "position_at": "layers"}),
        ("alternet", {"msas": 5}),
    ],
)
def test_no_position_table_bias_or_norm_of_any_model_decays(model: str, switches: dict[str, Any]) -> None:
    module = zoo.build(model, **switches)
    layers = {
        f"{path}.weight"
        for path, part in module.named_modules()
        if isinstance(part, (nn.Linear, nn.Conv2d))  # everything else is a norm, a scale, a bias or a table
    }
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    decayed = {names[id(p)] for group in decay_groups(module, 0.05) if group["weight_decay"] for p in group["params"]}
    assert decayed == layers


@pytest.mark.parametrize(
    "shapes",
    [
        {"class_token": (1, 1, 4), "pos_embedding": (1, 9, 4)},  # torchvision's
        {"position_embeddings": (1, 9, 4), "mask_token": (1, 1, 4)},  # Hugging Face's
        {"dist_token": (1, 1, 4), "reg_token": (1, 4, 4), "pos_embed1": (1, 9, 4), "attention_biases": (2, 9)},
        {"layer_scale": (4, 1, 1), "logit_scale": (4, 1, 1), "alpha": (1, 1, 4)},
    ],
)
def test_tables_and_scales_of_models_from_elsewhere_do_not_decay(shapes: dict[str, tuple[int, ...]]) -> None:
    module = nn.Module()
    module.part = nn.Linear(4, 4, bias=False)
    for name, shape in shapes.items():
        module.part.register_parameter(name, nn.Parameter(torch.zeros(shape)))
    decayed, kept = decay_groups(module, 0.05)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.05, 0.0)
    assert [parameter.shape for parameter in decayed["params"]] == [(4, 4)]


class Bowl(nn.Module):
    """Logits (w, 0): with all of the target on class 0 the loss is log(1 + exp(−w))."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[1.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.w, torch.zeros_like(self.w)], dim=1).expand(len(x), -1)


TARGET = torch.tensor([[1.0, 0.0]])


def one_step(**changes: object) -> float:
    plain = {"optimiser": "sgd", "learning_rate": 0.1, "weight_decay": 0.0, "clip": 0.0, "momentum": 0.0}
    recipe = find_recipe("none").changed(**{**plain, **changes})
    module = Bowl()
    step = Step(module, make_optimiser(module, recipe), recipe)
    loss = step(torch.zeros(1, 1), TARGET)
    assert float(loss) == pytest.approx(math.log(1 + math.exp(-1)))
    return float(module.w.detach())


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_sgd_steps_down_the_gradient() -> None:
    assert one_step() == pytest.approx(1 + 0.1 * sigmoid(-1.0))


def test_sam_steps_from_here_with_the_gradient_of_the_climbed_point() -> None:
    # The gradient is negative, so climbing by ρ lowers w to 1 − ρ.
    assert one_step(sam_radius=0.5) == pytest.approx(1 + 0.1 * sigmoid(-0.5))


def test_clipping_bounds_the_step() -> None:
    assert one_step(clip=0.01) == pytest.approx(1 + 0.1 * 0.01, rel=1e-3)


def test_sam_climbs_along_the_whole_gradient_and_returns() -> None:
    a, b = nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.tensor([2.0]))
    a.grad, b.grad = torch.tensor([3.0]), torch.tensor([4.0])
    sam = Sam([a, b], radius=0.5)
    sam.climb()
    assert (float(a.detach()), float(b.detach())) == pytest.approx((1.3, 2.4))
    sam.descend()
    assert (float(a.detach()), float(b.detach())) == (1.0, 2.0)


def test_sam_counts_a_batch_once_in_the_running_statistics() -> None:
    norm = nn.BatchNorm1d(1, momentum=0.25)
    module = nn.Sequential(nn.Linear(2, 1, bias=False), norm, nn.Linear(1, 2))
    recipe = find_recipe("none").changed(sam_radius=0.5)
    inputs, targets = torch.tensor([[3.0, 0.0], [0.0, 5.0], [1.0, 1.0]]), torch.eye(2)[[0, 1, 0]]
    with torch.no_grad():
        mean = float(module[0](inputs).mean())
    Step(module.train(), make_optimiser(module, recipe), recipe)(inputs, targets)
    assert int(norm.get_buffer("num_batches_tracked")) == 1
    assert float(norm.get_buffer("running_mean")) == pytest.approx(0.25 * mean)


def test_the_average_follows_weights_and_float_buffers() -> None:
    module = nn.BatchNorm1d(1)
    average = Average(module, decay=0.9)
    with torch.no_grad():
        module.weight.fill_(2.0)
    module.get_buffer("running_mean").fill_(10.0)
    module.get_buffer("num_batches_tracked").fill_(5)
    average.update()
    state = average.state_dict(module)
    assert float(state["weight"]) == pytest.approx(1.1)
    assert float(state["running_mean"]) == pytest.approx(1.0)
    assert int(state["num_batches_tracked"]) == 5


def test_soft_cross_entropy_equals_torchs() -> None:
    logits, targets = torch.randn(5, 3), torch.randn(5, 3).softmax(1)
    torch.testing.assert_close(soft_cross_entropy(logits, targets), nn.functional.cross_entropy(logits, targets))


def test_recipes_are_those_of_the_paper() -> None:
    strong = RECIPES["strong"]
    assert (strong.epochs - strong.warmup_epochs, strong.mixup, strong.cutmix, strong.clip) == (300, 1.0, 0.8, 5.0)
    assert RECIPES["strong-nocutmix"] == strong.__class__(
        **{**strong.as_json(), "name": "strong-nocutmix", "cutmix": 0}
    )
    assert RECIPES["weak"].flip
    assert RECIPES["weak"].augment == "none"
    assert not RECIPES["none"].flip
    assert Recipe.from_json(strong.as_json()) == strong


def test_a_wrong_recipe_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="did you mean strong"):
        find_recipe("strng")
    with pytest.raises(UsageError, match="no setting called 'epoch'"):
        find_recipe("zoo").changed(epoch=3)
    with pytest.raises(UsageError, match="shorter than the training"):
        find_recipe("zoo").changed(epochs=3)
    with pytest.raises(UsageError, match="between 0 and 1"):
        find_recipe("zoo").changed(label_smoothing=1.5)
