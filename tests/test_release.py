"""What is released: built twice to the same bytes, installed into an empty environment, described completely."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import venv
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
import yaml

import eyechart

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EPOCH = "1767225600"
LONGEST_CHANGE = 180
"""Letters of a line of the changelog: more is a paragraph, which nobody reads (one had 468)."""


def built(source: Path, out: Path, *more: str, umask: int = -1) -> Path:
    command = [sys.executable, str(ROOT / "scripts" / "release.py"), "--source", str(source), "--out", str(out), *more]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, umask=umask)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def sources(folder: Path, *left_out: str) -> Path:
    """What a build reads, copied: it leaves folders of its own beside the sources."""
    folder.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, folder)
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "test_files.py", folder / "tests")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", *left_out))
    return folder


def test_two_builds_are_equal(tmp_path: Path) -> None:
    first = built(sources(tmp_path / "one", "zoo", "images", "studies"), tmp_path / "first")
    later = sources(tmp_path / "two", "zoo", "images", "studies")
    for path in later.rglob("*"):  # a clone made at another time
        os.utime(path, (time.time() + 9, time.time() + 9))
    second = built(later, tmp_path / "second", umask=0o077 if os.name == "posix" else -1)  # and by somebody else
    names = sorted(path.name for path in first.iterdir())
    version = eyechart.__version__
    assert names == [f"eyechart-{version}-py3-none-any.whl", f"eyechart-{version}.tar.gz"]
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    with tarfile.open(first / names[1]) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"setup.py", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "src/eyechart/exam.py"} <= inside
    assert not {name for name in inside if name.startswith("tests")}, "setuptools took test*.py and no conftest.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = built(sources(folder / "sources"), folder / "dist", "--wheel").iterdir()
    return path


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("eyechart/")}
    files = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    expected = {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert inside == {name for name in expected if name.startswith("eyechart/")}


def test_the_wheel_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Empty but for the libraries it names, which are those of this environment."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=os.name == "posix")
    scripts = tmp_path / "env" / ("bin" if os.name == "posix" else "Scripts")
    command = [sys.executable, "-m", "pip", "--python", str(scripts / "python"), "install", "--no-deps", "--no-index"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*command, "--quiet", "--disable-pip-version-check", str(wheel)], check=True, env=environment)
    (libraries,) = (tmp_path / "env").rglob("site-packages")
    (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")

    def run(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(str(scripts / "eyechart"), "--version").strip() == f"eyechart, version {eyechart.__version__}"
    home = run(str(scripts / "python"), "-c", "import eyechart; print(eyechart.__file__)").strip()
    assert Path(home).is_relative_to(tmp_path / "env")
    exam = ("exam", "zoo:vit", "--measures", "recognition", "--limit", "16", "--out", "run")
    assert "report: " in run(str(scripts / "eyechart"), *exam)
    assert (tmp_path / "run" / "report.html").stat().st_size > 100_000


def test_the_description_of_the_wheel_leads_out_of_the_package(wheel: Path) -> None:
    about = PathDistribution(zipfile.Path(wheel, f"eyechart-{eyechart.__version__}.dist-info/")).metadata
    described = str(about.get_payload())  # type: ignore[attr-defined]
    assert about["Version"] == eyechart.__version__
    assert described.startswith("# eyechart")
    targets = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", described)
    relative = [target for target in map("".join, targets) if not target.startswith(("https://", "#"))]
    assert relative == []
    assert {url.partition(",")[0] for url in about.get_all("Project-URL", [])} == PROJECT.get("urls", {}).keys()


def test_links_lead_to_the_address_where_there_is_one_and_are_words_where_there_is_none() -> None:
    described = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["described"]
    text = "[한국어](README.ko.md) ![The page](docs/top.webp) [below](#use) [paper](https://arxiv.org/abs/1)"
    kept = "[below](#use) [paper](https://arxiv.org/abs/1)"
    assert described(text, None) == f"한국어 (picture: The page) {kept}"
    there = "https://host/us"
    led = f"[한국어]({there}/blob/main/README.ko.md) ![The page]({there}/raw/main/docs/top.webp) {kept}"
    assert described(text, there) == led


def test_extras_are_quoted_where_they_are_to_be_installed() -> None:
    """zsh, the shell of macOS, takes bare brackets for a pattern and installs nothing."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py"), ROOT / "Dockerfile"]
    texts += [*(ROOT / "examples").glob("*.py"), *(ROOT / "scripts" / "site" / "templates").glob("*.md")]
    lines = [line for path in texts for line in path.read_text(encoding="utf-8").splitlines() if "pip install" in line]
    assert sum(bool(re.search(r"pip install ['\"]", line)) for line in lines) >= 5
    assert [line for line in lines if re.search(r"pip install [^'\"#`]*\[", line)] == []


