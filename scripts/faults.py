"""Kill exams at random moments, take a machine or its memory from a cluster, and see that nothing is lost.

    make faults                                              until 200 kills are counted, and the clusters
    python scripts/faults.py --no-cluster --minutes 20       as many of them as go into 20 minutes
    python scripts/faults.py --kills 20 --counts /tmp/counts.json
    python scripts/reliability_page.py                       docs/reliability.md anew, from what is counted

Each killed exam is begun again by the same call until it ends; its findings and verdicts must then equal those of an
exam that nobody disturbed. Counts are kept after each such exam (`scripts/fault_counts.json`): a call that is stopped
loses the last one at most, and the next goes on. Children are forks of this process, which has imported everything, so
that most kills hit the exam and not the imports. It examines nothing itself before the last fork: what draws the charts
has threads, which a fork does not.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from reliability_page import COUNTS, FUZZED, PAGE, STAGES, kills_in, read, text
from safetensors.torch import save_file

import eyechart
from eyechart import intervals, zoo
from eyechart.engines import ray_cluster
from eyechart.run import Run

MEASURES = ["recognition", "cka", "attention_distance", "skip_ratio"]
#: For the intervals, as in the tests: with all of them an exam resamples for ten seconds, and most kills hit that.
DRAWS, SMALL_DRAWS = 40, 20
SMALL = {"vit": {"depth": 3, "width": 16, "heads": 2, "patch": 8}, "resnet": {"width": 4, "depths": (1, 1, 1, 1)}}
POLL = 0.002  # seconds


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


def child_of(subjects: list[str], folder: Path) -> int:
    """A process that examines."""
    child = os.fork()
    if child:
        return child
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        examine(subjects, folder)
        os._exit(0)
    except BaseException:
        os._exit(1)


def has_ended(child: int, folder: Path) -> bool:
    ended, status = os.waitpid(child, os.WNOHANG)
    if status:
        raise SystemExit(f"An exam that was not killed ended with {status} in {folder}.")
    return bool(ended)


def time_stages(subjects: list[str], folder: Path) -> dict[str, float]:
    """How long an exam that nobody disturbs is in each stage."""
    lasting = dict.fromkeys(STAGES, 0.0)
    child, last = child_of(subjects, folder), time.monotonic()
    while not has_ended(child, folder):
        time.sleep(POLL)
        now = time.monotonic()
        lasting[stage_of(folder)] += now - last
        last = now
    return lasting


def killed(stage: str, seconds: float, subjects: list[str], folder: Path) -> bool:
    """Whether a child that examines was killed so long after it had come to a stage; it may have ended before."""
    child, due = child_of(subjects, folder), math.inf
    while time.monotonic() < due:
        if has_ended(child, folder):
            return False
        if math.isinf(due) and STAGES.index(stage_of(folder)) >= STAGES.index(stage):
            due = time.monotonic() + seconds
        time.sleep(POLL)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def kill_many(
    kills: int,
    subjects: list[str],
    work: Path,
    undisturbed: Run,
    lasting: Mapping[str, float],
    kept: Kept,
    until: float,
) -> None:
    """Exams, each killed and begun again until it ends.

    A moment is drawn by the stage first, early ones more often since an exam does not come back to them, and then
    within it: by the clock alone 148 of 152 kills hit findings and page.
    """
    draw = random.Random(kept.kills)
    session = kept.session(sum(lasting.values()))
    folder = work / "killed"
    while kept.kills < kills and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        stages = Counter[str]()
        while True:
            left = STAGES[STAGES.index(stage_of(folder)) :]
            (stage,) = draw.choices(left, weights=range(len(left), 0, -1))
            spared = len(left) == 1  # what has its page would be killed for ever before it has looked at it
            if not killed(stage, math.inf if spared else draw.random() * lasting[stage], subjects, folder):
                break
            stages[stage_of(folder)] += 1
        session["kills"] = dict(Counter(session["kills"]) + stages)
        session["exams"] += 1
        session["longest"] = max(session["longest"], stages.total())
        session["equal"] += same(Run.open(folder), undisturbed)
        session["left over"] += sum(path.name.startswith(".") for path in folder.rglob("*") if path.is_file())
        kept.count(session)
        print(f"{kept.kills} kills; of {session['exams']} exams now {session['equal']} equal", flush=True)


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


class Kept:
    """What has been counted, in a file that is written after every exam: a later call goes on from there."""

    def __init__(self, path: Path, *, anew: bool) -> None:
        self.path = path
        self.counts = {} if anew else read(path)
        self.sessions: list[dict[str, Any]] = self.counts.setdefault("sessions", [])
        self.clusters: dict[str, Any] = self.counts.setdefault("clusters", {})

    @property
    def kills(self) -> int:
        return kills_in(self.sessions)

    def session(self, seconds: float) -> dict[str, Any]:
        begun = {"kills": {}, "exams": 0, "equal": 0, "longest": 0, "left over": 0, "seconds": round(seconds, 1)}
        return {**here(), **begun}

    def count(self, session: dict[str, Any]) -> None:
        """A session has one more exam; one that has none leaves no trace."""
        if session["exams"] == 1:
            self.sessions.append(session)
        self.write()

    def log(self, name: str, lines: list[str]) -> None:
        self.clusters[name] = {**here(), "log": lines}
        self.write()

    def write(self) -> None:
        self.path.write_text(json.dumps(self.counts, indent=1) + "\n", encoding="utf-8")


def here() -> dict[str, str]:
    machine = f"{platform.system()} {platform.machine()}, eyechart {eyechart.__version__}, torch {torch.__version__}"
    return {"on": str(datetime.date.today()), "machine": machine}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=200, help="as many as the counts shall hold in the end")
    options.add_argument("--minutes", type=float, default=math.inf, help="kill no longer than this")
    options.add_argument("--counts", type=Path, default=COUNTS)
    options.add_argument("--anew", action="store_true", help="forget what was counted before")
    options.add_argument("--no-cluster", action="store_true", help="kill exams alone; what was said of clusters stays")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    kept = Kept(chosen.counts, anew=chosen.anew)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        subjects = make_weights(work)
        import_everything()
        intervals.DRAWS, intervals.SMALL_DRAWS = DRAWS, SMALL_DRAWS
        lasting = time_stages(subjects, work / "undisturbed")
        undisturbed = Run.open(work / "undisturbed")
        kill_many(chosen.kills, subjects, work, undisturbed, lasting, kept, time.monotonic() + 60 * chosen.minutes)
        if not chosen.no_cluster:
            for name, room in (("together", ray_cluster.ROOM), ("apart", 0)):
                kept.log(name, remove_a_node(subjects, work, undisturbed, room))
            kept.log("without memory", starve_a_cluster(subjects, work))
    if chosen.counts == COUNTS:
        PAGE.write_text(text(kept.counts, read(FUZZED)), encoding="utf-8")
        print(PAGE)
    said = {name: "\n".join(tried["log"]) for name, tried in kept.clusters.items()}
    lost = any(session["equal"] < session["exams"] for session in kept.sessions)
    if lost or any("DIFFER" in words for words in said.values()):
        raise SystemExit("Something was lost.")
    if "Ray lost a shard" not in said.get("without memory", "Ray lost a shard"):
        raise SystemExit("A cluster without memory did not end in its sentence.")


if __name__ == "__main__":
    main()
