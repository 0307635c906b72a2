"""Kill exams at random moments, take a machine or its memory from a cluster, and see that nothing is lost.

    make faults                       200 kills and the clusters: docs/reliability.md
    python scripts/faults.py --kills 20 --out /tmp/faults

Each killed exam is begun again by the same call until it ends; its findings and verdicts must then equal those of an
exam that nobody disturbed. Children are forks of this process, which has imported everything, so that most kills hit
the exam and not the imports. It examines nothing itself before the last fork: what draws the charts has threads, which
a fork does not.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import math
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file

import eyechart
from eyechart import intervals, zoo
from eyechart.engines import ray_cluster
from eyechart.run import Run

MEASURES = ["recognition", "cka", "attention_distance", "skip_ratio"]
#: For the intervals, as in the tests: with all of them an exam resamples for ten seconds, and most kills hit that.
DRAWS, SMALL_DRAWS = 40, 20
SMALL = {"vit": {"depth": 3, "width": 16, "heads": 2, "patch": 8}, "resnet": {"width": 4, "depths": (1, 1, 1, 1)}}
WHEN = (0.05, 0.3, 1.15)
"""A child is killed at a random moment within these shares of an undisturbed exam's time: before and while the shards
are made, which takes little of it, and up to its end."""


@dataclass
class Tally:
    kills: Counter[str] = field(default_factory=Counter)
    """By what the folder held at the moment of the kill."""
    chains: int = 0
    equal: int = 0
    longest: int = 0
    left_over: int = 0
    """Temporary files that were still there at the end of a chain."""


def make_weights(folder: Path) -> list[str]:
    specs = []
    for name, switches in SMALL.items():
        torch.manual_seed(0)
        save_file(zoo.build(name, **switches).state_dict(), folder / f"{name}.safetensors")
        specs.append(f"zoo:{name}@{folder / name}.safetensors")
        card = zoo.card("vit") | {"name": name, "switches": dict(switches)}
        (folder / f"{name}.json").write_text(json.dumps(card))
    return specs


def import_everything() -> None:
    for name in ("altair", "vl_convert", "timm", "netCDF4", "eyechart.report.page", "eyechart.engines.inline"):
        importlib.import_module(name)


def examine(subjects: list[str], folder: Path, engine: str = "inline", images: int = 128) -> Run:
    return eyechart.exam(subjects, measures=MEASURES, limit=images, out=folder, device="cpu", engine=engine)


def same(one: Run, other: Run) -> bool:
    findings = one.findings.keys() == other.findings.keys() and all(
        one.findings[name].identical(other.findings[name]) for name in one.findings
    )
    return findings and (one.path / "verdicts.json").read_bytes() == (other.path / "verdicts.json").read_bytes()


def stage_of(folder: Path) -> str:
    """What an exam had written when it was killed."""
    if not (folder / "plan.json").exists():
        return "before the plan"
    if (folder / "report.html").exists():
        return "after the page"
    if any((folder / "findings").glob("*.nc")):
        return "findings, verdicts and page"
    return "shards" if any((folder / "shards").glob("*.safetensors")) else "before the first shard"


def killed_after(seconds: float, subjects: list[str], folder: Path) -> bool:
    """Whether a child that examines was killed before it ended."""
    child = os.fork()
    if child == 0:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            examine(subjects, folder)
            os._exit(0)
        except BaseException:
            os._exit(1)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status:
                raise SystemExit(f"An exam that was not killed ended with {status} in {folder}.")
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def kill_many(kills: int, subjects: list[str], work: Path, undisturbed: Run, seconds: float, until: float) -> Tally:
    tally, draw = Tally(), random.Random(0)

    def enough() -> bool:
        return sum(tally.kills.values()) >= kills or time.monotonic() > until

    while not enough():
        folder, in_chain = work / "killed", 0
        shutil.rmtree(folder, ignore_errors=True)
        while killed_after(draw.choice(WHEN) * draw.random() * seconds, subjects, folder):
            tally.kills[stage_of(folder)] += 1
            in_chain += 1
            if enough():
                killed_after(math.inf, subjects, folder)
                break
        tally.chains += 1
        tally.longest = max(tally.longest, in_chain)
        tally.equal += same(Run.open(folder), undisturbed)
        tally.left_over += sum(path.name.startswith(".") for path in folder.rglob("*") if path.is_file())
        print(f"{sum(tally.kills.values())} kills, {tally.chains} exams, {tally.equal} equal", flush=True)
    return tally


def remove_a_node(subjects: list[str], work: Path, undisturbed: Run, room: int) -> list[str]:
    """An exam on a Ray cluster of two nodes, one of which is removed in the middle; its log.

    `room` says how many bytes of weights a group of subjects has at most: with 0, each subject is a group.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # otherwise 127.0.0.1 becomes the interface's address
    import ray
    from ray.cluster_utils import Cluster

    log, began = [], time.monotonic()

    def say(words: str) -> None:
        log.append(f"{time.monotonic() - began:5.1f} s  {words}")
        print(log[-1], flush=True)

    ray_cluster.ROOM = room
    head = {"num_cpus": 0, "include_dashboard": False}
    if room == 0:
        head["_system_config"] = {"max_direct_call_object_size": 1}  # nothing is so small that the driver would keep it
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    say("a head and two nodes of one core are up")
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    folder, result = work / "cluster", []
    shutil.rmtree(folder, ignore_errors=True)
    driver = threading.Thread(target=lambda: result.append(examine(subjects, folder, engine="ray")))
    driver.start()

    def shards() -> int:
        return len(list((folder / "shards").glob("*.safetensors")))

    seen = 0
    while driver.is_alive():
        if (count := shards()) > seen:  # they go when the run is finished
            seen = count
            say(f"shards there: {seen}")
            if seen >= 3 and nodes:
                cluster.remove_node(nodes.pop(), allow_graceful=False)
                nodes = []
                say("one node is killed")
        time.sleep(0.05)
    driver.join()
    outcome = "equal" if result and same(result[0], undisturbed) else "DIFFER FROM"
    say(f"the exam ended; its findings {outcome} those of the inline run")
    ray.shutdown()
    cluster.shutdown()
    return log


