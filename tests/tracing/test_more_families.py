"""The other half of the families."""

from __future__ import annotations

import pytest

from tests.tracing.each_family import (  # noqa: F401 - tests and fixtures of this file
    HALVES,
    Examined,
    examine,
    same_attention_back_end,
    test_a_grid_points_at_the_right_place,
    test_anatomy_survives_json,
    test_architecture_in_one_word,
    test_attentions_are_those_of_the_source,
    test_junctions_are_those_of_the_source,
    test_tapping_changes_no_bit_of_the_output,
    test_weights_times_values_is_the_attention_s_own_output,
    test_what_is_not_served_is_said,
)


@pytest.fixture(scope="module", params=HALVES[1], ids=[family.name for family in HALVES[1]])
def examined(request: pytest.FixtureRequest) -> Examined:
    return examine(request.param)
