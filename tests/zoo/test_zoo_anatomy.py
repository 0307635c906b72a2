"""The taps see every model of the zoo as it is: junctions and attentions counted by hand."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from eyechart import zoo
from eyechart.measures.skip_ratio.measure import SkipRatio
from eyechart.quantity import quantities_in
from eyechart.sites import Anatomy
from eyechart.subjects.anatomy import anatomy_of
from tests.measures.on_subjects import finding_of, module_subject

#: name: (architecture, pooling, junctions by kind, projected ones, heads of each attention, grids of the stages)
EXPECTED: dict[str, tuple[str, str, dict[str, int], int, list[int], list[int]]] = {
    "vit": ("transformer", "cls", {"attention": 9, "mlp": 9}, 0, [8] * 9, [8]),
    "vit-gap": ("transformer", "gap", {"attention": 9, "mlp": 9}, 0, [8] * 9, [8]),
    "vit-no-skip": ("transformer", "cls", {"attention": 8, "mlp": 8}, 0, [8] * 9, [8]),
    "vit-small": ("transformer", "cls", {"attention": 6, "mlp": 6}, 0, [8] * 6, [8]),
    "vit-hybrid": ("hybrid", "cls", {"conv": 6, "attention": 8, "mlp": 8}, 3, [8] * 8, [32, 16, 8]),
    "resnet": ("cnn", "gap", {"conv": 8}, 3, [], [32, 16, 8, 4]),
    "resnet-bit": ("cnn", "gap", {"conv": 16}, 4, [], [32, 16, 8, 4]),
    "resnet-blur": ("cnn", "gap", {"conv": 8}, 3, [], [32, 16, 8, 4]),
    "resnet-mcdropout": ("cnn", "gap", {"conv": 8}, 3, [], [32, 16, 8, 4]),
    "swin": ("transformer", "gap", {"attention": 8, "mlp": 8}, 0, [4, 4, 8, 8, 8, 8, 16, 16], [16, 8, 4]),
    "pit": ("transformer", "cls", {"attention": 10, "mlp": 10}, 0, [4] * 2 + [8] * 6 + [16] * 2, [15, 8, 4]),
    "mixer": ("mixer", "gap", {"mixer": 12, "mlp": 12}, 0, [], [8]),
    "poolformer": ("other", "gap", {"pool": 10, "mlp": 10}, 0, [], [16, 8, 4]),
    "alternet": ("hybrid", "gap", {"conv": 13, "attention": 4}, 4, [4, 8, 16, 16], [32, 16, 8, 4]),
}


def look(name: str, **switches: Any) -> Anatomy:
    torch.manual_seed(0)
    return anatomy_of(name, zoo.build(name, **switches), torch.randn(2, 3, 32, 32))


def junctions(anatomy: Anatomy) -> dict[str, int]:
    return dict(Counter(str(site.kind) for site in anatomy.sites if site.role == "junction"))


def test_every_model_is_expected() -> None:
    assert list(EXPECTED) == zoo.names()


@pytest.mark.parametrize("name", zoo.names())
def test_sites_are_those_counted_by_hand(name: str) -> None:
    architecture, pooling, kinds, projected, heads, grids = EXPECTED[name]
    anatomy = look(name)
    assert (anatomy.architecture, anatomy.pooling, anatomy.notes) == (architecture, pooling, ())
    assert junctions(anatomy) == kinds
    assert sum(site.projected for site in anatomy.sites) == projected
    assert [site.heads for site in anatomy.sites if site.role == "attention"] == heads
    places = [site for site in anatomy.sites if site.role in ("stem", "block")]
    assert all(site.layout.grid is not None for site in places)
    assert list(dict.fromkeys(site.layout.grid[0] for site in places if site.layout.grid)) == grids


@pytest.mark.parametrize(
    ("name", "switches", "kinds", "attentions"),
    [
        ("vit", {"pool": "gap-unused-cls"}, {"attention": 3, "mlp": 3}, 3),
        ("vit", {"position": "relative"}, {"attention": 3, "mlp": 3}, 3),
        ("vit", {"position": "2d", "position_at": "layers"}, {"attention": 3, "mlp": 3}, 3),
        ("vit", {"position_at": "shared"}, {"attention": 3, "mlp": 3}, 3),
        ("vit", {"no_skip_at": (1,)}, {"attention": 2, "mlp": 2}, 3),
        ("vit", {"skip_scale": 0.25}, {"attention": 3, "mlp": 3}, 3),
        ("vit", {"cls_at": 1}, {"attention": 3, "mlp": 3}, 3),
        ("vit", {"cls_frozen_until": 2}, {"attention": 3, "mlp": 3}, 3),
        ("vit", {"cls_unseen_until": 3}, {"attention": 3, "mlp": 3}, 3),
        ("vit", {"no_skip_at": (1,), "no_skip_part": "mlp"}, {"attention": 3, "mlp": 2}, 3),
        ("vit-gap", {"mixer": "kernel"}, {"attention": 3, "mlp": 3}, 3),
        ("vit-gap", {"mixer": "kernel", "mask_border": False}, {"attention": 3, "mlp": 3}, 3),
        ("vit-gap", {"mixer": "pool"}, {"pool": 3, "mlp": 3}, 0),
        ("vit-gap", {"mixer": "mlp"}, {"mixer": 3, "mlp": 3}, 0),
    ],
)
def test_vit_variants_keep_their_three_blocks(
    name: str, switches: dict[str, Any], kinds: dict[str, int], attentions: int
) -> None:
    anatomy = look(name, depth=3, **switches)
    assert anatomy.notes == ()
    assert junctions(anatomy) == kinds
    assert sum(site.role == "attention" for site in anatomy.sites) == attentions
    assert [site.name for site in anatomy.sites if site.role == "block"] == ["blocks.0", "blocks.1", "blocks.2"]


@pytest.mark.parametrize("cls_init", ["zero", "mean"])
def test_a_class_token_that_joins_late_is_seen_from_there_on(cls_init: str) -> None:
    anatomy = look("vit", depth=3, cls_at=2, cls_init=cls_init)
    assert (anatomy.pooling, anatomy.cls) == ("cls", 0)
    sites = [site for site in anatomy.sites if site.role in ("attention", "junction", "block")]
    assert all(site.layout.prefix == site.path.startswith("blocks.2") for site in sites)
    assert all(site.layout.grid == (8, 8) for site in sites)


def test_a_scaled_skip_is_what_rides_it() -> None:
    """The ratio of the first addition is half of the plain model's where the skip is halved: all before is the same."""
    modules = []
    for scale in (1.0, 0.5):
        torch.manual_seed(0)
        modules.append(module_subject(zoo.build("vit", depth=1, skip_scale=scale), f"scale {scale}"))
    plain, halved = (finding_of(SkipRatio(), module, images=16, block=8).ratio.values[0] for module in modules)
    assert halved == pytest.approx(0.5 * plain, rel=1e-5)


