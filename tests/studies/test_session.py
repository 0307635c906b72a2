"""scripts/study_session.sh and study_wait.sh, with a stand-in for Python that trains nothing."""

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")


def script(name: str, *words: object, python: Path | None = None) -> "subprocess.Popen[str]":
    environment = {**os.environ, **({"PYTHON": str(python)} if python else {})}
    command = ["bash", str(ROOT / "scripts" / name), *map(str, words)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Says what it was asked for; a study takes half a second and leaves a record."""
    file = tmp_path / "python"
    file.write_text(
        """#!/bin/bash
[ "$3" = study ] || exit 0
study=("${@:4:3}")
while [ $# -gt 0 ]; do [ "$1" = --records ] && records=$2; shift; done
sleep 0.5; mkdir -p "$records"; echo "${study[*]}" >> "$records/toy.jsonl"; echo recorded
"""
    )
    file.chmod(0o755)
    return file


def test_a_session_is_waited_for_and_what_it_recorded_comes_back(tmp_path: Path, python: Path) -> None:
    records = tmp_path / "records"
    session = script(
        "study_session.sh",
        1,
        records,
        "toys.npz",
        "1 locality",
        "2 blur_again --arms resnet then alternet",
        python=python,
    )
    while not (records / "pid").exists():
        time.sleep(0.02)
    early = script("study_wait.sh", 0, records, tmp_path / "early")
    assert early.wait(20) == 3, "its time is over, the session goes on"
    wait = script("study_wait.sh", 20, records, tmp_path / "out")
    said = wait.communicate(timeout=20)[0]
    assert wait.returncode == 0, said
    assert "The session has ended with 0." in said
    session.communicate(timeout=20)
    with tarfile.open(tmp_path / "out" / "records.tgz") as packed:
        assert {"records/1/toy.jsonl", "records/2/toy.jsonl"} <= set(packed.getnames())
    queue = (records / "2" / "toy.jsonl").read_text().splitlines()
    assert queue == ["blur_again --arms resnet", "alternet --data toys.npz"], "one after the other"


@pytest.mark.parametrize("begun", [False, True])
def test_a_session_that_is_not_there_is_not_waited_for(tmp_path: Path, begun: bool) -> None:
    records = tmp_path / "records"
    if begun:  # and killed since: nobody has this number
        records.mkdir()
        (records / "pid").write_text("4194304\n")
    began = time.monotonic()
    wait = script("study_wait.sh", 60, records, tmp_path / "out")
    said = wait.communicate(timeout=60)[0]
    assert wait.returncode == 1
    assert "There is no session to wait for" in said
    assert time.monotonic() - began < 30
