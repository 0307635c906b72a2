"""Pictures of a Hugging Face dataset: `hf:NAME[:split]`, or `hf:FOLDER` of one saved with `save_to_disk`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

from eyechart.errors import ImagesError
from eyechart.files import open_regular
from eyechart.hub import without_retries
from eyechart.images.source import LARGEST_FILE, Check, EncodedImages, Progress, number_classes

#: Which split is read when none is named: the first of these that the dataset has.
SPLITS = ("test", "validation", "val", "valid", "train")
LABEL_COLUMNS = ("label", "labels", "fine_label", "cls", "class", "target")


class HuggingFaceImages(EncodedImages[int]):
    """Entries are rows. Files are decoded here, not by `datasets`, so that the same checks apply as everywhere."""

    def __init__(
        self, name: str, split: str | None = None, *, check: Check = "auto", progress: Progress | None = None
    ) -> None:
        try:
            import datasets
        except ImportError:
            raise ImagesError(
                f"hf:{name} needs the package datasets, which is not installed: pip install 'eyechart[hf]'."
            ) from None
        table, self._split = _load(datasets, name, split)
        column = next((key for key, kind in table.features.items() if isinstance(kind, datasets.Image)), None)
        if column is None:
            raise ImagesError(f"hf:{name} has no column of pictures; its columns are {', '.join(table.features)}.")
        labels, classes = _labels(datasets, table, f"hf:{name}")
        self._column = column
        self._table: Any = table.select_columns([column]).cast_column(column, datasets.Image(decode=False))
        super().__init__(f"hf:{name}:{self._split}", range(len(table)), labels, classes, check=check, progress=progress)

    def stream(self, entry: int) -> BinaryIO:
        cell = self._table[entry][self._column]
        if cell is None:
            return io.BytesIO()
        return io.BytesIO(cell["bytes"]) if cell["bytes"] is not None else open_regular(cell["path"], LARGEST_FILE)

    def path_of(self, entry: int) -> str:
        return f"{self._split}[{entry}]"


def _load(datasets: Any, name: str, split: str | None) -> tuple[Any, str]:
    """The table of one split, and the split's name."""
    try:
        if Path(name).is_dir() and any((Path(name) / file).exists() for file in ("state.json", "dataset_dict.json")):
            saved = datasets.load_from_disk(name)
            if not isinstance(saved, dict):
                return saved, split or "all"
            chosen = _choose(name, split, list(saved))
            return saved[chosen], chosen
        with without_retries():
            chosen = _choose(name, split, datasets.get_dataset_split_names(name))
            return datasets.load_dataset(name, split=chosen), chosen
    except ImagesError:
        raise
    except Exception as error:  # hub, network, parquet and configuration errors share no class
        reason = (str(error).strip() or type(error).__name__).split("\n")[0]
        raise ImagesError(
            f"The dataset hf:{name} cannot be loaded ({reason}); check its name and the network, "
            "or give a folder of pictures, an .npz or a dataset saved to disk instead."
        ) from error


def _choose(name: str, split: str | None, held: list[str]) -> str:
    if split is None:
        return next((usual for usual in SPLITS if usual in held), held[0])
    if split.split("[")[0] not in held:  # "test[:500]" is theirs
        raise ImagesError(f"hf:{name} has the splits {', '.join(held)}; got {split!r}.")
    return split


def _labels(datasets: Any, table: Any, name: str) -> tuple[list[int] | None, tuple[str, ...] | None]:
    named = [key for key, kind in table.features.items() if isinstance(kind, datasets.ClassLabel)]
    plain = [key for key in LABEL_COLUMNS if isinstance(table.features.get(key), datasets.Value)]
    column = next((key for key in LABEL_COLUMNS if key in named), next(iter(named + plain), None))
    if column is None:
        return None, None
    values: list[Any] = table.select_columns([column])[:][column]
    if column in named:
        return [-1 if value is None else value for value in values], tuple(table.features[column].names)
    if any(isinstance(value, float) for value in values):
        return None, None
    numbered = number_classes(values, name)
    return numbered if numbered is not None else (None, None)
