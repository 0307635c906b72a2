"""Exams from the command line: what is left out, skipped, interrupted or done already is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from eyechart.engines.plan import reasons
from eyechart.errors import DoesNotApply
from eyechart.measure import SampledExperiment
from eyechart.measures import measures
from eyechart.zoo import CARD_KEYS
from tests.measures.staging import anatomy, scene, site
from tests.test_cli import call


@pytest.mark.usefixtures("no_charts")
def test_a_finished_exam_says_that_nothing_was_left_and_which_gate_was_not_asked(tmp_path: Path) -> None:
    words: list[str | Path] = [
        "exam",
        "zoo:vit",
        "--limit",
        "128",  # the fewest that a claim is decided on
        "--measures",
        "attention_distance,",
        "--out",
        tmp_path / "run",
    ]
    first, again = call(*words), call(*words)
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert "left: images " in first.stderr
    assert "Nothing to do" not in first.stderr
    assert "left: images " not in again.stderr
    assert f"Nothing to do: {tmp_path / 'run'} already holds this exam" in again.stderr
    assert first.stdout == again.stdout
    (tmp_path / "run" / "summary.csv").unlink()
    assert "Nothing to do" not in call(*words).stderr
    assert (tmp_path / "run" / "summary.csv").exists()
    (tmp_path / "run" / "verdicts.json").write_text("[")
    repaired = call(*words)
    assert f"{tmp_path / 'run' / 'verdicts.json'} is damaged or foreign" in repaired.stderr
    assert repaired.stdout == first.stdout
    (tmp_path / "run" / "verdicts.json").unlink()
    assert call(*words).stdout == first.stdout
    assert (
        "Decided without a check of accuracy: the accuracy of zoo:vit on these images is not known "
        "(recognition was not among the measures)."
    ) in " ".join(first.stdout.split())


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(9):
        folder = tmp_path / "photos" / ("left" if number % 2 else "right")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (number * 20, 0, 0)).save(folder / f"{number}.png")
    return tmp_path / "photos"


def test_what_is_left_out_is_named_once_for_each_reason(photos: Path, tmp_path: Path) -> None:
    words: list[str | Path] = ["exam", "zoo:resnet", "--images", photos, "--out", tmp_path / "run", "--measures"]
    nothing = call(*words, "calibration,attention_distance,attention_maps")
    assert nothing.exit_code == 2
    said = nothing.stderr.splitlines()[-1]
    assert said.startswith("eyechart: Nothing is left to measure. calibration was left out: no subject's classes")
    assert "--classes MAP.json" in said
    assert "left, right" in said
    part = call(*words, "skip_ratio", "--limit", "20")
    notes = " ".join(part.stderr.split())
    assert "note: A claim needs at least 128 images to be decided; with 9 the numbers are shown" in notes
    assert "note: --limit 20 is more than there are (9 images): all were used." in notes
    assert "left, right. Use --classes MAP.json to say which class is which." in notes
    why = [("probes", "no labels."), ("cka", "one image."), ("few_shot", "no labels.")]
    plan = {"left_out": [{"measure": measure, "reason": reason} for measure, reason in why]}
    assert reasons(plan) == ["probes, few_shot were left out: no labels.", "cka was left out: one image."]


def test_measures_that_take_too_long_are_one_sentence() -> None:
    """Ten of a large subject filled a screen of the page. `sized` says it in the words that are looked for."""
    heavy = scene(replace(anatomy("heavy", [site("heavy")]), flops=10**15), images=256)
    found = {}
    for name in ("token_place", "skip_removal", "shift"):
        measure = measures()[name]
        assert isinstance(measure, SampledExperiment)
        with pytest.raises(DoesNotApply) as refusal:
            measure.sized("quick", heavy)
        found[name] = str(refusal.value)
    plan = {"left_out": [{"measure": name, "reason": reason} for name, reason in found.items()]}
    assert reasons(plan) == [
        "token_place (64), skip_removal (80), shift (64) were left out: as many images as they need (in brackets) take "
        "longer than --effort quick allows for the largest subject; --measures NAME runs them."
    ]
    plan["left_out"] = plan["left_out"][:1]
    assert reasons(plan) == [f"token_place was left out: {found['token_place']}"]


def test_classes_by_index_or_name(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text('{"left": 3, "right": "dog"}')
    words: list[str | Path] = ["--images", photos, "--measures", "recognition", "--out", tmp_path / "run"]
    assert call("exam", "zoo:resnet", *words, "--classes", tmp_path / "map.json").exit_code == 0
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["subjects"][0]["labels"]["indices"] == [3, 5]
    (tmp_path / "map.json").write_text('{"left": "kat", "right": "dog"}')
    wrong = call("exam", "zoo:resnet", *words, "--classes", tmp_path / "map.json", "--overwrite")
    assert (
        "The class 'left' of the images is mapped to 'kat', but zoo:resnet has no such class; did you" in wrong.stderr
    )
    (tmp_path / "map.json").write_text('{"lefft": "cat"}')
    wrong = call("exam", "zoo:resnet", *words, "--classes", tmp_path / "map.json", "--overwrite")
    assert "--classes maps 'lefft', which is no class of the images; did you mean 'left'?" in wrong.stderr


def test_commands_that_are_suggested_can_be_typed(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my runs"
    words: list[str | Path] = ["exam", "a=zoo:resnet", "--images", photos, "--measures", "skip_ratio", "--out", folder]
    assert f"numbers: eyechart show '{folder}'" in call(*words).stdout
    (folder / "vit.safetensors").write_bytes(b"")
    card = dict.fromkeys(CARD_KEYS, "") | {"name": "mine", "model": "vit"}
    (folder / "vit.json").write_text(json.dumps(card))
    assert f"write 'zoo:vit@{folder}/vit.safetensors'." in call("exam", folder / "vit.safetensors").stderr
    assert "write timm:NAME@none.pth, or zoo:NAME@" in call("exam", "none.pth").stderr


def test_skipped_files_are_listed_and_end_with_3(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(9):
        Image.new("RGB", (40, 40), (number * 20, 0, 0)).save(photos / f"{number}.png")
    (photos / "text.jpg").write_text("not a picture")
    Image.new("RGB", (1, 1)).save(photos / "dot.png")
    result = call("exam", "zoo:resnet", "--images", photos, "--measures", "feature_variance", "--out", tmp_path / "run")
    assert result.exit_code == 3
    assert "text.jpg" in result.stderr
    assert "dot.png" in result.stderr
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert {Path(problem["path"]).name for problem in plan["images"]["problems"]} == {"text.jpg", "dot.png"}
    assert plan["images"]["used"] == 9


def test_an_interruption_says_that_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("eyechart.engines.shard.examine_shard", interrupt)
    result = call("exam", "zoo:resnet", "--limit", "8", "--measures", "recognition", "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert "run the same command again to continue" in result.stderr


def test_a_dry_run_says_what_it_would_cost_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["exam", "zoo:resnet", "--limit", "64", "--measures", "recognition,skip_ratio,shift", "--effort", "quick"]
    result = call(*words, "--dry-run", "--out", out)
    assert result.exit_code == 0, result.stderr
    rows = {line.split("  ")[0]: line.split() for line in result.stdout.splitlines()}
    assert rows["shift"][1] == rows["skip_ratio"][1] == "64"
    assert rows["in all"][-1] == "MB"
    assert "Estimated from passes of" in result.stdout
    assert not out.exists()
