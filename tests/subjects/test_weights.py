"""Checkpoints: wrapped, renamed, damaged, foreign and malicious ones, written to a folder and named after an @."""

import argparse
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from torch import nn

from eyechart.errors import SubjectError, UnsafeWeights, WeightsMismatch
from eyechart.subjects.load import load_subject
from eyechart.subjects.weights import check_finite, hash_of, read_checkpoint
from tests.cases import inside

NAME = "test_vit"  # timm's smallest: 0.4 M parameters


def trained(name: str = NAME, **options: Any) -> nn.Module:
    torch.manual_seed(7)
    return timm.create_model(name, **options).eval()


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt", ".bin"])
def test_weights_of_a_file_are_in_the_subject(tmp_path: Path, suffix: str) -> None:
    module, path = trained(), tmp_path / f"checkpoint{suffix}"
    save = safetensors.torch.save_file if suffix == ".safetensors" else torch.save
    save(module.state_dict(), path)
    subject = load_subject(f"timm:{NAME}@{path}")
    assert same_weights(subject.module, module)
    assert subject.trained
    assert subject.weights_hash == hash_of(module.state_dict())


def wrapped_by(prefix: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda state: {prefix + name: value for name, value in state.items()}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"model": state, "epoch": 3, "args": argparse.Namespace(lr=0.1)},
        lambda state: {"state_dict": {"model": state}},
        lambda state: {"model": {k: torch.zeros_like(v) for k, v in state.items()}, "model_ema": state},
        wrapped_by("module."),
        wrapped_by("backbone."),
        wrapped_by("_orig_mod."),
        wrapped_by("module._orig_mod.model."),
        lambda state: {"state_dict": wrapped_by("module.backbone.")(state)},
        lambda state: {"n_averaged": torch.tensor(5), **wrapped_by("module.")(state)},
    ],
)
def test_wrappers_and_prefixes_come_off(tmp_path: Path, wrap: Callable[[Any], Any]) -> None:
    module = trained()
    torch.save(wrap(module.state_dict()), tmp_path / "a.pth")
    assert same_weights(load_subject(f"timm:{NAME}@{tmp_path / 'a.pth'}").module, module)


def test_the_card_says_which_part_of_a_checkpoint_was_taken(tmp_path: Path) -> None:
    torch.save({"model_ema": trained().state_dict()}, tmp_path / "a.pth")
    assert "'model_ema'" in load_subject(f"timm:{NAME}@{tmp_path / 'a.pth'}").card["notes"][0]


def test_half_precision_checkpoints_become_float32(tmp_path: Path) -> None:
    half = {name: value.half() for name, value in trained().state_dict().items()}
    safetensors.torch.save_file(half, tmp_path / "a.safetensors")
    subject = load_subject(f"timm:{NAME}@{tmp_path / 'a.safetensors'}")
    assert {value.dtype for value in subject.module.state_dict().values()} == {torch.float32}
    assert torch.equal(subject.module.get_parameter("cls_token"), half["cls_token"].float())


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.marker}",))


@pytest.mark.parametrize("writer", ["torch", "torch, nested", "pickle 0", "pickle 2", "pickle 4"])
def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path, writer: str) -> None:
    marker, path = tmp_path / "it_ran", tmp_path / "evil.pth"
    bomb = Malicious(marker)
    if writer.startswith("torch"):
        torch.save({"model": trained().state_dict(), "extra": bomb} if "nested" in writer else bomb, path)
    else:
        path.write_bytes(pickle.dumps(bomb, protocol=int(writer[-1])))
    with pytest.raises(UnsafeWeights, match=r"would run code when loaded \((posix|nt)\.system\)") as caught:
        load_subject(f"timm:{NAME}@{path}")
    assert not marker.exists()
    assert "\n" not in str(caught.value)
    if writer.startswith("pickle"):
        pickle.loads(path.read_bytes())  # the trap is real: loaded carelessly, it does run
        assert marker.exists()


def test_a_whole_pickled_model_and_a_scripted_one_are_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "module.pth")
    with pytest.raises(UnsafeWeights, match=r"torch\.nn\.modules\.linear\.Linear"):
        read_checkpoint(tmp_path / "module.pth")
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "scripted.pt")
    with pytest.raises(UnsafeWeights, match="TorchScript"):
        read_checkpoint(tmp_path / "scripted.pt")


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth"])
@pytest.mark.parametrize("content", [b"", b"hello, I am a text", b"\x80\x02}q\x00."])
def test_damaged_files_are_said_to_be(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SubjectError, match=re.escape(str(tmp_path / name))) as caught:
        read_checkpoint(tmp_path / name)
    assert not isinstance(caught.value, UnsafeWeights)
    assert "\n" not in str(caught.value)


def test_a_truncated_checkpoint_is_damaged_not_malicious(tmp_path: Path) -> None:
    torch.save(trained().state_dict(), tmp_path / "a.pth")
    (tmp_path / "a.pth").write_bytes((tmp_path / "a.pth").read_bytes()[:-5000])
    with pytest.raises(SubjectError, match="damaged") as caught:
        read_checkpoint(tmp_path / "a.pth")
    assert not isinstance(caught.value, UnsafeWeights)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match=r"no checkpoint at .*nowhere\.pth"):
        load_subject(f"timm:{NAME}@{tmp_path / 'nowhere.pth'}")


def test_another_architecture_says_how_many_tensors_fit(tmp_path: Path) -> None:
    torch.save(timm.create_model("resnet18").state_dict(), tmp_path / "a.pth")
    came, wanted = len(timm.create_model("resnet18").state_dict()), len(trained().state_dict())
    with pytest.raises(WeightsMismatch, match=rf": 0 of its {came} tensors fit the model's {wanted} by name and shape"):
        load_subject(f"timm:{NAME}@{tmp_path / 'a.pth'}")


