"""Images: where pictures come from, and the plan that cuts them into blocks, shards and folds.

| source | what |
|---|---|
| `photos/` | a folder; first-level subfolders are classes, a flat folder has no labels |
| `cat.jpg` | one picture |
| `cifar10.npz`, `cifar10.npz:train` | uint8 arrays: `x_test`/`y_test`, `x`/`y`, `images`/`labels`, … (`arrays.py`) |
| `hf:NAME[:split]` | a Hugging Face dataset, or one saved to disk |
| `shards/`, `train-{000..009}.tar` | webdataset tar shards |
| `sample`, `sample:train` | the bundled CIFAR-10 pictures |
| an array, a tensor, a list of PIL pictures or of paths, `(pictures, labels)` | what is already in memory |
| a torch `Dataset` or `DataLoader` | what it holds, with its labels and class names (`torch_data.py`) |

What cannot be read is skipped and listed in `problems`, never silently.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from eyechart.errors import ImagesError, UsageError
from eyechart.images.arrays import ArrayImages, PictureListImages, open_npz
from eyechart.images.folder import PICTURE_SUFFIXES, FileImages, FolderImages, PathListImages
from eyechart.images.hugging_face import HuggingFaceImages
from eyechart.images.loader import iterate
from eyechart.images.picture import common_crop
from eyechart.images.plan import BatchPlan, plan_batches
from eyechart.images.sample import open_sample
from eyechart.images.source import Check, Images, Problem, Progress
from eyechart.images.tar import TarImages, expand
from eyechart.images.torch_data import open_torch, pixels_of

__all__ = ["BatchPlan", "Images", "Problem", "common_crop", "iterate", "open_images", "plan_batches"]


def open_images(
    source: Any,
    *,
    labels: Sequence[int] | np.ndarray | None = None,
    classes: Sequence[str] | None = None,
    check: Check = "auto",
    progress: Progress | None = None,
) -> Images:
    """Pictures from any of the sources above. `labels` and `classes` go with what is in memory.

    A tensor is RGB, (image, 3, y, x), with values from 0 to 1 or uint8; an array is uint8, (image, y, x, 3). Items of a
    dataset are pictures (PIL, tensor, array) or (picture, label), not normalised and not augmented: every subject
    resizes and normalises by itself. What is something else is refused with a sentence.

    >>> sample = open_images("sample")
    >>> len(sample), sample.classes[:3], sample.picture(0).size
    (1000, ('airplane', 'automobile', 'bird'), (32, 32))
    >>> import torch
    >>> noise = open_images(torch.rand(5, 3, 32, 32), labels=[0, 1, 0, 1, 1], classes=["cat", "dog"])
    >>> len(noise), noise.classes
    (5, ('cat', 'dog'))
    """
    if isinstance(source, Images):
        return source
    if isinstance(source, tuple) and len(source) == 2 and labels is None and not _is_picture(source[1]):
        source, labels = source
        labels = np.asarray(labels)
    if isinstance(source, np.ndarray):
        return ArrayImages("arrays", source, labels, classes)
    if _is_tensor(source):
        return ArrayImages("tensor", pixels_of("The tensor of images", source), labels, classes)
    if isinstance(source, list | tuple):
        if source and all(isinstance(picture, Image.Image) for picture in source):
            return PictureListImages("pictures", source, labels, classes)
        if source and all(isinstance(path, str | Path) for path in source):
            return PathListImages([Path(path).expanduser() for path in source], labels, classes)
        raise UsageError(
            "A list of images must contain PIL pictures or paths, at least one; give arrays as one numpy array and "
            "tensors as one tensor."
        )
    if not isinstance(source, str | Path):
        opened = open_torch(source, labels, classes)
        if opened is None:
            raise UsageError(
                "Images come from a path, a name, an array, a tensor, a list of PIL pictures or paths, or a torch "
                f"dataset or loader; got a {type(source).__name__}."
            )
        return opened
    if labels is not None or classes is not None:
        raise UsageError(f"{source} has its own labels; labels and classes can be given only for pictures in memory.")
    try:
        return _open_named(str(source), check, progress)
    except (OSError, RuntimeError) as error:  # a name that is too long, a folder that may not be read, ~NOBODY
        raise ImagesError(
            f"There are no images at {source!s:.300} ({getattr(error, 'strerror', None) or error})."
        ) from error


def _is_tensor(thing: Any) -> bool:
    torch = sys.modules.get("torch")  # nobody has a tensor who has not imported it
    return torch is not None and isinstance(thing, torch.Tensor)


def _is_picture(thing: Any) -> bool:
    """Whether the second of two things is a second picture, not the labels of the first."""
    return isinstance(thing, Image.Image | str | Path)


def _open_named(source: str, check: Check, progress: Progress | None) -> Images:
    if source == "sample" or source.startswith("sample:"):
        return open_sample(source.partition(":")[2] or "test")
    if source.startswith("hf:"):
        name, _, split = source[3:].partition(":")
        return HuggingFaceImages(name, split or None, check=check, progress=progress)
    path = Path(source).expanduser()
    if path.is_dir():
        shards = sorted(file for file in path.iterdir() if file.name.endswith(".tar"))
        if shards:
            return TarImages(path.resolve().name, shards, check=check, progress=progress)
        return FolderImages(path, check=check, progress=progress)
    if (npz := re.fullmatch(r"(.+\.npz)(?::(\w+))?", source)) and (file := Path(npz[1]).expanduser()).is_file():
        return open_npz(file, npz[2])
    if path.name.endswith(".tar"):
        shards = [Path(shard).expanduser() for shard in expand(source)]
        if missing := [shard for shard in shards if not shard.is_file()]:
            raise ImagesError(f"{len(missing)} of {len(shards)} shards are missing, the first {_near(missing[0])}")
        return TarImages(path.name, shards, check=check, progress=progress)
    if path.is_file() and path.suffix.lower() in PICTURE_SUFFIXES:
        return FileImages(path)
    if path.is_file():
        raise ImagesError(f"{source} is not a source of images: expected a folder, a picture, an .npz or .tar file.")
    raise ImagesError(f"There are no images at {_near(path)}")


def _near(path: Path) -> str:
    """The missing path with what is like it, as the end of a sentence."""
    if not path.parent.is_dir():
        return f"{path}: the folder {path.parent} does not exist either."
    names = [entry.name for entry in path.parent.iterdir()]
    if like := difflib.get_close_matches(path.name, names, n=3):
        return f"{path}; did you mean {' or '.join(str(path.parent / name) for name in like)}?"
    if difflib.get_close_matches(str(path), ["sample"]):
        return f"{path}; did you mean sample, the bundled pictures?"
    return f"{path}: give a folder, an .npz or .tar file, hf:NAME, or sample for the bundled pictures."
