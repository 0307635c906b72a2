"""Dropout that stays on at test: where it is, that it is on, whose its masks are, and that it can be switched off."""

import copy

import pytest
import torch
from torch import nn

from eyechart import zoo
from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap
from eyechart.zoo.dropout import McDropout, choose_draw, switch_dropout


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    model = zoo.build("resnet-mcdropout", width=8)
    for name, parameter in model.named_parameters():  # timm starts the last norms at 0, so branches would not count
        if name.endswith("bn2.weight"):
            nn.init.ones_(parameter)
    return model


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def call(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(images)
    return logits


def test_it_is_on_at_test_and_differs_from_draw_to_draw(model: nn.Module, images: torch.Tensor) -> None:
    assert not model.training
    one = call(model, images)
    choose_draw(model, 1)
    assert not torch.allclose(call(model, images), one, atol=1e-3)
    choose_draw(model, 0)
    assert torch.equal(call(model, images), one)
    assert switch_dropout(model, on=False) == 8
    plain = call(model, images)
    choose_draw(model, 1)
    assert torch.equal(call(model, images), plain)
    assert not torch.allclose(plain, one, atol=1e-3)


def test_a_picture_has_its_masks_in_any_batch_and_whatever_was_drawn_before(
    model: nn.Module, images: torch.Tensor
) -> None:
    """So an exam in one process, in shards, in smaller micro-batches or gone on with gives the same numbers."""
    whole = call(model, images)
    torch.manual_seed(99)
    torch.rand(1000)
    in_pieces = torch.cat([call(model, images[4:]), call(model, images[:1]), call(model, images[1:4])])
    torch.testing.assert_close(in_pieces.roll(-2, 0), whole, atol=1e-5, rtol=0)  # to rounding: convolutions batch
    torch.testing.assert_close(call(copy.deepcopy(model), images), whole)
    before = torch.get_rng_state()
    call(model, images)
    assert torch.equal(torch.get_rng_state(), before)


def test_pictures_and_places_have_masks_of_their_own(model: nn.Module, images: torch.Tensor) -> None:
    masks: list[torch.Tensor] = []
    for block in ("layer1.0", "layer1.1"):
        part = model.get_submodule(f"{block}.aa")
        part.register_forward_pre_hook(lambda _m, inputs: (torch.ones_like(inputs[0]),))
        part.register_forward_hook(lambda _m, _i, out: masks.append(out == 0))
    call(model, images)
    first, second = (mask.flatten(1).double() for mask in masks)
    for mask in (*first, *second):
        assert abs(float(mask.mean()) - 0.3) < 0.02  # 8,192 cells: three standard errors are 0.015
    for one, two in ((first[0], first[1]), (first[0], second[0]), (first[0, 1:], first[0, :-1])):
        assert abs(float(torch.corrcoef(torch.stack([one, two]))[0, 1])) < 0.05


def test_in_training_the_masks_are_torchs(model: nn.Module, images: torch.Tensor) -> None:
    model.train()
    one = call(model, images)
    assert not torch.allclose(call(model, images), one, atol=1e-3)
    assert model.get_submodule("layer1.0.aa")(torch.ones(1000)).eq(0).any()


def test_switched_off_it_is_the_plain_resnet(model: nn.Module, images: torch.Tensor) -> None:
    plain = zoo.build("resnet", width=8)
    plain.load_state_dict(model.state_dict())
    switch_dropout(model, on=False)
    assert torch.equal(call(model, images), call(plain, images))


def test_it_drops_three_tenths_of_what_the_second_convolution_reads() -> None:
    torch.manual_seed(0)
    model = zoo.build("resnet-mcdropout")
    assert sum(isinstance(part, McDropout) for part in model.modules()) == 8
    block = model.get_submodule("layer1.0")
    seen: list[torch.Tensor] = []
    block.get_submodule("conv1").register_forward_hook(lambda _m, _i, out: torch.full_like(out, 3.0))
    block.get_submodule("conv2").register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0]))
    call(model, torch.randn(2, 3, 32, 32))
    assert abs(float((seen[0] == 0).float().mean()) - 0.3) < 0.01
    torch.testing.assert_close(seen[0].mean(), torch.tensor(3.0), atol=0.05, rtol=0)  # the mean is kept


def test_the_taps_see_what_the_plain_call_gives(model: nn.Module, images: torch.Tensor) -> None:
    plain = call(model, images)
    anatomy = anatomy_of("model", model, images[:2])
    blocks = [site.name for site in anatomy.pick("block")]
    views = {name: [View("mean", lambda look: look.output.mean((1, 2, 3)))] for name in blocks}
    output, seen = Tap(model, anatomy, views).run(images)
    assert torch.equal(output, plain)
    assert len(seen) == 8
