"""Subjects of timm, torchvision and Hugging Face: out of reach, saved in a folder, and what they bring along."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image

from eyechart import hub
from eyechart.errors import HubUnreachable, SubjectError, UnknownSubject, UnsafeWeights, WeightsMismatch
from eyechart.subjects.load import load_subject
from eyechart.subjects.preprocessing import Preprocessing
from tests.subjects.test_load import FIVE, look


class TestHub:
    @pytest.mark.parametrize("spec", ["timm:vit_tiny_patch16_224", "torchvision:resnet18"])
    def test_out_of_reach_is_one_sentence_and_quick(
        self, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import huggingface_hub

        def no_network(*args: Any, **options: Any) -> Any:
            raise OSError("unreachable")

        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setenv("TORCH_HOME", str(tmp_path))
        monkeypatch.setattr("socket.getaddrinfo", no_network)
        start = time.monotonic()
        with pytest.raises(HubUnreachable) as caught:
            load_subject(spec)
        assert time.monotonic() - start < 10
        assert f"{spec}@PATH" in str(caught.value)
        assert f"{spec}@random" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert huggingface_hub.constants.HF_HUB_OFFLINE is False
        assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ

    def test_hugging_face_names_out_of_reach_too(self) -> None:
        with pytest.raises(HubUnreachable, match=r"hf:FOLDER .*@PATH .*@random"):
            load_subject("hf:google/vit-base-patch16-224")

    def test_pretrained_weights_come_through_timms_own_loader(self, monkeypatch: pytest.MonkeyPatch) -> None:
        torch.manual_seed(3)
        state = timm.create_model("test_vit").state_dict()
        monkeypatch.setattr(hub, "_answers", lambda address: True)
        monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", lambda *args, **options: dict(state))
        subject = load_subject("timm:test_vit")
        assert torch.equal(subject.module.state_dict()["head.weight"], state["head.weight"])
        assert subject.trained
        assert subject.card["tag"]

    def test_a_downloaded_pickle_cannot_run_code(self, tmp_path: Path) -> None:
        class Bomb:
            def __reduce__(self) -> tuple[Any, ...]:
                return (os.system, (f"touch {tmp_path / 'ran'}",))

        torch.save(Bomb(), tmp_path / "a.pth")
        with pytest.raises(UnsafeWeights), hub.hub_access("x", "y", huggingface=False):
            torch.load(tmp_path / "a.pth", weights_only=False)  # as torchvision's downloads are loaded
        assert not (tmp_path / "ran").exists()

    def test_no_trained_weights_at_timm_is_said(self) -> None:
        untrained = next(name for name in timm.list_models("vit_*") if not timm.list_pretrained(f"{name}.*"))
        with pytest.raises(SubjectError, match="no trained weights"):
            load_subject(f"timm:{untrained}")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small Hugging Face models with random weights, saved as a user would."""
    import transformers as hf

    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("hf")
    small: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    names = dict(enumerate(FIVE))
    vit = hf.ViTConfig(**small, image_size=32, patch_size=8, id2label=names, label2id={v: k for k, v in names.items()})
    hf.ViTForImageClassification(vit).save_pretrained(folder / "vit")
    hf.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder / "vit")
    hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**small, image_size=32, patch_size=8)).save_pretrained(
        folder / "deit"
    )
    hf.Dinov2Model(hf.Dinov2Config(**{**small, "image_size": 28, "patch_size": 14})).save_pretrained(folder / "dino")
    hf.ViTModel(vit, add_pooling_layer=False).save_pretrained(folder / "no pooler")
    vision = {**small, "image_size": 32, "patch_size": 8}
    clip = hf.CLIPConfig(vision_config=vision, text_config={**small, "vocab_size": 50})
    hf.CLIPModel(clip).save_pretrained(folder / "clip")
    grey = hf.ViTConfig(**small, image_size=32, patch_size=8, num_channels=1)
    hf.ViTForImageClassification(grey).save_pretrained(folder / "grey")
    return folder


