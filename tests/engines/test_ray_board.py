"""Who does what on a cluster, and that nothing hangs on knowing it. `test_engines.py` has a real cluster."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eyechart.engines import ray_board, ray_cluster
from eyechart.engines.ray_board import ALL, SUM, Board, Entry
from tests.engines.test_clock import PLAN


class Store(dict[str, bytes]):
    """As the one that Ray has."""

    def _internal_kv_put(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def _internal_kv_get(self, key: bytes) -> bytes | None:
        return self.get(key.decode())

    def _internal_kv_list(self, prefix: str) -> list[bytes]:
        return [key.encode() for key in self if key.startswith(prefix)]

    def _internal_kv_del(self, prefix: str, *, del_by_prefix: bool) -> None:
        for key in [key for key in self if key.startswith(prefix)]:
            del self[key]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(ray_board, "_store", lambda: made)
    monkeypatch.setattr(ray_board, "EVERY", 0.01)
    return made


def begun(board: Board, shard: int, part: str, worker: str, words: str = "") -> Entry:
    entry = Entry(board.name, shard, part, worker)
    entry.say(words)
    with entry:
        pass
    return entry


def test_an_entry_says_the_step_that_its_task_is_at(store: Store) -> None:
    board = Board(16, [["vit", "resnet"]])
    with Entry(board.name, 1, ALL, "one/17") as entry, entry.doing(PLAN.batch(1), "resnet", "shift"):
        until = time.monotonic() + 5
        while "shift" not in board.lines()[0] and time.monotonic() < until:
            time.sleep(0.01)
        assert board.lines() == ["one/17  shard 2 of 16: images 11 to 20: resnet, shift"]
    board.ended(1, ALL, "one/17")
    assert board.lines() == ["one/17  idle, 1 task done"]
    assert not store


def test_groups_are_named_and_what_was_lost_is_begun_again(store: Store) -> None:
    board = Board(4, [["vit"], ["resnet", "swin"]])
    assert board.lines() == ["waiting for the first worker"]
    begun(board, 0, "1", "one/1", "loading subjects")
    begun(board, 0, "0", "two/2")
    assert board.lines() == [
        "one/1  shard 1 of 4: group 2 of 2 (resnet and 1 more), loading subjects",
        "two/2  shard 1 of 4: group 1 of 2 (vit), begins",
    ]
    board.ended(0, "0", "two/2")
    begun(board, 0, "1", "two/2", "loading subjects")  # one/1 is dead
    assert board.lines() == [
        "two/2  shard 1 of 4: group 2 of 2 (resnet and 1 more), loading subjects; attempt 2",
        "one/1  lost, 0 tasks done",
    ]
    board.ended(0, "1", "two/2")
    begun(board, 0, SUM, "three/3")
    assert "three/3  shard 1 of 4: adding up" in board.lines()
    begun(board, 0, "0", "three/3")  # what two/2 saw went with its machine, and has to be seen again
    board.ended(0, SUM, "three/3")
    assert not store
    assert ray_board.told(board.tasks_done, board.repeated).endswith("three/3: 1 task; 2 were begun again")


def test_a_board_that_fails_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_reach() -> Any:
        raise ConnectionError("the head does not answer")

    monkeypatch.setattr(ray_board, "_store", out_of_reach)
    board = Board(2, [["vit"]])
    begun(board, 0, ALL, "one/17")
    board.ended(0, ALL, "one/17")
    assert board.lines() == ["one/17  idle, 1 task done"]
    board.close()


def test_a_task_does_not_wait_for_a_board_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_board, "_store", lambda: time.sleep(3))
    monkeypatch.setattr(ray_board, "PATIENCE", 0.05)
    began = time.monotonic()
    begun(Board(2, [["vit"]]), 0, ALL, "one/17")
    assert time.monotonic() - began < 2


def test_tasks_say_their_steps_at_the_board(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster a short task may end before anybody looks."""
    told: list[str] = []

    class Ready:
        def look(self, shard: int, measures: object, scene: object, clock: Entry) -> list[tuple[object, object]]:
            with clock.doing(PLAN.batch(shard), "resnet", "shift"):
                told.append(clock.words)
            return []

        compute = look

    monkeypatch.setattr(ray_cluster, "made_ready", lambda *args, **options: Ready())
    monkeypatch.setattr("eyechart.engines.plan.scene_of", lambda asked: None)
    monkeypatch.setattr("eyechart.measures.planned_measures", lambda entries: [])
    monkeypatch.setattr("eyechart.shard_files.pack_shard", lambda *args: b"")
    asked: Any = {"measures": [], "question": ""}
    again: Any = None
    list(ray_cluster.look_at_shard(asked, "", again, 1, 1, "board", "0", [0]))
    ray_cluster.compute_shard(asked, "", again, 1, 1, "board")
    assert told == ["images 11 to 20: resnet, shift"] * 2
