"""Another input size than a model's own, `:48px`: what is resized, what is refused, and in which words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from eyechart import zoo
from eyechart.errors import SubjectError, UsageError
from eyechart.subjects.catalogue import Spec, parse_spec
from eyechart.subjects.load import load_subject
from eyechart.subjects.resizing import resize_positions
from eyechart.subjects.subject import Subject
from eyechart.zoo.positions import resize_distances, resize_pos_embed

TINY = {"width": 16, "depth": 2, "heads": 2, "patch": 4}


def save(folder: Path, name: str, **switches: Any) -> tuple[Path, nn.Module]:
    """A model of the zoo for 16-pixel images, a 4×4 grid, with a card as a training leaves it."""
    torch.manual_seed(0)
    module = zoo.build(name, classes=3, image_size=16, **switches)
    save_file(module.state_dict(), folder / f"{name}.safetensors")
    card = {"name": name, "classes": ["a", "b", "c"], "input_size": [16, 16], "mean": [0.5] * 3, "std": [0.2] * 3}
    (folder / f"{name}.json").write_text(json.dumps({**card, "recipe": {"name": "weak"}, "switches": switches}))
    return folder / f"{name}.safetensors", module


def logits(subject: Subject) -> Tensor:
    torch.manual_seed(1)
    with torch.no_grad():
        found = subject.logits(subject.call(torch.randn(2, 3, *subject.input_size)))
    assert found is not None
    return found


class TestSpecs:
    def test_the_size_stands_between_name_and_weights(self) -> None:
        assert parse_spec("zoo:vit:48px@warmup") == Spec("zoo", "vit", "warmup", 48)
        assert parse_spec("vit:48px") == Spec("zoo", "vit", None, 48)
        assert parse_spec("resnet18:64px@a:b.pth") == Spec("timm", "resnet18", "a:b.pth", 64)
        assert parse_spec("hf:google/vit-base-patch16-224:384px") == Spec(
            "hf", "google/vit-base-patch16-224", None, 384
        )
        assert str(parse_spec("vit:48px@random")) == "zoo:vit:48px@random"

    @pytest.mark.parametrize(
        "text", ["zoo:vit:48", "vit:48", "zoo:vit:0px", "zoo:vit@warmup:48px", "timm:vit:48px:2px"]
    )
    def test_any_other_way_is_refused_with_the_right_one(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"in pixels, before any @, as in \w+:NAME:48px"):
            parse_spec(text)

    def test_in_python_it_is_an_argument(self) -> None:
        subject = load_subject("zoo:vit@random", input_size=48)
        assert (subject.name, subject.input_size) == ("zoo:vit:48px@random", (48, 48))
        with pytest.raises(UsageError, match="which is square; got an input size of 48×32"):
            load_subject("zoo:vit@random", input_size=(48, 32))


KINDS = [
    {"position": "none"},
    *({"position": kind, "position_at": place} for kind in ("1d", "2d") for place in ("stem", "layers", "shared")),
    {"position": "relative"},
]


class TestZoo:
    @pytest.mark.parametrize("pool", ["cls", "gap", "gap-unused-cls"])
    @pytest.mark.parametrize("switches", KINDS, ids=lambda switches: " ".join(switches.values()))
    def test_tables_of_every_kind_are_resized_and_nothing_else(
        self, switches: dict[str, str], pool: str, tmp_path: Path
    ) -> None:
        path, trained = save(tmp_path, "vit", **TINY, **switches, pool=pool)
        same, larger = load_subject(f"zoo:vit:16px@{path}"), load_subject(f"zoo:vit:24px@{path}")
        before, kept, after = (model.state_dict() for model in (trained, same.module, larger.module))
        assert all(torch.equal(kept[name], before[name]) for name in before)
        changed = {name for name in before if before[name].shape != after[name].shape}
        tables = {name for name in before if name.endswith("pos_embed") and ".cls." not in name}
        assert changed == tables
        assert all(torch.equal(after[name], before[name]) for name in before if name not in tables)
        assert logits(larger).shape == (2, 3)

    def test_the_table_is_the_authors_zoom(self, tmp_path: Path) -> None:
        path, trained = save(tmp_path, "vit", **TINY)
        table = load_subject(f"zoo:vit:24px@{path}").module.state_dict()["pos_embed"]
        expected = resize_pos_embed(trained.state_dict()["pos_embed"], 4, 6, has_cls=True)
        assert torch.equal(table, expected)
        assert torch.equal(table[:, 0], trained.state_dict()["pos_embed"][:, 0])

    def test_halves_of_a_2d_table_are_lines(self, tmp_path: Path) -> None:
        """Four rows are a line of four, though they would also make a grid of two by two."""
        path, trained = save(tmp_path, "vit", **TINY, position="2d")
        state = load_subject(f"zoo:vit:36px@{path}").module.state_dict()
        for name in ("positions.0.rows.pos_embed", "positions.0.columns.pos_embed"):
            line, places = trained.state_dict()[name][0].numpy(), np.linspace(0, 3, 9)
            expected = np.stack([np.interp(places, np.arange(4), channel) for channel in line.T], axis=1)
            np.testing.assert_allclose(state[name][0].numpy(), expected, atol=1e-6)

    @pytest.mark.parametrize("has_cls", [False, True])
    def test_distances_are_the_mean_over_all_pairs_of_cells(self, has_cls: bool) -> None:
        """Brute force: each pair of cells of the new grid reads the old table at its step, between four old steps."""
        old, new = 3, 5
        table = torch.randn(2 * (old**2 + has_cls) - 1, 2, dtype=torch.float64)
        middle = old**2 - 1 + has_cls

        def at(down: float, across: float) -> Tensor:
            y, x = int(np.floor(down)), int(np.floor(across))
            value = torch.zeros(2, dtype=torch.float64)
            for dy in (y, y + 1):
                for dx in (x, x + 1):
                    share = (1 - abs(down - dy)) * (1 - abs(across - dx))
                    if share > 1e-12:
                        value += share * table[middle + dy * old + dx]
            return value

        seen: dict[int, list[Tensor]] = {}
        cells = [(y, x) for y in range(new) for x in range(new)]
        for i, (y, x) in enumerate(cells):
            for j, (v, u) in enumerate(cells):
                scale = (old - 1) / (new - 1)
                seen.setdefault(i - j, []).append(at((y - v) * scale, (x - u) * scale))
        expected = torch.stack([torch.stack(seen[step]).mean(0) for step in sorted(seen)])
        resized = resize_distances(table, old, new, has_cls)
        torch.testing.assert_close(resized[1:-1] if has_cls else resized, expected, atol=1e-6, rtol=0)
        if has_cls:
            assert torch.equal(resized[[0, -1]], table[[0, -1]])

    @pytest.mark.parametrize(
        ("name", "size"),
        [("swin", 48), ("swin", 16), ("pit", 48), ("resnet", 48), ("poolformer", 48), ("vit-hybrid", 48)],
    )
    def test_other_models_take_other_sizes(self, name: str, size: int, tmp_path: Path) -> None:
        torch.manual_seed(0)
        save_file(zoo.build(name).state_dict(), tmp_path / "a.safetensors")
        subject = load_subject(f"zoo:{name}:{size}px@{tmp_path / 'a.safetensors'}")
        assert logits(subject).isfinite().all()
        assert subject.card["notes"][-1] == f"the input size of {size}×{size} was asked for"

    def test_the_mixers_of_tokens_refuse(self, tmp_path: Path) -> None:
        path, _ = save(tmp_path, "mixer", width=16, depth=1)
        with pytest.raises(
            SubjectError, match=r"zoo:mixer cannot take pictures of 32×32: .* is 8×16 and not 8×64, and"
        ):
            load_subject(f"zoo:mixer:32px@{path}")
        path, _ = save(tmp_path, "vit-gap", **TINY, mixer="mlp")
        with pytest.raises(SubjectError, match=r"zoo:vit-gap cannot take pictures of 32×32: blocks.0.attn.fc1.weight"):
            load_subject(f"zoo:vit-gap:32px@{path}")

    def test_what_cannot_be_built_says_why(self) -> None:
        with pytest.raises(UsageError, match="The patch size must divide the image size; 4 does not divide 50"):
            load_subject("zoo:vit:50px")
        with pytest.raises(UsageError, match="The window must divide the grid; 4 does not divide 6 in stage 4"):
            load_subject("zoo:alternet:48px@random")

    def test_a_bundled_model_keeps_its_accuracy_about(self) -> None:
        """Pictures of 32 pixels shown at 40 to a ViT that never saw them so: worse than at 32, far above chance."""
        from eyechart.images import open_images

        images = open_images("sample")
        pictures, labels = images.pictures(list(range(0, 1000, 8))), torch.as_tensor(images.labels)[::8]
        right = {}
        for size in (32, 40):
            subject = load_subject(f"zoo:vit:{size}px")
            with torch.no_grad():
                found = subject.logits(subject.call(subject.prepare(pictures)))
            assert found is not None
            right[size] = float((found.argmax(1) == labels).double().mean())
        assert right[32] > 0.85
        assert 0.4 < right[40] < right[32]


class TestLibraries:
    def test_timm_resamples_what_it_builds_for_one_size(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from eyechart import hub

        torch.manual_seed(0)
        state = timm.create_model("test_vit").state_dict()  # 160 pixels in patches of 16
        save_file(state, tmp_path / "a.safetensors")
        monkeypatch.setattr(hub, "_answers", lambda address: True)
        monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", lambda *args, **options: dict(state))
        for spec in (f"timm:test_vit:96px@{tmp_path / 'a.safetensors'}", "timm:test_vit:96px"):
            subject = load_subject(spec)
            table = subject.module.state_dict()["pos_embed"]
            assert table.shape[1] == 1 + 6**2
            assert torch.equal(table[:, 0], state["pos_embed"][:, 0])
            assert logits(subject).shape == (2, 1000)
            assert subject.preprocessing.size == (96, 96)

    def test_timms_mixer_refuses_trained_weights(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from eyechart import hub

        state = timm.create_model("gmixer_24_224").state_dict()
        monkeypatch.setattr(hub, "_answers", lambda address: True)
        monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", lambda *args, **options: dict(state))
        with pytest.raises(
            SubjectError, match=r"timm:gmixer_24_224 cannot take pictures of 96×96: size mismatch for bl"
        ):
            load_subject("timm:gmixer_24_224:96px")

    @pytest.mark.parametrize("spec", ["timm:resnet10t:64px@random", "torchvision:squeezenet1_1:64px@random"])
    def test_convolutions_just_see_the_other_size(self, spec: str) -> None:
        subject = load_subject(spec)
        assert subject.input_size == (64, 64)
        assert subject.card["preprocessing"]["size"] == [64, 64]
        assert logits(subject).shape == (2, 1000)

    def test_torchvisions_table_has_a_name_of_its_own(self) -> None:
        def encoder(tokens: int) -> nn.Module:
            module = nn.Module()
            module.encoder = nn.Module()
            module.encoder.pos_embedding = nn.Parameter(torch.randn(1, tokens, 3))
            return module

        small, large = encoder(5), encoder(17)
        resized = resize_positions(small.state_dict(), large)["encoder.pos_embedding"]
        assert torch.equal(resized, resize_pos_embed(small.state_dict()["encoder.pos_embedding"], 2, 4, has_cls=True))

    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            ("torchvision:maxvit_t:64px@random", "cannot be called on one colour picture of 64×64"),
            ("timm:swinv2_cr_tiny_ns_224:100px@random", "timm:swinv2_cr_tiny_ns_224 cannot take pictures of 100×100: "),
        ],
    )
    def test_what_breaks_at_a_size_says_so_in_one_sentence(self, spec: str, says: str) -> None:
        with pytest.raises(SubjectError) as caught:
            load_subject(spec)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
