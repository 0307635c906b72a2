"""What the page's explorer carries: rows of attention of a few pictures, packed small, and all it says about them."""

from __future__ import annotations

import base64
import io
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from eyechart.charts import theme
from eyechart.measures.attention_maps.examples import FEWEST
from eyechart.measures.attention_maps.rows import LEVELS, NOTHING
from eyechart.reading_estimates import site_indices
from eyechart.report.embed import data_uri
from eyechart.report.lesson import lesson

if TYPE_CHECKING:
    import xarray

    from eyechart.run import Run

BYTES_A_SUBJECT = 6_000_000  # bytes of the page for each subject with attention
MOST_BYTES = 6_000_000  # and for all of them: what charts and tables of two subjects leave of the page's 10 million
SPARSE = (7, 5, 4, 3, 2)  # rows and columns of queries in layers that cannot have all
OVERHEAD = 2_000  # names, colours and punctuation
PHOTO = 64  # pixels a side above which a picture is a photograph and not a grid of pixels


def explorer(run: Run, budget: int | None = None) -> dict[str, Any] | None:
    """All that explorer.js draws, in at most `budget` bytes at least one picture; None without attention maps.

    Every patch can be asked in as many layers as fit, spread over the depth; the others keep a coarser grid of queries.
    Where fewer than three layers could, every patch of the first picture can be asked, and few of the others.
    Only where even that is too much there are fewer pictures.
    """
    finding = run.findings.get("attention_maps")
    if finding is None:
        return None
    names, kept = finding.shown_subject.values.tolist(), finding.sizes["example"]
    budget = min(MOST_BYTES, BYTES_A_SUBJECT * len(names)) if budget is None else budget
    untrained = [entry["name"] for entry in run.plan["subjects"] if entry["trained"] is False]
    class_tokens = {each.subject: each.cls for each in run.scene.anatomies}
    subjects: list[dict[str, Any]] = [
        {
            "name": name,
            "colour": theme.subject_colour(name, run.scene.subjects),
            "size": finding.picture_size.values[index].tolist(),
            "photo": bool(finding.picture_size.values[index].max() > PHOTO),
            "noRollout": str(finding.no_rollout.values[index]),
            "random": name in untrained,
            "cls": class_tokens.get(name),
            **lesson(run, name),
            "pictures": [picture(finding, name, at) for at in range(kept)],
        }
        for index, name in enumerate(names)
    ]
    lessons = len(json.dumps([(each["place"], each["reach"]) for each in subjects], separators=(",", ":")))

    def room(count: int) -> int:
        return budget - OVERHEAD - lessons - sum(len(uri) for each in subjects for uri in each["pictures"][:count])

    examples, made = chosen(finding, names, kept, room)
    for each, of_subject in zip(subjects, made, strict=True):
        each["layers"], each["rows"], each["asked"] = of_subject.layers, of_subject.rows, of_subject.asked
    besides = [(each["layers"], each["asked"], each["place"], each["reach"]) for each in subjects]
    said = len(json.dumps(besides, separators=(",", ":")))
    shown = np.cumsum([sum(len(each["pictures"][at] + each["rows"][at]) for each in subjects) for at in examples])
    count = max(1, int((said + shown <= budget - OVERHEAD).sum()))
    for each in subjects:
        each["pictures"], each["rows"] = each["pictures"][:count], each["rows"][:count]
    return {
        "levels": LEVELS,
        "ramp": list(theme.MAGMA),
        "images": int(finding.attrs["images"]),
        "examples": finding.class_name.values[:count].tolist(),
        "subjects": subjects,
    }


def chosen(
    finding: xarray.Dataset, names: Sequence[str], kept: int, room: Callable[[int], int]
) -> tuple[range, list[Packed]]:
    """How many of the kept pictures are shown, and the rows of every subject."""
    few = min(kept, FEWEST)
    for count, first_whole in ((kept, False), (few, False), (few, True)):
        made = packed_together(finding, names, range(count), room(count), first_whole)
        fits = sum(each.size for each in made) <= room(count)
        if fits and all(each.whole or first_whole or (each.dense and count == few) for each in made):
            return range(count), made
    return range(few), packed_together(finding, names, range(few), room(few))


