"""The same numbers, whoever computes them: this process, ranks, a Ray cluster, or several in turn."""

from __future__ import annotations

import functools
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save_file

import eyechart
from eyechart.engines import choose_engine
from eyechart.engines.clock import Clock
from eyechart.engines.plan import scene_of
from eyechart.engines.prepared import Prepared
from eyechart.engines.ranks import Ranks
from eyechart.engines.ray_cluster import add_up_shard, compute_shard
from eyechart.engines.shard import examine_shard
from eyechart.engines.workload import Workload
from eyechart.errors import EngineError, EyechartError, UsageError
from eyechart.exam import open_folder, prepare
from eyechart.measures import measures, planned_measures
from eyechart.run import Run
from eyechart.shard_files import pack_shard
from eyechart.tally import Tally
from eyechart.training.side_by_side import run_side_by_side
from tests.small_subjects import TINY, write_subjects
from tests.test_contributing import plugin  # noqa: F401 - a fixture
from tests.training.toys import toy_run, write_toys

pytestmark = pytest.mark.all_draws

IMAGES = 64  # 16 shards of one block of 4
COMPUTED = 2  # shards that are compared where all measures are: two seconds each
#: As few passes as the dear ones can make do with; 32 images are half of them, so that some blocks are left out.
OPTIONS = {"landscape.steps": 3, "landscape.images": 32, "robustness.images": 16, "robustness.steps": 1}
OPTIONS |= {"corruption.images": 4, "mc_dropout.images": 16, "error_vs_nll.images": 32, "shape_texture.images": 32}
#: What needs larger blocks, or snapshots of one training.
IN_BLOCKS_OF_16 = ["trajectory", "hessian", "token_place"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three small models of the zoo with weights on the disk, so that another process can load them by name."""
    return write_subjects(tmp_path_factory.mktemp("weights"), TINY)


@pytest.fixture(scope="module")
def snapshots(weights: list[str]) -> list[str]:
    """The ViT as three moments of one training, and the ResNet."""
    path = Path(weights[0].partition("@")[2])
    moments = []
    for number, moment in enumerate(("init", "warmup")):
        moved = {name: value + 0.1 * (2 - number) for name, value in load(path.read_bytes()).items()}
        save_file(moved, path.with_name(f"vit.{moment}.safetensors"))
        moments.append(f"zoo:vit@{path.with_name(f'vit.{moment}.safetensors')}")
    return [*moments, *weights[:2]]


def asked(subjects: list[str], names: list[str] | None, **more: Any) -> functools.partial[Prepared]:
    arguments: dict[str, Any] = {
        "options": None,
        "effort": "quick",
        "limit": IMAGES,
        "seed": 0,
        "classes": None,
        "device": "cpu",
    }
    arguments |= {"dtype": "float32", "plugins": (), "claims": None}
    return functools.partial(prepare, subjects, "sample", names, **(arguments | more))


def shards_of(run: Run) -> dict[str, dict[str, bytes]]:
    """Every number of every shard, by name, bit for bit; the order of a file's header is not the same twice."""
    return {
        path.name: {name: value.numpy().tobytes() for name, value in load(path.read_bytes()).items()}
        for path in sorted((run.path / "shards").iterdir())
    }


def examined(
    again: functools.partial[Prepared], engine: Any, folder: Path, said: list[str] | None = None
) -> tuple[Run, int]:
    """A run whose shards one engine computed, and how many images it told of."""
    prepared = again()
    engine.admit(folder, overwrite=False)
    run = open_folder(prepared.plan, folder, overwrite=False)
    workload = Workload(list(run.measures.values()), run.scene, prepared.batches)
    clock = Clock(workload, lambda what, done, total: said.append(what) if said is not None else None)
    engine.examine(run, prepared, again, clock)
    return run, clock.images


@pytest.fixture(scope="module", params=["blocks of 4", "blocks of 16"])
def everything(request: pytest.FixtureRequest, weights: list[str], snapshots: list[str]) -> functools.partial[Prepared]:
    """All measures between the two, asked for by name so that none is left out for the time it takes."""
    if request.param == "blocks of 16":
        return asked(snapshots, IN_BLOCKS_OF_16, limit=256, options={"hessian.images": 16})
    return asked(weights, [name for name in measures() if name not in IN_BLOCKS_OF_16], options=OPTIONS)


@pytest.fixture(scope="module")
def alone(everything: functools.partial[Prepared]) -> list[dict[str, Tally]]:
    """What one process computes for the first shards, without any engine."""
    prepared = everything()
    chosen, scene = planned_measures(prepared.plan["measures"]), scene_of(prepared.plan)
    return [prepared.compute(shard, chosen, scene) for shard in range(COMPUTED)]


def all_but_the_first(again: functools.partial[Prepared], folder: Path, tallies: dict[str, Tally]) -> None:
    """A run of which only the first shards are missing; what the others hold does not matter."""
    prepared = again()
    run = open_folder(prepared.plan, folder, overwrite=False)
    for shard in range(COMPUTED, len(prepared.batches.shards)):
        run.write_shard(shard, tallies)


def assert_first_shards(run: Run, alone: list[dict[str, Tally]]) -> None:
    for shard, expected in enumerate(alone):
        tallies = run.read_tallies(shard)
        assert tallies is not None
        assert tallies.keys() == expected.keys()
        for name, tally in tallies.items():
            for key, value in tally.tensors().items():
                other = expected[name].tensors()[key]
                assert value.dtype == other.dtype
                assert value.numpy().tobytes() == other.numpy().tobytes(), (shard, name, key)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One cluster of two workers for all tests, on this machine alone."""
    import ray

    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # otherwise 127.0.0.1 becomes the interface's address
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - 15 by default: beside other work they stood still for minutes
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield ray
    ray.shutdown()


def rank(number: int, monkeypatch: pytest.MonkeyPatch, wait_seconds: float = 5, ranks: int = 3) -> Ranks:
    monkeypatch.setenv("RANK", str(number))
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    return Ranks(wait_seconds)


def test_ranks_write_the_shards_of_one_process(
    everything: functools.partial[Prepared],
    alone: list[dict[str, Tally]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All measures; rank 0 comes first to write the plan and last to wait."""
    all_but_the_first(everything, tmp_path / "run", alone[0])
    images = [examined(everything, rank(number, monkeypatch, ranks=2), tmp_path / "run")[1] for number in (1, 0)]
    shard = sum(len(batch.images) for batch in everything().batches.batches(0))
    assert_first_shards(Run(tmp_path / "run"), alone)
    assert images == [15 * shard, 16 * shard]  # what was there before, and one shard each


def test_a_cluster_writes_the_shards_of_one_process(
    everything: functools.partial[Prepared],
    alone: list[dict[str, Tally]],
    cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All measures, each subject in a task of its own, so that what several saw is put together."""
    monkeypatch.setattr("eyechart.engines.ray_cluster.ROOM", 0)
    all_but_the_first(everything, tmp_path / "run", alone[0])
    said: list[str] = []
    run, images = examined(everything, choose_engine("ray"), tmp_path / "run", said)
    assert_first_shards(run, alone)
    tasks = sum(int(number) for number in re.findall(r"/\d+: (\d+) task", whole(said)[-1]))
    assert tasks == COMPUTED * (len(run.plan["subjects"]) + 1), said  # each worker with what it has done
    assert images == len(everything().batches.order)
    now = "\n".join(said)  # and with what it does just now; a short task may end before it is looked at again
    step = r"(?:begins|images 1?\d to \d+: \S+, \w+)"
    assert re.search(rf"\n\S+/\d+  shard [12] of 16: group \d of \d \(\S+\), {step}", now), said
    assert re.search(r"\n\S+/\d+  idle, \d tasks? done", now), said


def whole(said: list[str]) -> list[str]:
    """Without what workers did in between."""
    return [words for words in said if "\n" not in words]


def test_one_engine_goes_on_where_another_stopped(weights: list[str], cluster: Any, tmp_path: Path) -> None:
    again = asked(weights[:2], ["recognition", "cka", "attention_distance"])
    one, _ = examined(again, choose_engine("inline"), tmp_path / "inline")
    run = open_folder(again().plan, tmp_path / "run", overwrite=False)
    run.keep_shard(1, one.shard_path(1).read_bytes())
    before = run.shard_path(1).stat().st_mtime_ns
    run, images = examined(again, choose_engine("ray"), tmp_path / "run")
    assert shards_of(run) == shards_of(one)
    assert run.shard_path(1).stat().st_mtime_ns == before
    assert images == IMAGES


def test_a_measure_of_a_file_is_known_to_whoever_adds_up(
    plugin: Path,  # noqa: F811 - the fixture
    weights: list[str],
) -> None:
    prepared = asked(weights[:2], ["feature_length"], plugins=(str(plugin),))()
    plan, threads, chosen = prepared.plan, torch.get_num_threads(), planned_measures(prepared.plan["measures"])
    seen = [np.frombuffer(pickle.dumps(each), np.uint8) for _, each in prepared.look(0, chosen, scene_of(plan))]
    eyechart.measures._from_files.clear()  # as in a worker that has made nothing ready
    eyechart.measures.measures.cache_clear()
    packed = add_up_shard(plan, eyechart.__version__, 0, threads, "board", *seen).packed
    assert packed is not None
    expected = load(pack_shard(prepared.compute(0, chosen, scene_of(plan)), plan["question"], 0))
    assert {name: value.tolist() for name, value in load(packed).items()} == {
        name: value.tolist() for name, value in expected.items()
    }


def test_other_shards_of_the_same_batches_agree_to_rounding(
    everything: functools.partial[Prepared], alone: list[dict[str, Tally]]
) -> None:
    """All measures: two shards merged are one shard that has the batches of both."""
    prepared = everything()
    chosen, scene = planned_measures(prepared.plan["measures"]), scene_of(prepared.plan)
    batches = [batch for shard in range(2) for batch in prepared.batches.batches(shard)]
    at_once = examine_shard(prepared.tapped(chosen), prepared.source, batches, chosen, scene)
    assert at_once.keys() == alone[0].keys()
    for name, tally in at_once.items():
        merged = alone[0][name].merge(alone[1][name]).tensors()
        for key, value in tally.tensors().items():
            torch.testing.assert_close(value, merged[key], rtol=1e-10, atol=1e-10, equal_nan=True)


# --- What goes wrong ------------------------------------------------------------------------------------------------


def otherwise(again: functools.partial[Prepared], **more: Any) -> Prepared:
    """In a worker: as if it had other weights."""
    prepared = again(**more)
    if sys.modules["ray"].get_runtime_context().worker.mode == 1:
        prepared.plan["subjects"][0]["weights"] = "0" * 64
    return prepared


def failing(again: functools.partial[Prepared], **more: Any) -> Prepared:
    if sys.modules["ray"].get_runtime_context().worker.mode == 1:
        raise UsageError("There is no such picture here.")
    return again(**more)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (otherwise, "would not compute what the driver asks for: there the weights of vit are others"),
        (failing, "There is no such picture here."),
    ],
)
def test_a_worker_that_is_not_the_same_is_refused(
    how: Any, words: str, weights: list[str], cluster: Any, tmp_path: Path
) -> None:
    again = asked(weights[:1], ["recognition"])
    with pytest.raises(EyechartError) as error:
        examined(functools.partial(how, again), choose_engine("ray"), tmp_path / "run")
    assert words in str(error.value)


def test_a_worker_of_another_version_is_refused() -> None:
    with pytest.raises(EngineError, match=r"eyechart .* the driver 0\.0\.0; install the same one"):
        compute_shard({}, "0.0.0", lambda: pytest.fail("it must not begin"), 0, 1, "board")


def test_rank_0_does_not_wait_for_ever_and_each_rank_has_its_shards(
    weights: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = asked(weights[:1], ["recognition"])
    with pytest.raises(EngineError, match="10 shards of other ranks have not come for 0 s; what is there is kept"):
        examined(again, rank(0, monkeypatch, 0.3), tmp_path / "run")
    assert {int(path.stem) for path in (tmp_path / "run" / "shards").iterdir()} == {0, 3, 6, 9, 12, 15}
    examined(again, rank(2, monkeypatch), tmp_path / "run")
    assert {int(path.stem) for path in (tmp_path / "run" / "shards").iterdir()} == {0, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15}


def test_a_rank_waits_for_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match=r"Rank 1 waited 0 s for .*plan\.json, written by rank 0"):
        rank(1, monkeypatch, 0.3).admit(tmp_path / "run", overwrite=False)
    with pytest.raises(UsageError, match="--overwrite cannot be used with --engine ranks"):
        rank(0, monkeypatch).admit(tmp_path / "run", overwrite=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("spark", "The engine is one of inline, ranks, ray, ray:auto, ray://ADDRESS; got 'spark'."),
        ("ranks", "--engine ranks needs a launcher that sets RANK and WORLD_SIZE"),
    ],
)
def test_an_engine_that_is_not_there(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UsageError) as error:
        choose_engine(name)
    assert words in str(error.value)


def test_two_processes_of_a_launcher_make_one_run(weights: list[str], tmp_path: Path) -> None:
    """As torchrun starts them: the same command twice, with another rank. Of a ViT, which needs no timm."""
    command = [sys.executable, "-m", "eyechart", "exam", weights[0], "--measures", "recognition", "--limit", "64"]
    command += ["--engine", "ranks", "--out", str(tmp_path / "run"), "--device", "cpu"]
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, "RANK": str(number), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in (1, 0)
    ]
    said = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert "rank 0 finishes the run" in said[0]
    assert "report:" not in said[0]
    assert "report:" in said[1]
    alone = eyechart.exam(
        weights[0], measures="recognition", limit=64, out=tmp_path / "alone", device="cpu", page=False
    )
    both = Run(tmp_path / "run")
    assert both.finished
    assert both.findings["recognition"].identical(alone.findings["recognition"])


# --- Trainings ------------------------------------------------------------------------------------------------------


def test_trainings_on_a_cluster_end_as_in_a_process(cluster: Any, tmp_path: Path) -> None:
    """Two that run through, and one whose data are not there."""
    data = write_toys(tmp_path / "toys.npz")
    said: dict[str, list[str]] = {}
    for engine in ("processes", "ray"):
        runs = [toy_run(data, tmp_path / engine, name=name, seed=seed) for name, seed in (("a", 0), ("b", 1))]
        runs.append(toy_run(str(tmp_path / "nothing.npz"), tmp_path / engine, name="c"))
        told: list[str] = said.setdefault(engine, [])
        codes = run_side_by_side(runs, 2, lambda event, told=told: told.append(event.get("error", "")), engine)  # type: ignore[misc]
        assert codes == {"a": 0, "b": 0, "c": 1}
        assert any("nothing.npz" in words for words in told)
    for name in ("a", "b"):
        one, other = ((tmp_path / engine / f"{name}.safetensors").read_bytes() for engine in said)
        assert load(one).keys() == load(other).keys()
        assert all(torch.equal(value, load(other)[key]) for key, value in load(one).items())


# --- Workers that die: last, since each needs a new process that imports torch ----------------------------------------


@pytest.mark.posix
def test_a_killed_worker_costs_nothing(weights: list[str], cluster: Any, tmp_path: Path) -> None:
    again = asked(weights[:1], ["recognition", "cka"])
    marker = tmp_path / "killed"
    said: list[str] = []
    run, _ = examined(functools.partial(dying, marker, again), choose_engine("ray"), tmp_path / "ray", said)
    assert marker.exists()
    assert re.search("[12] w(as|ere) begun again", whole(said)[-1]), said
    assert re.search(r"\n\S+/\d+  lost, 0 tasks done", said[-1]), said
    one, _ = examined(again, choose_engine("inline"), tmp_path / "inline")
    assert shards_of(run) == shards_of(one)


def dying(marker: Path, again: functools.partial[Prepared], **more: Any) -> Prepared:
    """In a worker, the first time: die as by lack of memory."""
    if "ray" in sys.modules and sys.modules["ray"].get_runtime_context().worker.mode == 1 and not marker.exists():
        marker.touch()
        time.sleep(0.2)  # until others can know that it had begun
        os.kill(os.getpid(), signal.SIGKILL)
    return again(**more)


@pytest.mark.posix
def test_workers_that_always_die_end_in_one_sentence(
    weights: list[str], cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where memory is short for good: the system kills each of them. Ray's own monitor is tried by `make faults`."""
    monkeypatch.setattr("eyechart.engines.ray_cluster.RETRIES", 1)
    again, counts = asked(weights[:1], ["recognition"], limit=4), tmp_path / "attempts"
    with pytest.raises(
        EngineError, match=r"Ray lost a shard and 1 further attempts \(.*what is there is kept"
    ) as error:
        examined(functools.partial(always_dying, counts, again), choose_engine("ray"), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert len(counts.read_bytes()) >= 2
    assert os.environ["RAY_task_oom_retries"] == "3"  # noqa: SIM112 - for ever by default


def always_dying(counts: Path, again: functools.partial[Prepared], **more: Any) -> Prepared:
    if sys.modules["ray"].get_runtime_context().worker.mode == 1:
        with counts.open("ab") as file:
            file.write(b".")
        os.kill(os.getpid(), signal.SIGKILL)
    return again(**more)
