"""The files of a run: nothing in them is believed unread, and nothing of others is deleted."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from safetensors import safe_open
from safetensors.torch import save_file

from eyechart.errors import EyechartError, RunFolderError, UsageError
from eyechart.exam import open_folder
from eyechart.files import HOST, sweep, write_json
from eyechart.question import question_hash, seal_of
from eyechart.run import Run
from eyechart.store import CHECKSUMS
from tests.mutations import mutated, refusal
from tests.small_exam import examined

pytestmark = pytest.mark.usefixtures("no_charts")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return examined(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run.path, tmp_path / "copy"))


def dead_process() -> int:
    """The number of a process that has ended."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return child


# --- damaged files ----------------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)


def test_every_flipped_bit_of_a_shard_is_noticed(copy: Path) -> None:
    path = Run(copy).shard_path(1)
    whole = path.read_bytes()
    for at in np.random.default_rng(0).integers(0, 8 * len(whole), 60):
        path.write_bytes(whole)
        flip(path, int(at))
        opened = Run(copy)
        assert opened.read_tallies(1) is None
        assert opened.notices[0].startswith(f"{path} is damaged or foreign (")
    path.write_bytes(whole)
    assert Run(copy).read_tallies(1) is not None


def with_nan(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        about = file.metadata()
    next(value for value in tensors.values() if value.is_floating_point()).fill_(torch.nan)
    save_file(tensors, path, metadata=about)


def test_swapped_foreign_cut_and_edited_shards_are_computed_again(run: Run, copy: Path) -> None:
    shards = [Run(copy).shard_path(index) for index in range(4)]
    whole = [path.read_bytes() for path in shards]
    shards[0].write_bytes(whole[1])
    shards[1].write_bytes(whole[1][: len(whole[1]) // 2])
    with_nan(shards[2])
    save_file({"theirs": torch.zeros(3)}, shards[3], metadata={"question": "another"})
    told: list[str] = []
    again = examined(copy, told=told)
    named = [sentence for sentence in told if "is damaged or foreign" in sentence]
    assert [sentence.partition(" ")[0] for sentence in named] == [str(path) for path in shards]
    assert "another shard" in named[0]
    assert "checksum" in named[2]
    assert "another exam" in named[3]
    xarray.testing.assert_identical(again.findings["skip_ratio"], run.findings["skip_ratio"])


RESULTS = ("findings/skip_ratio.nc", "verdicts.json", "summary.csv", "report.html", CHECKSUMS)


def test_a_result_that_is_not_as_written_does_not_count_as_finished(copy: Path) -> None:
    assert Run(copy).finished
    generator = np.random.default_rng(0)
    for name in RESULTS:
        path = copy / name
        whole = path.read_bytes()
        flipped = bytearray(whole)
        flipped[int(generator.integers(len(whole)))] ^= 1
        for damaged in (b"", whole[: len(whole) // 2], bytes(flipped)):
            path.write_bytes(damaged)
            opened = Run(copy)
            assert not opened.finished, name
            assert opened.notices[0].startswith(f"{path} is damaged or foreign")
            if name.endswith((".nc", "verdicts.json", CHECKSUMS)):
                with pytest.raises(RunFolderError, match="is damaged"):
                    len(opened.findings), len(opened.verdicts)
        path.write_bytes(whole)


def test_damaged_results_are_made_again_from_the_shards(run: Run, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a shard was computed again")

    monkeypatch.setattr("eyechart.engines.shard.examine_shard", refuse)
    for name in RESULTS[:-1]:
        flip(copy / name, 8 * 20)
    told: list[str] = []
    again = examined(copy, told=told)
    for name in RESULTS[:-1]:
        assert any(sentence.startswith(f"{copy / name} is damaged or foreign") for sentence in told), name
    xarray.testing.assert_identical(again.findings["skip_ratio"], run.findings["skip_ratio"])
    assert again.finished
    assert (copy / "verdicts.json").read_bytes() == (run.path / "verdicts.json").read_bytes()
    again.report()  # a page drawn anew is no damage
    assert Run(copy).finished


@pytest.mark.parametrize(
    "edit",
    [
        lambda plan: plan["subjects"][0].update(trained=False),
        lambda plan: plan["batches"]["order"].reverse(),
        lambda plan: plan["settings"].update(dtype="float64"),
        lambda plan: plan["notices"].clear(),
        lambda plan: plan.update(question="0" * 64),
    ],
)
def test_an_edited_plan_is_refused(copy: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    plan = json.loads((copy / "plan.json").read_text())
    plan["notices"].append("made")
    write_json(copy / "plan.json", plan)
    edit(plan)
    write_json(copy / "plan.json", plan)
    with pytest.raises(RunFolderError, match="its seal does not fit"):
        Run.open(copy)
    with pytest.raises(RunFolderError, match="its seal does not fit"):
        open_folder(plan, copy, overwrite=False)


def test_a_plan_with_a_seal_of_its_own_but_another_question_is_refused(copy: Path) -> None:
    """Edited by somebody who makes the seal fit, while its shards and its question are of the exam before."""
    plan = json.loads((copy / "plan.json").read_text())
    plan["subjects"][0]["weights"] = "0" * 64
    write_json(copy / "plan.json", plan | {"seal": seal_of(plan)})
    with pytest.raises(RunFolderError, match="its seal does not fit"):
        Run.open(copy)


def test_a_run_of_the_format_before_is_refused_with_a_sentence(copy: Path) -> None:
    plan = json.loads((copy / "plan.json").read_text()) | {"format": 3}
    write_json(copy / "plan.json", plan)
    with pytest.raises(RunFolderError, match=r"has run format 3 .*reads format 4\. Run the exam again"):
        Run.open(copy)
    Run(copy).clear()  # but --overwrite knows it as a run
    assert not copy.joinpath("plan.json").exists()


def read_all(folder: Path) -> None:
    opened = Run.open(folder)
    len(opened.findings), len(opened.verdicts), opened.scene, opened.measures, opened.finished
    for index in range(2):
        opened.read_tallies(index)
    list(opened.quantities()), opened.summary_csv()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("plan.json", 40),
        ("verdicts.json", 15),
        (CHECKSUMS, 25),
        ("findings/skip_ratio.nc", 15),
        ("shards/00001.safetensors", 20),
    ],
)
def test_mutated_files_of_a_run_are_refused_with_a_sentence(copy: Path, name: str, count: int) -> None:
    whole = (copy / name).read_bytes()
    for data in mutated(whole, count):
        (copy / name).write_bytes(data)
        refusal(EyechartError, read_all, copy)


@pytest.mark.parametrize("name", ["verdicts.json", "findings/skip_ratio.nc"])
def test_mutated_results_with_a_fitting_checksum_are_read_or_refused(copy: Path, name: str) -> None:
    """Made by somebody who knows how checksums are made."""
    whole = (copy / name).read_bytes()
    for data in mutated(whole, 15):
        (copy / name).write_bytes(data)
        Run(copy).record([name])
        refusal(EyechartError, read_all, copy)


ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    float("nan"),
    "",
    "../../x",
    [],
    [[]],
    {},
    "\ud800",
    [None],
    ["a"],
    [1, 2, 3],
)


def test_a_plan_with_a_fitting_seal_is_read_or_refused(copy: Path) -> None:
    whole = (copy / "plan.json").read_text()
    generator = np.random.default_rng(0)
    for _ in range(40):
        plan = json.loads(whole)
        subject = plan["subjects"][0]
        site = subject["anatomy"]["sites"][int(generator.integers(len(subject["anatomy"]["sites"])))]
        parts = (
            plan,
            subject,
            subject["anatomy"],
            site,
            site["layout"],
            plan["images"],
            plan["batches"],
            plan["settings"],
        )
        part = parts[int(generator.integers(len(parts)))]
        part[sorted(part)[int(generator.integers(len(part)))]] = ODD_VALUES[int(generator.integers(len(ODD_VALUES)))]
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            plan["question"] = question_hash(plan)
        (copy / "plan.json").write_text(json.dumps(plan | {"seal": seal_of(plan)}))
        with contextlib.suppress(EyechartError):
            Run(copy).record(["findings/skip_ratio.nc", "verdicts.json"], anew=True)
        refusal(EyechartError, read_all, copy)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "plan.json").write_text("{"), "damaged"),
        (lambda folder: (folder / "plan.json").write_text("[]"), "damaged"),
        (lambda folder: (folder / "plan.json").unlink(), "no plan.json"),
        (lambda folder: without_notices(folder / "plan.json"), "its seal does not fit"),
        (lambda folder: resealed(folder / "plan.json", without_anatomies), "does not have the form that this version"),
        (lambda folder: (folder / "findings" / "skip_ratio.nc").write_bytes(b"CDF"), "damaged"),
        (lambda folder: recorded(folder, "findings/skip_ratio.nc", b"CDF"), "damaged"),
        (lambda folder: (folder / "verdicts.json").write_text('[{"claim": "C01"}]'), "damaged"),
        (lambda folder: recorded(folder, "verdicts.json", b'[{"claim": "C01"}]'), "damaged"),
    ],
)
def test_a_damaged_run_folder_is_named(copy: Path, damage: Callable[[Path], object], words: str) -> None:
    damage(copy)
    with pytest.raises(RunFolderError, match=words):
        read_all(copy)


