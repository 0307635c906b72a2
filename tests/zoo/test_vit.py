"""Our ViT is timm's, weight for weight; and each variant differs in what it says it does."""

from typing import Any

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from eyechart import zoo
from eyechart.errors import UsageError
from eyechart.zoo.vit import CnnStem, DropPath, ViT, rising
from tests.cases import inside

TINY: dict[str, Any] = {"width": 32, "depth": 3, "heads": 4, "patch": 4, "image_size": 16, "classes": 5}


def make(**switches: Any) -> ViT:
    torch.manual_seed(0)
    return ViT(**{**TINY, **switches}).eval()


def timms(**switches: Any) -> VisionTransformer:
    torch.manual_seed(0)
    model = VisionTransformer(
        img_size=16, patch_size=4, embed_dim=32, depth=3, num_heads=4, num_classes=5, **switches
    ).eval()
    with torch.no_grad():  # timm starts with zero biases and CLS token, which would hide a mistake in them
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"pool": "cls"}, {"global_pool": "token"}),
        ({"pool": "gap"}, {"global_pool": "avg", "class_token": False, "fc_norm": False}),
        ({"pool": "gap", "pooled_norm": True}, {"global_pool": "avg", "class_token": False}),
        ({"pool": "gap-unused-cls"}, {"global_pool": "avg", "fc_norm": False}),
        ({"pool": "gap-unused-cls", "pooled_norm": True}, {"global_pool": "avg"}),
        ({"pool": "cls", "qkv_bias": False}, {"global_pool": "token", "qkv_bias": False}),
        ({"pool": "cls", "position": "none"}, {"global_pool": "token", "pos_embed": "none"}),
    ],
)
def test_with_timms_weights_it_gives_timms_outputs(ours: dict[str, object], theirs: dict[str, object]) -> None:
    reference = timms(**theirs)
    model = make(**ours)
    model.load_state_dict(reference.state_dict())
    images = torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(model(images), reference(images), atol=1e-5, rtol=1e-5)


def test_a_gap_model_has_no_cls_token_and_reads_the_mean() -> None:
    model = make(pool="gap")
    assert model.cls_token is None
    assert model.pos_embed is not None
    assert model.pos_embed.shape == (1, 16, 32)
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(model(images), model.head(model.tokens(images).mean(1)))


def test_an_unused_cls_token_is_attended_to_but_never_read() -> None:
    model = make(pool="gap-unused-cls", cls_init="normal")
    last: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, out: Tensor) -> None:
        out.retain_grad()
        last.append(out)

    model.blocks[-1].register_forward_hook(keep)
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    assert model.cls_token is not None
    assert model.cls_token.grad is not None
    assert last[0].grad is not None
    assert float(model.cls_token.grad.abs().sum()) > 0  # the patches attend to it on the way
    assert float(last[0].grad[:, 0].abs().sum()) == 0
    assert bool((last[0].grad[:, 1:].abs().sum(-1) > 0).all())


def test_cls_init_is_a_switch() -> None:
    zero, normal = (make(cls_init=kind).cls_token for kind in ("zero", "normal"))
    assert zero is not None
    assert normal is not None
    assert bool((zero == 0).all())
    assert 0.005 < float(normal.detach().std()) < 0.04


