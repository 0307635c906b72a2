"""Scores with known answers."""

import pytest
import torch
from torch import nn

from eyechart.training.augment import Normalisation
from eyechart.training.evaluation import calibration_error, evaluate, score


def test_error_and_nll_of_given_logits() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    scores = score(logits, torch.tensor([0, 1, 1]))
    assert scores.error == pytest.approx(1 / 3)
    assert scores.nll == pytest.approx(float(nn.functional.cross_entropy(logits, torch.tensor([0, 1, 1]))))


def test_calibration_error_equals_a_loop_over_bins() -> None:
    torch.manual_seed(0)
    confidence = torch.rand(500).double()
    confidence[:3] = torch.tensor([0.0, 1.0, 3 / 10])
    right = (confidence * 10).floor() % 2 == 0  # neighbouring bins err to opposite sides, so a shifted bin shows
    expected = 0.0
    for k in range(10):
        inside = (confidence > k / 10) & (confidence <= (k + 1) / 10)
        inside |= (confidence == 0) & (k == 0)
        if inside.any():
            expected += float((right[inside].double().mean() - confidence[inside].mean()).abs() * inside.sum() / 500)
    assert calibration_error(confidence, right) == pytest.approx(expected, abs=1e-9)


def test_evaluate_uses_eval_mode_all_images_and_restores_the_mode() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(12, 3)).train()
    images = torch.randint(0, 256, (25, 3, 2, 2), dtype=torch.uint8)
    labels = torch.randint(0, 3, (25,))
    scores = evaluate(module, images, labels, Normalisation((0.5,) * 3, (0.25,) * 3), batch=10)
    assert module.training
    with torch.no_grad():
        logits = module.eval()((images / 255 - 0.5) / 0.25)
    assert scores.nll == pytest.approx(float(nn.functional.cross_entropy(logits, labels)), abs=1e-5)


def test_scoring_draws_no_random_number_of_the_training() -> None:
    class Restless(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.randn(len(images), 3)

    images, labels = torch.zeros(20, 3, 2, 2, dtype=torch.uint8), torch.zeros(20, dtype=torch.long)
    torch.manual_seed(5)
    expected = torch.rand(3)
    scores = []
    for seed in (6, 5):
        torch.manual_seed(seed)
        scores.append(evaluate(Restless(), images, labels, Normalisation((0.5,) * 3, (0.25,) * 3)))
    assert scores[0] == scores[1]
    assert torch.equal(torch.rand(3), expected)
