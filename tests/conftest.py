"""Tests run on one thread: two threads beside a busy neighbour were 20 times slower."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


SLOW_FILES = (
    "test_exam.py",
    "test_odd_families.py",
    "test_nulls.py",
    "test_page.py",
    "test_families.py",
    "test_more_families.py",
    "test_cli.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: with one of them last, one of the two workers would wait for the other for minutes."""
    items.sort(key=lambda item: SLOW_FILES.index(item.path.name) if item.path.name in SLOW_FILES else len(SLOW_FILES))
