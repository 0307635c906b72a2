"""Our ViT is timm's, weight for weight; and the position table is resized as the ViT authors do it."""

import numpy as np
import pytest
import torch
from scipy.ndimage import zoom
from timm.models.vision_transformer import VisionTransformer

from eyechart.errors import UsageError
from eyechart.zoo.vit import Attention, DropPath, ViT, resize_pos_embed, rising

TINY = {"width": 32, "depth": 3, "heads": 4, "patch": 4, "image_size": 16, "classes": 5}


def timms(**switches: object) -> VisionTransformer:
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
        ({"pool": "cls", "qkv_bias": False}, {"global_pool": "token", "qkv_bias": False}),
    ],
)
def test_with_timms_weights_it_gives_timms_outputs(ours: dict[str, object], theirs: dict[str, object]) -> None:
    reference = timms(**theirs)
    model = ViT(**TINY, **ours).eval()  # type: ignore[arg-type]
    model.load_state_dict(reference.state_dict())
    images = torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(model(images), reference(images), atol=1e-5, rtol=1e-5)


def test_attention_is_the_softmax_of_the_paper() -> None:
    torch.manual_seed(0)
    attention, tokens = Attention(8, 2).double(), torch.randn(3, 5, 8, dtype=torch.float64)
    q, k, v = attention.qkv(tokens).chunk(3, dim=-1)
    heads = [
        ((q[..., cut] @ k[..., cut].transpose(1, 2)) / 2.0).softmax(-1) @ v[..., cut] for cut in (slice(4), slice(4, 8))
    ]
    torch.testing.assert_close(attention(tokens), attention.proj(torch.cat(heads, dim=-1)))


def test_a_gap_model_has_no_cls_token_and_reads_the_mean() -> None:
    model = ViT(**TINY, pool="gap").eval()  # type: ignore[arg-type]
    assert model.cls_token is None
    assert model.pos_embed.shape == (1, 16, 32)
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(model(images), model.head(model.tokens(images).mean(1)))


def test_cls_init_is_a_switch() -> None:
    zero, normal = (ViT(**TINY, cls_init=kind).cls_token for kind in ("zero", "normal"))  # type: ignore[arg-type]
    assert zero is not None
    assert normal is not None
    assert bool((zero == 0).all())
    assert 0.005 < float(normal.detach().std()) < 0.04


def test_stochastic_depth_drops_whole_images_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    drop, branch = DropPath(0.25).train(), torch.ones(4000, 2, 3)
    out = drop(branch)
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert bool((out.amax((1, 2)) == out.amin((1, 2))).all())
    assert float(out.mean()) == pytest.approx(1, abs=0.05)
    assert torch.equal(drop.eval()(branch), branch)
    assert list(rising(0.2, 3)) == [0.0, 0.1, 0.2]


@pytest.mark.parametrize("wrong", [{"patch": 5}, {"heads": 5}, {"pooled_norm": True}])
def test_switches_that_do_not_fit_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ViT(**{**TINY, **wrong})  # type: ignore[arg-type]


def test_resizing_equals_the_authors_zoom_and_leaves_cls_alone() -> None:
    table = torch.randn(1, 1 + 7 * 7, 3)
    resized = resize_pos_embed(table, 7, 12, has_cls=True)
    assert torch.equal(resized[:, 0], table[:, 0])
    expected = zoom(table[0, 1:].reshape(7, 7, 3).numpy(), (12 / 7, 12 / 7, 1), order=1)
    np.testing.assert_allclose(resized[0, 1:].reshape(12, 12, 3).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizing_keeps_a_ramp_a_ramp(mode: str) -> None:
    ramp = torch.arange(8.0).repeat_interleave(8).reshape(1, 64, 1)
    rows = resize_pos_embed(ramp, 8, 14, has_cls=False, mode=mode)[0, :, 0].reshape(14, 14)  # type: ignore[arg-type]
    assert bool((rows.diff(dim=0) > 0).all())
    assert float(rows.diff(dim=1).abs().max()) < 1e-5
    assert torch.equal(resize_pos_embed(ramp, 8, 8, has_cls=False), ramp)


def test_a_table_of_another_grid_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\(1, 65, width\); this one has \(1, 64, 3\)"):
        resize_pos_embed(torch.zeros(1, 64, 3), 8, 16, has_cls=True)
