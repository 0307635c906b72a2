"""The whole flow on small subjects: what is measured, what is resumed, what is refused, and that nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray

import eyechart
from eyechart.claims.asking import asked_of
from eyechart.claims.table import CLAIMS
from eyechart.engines.shard import examine_shard
from eyechart.errors import RunFolderError, UsageError
from eyechart.measures import measures
from eyechart.run import Run
from eyechart.tally import Tally
from eyechart.tracing import pieces
from eyechart.tracing.taps import Tap
from tests.cases import inside
from tests.small_subjects import SMALL, write_subjects

IMAGES = 68  # 17 blocks of 4
FEW_IMAGES = 40  # 10 blocks of 4, and four a class: the fewest that all measures of this pair take


#: Enough for what is tested here, of every kind of tally; all measures together take half a minute a run.
CORE = ["recognition", "cka", "attention_distance", "skip_ratio", "feature_variance"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs")
    pair = write_subjects(folder, SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eyechart.report.page.render", lambda *how: "<p>drawn elsewhere</p>")
        return eyechart.exam(pair, measures=CORE, limit=IMAGES, out=folder / "pair", keep_shards=True)


def specs(run: Run) -> list[str]:
    return [subject["spec"] for subject in run.plan["subjects"]]


def examined(run: Run, out: Path, **more: Any) -> Run:
    """The same exam again."""
    return eyechart.exam(specs(run), measures=CORE, limit=IMAGES, out=out, **more)


def assert_same_findings(one: Run, other: Run, exactly: bool = True) -> None:
    assert list(one.findings) == list(other.findings)
    for name in one.findings:
        if exactly:
            xarray.testing.assert_identical(one.findings[name], other.findings[name])
        else:
            xarray.testing.assert_allclose(one.findings[name], other.findings[name], rtol=2e-4, atol=2e-5)


def test_an_exam_leaves_everything_in_its_folder(tmp_path: Path) -> None:
    pair = write_subjects(tmp_path, SMALL)
    run = eyechart.exam(pair, limit=FEW_IMAGES, effort="quick", out=tmp_path / "all")
    assert {path.name for path in run.path.iterdir()} == {
        "plan.json",
        "findings",
        "verdicts.json",
        "summary.csv",
        "report.html",
        "checksums.json",
    }
    left_out = {entry["measure"] for entry in run.plan["left_out"]}
    not_in_seconds = {"hessian", "landscape", "corruption", "lesion"}
    not_of_this_pair = {"trajectory", "mc_dropout", "depth_similarity"}
    assert left_out == not_in_seconds | not_of_this_pair | {"token_place", "matching"}  # which need larger blocks
    blamed = {entry["measure"] for entry in run.plan["left_out"] if "--effort" in entry["reason"]}
    assert blamed == not_in_seconds - {"hessian"}  # which would need more images at any effort
    assert list(run.findings) == [name for name in measures() if name not in left_out]
    assert {verdict.claim for verdict in run.verdicts} == set(CLAIMS)
    tested = {verdict.claim for verdict in run.verdicts if verdict.verdict != "not tested"}
    rows = list(run.quantities())
    numbers = {name: {row["quantity"] for row in rows if row["measure"] == name} for name in run.findings}
    asked = asked_of(run.measures.values())
    assert tested == {
        test.claim
        for test in asked
        if all(part.quantity in numbers.get(part.measure or test.measure, ()) for part in test.parts)
    }
    assert 20 < len(tested) < len({test.claim for test in asked})  # the pair has no Swin, no GAP twin, no hybrid


def test_every_number_has_an_interval_around_it(run: Run) -> None:
    for finding in run.findings.values():
        for name, values in finding.data_vars.items():
            if f"{name}_low" not in finding:
                continue
            known = np.isfinite(values.values)
            low, high = finding[f"{name}_low"].values[known], finding[f"{name}_high"].values[known]
            assert (low <= values.values[known] + 1e-12).all(), name
            assert (high >= values.values[known] - 1e-12).all(), name


def test_the_plain_forward_pass_gives_the_same_numbers(run: Run) -> None:
    """Accuracy by hand, and CKA of two block outputs taken by ordinary hooks."""
    from eyechart.images import open_images, plan_batches
    from eyechart.methods.hsic import gram, hsic_table

    source = open_images("sample")
    plan = plan_batches(source, limit=IMAGES)
    vit, resnet = (eyechart.load_subject(spec) for spec in specs(run))
    seen: dict[str, torch.Tensor] = {}
    inside(vit.module).blocks[4].register_forward_hook(
        lambda module, args, output: seen.update(vit=output.detach().clone())
    )
    inside(resnet.module).layer1[1].register_forward_hook(
        lambda module, args, output: seen.update(resnet=output.detach().clone())
    )
    tables, right = [], 0
    for index in range(plan.blocks):
        pictures = source.pictures(plan.batch(index).images)
        with torch.no_grad():
            guess = vit.module(vit.prepare(pictures)).argmax(1)
            resnet.module(resnet.prepare(pictures))
        right += int((guess.numpy() == plan.batch(index).labels).sum())
        tables.append(hsic_table(torch.stack([gram(seen["vit"]), gram(seen["resnet"])])))
    mean = torch.stack(tables).mean(0)
    expected = float(mean[0, 1] / (mean[0, 0] * mean[1, 1]).sqrt())
    cka = run.findings["cka"]
    found = cka.cka.sel(site=f"{vit.name}/blocks.4", other_site=f"{resnet.name}/layer1.1")
    assert float(found) == pytest.approx(expected, abs=1e-6)
    accuracy = run.findings["recognition"].accuracy.sel(subject=vit.name)
    assert float(accuracy) == pytest.approx(right / IMAGES)


def test_the_same_call_again_computes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a shard was computed again")

    monkeypatch.setattr("eyechart.engines.shard.examine_shard", refuse)
    assert_same_findings(run, examined(run, run.path, keep_shards=True))


@pytest.mark.usefixtures("no_charts")
def test_a_stopped_run_goes_on_and_ends_the_same(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def stop_after_three(*args: Any, **kwargs: Any) -> dict[str, Tally]:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(1)
        return examine_shard(*args, **kwargs)

    monkeypatch.setattr("eyechart.engines.shard.examine_shard", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        examined(run, tmp_path / "stopped")
    assert len(list((tmp_path / "stopped" / "shards").iterdir())) == 3
    counted: list[int] = []

    def count(*args: Any, **kwargs: Any) -> dict[str, Tally]:
        counted.append(1)
        return examine_shard(*args, **kwargs)

    monkeypatch.setattr("eyechart.engines.shard.examine_shard", count)
    resumed = examined(run, tmp_path / "stopped")
    assert len(counted) == len(run.plan["batches"]["shards"]) - 3
    assert_same_findings(run, resumed)


@pytest.mark.usefixtures("no_charts")
def test_a_damaged_shard_is_computed_again(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "again")
    broken = Run(tmp_path / "again").shard_path(2)
    broken.write_bytes(broken.read_bytes()[:100])
    again = examined(run, tmp_path / "again", keep_shards=True)
    assert again.read_tallies(2) is not None
    assert_same_findings(run, again)


@pytest.mark.usefixtures("no_charts")
def test_a_finished_run_is_small_and_its_page_is_made_anew_without_its_shards(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run keeps are findings; only where these are lost is anything computed again."""
    shutil.copytree(run.path, tmp_path / "run")
    small = examined(run, tmp_path / "run")
    assert not (small.path / "shards").exists()
    assert_same_findings(run, small)

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a shard was computed again")

    (small.path / "report.html").unlink()
    (small.path / "summary.csv").write_text("damaged")
    with monkeypatch.context() as patch:
        patch.setattr("eyechart.engines.shard.examine_shard", refuse)
        again = examined(run, small.path)
    assert again.finished
    assert (again.path / "summary.csv").read_text() == (run.path / "summary.csv").read_text()
    (small.path / "findings" / "cka.nc").unlink()
    assert_same_findings(run, examined(run, small.path))


