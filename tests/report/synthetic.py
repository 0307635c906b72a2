"""A run that no model made: a ViT of 9 blocks and 8 heads, a ResNet of 8 blocks, plausible numbers, every verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import altair as alt
import numpy as np
import pandas as pd
import xarray as xr

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.claims.table import CLAIMS
from eyechart.claims.verdict import PartVerdict, Verdict
from eyechart.measure import Chapter, Source
from eyechart.quantity import Quantity
from eyechart.run import Run
from eyechart.scene import Scene
from eyechart.sites import Address, Anatomy, AttentionGeometry, Layout, Site
from eyechart.store import FORMAT


def site(name: str, role: Any, kind: Any, depth: float, stage: int, block: int, grid: int, **more: Any) -> Site:
    heads = more.pop("heads", None)
    geometry = AttentionGeometry("global", None, 1, 1, 1, (4.0, 4.0), 16.55, 64) if heads else None
    axes = Layout("NTC", 1, (grid, grid)) if more.pop("tokens", False) else Layout("NCYX", 0, (grid, grid))
    address = Address(name, 0, 0, "output")
    return Site(name, role, kind, name, address, depth, stage, block, axes, 256, heads=heads, attention=geometry)


def vit(name: str) -> Anatomy:
    sites = [site("patch_embed", "stem", "conv", 0.0, 0, -1, 8, tokens=True)]
    for block in range(9):
        path, depth = f"blocks.{block}", (block + 1) / 9
        sites += [
            site(f"{path} attention", "attention", "attention", depth - 0.08, 0, block, 8, heads=8, tokens=True),
            site(f"{path} +attention", "junction", "attention", depth - 0.06, 0, block, 8, tokens=True),
            site(f"{path} +mlp", "junction", "mlp", depth - 0.01, 0, block, 8, tokens=True),
            site(path, "block", "other", depth, 0, block, 8, tokens=True),
        ]
    return Anatomy(name, tuple(sites), (), (32, 32), "transformer", 0, "cls")


def resnet(name: str) -> Anatomy:
    sites = [site("conv1", "stem", "conv", 0.0, 0, -1, 32)]
    for block in range(8):
        path, stage, depth = f"layer{block // 2 + 1}.{block % 2}", block // 2, (block + 1) / 8
        grid = 32 >> stage
        sites += [
            site(f"{path} +conv", "junction", "conv", depth - 0.01, stage, block, grid),
            site(path, "block", "other", depth, stage, block, grid),
        ]
    return Anatomy(name, tuple(sites), (), (32, 32), "cnn", None, "gap")


@dataclass
class SyntheticMeasure:
    name: str
    title: str
    title_ko: str
    how_to_read: str
    how_to_read_ko: str
    method: str
    sources: tuple[Source, ...]
    chart: Callable[[xr.Dataset], Any]
    said: str
    quantities: tuple[Quantity, ...] = ()
    chapter: Chapter = "more"
    labels: str = ""

    def sentence(self, finding: xr.Dataset) -> str:
        return self.said


@dataclass
class SyntheticRun:
    path: Path
    plan: dict[str, Any]
    scene: Scene
    findings: dict[str, xr.Dataset]
    verdicts: list[Verdict]
    measures: dict[str, Any]

    def chart(self, name: str) -> Any:
        with theme.drawing(subjects=self.scene.subjects):
            return theme.dress(self.measures[name].chart(self.findings[name]))


def as_run(made: SyntheticRun) -> Run:
    """For what takes a run: the report reads these fields of it, and no others."""
    return cast(Run, made)


def with_quantities(finding: xr.Dataset, rows: list[tuple[str, str, float, float, float, str]]) -> xr.Dataset:
    names, subjects, values, lows, highs, units = (list(column) for column in zip(*rows, strict=True))
    finding = finding.assign(
        quantity_value=("quantity_row", values),
        quantity_low=("quantity_row", lows),
        quantity_high=("quantity_row", highs),
    )
    coordinates = {"quantity": names, "quantity_subjects": subjects, "quantity_unit": units}
    finding = finding.assign_coords({name: ("quantity_row", value) for name, value in coordinates.items()})
    return finding.assign_attrs(images=1000, folds=16)


def blocks(scene: Scene) -> list[tuple[str, Site]]:
    return scene.sites(lambda anatomy: anatomy.pick("stem") + anatomy.pick("block"))


def words(place: Site) -> str:
    """As `Anatomy.words` has it: blocks are counted from 1."""
    return place.name if place.block < 0 else f"block {place.block + 1} {place.name.partition(' ')[2]}".strip()


def coordinates(places: list[tuple[str, Site]], prefix: str = "") -> dict[str, Any]:
    along = f"{prefix}site"
    columns = {
        along: [f"{subject}/{place.name}" for subject, place in places],
        f"{prefix}subject": [subject for subject, _ in places],
        f"{prefix}name": [words(place) for _, place in places],
        f"{prefix}kind": [place.kind for _, place in places],
        f"{prefix}depth": [place.depth for _, place in places],
        f"{prefix}stage": [place.stage for _, place in places],
    }
    return {name: (along, values) for name, values in columns.items()}


def cka_finding(scene: Scene) -> xr.Dataset:
    places = blocks(scene)
    table = np.empty((len(places), len(places)))
    for i, (one, a) in enumerate(places):
        for j, (two, b) in enumerate(places):
            near = np.exp(-abs(a.depth - b.depth) * (1.0 if one == two == scene.subjects[0] else 2.2))
            same = 1.0 if one == two and a.stage == b.stage else 0.72 if one == two else 0.62 * (1.1 - b.depth / 2)
            table[i, j] = 1.0 if i == j else near * same
    pair = ("site", "other_site")
    data = {"cka": (pair, table), "cka_low": (pair, table - 0.02), "cka_high": (pair, np.minimum(table + 0.02, 1))}
    finding = xr.Dataset(
        {**data, "cka_replicates": (("replicate", *pair), np.repeat(table[None], 16, 0))},
        coords={**coordinates(places), **coordinates(places, "other_")},
    )
    both = " | ".join(scene.subjects)
    return with_quantities(
        finding,
        [
            ("uniformity", scene.subjects[0], 0.612, 0.589, 0.635, ""),
            ("uniformity", scene.subjects[1], 0.301, 0.284, 0.318, ""),
            ("uniformity difference", both, 0.311, 0.290, 0.332, ""),
        ],
    )


def cka_chart(finding: xr.Dataset) -> Any:
    frame = finding[["cka", "cka_low", "cka_high"]].to_dataframe().reset_index()
    subjects = list(dict.fromkeys(finding.subject.values.tolist()))
    maps = []
    for one, two in [(subjects[0], subjects[0]), (subjects[1], subjects[1]), (subjects[0], subjects[1])]:
        part = frame[(frame.subject == one) & (frame.other_subject == two)]
        maps.append(
            heatmap(
                part,
                x="name",
                y="other_name",
                value="cka",
                x_title=f"{one} (input → output)",
                y_title=two,
                value_title="CKA",
                title=f"{one} × {two}",
                domain=(0, 1),
                x_group="stage",
                y_group="other_stage",
                size=230,
            )
        )
    return theme.panels(maps)


def distance_finding(scene: Scene) -> xr.Dataset:
    subject = scene.subjects[0]
    places = [(subject, place) for place in scene.anatomy(subject).pick("attention")]
    random = np.random.default_rng(1)
    value = np.array([np.clip(np.sort(random.uniform(2 + 1.2 * b, 14 + 0.25 * b, 8)), 0, 16.5) for b in range(9)])
    axes = ("site", "head")
    finding = xr.Dataset(
        {"distance": (axes, value), "distance_low": (axes, value - 0.3), "distance_high": (axes, value + 0.3)},
        coords={**coordinates(places), "head": np.arange(8)},
    )
    rows = [
        ("nearest head of the first two blocks", subject, 0.18, 0.16, 0.20, "of uniform"),
        ("depth trend", subject, 0.81, np.nan, np.nan, ""),
    ]
    return with_quantities(finding, rows)


def distance_chart(finding: xr.Dataset) -> Any:
    frame = finding.to_dataframe().reset_index().drop_duplicates(["name", "head"])
    frame = frame.assign(rank=frame.groupby("name").distance.rank(), block=frame.name.str.removesuffix(" attention"))
    frame["head"] += 1
    shown = frame[frame.block.isin(["block 1", "block 2", "block 8", "block 9"])]
    y = alt.Y("distance:Q", title="mean distance (pixels)", scale=alt.Scale(domain=[0, 18]))
    references = theme.reference(16.55, "uniform attention") + theme.reference(0, "attends itself")
    colour = alt.Color("block:N", scale=theme.ordered_scale(shown.block.tolist()), sort=None, title=None)
    sorted_heads = alt.X("rank:Q", title="head, nearest first", axis=alt.Axis(tickMinStep=1))
    by_rank = theme.curve(shown, sorted_heads, y, colour, "distance_low", "distance_high") + references
    depth = alt.X("depth:Q", title="relative depth", scale=alt.Scale(domain=[0, 1]))
    subject = alt.Color("subject:N", scale=theme.subject_scale(frame.subject.tolist()), title=None)
    bars = theme.error_bars(frame, depth, y, "distance_low", "distance_high", color=subject)
    dots = bars + alt.Chart(frame).mark_point(size=30).encode(depth, y, color=subject) + references
    one = by_rank.properties(width=380, height=250, title="Lowest and highest blocks")
    return theme.panels([one, dots.properties(width=380, height=250, title="All heads")], columns=2, shared=())


def variance_finding(scene: Scene) -> xr.Dataset:
    places = scene.sites(lambda anatomy: anatomy.pick("junction"))
    value = np.array([0.1 + 0.6 * place.depth + 0.1 * (place.kind != "attention") for _, place in places])
    finding = xr.Dataset(
        {"variance": ("site", value), "variance_low": ("site", value - 0.02), "variance_high": ("site", value + 0.02)},
        coords=coordinates(places),
    )
    return with_quantities(finding, [("change at attention", scene.subjects[0], -0.004, -0.011, 0.003, "")])


def variance_chart(finding: xr.Dataset) -> Any:
    frame = finding[["variance", "variance_low", "variance_high"]].to_dataframe().reset_index()
    x, y = alt.X("depth:Q", title="relative depth"), alt.Y("variance:Q", title="variance over positions")
    subject = alt.Color("subject:N", scale=theme.subject_scale(frame.subject.tolist()), title=None)
    lines = theme.curve(frame, x, y, subject, "variance_low", "variance_high", points=False)
    return (lines + theme.kind_points(frame, x, y)).properties(width=640, height=280)


def synthetic_measures() -> list[SyntheticMeasure]:
    def explained(name: str, words: str) -> Quantity:
        return Quantity(name, lambda estimate: {}, words)

    return [
        SyntheticMeasure(
            "cka",
            "What do layers share?",
            "층들은 무엇을 공유하는가?",
            "Each cell compares two layers: bright means that pictures alike to one are alike to the other. "
            "Both axes run from input (lower left) to output; white lines are stage boundaries.",
            "각 칸은 두 층을 비교한다. 밝을수록 두 층이 같은 그림들을 비슷하게 본다.",
            "Linear CKA from the unbiased estimator of HSIC, averaged over blocks of 62 images before the ratio.",
            (Source("Raghu et al. 2021", "Fig. 1 and 2"), Source("Park & Kim 2022", "Fig. 10")),
            cka_chart,
            "The first and last thirds of zoo:vit share 0.61 of their geometry [0.59, 0.64]; those of zoo:resnet 0.30.",
            (
                explained("uniformity", "mean CKA between the lowest and the highest third of the blocks"),
                explained("uniformity difference", "uniformity of the transformer minus that of the CNN"),
            ),
        ),
        SyntheticMeasure(
            "attention_distance",
            "How far do heads look?",
            "헤드는 얼마나 멀리 보는가?",
            "Each point is a head: the mean distance, in pixels of the input, between a patch and where it looks.",
            "점 하나가 헤드 하나다.",
            "Attention-weighted Euclidean distance between patch centres, averaged over queries and images.",
            (Source("Dosovitskiy et al. 2021", "Fig. 7 right"), Source("Raghu et al. 2021", "Fig. 3")),
            distance_chart,
            "The nearest head of zoo:vit's first two blocks looks 2.9 pixels far, 0.18 of uniform attention.",
        ),
        SyntheticMeasure(
            "feature_variance",
            "Does a layer smooth or sharpen?",
            "층은 매끄럽게 하는가, 날카롭게 하는가?",
            "Grey circles are attention, white marks MLPs and convolutions. A falling step smooths the feature map.",
            "회색 원은 어텐션, 흰 표식은 MLP와 합성곱이다.",
            "Unbiased variance over positions, mean over channels and images, after every residual addition.",
            (Source("Park & Kim 2022", "Fig. 9"),),
            variance_chart,
            "In zoo:vit attention lowers the variance at 5 of 9 junctions, MLPs raise it at 9 of 9.",
        ),
    ]


def synthetic_plan(anatomies: list[Anatomy]) -> dict[str, Any]:
    names = [anatomy.subject for anatomy in anatomies]
    return {
        "format": FORMAT,
        "eyechart": "0.1.0",
        "subjects": [
            {
                "name": anatomy.subject,
                "parameters": parameters,
                "input_size": [32, 32],
                "weights": digest * 16,
                "trained": True,
                "card": {"source": "zoo", "licence": "Apache-2.0"},
                "labels": {"indices": list(range(10)), "reason": ""},
                "anatomy": anatomy.as_json(),
            }
            for anatomy, parameters, digest in zip(anatomies, (2692106, 2777674), ("3fa9", "c07e"), strict=True)
        ],
        "images": {
            "name": "sample",
            "count": 1002,
            "used": 1000,
            "fingerprint": "9be1" * 16,
            "classes": ["airplane", "automobile", "bird"],
            "problems": [{"path": "cat/0007.jpg", "reason": "truncated JPEG"}, {"path": "a.txt", "reason": "no image"}],
        },
        "batches": {"order": [], "block": 62, "folds": 16, "whole_blocks": 16, "shards": [[0, 1]]},
        "measures": [{"name": "cka", "options": {}}],
        "sized": [],
        "left_out": [{"measure": "skip_ratio", "reason": "no subject has a residual junction."}],
        "settings": {"device": "cpu", "dtype": "float32", "seed": 0, "limit": None, "folds": 16, "effort": "normal"},
        "notices": [
            "skip_ratio was left out: no subject has a residual junction.",
            "Statistics of whole blocks (CKA) use 992 of 1000 images.",
            f"{names[0]}: one softmax was not recognised as attention.",
        ],
        "question": "77aa" * 16,
        "provenance": {
            "made": "2026-11-15T08:00:00+00:00",
            "command": ["eyechart", "exam", *names, "--images", "sample"],
            "python": "3.11.4",
            "machine": "Linux x86_64",
            "packages": {"eyechart": "0.1.0", "torch": "2.15.0"},
        },
    }


def part(claim: str, place: int, words: str, effect: float, low: float, high: float, verdict: Any) -> PartVerdict:
    margin = CLAIMS[claim].margins[place]
    asked = (margin.side, margin.margin, margin.inclusive, None)
    return PartVerdict(words, words, *asked, effect, low, high, verdict, 3.0, None)


def synthetic_verdicts(one: str, two: str) -> list[Verdict]:
    def told(
        claim: str, subjects: tuple[str, ...], verdict: Any, reason: str, *parts: PartVerdict, **more: Any
    ) -> Verdict:
        effect, low, high = (parts[0].effect, parts[0].low, parts[0].high) if parts else (None, None, None)
        return Verdict(
            claim, subjects, "these weights", verdict, effect, low, high, reason, parts, remarks=reason, **more
        )

    gap = f"uniformity of {one} minus that of {two}"
    return [
        told(
            "C09",
            (one,),
            "holds",
            "Both of its parts hold.",
            part("C09", 0, "nearest quarter of early heads", 0.18, 0.16, 0.20, "holds"),
            part("C09", 1, "farthest quarter of early heads", 0.93, 0.90, 0.96, "holds"),
            measure="attention_distance",
            proxy=True,
            stands=True,
        ),
        told(
            "C13",
            (one, two),
            "holds",
            f"{gap}: 0.311 [0.290, 0.332]; the claim asks for at least 0.1.",
            part("C13", 0, gap, 0.311, 0.290, 0.332, "holds"),
            measure="cka",
            stands=True,
        ),
        told(
            "C15",
            (one, two),
            "fails",
            "The best match loses 0.04 [0.02, 0.06] from the lowest to the highest third; at least 0.1 is claimed.",
            part("C15", 0, "best CKA, lowest minus highest third", 0.04, 0.02, 0.06, "fails"),
            measure="cka",
            stands=False,
        ),
        told(
            "C58",
            (one, two),
            "undecided",
            "About 6,400 images would decide it (1,000 were used), if the effect stays.",
            part("C58", 0, "sign-test z of attention", 1.2, -0.4, 2.8, "undecided"),
            part("C58", 0, "sign-test z of MLPs", math.nan, math.nan, math.nan, "undecided"),
            measure="feature_variance",
        ),
        told("C02", (), "not tested", "Needs a study: ViTs with eight position embeddings."),
        told("C60", (), "not tested", "Needs a multi-stage transformer, such as zoo:swin, beside a ViT."),
    ]


def synthetic_run(folder: Path, one: str = "zoo:vit", two: str = "zoo:resnet") -> SyntheticRun:
    anatomies = [vit(one), resnet(two)]
    scene = Scene(tuple(anatomies), images=1000, whole_blocks=16, block=62, folds=16, classes=("airplane", "bird"))
    recognition = xr.Dataset(
        {
            "accuracy": ("subject", [0.871, 0.934]),
            "accuracy_low": ("subject", [0.851, 0.917]),
            "accuracy_high": ("subject", [0.891, 0.951]),
        },
        coords={"subject": [one, two]},
        attrs={"images": 1000, "folds": 16},
    )
    findings = {
        "cka": cka_finding(scene),
        "attention_distance": distance_finding(scene),
        "feature_variance": variance_finding(scene),
    }
    measures = {measure.name: measure for measure in synthetic_measures()}
    measures["recognition"] = SyntheticMeasure(
        "recognition",
        "How well does it recognise?",
        "얼마나 잘 알아보는가?",
        "Each point is the share of pictures a subject names right.",
        "점은 정답률이다.",
        "Top-1 accuracy on the common crop.",
        (Source("eyechart", "the accuracy gate of the verdicts"),),
        lambda finding: theme.dots_with_intervals(
            pd.DataFrame(
                {"subject": finding.subject, "accuracy": finding.accuracy}
                | {side: finding[f"accuracy_{side}"] for side in ("low", "high")}
            ),
            x="accuracy",
            y="subject",
            x_title="top-1 accuracy (common crop)",
        ),
        "Both name most pictures right.",
    )
    plan = synthetic_plan(anatomies)
    verdicts = synthetic_verdicts(one, two)
    order = {"recognition": recognition, **findings}
    return SyntheticRun(folder, plan, scene, order, verdicts, measures)
