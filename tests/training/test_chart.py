"""The record of a training, drawn and printed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from eyechart.cli import main
from eyechart.errors import RunFolderError
from eyechart.training.chart import curves, print_training, training_chart
from eyechart.training.loop import train

from .toys import record, toy_run, write_toys


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    train(toy_run(write_toys(folder / "toys.npz", train=64, test=20), folder, evaluate_every=2))
    return folder


def test_the_chart_has_the_numbers_of_the_record(folder: Path) -> None:
    frame = curves(folder / "vit.records.jsonl")
    lines = [line for line in record(folder, "vit") if "epoch" in line]
    drawn = frame[frame["images"] == "training images, augmented"]["value"].tolist()
    assert drawn == [line["augmented_train_nll"] for line in lines]
    scored = frame[(frame["images"] == "test images") & (frame["quantity"] == "calibration error")]
    assert scored["value"].tolist() == [lines[1]["test_ece"]]
    specification = training_chart(folder).to_dict()
    panels = [panel["title"] for panel in specification["concat"]]
    assert panels == ["NLL", "Error", "Calibration error", "Learning rate"]


def test_a_chart_can_be_drawn(folder: Path) -> None:
    import vl_convert

    svg = vl_convert.vegalite_to_svg(training_chart(folder / "vit.records.jsonl").to_dict())
    assert "Learning rate" in svg


def test_the_table_says_where_a_training_stands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_training(folder)
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["training", "epoch"]
    last = record(folder, "vit")[-1]
    assert row.split()[:3] == ["vit", "2/2", "4"]
    assert f"{last['test_error']:.2%} (test)" in row


def test_a_record_cut_short_by_a_kill_is_read_up_to_there(folder: Path, tmp_path: Path) -> None:
    text = (folder / "vit.records.jsonl").read_text()
    (tmp_path / "vit.records.jsonl").write_text(text[:-20])
    assert curves(tmp_path / "vit.records.jsonl")["epoch"].tolist() == [1, 1]
    (tmp_path / "vit.records.jsonl").write_text(text[:30])
    with pytest.raises(RunFolderError, match="no epoch yet"):
        training_chart(tmp_path)
    with pytest.raises(RunFolderError, match="There is no record"):
        training_chart(tmp_path / "nothing")


def show(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["show", *map(str, words)])


def test_show_prints_the_table_and_draws_every_record_beside_itself(folder: Path, tmp_path: Path) -> None:
    text = (folder / "vit.records.jsonl").read_text()
    for name, content in (("vit", text), ("vit-0.5", text), ("begun", text.splitlines()[0])):
        (tmp_path / f"{name}.records.jsonl").write_text(content)
    result = show(tmp_path)
    assert result.exit_code == 0, result.stderr
    table, charts = result.stdout.splitlines()[:-2], result.stdout.splitlines()[-2:]
    assert [line.split()[:2] for line in table[1:]] == [["begun", "0"], ["vit-0.5", "2/2"], ["vit", "2/2"]]
    assert charts == [f"chart: {tmp_path / name}.records.png" for name in ("vit-0.5", "vit")]
    with Image.open(tmp_path / "vit.records.png") as picture:
        assert picture.width > 1000
    assert not (tmp_path / "begun.records.png").exists()


def test_show_of_one_record_and_as_json(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "vit.records.jsonl").write_text((folder / "vit.records.jsonl").read_text())
    shown = json.loads(show(tmp_path / "vit.records.jsonl", "--json").stdout)["trainings"]
    assert [training["name"] for training in shown] == ["vit"]
    assert shown[0]["epochs"] == [line for line in record(folder, "vit") if "epoch" in line]
    assert shown[0]["start"]["images"] == 64
    assert not (tmp_path / "vit.records.png").exists()
    assert show(tmp_path / "vit.records.jsonl").stdout.endswith(f"chart: {tmp_path / 'vit.records.png'}\n")


def test_show_says_what_is_wrong_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    assert "There is no record of a training" in show(tmp_path / "no.records.jsonl").stderr
    assert "is not a run folder: it has no plan.json" in show(tmp_path).stderr
    path = tmp_path / "vit.records.jsonl"
    path.write_text("[1]\n")
    assert "is not a record of a training: every line should be a JSON object." in show(path).stderr
    path.write_bytes(b"\xff\xfe")
    assert "cannot be read" in show(path).stderr
    path.write_text((folder / "vit.records.jsonl").read_text())
    (tmp_path / "vit.records.png").mkdir()
    result = show(path)
    assert result.exit_code == 1
    assert result.stdout.startswith("training")
    assert "vit.records.png cannot be written (Is a directory); copy the record" in result.stderr
    (tmp_path / "plan.json").write_text("{}")  # a run of an exam is shown as one, whatever else lies in its folder
    assert "has run format None" in show(tmp_path).stderr
