"""Pictures in a folder: its first-level subfolders are the classes; a flat folder has no labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from eyechart.errors import ImagesError
from eyechart.files import open_regular
from eyechart.images.arrays import checked_labels
from eyechart.images.source import LARGEST_FILE, Check, EncodedImages, Progress, readable

#: Files that claim to be pictures. The last ones Pillow may not read: they are listed as skipped, not overlooked.
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
                    ".pnm", ".jp2", ".avif", ".heic", ".heif", ".jxl")  # fmt: skip

SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})


class FolderImages(EncodedImages[str]):
    """Entries are paths relative to the folder, with forward slashes, in code-point order on every machine."""

    def __init__(self, folder: Path, *, check: Check = "auto", progress: Progress | None = None) -> None:
        self.folder = folder
        paths = sorted(_picture_files(folder))
        if not paths:
            others = sum(len(files) for _, _, files in os.walk(folder))
            raise ImagesError(
                f"The folder {folder} holds no pictures ({others} other files); expected files ending in "
                ".jpg, .png, .webp, … directly in it or in one subfolder for each class."
            )
        classes = sorted({path.split("/")[0] for path in paths if "/" in path})
        if len(classes) > 1 and SPLITS.issuperset(name.lower() for name in classes):
            raise ImagesError(
                f"The folder {folder} holds the splits {', '.join(classes)}, not classes; "
                f"give one of them, for example {folder / classes[-1]}."
            )
        label_of = {name: label for label, name in enumerate(classes)}
        labels = [label_of.get(path.split("/")[0], -1) if "/" in path else -1 for path in paths]
        super().__init__(
            readable(folder.resolve().name),
            paths,
            labels if classes else None,
            [readable(name) for name in classes] or None,
            check=check,
            progress=progress,
        )

    def stream(self, entry: str) -> BinaryIO:
        return open_regular(self.folder / entry, LARGEST_FILE)  # a link may lead to a device that never ends

    def path_of(self, entry: str) -> str:
        return readable(entry)


class FileImages(EncodedImages[Path]):
    """A single picture file."""

    def __init__(self, path: Path) -> None:
        super().__init__(readable(path.name), [path], None, None)

    def stream(self, entry: Path) -> BinaryIO:
        return open_regular(entry, LARGEST_FILE)

    def path_of(self, entry: Path) -> str:
        return readable(entry.name)


class PathListImages(EncodedImages[Path]):
    """Picture files anywhere, each given by its path."""

    def __init__(
        self, paths: Sequence[Path], labels: Sequence[int] | np.ndarray | None, classes: Sequence[str] | None
    ) -> None:
        missing = [path for path in paths if not path.is_file()]
        if missing:
            raise ImagesError(f"{len(missing)} of {len(paths)} pictures are not there, the first {missing[0]}.")
        numbers, named = checked_labels("the list of paths", len(paths), labels, classes)
        super().__init__("paths", paths, None if numbers is None else numbers.tolist(), named)

    def stream(self, entry: Path) -> BinaryIO:
        return open_regular(entry, LARGEST_FILE)

    def path_of(self, entry: Path) -> str:
        return readable(str(entry))


def _picture_files(folder: Path) -> Iterator[str]:
    seen: set[str] = set()
    for directory, folders, files in os.walk(folder, followlinks=True):
        # Class folders are often links; a link to a folder above would never end.
        if (real := os.path.realpath(directory)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        for name in files:
            if name.lower().endswith(PICTURE_SUFFIXES) and not name.startswith("."):
                yield Path(directory, name).relative_to(folder).as_posix()
