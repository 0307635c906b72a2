"""Engines only schedule: whichever computes them, shard files are the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from eyechart.errors import UsageError

if TYPE_CHECKING:
    from eyechart.engines.clock import Clock
    from eyechart.engines.prepared import Prepare, Prepared
    from eyechart.run import Run

__all__ = ["ENGINES", "Engine", "choose_engine"]

ENGINES = "inline, ranks, ray, ray:auto, ray://ADDRESS"


class Engine(Protocol):
    """Whoever computes the shards of a run."""

    @property
    def finishes(self) -> bool:
        """Whether this process makes findings, verdicts and page when all shards are there."""

    def admit(self, folder: Path, *, overwrite: bool) -> None:
        """Before the run's folder is opened: wait for whoever opens it, or refuse."""

    def examine(self, run: Run, prepared: Prepared, again: Prepare, clock: Clock) -> bool:
        """See that every missing shard is computed and kept; whether there was one."""


def choose_engine(name: str) -> Engine:
    """
    >>> type(choose_engine("inline")).__name__
    'Inline'
    """
    if name == "inline":
        from eyechart.engines.inline import Inline

        return Inline()
    if name == "ranks":
        from eyechart.engines.ranks import Ranks

        return Ranks()
    if name.partition(":")[0] == "ray":
        from eyechart.engines.ray_cluster import RayCluster
        from eyechart.ray_connection import address_of

        return RayCluster(address_of(name))
    raise UsageError(f"The engine is one of {ENGINES}; got {name!r}.")
