"""Tallies are added up on the CPU while an accelerator looks at the next batch, which otherwise waits for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self


class Aside:
    """Work beside the caller's: one piece at a time, in the order given. Where nothing is gained by that, at once.

    What a piece raises is raised by the next call, or at the end. At most one piece waits, so no more than two batches
    of views are in memory.

    >>> said = []
    >>> with Aside(beside=True) as aside:
    ...     aside.do(said.append, 1)
    ...     aside.do(said.append, 2)
    >>> said
    [1, 2]
    """

    def __init__(self, *, beside: bool) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tallies") if beside else None
        self._piece: Future[Any] | None = None

    def do(self, work: Callable[..., Any], *args: Any) -> None:
        if self._pool is None:
            work(*args)
            return
        self._wait()
        self._piece = self._pool.submit(work, *args)

    def _wait(self) -> None:
        piece, self._piece = self._piece, None
        if piece is not None:
            piece.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is None:
            return
        try:
            if error is None:
                self._wait()
        finally:
            self._pool.shutdown()
