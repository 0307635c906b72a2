"""A shard as a file: the tallies of all measures, and which shard of which question they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.files import open_regular
from eyechart.question import digest

if TYPE_CHECKING:
    from torch import Tensor

    from eyechart.tally import Tally

FOLDS = "@folds"  # a shard's list of the folds that a field holds, beside the field
LARGEST_SHARD = 32 << 30  # bytes that are read of one, decided before any is; the largest here had 40 million


def pack_shard(tallies: Mapping[str, Tally], question: str, index: int) -> bytes:
    """The file of a shard: the tallies of all measures, and which shard of which question it is."""
    from safetensors.torch import save

    tensors: dict[str, Any] = {}
    for name, tally in tallies.items():
        for key, value in tally.tensors().items():
            folds = tally.filled_folds(key)
            if folds is None:
                tensors[f"{name}/{key}"] = value
            else:
                # A shard of one block fills one fold of sixteen: the zeros of the others would be 90 % of the file.
                tensors |= {f"{name}/{key}": value[folds].contiguous(), f"{name}/{key}{FOLDS}": folds}
    about = {"question": question, "shard": str(index), "sha256": shard_hash(question, index, tensors)}
    return save(tensors, metadata=about)


def shard_hash(question: str, index: int, tensors: Mapping[str, Tensor]) -> str:
    from eyechart.subjects.weights import hash_of

    return digest([question, index, hash_of(tensors)])


def restore(empty: Tally, stored: Mapping[str, Any]) -> Tally:
    """A tally as it was before its empty folds were left out of the file."""
    whole = {key: value for key, value in stored.items() if not key.endswith(FOLDS)}
    for key, value in whole.items():
        if key + FOLDS in stored:
            whole[key] = empty.tensors()[key].index_copy(0, stored[key + FOLDS], value)
    return type(empty).from_tensors(whole)


def unpack_shard(path: Path, question: str, index: int) -> dict[str, dict[str, Tensor]]:
    """The tensors of a file, by measure and field, if it is this shard of this question; else ValueError says why."""
    from safetensors import safe_open

    tensors: dict[str, Tensor] = {}
    open_regular(path, LARGEST_SHARD).close()
    with safe_open(path, framework="pt") as file:
        about = file.metadata() or {}
        if about.get("question") != question:
            raise ValueError("it is of another exam")
        if about.get("shard") != str(index):
            raise ValueError("it is another shard")
        for key in file.keys():  # noqa: SIM118 - a file, not a dict
            tensors[key] = file.get_tensor(key)
    if about.get("sha256") != shard_hash(question, index, tensors):
        raise ValueError("its checksum does not fit")
    by_measure: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, field = key.partition("/")
        by_measure.setdefault(name, {})[field] = tensor
    return by_measure


def stored_fields(path: Path, measure: str) -> dict[str, Tensor]:
    """The tensors of one measure, by field, of a file that `unpack_shard` has checked: the others are not read."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        mine = [key for key in file.keys() if key.startswith(f"{measure}/")]  # noqa: SIM118 - a file, not a dict
        return {key.partition("/")[2]: file.get_tensor(key) for key in mine}
