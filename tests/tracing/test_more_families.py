"""The other half of the families."""

from __future__ import annotations

import pytest

from tests.tracing.each_family import *  # noqa: F403 - its tests and fixtures are this file's
from tests.tracing.each_family import HALVES, Examined, examine


@pytest.fixture(scope="module", params=HALVES[1], ids=[family.name for family in HALVES[1]])
def examined(request: pytest.FixtureRequest) -> Examined:
    return examine(request.param)
