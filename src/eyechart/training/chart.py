"""A training's record for people: its curves as a chart, its last numbers as a table. No torch here.

`path` is a record (NAME.records.jsonl) or a folder of them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.errors import RunFolderError
from eyechart.files import json_of

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

SUFFIX = ".records.jsonl"
CURVES = {
    "augmented_train_nll": ("NLL", "training images, augmented"),
    "clean_train_nll": ("NLL", "training images, clean"),
    "validation_nll": ("NLL", "validation images"),
    "test_nll": ("NLL", "test images"),
    "clean_train_error": ("error", "training images, clean"),
    "validation_error": ("error", "validation images"),
    "test_error": ("error", "test images"),
    "validation_ece": ("calibration error", "validation images"),
    "test_ece": ("calibration error", "test images"),
    "learning_rate": ("learning rate", "every image set"),
}
IMAGE_SETS = ("training images, augmented", "training images, clean", "validation images", "test images")


def is_training(path: str | Path) -> bool:
    """Whether `eyechart show` was pointed at a training: a record, or a folder of records that is no run of an exam."""
    path = Path(path)
    if path.is_dir():
        return not (path / "plan.json").exists() and any(path.glob(f"*{SUFFIX}"))
    return path.name.endswith(SUFFIX)


def record_files(path: str | Path) -> list[Path]:
    """The records at a path; one sentence if there are none."""
    path = Path(path)
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise RunFolderError(f"There is no record of a training at {path}: expected a file or folder of *{SUFFIX}.")
    return files


def read_record(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """What the training was, its epochs, and its notices. A last line that a kill cut short is left out."""
    start: dict[str, Any] = {}
    epochs: list[dict[str, Any]] = []
    notices: list[str] = []
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(f"The record {path} cannot be read ({error}).") from error
    for text in texts:
        try:
            line = json_of(text)
        except ValueError:
            break
        if not isinstance(line, dict):
            raise RunFolderError(f"{path} is not a record of a training: every line should be a JSON object.")
        if "start" in line:
            start = line
        elif "epoch" in line:
            epochs.append(line)
        elif "notice" in line:
            notices.append(line["notice"])
    return start, epochs, notices


def curves(path: Path) -> pd.DataFrame:
    """One row a number: epoch, quantity, images, value, in the order of CURVES."""
    import pandas as pd

    _, epochs, _ = read_record(path)
    rows = [
        {"epoch": line["epoch"], "quantity": quantity, "images": images, "value": line[key]}
        for key, (quantity, images) in CURVES.items()
        for line in epochs
        if key in line
    ]
    if not rows:
        raise RunFolderError(f"{path} has no epoch yet, so there is nothing to draw.")
    return pd.DataFrame(rows)


def training_chart(path: str | Path) -> alt.ConcatChart:
    """NLL, error, calibration error and learning rate over the epochs of one training, a panel each."""
    import altair as alt

    from eyechart.charts.tables import tooltips
    from eyechart.charts.theme import SUBJECT_COLOURS, panels

    record = record_files(path)[0]
    frame = curves(record)
    colours = {name: SUBJECT_COLOURS[index] for index, name in enumerate(IMAGE_SETS) if name in set(frame["images"])}
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    span = alt.Scale(domain=[0, int(frame["epoch"].max())], nice=False)
    charts = []
    for quantity in dict.fromkeys(frame["quantity"]):
        part = frame[frame["quantity"] == quantity]
        percent = quantity in ("error", "calibration error")
        axis = alt.Axis(format="%" if percent else "~g")
        tooltip = tooltips("epoch:Q", "images", value=(quantity, ".2%" if percent else ".4g"))
        line = alt.Chart(part).mark_line(point=len(part) <= 40)
        chart = line.encode(
            alt.X("epoch:Q", title="epoch", scale=span),
            alt.Y("value:Q", title=quantity, axis=axis, scale=alt.Scale(zero=quantity == "learning rate")),
            tooltip=tooltip,
        )
        if quantity != "learning rate":
            chart = chart.encode(color=alt.Color("images:N", title=None, scale=scale))
        charts.append(chart.properties(width=280, height=200, title=f"{quantity[0].upper()}{quantity[1:]}"))
    joined = panels(charts, columns=2)
    return joined.properties(title=record.name.removesuffix(SUFFIX))


def save_training_charts(path: str | Path) -> list[Path]:
    """Draw every record that has an epoch beside itself, as NAME.records.png."""
    from eyechart.charts import theme
    from eyechart.charts.export import picture_of, specification
    from eyechart.files import write_atomically

    drawn = []
    for record in record_files(path):
        if read_record(record)[1]:
            chart = specification(theme.dress(training_chart(record)))
            picture = picture_of(chart)
            target = record.with_suffix(".png")
            try:
                drawn.append(write_atomically(target, partial(Path.write_bytes, data=picture)))
            except RunFolderError as error:
                reason = getattr(error.__cause__, "strerror", None) or error.__cause__
                raise RunFolderError(
                    f"The chart {target} cannot be written ({reason}); copy the record elsewhere and show it there."
                ) from error
    return drawn


def trainings_as_json(path: str | Path) -> list[dict[str, Any]]:
    """Every record at a path: what the training was, its epochs, and what it had to say."""
    trainings = []
    for record in record_files(path):
        start, epochs, notices = read_record(record)
        trainings.append(
            {"name": record.name.removesuffix(SUFFIX), "start": start, "epochs": epochs, "notices": notices}
        )
    return trainings


def print_training(path: str | Path) -> None:
    """One row a training: where it stands and its last scores; then what it had to say."""
    from eyechart.terminal import escape, show, table

    rows = table("training", "epoch", "steps", "train NLL", "clean NLL", "error", "NLL", "ECE", "rate", "time")
    said: list[str] = []
    for file in record_files(path):
        start, epochs, notices = read_record(file)
        name = file.name.removesuffix(SUFFIX)
        said += [f"{name}: {notice}" for notice in notices]
        if not epochs:
            rows.add_row(escape(name), "0")
            continue
        last = epochs[-1]
        scored: dict[str, Any] = next((line for line in reversed(epochs) if "clean_train_nll" in line), {})
        part = "validation" if "validation_nll" in scored else "test"
        planned = start.get("recipe", {}).get("epochs", "?")
        rows.add_row(
            escape(name),
            f"{last['epoch']}/{planned}",
            f"{last['steps']:,}",
            f"{last['augmented_train_nll']:.4f}",
            *(f"{scored[key]:.4f}" if key in scored else "–" for key in ("clean_train_nll",)),
            f"{scored[f'{part}_error']:.2%} ({part})" if scored else "–",
            *(f"{scored[f'{part}_{key}']:.4f}" if scored else "–" for key in ("nll", "ece")),
            f"{last['learning_rate']:.1e}",
            f"{last['elapsed']:,.0f} s",
        )
    show(rows)
    for sentence in said:
        show(f"note: {escape(sentence)}")
