"""Checkpoints and cards that want something else than to be read: each is refused with one sentence, at once."""

from __future__ import annotations

import importlib
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from eyechart import zoo
from eyechart.errors import EyechartError, SubjectError, UnsafeWeights, UsageError, WeightsMismatch
from eyechart.subjects import sources
from eyechart.subjects.catalogue import parse_spec
from eyechart.subjects.labels import read_mapping
from eyechart.subjects.load import load_subject
from eyechart.subjects.weights import read_checkpoint
from tests.mutations import mutated, refusal
from tests.small_subjects import OWN_CARD


class Runs:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_a_legacy_pickle_that_runs_code_is_called_that(tmp_path: Path) -> None:
    path, mark = tmp_path / "old.pth", tmp_path / "ran"
    torch.save({"a": torch.zeros(2), "b": Runs(mark)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(
        UnsafeWeights, match=r"would run code when loaded \(pathlib\.Path\.touch|would run code"
    ) as refused:
        read_checkpoint(path)
    assert "weights_only" not in str(refused.value)
    assert not mark.exists()


def test_torch_s_advice_to_switch_the_protection_off_is_not_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "odd.pth"
    torch.save({"a": torch.zeros(2)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, b"\x80\x02(K\x01K\x02R." if name.endswith("data.pkl") else data)
    with pytest.raises(SubjectError) as refused:
        read_checkpoint(path)
    assert "trust" not in str(refused.value)
    assert "weights_only" not in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def safetensors_bytes(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        safetensors_bytes({}),
        safetensors_bytes({"__metadata__": {"format": "pt"}}),
        safetensors_bytes({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}, bytes(4)),
        safetensors_bytes({"a": {"dtype": "F32", "shape": [0, 1 << 62], "data_offsets": [0, 0]}}),
        safetensors_bytes(b"[" * 100_000),
        struct.pack("<Q", 1 << 62),
        b"",
    ],
)
def test_safetensors_without_tensors_or_with_lies_end_at_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(SubjectError, match=r"a\.safetensors"):
        load_subject(f"zoo:vit@{path}")


def test_bombs_and_claims_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
        archive.writestr("archive/data/0", bytes(10_000_000))
    with pytest.raises(SubjectError, match="zip bomb"):
        read_checkpoint(path)
    path = tmp_path / "long.pth"
    path.write_bytes(
        b"\x80\x04\x8d" + struct.pack("<Q", 3 << 30) + b"abc"
    )  # a string of 3 GB, of which three are there
    with pytest.raises(SubjectError, match=r"long\.pth is damaged"):
        read_checkpoint(path)
    path = tmp_path / "wide.pth"
    torch.save({"a": torch.zeros(1).expand(10**12)}, path)
    with pytest.raises(SubjectError, match="claims to be larger than the file"):
        read_checkpoint(path)


def test_a_checkpoint_that_holds_itself_ends(tmp_path: Path) -> None:
    circle: dict[str, Any] = {"a": torch.zeros(2)}
    circle["model"] = circle
    torch.save(circle, tmp_path / "a.pth")
    assert list(read_checkpoint(tmp_path / "a.pth")[0]) == ["a"]


def seeds(tmp_path: Path) -> dict[str, bytes]:
    state = {"layer.weight": torch.randn(3, 4), "layer.bias": torch.zeros(3)}
    new, old, deep = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(state, new)
    torch.save({"state_dict": state, "epoch": 3}, old, _use_new_zipfile_serialization=False)
    torch.save({"model": state, "args": {"lr": 0.1, "names": ["a"] * 9}}, deep)
    return {
        "new.pth": new.getvalue(),
        "old.pth": old.getvalue(),
        "deep.pt": deep.getvalue(),
        "a.safetensors": safetensors.torch.save(state),
    }


@pytest.mark.parametrize("name", ["new.pth", "old.pth", "deep.pt", "a.safetensors"])
def test_mutated_checkpoints_are_read_or_refused_by_name(tmp_path: Path, name: str) -> None:
    whole = seeds(tmp_path)[name]
    path = tmp_path / name
    for data in mutated(whole, 60):
        path.write_bytes(data)
        said = refusal(SubjectError, read_checkpoint, path)
        assert said is None or str(path) in said


@pytest.mark.parametrize("seed", range(2))
def test_mutated_pickles_inside_a_sound_zip_are_read_or_refused(tmp_path: Path, seed: int) -> None:
    with zipfile.ZipFile(io.BytesIO(seeds(tmp_path)["deep.pt"])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    inner = next(name for name in members if name.endswith("data.pkl"))
    path = tmp_path / "a.pth"
    for data in mutated(members[inner], 40, seed):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, data if name == inner else content)
        said = refusal(SubjectError, read_checkpoint, path)
        assert said is None or str(path) in said


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "mine.safetensors"
    safetensors.torch.save_file(zoo.build("vit", **OWN_CARD["switches"]).state_dict(), path)
    return path


@pytest.mark.parametrize(
    "facts",
    [
        {"switches": {"width": 65_536, "depth": 100}},
        {"switches": {"width": 10**6}},
        {"switches": {"depth": 10**9}},
        {"switches": {"heads": 3, "width": 32}},
        {"switches": {"width": "32"}},
        {"switches": "width"},
        {"input_size": [10**9, 10**9]},
        {"input_size": 10**9},
        {"input_size": ["x"]},
        {"input_size": []},
        {"mean": ["a", "b", "c"]},
        {"mean": [1e400] * 3},
        {"std": None},
        {"classes": 7},
        {"classes": [["deep"]] * 100_001},
    ],
)
def test_a_card_that_asks_for_too_much_is_refused(weights: Path, facts: dict[str, Any]) -> None:
    weights.with_suffix(".json").write_text(json.dumps({**OWN_CARD, **facts}))
    with pytest.raises((SubjectError, UsageError)):
        load_subject(f"zoo:vit@{weights}")


def test_what_builds_it_is_imported_before_it_is_tried_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a module makes while it is imported, where timm and torchvision are not there yet, belongs on the CPU."""
    devices = []

    def imported(name: str) -> Any:
        devices.append(torch.get_default_device().type)
        return importlib.import_module(name)

    monkeypatch.setattr(zoo, "import_module", imported)
    load_subject("zoo:resnet")
    assert devices[0] == "cpu"


def test_models_whose_building_asks_for_rates_are_tried_without_memory() -> None:
    """timm 1.0.15 makes the rates of drop-path with torch.linspace and asks for their values."""

    class Asking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 4)]
            self.weight = torch.nn.Parameter(torch.empty(3))

    sources._refuse_larger(Asking, {"weight": torch.zeros(3)}, Path("a.safetensors"))


def test_a_card_that_is_no_card_is_passed_over(weights: Path) -> None:
    for text in ("[" * 200_000, "\xff", "{}", ""):
        weights.with_suffix(".json").write_text(text, encoding="latin-1")
        with pytest.raises(WeightsMismatch, match="There is no card beside it"):
            load_subject(f"zoo:vit@{weights}")


def test_mutated_cards_are_read_or_refused(weights: Path) -> None:
    for data in mutated(json.dumps(OWN_CARD).encode(), 12):
        weights.with_suffix(".json").write_bytes(data)
        said = refusal(EyechartError, load_subject, f"zoo:vit@{weights}")
        assert said is None or len(said.splitlines()) == 1


ODD_SPECS = (
    "hf:" + "a" * 5000,
    "zoo:vit@" + "b" * 5000,
    "zoo:vit@" + "b" * 300,
    "a" * 100_000,
    "zoo:vit@\0",
    "hf:~nobody-there/x",
    "zoo:vit:" + "9" * 4900 + "px",
    "zoo:vit:1000000px",
    "timm:" + "x" * 300 + ".pth",
    "@",
    ":",
    "zoo:",
    "zoo:vit@~nobody-there/w.pth",
    "\ud800",
)


@pytest.mark.parametrize("spec", ODD_SPECS)
def test_odd_specs_are_one_sentence(spec: str) -> None:
    with pytest.raises(EyechartError) as refused:
        load_subject(spec)
    assert len(str(refused.value)) < 6000


def test_mutated_specs_are_parsed_or_refused() -> None:
    for data in mutated(b"timm:resnet18:160px@some/weights.pth", 100):
        refusal(EyechartError, parse_spec, data.decode("utf-8", "replace"))


def test_mappings_of_classes_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    sound = b'{"left": 3, "right": "dog", "other": "n01440764"}'
    rest = [b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b"", b"\xff\xfe", b'{"a": [1]}']
    for data in (*mutated(sound, 60), *rest):
        path.write_bytes(data)
        refusal(UsageError, read_mapping, path)
    for name in (Path("/dev/zero"), tmp_path / ("x" * 300), tmp_path):
        with pytest.raises(UsageError, match="cannot be read as JSON"):
            read_mapping(name)


def test_numbers_of_mutations_are_seeded() -> None:
    assert list(mutated(b"abc" * 9, 5)) == list(mutated(b"abc" * 9, 5))
    assert np.mean([data != b"abc" * 9 for data in mutated(b"abc" * 9, 50)]) > 0.9