def packed_together(
    finding: xarray.Dataset, names: Sequence[str], examples: range, room: int, first_whole: bool = False
) -> list[Packed]:
    """All subjects in `room` bytes: what a small one leaves of its share is for the larger ones.

    Those whose attentions have the same grids get the same queries: side by side, both are asked the same patch.
    """
    made: dict[str, Packed] = {}
    all_room = room
    by_size = sorted(names, key=lambda name: len(site_indices(finding, name)))
    for waiting, name in zip(range(len(names), 0, -1), by_size, strict=True):
        made[name] = packed(finding, name, examples, room // waiting, first_whole)
        room -= made[name].size
    for alike in alike_in_grids(finding, names):
        least = max(made[name].choice for name in alike)
        for name in alike:
            if made[name].choice < least:
                made[name] = packed(finding, name, examples, all_room, first_whole, least)
    return [made[name] for name in names]


def alike_in_grids(finding: xarray.Dataset, names: Sequence[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(str(finding.grids.values[site_indices(finding, name)].tolist()), []).append(name)
    return list(groups.values())


def packed(
    finding: xarray.Dataset, subject: str, examples: range, room: int, first_whole: bool = False, least: int = 0
) -> Packed:
    """The layers of a subject and the rows of each picture, with as many queries as `room` bytes allow.

    No more of them than the choice `least` has.

    With `first_whole` every query of the first picture, whatever that leaves to the others.
    """
    sites = site_indices(finding, subject).tolist()
    choices = [(number, *each) for number, each in enumerate(queries_of(finding, sites))]
    whole = choices[0][-1]

    def values(asked: Mapping[int, np.ndarray]) -> int:
        return sum(math.prod(shape_of(finding, site)) * len(asked[site]) for site in sites)

    first = rows(finding, whole, 0)
    others = examples[1:] if first_whole else examples
    left = room - (len(first) if first_whole else 0)
    of_value = len(first) / values(whole)  # bytes
    fitting = [each for each in choices[least:] if 0.95 * of_value * values(each[-1]) * len(others) <= left]
    for number, dense, asked in [*fitting, choices[-1]]:
        listed = whole if first_whole else asked
        made = Packed(
            [layer(finding, site, listed[site]) for site in sites],
            [*([first] if first_whole else []), *(rows(finding, asked, at) for at in others)],
            asked is whole,
            dense,
            [np.searchsorted(whole[site], asked[site]).tolist() for site in sites] if first_whole else None,
            number,
        )
        if made.size <= room:
            break
    return made


@dataclass(frozen=True)
class Packed:
    layers: list[dict[str, Any]]
    rows: list[str]
    whole: bool
    """Whether every patch can be asked in every layer."""
    dense: bool
    """Whether it can in at least three, and most of them in the others."""
    asked: list[list[int]] | None
    """Which queries of each layer the rows of all pictures but the first have; None: all that it lists."""
    choice: int
    """Which of `queries_of`: the higher, the fewer."""

    @property
    def size(self) -> int:
        return sum(map(len, self.rows)) + len(json.dumps([self.layers, self.asked], separators=(",", ":")))


def queries_of(finding: xarray.Dataset, sites: Sequence[int]) -> Iterator[tuple[bool, dict[int, np.ndarray]]]:
    """Which queries of each attention may be asked, from all to few, each with whether these are dense."""
    whole = {site: np.flatnonzero(finding.query_place.values[site, :, 0] != NOTHING) for site in sites}
    yield True, whole
    some = [(many, SPARSE[0]) for many in range(len(sites) - 1, 2, -1)]
    few = [(many, side) for many in (3, 2, 1) if many < len(sites) for side in SPARSE[1:4]]
    for number, side in [*some, *few, *((0, side) for side in SPARSE)]:
        full = set(np.array(sites)[np.linspace(len(sites) - 1, 0, number).round().astype(int)].tolist())
        asked = {site: whole[site] if site in full else sparse(finding, site, whole[site], side) for site in sites}
        yield (number, side) in some, asked


def sparse(finding: xarray.Dataset, site: int, queries: np.ndarray, side: int) -> np.ndarray:
    """Those without place, and of the others `side` rows and columns, both edges among them."""
    place = finding.query_place.values[site, queries, :2]
    kept = np.ones(len(queries), dtype=bool)
    for axis in (0, 1):
        steps = np.unique(place[place[:, 0] >= 0, axis])
        chosen = steps[np.linspace(0, len(steps) - 1, min(side, len(steps))).round().astype(int)]
        kept &= np.isin(place[:, axis], chosen) | (place[:, 0] < 0)
    few: np.ndarray = queries[kept]
    return few


def shape_of(finding: xarray.Dataset, site: int) -> tuple[int, int]:
    """Heads and keys of one attention, without padding."""
    heads = int(finding.head_count.values[site])
    keys = int((finding.key_place.values[site, :, :, 0] != NOTHING).any(0).sum())
    return heads, keys


def layer(finding: xarray.Dataset, site: int, asked: np.ndarray) -> dict[str, Any]:
    heads, keys = shape_of(finding, site)
    windows = int((finding.key_place.values[site, :, 0, 0] != NOTHING).sum())
    spread = finding.relative.values[site, :heads]
    return {
        "name": str(finding.name.values[site]).removesuffix(" attention"),
        "heads": heads,
        "keys": keys,
        "grids": finding.grids.values[site].tolist(),
        "queries": finding.query_place.values[site, asked].tolist(),
        "windows": finding.key_place.values[site, :windows, :keys].tolist(),
        "entropy": [None if np.isnan(value) else round(float(value), 4) for value in spread],
    }


def rows(finding: xarray.Dataset, asked: Mapping[int, np.ndarray], example: int) -> str:
    """One picture's rows, deflated, in base64: for each attention what is `unforeseen` of the codes of heads and
    rollout; then all peaks.

    First the largest weights on patches, then those on tokens without place.
    """
    codes: list[np.ndarray] = []
    peaks: list[np.ndarray] = []
    besides: list[np.ndarray] = []
    for site, queries in asked.items():
        heads, keys = shape_of(finding, site)
        of_heads = finding.maps.values[example, site, :heads, queries, :keys].swapaxes(0, 1)
        of_rollout = finding.rollout.values[example, site, queries, :keys][None]
        codes.append(unforeseen(np.concatenate([of_heads, of_rollout])))
        for listed, name in ((peaks, "peak"), (besides, "beside")):
            listed += [finding[name].values[example, site, :heads, queries].T]
            listed += [finding[f"rollout_{name}"].values[example, site, queries]]
    # They were rounded to half precision when they were kept, so these are they. Lower bytes first, then upper ones,
    # deflates better.
    halves = np.concatenate([part.ravel() for part in (*peaks, *besides)])
    halves = halves.astype("<f2").view(np.uint8).reshape(-1, 2).T
    packer = zlib.compressobj(6, memLevel=9, strategy=zlib.Z_FILTERED)
    parts = [packer.compress(part.tobytes()) for part in (*codes, halves)]
    return base64.b64encode(b"".join([*parts, packer.flush()])).decode()


def unforeseen(codes: np.ndarray) -> np.ndarray:
    """Codes (head, query, key) less what their neighbours foresee, modulo 256: a seventh smaller when deflated.

    The forecast is that of lossless JPEG, from the key before, the query before, and the key before of that:
    their plane, or the nearer of the first two where the third lies beyond both. attention_rows.js undoes it.

    >>> unforeseen(np.array([[[7, 7, 9], [8, 8, 10]]], dtype=np.uint8))
    array([[[7, 0, 2],
            [1, 0, 1]]], dtype=uint8)
    """
    whole = np.pad(codes.astype(np.int16), ((0, 0), (1, 0), (1, 0)))
    left, above, corner = whole[:, 1:, :-1], whole[:, :-1, 1:], whole[:, :-1, :-1]
    foreseen = np.clip(left + above - corner, np.minimum(left, above), np.maximum(left, above))
    rest: np.ndarray = (codes - foreseen).astype(np.uint8)
    return rest


def picture(finding: xarray.Dataset, subject: str, example: int) -> str:
    index = finding.shown_subject.values.tolist().index(subject)
    height, width = finding.picture_size.values[index]
    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(finding.picture.values[example, index, :height, :width]))
    photo = max(height, width) > PHOTO
    image.save(file, "JPEG" if photo else "PNG", quality=86, optimize=True)
    return data_uri(file.getvalue(), "image/jpeg" if photo else "image/png")
