"""The benchmarks still run and check answers rightly; what they measure is not tested here."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parents[1] / "benchmarks"
Benchmark = Callable[[str], ModuleType]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Benchmark]:
    """Import a script of the folder, whose scripts import each other by their plain names."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == FOLDER:
            del sys.modules[name]


def test_the_measures_of_the_shared_pass_run_in_their_benchmark() -> None:
    command = [sys.executable, str(FOLDER / "shared_passes.py"), "--mode", "shared", "--small", "--images", "64"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seconds"] > 0


def test_what_is_for_a_gpu_runs_on_a_cpu_and_its_page_is_written(benchmark: Benchmark, tmp_path: Path) -> None:
    """All but what takes too long here; eyechart's CKA is that of brute force in float64."""
    out = tmp_path / "gpu.json"
    parts = ["ratios", "profile", "exam", "layer_cka", "offsets"]
    benchmark("on_gpu").main(["--device", "cpu", "--small", "--out", str(out), "--parts", *parts])
    found = json.loads(out.read_text())
    assert [name for name in parts if "failed" in found[name]] == []
    (row,) = found["ratios"]["rows"]
    assert set(row["measures"]) == {"cka", "all shared", "probes"}
    assert all(measured["ratio"] > 0 for measured in row["measures"].values())
    assert found["profile"]["rows"][0]["dearest"]
    assert found["exam"]["phases"]["the shared pass"] > 0
    assert found["layer_cka"]["ways"]["eyechart"]["error"] < 1e-5
    assert found["offsets"]["ways"]["eyechart"]["1000"] < 1e-5
    text = benchmark("page").text({}, found)
    assert "### Where the time of a batch goes" in text
    assert set(benchmark("charts").charts({}, found)) == {"gpu"}


def test_a_job_is_charged_with_the_memory_of_all_its_processes_and_its_folder(
    benchmark: Benchmark, tmp_path: Path
) -> None:
    jobs = benchmark("jobs")
    jobs.make_pictures(tmp_path / "pictures", 11)
    pictures = sorted((tmp_path / "pictures").rglob("*.jpg"))
    assert len(pictures) == 11
    with Image.open(pictures[0]) as picture:
        assert (picture.format, picture.size) == ("JPEG", (500, 375))
    assert pictures[0].read_bytes() != pictures[1].read_bytes()

    hold = "held = b'x' * 80_000_000; time.sleep(1)"
    child = f"import time; {hold}"
    work = (
        f"import subprocess, sys, time; part = subprocess.Popen([sys.executable, '-c', {child!r}]); {hold}; part.wait()"
    )
    costs = jobs.timed([sys.executable, "-c", work], tmp_path / "pictures")
    assert costs["peak_megabytes"] > 160
    assert 1 < costs["seconds"] < 60
    assert costs["run_megabytes"] == round(sum(path.stat().st_size for path in pictures) / 1e6, 1)
    assert costs["cpu_seconds"] < 10, "it slept"
    busy = "import time\nwhile time.process_time() < 1: pass"
    work = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    assert 1 <= jobs.timed([sys.executable, "-c", work], tmp_path / "pictures")["cpu_seconds"] < 10, "of children, too"
    with pytest.raises(SystemExit, match="ended with 2"):
        jobs.timed([sys.executable, "-c", "raise SystemExit(2)"], tmp_path)


def test_a_wrong_answer_is_seen_and_shown_with_its_input(benchmark: Benchmark) -> None:
    layer_cka, page = benchmark("layer_cka"), benchmark("page")
    truth: dict[str, Any] = {"tables": [np.eye(2)], "whole": [np.ones((2, 2))]}
    assert layer_cka.error({"tables": [np.ones((2, 2)).tolist()]}, truth, "pytorch-cka") == 1
    assert layer_cka.error({"tables": [np.ones((2, 2)).tolist()]}, truth, "thingsvision") == 0
    missing = layer_cka.error({"tables": [[[1, 0], [0, float("nan")]]]}, truth, "cka-pytorch")
    assert missing == layer_cka.NO_NUMBER == page.NO_NUMBER
    results = {"offsets": {"images": 8, "ways": {"a peer": {"0": 1e-8, "10": 0.25, "1000": missing}}}}
    text = page.text(results, {})
    assert "| a peer | 1.0e-08 | **2.5e-01** | **no number** |" in text
    assert "- **a peer**: off by 0.25. Shown by: tokens of the first model shifted by 10, 8 images" in text
    assert "shifted by 0" not in text


def test_probes_are_fitted_at_24_sites_whose_features_can_be_stored(benchmark: Benchmark) -> None:
    probes = benchmark("probes")
    exam = probes.Exam(40)
    accuracy, count = probes.eyechart(exam)
    assert 0.1 < accuracy <= 1
    assert count == 24 * 18
    stored = probes.features(exam)
    assert len(stored) == 24
    assert {len(features.shape) for features in stored} == {4}
    assert len(probes.at_some_places(stored[0])) == 16


def test_exponents_and_eigenvalues_are_those_of_cases_with_known_answers(benchmark: Benchmark) -> None:
    growth, hessian_peers = benchmark("growth"), benchmark("hessian_peers")
    assert growth.exponent([1, 4, 16], [3, 12, 48]) == pytest.approx(1)
    assert growth.exponent([1, 4, 16], [5, 5, 5]) == pytest.approx(0)
    diagonal = np.r_[np.linspace(-1, 1, 40), -9.0, 8.0, 7.0, -6.0, 5.0]
    values, _ = hessian_peers.by_arpack(lambda vector: diagonal * vector, 45, np.dtype(np.float64), 1e-10)
    assert values == pytest.approx([-9, 8, 7, -6, 5])


def test_a_way_that_fails_is_a_result(benchmark: Benchmark) -> None:
    machine = benchmark("machine")
    assert machine.in_own_process(["-c", "raise ValueError('no such layer')"]) == {
        "failed": "ValueError: no such layer"
    }
    assert machine.in_own_process(["-c", "print('noise'); print('{\"seconds\": 1}')"]) == {"seconds": 1}


def test_the_page_is_made_from_the_results(benchmark: Benchmark) -> None:
    page = benchmark("page")
    assert page.text(page.read("cpu"), page.read("gpu")) == page.PAGE.read_text(encoding="utf-8")
    for chart in re.findall(r"\]\((benchmarks-\w+\.svg)\)", page.PAGE.read_text(encoding="utf-8")):
        assert (page.PAGE.parent / chart).is_file()


def test_every_peer_has_its_version() -> None:
    lines = [line.partition("#")[0].strip() for line in (FOLDER / "peers.txt").read_text().splitlines()]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in lines if line)


