"""Exams of subjects and images that are odd: a finding that is right, or one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import eyechart
from eyechart.errors import NotFinite, UsageError
from tests import cases

PAIR = ("zoo:vit", "zoo:resnet")
CORE = ["recognition", "cka", "attention_distance", "skip_ratio", "feature_variance"]


@pytest.mark.usefixtures("no_charts")
def test_a_model_without_attention_has_no_attention_distance(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="zoo:resnet has no attention"):
        eyechart.exam(["zoo:resnet"], limit=8, measures=["attention_distance"], out=tmp_path / "a")
    both = eyechart.exam(["zoo:resnet"], limit=8, measures=["attention_distance", "recognition"], out=tmp_path / "b")
    assert list(both.findings) == ["recognition"]
    assert "zoo:resnet has no attention" in both.plan["notices"][0]


def pictures(folder: Path, count: int, classes: int = 0) -> Path:
    generator = np.random.default_rng(0)
    for number in range(count):
        place = folder / (f"class-{number % classes}" if classes else "")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (40, 48, 3), np.uint8)).save(place / f"{number:03d}.png")
    return folder


@pytest.mark.usefixtures("no_charts")
def test_pictures_without_labels_leave_out_what_needs_them(tmp_path: Path) -> None:
    run = eyechart.exam(["zoo:resnet"], pictures(tmp_path / "photos", 12), CORE, out=tmp_path / "run")
    assert "recognition" not in run.findings
    assert any("recognition was left out" in notice for notice in run.plan["notices"])


def test_one_picture(tmp_path: Path) -> None:
    run = eyechart.exam(PAIR, pictures(tmp_path / "photos", 1), CORE, out=tmp_path / "run")
    assert "cka" not in run.findings
    assert any("at least 4 images" in notice for notice in run.plan["notices"])
    assert np.isnan(run.findings["attention_distance"].distance_low.values).all()
    assert {verdict.verdict for verdict in run.verdicts} == {"undecided", "not tested"}
    assert (run.path / "report.html").exists()


class Unit(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.conv, self.gain = nn.Conv2d(8, 8, 3, padding=1), gain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x).relu() * self.gain * self.gain


class GoesWrong(nn.Module):
    """Three residual units; the branch of the second one overflows."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.units = nn.ModuleList([Unit(1), Unit(1e38), Unit(1)])
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean((2, 3)))


def test_the_first_site_that_is_not_finite_is_named(tmp_path: Path) -> None:
    subject = eyechart.load_subject(GoesWrong(), input_size=32)
    with pytest.raises(NotFinite, match=r"GoesWrong: .*first at units.1 conv junction"):
        eyechart.exam([subject], limit=8, measures=["cka"], out=tmp_path / "run")


@pytest.mark.usefixtures("no_charts")
def test_a_module_of_one_s_own_beside_a_bundled_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.LazyLinear(4))
    net(torch.zeros(1, 3, 32, 32))
    own = eyechart.load_subject(net, input_size=32)
    run = eyechart.exam(["zoo:vit", own], measures=["cka"], limit=64, out=tmp_path / "run")
    assert set(run.findings["cka"].subject.values) == {"zoo:vit", "Sequential"}
    chart = run.chart("cka").to_dict()
    assert chart["config"]


@pytest.mark.usefixtures("no_charts")
def test_options_are_part_of_the_question(tmp_path: Path) -> None:
    spatial = eyechart.exam(["zoo:vit"], measures=["cka"], options={"cka.readout": "gap"}, limit=64, out=tmp_path / "a")
    whole = eyechart.exam(["zoo:vit"], measures=["cka"], limit=64, out=tmp_path / "b")
    assert spatial.plan["question"] != whole.plan["question"]
    assert float(spatial.findings["cka"].cka[1, 5]) != float(whole.findings["cka"].cka[1, 5])
    with pytest.raises(UsageError, match="takes all, spatial, cls, gap"):
        eyechart.exam(["zoo:vit"], measures=["cka"], options={"cka.readout": "mean"})
    with pytest.raises(UsageError, match="No measure is called 'ckaa'"):
        eyechart.exam(["zoo:vit"], measures=["ckaa"])


@pytest.mark.usefixtures("no_charts")
def test_a_tally_that_does_not_fit_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eyechart.engines import plan

    monkeypatch.setattr(plan, "LARGEST_TALLY", 10_000)
    run = eyechart.exam(PAIR, measures=["recognition", "cka"], limit=64, out=tmp_path / "run")
    assert list(run.findings) == ["recognition"]
    assert "its tally would take" in run.plan["left_out"][0]["reason"]


def test_nothing_is_decided_on_modules_that_may_be_untrained(tmp_path: Path) -> None:
    """C14 held on fresh modules with 0.000 [0.000, 0.000]; also with classes, where their answers are at chance."""
    torch.manual_seed(0)
    classes = eyechart.load_subject("zoo:vit").classes
    assert classes is not None
    subjects = {
        "fresh vit": eyechart.load_subject(cases.vit(num_classes=10), classes=classes, input_size=32),
        "fresh cnn": eyechart.load_subject(cases.resnet(), input_size=32),
    }
    run = eyechart.exam(subjects, measures="recognition,cka,patch_filters", limit=160, out=tmp_path / "run")
    assert {verdict.verdict for verdict in run.verdicts} <= {"undecided", "not tested"}
    said = " ".join(verdict.reason for verdict in run.verdicts)
    assert "whether fresh cnn is trained is not known" in said
    assert "not clearly above chance for the 10 classes of the images" in said or "less than the 80 %" in said
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "training not known" in page


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subjects": 5}, "A subject is a spec such as 'timm:resnet50', a module or a Subject; got 5."),
        ({"subjects": []}, "An exam takes at least one subject, such as 'timm:resnet50' or a module; got none."),
        ({"measures": [3]}, "Measures are asked for by their names, such as ['cka', 'recognition']; got [3]."),
        ({"measures": 3}, "Measures are asked for by their names, such as ['cka', 'recognition']; got 3."),
        ({"limit": "10"}, "limit must be a whole number; got '10'."),
        ({"seed": "a"}, "seed must be a whole number; got 'a'."),
    ],
)
def test_what_is_of_the_wrong_kind_is_told_in_a_sentence(tmp_path: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as told:
        eyechart.exam(**{"subjects": "zoo:vit", "limit": 8, "out": tmp_path, **given})
    assert str(told.value) == sentence
