"""No code of a model or a dataset is run: neither of a hub nor of a folder that somebody sent."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import eyechart
from eyechart.errors import ImagesError, UnsafeWeights
from eyechart.images import open_images
from eyechart.subjects.load import load_subject

hf = pytest.importorskip("transformers")

OWN_CODE = """
from pathlib import Path
Path({ran!r}).touch()
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
class OwnConfig(ViTConfig):
    model_type = "own"
class OwnModel(ViTForImageClassification):
    config_class = OwnConfig
class OwnProcessor(ViTImageProcessor):
    pass
"""
MODEL = {"AutoModel": "own.OwnModel", "AutoModelForImageClassification": "own.OwnModel"}
CONFIG = {"AutoConfig": "own.OwnConfig"}
PROCESSOR = {"AutoImageProcessor": "own.OwnProcessor"}


def changed(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **entries}), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved model with a Python file beside it, which nothing names yet."""
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    made = tmp_path / "model"
    hf.ViTForImageClassification(hf.ViTConfig(**small, image_size=32, patch_size=16, num_labels=3)).save_pretrained(
        made
    )
    hf.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(made)
    (made / "own.py").write_text(OWN_CODE.format(ran=str(tmp_path / "ran")))
    return made


def test_the_code_would_run_if_it_were_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests below would pass for another reason."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder.parent / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    changed(folder / "config.json", auto_map=CONFIG | MODEL)
    hf.AutoModel.from_pretrained(folder, trust_remote_code=True)
    assert (folder.parent / "ran").exists()


@pytest.mark.parametrize("weights", ["", "@random"])
@pytest.mark.parametrize(
    "entries",
    [
        {"model_type": "own", "auto_map": CONFIG | MODEL},
        {"auto_map": CONFIG | MODEL},  # transformers would take its own ViT instead, and say nothing
        {"auto_map": MODEL},
    ],
)
def test_a_model_of_its_own_code_is_refused(folder: Path, entries: dict[str, Any], weights: str) -> None:
    changed(folder / "config.json", **entries)
    with pytest.raises(UnsafeWeights, match=r"^hf:.*model\S* brings Python code that says what it is, and"):
        load_subject(f"hf:{folder}{weights}")
    assert not (folder.parent / "ran").exists()


def test_an_image_processor_of_its_own_code_is_refused(folder: Path) -> None:
    """Not replaced by the mean and deviation of ImageNet."""
    changed(folder / "preprocessor_config.json", image_processor_type="OwnProcessor", auto_map=PROCESSOR)
    with pytest.raises(UnsafeWeights, match="says what its image processor is"):
        load_subject(f"hf:{folder}")
    assert not (folder.parent / "ran").exists()


def test_a_processor_that_transformers_knows_is_read_and_the_rest_noted(folder: Path) -> None:
    changed(folder / "preprocessor_config.json", auto_map=PROCESSOR, image_mean=[0.1, 0.2, 0.3])
    subject = load_subject(f"hf:{folder}")
    assert subject.preprocessing.as_json()["mean"] == [0.1, 0.2, 0.3]
    assert any("was not run" in note for note in subject.card["notes"])
    assert not (folder.parent / "ran").exists()


def test_a_dataset_with_a_script_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_TRUST_REMOTE_CODE", "1")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "pictures.py").write_text(OWN_CODE.format(ran=str(tmp_path / "ran")))
    with pytest.raises(ImagesError, match="cannot be loaded"):
        open_images(f"hf:{pictures}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("weights", ["", "@random", "@{}/model.safetensors"])
def test_every_way_through_transformers_is_told_not_to(
    folder: Path, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Any]] = []
    for family in (hf.AutoConfig, hf.AutoModel, hf.AutoModelForImageClassification, hf.AutoImageProcessor):
        for way in ("from_pretrained", "from_config"):
            if original := getattr(family, way, None):

                def watched(*given: Any, original: Any = original, family: Any = family, **options: Any) -> Any:
                    told.append((family.__name__, options.get("trust_remote_code")))
                    return original(*given, **options)

                monkeypatch.setattr(family, way, watched)
    load_subject(f"hf:{folder}{weights.format(folder)}")
    assert {name for name, _ in told} == {"AutoConfig", "AutoModelForImageClassification", "AutoImageProcessor"}
    assert {trusted for _, trusted in told} == {False}


RISKY = re.compile(
    r"trust_remote_code\s*=\s*(?!False)|weights_only\s*=\s*(?!True)|torch\.hub|hub\.load\(|import hubconf"
)


def test_no_source_of_ours_lets_a_library_run_code() -> None:
    """torch.hub.load runs the hubconf.py of a repository; torch.load is asked for weights only."""
    sources = sorted(Path(eyechart.__file__).parent.rglob("*.py"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    assert {name for name, text in texts.items() if RISKY.search(text)} == set()
    loads = [line for text in texts.values() for line in text.splitlines() if "torch.load(" in line]
    assert loads
    assert all("weights_only=True" in line for line in loads)
