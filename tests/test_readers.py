"""Hypothesis against every reader: whatever changes it makes, a reader reads or refuses with one of our errors.

Few examples and always the same ones, so that the suite stays quick; `fuzz/` runs the same readers for hours.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eyechart.errors import EyechartError
from tests.mutations import TOKENS
from tests.readers import Reader, readers, run_readers

EXAMPLES = 12
Edit = tuple[int, int, bytes]  # where (in thousandths of the file), how many bytes go, what comes instead

edits = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 40), st.one_of(st.sampled_from(TOKENS), st.binary(max_size=12))),
    min_size=1,
    max_size=4,
)
TEXTS = ("card", "--classes", "--subjects-from", "--claims", "train --list", "spec", "label", "pattern of shards")
NAMES = (
    *TEXTS,
    "arguments",
    "folder",
    "study",
    "tar",
    "picture",
    ".npz",
    "safetensors header",
    "pickle in a sound zip",
)
ARRAYS = ("array of labels in a sound .npz", "array of pixels in a sound .npz")
OF_A_RUN = ("plan.json", "verdicts.json", "checksums.json", "findings/skip_ratio.nc", "shards/00001.safetensors")
SEALED = ("run, verdicts.json, checksum", "run, findings/skip_ratio.nc, checksum", "run, plan.json, sealed")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    folder = tmp_path_factory.mktemp("readers")
    return dict([*readers(folder), *run_readers(folder)])


def edited(whole: bytes, changes: list[Edit]) -> bytes:
    for place, gone, come in changes:
        at = len(whole) * place // 1000
        whole = whole[:at] + come + whole[at + gone :]
    return whole


def read_or_refused(read: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(EyechartError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read(data)


def test_every_reader_is_tried(table: dict[str, Reader]) -> None:
    checkpoints = {name for name in table if name.startswith("checkpoint ")}
    assert len(checkpoints) >= 4
    assert table.keys() - checkpoints == {*NAMES, *ARRAYS, *SEALED, *(f"run, {name}" for name in OF_A_RUN)}
    for sound, read in table.values():
        with contextlib.suppress(EyechartError):  # a checkpoint that is refused is a sound input too
            read(sound)


@pytest.mark.parametrize("name", ["checkpoint", *NAMES, *ARRAYS, *SEALED, *(f"run, {name}" for name in OF_A_RUN)])
def test_whatever_is_changed_is_read_or_refused(name: str, table: dict[str, Reader], tmp_path: Path) -> None:
    chosen = [reader for key, reader in table.items() if key == name or key.startswith(f"{name} ")]
    assert chosen

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(changes=edits, data=st.one_of(st.none(), st.binary(max_size=60)))
    def tried(changes: list[Edit], data: bytes | None) -> None:
        for sound, read in chosen:
            read_or_refused(read, edited(sound, changes) if data is None else data)

    tried()
