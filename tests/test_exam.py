"""The whole flow on small subjects: what is measured, what is resumed, what is refused, and that nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from PIL import Image
from torch import nn

import eyechart
from eyechart.claims.asking import asked_of
from eyechart.claims.table import CLAIMS
from eyechart.engines.shard import examine_shard
from eyechart.errors import NotFinite, RunFolderError, UsageError
from eyechart.files import write_atomically
from eyechart.measures import measures
from eyechart.question import seal_of
from eyechart.run import Run
from eyechart.tally import Tally
from eyechart.tracing import pieces
from eyechart.tracing.taps import Tap
from tests import cases
from tests.cases import inside
from tests.small_subjects import SMALL, write_subjects

PAIR = ("zoo:vit", "zoo:resnet")
IMAGES = 68  # 17 blocks of 4
FEW_IMAGES = 40  # 10 blocks of 4, and four a class: the fewest that all measures of this pair take


pytestmark = pytest.mark.usefixtures("few_draws")


#: Enough for what is tested here, of every kind of tally; all measures together take half a minute a run.
CORE = ["recognition", "cka", "attention_distance", "skip_ratio", "feature_variance"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "pair"
    return eyechart.exam(PAIR, measures=CORE, limit=IMAGES, out=out, keep_shards=True)


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
    assert left_out == not_in_seconds | not_of_this_pair | {"token_place"}  # which needs larger blocks
    blamed = {entry["measure"] for entry in run.plan["left_out"] if "--effort" in entry["reason"]}
    assert blamed == not_in_seconds - {"hessian"}  # which would need more images at any effort
    assert list(run.findings) == [name for name in measures() if name not in left_out]
    assert {verdict.claim for verdict in run.verdicts} == set(CLAIMS)
    tested = {verdict.claim for verdict in run.verdicts if verdict.verdict != "not tested"}
    numbers = {name: {row["quantity"] for row in run.quantities() if row["measure"] == name} for name in run.findings}
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
    vit, resnet = (eyechart.load_subject(name) for name in PAIR)
    seen: dict[str, torch.Tensor] = {}
    inside(vit.module).blocks[4].register_forward_hook(
        lambda module, args, output: seen.update(vit=output.detach().clone())
    )
    inside(resnet.module).layer2[1].register_forward_hook(
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
    found = cka.cka.sel(site="zoo:vit/blocks.4", other_site="zoo:resnet/layer2.1")
    assert float(found) == pytest.approx(expected, abs=1e-6)
    accuracy = run.findings["recognition"].accuracy.sel(subject="zoo:vit")
    assert float(accuracy) == pytest.approx(right / IMAGES)


def test_the_same_call_again_computes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a shard was computed again")

    monkeypatch.setattr("eyechart.engines.shard.examine_shard", refuse)
    assert_same_findings(run, eyechart.exam(PAIR, measures=CORE, limit=IMAGES, out=run.path, keep_shards=True))


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
        eyechart.exam(PAIR, measures=CORE, limit=IMAGES, out=tmp_path / "stopped")
    assert len(list((tmp_path / "stopped" / "shards").iterdir())) == 3
    counted: list[int] = []

    def count(*args: Any, **kwargs: Any) -> dict[str, Tally]:
        counted.append(1)
        return examine_shard(*args, **kwargs)

    monkeypatch.setattr("eyechart.engines.shard.examine_shard", count)
    resumed = eyechart.exam(PAIR, measures=CORE, limit=IMAGES, out=tmp_path / "stopped")
    assert len(counted) == len(run.plan["batches"]["shards"]) - 3
    assert_same_findings(run, resumed)


@pytest.mark.usefixtures("no_charts")
def test_a_damaged_shard_is_computed_again(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "again")
    broken = Run(tmp_path / "again").shard_path(2)
    broken.write_bytes(broken.read_bytes()[:100])
    again = eyechart.exam(PAIR, measures=CORE, limit=IMAGES, out=tmp_path / "again", keep_shards=True)
    assert again.read_tallies(2) is not None
    assert_same_findings(run, again)


@pytest.mark.usefixtures("no_charts")
def test_a_finished_run_is_small_and_its_page_is_made_anew_without_its_shards(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run keeps are findings; only where these are lost is anything computed again."""
    shutil.copytree(run.path, tmp_path / "run")
    small = eyechart.exam(PAIR, measures=CORE, limit=IMAGES, out=tmp_path / "run")
    assert not (small.path / "shards").exists()
    assert_same_findings(run, small)

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a shard was computed again")

    (small.path / "report.html").unlink()
    (small.path / "summary.csv").write_text("damaged")
    with monkeypatch.context() as patch:
        patch.setattr("eyechart.engines.shard.examine_shard", refuse)
        again = eyechart.exam(PAIR, measures=CORE, limit=IMAGES, out=small.path)
    assert again.finished
    assert (again.path / "summary.csv").read_text() == (run.path / "summary.csv").read_text()
    (small.path / "findings" / "cka.nc").unlink()
    assert_same_findings(run, eyechart.exam(PAIR, measures=CORE, limit=IMAGES, out=small.path))


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
    cut = eyechart.exam(PAIR, measures=CORE, limit=IMAGES, out=tmp_path / "cut")
    assert max(sizes) == 2
    assert_same_findings(run, cut, exactly=False)


