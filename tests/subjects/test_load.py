"""From what a person types, or a module, to a subject that can be called; and every refusal in a sentence."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from eyechart.errors import SubjectError, UnknownSubject, UsageError
from eyechart.subjects import catalogue
from eyechart.subjects.catalogue import Spec, available, parse_spec
from eyechart.subjects.load import load_subject, load_subjects
from eyechart.subjects.subject import Subject
from tests.cases import inside

FIVE = ("tench", "goldfish", "great white shark", "tiger shark", "hammerhead")


def look(subject: Subject) -> Tensor | None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8))
    with torch.no_grad():
        return subject.logits(subject.call(subject.prepare([picture, picture])))


class Net(nn.Module):
    """A module whose output can be wrapped in any way."""

    def __init__(self, wrap: Callable[[Tensor], Any] = lambda logits: logits) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 4)
        self.wrap = wrap

    def forward(self, images: Tensor) -> Any:
        return self.wrap(self.conv(images).mean((2, 3)))


class TestSpecs:
    def test_parts(self) -> None:
        assert parse_spec("zoo:vit@warmup") == Spec("zoo", "vit", "warmup")
        assert parse_spec("timm:vit_base_patch16_224.mae@a@b.pth") == Spec(
            "timm", "vit_base_patch16_224.mae", "a@b.pth"
        )
        assert parse_spec("hf:google/vit-base-patch16-224") == Spec("hf", "google/vit-base-patch16-224", None)

    def test_a_bare_name_is_the_zoos_first_then_timms(self) -> None:
        assert parse_spec("resnet@random") == Spec("zoo", "resnet", "random")
        assert parse_spec("resnet18@random") == Spec("timm", "resnet18", "random")

    def test_a_folder_may_have_an_at_in_its_name(self, tmp_path: Path) -> None:
        (tmp_path / "me@home").mkdir()
        assert parse_spec(f"hf:{tmp_path}/me@home").weights is None

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("timm:", "names no model"),
            ("timm:resnet18@", "Nothing follows the @"),
            ("folder/weights.pth", "timm:NAME@folder/weights.pth"),
        ],
    )
    def test_malformed_ones_are_usage_errors(self, text: str, says: str) -> None:
        with pytest.raises(UsageError, match=says):
            load_subject(text)

    @pytest.mark.parametrize(
        ("text", "near"),
        [
            ("timm:vit_base_patch16_244", "timm:vit_base_patch16_224"),
            ("torchvision:resnet-50", "torchvision:resnet50"),
            ("zoo:resnett", "zoo:resnet"),
            ("swin_tiny_patch4_window_224", "timm:swin_tiny_patch4_window7_224"),
            ("tim:resnet18", "timm:resnet18"),
            ("torchvision:convnext_tinny@random", "torchvision:convnext_tiny"),
            ("timm:vit_tiny_patch16_224.augreg_in1k", "augreg_in21k_ft_in1k"),
            ("torchvision:resnet18.IMAGENET1K_V9@random", "IMAGENET1K_V1"),
        ],
    )
    def test_a_misspelt_name_suggests_near_ones(self, text: str, near: str) -> None:
        with pytest.raises(UnknownSubject, match=near.replace(".", r"\.")):
            load_subject(text)

    def test_detection_and_video_models_of_torchvision_are_not_offered(self) -> None:
        offered = catalogue.names("torchvision")
        assert "resnet50" in offered
        assert not {"fasterrcnn_resnet50_fpn", "fcn_resnet50", "r3d_18", "raft_small"} & set(offered)


class TestRandom:
    @pytest.mark.parametrize("spec", ["timm:test_vit@random", "torchvision:squeezenet1_1@random", "zoo:vit@random"])
    def test_is_reproducible_untrained_and_leaves_the_random_state_alone(self, spec: str) -> None:
        torch.manual_seed(1)
        expected = torch.rand(3)
        torch.manual_seed(1)
        first = load_subject(spec)
        assert torch.equal(torch.rand(3), expected)
        second = load_subject(spec)
        assert first.weights_hash == second.weights_hash
        assert first.name == spec
        assert not first.trained
        assert not first.module.training
        assert first.parameters == sum(p.numel() for p in second.module.parameters())
        logits = look(first)
        assert logits is not None
        assert logits.isfinite().all()
        json.dumps(first.card)

    def test_imagenet_classes_by_logit_index(self) -> None:
        ours, theirs = (
            load_subject("timm:test_vit@random").classes,
            load_subject("torchvision:squeezenet1_1@random").classes,
        )
        assert ours is not None
        assert theirs is not None
        assert (len(ours), ours[281], theirs[281]) == (1000, "tabby, tabby cat", "tabby")

    def test_a_timm_model_without_a_classifier_has_no_logits(self) -> None:
        subject = load_subject("timm:vit_small_patch14_reg4_dinov2@random")
        assert not subject.classifier
        assert subject.classes is None
        assert subject.logits(torch.zeros(2, 384)) is None

    def test_a_bare_name_gets_its_full_one(self) -> None:
        assert load_subject("test_vit@random").name == "timm:test_vit@random"


class TestZoo:
    def test_weights_card_and_snapshots(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from eyechart import zoo

        files: dict[str | None, Path] = {}
        for seed, snapshot in enumerate([None, "warmup"]):
            torch.manual_seed(seed)
            files[snapshot] = tmp_path / f"{snapshot}.pth"
            torch.save(zoo.build("vit").half().state_dict(), files[snapshot])
        classes = [f"class {n}" for n in range(10)]
        facts = {"input_size": 32, "mean": [0.4] * 3, "std": [0.2] * 3, "classes": classes}
        monkeypatch.setattr(zoo, "card", lambda name: facts)
        monkeypatch.setattr(zoo, "weights", lambda name, snapshot=None: files.get(snapshot))
        final, early = load_subjects(["zoo:vit", "zoo:vit@warmup"])
        assert final.weights_hash != early.weights_hash
        assert torch.equal(early.module.state_dict()["head.weight"], torch.load(files["warmup"])["head.weight"].float())
        assert final.trained
        assert final.classes == tuple(classes)
        assert final.input_size == (32, 32)
        black = final.prepare([Image.new("RGB", (32, 32))])
        torch.testing.assert_close(black, torch.full((1, 3, 32, 32), -2.0))
        with pytest.raises(SubjectError, match="no snapshot called 'late'"):
            load_subject("zoo:vit@late")

    def test_a_plain_vit_is_loaded_without_timm_and_without_network(self) -> None:
        """Importing timm takes many times as long as loading the model; benchmarks/loading.py says how long."""
        script = (
            "import socket, sys; socket.socket.connect = None; from eyechart.subjects.load import load_subject;"
            "load_subject('zoo:vit'); load_subject('zoo:vit-gap'); load_subject('zoo:vit@warmup');"
            "heavy = {'timm', 'torchvision', 'transformers', 'sympy', 'torch._dynamo'};"
            "assert not heavy & set(sys.modules), 'heavy import'"
        )
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_without_bundled_weights_it_says_what_can_be_had(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from eyechart import zoo

        monkeypatch.setattr(zoo, "weights", lambda name, snapshot=None: None)
        with pytest.raises(SubjectError, match="zoo:vit@random or zoo:vit@PATH"):
            load_subject("zoo:vit")


class TestModules:
    @pytest.mark.parametrize(
        "wrap",
        [
            lambda logits: logits,
            lambda logits: (logits[:, :, None], logits, logits * 2),
            lambda logits: [logits, logits * 2],
            lambda logits: {"features": logits[:, :3], "logits": logits},
            lambda logits: {"out": logits, "map": logits[:, :, None, None]},
        ],
    )
    def test_logits_are_found(self, wrap: Callable[[Tensor], Any]) -> None:
        subject = load_subject(Net(wrap), input_size=16)
        images = torch.rand(2, 3, 16, 16)
        expected = inside(subject.module).conv(images).mean((2, 3))
        logits = subject.logits(subject.call(images))
        assert logits is not None
        assert torch.equal(logits, expected)

    @pytest.mark.parametrize(
        "wrap", [lambda logits: logits[:, :, None], lambda logits: {"one": logits, "two": logits}, lambda logits: None]
    )
    def test_no_logits_are_made_up(self, wrap: Callable[[Tensor], Any]) -> None:
        subject = load_subject(Net(wrap), input_size=16)
        assert not subject.classifier
        assert look(subject) is None

    def test_class_names_of_the_module_are_used_if_their_number_is_right(self) -> None:
        module = inside(Net())
        module.classes = FIVE
        assert load_subject(module, input_size=16).classes == FIVE
        module.classes = FIVE[:4]
        assert load_subject(module, input_size=16).classes is None

    def test_names(self) -> None:
        one, two, three = Net(), Net(), Net()
        subjects = load_subjects([one, "zoo:vit@random", two, (three, None)])
        assert [subject.name for subject in subjects] == ["Net", "zoo:vit@random", "Net#2", "Net#3"]
        assert load_subject(one, label="mine").name == "mine"
        made = [load_subject(one, input_size=16), load_subject(two, input_size=16, classes=FIVE)]
        assert [subject.name for subject in load_subjects(made)] == ["Net", "Net#2"]  # "give one of them another label"
        assert made[1].name == "Net"
        with pytest.raises(UsageError, match="Two subjects are called mine"):
            load_subjects([replace(one, name="mine") for one in made])

    @pytest.mark.parametrize("pair", [["zoo:vit@random", "zoo:vit@random"], ["vit@random", "zoo:vit@random"]])
    def test_the_same_subject_twice_is_refused(self, pair: list[Any]) -> None:
        with pytest.raises(UsageError, match="zoo:vit@random is given twice; drop one"):
            load_subjects(pair)

    def test_the_same_module_or_subject_twice_is_refused(self) -> None:
        module = Net()
        with pytest.raises(UsageError, match="Net is given twice; drop one"):
            load_subjects([module, module])
        subject = load_subject(module)
        with pytest.raises(UsageError, match="given twice"):
            load_subjects([subject, subject])

    def test_compiled_and_parallel_modules_are_unwrapped(self) -> None:
        module = Net()
        assert load_subject(cast(nn.Module, torch.compile(module)), input_size=16).module is module
        assert load_subject(nn.DataParallel(module), input_size=16).module is module

    def test_parts_compiled_in_place_run_eagerly(self) -> None:
        calls: list[int] = []

        def backend(graph: Any, inputs: Any) -> Any:
            calls.append(1)
            return graph.forward

        module = inside(Net())
        module.conv = torch.compile(module.conv, backend=backend)
        subject = load_subject(module, input_size=16)
        assert look(subject) is not None
        assert not calls
        module(torch.zeros(1, 3, 16, 16))
        assert calls  # outside of an exam it is still compiled

    def test_scripted_modules_are_refused(self) -> None:
        with pytest.raises(SubjectError, match="scripted or traced"):
            load_subject(torch.jit.script(nn.Conv2d(3, 4, 3)))
        with pytest.raises(SubjectError, match="its part 0 is a scripted"):
            load_subject(nn.Sequential(torch.jit.trace(nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 8)), nn.ReLU()))

    def test_other_refusals(self) -> None:
        with pytest.raises(SubjectError, match="float16 weights"):
            load_subject(Net().half())
        with pytest.raises(SubjectError, match="lazy layers"):
            load_subject(nn.LazyConv2d(4, 3))
        broken = Net()
        broken.get_parameter("conv.bias").data[1] = float("nan")
        with pytest.raises(SubjectError, match=r"conv\.bias is the first tensor"):
            load_subject(broken)
        with pytest.raises(UsageError, match="a module or a Subject; got 3"):
            load_subject(3)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="its own preprocessing"):
            load_subject("zoo:vit@random", transform=lambda picture: picture)

    def test_a_ready_subject_and_moves(self) -> None:
        subject = load_subject(Net(), input_size=16)
        assert load_subject(subject) is subject
        assert subject.to("meta").device == torch.device("meta")
        assert subject.call(torch.zeros(1, 3, 16, 16)).device == torch.device("meta")


class TestListing:
    def test_the_zoo_is_listed_with_cards_and_others_by_pattern(self) -> None:
        rows = available()
        assert {"zoo:vit", "zoo:resnet"} <= {row["spec"] for row in rows}
        assert all(row["source"] == "zoo" and isinstance(row["card"], dict) for row in rows)
        found = {row["spec"] for row in available("swin_tiny*")}
        assert "timm:swin_tiny_patch4_window7_224" in found
        assert not [spec for spec in found if "swin_tiny" not in spec]
        assert "torchvision:swin_t" in {row["spec"] for row in available("swin_t")}
        assert catalogue.counts()["timm"] > 1000

    def test_importing_and_listing_need_no_torch(self) -> None:
        script = (
            "import sys, eyechart.subjects as s; s.available(); s.parse_spec('zoo:vit@random'); s.match_classes;"
            "assert not {'torch', 'timm', 'torchvision', 'transformers'} & set(sys.modules), 'heavy import'"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
