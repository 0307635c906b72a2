"""A list of subjects: what it gives, and one sentence for each mistake."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import timm
from click.testing import CliRunner

from eyechart.cli import main
from eyechart.errors import EyechartError, UsageError
from eyechart.subjects.list_file import MOST_SUBJECTS, listed_subjects


def written(folder: Path, text: str) -> Path:
    path = folder / "list.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_specs_and_labels_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """
        [[subject]]
        spec = "zoo:vit"
        [[subject]]
        spec = "zoo:vit@runs/lr=0.1/vit.safetensors"
        label = " seed 0 "
        [[subject]]
        spec = "mine=zoo:resnet:48px"
    """
    wanted = ["zoo:vit", "seed 0=zoo:vit@runs/lr=0.1/vit.safetensors", "mine=zoo:resnet:48px"]
    assert listed_subjects(written(tmp_path, text)) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[subject", "is not TOML (Expected ']]'"),
        ("a = " + "[" * 5000, "is not TOML ("),
        ("a = " + "9" * 5000, "is not TOML (Exceeds the limit"),
        ("", "lists no subjects; each is written as [[subject]]"),
        ("subject = []", "lists no subjects"),
        ('subject = "zoo:vit"', "lists no subjects"),
        ('[[subjects]]\nspec = "zoo:vit"', "'subjects' is not known there; a list of subjects has [[subject]]"),
        ("[[subject]]\nlabel = 'a'", "subject 1 has no spec; it is written as"),
        ("[[subject]]\nspec = 3", "subject 1 has no spec"),
        ("subject = ['zoo:vit']", "subject 1 has no spec"),
        (
            "[[subject]]\nspec='zoo:vit'\n[[subject]]\nspec='zoo:vit'\nname='a'",
            "subject 2 has the key 'name', which is",
        ),
        ("[[subject]]\nspec = 'zoo:vit:99999px'", "subject 1: An input size has at most"),
        ("[[subject]]\nspec = 'zoo:vit'\nlabel = 3", "subject 1: The label of a subject is a text; got 3."),
        ("[[subject]]\nspec = 'zoo:vit'\nlabel = 'a|b'", "subject 1: The label of a subject has 1 to 60"),
        ("[[subject]]\nspec = 'zoo:vit'\nlabel = 'a:b'", "a label has none of = : @ / and \\; got 'a:b'."),
        ("[[subject]]\nspec = 'a=zoo:vit'\nlabel = 'b'", "its spec has the label 'a' already; drop one."),
        ("[[subject]]\nspec = 'zoo:vit'\n" * (MOST_SUBJECTS + 1), "lists 1001 subjects; an exam takes at most 1000."),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(EyechartError) as error:
        listed_subjects(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--subjects-from takes a text file; .* cannot be read"):
        listed_subjects(tmp_path / "none.toml")


def test_the_command_line_comes_first_and_the_list_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exam(subjects: Any, *args: Any, **options: Any) -> Any:
        raise UsageError(f"It would examine {', '.join(subjects)}.")

    monkeypatch.setattr(importlib.import_module("eyechart.exam"), "exam", exam)
    path = written(tmp_path, '[[subject]]\nspec = "zoo:vit"\nlabel = "mine"')
    words = ["exam", "zoo:resnet", "--subjects-from", str(path)]
    assert "It would examine zoo:resnet, mine=zoo:vit." in CliRunner().invoke(main, words).output
    assert "It would examine mine=zoo:vit." in CliRunner().invoke(main, [*words[:1], *words[2:]]).output


def test_the_list_of_large_checkpoints_names_weights_that_timm_has() -> None:
    listed = listed_subjects(Path(__file__).parents[2] / "scripts" / "large_scale.toml")
    names = [spec.partition("timm:")[2] for spec in listed]
    assert set(names) <= set(timm.list_pretrained())
    labels = {spec.partition("=")[0] for spec in listed}
    assert {
        "ViT-S-16 1k",
        "ViT-S-16 21k",
        "ViT-B-16 1k",
        "ViT-B-16 21k",
    } <= labels  # the pairs that C16 and C38 compare