def test_the_cpu_allocator_s_words_are_understood() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert pieces.out_of_memory(caught.value)
    assert not pieces.out_of_memory(RuntimeError("shapes do not fit"))


def test_another_question_never_mixes_with_old_shards(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="another exam"):
        eyechart.exam(PAIR, measures=CORE, limit=IMAGES, seed=1, out=run.path)
    with pytest.raises(RunFolderError, match="another exam"):
        eyechart.exam(["zoo:vit", "zoo:resnet@random"], measures=CORE, limit=IMAGES, out=run.path)
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


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError("gone")

    with pytest.raises(RunFolderError):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "plan.json").write_text("{"), "damaged"),
        (lambda folder: (folder / "plan.json").write_text("[]"), "damaged"),
        (lambda folder: (folder / "plan.json").unlink(), "no plan.json"),
        (lambda folder: without_notices(folder / "plan.json"), "its seal does not fit"),
        (lambda folder: resealed(folder / "plan.json", without_anatomies), "does not have the form that this version"),
        (lambda folder: (folder / "findings" / "cka.nc").write_bytes(b"CDF"), "damaged"),
        (lambda folder: recorded(folder, "findings/cka.nc", b"CDF"), "damaged"),
        (lambda folder: (folder / "verdicts.json").write_text('[{"claim": "C01"}]'), "damaged"),
        (lambda folder: recorded(folder, "verdicts.json", b'[{"claim": "C01"}]'), "damaged"),
    ],
)
def test_a_damaged_run_folder_is_named(run: Run, tmp_path: Path, damage: Callable[[Path], object], words: str) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    damage(copy)
    with pytest.raises(RunFolderError, match=words):
        read_all(copy)


def without_anatomies(plan: Path) -> None:
    whole = json.loads(plan.read_text())
    for subject in whole["subjects"]:
        del subject["anatomy"]
    plan.write_text(json.dumps(whole))


def without_notices(plan: Path) -> None:
    whole = json.loads(plan.read_text())
    plan.write_text(json.dumps(whole | {"notices": []}))


def resealed(plan: Path, edit: Callable[[Path], object]) -> None:
    """Edited by somebody who knows how seals are made."""
    edit(plan)
    whole = json.loads(plan.read_text())
    plan.write_text(json.dumps(whole | {"seal": seal_of(whole)}))


def recorded(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    Run(folder).record([name])


def read_all(folder: Path) -> None:
    run = Run.open(folder)
    len(run.findings), len(run.verdicts), run.scene


def test_a_run_of_another_version_is_refused(run: Run, tmp_path: Path) -> None:
    plan = dict(run.plan, format=99, eyechart="7.0")
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(RunFolderError, match=r"format 99 .eyechart 7\.0"):
        Run.open(tmp_path)


def test_there_is_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="A run folder was expected"):
        Run.open(tmp_path / "nowhere")


# --- subjects and images that are odd ---------------------------------------------------------------------------


@pytest.mark.usefixtures("no_charts")
def test_a_model_without_attention_has_no_attention_distance(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="zoo:resnet has no attention"):
        eyechart.exam(["zoo:resnet"], limit=8, measures=["attention_distance"], out=tmp_path / "a")
    both = eyechart.exam(["zoo:resnet"], limit=8, measures=["attention_distance", "recognition"], out=tmp_path / "b")
    assert list(both.findings) == ["recognition"]
    assert "zoo:resnet has no attention" in both.plan["notices"][0]


def pictures(folder: Path, count: int, classes: int = 0) -> Path:
    generator = np.random.default_rng(0)
    for number in range(count):
        place = folder / (f"class-{number % classes}" if classes else "")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (40, 48, 3), np.uint8)).save(place / f"{number:03d}.png")
    return folder