def test_a_deeper_brother_does_not_fit_although_it_has_every_tensor(tmp_path: Path) -> None:
    deeper = trained("vit_tiny_patch16_224", depth=3, embed_dim=48).state_dict()
    shallow = {name: value for name, value in deeper.items() if not name.startswith("blocks.2.")}
    module = timm.create_model("vit_tiny_patch16_224", depth=2, embed_dim=48)
    assert shallow.keys() == module.state_dict().keys()
    from eyechart.subjects.weights import fit_to

    _, fit = fit_to(deeper, module)
    assert fit.fitting == len(shallow)
    assert not fit.complete
    assert "blocks.2.norm1.weight (not in the model)" in str(fit.mismatch("a.pth", "timm:x"))


def test_one_layer_of_another_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    state = trained().state_dict()
    width = state["norm.weight"].shape[0]
    state["norm.weight"] = torch.ones(3)
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(WeightsMismatch, match=rf"norm\.weight \(3, expected {width}\)"):
        load_subject(f"timm:{NAME}@{tmp_path / 'a.pth'}")


@pytest.mark.parametrize(
    ("spec", "module"),
    [
        (f"timm:{NAME}", lambda: timm.create_model(NAME, num_classes=7)),
        ("torchvision:squeezenet1_1", lambda: __import__("torchvision").models.squeezenet1_1(num_classes=7)),
        ("timm:test_resnet", lambda: timm.create_model("test_resnet", num_classes=7)),
    ],
)
def test_another_number_of_classes_is_built_and_said(tmp_path: Path, spec: str, module: Any) -> None:
    tuned = module()
    torch.save({"model": wrapped_by("module.")(tuned.state_dict())}, tmp_path / "a.pth")
    subject = load_subject(f"{spec}@{tmp_path / 'a.pth'}")
    assert same_weights(subject.module, tuned)
    assert subject.classes is None
    assert any("7 classes" in note for note in subject.card["notes"])
    logits = subject.logits(subject.call(torch.zeros(1, 3, *subject.input_size)))
    assert logits is not None
    assert logits.shape == (1, 7)


def test_a_checkpoint_without_a_classifier_ends_in_features(tmp_path: Path) -> None:
    torch.save(trained(num_classes=0).state_dict(), tmp_path / "a.pth")
    subject = load_subject(f"timm:{NAME}@{tmp_path / 'a.pth'}")
    assert not subject.classifier
    assert subject.logits(subject.call(torch.zeros(1, 3, *subject.input_size))) is None
    assert any("left out" in note for note in subject.card["notes"])


def test_position_embeddings_of_another_grid_are_resized_by_timm(tmp_path: Path) -> None:
    larger = trained(img_size=224)
    torch.save(larger.state_dict(), tmp_path / "a.pth")
    subject = load_subject(f"timm:{NAME}@{tmp_path / 'a.pth'}")
    expected = trained()
    assert expected.pos_embed.shape != larger.pos_embed.shape
    assert subject.module.pos_embed.shape == expected.pos_embed.shape
    assert torch.equal(*(module.get_parameter("norm.weight") for module in (subject.module, larger)))
    resized = timm.layers.resample_abs_pos_embed(
        larger.pos_embed,
        new_size=list(inside(expected).patch_embed.grid_size),
        num_prefix_tokens=expected.num_prefix_tokens,
    )
    torch.testing.assert_close(subject.module.pos_embed, resized)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_name_the_first_tensor(tmp_path: Path, value: float) -> None:
    state = trained().state_dict()
    state["blocks.1.attn.qkv.weight"][0, 0] = value
    state["norm.weight"][:] = value
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(
        SubjectError, match=r"blocks\.1\.attn\.qkv\.weight is the first tensor .*\(1 of its \d+ values\)"
    ):
        load_subject(f"timm:{NAME}@{tmp_path / 'a.pth'}")


def test_masks_may_hold_infinity_but_statistics_may_not() -> None:
    module = nn.BatchNorm2d(3)
    module.register_buffer("mask", torch.full((2, 2), float("-inf")))
    check_finite("net", module)
    module.get_buffer("running_var")[1] = float("inf")
    with pytest.raises(SubjectError, match="running_var"):
        check_finite("net", module)


def test_the_hash_depends_on_names_types_shapes_and_values_and_not_on_order() -> None:
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(3), "c": torch.zeros(0)}
    reference = hash_of(state)
    assert hash_of(dict(reversed(state.items()))) == reference
    assert hash_of({**state, "a": state["a"].t().contiguous().t()}) == reference  # other strides, same tensor
    others = [
        {**state, "a": state["a"].reshape(3, 2)},
        {**state, "a": state["a"].view(torch.int32)},  # the same bytes, read otherwise
        {**state, "a": state["a"] + 1e-6},
        {"A": state["a"], "b": state["b"], "c": state["c"]},
    ]
    assert len({reference, *map(hash_of, others)}) == 5


def test_pictures_of_other_channels_are_named_as_the_cause(tmp_path: Path) -> None:
    """119 of 122 tensors fitted, and all that was said was "of another architecture"."""
    torch.save(timm.create_model("resnet18", in_chans=4).state_dict(), tmp_path / "four.pth")
    with pytest.raises(WeightsMismatch, match=r"Its first layer takes 4 channels; pictures are shown in 3"):
        load_subject(f"timm:resnet18@{tmp_path / 'four.pth'}")