class TestHuggingFace:
    def test_a_saved_classifier(self, saved: Path) -> None:
        import transformers as hf

        subject = load_subject(f"hf:{saved}/vit")
        assert (subject.spec, subject.input_size, subject.classes) == (f"hf:{saved}/vit", (32, 32), FIVE)
        assert subject.name == "vit"
        images = subject.prepare([Image.new("RGB", (40, 40), (255, 0, 0))])
        reference = hf.ViTForImageClassification.from_pretrained(saved / "vit")
        with torch.no_grad():
            expected = reference(pixel_values=images).logits
            torch.testing.assert_close(subject.logits(subject.call(images)), expected)

    def test_random_and_trained_weights_differ(self, saved: Path) -> None:
        random = load_subject(f"hf:{saved}/vit@random")
        assert not random.trained
        assert random.weights_hash == load_subject(f"hf:{saved}/vit@random").weights_hash
        assert random.weights_hash != load_subject(f"hf:{saved}/vit").weights_hash

    def test_distilled_deit_has_one_logits_and_no_made_up_class_names(self, saved: Path) -> None:
        subject = load_subject(f"hf:{saved}/deit")
        logits = look(subject)
        assert logits is not None
        assert logits.shape == (2, 2)
        assert subject.classes is None
        assert "no image processor was saved" in subject.card["notes"][0]

    @pytest.mark.parametrize(
        ("name", "kind"), [("dino", "Dinov2Model"), ("clip", "CLIPVisionModel"), ("no pooler", "ViTModel")]
    )
    def test_feature_models_get_no_random_head(self, saved: Path, name: str, kind: str) -> None:
        subject = load_subject(f"hf:{saved}/{name}")
        assert type(subject.module).__name__ == kind
        assert not subject.classifier
        assert look(subject) is None
        assert not [path for path in subject.module.state_dict() if path.startswith("pooler.")]

    def test_timm_models_in_transformers_clothes_keep_timms_preprocessing(self, tmp_path: Path) -> None:
        import transformers as hf

        facts = {"input_size": [3, 160, 160], "mean": [0.1] * 3, "std": [0.2] * 3, "interpolation": "bilinear"}
        known: dict[str, Any] = {"num_labels": 1000, "pretrained_cfg": facts}  # its hints leave these out
        config = hf.TimmWrapperConfig(architecture="test_vit", **known)
        hf.TimmWrapperForImageClassification(config).save_pretrained(tmp_path)
        subject = load_subject(f"hf:{tmp_path}")
        assert subject.preprocessing == Preprocessing((160, 160), (0.1,) * 3, (0.2,) * 3, "bilinear")
        logits = look(subject)
        assert logits is not None
        assert logits.shape == (2, 1000)

    def test_weights_of_a_file(self, saved: Path, tmp_path: Path) -> None:
        import safetensors.torch

        state = safetensors.torch.load_file(saved / "vit" / "model.safetensors")
        torch.save({"model": state}, tmp_path / "a.pth")
        subject = load_subject(f"hf:{saved}/vit@{tmp_path / 'a.pth'}")
        assert subject.weights_hash == load_subject(f"hf:{saved}/vit").weights_hash

    def test_a_foreign_file_or_an_incomplete_folder_is_refused_with_counts(self, saved: Path, tmp_path: Path) -> None:
        torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "a.pth")
        with pytest.raises(WeightsMismatch, match=r": 0 of its 80 tensors fit the model's 40"):
            load_subject(f"hf:{saved}/vit@{tmp_path / 'a.pth'}")

    def test_a_folder_with_a_pickle_that_runs_code(self, saved: Path, tmp_path: Path) -> None:
        class Bomb:
            def __reduce__(self) -> tuple[Any, ...]:
                return (os.system, (f"touch {tmp_path / 'ran'}",))

        (tmp_path / "config.json").write_text((saved / "vit" / "config.json").read_text())
        torch.save({"a": Bomb()}, tmp_path / "pytorch_model.bin")
        with pytest.raises(UnsafeWeights):
            load_subject(f"hf:{tmp_path}")
        assert not (tmp_path / "ran").exists()

    def test_code_beside_the_weights_is_not_run(self, saved: Path, tmp_path: Path) -> None:
        config = json.loads((saved / "vit" / "config.json").read_text())
        config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: pass\n")
        with pytest.raises(SubjectError):
            load_subject(f"hf:{tmp_path}")
        assert not (tmp_path / "ran").exists()

    def test_grey_models_and_empty_folders_are_refused(self, saved: Path, tmp_path: Path) -> None:
        with pytest.raises(SubjectError, match=r"1 channel\(s\)"):
            load_subject(f"hf:{saved}/grey")
        with pytest.raises(SubjectError, match="is not a saved model"):
            load_subject(f"hf:{tmp_path}")
        with pytest.raises(UnknownSubject, match="neither a folder nor"):
            load_subject("hf:vit")

    def test_without_transformers_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(SubjectError, match=r"pip install 'eyechart\[hf\]'"):
            load_subject("hf:google/vit-base-patch16-224")
