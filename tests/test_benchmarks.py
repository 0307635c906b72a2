"""The benchmarks still run; what they measure is not tested here."""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"


def test_the_measures_of_the_shared_pass_run_in_their_benchmark() -> None:
    command = [sys.executable, str(FOLDER / "shared_passes.py"), "--mode", "shared", "--small", "--images", "64"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seconds"] > 0
