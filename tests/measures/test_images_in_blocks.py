"""What is left over of the blocks is no image of a measure that compares images within blocks."""

from __future__ import annotations

import pytest

from eyechart.measures import find_measure
from tests.measures.on_subjects import finding_of


@pytest.mark.parametrize("name", ["cka", "localisation", "head_subsets"])
def test_only_images_in_whole_blocks_are_counted(name: str) -> None:
    """Two of these said that they had used all images of the exam."""
    finding = finding_of(find_measure(name), "zoo:vit", "zoo:resnet", images=37, block=16)
    assert finding.attrs["images"] == 32