def without_anatomies(plan: Path) -> None:
    whole = json.loads(plan.read_text(encoding="utf-8"))
    for subject in whole["subjects"]:
        del subject["anatomy"]
    plan.write_text(json.dumps(whole), encoding="utf-8")


def without_notices(plan: Path) -> None:
    whole = json.loads(plan.read_text(encoding="utf-8"))
    plan.write_text(json.dumps(whole | {"notices": []}), encoding="utf-8")


def resealed(plan: Path, edit: Callable[[Path], object]) -> None:
    """Edited by somebody who knows how seals are made."""
    edit(plan)
    whole = json.loads(plan.read_text(encoding="utf-8"))
    plan.write_text(json.dumps(whole | {"seal": seal_of(whole)}), encoding="utf-8")


def recorded(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    Run(folder).record([name])


def test_a_run_of_another_version_is_refused(run: Run, tmp_path: Path) -> None:
    plan = dict(run.plan, format=99, eyechart="7.0")
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(RunFolderError, match=r"format 99 .eyechart 7\.0"):
        Run.open(tmp_path)


def test_there_is_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="A run folder was expected"):
        Run.open(tmp_path / "nowhere")


def test_a_shard_that_the_system_does_not_let_go_yet_stays(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows removes no file of which a tensor is still a view; a finished run is finished all the same."""
    held = Run(copy).shard_path(0)
    unlink = Path.unlink

    def refusing(path: Path, missing_ok: bool = False) -> None:
        if path == held:
            raise PermissionError(13, "The process cannot access the file because it is being used", str(path))
        unlink(path, missing_ok)

    others = [path for path in (copy / "shards").iterdir() if path != held]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refusing)
        Run(copy).drop_shards()
    assert held.exists()
    assert [path for path in others if path.exists()] == []
    Run(copy).drop_shards()
    assert not (copy / "shards").exists()


# --- folders ----------------------------------------------------------------------------------------------------


@pytest.mark.posix
def test_a_kill_while_the_plan_was_written_does_not_block_the_next_start(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    out.mkdir()
    half = out / f".plan.json.{HOST}-{dead_process()}-abcd1234.json"
    half.write_text("{")
    begun = open_folder(run.plan, out, overwrite=False)
    assert begun.plan["question"] == run.plan["question"]
    assert [path.name for path in out.iterdir()] == ["plan.json"]


@pytest.mark.posix
def test_what_killed_writers_left_is_swept_and_what_others_write_is_not(tmp_path: Path) -> None:
    dead = tmp_path / f".00001.safetensors.{HOST}-{dead_process()}-abcd1234.safetensors"
    alive = tmp_path / f".00002.safetensors.{HOST}-{os.getppid()}-abcd1234.safetensors"
    elsewhere = tmp_path / ".00003.safetensors.0123abcd-7-abcd1234.safetensors"
    theirs = tmp_path / ".00004.safetensors.bak"
    for path in (dead, alive, elsewhere, theirs):
        path.touch()
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {alive.name, elsewhere.name, theirs.name}
    os.utime(elsewhere, (0, 0))
    sweep(tmp_path)
    assert not elsewhere.exists()


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("theirs", ['{"name": "my project"}', "[]", "{", '{"format": 4, "eyechart": "0.1.0"}'])
def test_overwrite_deletes_nothing_where_the_plan_is_not_ours(run: Run, tmp_path: Path, theirs: str) -> None:
    folder = tmp_path / "project"
    for name in ("figures/mine.png", "shards/00000.safetensors", "findings/skip_ratio.nc", "report.html"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("keep me")
    (folder / "plan.json").write_text(theirs)
    before = files_in(folder)
    with pytest.raises(UsageError, match="--overwrite deletes nothing there"):
        open_folder(run.plan, folder, overwrite=True)
    assert files_in(folder) == before


def test_overwrite_deletes_only_what_a_run_wrote_and_follows_no_link(copy: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "skip_ratio.png").write_text("keep me")
    kept = ["shards/notes.txt", "findings/other.nc", "mine.txt", "shards/1.safetensors"]
    for name in kept:
        (copy / name).write_text("keep me")
    (copy / "figures").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="figures is a link"):
        Run(copy).clear()
    (copy / "figures").unlink()
    (copy / "figures").mkdir()
    (copy / "figures" / "skip_ratio.png").symlink_to(elsewhere / "skip_ratio.png")
    Run(copy).clear()
    assert files_in(copy) == {*kept, "figures/skip_ratio.png"}
    assert (elsewhere / "skip_ratio.png").read_text() == "keep me"
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "plan.json").symlink_to(tmp_path / "elsewhere" / "plan.json")
    with pytest.raises(UsageError, match="deletes nothing there"):
        Run(linked).clear()
