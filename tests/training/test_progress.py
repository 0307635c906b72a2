"""A bar for each training on a terminal, plain lines elsewhere."""

import pytest

from eyechart.training.progress import board

EVENTS = (
    {"run": "vit", "steps": 0, "total": 10, "notice": "Continuing after epoch 3 of 5."},
    {"run": "vit", "steps": 5, "total": 10, "line": "epoch 4/5 loss 1.5"},
    {"run": "resnet", "steps": 10, "total": 10},
    {"run": "resnet", "error": "The loss was not finite."},
)


def say() -> None:
    with board(["vit", "resnet"]) as report:
        for event in EVENTS:
            report(event)


def test_plain_lines_are_sentences_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    say()
    assert capsys.readouterr().err.splitlines() == [
        "vit: Continuing after epoch 3 of 5.",
        "vit: epoch 4/5 loss 1.5",
        "eyechart: resnet: The loss was not finite.",
    ]


def test_a_terminal_has_a_bar_for_each(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    say()
    shown = capsys.readouterr().err
    assert "50%" in shown
    assert "100%" in shown
    assert "epoch 4/5 loss 1.5" in shown
    assert "eyechart: resnet: The loss was not finite." in shown
