"""Ctrl-C once: the shard that is being computed is finished and kept. Twice: stop at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_asked = threading.Event()


def is_asked_to_stop() -> bool:
    return _asked.is_set()


def between_shards() -> None:
    """Stop here if somebody asked for it."""
    if is_asked_to_stop():
        raise KeyboardInterrupt


@contextmanager
def finishing_the_shard(tell: Callable[[str], None]) -> Iterator[None]:
    """In this block the first interruption waits for `between_shards`.

    Outside the main thread, where Python has no signals, and where the caller handles them, nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield
        return

    def first(number: int, frame: FrameType | None) -> None:
        _asked.set()
        signal.signal(signal.SIGINT, before)
        tell("This shard is finished and saved, then the exam stops; Ctrl-C again stops it at once.")

    _asked.clear()
    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        _asked.clear()
        signal.signal(signal.SIGINT, before)
