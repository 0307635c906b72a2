"""Short labels in place of paths: how they are made, and that nothing that was read off names is lost by them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import xarray
from torch import nn

import eyechart
from eyechart import zoo
from eyechart.errors import UsageError
from eyechart.methods.twins import pair_of, untrained_twin
from eyechart.scene import Scene
from eyechart.subjects.catalogue import parse_spec
from eyechart.subjects.labels import match_classes
from eyechart.subjects.load import load_subject, load_subjects
from eyechart.subjects.naming import short_names, split_label
from tests.methods.test_twins import vit


@pytest.mark.parametrize(
    ("specs", "labels"),
    [
        (["zoo:vit", "zoo:vit@warmup", "timm:resnet18@random"], ["zoo:vit", "zoo:vit@warmup", "timm:resnet18@random"]),
        (["timm:vit_small_patch16_224@a/b/c.safetensors"], ["vit_small_patch16_224"]),
        (["timm:resnet18:96px@a.pth", "timm:resnet18@a.pth"], ["resnet18:96px", "resnet18"]),
        (["timm:resnet18@a/best.pth", "timm:resnet18@a/last.pth"], ["resnet18@best", "resnet18@last"]),
        (["timm:resnet18@a/resnet18_a.pth", "timm:resnet18@a/resnet18-b.pth"], ["resnet18@a", "resnet18@b"]),
        ([f"timm:resnet18@{end}{'x' * 60}.pth" for end in "ab"], ["resnet18", "resnet18#2"]),
        (["timm:resnet18@a/x.pth", "timm:resnet18@b/x.pth"], ["resnet18@a", "resnet18@b"]),
        (["timm:resnet18@x.pth", "timm:resnet18@x.pt"], ["resnet18", "resnet18#2"]),
        (["zoo:vit", "zoo:vit@mine/vit.safetensors"], ["zoo:vit", "vit@mine"]),
        (["zoo:vit@a/vit.init.safetensors", "zoo:vit@a/vit.safetensors"], ["vit@init", "vit"]),
    ],
)
def test_labels_are_short_and_tell_apart(specs: list[str], labels: list[str]) -> None:
    assert short_names([parse_spec(spec) for spec in specs]) == labels


def test_a_label_stands_before_an_equals_sign() -> None:
    assert split_label("my vit=zoo:vit") == ("my vit", "zoo:vit")
    assert split_label("hf:org/name=1") == (None, "hf:org/name=1")
    for wrong in ("=zoo:vit", "a|b=zoo:vit", "mine=", f"{'x' * 61}=zoo:vit"):
        with pytest.raises(UsageError):
            split_label(wrong)


def test_labels_in_python() -> None:
    given = load_subject(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 10)), input_size=8)
    subjects = load_subjects({"one": "zoo:vit@random", "two": given})
    assert [(subject.name, subject.spec) for subject in subjects] == [
        ("one", "zoo:vit@random"),
        ("two", "module:Sequential"),
    ]
    assert given.name == "Sequential"  # the caller's own stays as it was
    with pytest.raises(UsageError, match="Two subjects are called a"):
        load_subjects(["a=zoo:vit@random", "a=zoo:resnet@random"])
    with pytest.raises(UsageError, match="is a text"):
        load_subjects({1: "zoo:vit"})  # type: ignore[dict-item]


def test_what_was_read_off_names_is_read_off_specs() -> None:
    subjects = (vit("mine"), vit("floor"), vit("early"))
    specs = {
        "mine": "zoo:vit@x/vit.safetensors",
        "floor": "zoo:vit@random",
        "early": "zoo:vit@x/vit.warmup.safetensors",
    }
    scene = Scene(subjects, 64, 16, 4, 16, None, trained={"floor": False}, specs=specs)
    early = pair_of(scene, "mine", "early")
    assert early is not None
    assert (early.one, early.other, early.relation) == ("early", "mine", "snapshot")
    estimate = xarray.Dataset(coords={"subject": list(specs)}, attrs={"specs": json.dumps(specs)})
    assert untrained_twin(estimate, "mine") == "floor"
    assert untrained_twin(estimate, "floor") is None


def test_a_model_without_a_classifier_says_so() -> None:
    features = load_subject("timm:resnet10t@random")
    features.classifier = False
    assert match_classes(["cat"], features).reason == "timm:resnet10t@random has no classifier."


def trunk(*end: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), *end)


class Tokens(nn.Module):
    """A ViT in small: patches as tokens, a block, their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mlp = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(images).flatten(2).mT
        return (tokens + self.mlp(tokens)).mean(1)


def test_features_of_a_module_are_not_taken_for_classes() -> None:
    """The strongest of eight features was scored as if it were an answer."""
    averaged = nn.Sequential(nn.Conv2d(3, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())  # as SqueezeNet ends
    for classifier in (trunk(nn.Linear(8, 8)), trunk(nn.Linear(8, 5)), averaged):
        assert load_subject(classifier, input_size=8).classifier
    flat = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten())
    for features in (trunk(), trunk(nn.BatchNorm1d(8)), flat, Tokens()):
        subject = load_subject(features, input_size=8)
        assert not subject.classifier
        assert match_classes(["cat"], subject).reason == f"{subject.name} has no classifier."
    eight = [f"class {letter}" for letter in "abcdefgh"]
    assert load_subject(trunk(), input_size=8, classes=eight).classifier  # who gives its classes knows


def test_a_module_is_told_what_it_is() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 2))
    told = load_subject(net, input_size=8, classes=["cat", "dog"], trained=False, label="net")
    assert (told.name, told.classes, told.trained, told.spec) == (
        "net",
        ("cat", "dog"),
        False,
        "module:Sequential@random",
    )
    assert load_subject(net, input_size=8).trained is None
    with pytest.raises(UsageError, match="net has 2 outputs, but 3 classes were given"):
        load_subject(net, input_size=8, classes=["a", "b", "c"], label="net")
    with pytest.raises(UsageError, match="a module cannot"):
        load_subject("zoo:vit", trained=True)


def test_no_path_is_read_on_the_page_but_in_its_provenance(tmp_path: Path) -> None:
    folder = tmp_path / "a rather long folder"
    folder.mkdir()
    weights = zoo.weights("vit")
    assert weights is not None
    shutil.copy(weights, folder / "mine.safetensors")
    specs = [f"zoo:vit@{folder}/mine.safetensors", "floor=zoo:vit@random"]
    run = eyechart.exam(specs, measures="localisation", limit=64, out=tmp_path / "run")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    before, provenance = page.split('<section id="provenance">')
    assert "rather long" not in before
    assert f"zoo:vit@{folder}/mine.safetensors" in provenance
    assert list(run.scene.subjects) == ["vit", "floor"]
    rows = [row for row in run.quantities() if row["quantity"] == "hit_rate_over_untrained"]
    assert [row["subjects"] for row in rows] == ["vit | floor"]
    assert "rather long" not in (run.path / "verdicts.json").read_text(encoding="utf-8")
