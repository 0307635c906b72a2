"""The record of a training, drawn and printed."""

from pathlib import Path

import pytest

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