def test_numbers_of_fewer_bits_are_held_against_their_intervals(benchmark: Benchmark, tmp_path: Path) -> None:
    precision = benchmark("precision")

    def run(name: str, second: float, verdict: str) -> Any:
        (tmp_path / name).mkdir()
        rows = f"cka,likeness,a,0.5,0.4,0.6,\ncka,likeness,b,{second},0.1,0.3,\ncka,bare,a,1,1,1,\n"
        (tmp_path / name / "summary.csv").write_text("measure,quantity,subjects,value,low,high,unit\n" + rows)
        claim = SimpleNamespace(claim="C13", subjects=("a", "b"), reading="", verdict=verdict)
        return SimpleNamespace(path=tmp_path / name, verdicts=[claim])

    found = precision.beside(run("full", 0.2, "holds"), run("fewer", 0.4, "undecided"))
    assert found["verdicts_changed"] == ["C13 holds → undecided"]
    (made,) = found["measures"].values()
    assert (made["numbers"], made["outside"]) == (2, 1)
    assert made["farthest"]["subjects"] == "b"
    assert made["farthest"]["half_widths"] == pytest.approx(2.0)
    pair = {"subjects": ["a", "b"], "images": 9, "dtypes": {"bfloat16": found}}
    whole = {"device": "CPU", "torch": "2", "effort": "quick", "pairs": [pair]}
    assert precision.told(whole) == {"bfloat16": {"cka": [1, 2]}}
    assert "| cka | 1 of 2 | 2 | likeness of b: 0.2 [0.1, 0.3] → 0.4 |" in precision.page(whole)