STARVED = {
    "RAY_memory_usage_threshold": "0.01",  # the share of the machine's memory from which Ray kills tasks
    "RAY_memory_monitor_refresh_ms": "100",
    "RAY_task_oom_retry_delay_base_ms": "100",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


def starve_a_cluster(subjects: list[str], work: Path) -> list[str]:
    """An exam where Ray's memory monitor kills every task: how often it did, how the command ended, what it said."""
    command = [sys.executable, "-m", "eyechart", "exam", subjects[0], "--measures", "recognition", "--limit", "64"]
    command += ["--device", "cpu", "--engine", "ray", "--out", str(work / "starved")]
    source = str(Path(eyechart.__file__).parents[1])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, **STARVED, "PYTHONPATH": source},
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("eyechart: ")]
    kills = (done.stdout + done.stderr).count("failed due to oom")
    return [f"{kills} tasks were killed; the command ended with {done.returncode}:", *said]


def fuzzed() -> str:
    """What `fuzz/` counted, as far as it has been run."""
    path = Path(__file__).parents[1] / "fuzz" / "counts.json"
    counts = json.loads(path.read_text()) if path.exists() else {}
    kinds = {"random": "random changes (`fuzz/readers.py`)", "guided": "guided by coverage (`fuzz/guided.py`)"}
    lines = []
    for kind, words in kinds.items():
        entries = counts.get(kind, {}).values()
        total, wrong = (sum(entry[key] for entry in entries) for key in ("inputs", "not ours"))
        last = max((entry["on"] for entry in entries), default="never")
        lines.append(f"| {words} | {len(entries)} | {total:,} | {wrong} | {last} |")
    return "\n".join(lines)


def report(tally: Tally, logs: list[list[str]], starved: list[str], seconds: float) -> str:
    kills = sum(tally.kills.values())
    stages = "\n".join(f"| {stage} | {count} |" for stage, count in sorted(tally.kills.items()))
    together, apart, hungry = ("\n".join(lines) or "(not tried)" for lines in (*logs, starved))
    machine = f"{platform.system()} {platform.machine()}, eyechart {eyechart.__version__}, torch {torch.__version__}"
    return f"""# Reliability: what was tried, and what was lost

Made by `make faults` (`scripts/faults.py`) on {datetime.date.today()}: {machine}; do not edit by hand.

## Killed exams

{kills} times an exam was killed (SIGKILL) at a random moment and begun again by the same call, until it ended:
{tally.chains} exams (at most {tally.longest} kills in one; {seconds:.1f} s undisturbed).
In **{tally.equal} of {tally.chains}** every finding equals that of an undisturbed exam bit for bit, and the verdicts
byte for byte. Temporary files left at the end: {tally.left_over}.

| what the folder held when it was killed | kills |
|---|---|
{stages}

## A cluster that loses a machine

The same exam on a Ray cluster of a head and two nodes, of which one is killed in the middle:

```
{together}
```

The same with each subject in a task of its own, as where not all of them fit into one worker. What a task saw on the
node that is lost has to be seen again before its shard can be added up:

```
{apart}
```

## A cluster without memory

An exam on a Ray cluster whose memory monitor kills every task, as it does where a machine's memory is short:

```
{hungry}
```

## Hostile files

Every reader of files, names and arguments (`tests/readers.py`) on inputs that were changed. A reader may read or refuse
with one of our errors; what else came, or took longer than seconds, is counted as not ours.

| changes | readers | inputs | not ours | last run |
|---|---|---|---|---|
{fuzzed()}
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--minutes", type=float, default=math.inf, help="kill no longer than this")
    options.add_argument("--out", type=Path, default=Path("docs/reliability.md"))
    options.add_argument("--no-cluster", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        subjects = make_weights(work)
        import_everything()
        intervals.DRAWS, intervals.SMALL_DRAWS = DRAWS, SMALL_DRAWS
        began = time.monotonic()
        killed_after(math.inf, subjects, work / "undisturbed")
        seconds = time.monotonic() - began
        undisturbed = Run.open(work / "undisturbed")
        tally = kill_many(chosen.kills, subjects, work, undisturbed, seconds, began + 60 * chosen.minutes)
        rooms = (ray_cluster.ROOM, 0)
        logs = [[] if chosen.no_cluster else remove_a_node(subjects, work, undisturbed, room) for room in rooms]
        starved = [] if chosen.no_cluster else starve_a_cluster(subjects, work)
        chosen.out.write_text(report(tally, logs, starved, seconds), encoding="utf-8")
    print(chosen.out)
    lost = tally.equal < tally.chains or any("DIFFER" in line for log in logs for line in log)
    if lost or (starved and not any("Ray lost a shard" in line for line in starved)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
