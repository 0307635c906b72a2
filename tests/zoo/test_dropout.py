"""Dropout that stays on at test: where it is, that it is on, and that it can be switched off."""

import torch

from eyechart import zoo
from eyechart.zoo.dropout import McDropout, switch_dropout


def test_it_is_on_at_test_and_differs_from_pass_to_pass() -> None:
    torch.manual_seed(0)
    model = zoo.build("resnet-mcdropout")
    for block in ("layer1.0", "layer4.1"):  # timm starts the last norms at 0, so that branches would not count
        torch.nn.init.ones_(model.get_parameter(f"{block}.bn2.weight"))
    images = torch.randn(2, 3, 32, 32)
    assert not model.training
    with torch.no_grad():
        one, two = model(images), model(images)
        assert not torch.allclose(one, two, atol=1e-4)
        assert switch_dropout(model, on=False) == 8
        one, two = model(images), model(images)
        assert torch.equal(one, two)
        switch_dropout(model, on=True)
        assert not torch.allclose(model(images), one, atol=1e-4)


def test_switched_off_it_is_the_plain_resnet() -> None:
    model, plain = zoo.build("resnet-mcdropout"), zoo.build("resnet")
    model.load_state_dict(plain.state_dict())
    switch_dropout(model, on=False)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(model(images), plain(images))
    assert model.train().get_submodule("layer1.0.aa")(torch.ones(1000)).eq(0).any()  # training drops all the same


def test_it_drops_three_tenths_of_what_the_second_convolution_reads() -> None:
    torch.manual_seed(0)
    model = zoo.build("resnet-mcdropout")
    assert sum(isinstance(part, McDropout) for part in model.modules()) == 8
    block = model.get_submodule("layer1.0")
    seen: list[torch.Tensor] = []
    block.conv1.register_forward_hook(lambda _m, _i, out: torch.full_like(out, 3.0))
    block.conv2.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        block(torch.randn(2, 32, 32, 32))
    assert abs(float((seen[0] == 0).float().mean()) - 0.3) < 0.01
    torch.testing.assert_close(seen[0].mean(), torch.tensor(3.0), atol=0.05, rtol=0)  # the mean is kept
