"""Where a page comes from: the command, the images, the weights, the versions."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eyechart.charts.numbers import count


def fact(name: str, text: str, code: bool = False, words: bool = False) -> dict[str, Any]:
    """`words` are said in both languages; names and hashes have no other."""
    return {"name": name, "text": text, "code": code, "words": words}


def options(chosen: Mapping[str, Any]) -> str:
    """
    >>> options({"limit": None, "train": "", "recalibrate": True, "asked_for": False, "seed": 0})
    'recalibrate yes, asked for no, seed 0'
    """
    words = {True: "yes", False: "no"}
    shown = {key: words[value] if isinstance(value, bool) else value for key, value in chosen.items()}
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in shown.items() if value not in (None, ""))


def as_typed(command: Sequence[str]) -> str:
    """A command as one would type it again.

    >>> as_typed(["/opt/site-packages/eyechart/__main__.py", "exam", "a b"]), as_typed(["/opt/bin/eyechart", "exam"])
    ("python -m eyechart exam 'a b'", 'eyechart exam')
    """
    path, *rest = command
    name = ["python", "-m", Path(path).parent.name] if Path(path).name == "__main__.py" else [Path(path).name]
    return shlex.join([*name, *rest])


def provenance(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    made, images, batches = plan["provenance"], plan["images"], plan["batches"]
    facts = [
        fact("Made", made["made"]),
        fact("Command", as_typed(made["command"]), code=True),
        fact("Question, fingerprint", plan["question"], code=True),
        fact("Images", f"{images['name']}: {count(images['used'])} of {count(images['count'])} images", words=True),
        fact("Images, fingerprint", images["fingerprint"], code=True),
        fact("Blocks and folds", f"blocks of {batches['block']} images, {batches['folds']} folds", words=True),
        fact("Settings", options({key: value for key, value in plan["settings"].items() if key != "asked_for"})),
        fact(
            "Measures",
            "; ".join(
                f"{entry['name']} ({options(entry['options'])})" if options(entry["options"]) else entry["name"]
                for entry in plan["measures"]
            ),
        ),
    ]
    for subject in plan["subjects"]:
        if subject.get("spec", subject["name"]) != subject["name"]:
            facts.append(fact(f"Spec of {subject['name']}", subject["spec"], code=True))
        facts.append(fact(f"Weights of {subject['name']}", subject["weights"], code=True))
        if subject["card"]:
            plain = {key: value for key, value in subject["card"].items() if not isinstance(value, dict | list)}
            text = "; ".join(f"{key}: {value}" for key, value in plain.items())
            facts.append(fact(f"Card of {subject['name']}", text))
    facts.append(fact("Python, machine", f"{made['python']}, {made['machine']}"))
    facts.append(fact("Packages", ", ".join(f"{name} {version}" for name, version in made["packages"].items())))
    return facts
