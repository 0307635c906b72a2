"""A study as data, read from its TOML file. No torch here.

title, question, row      what it asks, and its row of the run list
data, seeds, [common]     settings that all trainings share; settings are those of `eyechart train`
[[arm]]                   a name, settings of its own, and `seeds` where it has more than the others; or `borrow`, the
                          study whose arm of that name it is: what is recorded there counts here. `data` where it is
                          not the study's; `from_arm`, the arm with whose weights of equal seed its training begins
[[exam]]                  which arms are examined, on which images, by which measures; `together` where a measure
                          compares arms, which are then seen side by side, seed by seed; `next_seed` names those that
                          come along once more, as their next seed: the ceiling of what two trainings can share,
                          taken among `seeds` where an arm has more than the others;
                          `judged = false` where no claim of an exam is about such arms: for contrasts alone
[[contrast]]              a number made of one quantity of several arms with equal seed: a weighted sum (`weights`), or
                          the slope over a number that each arm has (`per_doubling_of`, `per_unit_of`), less another
                          slope (`less_per_doubling_of`). A quantity of two arms is asked for as "one | other", that
                          of two seeds of an arm as "one | one, next seed". `chosen` names the best of several arms, as
                          told by the other seeds; with `every_seed` it counts with all seeds that it has itself.
                          `each_pair_of` makes a contrast of every two of these arms;
                          `ranks` is a rank correlation over arms, with a number each has or with another quantity.
                          `design` names a table of factors: `effect_of` is what one of them does, the others held,
                          `correlated_with` a partial correlation over arms with another quantity, `holding` some.
                          `paired` where trainings of equal seed share what they began with: each seed gives one sum;
                          `added = "after the runs"` where no claim asks for it and its numbers were known
[design.NAME]             how much of each factor every arm has (`arms`), and which count by `doublings`
[[claim]]                 what a claim asks of these contrasts; its margins are those of claims.toml
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from eyechart.claims.gates import GATES
from eyechart.claims.parts import ClaimTest, Part
from eyechart.claims.table import CLAIMS
from eyechart.errors import UsageError
from eyechart.phrases import did_you_mean
from eyechart.studies.contrasts import Contrast, Design, read_contrasts
from eyechart.training.run import TrainingRun
from eyechart.training.settings import make_run


@dataclass(frozen=True)
class Arm:
    """One way to train, repeated over seeds."""

    name: str
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    home: str = ""
    """The study that records it, where that is another one."""
    source: str = ""
    """The arm with whose weights, of equal seed, it begins."""

    def label(self, seed: int) -> str:
        """What the files of one training are called."""
        return f"{self.name}-seed{seed}"


@dataclass(frozen=True)
class ExamPlan:
    """What is measured of some arms."""

    name: str
    arms: tuple[str, ...]
    measures: tuple[str, ...]
    together: bool = False
    """All arms of a seed in one exam; otherwise each arm by itself."""
    snapshot: Literal["warmup", "end"] = "end"
    images: str = "test"
    """"train" or "test" of the arms' own data, or any images that an exam takes ("sample")."""
    limit: int = 1024
    block: int | None = None
    """Images in a block of the exam's plan; None: as in any exam."""
    next_seed: tuple[str, ...] = ()
    """Arms that come along once more, as the training with their next seed."""
    seeds: tuple[int, ...] = ()
    """Among which the next seed is taken, where an arm has more of them than the others of the exam."""
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Variables of findings that records keep beside the quantities, for the figure."""
    judged: bool = True
    """Whether claims of exams are judged on these arms; not where arms are made to be unlike what claims speak of."""

    def groups(self) -> list[tuple[str, ...]]:
        """The arms that are seen together in one exam."""
        return [self.arms] if self.together else [(arm,) for arm in self.arms]

    def second_runs(self, arms: Mapping[str, Arm], seed: int) -> list[tuple[str, int]]:
        """The trainings that come along for `next_seed`; after the last seed comes the first."""
        runs = []
        for name in self.next_seed:
            seeds = [each for each in arms[name].seeds if each in (self.seeds or arms[name].seeds)]
            runs.append((name, seeds[(seeds.index(seed) + 1) % len(seeds)]))
        return runs


@dataclass(frozen=True)
class Study:
    name: str
    title: str
    question: str
    row: int
    data: str
    minutes: float
    """Estimated, of training and measuring everything on one H200."""
    seeds: tuple[int, ...]
    arms: Mapping[str, Arm]
    exams: tuple[ExamPlan, ...]
    contrasts: Mapping[str, Contrast]
    tests: tuple[ClaimTest, ...]
    replaces: frozenset[tuple[str, str]] = frozenset()
    """Tests of exams, by claim and reading, in whose place the study has one of its own."""
    untested: Mapping[str, str] = field(default_factory=dict)
    """By claim, what of its sentence neither this study nor another asks."""
    figure: Mapping[str, Any] = field(default_factory=dict)
    """`title`, and `panels`: a quantity of every arm each."""
    text: str = field(repr=False, default="")
    """The file itself: its hash is part of every record."""

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def runs(self) -> list[tuple[Arm, int]]:
        """Its own trainings; those of borrowed arms are another study's."""
        return [(arm, seed) for arm in self.arms.values() if not arm.home for seed in arm.seeds]

    @property
    def needed_runs(self) -> list[tuple[Arm, int]]:
        """Its own trainings, and those of borrowed arms that it examines or begins from: their weights are not kept."""
        used = {name for exam in self.exams for name in exam.arms} | {arm.source for arm in self.arms.values()}
        needed = [arm for arm in self.arms.values() if not arm.home or arm.name in used]
        return [(arm, seed) for arm in needed for seed in arm.seeds]

    @property
    def lenders(self) -> list[str]:
        """The studies that it borrows arms from."""
        return list(dict.fromkeys(arm.home for arm in self.arms.values() if arm.home))

    @cached_property
    def registered(self) -> dict[str, str]:
        """A hash for each claim of what decides it: parts, margins, gates, contrasts with their arms."""
        return {key_of(test): self._hash_of(test) for test in self.tests}

    def _hash_of(self, test: ClaimTest) -> str:
        used = [self.contrasts[part.quantity] for part in test.parts]
        arms = sorted({arm for contrast in used for arm in contrast.arms})
        return hash_of(
            test,
            contrasts=[_registered(contrast) for contrast in used],
            arms={arm: self._deciding(arm) for arm in arms},
        )

    def _deciding(self, arm: str) -> dict[str, Any]:
        """Settings of an arm, and those of the arm that it begins from."""
        source = self.arms[arm].source
        return {**self.arms[arm].settings, **({"from_arm": self._deciding(source)} if source else {})}

    def seeds_of(self, group: Sequence[str]) -> list[int]:
        """The seeds that all of these arms have: only those are seen together."""
        return sorted(set.intersection(*(set(self.arms[arm].seeds) for arm in group)))

    @property
    def data_names(self) -> list[str]:
        """The data that its own arms are trained on, its own first."""
        return list(dict.fromkeys([self.data, *(self.data_of(arm) for arm in self.arms.values() if not arm.home)]))

    def data_of(self, arm: Arm) -> str:
        return str(arm.settings.get("data", self.data))

    def with_sources(self, runs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """These trainings, by arm and seed, and before each the one that it begins from."""
        wanted: list[tuple[str, int]] = []
        for arm, seed in runs:
            source = self.arms[arm].source
            wanted += [*(self.with_sources([(source, seed)]) if source else ()), (arm, seed)]
        return list(dict.fromkeys(wanted))

    def training(self, arm: Arm, seed: int, data: str, work: Path) -> TrainingRun:
        """One training of the study, as `eyechart train` would make it; its files lie with those of its home."""
        settings = {**arm.settings, "seed": seed, "name": arm.label(seed), "data": data}
        if arm.source:
            source = self.arms[arm.source]
            weights = work / (source.home or self.name) / f"{source.label(seed)}.safetensors"
            settings["from"] = f"zoo:{source.settings['model']}@{weights}"
        return make_run({**settings, "out": str(work / (arm.home or self.name))})


LATER_FIELDS = ("chosen", "ranked_with", "correlated_with", "held", "paired", "every_seed")


def _registered(contrast: Contrast) -> dict[str, Any]:
    """What is hashed of a contrast. Without a choice, ranks or correlation it hashes as before there were any. When it
    was added decides nothing."""
    kept = {name: value for name, value in asdict(contrast).items() if name != "added"}
    return {name: value for name, value in kept.items() if value or name not in LATER_FIELDS}


def key_of(test: ClaimTest) -> str:
    return f"{test.claim} {test.reading}".strip()


def hash_of(test: ClaimTest, **more: Any) -> str:
    """A hash of all that decides: a part reworded or a margin moved after the runs is then seen."""
    aside = ("measure", "plainly")
    parts = [{name: value for name, value in asdict(part).items() if name not in aside} for part in test.parts]
    deciding = {"parts": parts, "gates": [gate.key for gate in test.gates], **more}
    return hashlib.sha256(json.dumps(deciding, sort_keys=True, default=list).encode()).hexdigest()[:16]


def folder() -> Path:
    return Path(str(files(__package__)))


def names() -> list[str]:
    """Every study of the package, by its row in the run list."""
    studies = [find(path.stem) for path in folder().glob("*.toml")]
    return [study.name for study in sorted(studies, key=lambda study: (study.row, study.name))]


def studies_of_claims() -> dict[str, list[str]]:
    """The studies whose own tests ask a claim, by its name.

    >>> studies_of_claims()["C43"]
    ['base', 'local_heads']
    """
    asked: dict[str, list[str]] = {}
    for name in names():
        for claim in dict.fromkeys(test.claim for test in find(name).tests):
            asked.setdefault(claim, []).append(name)
    return asked


def find(name: str) -> Study:
    """A study by name, or by the path of a file of your own."""
    path = Path(name) if name.endswith(".toml") else folder() / f"{name}.toml"
    if not path.is_file():
        names_found = sorted(each.stem for each in folder().glob("*.toml"))
        otherwise = f"there are {', '.join(names_found)}."
        raise UsageError(f"There is no study called {name!r}; {did_you_mean(name, names_found, otherwise)}")
    try:
        return read_study(path.stem, path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}.") from error
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(f"{path} is not a study: {type(error).__name__}: {error}.") from error


def read_study(name: str, text: str) -> Study:
    document = tomllib.loads(text)
    seeds = tuple(document["seeds"])
    common = document.get("common", {})
    arms = {entry["name"]: _arm(entry, common, seeds, name) for entry in document["arm"]}
    if len(arms) < len(document["arm"]):
        raise UsageError(f"The study {name} names an arm twice.")
    for arm in arms.values():  # a mistake in a setting is found before anything runs
        if arm.source:
            _check_source(arm, arms, name)
        make_run({"data": document["data"], **arm.settings, **({"from": "zoo:vit"} if arm.source else {})})
    designs = {name: Design.read(entry) for name, entry in document.get("design", {}).items()}
    exams = tuple(_exam(entry, arms) for entry in document.get("exam", []))
    groups = {entry["name"]: read_contrasts(entry, designs) for entry in document.get("contrast", [])}
    for group, members in groups.items():
        for wanted in dict.fromkeys(arm for contrast in members for arm in contrast.arms):
            _check_arm(wanted, arms, f"The contrast {group} of {name}")
    contrasts = {contrast.name: contrast for group in groups.values() for contrast in group}
    tests = tuple(_test(entry, groups, name) for entry in document.get("claim", []))
    return Study(
        name=name,
        title=document["title"],
        question=document["question"],
        row=int(document["row"]),
        data=document["data"],
        minutes=float(document["minutes"]),
        seeds=seeds,
        arms=arms,
        exams=exams,
        contrasts=contrasts,
        tests=tests,
        replaces=frozenset(
            (entry["id"], entry["replaces"]) for entry in document.get("claim", []) if "replaces" in entry
        ),
        untested=document.get("untested", {}),
        figure=document.get("figure", {}),
        text=text,
    )


def _arm(entry: Mapping[str, Any], common: Mapping[str, Any], seeds: Sequence[int], study: str) -> Arm:
    own = {key: value for key, value in entry.items() if key not in ("name", "seeds", "borrow", "from_arm")}
    if "borrow" not in entry:
        chosen_seeds = tuple(entry.get("seeds", seeds))
        return Arm(entry["name"], {**common, **own}, chosen_seeds, source=entry.get("from_arm", ""))
    if own:
        raise UsageError(f"The arm {entry['name']} of {study} is borrowed and has settings of its own ({min(own)}).")
    lender = find(entry["borrow"])
    _check_arm(entry["name"], lender.arms, f"{study}, borrowing from {lender.name},")
    arm = lender.arms[entry["name"]]
    if arm.source or lender.data_of(arm) != lender.data:
        raise UsageError(f"The arm {arm.name} of {lender.name} begins from another or has data of its own: not lent.")
    return Arm(arm.name, arm.settings, tuple(entry.get("seeds", arm.seeds)), arm.home or lender.name)


def _check_source(arm: Arm, arms: Mapping[str, Arm], study: str) -> None:
    _check_arm(arm.source, arms, f"The arm {arm.name} of {study}")
    source = arms[arm.source]
    if source.source:
        raise UsageError(f"{arm.name} of {study} begins from {source.name}, which begins from {source.source} itself.")
    if lacking := set(arm.seeds) - set(source.seeds):
        raise UsageError(f"{arm.name} of {study} has the seed {min(lacking)}, which {source.name} is not trained with.")


def _exam(entry: Mapping[str, Any], arms: Mapping[str, Arm]) -> ExamPlan:
    named = entry["arms"]
    chosen = tuple(arms) if named == "all" else tuple(named)
    chosen = tuple(arm for arm in chosen if arm not in entry.get("except", ()))
    for arm in chosen:
        _check_arm(arm, arms, f"The exam {entry['name']}")
    again = tuple(entry.get("next_seed", ()))
    for arm in again:
        if arm not in chosen:
            raise UsageError(
                f"The exam {entry['name']} asks for the next seed of {arm!r}, which is not among its arms."
            )
    rest = {
        key: value for key, value in entry.items() if key not in ("arms", "except", "measures", "next_seed", "seeds")
    }
    seeds = tuple(entry.get("seeds", ()))
    return ExamPlan(arms=chosen, measures=tuple(entry["measures"]), next_seed=again, seeds=seeds, **rest)


def _check_arm(arm: str, arms: Mapping[str, Arm], what: str) -> None:
    if arm not in arms:
        near = did_you_mean(arm, arms, f"there are {', '.join(arms)}.")
        raise UsageError(f"{what} names the arm {arm!r}, which the study does not have; {near}")


def _test(entry: Mapping[str, Any], groups: Mapping[str, Sequence[Contrast]], study: str) -> ClaimTest:
    if entry["id"] not in CLAIMS:
        raise UsageError(f"The study {study} names the claim {entry['id']!r}, which is not in the table.")
    claim = CLAIMS[entry["id"]]
    parts = []
    for part in entry["parts"]:
        if part["contrast"] not in groups:
            raise UsageError(
                f"{claim.id} of {study} asks for a contrast {part['contrast']!r} that the study does not have."
            )
        fixed = {(margin.side, margin.margin, margin.inclusive) for margin in claim.margins}
        for contrast in groups[part["contrast"]]:
            inclusive = part.get("inclusive", False)
            asked = Part(contrast.name, part["side"], float(part["margin"]), contrast.words, inclusive)
            if (asked.side, asked.margin, asked.inclusive) not in fixed:
                what = f"{claim.id} of {study} asks {contrast.name!r} to be {asked.asks}"
                raise UsageError(f"{what}, but claims.toml fixes {claim.margin}.")
            parts.append(asked)
    gates = tuple(GATES[key] for key in entry.get("gates", claim.gates))
    return ClaimTest(claim.id, tuple(parts), gates, reading=entry.get("reading", ""))
