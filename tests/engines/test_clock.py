"""The time left follows what was measured, and the forecast what is asked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import eyechart
from eyechart.engines import forecast as forecast_room
from eyechart.engines import shard_helper
from eyechart.engines.clock import Clock
from eyechart.engines.workload import Part, Workload
from eyechart.images.plan import plan_order
from eyechart.measure import SPEED, SampledExperiment
from eyechart.measures import measures
from eyechart.scene import Scene
from eyechart.subjects.subject import Subject
from eyechart.terminal import print_forecast
from tests.measures.staging import anatomy, site

PLAN = plan_order(np.zeros(160, np.int64), 160, "", folds=16)  # 16 blocks of 10 images


class Hands:
    """A clock that is set by hand, and what was told."""

    def __init__(self, images: int = 40, flops: float = SPEED) -> None:
        self.now = 100.0
        self.told: list[tuple[str, float, float]] = []
        shift = measures()["shift"]
        assert isinstance(shift, SampledExperiment)
        shift = replace(shift, images=images)
        subject = replace(anatomy("net", [site("b0", depth=0.5), site("b1", depth=1.0)]), flops=flops)
        scene = Scene((subject,), 160, 16, 10, 16, None)
        self.workload = Workload([measures()["feature_variance"], shift], scene, PLAN)
        self.clock = Clock(self.workload, lambda *told: self.told.append(told), now=lambda: self.now)

    def do(self, index: int, of_pass: float, of_shift: float) -> None:
        batch = PLAN.batch(index)
        with self.clock.doing(batch, "net"):
            self.now += of_pass
        with self.clock.doing(batch, "net", "shift"):
            self.now += of_shift
        self.clock.batch_done(batch)


def finishing(clock: Clock) -> float:
    return sum(cost for part, cost in clock.expected.items() if part.kind in ("intervals", "figure", "page"))


def test_experiments_are_expected_on_their_first_images_only() -> None:
    workload = Hands().workload
    experiment = Part("experiment", "shift", "net")
    portions = [workload.portion(experiment, PLAN.batch(index)) for index in range(16)]
    assert portions == [0.25] * 4 + [0.0] * 12
    assert workload.portion(Part("pass", "", "net"), PLAN.batch(9)) == pytest.approx(1 / 16)
    shift = workload.measures[1]
    assert isinstance(shift, SampledExperiment)
    twice = workload.expected({"net": 2.0})[experiment]
    assert twice == 2 * workload.expected()[experiment] == 40 * 2 * shift.passes(workload.scene.anatomies[0])


def test_the_time_left_is_true_though_experiments_come_first() -> None:
    """A pass of a block takes 3 s, an experiment on it 50 s, and nobody knew either: the first block tells."""
    hands = Hands()
    end = finishing(hands.clock)
    for index in range(3):
        hands.do(index, 3.0, 50.0)
        left = (15 - index) * 3.0 + (3 - index) * 50.0
        assert hands.clock.left == pytest.approx(left + end)
    hands.do(3, 3.0, 50.0)
    hands.do(4, 3.0, 0.0)
    assert hands.clock.left == pytest.approx(11 * 3.0 + end)


def test_a_slow_machine_is_known_before_an_experiment_has_begun() -> None:
    hands = Hands()
    expected = dict(hands.clock.expected)
    batch = PLAN.batch(0)
    with hands.clock.doing(batch, "net"):
        hands.now += 5 * expected[Part("pass", "", "net")] / 16
    images = sum(cost for part, cost in expected.items() if part.subject)
    done = expected[Part("pass", "", "net")] / 16
    assert hands.clock.left == pytest.approx(5 * (images - done) + finishing(hands.clock))


def test_what_was_done_before_or_elsewhere_is_not_left() -> None:
    hands = Hands()
    first = [PLAN.batch(index) for index in range(8)]
    whole = hands.clock.left
    hands.now += 1000  # reading shards says nothing about the speed
    hands.clock.already(first)
    passes = hands.clock.expected[Part("pass", "", "net")]
    experiment = hands.clock.expected[Part("experiment", "shift", "net")]
    assert hands.clock.left == pytest.approx(whole - passes / 2 - experiment)
    hands.clock.workers = 4
    hands.clock.last = hands.now
    hands.now += 10
    hands.clock.elsewhere([PLAN.batch(8)])
    assert hands.clock.left == pytest.approx(7 * 10 + finishing(hands.clock))  # 40 s of work each, by four
    assert hands.told[-1][0] == "images: 90 of 160"


def test_what_workers_do_moves_the_time_but_not_the_end() -> None:
    hands = Hands()
    hands.now += 5
    hands.clock.meanwhile(["one/17  loading\nsubjects"])
    assert hands.told[-1] == ("images: 0 of 160\none/17  loading subjects", 5.0, math.inf)  # nobody knows yet
    hands.now += 5
    hands.clock.elsewhere([PLAN.batch(0)])
    _, _, total = hands.told[-1]
    hands.now += 3
    hands.clock.meanwhile(["one/17  idle"])
    assert hands.told[-1][:2] == ("images: 10 of 160\none/17  idle", 13.0)
    assert hands.told[-1][2] == pytest.approx(total)


def test_each_step_is_named_and_seconds_add_up() -> None:
    hands = Hands()
    hands.do(0, 3.0, 5.0)
    words = [what for what, _, _ in hands.told]
    assert words[0] == "images 1 to 10 of 160: net, the shared pass"
    assert words[1] == "images 1 to 10 of 160: net, shift"
    what, gone, total = hands.told[-1]
    assert (what, gone) == ("images: 10 of 160", 8.0)
    assert total == pytest.approx(8.0 + hands.clock.left)
    hands.clock.skip("pass", "experiment")
    done = hands.clock.counting("intervals", ["feature_variance", "shift"])
    for name in ("shift", "feature_variance"):
        hands.now += 2.0
        done(name)
    assert hands.told[-1][0] == "intervals: 2 of 2 measures"
    hands.clock.skip("figure")
    hands.clock.counting("figure", ["shift"])("shift")
    what, gone, total = hands.told[-1]
    assert what == "writing the page"
    assert total - gone > 0.1  # "about 0:00 left" stood there for half a minute
    hands.clock.skip("page")
    assert hands.clock.left == 0


def test_the_forecast_follows_the_measured_pass_and_the_plan() -> None:
    question = {"subjects": "zoo:resnet", "measures": "recognition,shift", "limit": 64, "effort": "quick"}
    cost = eyechart.forecast(**question)  # type: ignore[arg-type]
    recognition, shift = cost.rows
    assert (recognition.name, recognition.shares, recognition.images) == ("recognition", True, 64)
    passes = 5.0  # the picture and four shifts
    assert shift.seconds > shift.images * passes * cost.pass_seconds["zoo:resnet"] > 0
    assert cost.seconds == pytest.approx(cost.shared_seconds + recognition.seconds + shift.seconds)
    assert cost.memory is not None
    assert cost.memory > 10_000_000
    assert "zoo:resnet" in cost.method


def test_the_forecast_times_passes_as_the_exam_would_run_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads of a small subject wait for each other on a busy machine: hours were foretold for two minutes."""
    threads: list[int] = []
    bare = forecast_room.bare_seconds

    def timed(subject: Subject, images: torch.Tensor) -> float:
        threads.append(torch.get_num_threads())
        return bare(subject, images)

    monkeypatch.setattr(forecast_room, "bare_seconds", timed)
    monkeypatch.setattr(forecast_room, "ENOUGH", 0.01)
    monkeypatch.setattr(shard_helper, "WORTH", 1e-6)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        cost = eyechart.forecast("zoo:resnet", measures="recognition", limit=64)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {1}
    assert cost.processes == 2
    assert cost.seconds == pytest.approx((cost.shared_seconds + cost.rows[0].seconds) / 2)


def test_the_forecast_names_each_reason_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the plan will: ten nearly alike sentences stood below the table."""
    monkeypatch.setattr(forecast_room, "ENOUGH", 0.01)
    cost = eyechart.forecast("zoo:resnet", measures="recognition", limit=64)
    print_forecast(replace(cost, left_out={"probes": "no labels.", "cka": "one image.", "few_shot": "no labels."}))
    said = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert said == ["probes, few_shot would be left out: no labels.", "cka would be left out: one image."]