def test_the_phase_of_a_frozen_class_token_is_that_of_the_blocks_that_move_it() -> None:
    """What rides the skip alone has no ratio; patch tokens that never see the class token have the usual ones."""
    found = {}
    for name, switches in (("frozen", {"cls_frozen_until": 2}), ("unseen", {"cls_unseen_until": 4})):
        torch.manual_seed(0)
        subject = module_subject(zoo.build("vit", depth=4, cls_init="normal", **switches), name)
        found[name] = finding_of(SkipRatio(), subject, images=16, block=8)
    assert np.isfinite(found["frozen"].ratio_cls.values).tolist() == [False] * 4 + [True] * 4
    assert np.isfinite(found["unseen"].ratio_cls.values).all()
    for finding in found.values():
        phases = {row["quantity"]: row["quantity_value"] for row in quantities_in(finding)}
        assert all(np.isfinite(phases[f"cls_phase_since_joining_{kind}"]) for kind in ("attention", "mlp"))


def test_a_dilated_resnet_ends_in_the_grid_of_the_zoos_vit() -> None:
    last = {
        name: [site.layout.grid for site in look(name, **switches).sites if site.role == "block"][-1]
        for name, switches in (("vit", {}), ("resnet", {"dilated": True}))
    }
    assert last == {"vit": (8, 8), "resnet": (8, 8)}


def test_a_resnets_block_without_skip_is_still_a_block() -> None:
    anatomy = look("resnet", no_skip_at=(2, 5))
    assert junctions(anatomy) == {"conv": 6}
    assert sum(site.role == "block" for site in anatomy.sites) == 8


def test_kernel_attention_keeps_to_its_neighbours() -> None:
    """What the taps recompute from mask and keys: no weight beyond the 3×3 cells."""
    from eyechart.zoo.mixers import neighbours

    torch.manual_seed(0)
    attention = zoo.build("vit-gap", mixer="kernel", depth=1).get_submodule("blocks.0.attn")
    given = torch.randn(1, 64, 160, requires_grad=True)
    for query in (0, 9, 63):
        (gradient,) = torch.autograd.grad(attention(given)[0, query].sum(), given)
        assert torch.equal(gradient[0].abs().sum(-1) > 0, neighbours(8, 3)[query])


def test_alternets_windows_tile_the_grid() -> None:
    anatomy = look("alternet", msas=5)
    seen = [site.attention for site in anatomy.sites if site.attention is not None]
    assert [geometry.windows for geometry in seen] == [64, 16, 4, 1, 1]
    assert [geometry.kind for geometry in seen] == ["windowed"] * 3 + ["global"] * 2
    assert junctions(look("alternet", msas=0)) == {"conv": 17}