@pytest.mark.usefixtures("no_charts")
def test_shards_from_elsewhere_are_finished_here(run: Run, tmp_path: Path) -> None:
    """Two machines with half of the shards each: only plan.json and the shards are copied, then the run is finished."""
    from eyechart.exam import finish

    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(run.path / "plan.json", copy)
    shutil.copytree(run.path / "shards", copy / "shards")
    finish(Run(copy))
    assert_same_findings(run, Run(copy))
    Run(copy).shard_path(0).unlink()
    with pytest.raises(RunFolderError, match=r"1 of \d+ shards are missing"):
        finish(Run(copy))


@pytest.mark.usefixtures("no_charts")
def test_when_memory_runs_out_only_the_micro_batch_is_halved(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, pieces = Tap.run, Tap._run
    sizes: list[int] = []

    def small_memory(self: Tap, images: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if len(images) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self, images, *args, **kwargs)

    def count(self: Tap, images: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(images))
        return pieces(self, images, *args, **kwargs)

    monkeypatch.setattr(Tap, "run", small_memory)
    monkeypatch.setattr(Tap, "_run", count)
    cut = examined(run, tmp_path / "cut")
    assert max(sizes) == 2
    assert_same_findings(run, cut, exactly=False)


def test_the_cpu_allocator_s_words_are_understood() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert pieces.out_of_memory(caught.value)
    assert not pieces.out_of_memory(RuntimeError("shapes do not fit"))


def test_another_question_never_mixes_with_old_shards(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="another exam"):
        examined(run, run.path, seed=1)
    with pytest.raises(RunFolderError, match="another exam"):
        eyechart.exam([specs(run)[0], "zoo:resnet@random"], measures=CORE, limit=IMAGES, out=run.path)
    assert len(list((run.path / "shards").iterdir())) == len(run.plan["batches"]["shards"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "64 of 96 images (sized by \u2011\u2011effort\u00a0quick)"),
        ({"shift.images": 16}, "16 of 96 images (as asked for)"),
    ],
)
def test_the_page_says_who_chose_the_number_of_images(
    options: dict[str, int], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(measures()["shift"]), "budget", {"quick": 1e-6})  # so that it gets the fewest it takes
    run = eyechart.exam("zoo:resnet", limit=96, measures="shift", effort="quick", out=tmp_path / "run", options=options)
    assert told in (run.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_charts")
def test_one_subject_and_one_measure_need_no_list(tmp_path: Path) -> None:
    run = eyechart.exam("zoo:resnet", limit=8, measures="recognition", out=tmp_path / "one")
    assert (run.scene.subjects, list(run.findings)) == (("zoo:resnet",), ["recognition"])


@pytest.mark.usefixtures("no_charts")
def test_overwrite_begins_anew_but_only_in_a_run_folder(tmp_path: Path) -> None:
    out = tmp_path / "o"
    eyechart.exam(["zoo:resnet"], limit=8, measures=["recognition"], out=out)
    (out / "mine.png").write_text("keep me")
    again = eyechart.exam(["zoo:resnet"], limit=12, measures=["recognition"], out=out, overwrite=True)
    assert again.scene.images == 12
    assert (out / "mine.png").exists()
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "mine.txt").write_text("keep me")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="not empty and not a run folder"):
            eyechart.exam(["zoo:resnet"], limit=8, measures=["recognition"], out=photos, overwrite=overwrite)
    assert [path.name for path in photos.iterdir()] == ["mine.txt"]
    with pytest.raises(UsageError, match="is a file"):
        eyechart.exam(["zoo:resnet"], limit=8, measures=["recognition"], out=photos / "mine.txt")


def test_no_space_left_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    real = Path.write_bytes

    def full_disk(path: Path, data: bytes) -> int:
        if "00002" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(RunFolderError, match=r"No space left on device.*what was finished before is kept"):
        eyechart.exam(["zoo:resnet"], limit=IMAGES, measures=["recognition"], out=tmp_path / "full")
    assert [path.name for path in sorted((tmp_path / "full" / "shards").iterdir())] == [
        "00000.safetensors",
        "00001.safetensors",
    ]