@pytest.mark.parametrize("position_at", ["stem", "shared"])
@pytest.mark.parametrize("cls_init", ["normal", "mean"])
@pytest.mark.parametrize("cls_at", [0, 2])
def test_a_class_token_joins_before_its_block(cls_at: int, cls_init: str, position_at: str) -> None:
    model = make(cls_at=cls_at, cls_init=cls_init, position_at=position_at)
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert model.cls_token is not None
        assert model.pos_embed is not None
        model.cls_token.add_(0.1)  # a zero would hide that it is forgotten
        row, cells = model.pos_embed[0, 0], model.pos_embed[0, 1:]
        expected = []
        for image in images:
            tokens = model.patch_embed(image[None])[0]
            for at, block in enumerate(model.blocks):
                if at == cls_at:
                    mean = tokens.mean(0) if cls_init == "mean" else torch.zeros(32)
                    tokens = torch.stack([model.cls_token[0, 0] + mean, *tokens])
                if len(tokens) > 16 and (at == cls_at or position_at == "shared"):
                    tokens[0] += row
                if at == 0 or position_at == "shared":
                    tokens[-16:] += cells
                assert len(tokens) == 16 + (at >= cls_at)
                tokens = block(tokens[None])[0]
            expected.append(model.head(model.norm(tokens)[0]))
        torch.testing.assert_close(model(images), torch.stack(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cls_at", [0, 1])
@pytest.mark.parametrize(("frozen", "unseen"), [(0, 3), (2, 0), (2, 2), (0, 1)])
def test_a_class_token_is_frozen_or_unseen_up_to_its_block(frozen: int, unseen: int, cls_at: int) -> None:
    """Token by token and head by head: who attends to whom, and what is added to whom."""
    model = make(cls_at=cls_at, cls_init="normal", cls_frozen_until=frozen, cls_unseen_until=unseen)
    images = torch.randn(2, 3, 16, 16)
    expected = []
    with torch.no_grad():
        assert model.cls_token is not None
        assert model.pos_embed is not None
        for image in images:
            tokens = list(model.patch_embed(image[None])[0] + model.pos_embed[0, 1:])
            for at, block in enumerate(map(inside, model.blocks)):
                if at == cls_at:
                    tokens = [model.cls_token[0, 0] + model.pos_embed[0, 0], *tokens]
                has_cls = at >= cls_at
                moves = [index > 0 or not has_cls or at >= frozen for index in range(len(tokens))]
                q, k, v = block.attn.qkv(block.norm1(torch.stack(tokens))).reshape(len(tokens), 3, 4, 8).unbind(1)
                added = []
                for index in range(len(tokens)):
                    seen = [j for j in range(len(tokens)) if j or not has_cls or index == 0 or at >= unseen]
                    heads = [(q[index, h] @ k[seen, h].T / 8**0.5).softmax(-1) @ v[seen, h] for h in range(4)]
                    added.append(block.attn.proj(torch.cat(heads)))
                tokens = [t + a if m else t for t, a, m in zip(tokens, added, moves, strict=True)]
                tokens = [t + block.mlp(block.norm2(t)) if m else t for t, m in zip(tokens, moves, strict=True)]
            expected.append(model.head(model.norm(tokens[0])))
        torch.testing.assert_close(model(images), torch.stack(expected), atol=1e-5, rtol=1e-5)
    plain = make(cls_at=cls_at, cls_init="normal")
    assert plain.state_dict().keys() == model.state_dict().keys()
    plain.load_state_dict(model.state_dict())
    assert not torch.allclose(plain(images), model(images)) or (frozen, unseen, cls_at) == (0, 1, 1)


def test_a_skip_is_multiplied_by_its_scale() -> None:
    plain, model = make(), make(skip_scale=0.25)
    model.load_state_dict(plain.state_dict())
    tokens = torch.randn(2, 17, 32)
    with torch.no_grad():
        block, expected = inside(plain.blocks[1]), tokens
        expected = 0.25 * expected + block.attn(block.norm1(expected))
        expected = 0.25 * expected + block.mlp(block.norm2(expected))
        torch.testing.assert_close(model.blocks[1](tokens), expected)


def test_new_switches_leave_the_plain_model_as_it_was() -> None:
    """The sum of the plain model's operations, written out once more: equal to the bit."""
    model = make(cls_at=0, skip_scale=1.0, cls_frozen_until=0, cls_unseen_until=0)
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert model.cls_token is not None
        assert model.pos_embed is not None
        tokens = torch.cat([model.cls_token.expand(2, -1, -1), model.patch_embed(images)], dim=1) + model.pos_embed
        for block in map(inside, model.blocks):
            tokens = tokens + block.attn(block.norm1(tokens))
            tokens = tokens + block.mlp(block.norm2(tokens))
        assert torch.equal(model(images), model.head(model.norm(tokens)[:, 0]))


@pytest.mark.parametrize("part", ["attention", "mlp", "both"])
def test_a_removed_skip_leaves_the_branch_alone(part: str) -> None:
    plain, model = make(), make(no_skip_at=(1,), no_skip_part=part)
    assert [(name, p.shape) for name, p in plain.named_parameters()] == [
        (name, p.shape) for name, p in model.named_parameters()
    ]
    model.load_state_dict(plain.state_dict())
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert plain.cls_token is not None
        assert plain.pos_embed is not None
        tokens = torch.cat([plain.cls_token.expand(2, -1, -1), plain.patch_embed(images)], dim=1)
        tokens = plain.blocks[0](tokens + plain.pos_embed)
        block = inside(plain.blocks[1])
        tokens = block.attn(block.norm1(tokens)) + (tokens if part == "mlp" else 0)
        tokens = block.mlp(block.norm2(tokens)) + (tokens if part == "attention" else 0)
        expected = plain.head(plain.norm(plain.blocks[2](tokens))[:, 0])
        torch.testing.assert_close(model(images), expected)
        assert not torch.allclose(model(images), plain(images), atol=1e-3)


@pytest.mark.parametrize("part", ["attention", "mlp", "both"])
def test_a_zero_branch_without_skip_makes_all_images_alike(part: str) -> None:
    model, plain = make(no_skip_at=(1,), no_skip_part=part), make()
    for one in (model, plain):
        block = inside(one.blocks[1])
        for module in [block.attn.proj] * (part != "mlp") + [block.mlp.fc2] * (part != "attention"):
            nn.init.zeros_(module.weight)
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(*model.tokens(images).unbind(), atol=0, rtol=0)
        one, other = plain.tokens(images)
        assert not torch.allclose(one, other, atol=1e-2)


def test_a_branch_without_skip_is_never_dropped() -> None:
    blocks = make(no_skip_at=(1,), no_skip_part="attention", drop_path=0.4).blocks
    rates = [(block.drop_path1.probability, block.drop_path2.probability) for block in map(inside, blocks)]
    assert rates == [(0, 0), (0, pytest.approx(0.2)), (pytest.approx(0.4), pytest.approx(0.4))]


def test_a_hybrids_tokens_are_the_cells_of_its_map() -> None:
    torch.manual_seed(0)
    model = zoo.build("vit-hybrid", depth=1)
    stem = model.get_submodule("patch_embed")
    assert isinstance(stem, CnnStem)
    kinds = {type(module).__name__ for module in stem.modules()}
    assert {"StdConv2d", "GroupNormAct"} <= kinds
    assert "BatchNorm2d" not in kinds
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        cells, tokens = stem.backbone.forward_features(images), stem(images)
        assert cells.shape == (2, 256, 8, 8)
        assert stem.proj.bias is not None
        projected = stem.proj.weight[:, :, 0, 0] @ cells[1, :, 2, 5] + stem.proj.bias
        torch.testing.assert_close(tokens[1, 2 * 8 + 5], projected, atol=1e-5, rtol=1e-4)
        assert zoo.build("vit-hybrid", depth=1, patch=2).get_submodule("patch_embed")(images).shape == (2, 256, 160)
    with pytest.raises(UsageError, match="by 1, 2, 4 or 8, its patch; got 6"):
        zoo.build("vit-hybrid", patch=6, image_size=36)


def test_a_hybrids_residual_units_start_as_their_skips() -> None:
    stem = CnnStem(32, 4)
    norms = [unit.norm3.weight for stage in inside(stem.backbone).stages for unit in stage.blocks]
    assert len(norms) == 6
    assert not any(bool(norm.any()) for norm in norms)


@pytest.mark.parametrize(
    ("switches", "grid", "channels"),
    [({"patch": 2}, 16, 20), ({"patch": 8}, 4, 20), ({"heads": 2, "head_width": 64}, 8, 64), ({"heads": 5}, 8, 32)],
)
def test_patch_heads_and_head_width_are_switches(switches: dict[str, int], grid: int, channels: int) -> None:
    model = zoo.build("vit", depth=1, **switches)
    attention = model.get_submodule("blocks.0.attn")
    assert isinstance(model, ViT)
    assert model.grid == grid
    assert attention.get_parameter("qkv.weight").shape == (3 * switches.get("heads", 8) * channels, 160)
    with torch.no_grad():
        assert model(torch.randn(1, 3, 32, 32)).shape == (1, 10)


def test_stochastic_depth_drops_whole_images_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    drop, branch = DropPath(0.25).train(), torch.ones(4000, 2, 3)
    out = drop(branch)
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert bool((out.amax((1, 2)) == out.amin((1, 2))).all())
    assert float(out.mean()) == pytest.approx(1, abs=0.05)
    assert torch.equal(drop.eval()(branch), branch)
    assert list(rising(0.2, 3)) == [0.0, 0.1, 0.2]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"patch": 5}, "5 does not divide 16"),
        ({"heads": 5}, "5 does not divide 32"),
        ({"pooled_norm": True}, "needs pool='gap'"),
        ({"mixer": "pool"}, "pool mixer works on the grid alone"),
        ({"mixer": "kernel", "pool": "gap", "position": "relative"}, "another position than 'relative'"),
        ({"no_skip_at": (3,)}, "blocks from 0 to 2; got 3"),
        ({"cls_at": 3}, "cls_at takes a block from 0 to 2; got 3"),
        ({"cls_at": 1, "pool": "gap"}, "a class token, which pool='gap' has none of"),
        ({"cls_init": "mean", "pool": "gap"}, "a class token, which pool='gap' has none of"),
        ({"cls_frozen_until": 1, "pool": "gap"}, "a class token, which pool='gap' has none of"),
        ({"cls_unseen_until": 1, "pool": "gap"}, "a class token, which pool='gap' has none of"),
        ({"cls_frozen_until": 3}, "cls_frozen_until is at most 2"),
        ({"cls_unseen_until": 4}, "and cls_unseen_until at most 3; got 0 and 4"),
        ({"cls_frozen_until": 2, "no_skip_at": (1,)}, "no_skip_at takes no block before cls_frozen_until"),
        ({"cls_unseen_until": 1, "position": "relative"}, "cls_unseen_until takes another position"),
        ({"cls_at": 1, "position": "relative"}, "cls_at takes another position than 'relative'"),
    ],
)
def test_switches_that_do_not_fit_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make(**wrong)
