"""The measure and the claim that CONTRIBUTING.md shows work: as a plugin, as a package, and in a run opened again."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import eyechart
from eyechart import measures
from eyechart.claims.table import CLAIMS, add_claims
from eyechart.errors import RunFolderError, UsageError
from eyechart.measures import find_measure, load_plugin
from eyechart.tracing.views import Look
from tests.measures.staging import anatomy, measure_tensors, scene, site

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def shown(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return text


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    """The example as a file; what it and its claim leave in this process is taken away again."""
    path = tmp_path / "feature_length.py"
    path.write_text(shown("python"), encoding="utf-8")
    (tmp_path / "claims.toml").write_text(shown("toml"), encoding="utf-8")
    yield path
    measures._from_files.clear()
    measures.measures.cache_clear()
    CLAIMS.pop("L01", None)


def test_the_picture_of_the_layers_is_what_import_linter_holds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = [layer.split(" : ") for layer in project["tool"]["importlinter"]["contracts"][0]["layers"]]
    held = iter(layers[1:])  # without __main__, which only calls the commands
    picture = TEXT.partition("## Layers")[2].partition("One batch")[0]
    for names in re.findall(r"^    (\w+(?:, \w+)*)  ", picture, re.MULTILINE):
        line = set(names.split(", "))
        while line:
            layer = set(next(held))
            assert layer <= line, f"{layer} stand above or below {line}"
            line -= layer
    assert not list(held)


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in (ROOT / "src").rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > 400} == {}


def test_every_file_that_a_batch_passes_exists_and_is_named_once() -> None:
    hops = TEXT.partition("One batch, from the command to the page")[2].partition("## Add a measure")[0]
    files = [name.replace("NAME", "cka") for name in re.findall(r"`([\w/]+\.py|images/)`", hops)]
    assert len(files) == len(set(files)) > 15
    assert all((ROOT / "src" / "eyechart" / name).exists() for name in files)


def test_the_tests_stand_where_the_code_stands() -> None:
    source, tests = ROOT / "src" / "eyechart", ROOT / "tests"
    folders = {path.relative_to(tests) for path in tests.rglob("*") if path.is_dir() and path.name != "__pycache__"}
    assert {path for path in folders if not (source / path).is_dir()} == {Path("claims/nulls")}
    rooms = tuple(f"test_{name}" for name in measures.built_in())
    assert all(path.name.startswith(rooms) for path in tests.glob("measures/test_*.py"))


def test_the_example_measures_the_length_of_features(plugin: Path) -> None:
    assert load_plugin(plugin) == ["feature_length"]
    measure = find_measure("feature_length")
    places = [site("block 1", depth=0.5), site("block 2", depth=1.0)]
    features = [torch.randn(64, 4, 6), 3 * torch.randn(64, 4, 6)]
    looks = {("net", place.name): Look(place, output=output) for place, output in zip(places, features, strict=True)}
    finding = measure_tensors(measure, scene(anatomy("net", places)), looks, 4)
    expected = float(features[0].norm(dim=-1).mean())
    assert float(finding.length[0]) == pytest.approx(expected, rel=1e-6)
    assert float(finding.length_low[0]) < expected < float(finding.length_high[0])
    growth = math.log(float(features[1].norm(dim=-1).mean()) / expected)
    assert float(finding.quantity_value[0]) == pytest.approx(growth, rel=1e-6)
    drawn = [layer["mark"]["type"] for layer in measure.chart(finding).to_dict()["layer"]]
    assert "area" in drawn, "its interval"
    assert "long" in measure.sentence(finding)


def test_it_is_examined_judged_drawn_and_opened_again(plugin: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "plugins": [plugin],
        "claims": tmp_path / "claims.toml",
        "limit": 128,
        "out": tmp_path / "run",
    }
    run = eyechart.exam("zoo:resnet", measures="feature_length,recognition", **asked)
    (verdict,) = (verdict for verdict in run.verdicts if verdict.claim == "L01")
    assert verdict.verdict in ("holds", "fails")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "How long are the features?" in page
    assert "Feature vectors grow longer from the first block to the last." in page

    command = [sys.executable, "-m", "eyechart", "show", str(run.path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"which is not known here; give --plugin {plugin}." in refused.stderr, "no code runs that nobody asked for"
    shown_again = subprocess.run([*command, "--plugin", str(plugin)], capture_output=True, text=True, check=True)
    assert "L01" in shown_again.stdout, "the claims come with the run"

    question = run.plan["question"]
    plugin.write_text(plugin.read_text(encoding="utf-8").replace(".mean(1))", ".amax(1))"), encoding="utf-8")
    load_plugin(plugin)
    with pytest.raises(RunFolderError, match="its measure feature_length has changed"):
        eyechart.Run.open(run.path).measures  # noqa: B018 - asking is enough
    again = eyechart.exam("zoo:resnet", measures="feature_length", **{**asked, "out": tmp_path / "other"})
    assert again.plan["question"] != question

    stricter = tmp_path / "stricter.toml"
    stricter.write_text(shown("toml").replace("margin = 0.0", "margin = 1000.0"), encoding="utf-8")
    with pytest.raises(RunFolderError, match="holds another exam"):
        eyechart.exam("zoo:resnet", measures="feature_length", **{**asked, "out": again.path, "claims": stricter})


def test_the_worked_contribution_applies_and_passes(tmp_path: Path) -> None:
    """docs/contribution.diff, on a copy: the measure is the one that CONTRIBUTING shows, and the tests that look at
    every measure are content with it."""
    heavy = shutil.ignore_patterns("*.safetensors", "*.npz", "*.npy", "*.webp", "records", "__pycache__")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=heavy)
    for name in ("README.md", "README.ko.md", "docs/reproduction.md", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    command = ["git", "apply", str(ROOT / "docs" / "contribution.diff")]
    applied = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert applied.returncode == 0, applied.stderr
    measure = tmp_path / "src" / "eyechart" / "measures" / "feature_length" / "measure.py"
    assert measure.read_text(encoding="utf-8") == shown("python")
    every = ["measures/test_feature_length", "test_limits", "test_laws", "test_readme", "charts/test_measure_charts"]
    every += ["report/test_paper_tables", "report/test_languages"]
    chosen = "feature_length or every_measure_is or every_paper or every_room"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
    command += [f"tests/{name}.py" for name in every]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_package_offers_its_measures_through_entry_points(plugin: Path, tmp_path: Path) -> None:
    site_packages = tmp_path / "site"
    (site_packages / "lengths-1.0.dist-info").mkdir(parents=True)
    (site_packages / "lengths.py").write_text(plugin.read_text(encoding="utf-8"), encoding="utf-8")
    about = site_packages / "lengths-1.0.dist-info"
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lengths\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[eyechart.measures]\nfeature_length = lengths:FeatureLength\n")
    path = os.pathsep.join([str(site_packages), str(Path(eyechart.__file__).parents[1])])
    command = [sys.executable, "-m", "eyechart", "measures", "--json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path})
    assert "feature_length" in {row["name"] for row in json.loads(listed.stdout)}


def test_mistakes_in_plugins_and_claims_are_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is none at"):
        load_plugin(tmp_path / "nowhere.py")
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match="defines no measure"):
        load_plugin(tmp_path / "empty.py")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match="cannot be imported: ZeroDivisionError"):
        load_plugin(tmp_path / "broken.py")
    (tmp_path / "taken.py").write_text(shown("python").replace('name = "feature_length"', 'name = "cka"'))
    with pytest.raises(UsageError, match="'cka', which is the name of another one"):
        load_plugin(tmp_path / "taken.py")
    with pytest.raises(UsageError, match="cannot be read as claims"):
        add_claims("[[claim", "mine.toml")
    with pytest.raises(UsageError, match="C13 is the name of a published claim"):
        add_claims(shown("toml").replace("L01", "C13"), "mine.toml")
    for wrong, words in (
        (("{0}", "{7}"), "cannot be read as claims .IndexError"),
        (('"above"', '"over"'), "mine.toml: .*is asked to lie 'over'; expected above"),
        (("margin = 0.0, ", ""), "mine.toml: a test of L01 cannot be read"),
        (('sentence = "', 'sentense = "'), "mine.toml: L01 lacks sentence"),
    ):
        with pytest.raises(UsageError, match=words):
            add_claims(shown("toml").replace(*wrong), "mine.toml")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (('"length_growth"', '"length_groth"'), "asks feature_length for 'length_groth'; did you mean length_growth"),
        (
            ('measure = "feature_length"', 'measure = "feature_lenth"'),
            "names the measure 'feature_lenth'; did",
        ),
        (("parts = [", "when = { block = 1 }\nparts = ["), "names the option 'block' of feature_length; it has none"),
    ],
)
def test_a_claim_of_something_that_is_not_there_is_refused(
    plugin: Path, tmp_path: Path, wrong: tuple[str, str], words: str
) -> None:
    (tmp_path / "mine.toml").write_text(shown("toml").replace(*wrong), encoding="utf-8")
    with pytest.raises(UsageError, match=words):
        eyechart.exam("zoo:resnet", plugins=[plugin], claims=tmp_path / "mine.toml", limit=8, out=tmp_path / "run")