def test_no_address_is_invented() -> None:
    """All four addresses of the project, or none while it has none; the citation gives the same one."""
    urls = PROJECT.get("urls", {})
    assert set(urls) in (set(), {"Source", "Documentation", "Issues", "Changelog"})
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited.get("repository-code") == urls.get("Source")
    for name in ("pyproject.toml", "CITATION.cff", "mkdocs.yml", "README.md", "README.ko.md", "SECURITY.md"):
        assert not re.search(r"//(www\.)?example\.", (ROOT / name).read_text(encoding="utf-8")), name


def test_a_tag_is_published_only_as_what_it_says_it_is(tmp_path: Path) -> None:
    reasons_against = runpy.run_path(str(ROOT / "scripts" / "release.py"), run_name="release")["reasons_against"]
    (tmp_path / "src" / "eyechart").mkdir(parents=True)
    (tmp_path / "src" / "eyechart" / "__init__.py").write_text('__version__ = "1.2.3"\n', encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nSource = "https://host/us"\n', encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [1.2.3] - 2026-11-18\n", encoding="utf-8")
    assert list(reasons_against(tmp_path, "v1.2.3", "https://host/us")) == []
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n", encoding="utf-8")
    assert len(list(reasons_against(tmp_path, "v1.2.4", "https://host/them"))) == 3
    assert list(reasons_against(ROOT, f"v{eyechart.__version__}", "")), "nobody lives there"


def test_the_version_is_written_once_and_cited() -> None:
    assert "version" in PROJECT["dynamic"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == eyechart.__version__
    assert cited["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()


def test_every_change_is_told_under_a_heading_that_people_know() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    assert f"[{eyechart.__version__}] - " in text or f"Will be {eyechart.__version__}" in text
    known = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "What was wrong and is right now"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= known
    assert [line for line in text.splitlines() if line.startswith("  ")] == [], "one line a change"
    assert [line for line in text.splitlines() if line.startswith("- ") and len(line) > LONGEST_CHANGE] == []


# --- workflows ---------------------------------------------------------------------------------------------------

CONFIGURATIONS = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_it_can_be_read(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_calls_what_there_is(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "permissions", "jobs"} <= workflow.keys()
    assert all(job["timeout-minutes"] <= 120 for job in workflow["jobs"].values()), "a job that hangs runs six hours"
    assert True in workflow, "`on`, as YAML 1.1 reads it"
    for name, job in workflow["jobs"].items():
        assert job["runs-on"], name
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), "a tag can be moved"
            called = re.findall(r"\bmake ([\w-]+)", step.get("run", ""))
            assert set(called) <= TARGETS, called
        assert set([job.get("needs")] if job.get("needs") else []) <= workflow["jobs"].keys()


def test_an_action_is_the_same_in_every_workflow_and_its_version_is_said() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = set(re.findall(r"uses: ([^@\s]+)@(.*)", "\n".join(texts)))
    assert len(used) == len(dict(used)) > 5
    assert [each for each in used if not re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+", each[1])] == []


def test_all_supported_pythons_are_tested_on_all_systems() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    assert matrix["python"] == [match[1] for match in named if match]
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}


def test_the_container_copies_files_that_exist() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (.*) /\S+$", text, re.MULTILINE) for name in line.split()]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    assert {"setup.py", "README.md", "LICENSE", "pyproject.toml", "src"} == set(copied), "what a build reads"
    ((python,), (torch,)) = re.findall(r"BASE=python:([\d.]+)-", text), re.findall(r"pytorch/pytorch:(\d+\.\d+)", text)
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    (least,) = [re.findall(r"[\d.]+", each)[0] for each in PROJECT["dependencies"] if each.startswith("torch>=")]
    assert tuple(map(int, torch.split("."))) >= tuple(map(int, least.split(".")))


def test_the_container_is_not_sent_what_git_ignores() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    left_out = {name.removeprefix("**/") for name in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()}
    caches = {".mypy_cache", ".ruff_cache", ".pytest_cache", "docs/reproduction.html"}  # small, and not copied
    assert {name.rstrip("/") for name in ignored} - caches <= left_out


def test_what_is_published_is_built_from_the_tag_alone() -> None:
    """A cache is shared with jobs of other branches, and a token in .git would be within reach of the build."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8"))["jobs"]
    settings = {
        step["uses"].partition("@")[0]: step.get("with", {}) for step in jobs["build"]["steps"] if "uses" in step
    }
    assert settings["actions/checkout"]["persist-credentials"] is False
    assert "cache" not in settings["actions/setup-python"]


FORMS = [path for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_has_what_github_asks_for(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys() <= {"name", "description", "body", "labels", "title"}
    for field in form["body"]:
        assert field["type"] in ("input", "textarea")
        assert re.fullmatch(r"[\w-]+", field["id"])
        assert {"label"} <= field["attributes"].keys() <= {"label", "description", "placeholder", "value", "render"}
    assert len({field["id"] for field in form["body"]}) == len(form["body"])


def test_hooks_run_what_the_checks_run() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    checks = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ncheck:")[2].partition("\n\n")[0]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    assert tools == set(re.findall(r"\$\(BIN\)/([\w-]+)", checks))
