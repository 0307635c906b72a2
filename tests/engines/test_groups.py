"""Subjects in groups, each in a worker of its own: what a worker makes ready is its part of the driver's exam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import nn

import eyechart
from eyechart.engines import ray_cluster
from eyechart.engines.ray_cluster import groups_of, made_ready
from eyechart.engines.shard import Seen
from eyechart.errors import EngineError
from eyechart.subjects.load import each_subject, load_subject
from tests.engines.test_engines import asked
from tests.small_subjects import TINY, write_subjects

pytestmark = pytest.mark.all_draws


def linear(width: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, width))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(images.mean((2, 3)))


def test_a_group_has_as_many_subjects_as_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [10, 10, 40, 10]  # each output has 193 weights of 4 bytes
    subjects = [load_subject(linear(width), input_size=8) for width in sizes]
    assert groups_of(subjects) == [[0, 1, 2, 3]]
    monkeypatch.setattr(ray_cluster, "ROOM", 20 * 193 * 4)
    assert groups_of(subjects) == [[0, 1], [2], [3]]  # one that has no room at all is alone


def test_a_subject_is_called_alike_where_others_are_not_loaded() -> None:
    given: list[Any] = [Small(), "mine=zoo:vit@/no/such/file.safetensors", Small(), Small()]
    assert [subject.name for subject in each_subject(given, [2, 3])] == ["Small#2", "Small#3"]
    with pytest.raises(eyechart.EyechartError, match=r"no/such/file"):
        list(each_subject(given))


@pytest.fixture
def fresh_worker() -> Iterator[None]:
    ray_cluster._prepared.clear()
    yield
    ray_cluster._prepared.clear()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_subjects(tmp_path_factory.mktemp("weights"), TINY)[:2]


def with_other_weights(plan: Mapping[str, Any], place: int) -> dict[str, Any]:
    subjects = [dict(subject) for subject in plan["subjects"]]
    subjects[place]["weights"] = "0" * 64
    return {**plan, "subjects": subjects}


def test_a_worker_loads_its_group_and_compares_that_alone(weights: list[str], fresh_worker: None) -> None:
    again, threads = asked(weights, ["recognition", "head_subsets"]), torch.get_num_threads()
    plan = again().plan
    assert [entry["name"] for entry in plan["measures"]] == ["recognition", "head_subsets"]  # the second needs both
    version = eyechart.__version__
    ready = made_ready(with_other_weights(plan, 0), version, again, threads, [1])
    assert [subject.name for subject in ready.subjects] == [plan["subjects"][1]["name"]]
    assert ready.plan["measures"] == plan["measures"]
    assert made_ready(plan, version, again, threads, [1]) is ready
    other = made_ready(plan, version, again, threads, [0])
    assert list(ray_cluster._prepared.values()) == [other]  # memory is that of one group
    ray_cluster._prepared.clear()
    with pytest.raises(EngineError, match=r"would not compute what the driver asks for: there the weights of .* are"):
        made_ready(with_other_weights(plan, 1), version, again, threads, [1])


def test_what_is_sent_takes_nothing_else_along() -> None:
    large = torch.arange(1000.0).reshape(10, 100)
    seen = Seen({"a": {"block": {"view": large[:, :3].T}}}, {"m": {"a": {"result": large[0, 5:7]}}})
    sent = seen.compact()
    view, result = sent.views["a"]["block"]["view"], sent.experiments["m"]["a"]["result"]
    assert torch.equal(view, large[:, :3].T)
    assert view.untyped_storage().nbytes() == 30 * 4
    assert result.tolist() == [5.0, 6.0]
    assert result.untyped_storage().nbytes() == 2 * 4
    both = Seen.together([sent, Seen({"b": {}}, {"m": {"b": {}}, "n": {"b": {}}})])
    assert list(both.views) == ["a", "b"]
    assert {name: list(results) for name, results in both.experiments.items()} == {"m": ["a", "b"], "n": ["b"]}
