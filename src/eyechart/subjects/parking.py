"""Weights of subjects that wait for their turn: in a file, from which the system brings them back where they are read.

Of a hundred subjects one runs at a time, and the others need no memory meanwhile. The tensors of a parked module are
mapped from a temporary file without a name, which is gone when the process is, however it ends. `rest` gives the
memory back; a later pass reads the file again by itself, so whoever uses the module need not know. The numbers are
the same bytes, and what a pass writes into its own tensors stays there as before.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import tempfile
from typing import TYPE_CHECKING, BinaryIO

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from eyechart.subjects.subject import Subject

ROOM = 2 << 30
"""Bytes of weights that stay in memory, those of the first subjects: six ViT-B/16. So few or small ones are never
parked, and the weights of all that come after them take as much as the largest."""


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
                reason = error.strerror or error
                return (
                    f"{subject.name} stays in memory while others run: {tempfile.gettempdir()} takes no file of "
                    f"{size / 2**20:.0f} MiB ({reason}); TMPDIR=FOLDER chooses another folder for it."
                )
            give_back()
        return ""


class ParkedWeights:
    """The tensors of a module that is on the CPU, in a file. Tensors that share memory go on sharing it."""

    def __init__(self, module: nn.Module) -> None:
        tensors = [tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.device.type == "cpu"]
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
        """Give the memory back until somebody reads a weight again."""
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
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())
