"""Shards as tasks on a Ray cluster: an existing one (`ray://ADDRESS`, `auto`), or one on this machine.

A task carries what was asked, not what was loaded: a worker makes the exam ready for itself once, and refuses if that
gives another question than the driver's (other weights, images or versions there). A shard comes back as the bytes
of its file, which the driver writes, so workers need no common file system. Ray repeats tasks whose worker died.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.engines.interruption import between_shards
from eyechart.engines.prepared import Prepare, Prepared, missing_shards
from eyechart.errors import EngineError, EyechartError
from eyechart.question import what_differs
from eyechart.ray_connection import RETRIES, connected

if TYPE_CHECKING:
    from eyechart.engines.clock import Clock
    from eyechart.run import Run

AHEAD = 2  # tasks that wait for each one that runs, so that no worker waits for the driver
MEMORY_OF_GPU = 16 << 30  # bytes that a GPU is taken to have at least
ACTIVATIONS = 2 << 30  # bytes that a batch may take beside the weights

_prepared: dict[str, Prepared] = {}  # in a worker: what it made ready, by question


def compute_shard(asked: Mapping[str, Any], version: str, again: Prepare, shard: int, threads: int) -> bytes:
    """In a worker: the bytes of one shard's file, of the exam that the driver's plan asks for."""
    import torch

    import eyechart
    from eyechart.engines.plan import scene_of
    from eyechart.measures import planned_measures
    from eyechart.shard_files import pack_shard

    if eyechart.__version__ != version:
        raise EngineError(
            f"A Ray worker has eyechart {eyechart.__version__}, the driver {version}; install the same one."
        )
    torch.set_num_threads(threads)
    question = asked["question"]
    if question not in _prepared:
        prepared = again()
        if differs := what_differs(asked, prepared.plan):
            raise EngineError(f"A Ray worker would not compute what the driver asks for: there {differs}.")
        _prepared.clear()
        _prepared[question] = prepared
    plan = _prepared[question].plan
    tallies = _prepared[question].compute(shard, planned_measures(plan["measures"]), scene_of(plan))
    return pack_shard(tallies, question, shard)


class RayCluster:
    finishes = True

    def __init__(self, address: str = "") -> None:
        self.address = address

    def admit(self, folder: Path, *, overwrite: bool) -> None:
        """The driver alone writes into this folder."""

    def examine(self, run: Run, prepared: Prepared, again: Prepare, clock: Clock) -> bool:
        missing = missing_shards(run, prepared, clock)
        if missing:
            self.compute(run, prepared, again, missing, clock)
        return bool(missing)

    def compute(self, run: Run, prepared: Prepared, again: Prepare, missing: list[int], clock: Clock) -> None:
        import torch

        import eyechart

        ray = connected(self.address)
        threads = torch.get_num_threads()
        needs: dict[str, Any] = {"num_cpus": threads, "max_retries": RETRIES}
        if prepared.subjects[0].device.type == "cuda":
            needs["num_gpus"] = share_of_gpu(sum(subject.parameters for subject in prepared.subjects))
        task = ray.remote(**needs)(compute_shard)
        asked, handed = ray.put(run.plan), ray.put(again)
        clock.workers = max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        at_once = clock.workers * AHEAD
        waiting, going = list(missing), dict[Any, int]()
        try:
            while waiting or going:
                while waiting and len(going) < at_once:
                    shard = waiting.pop(0)
                    reference = task.remote(asked, eyechart.__version__, handed, shard, threads)
                    going[reference] = shard
                for reference in ray.wait(list(going), num_returns=1)[0]:
                    shard = going.pop(reference)
                    run.keep_shard(shard, ray.get(reference))
                    clock.elsewhere(prepared.batches.batches(shard))
                    between_shards()
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, EyechartError):
                raise cause from None
            raise EngineError(f"A Ray worker failed: {type(cause).__name__}: {cause}") from error
        except ray.exceptions.RayError as error:
            words = str(error).strip().splitlines()[0].partition(". ")[0].rstrip(".")
            memory = " Give its machines more memory or fewer CPUs." if "memory" in words else ""
            raise EngineError(
                f"Ray lost a shard and {RETRIES} further attempts ({words}); what is there is kept, and the same "
                f"command continues.{memory}"
            ) from error
        finally:
            for reference in going:
                ray.cancel(reference, force=True)


def share_of_gpu(parameters: int) -> float:
    """Of a GPU, for one task: weights in float32 four times over, and a batch's activations.

    >>> share_of_gpu(3_000_000), share_of_gpu(300_000_000)
    (0.2, 0.5)
    """
    share = (16 * parameters + ACTIVATIONS) / MEMORY_OF_GPU
    return min(1.0, max(0.1, round(share + 0.05, 1)))
