"""A small finding for every measure, of random numbers: two subjects, a few sites, every variable that its chart reads.

Their dimensions, coordinates and attributes are those of real findings; their numbers mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

SUBJECTS = ("net:vit", "net:cnn")
VIT, CNN = SUBJECTS
SWIN = "net:swin"
FAMILIES = {VIT: "vit", CNN: "cnn", SWIN: "swin"}

Sites = list[tuple[str, str, str, int]]  # subject, role, kind, block
BLOCKS: Sites = [(subject, "block", "other", block) for subject in SUBJECTS for block in range(4)]
ATTENTIONS: Sites = [(subject, "attention", "attention", block) for subject in (VIT, SWIN) for block in range(4)]
JUNCTIONS: Sites = [
    *((VIT, "stem", "conv", -1), (CNN, "stem", "conv", -1)),
    *((VIT, "junction", kind, block) for block in range(4) for kind in ("attention", "mlp")),
    *((CNN, "junction", "conv", block) for block in range(4)),
]


def sites(rows: Sites, dim: str = "site") -> dict[str, Any]:
    """Coordinates of a flat site axis. A CNN has two blocks a stage, others have one stage."""
    prefix = dim.removesuffix("site")
    names = [f"{kind} {block}" for _, _, kind, block in rows]
    columns = {
        "subject": [subject for subject, *_ in rows],
        "family": [FAMILIES[subject] for subject, *_ in rows],
        "name": names,
        "role": [role for _, role, _, _ in rows],
        "kind": [kind for _, _, kind, _ in rows],
        "block": [block for *_, block in rows],
        "stage": [max(block, 0) // 2 if subject == CNN else 0 for subject, *_, block in rows],
        "depth": [(block + 1) / 4 - 0.1 * (kind == "attention") for _, _, kind, block in rows],
    }
    together = {dim: [f"{row[0]}/{name}" for row, name in zip(rows, names, strict=True)]}
    return together | {f"{prefix}{name}": (dim, values) for name, values in columns.items()}


def subjects(*names: str, **more: Any) -> dict[str, Any]:
    """Coordinates of an axis of subjects; `more` are further columns of it."""
    columns = {"family": [FAMILIES[name] for name in names], **more}
    return {"subject": list(names), **{name: ("subject", values) for name, values in columns.items()}}


def finding(variables: Mapping[str, str], coordinates: Mapping[str, Any], **attributes: Any) -> xr.Dataset:
    """Random numbers from 0.2 to 0.8 for `variables` (names by their dimensions), each in an interval of ±0.1."""
    dataset = xr.Dataset(coords=dict(coordinates), attrs=attributes)
    draw = np.random.default_rng(0)
    for dimensions, names in variables.items():
        axes = tuple(dimensions.split())
        for name in names.split():
            values = draw.uniform(0.2, 0.8, [dataset.sizes[axis] for axis in axes])
            for end, half in {"": 0.0, "_low": -0.1, "_high": 0.1}.items():
                dataset[f"{name}{end}"] = (axes, values + half)
    return dataset


# --- one for every measure -------------------------------------------------------------------------------------------


def attention_distance() -> xr.Dataset:
    variables = {"site head": "distance relative coverage prefix_mass", "site": "uniform"}
    return finding(variables, sites(ATTENTIONS) | {"head": range(3)})


def attention_maps() -> xr.Dataset:
    draw = np.random.default_rng(1)
    rows, shown = len(ATTENTIONS), [VIT, SWIN]
    queries = [[-1, 0, 0], [-2, 0, 0], *([y, x, 0] for y in range(2) for x in range(2))]
    keys = [[-1, -1], *([y, x] for y in range(2) for x in range(2))]
    axes = {
        "head": range(3),
        "class_name": ("example", ["bird", "cat"]),
        "shown_subject": shown,
        "keys": ("site", [5] * rows),
        "picture": (
            ("example", "shown_subject", "y", "x", "channel"),
            draw.integers(0, 255, (2, 2, 8, 8, 3)).astype(np.uint8),
        ),
        "picture_size": (("shown_subject", "side"), [[8, 8]] * 2),
        "maps": (("example", "site", "head", "query", "key"), draw.integers(0, 100, (2, rows, 3, 6, 5))),
        "peak": (("example", "site", "head", "query"), np.ones((2, rows, 3, 6))),
        "beside": (("example", "site", "head", "query"), np.ones((2, rows, 3, 6))),
        "rollout": (("example", "site", "query", "key"), draw.integers(1, 100, (2, rows, 6, 5))),
        "rollout_peak": (("example", "site", "query"), np.ones((2, rows, 6))),
        "rollout_beside": (("example", "site", "query"), np.ones((2, rows, 6))),
        "query_place": (("site", "query", "query_axis"), [queries] * rows),
        "key_place": (("site", "window", "key", "key_axis"), [[keys]] * rows),
        "grids": (("site", "grid"), [[2, 2, 2, 2, 1]] * rows),
    }
    return finding({"site head": "relative class_relative entropy"}, sites(ATTENTIONS) | axes)


def attention_role() -> xr.Dataset:
    variables = {
        "each_subject replacement": "lost changed",
        "site replacement": "lost_alone changed_alone",
        "site head": "data_specific",
        "site": "head_specific",
    }
    others = {
        "each_subject": [VIT, SWIN],
        "replacement": ["even", "mean of others", "another picture's"],
        "head": range(2),
    }
    return finding(variables, sites(ATTENTIONS) | others)


def band_noise() -> xr.Dataset:
    variables = {"subject ring": "cost", "subject strength": "mean_cost", "subject": "read_at"}
    axes = {"strength": [0.08, 0.16, 0.32], "frequency": ("ring", [0.1, 0.5, 0.9])}
    return finding(variables, subjects(*SUBJECTS, scored=["accuracy"] * 2) | axes, scaling="equal")


def calibration() -> xr.Dataset:
    bins = "accuracy_in_bin confidence_in_bin share_in_bin"
    variables = {"subject bin": bins, "subject": "ece scaled_ece floor"}
    return finding(variables, subjects(*SUBJECTS) | {"bin": ["0.0–0.5", "0.5–1.0"]})


def cka() -> xr.Dataset:
    axes = sites(BLOCKS) | sites(BLOCKS, "other_site") | sites(BLOCKS[:4], "patch_site") | {"matched": [CNN]}
    variables = {"site other_site": "cka", "site matched": "match_cka", "patch_site matched": "patch_match_cka"}
    return finding(variables, axes, index="CKA")


def corruption() -> xr.Dataset:
    variables = {
        "subject type": "by_type",
        "subject level": "by_severity nll ece signed_ece",
        "subject": "mean",
        "pair type": "difference",
    }
    axes = {"type": ["fog", "jpeg_compression"], "level": range(6), "one": ("pair", [VIT]), "other": ("pair", [CNN])}
    dataset = finding(variables, subjects(*SUBJECTS) | axes)
    pictures = np.random.default_rng(1).integers(0, 255, (1, 3, 8, 8, 3)).astype(np.uint8)
    return dataset.assign(example=(("shown", "tile", "y", "x", "channel"), pictures))


def depth_similarity() -> xr.Dataset:
    pairs = {
        "pair": ["a – b", "a – c", "a – d"],
        "one": ("pair", [VIT] * 3),
        "other": ("pair", [SWIN] * 3),
        "relation": ("pair", ["head", "seed", "size"]),
        "one_blocks": ("pair", [4, 4, 4]),
        "other_blocks": ("pair", [4, 4, 3]),
        "block": range(4),
        "other_block": range(4),
    }
    return finding({"pair block other_block": "cka", "pair block": "similarity best"}, pairs)


def error_vs_nll() -> xr.Dataset:
    names = "error nll nll_augmented nll_train nll_train_clean"
    recorded = "recorded_augmented_train_nll recorded_clean_train_nll recorded_test_error"
    return finding({"subject": f"{names} {recorded}"}, subjects(*SUBJECTS))


def feature_variance() -> xr.Dataset:
    has_skip = {"has_skip": ("site", [role != "stem" for _, role, _, _ in JUNCTIONS])}
    return finding({"site": "variance relative step relative_step"}, sites(JUNCTIONS) | has_skip)


def few_shot() -> xr.Dataset:
    variables = {"subject shot": "linear", "subject way shot": "episodes"}
    return finding(variables, subjects(*SUBJECTS) | {"shot": [1, 2, 5], "way": [2, 5]})


def fourier() -> xr.Dataset:
    variables = {
        "site frequency": "delta",
        "site": "highest change high_change matrix_change branch_change strided",
        "site band": "energy",
    }
    radians = np.tile(np.linspace(0, np.pi, 3), (len(JUNCTIONS), 1))
    axes = {"radians": (("site", "frequency"), radians), "band": ["constant", "low", "middle", "high"]}
    return finding(variables, sites(JUNCTIONS) | axes)


def grouping() -> xr.Dataset:
    variables = {"site head way": "learned", "site way": "free"}
    return finding(variables, sites(ATTENTIONS) | {"head": range(3), "way": ["by mass", "by rank"]})


def head_subsets() -> xr.Dataset:
    groups = {
        "group_subject": ("group", [VIT] * 3 + [SWIN] * 3),
        "group_family": ("group", ["vit"] * 3 + ["swin"] * 3),
        "group_heads": ("group", list("abcdef")),
        "group_uniform": ("group", [1.0] * 6),
    }
    return finding({"group site": "cka", "group": "distance"}, sites(BLOCKS[4:]) | groups)


def hessian() -> xr.Dataset:
    variables = {
        "subject variant": "nep ape smallest largest unsettled smallest_unsettled largest_unsettled",
        "minibatch subject variant rank": "eigenvalue",
        "quantity_row": "quantity",  # whose ends are called quantity_low and quantity_high
    }
    names = ["ape_augmented_penalty", "ape_clean"] * 2
    axes = {"variant": ["augmented + penalty", "clean"], "minibatch": range(4), "rank": range(6)}
    axes |= {"quantity_subjects": ("quantity_row", [VIT, VIT, CNN, CNN])}
    dataset = finding(variables, subjects(*SUBJECTS) | axes | {"quantity_row": range(4)})
    dataset = dataset.assign_coords(quantity=("quantity_row", names))
    return dataset.assign(eigenvalue=dataset.eigenvalue - 0.4)  # some of them negative


def landscape() -> xr.Dataset:
    variables = {"subject data a b": "nll", "subject a b": "penalty"}
    side = np.linspace(-1, 1, 3)
    bowl = side[:, None] ** 2 + side**2
    dataset = finding(variables, subjects(*SUBJECTS) | {"data": ["clean", "augmented"], "a": side, "b": side})
    return dataset.assign(nll=dataset.nll * 0.01 + xr.DataArray(bowl, dims=("a", "b")), penalty=dataset.penalty * 0.01)


def lesion() -> xr.Dataset:
    kinds = ["intact", "attention", "mlp", "attention", "mlp", "intact"] + ["spatial convolution", "whole branch"] * 2
    units = {
        "subject": ("unit", [VIT] * 5 + [CNN] * 5),
        "unit_name": ("unit", [f"unit {place}" for place in range(10)]),
        "kind": ("unit", kinds),
        "depth": ("unit", [np.nan, 0.2, 0.4, 0.6, 0.8] * 2),
        "stage": ("unit", [-1, 0, 0, 0, 0, -1, 0, 0, 1, 1]),
        "place_subject": ("group", [CNN] * 4),
        "place_kind": ("group", ["spatial convolution", "spatial convolution", "whole branch", "whole branch"]),
        "place": ("group", ["first", "last", "first", "last"]),
    }
    dataset = finding({"unit": "lost lost_recalibrated changed", "group": "place_cost"}, units)
    names = ["lost_recalibrated", "lost_recalibrated_low", "lost_recalibrated_high"]
    return dataset.assign({name: dataset[name].where(dataset.subject == CNN) for name in names})


def localisation() -> xr.Dataset:
    twin = f"{VIT}@random"
    rows: Sites = [(subject, "block", "other", block) for subject in SUBJECTS for block in range(2)]
    axes = sites(rows) | {
        "final": ("site", [False, True] * 2),
        "rows": ("site", [2] * 4),
        "columns": ("site", [2] * 4),
        "token_place": (("site", "token"), [["a", "b", "c", "d"]] * 4),
        "patch_place": (("site", "patch"), [["a", "b", "c", "d"]] * 4),
        "reference": ["mean of all patches"],
    }
    variables = {"site token patch": "cka", "site reference patch": "reference_cka", "site": "hit_rate peak chance"}
    dataset = finding(variables, axes)
    untrained = dataset.isel(site=[0, 1]).assign_coords(subject=("site", [twin] * 2), site=["t0", "t1"])
    return xr.concat([dataset, untrained], "site", data_vars="all", coords="different", compat="equals")


def matching() -> xr.Dataset:
    ways = {"way": ["patches matched", "patches in place", "mean of patches", "class token"]}
    return finding({"site way": "rank"}, sites(BLOCKS) | ways)


def mc_dropout() -> xr.Dataset:
    return finding({"subject size": "accuracy nll ece"}, subjects(*SUBJECTS) | {"size": [1, 2, 4]})


def patch_filters() -> xr.Dataset:
    variables = {
        "subject component colour y x": "component_tile",
        "subject filter colour y x": "filter_tile",
        "subject component": "centroid smoothness share random_share",
        "subject draw": "random_mean random_single",
    }
    sizes = {"height": [4, 3], "width": [4, 3], "filters": [16, 8]}
    axes = subjects(*SUBJECTS, filter_kind=["patches", "convolution"], **sizes)
    lengths = {"component": 8, "colour": 3, "y": 4, "x": 4, "filter": 8, "draw": 20}
    return finding(variables, axes | {name: range(length) for name, length in lengths.items()})


def position_embeddings() -> xr.Dataset:
    tables = {"subject": [VIT], "rows": [2], "columns": [2], "learned": [1], "block": [-1]}
    steps = {"subject": [SWIN] * 2, "block": [0, 1], "rows": [3] * 2, "columns": [3] * 2, "heads": [2] * 2}
    axes: dict[str, Any] = {name: ("table", values) for name, values in tables.items()}
    axes |= {f"steps_{name}": ("relative", values) for name, values in steps.items()}
    axes |= {"steps_kind": ("relative", ["relative bias"] * 2)}
    axes |= {name: range(size) for name, size in {"patch": 4, "other_patch": 4, "down": 3, "across": 3}.items()}
    variables = {
        "table patch other_patch": "cosine",
        "table": "nearness row_bonus column_bonus",
        "table distance": "in_row in_column aside",
        "relative head down across": "steps",
        "relative head": "steps_nearness",
    }
    return finding(variables, axes | {"distance": [1, 2, 3], "head": range(2)})


def probes() -> xr.Dataset:
    readouts = ["tokens", "cls", "gap"]
    widths = (("site", "readout"), np.full((len(BLOCKS), 3), 8))
    axes = {"readout": readouts, "features": widths, "features_read": widths, "y": range(2), "x": range(2)}
    return finding({"site readout": "accuracy", "site y x": "token_accuracy", "site": "chance"}, sites(BLOCKS) | axes)


def receptive_field() -> xr.Dataset:
    rows: Sites = [
        (subject, role, kind, block)
        for subject, kind in ((VIT, "attention"), (CNN, "conv"))
        for block in range(3)
        for role in ("junction", "block")
    ]
    grids = {"rows": ("site", [4] * len(rows)), "columns": ("site", [4] * len(rows))}
    field = np.random.default_rng(1).integers(0, 255, (len(rows), 8, 8)).astype(np.uint8)
    dataset = finding({"site": "reach own_share disc_share"}, sites(rows) | grids)
    return dataset.assign(field=(("site", "y", "x"), field))


def recognition() -> xr.Dataset:
    return finding({"subject": "accuracy"}, subjects(*SUBJECTS))


def robustness() -> xr.Dataset:
    kinds = ["intact", "occlusion", "occlusion", "shuffle", "shuffle", "pgd"]
    axes = {
        "met": ("condition", kinds),
        "strength": ("condition", [0, 0.25, 0.5, 2, 4, 1 / 255]),
        "kind": ["occlusion", "shuffle", "pgd"],
    }
    variables = {"subject condition": "accuracy relative", "subject kind": "mean"}
    return finding(variables, subjects(*SUBJECTS) | axes, classes=10, steps=5)


def shape_texture() -> xr.Dataset:
    variables = {
        "subject": "clean phase_share",
        "subject cutoff": "low_passed high_passed",
        "subject pieces": "shuffled",
    }
    axes = {"cutoff": [0.125, 0.25, 0.5], "pieces": [2, 4]}
    return finding(variables, subjects(*SUBJECTS, scored=["accuracy"] * 2) | axes, classes=10)


def shift() -> xr.Dataset:
    axes = {
        "shift": ["one pixel", "one patch"],
        "each_subject": list(SUBJECTS),
        "patch": ("each_subject", [4, 2]),
        "px": (("each_subject", "pixels"), [[1, 2, 4]] * 2),
    }
    dataset = finding(
        {"site shift": "similarity unmoved", "each_subject pixels": "variation agreement"}, sites(BLOCKS) | axes
    )
    follows = np.array([[place % 2 == 0] * 2 for place in range(len(BLOCKS))])
    return dataset.assign(follows=(("site", "shift"), follows))


def skip_ratio() -> xr.Dataset:
    rows = [row for row in JUNCTIONS if row[1] == "junction"]
    twin = [(SWIN, role, kind, block) for subject, role, kind, block in rows if subject == VIT]  # a second map
    prefix = {"prefix": ("site", [int(row[0] == VIT) for row in rows + twin])}
    variables = {"site token": "ratio", "site": "ratio_grid ratio_cls"}
    return finding(variables, sites(rows + twin) | prefix | {"token": range(4)})


def skip_removal() -> xr.Dataset:
    layers = ["stem", "block 0", "block 1"]
    cells = [
        (subject, removed, one, other)
        for subject in SUBJECTS
        for removed in ("intact", "block 0")
        for one in layers
        for other in layers
    ]
    axes = {
        "mode": ["as trained", "recalibrated"],
        "subject": ("variant", [VIT] * 3 + [CNN] * 3),
        "removed": ("variant", ["intact", "block 0", "block 1"] * 2),
        "depth": ("variant", [np.nan, 0.3, 0.9] * 2),
        "normalised": ("variant", [0, 0, 0, 1, 1, 1]),
        "trained_without": ("variant", [""] * 6),
    }
    columns = zip(*cells, strict=True)
    names = ("cell_subject", "cell_removed", "cell_name", "cell_other_name")
    axes |= {name: ("cell", list(column)) for name, column in zip(names, columns, strict=True)}
    axes |= {name: ("cell", [0] * len(cells)) for name in ("cell_stage", "cell_other_stage")}
    return finding({"variant mode": "accuracy lost changed across", "cell": "cka"}, axes)


def token_place() -> xr.Dataset:
    axes = {"control": ["plain", "colour removed", "patches shuffled"], "relation": ["own", "adjacent", "far"]}
    variables = {"site control": "hit_rate", "site": "place", "site relation": "pixels"}
    return finding(variables, sites(BLOCKS) | axes)


def trajectory() -> xr.Dataset:
    moments = {
        "subject": [f"{name}@{moment}" for name in SUBJECTS for moment in ("init", "end")],
        "training": ("subject", [VIT, VIT, CNN, CNN]),
        "moment": ("subject", ["init", "end"] * 2),
    }
    return finding({"subject": "radius angle"}, moments)


@cache
def finding_of(measure: str) -> xr.Dataset:
    """The finding made by the function above that has the name of the measure."""
    made: xr.Dataset = globals()[measure]()
    return made
