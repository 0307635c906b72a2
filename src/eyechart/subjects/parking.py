"""Tensors that wait for their turn: in a file, from which the system brings them back where they are read.

Of a hundred subjects one runs at a time, and the weights of the others need no memory meanwhile; nor does what a batch
showed of them, until it is added up. Parked tensors are mapped from a temporary file without a name, which is gone when
the process is, however it ends. `rest` gives the memory back; a later reader has them from the file by itself, and need
not know. The numbers are the same bytes, and what a pass writes into its own tensors stays there as before.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import tempfile
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from eyechart.subjects.subject import Subject

ROOM = 2 << 30
"""Bytes of weights that stay in memory, those of the first subjects: six ViT-B/16. So few or small ones are never
parked, and the weights of all that come after them take as much as the largest."""


VIEWS_ROOM = 1 << 30
"""Bytes of one batch's views that stay in memory, those of the first subjects: about 13, where it has 256 images."""


class Parking:
    """Which subjects of an exam are parked: those on the CPU for which there is no room any more."""

    def __init__(self) -> None:
        self.room = ROOM

    def take(self, subject: Subject) -> str:
        """Park a subject that is nobody else's, if there is no room left; a sentence where that cannot be done."""
        size = weight_bytes(subject.module)
        if self.room >= size:
            self.room -= size
        elif subject.device.type == "cpu":
            len(subject.weights_hash)  # the plan asks for it, which would bring all weights back at once
            try:
                subject.park()
            except OSError as error:
                return f"{subject.name} stays in memory while others run: {no_file(size, error)}"
            give_back()
        return ""


class ViewParking:
    """What of one batch's views is parked: those of subjects for which there is no room any more."""

    def __init__(self) -> None:
        self.room = VIEWS_ROOM
        self.parked: list[Parked] = []

    def take(self, views: Iterable[Tensor]) -> str:
        """Park the views of one more subject, if there is no room left; a sentence where that cannot be done."""
        tensors = list(views)
        size = storage_bytes(tensors)
        if self.room >= size:
            self.room -= size
            return ""
        try:
            self.parked.append(Parked(tensors))
        except OSError as error:
            return f"What a batch shows of all subjects stays in memory: {no_file(size, error)}"
        return ""

    def rest(self) -> None:
        for each in self.parked:
            each.rest()


def no_file(size: int, error: OSError) -> str:
    return (
        f"{tempfile.gettempdir()} takes no file of {size / 2**20:.0f} MiB ({error.strerror or error}); TMPDIR=FOLDER "
        "chooses another folder for it."
    )


class Parked:
    """Those of some tensors that are on the CPU, in a file. Tensors that share memory go on sharing it."""

    def __init__(self, given: Iterable[Tensor]) -> None:
        tensors = [tensor for tensor in given if tensor.device.type == "cpu"]
        places: dict[int, int] = {}
        with tempfile.TemporaryFile() as file:
            for tensor in tensors:
                start = tensor.untyped_storage().data_ptr()
                if start not in places and tensor.untyped_storage().nbytes():
                    places[start] = _written(file, tensor.untyped_storage())
            if not places:
                return
            file.flush()
            self.mapping = mmap.mmap(file.fileno(), 0)
        for tensor in tensors:
            old = tensor.untyped_storage()
            if old.nbytes():
                stored = torch.frombuffer(
                    self.mapping, dtype=torch.uint8, count=old.nbytes(), offset=places[old.data_ptr()]
                )
                moved = torch.empty(0, dtype=tensor.dtype)
                moved.set_(stored.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
                tensor.data = moved

    def rest(self) -> None:
        """Give the memory back until somebody reads them again."""
        with contextlib.suppress(AttributeError):  # nothing to park; or Windows, which takes unused pages itself
            self.mapping.madvise(mmap.MADV_DONTNEED)


def give_back() -> None:
    """Hand the system what its allocator keeps of freed tensors, where that is glibc's: of a ViT-S/16 about 20 MiB, and
    those of the next did not fit into the holes."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another system
        ctypes.CDLL(None).malloc_trim(0)


def _written(file: BinaryIO, storage: torch.UntypedStorage) -> int:
    """Where in the file a storage begins: at a page of its own, since kernels may add in another order elsewhere."""
    file.seek(-(-file.tell() // mmap.PAGESIZE) * mmap.PAGESIZE)
    place = file.tell()
    whole = torch.empty(0, dtype=torch.uint8)
    whole.set_(storage, 0, (storage.nbytes(),), (1,))
    file.write(whole.numpy().data)
    return place


def weight_bytes(module: nn.Module) -> int:
    """
    >>> weight_bytes(nn.Linear(3, 2))
    32
    """
    return storage_bytes([*module.parameters(), *module.buffers()])


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Of memory that they share, once."""
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())