def test_pictures_without_labels_leave_out_what_needs_them(tmp_path: Path) -> None:
    run = eyechart.exam(["zoo:resnet"], pictures(tmp_path / "photos", 12), CORE, out=tmp_path / "run")
    assert "recognition" not in run.findings
    assert any("recognition was left out" in notice for notice in run.plan["notices"])


def test_one_picture(tmp_path: Path) -> None:
    run = eyechart.exam(PAIR, pictures(tmp_path / "photos", 1), CORE, out=tmp_path / "run")
    assert "cka" not in run.findings
    assert any("at least 4 images" in notice for notice in run.plan["notices"])
    assert np.isnan(run.findings["attention_distance"].distance_low.values).all()
    assert {verdict.verdict for verdict in run.verdicts} == {"undecided", "not tested"}
    assert (run.path / "report.html").exists()


class Unit(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.conv, self.gain = nn.Conv2d(8, 8, 3, padding=1), gain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x).relu() * self.gain * self.gain


class GoesWrong(nn.Module):
    """Three residual units; the branch of the second one overflows."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.units = nn.ModuleList([Unit(1), Unit(1e38), Unit(1)])
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean((2, 3)))


def test_the_first_site_that_is_not_finite_is_named(tmp_path: Path) -> None:
    subject = eyechart.load_subject(GoesWrong(), input_size=32)
    with pytest.raises(NotFinite, match=r"GoesWrong: .*first at units.1 conv junction"):
        eyechart.exam([subject], limit=8, measures=["cka"], out=tmp_path / "run")


def test_a_module_of_one_s_own_beside_a_bundled_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.LazyLinear(4))
    net(torch.zeros(1, 3, 32, 32))
    own = eyechart.load_subject(net, input_size=32)
    run = eyechart.exam(["zoo:vit", own], measures=["cka"], limit=64, out=tmp_path / "run")
    assert set(run.findings["cka"].subject.values) == {"zoo:vit", "Sequential"}
    chart = run.chart("cka").to_dict()
    assert chart["config"]


@pytest.mark.usefixtures("no_charts")
def test_options_are_part_of_the_question(tmp_path: Path) -> None:
    spatial = eyechart.exam(["zoo:vit"], measures=["cka"], options={"cka.readout": "gap"}, limit=64, out=tmp_path / "a")
    whole = eyechart.exam(["zoo:vit"], measures=["cka"], limit=64, out=tmp_path / "b")
    assert spatial.plan["question"] != whole.plan["question"]
    assert float(spatial.findings["cka"].cka[1, 5]) != float(whole.findings["cka"].cka[1, 5])
    with pytest.raises(UsageError, match="takes all, spatial, cls, gap"):
        eyechart.exam(["zoo:vit"], measures=["cka"], options={"cka.readout": "mean"})
    with pytest.raises(UsageError, match="No measure is called 'ckaa'"):
        eyechart.exam(["zoo:vit"], measures=["ckaa"])


def test_a_tally_that_does_not_fit_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eyechart.engines import plan

    monkeypatch.setattr(plan, "LARGEST_TALLY", 10_000)
    run = eyechart.exam(PAIR, measures=["recognition", "cka"], limit=64, out=tmp_path / "run")
    assert list(run.findings) == ["recognition"]
    assert "its tally would take" in run.plan["left_out"][0]["reason"]


def test_nothing_is_decided_on_modules_that_may_be_untrained(tmp_path: Path) -> None:
    """C14 held on fresh modules with 0.000 [0.000, 0.000]; also with classes, where their answers are at chance."""
    torch.manual_seed(0)
    classes = eyechart.load_subject("zoo:vit").classes
    assert classes is not None
    subjects = {
        "fresh vit": eyechart.load_subject(cases.vit(num_classes=10), classes=classes, input_size=32),
        "fresh cnn": eyechart.load_subject(cases.resnet(), input_size=32),
    }
    run = eyechart.exam(subjects, measures="recognition,cka,patch_filters", limit=160, out=tmp_path / "run")
    assert {verdict.verdict for verdict in run.verdicts} <= {"undecided", "not tested"}
    said = " ".join(verdict.reason for verdict in run.verdicts)
    assert "whether fresh cnn is trained is not known" in said
    assert "not clearly above chance for 10 classes" in said or "less than the 80 %" in said
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "training not known" in page
