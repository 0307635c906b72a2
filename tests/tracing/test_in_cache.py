"""Some images at a time give what all of them give."""

from __future__ import annotations

import pytest
import torch

from eyechart.tracing import in_cache
from eyechart.tracing.in_cache import by_images


@pytest.mark.parametrize("images", [1, 5, 6])
def test_images_are_worked_on_some_at_a_time_and_stay_in_order(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_cache, "AT_ONCE", 2 * 12)
    sizes: list[int] = []

    def product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        sizes.append(len(one))
        return (one * other).sum((1, 2))

    one, other = torch.randn(images, 3, 4), torch.randn(images, 3, 4)
    torch.testing.assert_close(by_images(product, one, other), (one * other).sum((1, 2)))
    assert max(sizes) <= 2


def test_an_image_that_is_too_large_is_worked_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_cache, "AT_ONCE", 1)
    assert by_images(lambda part: part.sum(1), torch.ones(3, 4)).tolist() == [4, 4, 4]


def test_an_accelerator_gets_all_images_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_cache, "AT_ONCE", 1)
    sizes: list[int] = []

    def seen(part: torch.Tensor) -> torch.Tensor:
        sizes.append(len(part))
        return part.sum(1)

    assert by_images(seen, torch.ones(3, 4, device="meta")).shape == (3,)
    assert sizes == [3]
