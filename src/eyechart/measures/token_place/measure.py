"""E6: is localisation about place, or about pixels? Controls and direct readings beside the CKA of `localisation`.

CKA of tokens with patches may be high because neighbouring patches look alike, because colours agree, or because of the
architecture. Here the same tokens are read in other ways: CKA on pictures whose patches were shuffled, CKA
without mean colours, a linear decoder of (row, column), a linear reconstruction of the patch itself, and what happens
to all tokens when one patch is exchanged.

    R² = 1 − Σ‖y − ŷ‖² / Σ‖y − m‖²        m: the mean; of pixels, that of their place
    share of an exchanged patch = ‖change of its own token‖² / Σ ‖change of a token‖²
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
import xarray
from torch import Tensor
from torch.nn import functional as F

from eyechart.errors import DoesNotApply
from eyechart.exact_bounds import room_for
from eyechart.measure import SampledExperiment, Source, Views, site_coordinates
from eyechart.measures.token_place.hits import CONTROLS, hits_at_end, quantity_of
from eyechart.measures.token_place.linear_maps import Sums, explained, place_explained
from eyechart.measures.token_place.moved_patches import exchanged, shuffled
from eyechart.methods.hsic import packed, scale_of
from eyechart.methods.places import Cells, asked, cells_of, cut, inner_tokens, picture_patches, read, tokens_in_cells
from eyechart.quantity import Compute, PerSubjects, Quantity, known_to, of_each, subjects_in
from eyechart.reading_estimates import Ends, clearly_above, in_words, site_indices, spanned
from eyechart.scene import Batch, Scene
from eyechart.site_choice import blocks_with_inner_cells
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import View
from eyechart.tracing.readouts import narrow

WIDTH = 128
CHUNK = 32
FEWEST = 8
PATCHES = ("own", "adjacent", "far")
PIXELS = 2 * 2 * 3
"""A patch as the decoder sees it: the mean colours of its four quarters."""
FEATURES = View("tokens in cells", lambda look: spatial(tokens_in_cells(look), look.site))
NARROW = View("tokens in cells, narrow", lambda look: narrow(spatial(tokens_in_cells(look), look.site).float(), WIDTH))


def spatial(tokens: Tensor, site: Site) -> Tensor:
    return tokens[:, site.layout.prefix :]


def sites_of(anatomy: Anatomy) -> Sequence[Site]:
    # Fewer than localisation looks at: controls and decoders cost more than a heat-map.
    return blocks_with_inner_cells(anatomy, of_cnn=3, of_others=3)


def last_of(anatomy: Anatomy) -> Site:
    return sites_of(anatomy)[-1]


def cells_at(site: Site) -> Cells:
    assert site.grid is not None
    return cells_of(site.grid)


def divides(anatomy: Anatomy) -> bool:
    """Whether the picture can be cut into the cells of the last block, so that patches can be moved."""
    rows, columns = cells_at(last_of(anatomy))
    return anatomy.input_size[0] % rows == 0 and anatomy.input_size[1] % columns == 0


def related(cells: Cells) -> np.ndarray:
    """For each token asked about: its own patch, an adjacent one in its row, one half a picture away; (3, token)."""
    rows, columns = cells
    row, column = np.divmod(asked(cells), columns)
    adjacent = np.where(column + 1 < columns, column + 1, column - 1)
    far = (row + rows // 2) % rows * columns + (column + columns // 2) % columns
    return np.stack([row * columns + column, row * columns + adjacent, far])


@dataclass
class TokenPlaceTally(Tally):
    products: Annotated[Tensor, Sum("fold", "half", "site", "feature", "other_feature")]
    cross: Annotated[Tensor, Sum("fold", "half", "site", "feature", "target")]
    squares: Annotated[Tensor, Sum("fold", "half", "site", "target")]
    features: Annotated[Tensor, Sum("fold", "half", "site", "token", "feature")]
    targets: Annotated[Tensor, Sum("fold", "half", "site", "token", "target")]
    half_images: Annotated[Tensor, Sum("fold", "half")]
    hsic: Annotated[Tensor, Sum("fold", "control", "subject", "token", "patch")]
    token: Annotated[Tensor, Sum("fold", "control", "subject", "token")]
    patch: Annotated[Tensor, Sum("fold", "control", "subject", "patch")]
    stays: Annotated[Tensor, Sum("fold", "subject")]
    """Σ over images of the share of the change that stays with the exchanged patch's own token."""
    images: Annotated[Tensor, Sum("fold", counts=True)]


def at_end(variable: str, **where: str) -> Compute:
    """A number of the last block looked at."""

    def number(estimate: xarray.Dataset, subject: str) -> float:
        values = estimate[variable].sel(where) if where else estimate[variable]
        return float(values[site_indices(estimate, subject)[-1]])

    return of_each(number)


def room_of_inner_tokens(estimate: xarray.Dataset, subject: str) -> float:
    """The exact bound of a hit-rate of so many tokens."""
    return float(room_for(estimate.inner_tokens.values[site_indices(estimate, subject)[-1]]))


def own_above_adjacent(estimate: xarray.Dataset) -> PerSubjects:
    own, adjacent = (at_end("pixels", relation=relation)(estimate) for relation in ("own", "adjacent"))
    return {subject: own[subject] - adjacent[subject] for subject in own}


@dataclass(frozen=True)
class TokenPlace(SampledExperiment):
    name = "token_place"
    title = "Is what tokens hold about place, or about pixels?"
    title_ko = "토큰에 담긴 것은 자리의 정보인가, 픽셀의 정보인가?"
    order = 23
    chapter = "place"
    sources = (Source("eyechart", "does the likeness of Raghu et al. 2021, Figures 9 and 10, mean place?"),)
    how_to_read = (
        "First: the hit-rate of the last block's tokens under controls, on fewer images than in “Do tokens know where "
        "they came from?”, so less certain and often lower: compare it with its controls. If it stays when patches are "
        "shuffled, it does not come from neighbours that look alike; if it stays without mean colours, it is not "
        "colour alone. Second: how well a linear decoder tells a token's row and column. Third: how much of a patch's "
        "coarse colours a linear decoder finds in the token at its place (solid), against an adjacent patch and one "
        "half a picture away. An interval cut off by its panel is wider than can be drawn. A token without "
        "information about its pixels can still hold its position, and the other way round."
    )
    how_to_read_ko = (
        "처음: 통제 조건에서 마지막 블록 토큰의 적중률. “토큰은 자기 자리를 기억하는가?”보다 이미지가 적어 덜 확실하고 "
        "더 낮을 때가 많으므로 통제 조건끼리 견준다. 패치를 섞어도 유지되면 이웃 패치가 닮아서 생긴 것이 아니고, "
        "평균 색을 빼도 유지되면 색만의 효과가 아니다. 둘째: 토큰에서 행과 열을 선형으로 맞히는 정도. 셋째: 토큰에서 "
        "자기 자리 패치의 대략적인 색을 선형으로 되살리는 정도(실선)를 이웃 패치와 그림 절반만큼 먼 패치의 것과 "
        "견준다. 그림 끝에서 잘린 구간은 그릴 수 있는 것보다 넓다. 픽셀의 정보가 없는 토큰도 위치는 담을 수 있고, "
        "그 반대도 마찬가지이다."
    )
    method = (
        "Hit-rate as in localisation, but on fewer images and in blocks of at most 32, so that it is less certain. "
        "Decoders are ridge regressions from tokens (through a random projection to 128 numbers where wider), fitted "
        "on one half of the images and scored on the other, both ways; R² of pixels after the mean of each place is "
        "taken away; a patch is the mean colours of its four quarters. Exchange: one patch inside the picture is taken "
        "from another picture; the share of the squared change of all tokens read that is at the token of that patch."
    )
    quantities = (
        *(
            Quantity(
                quantity_of(control),
                at_end("hit_rate", control=control),
                f"share of interior tokens of the last block most like their own patch; pictures: {control}",
                smooth=False,
                limits=(0, 1),
                if_unmoved=known_to(room_of_inner_tokens, at_end("hit_rate", control=control)),
            )
            for control in CONTROLS
        ),
        Quantity("place_decoded", at_end("place"), "R² of a token's row and column, last block", limits=(None, 1)),
        Quantity(
            "own_patch_decoded", at_end("pixels", relation="own"), "R² of the own patch, last block", limits=(None, 1)
        ),
        Quantity(
            "own_patch_above_adjacent", own_above_adjacent, "R² of the own patch minus the adjacent one, last block"
        ),
        Quantity(
            "change_that_stays",
            at_end("stays"),
            "share of the change that stays with the token of an exchanged patch, last block",
            limits=(0, 1),
        ),
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 4.0, "normal": 40.0, "full": 200.0}

    def passes(self, anatomy: Anatomy) -> float:
        return 3.0

    def tally(self, scene: Scene) -> TokenPlaceTally:
        sites = scene.sites(sites_of)
        if not sites:
            raise DoesNotApply("no subject has blocks on a grid of at least 3×3, so no token has a place.")
        if scene.block < FEWEST:
            raise DoesNotApply(f"it needs blocks of at least {FEWEST} images; {scene.images} images make smaller ones.")
        cells = [cells_at(site) for _, site in sites]
        return TokenPlaceTally.empty(
            fold=scene.folds,
            half=2,
            site=len(sites),
            feature=WIDTH,
            other_feature=WIDTH,
            target=len(PATCHES) * PIXELS,
            token=max(len(asked(each)) for each in cells),
            control=len(CONTROLS),
            subject=len(scene.subjects),
            patch=max(math.prod(each) for each in cells),
        )

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        few, anatomy = bench.first(self.images or len(bench.batch.images) + bench.batch.start), bench.anatomy
        if len(few) < FEWEST or not sites_of(anatomy):
            return {}
        last = last_of(anatomy)
        cells = cells_at(last)
        wanted: dict[str, list[View]] = {site.name: [NARROW] for site in sites_of(anatomy)}
        wanted[last.name] = [NARROW, FEATURES]
        seen = few.look(wanted)
        results = {f"features {row}": seen[site.name][NARROW.name] for row, site in enumerate(sites_of(anatomy))}
        for row, site in enumerate(sites_of(anatomy)):
            patches = cut(few.images.float(), cells_at(site))
            coarse = F.adaptive_avg_pool2d(patches.flatten(0, 1), 2).reshape(*patches.shape[:2], -1)
            picked = [coarse[:, torch.as_tensor(indices)] for indices in related(cells_at(site))]
            results[f"targets {row}"] = torch.cat(picked, dim=2).cpu()
        results["tokens plain"] = results["tokens colour removed"] = seen[last.name][FEATURES.name]
        results["pictures plain"] = results["pictures colour removed"] = few.images.float().cpu()
        if divides(anatomy):
            mixed = shuffled(few.images, cells, bench.generator("shuffle"))
            results["tokens patches shuffled"] = few.look({last.name: [FEATURES]}, images=mixed)[last.name][
                FEATURES.name
            ]
            results["pictures patches shuffled"] = mixed.float().cpu()
            results["stays"] = self.exchange(few, results["tokens plain"].float(), bench.generator("exchange"))
        return results

    def exchange(self, bench: Bench, before: Tensor, generator: torch.Generator) -> Tensor:
        """For each image, the share of the squared change that stays with the exchanged patch's token."""
        last = last_of(bench.anatomy)
        cells = cells_at(last)
        tokens = asked(cells)
        rows, columns = np.divmod(tokens, cells[1])
        inside = (rows % (cells[0] - 1) != 0) & (columns % (cells[1] - 1) != 0)
        choice = torch.as_tensor(np.flatnonzero(inside))
        chosen = choice[torch.randint(len(choice), (len(bench),), generator=generator)]
        patches = torch.as_tensor(tokens)[chosen].to(bench.images.device)
        changed = exchanged(bench.images, cells, patches)
        after = bench.look({last.name: [FEATURES]}, images=changed)[last.name][FEATURES.name].float()
        change = (after - before).square().sum(2)
        share: Tensor = change[torch.arange(len(change)), chosen] / change.sum(1)
        return share

    def update(self, tally: TokenPlaceTally, batch: Batch, views: Views, scene: Scene) -> None:
        row = 0
        counted = False
        for place, anatomy in enumerate(scene.anatomies):
            results, sites = views.experiment(anatomy.subject), sites_of(anatomy)
            if results:
                # Whole chunks, two folds a batch: a fold of these sums takes 3 MB for two subjects, in every shard.
                seen = len(results["features 0"])
                pieces = torch.split(torch.arange(seen), min(CHUNK, max(FEWEST, -(-seen // 2))))
                for number, rows in enumerate(piece for piece in pieces if len(piece) >= FEWEST):
                    fold = (2 * batch.index + number % 2) % scene.folds
                    for at in range(len(sites)):
                        add_sums(tally, fold, row + at, results[f"features {at}"][rows], results[f"targets {at}"][rows])
                    self.add_hsic(tally, fold, place, last_of(anatomy), {k: v[rows] for k, v in results.items()})
                    if "stays" in results:
                        tally.stays[fold, place] += results["stays"][rows].double().nansum()
                    if not counted:
                        tally.images[fold] += len(rows)
                        tally.half_images[fold] += torch.tensor([len(rows[0::2]), len(rows[1::2])])
                counted = True
            row += len(sites)

    def add_hsic(
        self, tally: TokenPlaceTally, fold: int, subject: int, site: Site, results: Mapping[str, Tensor]
    ) -> None:
        for at, control in enumerate(CONTROLS):
            if f"tokens {control}" not in results:
                continue
            colour: Literal["kept", "removed"] = "removed" if control == "colour removed" else "kept"
            patches = packed(picture_patches(results[f"pictures {control}"], cells_at(site), colour))[:-1].double()
            tokens = packed(results[f"tokens {control}"]).double()
            tally.hsic[fold, at, subject, : len(tokens), : len(patches)] += tokens @ patches.T
            tally.token[fold, at, subject, : len(tokens)] += tokens.square().sum(1)
            tally.patch[fold, at, subject, : len(patches)] += patches.square().sum(1)

    def estimate(self, total: TokenPlaceTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(sites_of)
        final = {subject: row for row, (subject, _) in enumerate(sites)}
        hits, stays = np.full((len(sites), len(CONTROLS)), np.nan), np.full(len(sites), np.nan)
        place, pixels = np.full(len(sites), np.nan), np.full((len(sites), len(PATCHES)), np.nan)
        for row, (subject, site) in enumerate(sites):
            cells = cells_at(site)
            rows, columns = np.divmod(asked(cells), cells[1])
            where = np.stack([rows / (cells[0] - 1), columns / (cells[1] - 1)], axis=1)
            width = min(site.channels, WIDTH)
            one, two = (sums_of(total, half, row, width, len(where)) for half in (0, 1))
            place[row], pixels[row] = place_explained(one, two, where), explained(one, two, len(PATCHES))
            if final[subject] == row:
                column = scene.subjects.index(subject)
                hits[row] = [hit_rate(total, at, column, cells) for at in range(len(CONTROLS))]
                moved = divides(scene.anatomy(subject))
                stays[row] = float(total.stays[column] / total.images) if moved else np.nan
        share, inner = {"limits": (0.0, 1.0)}, np.array([inner_tokens(cells_at(site)) for _, site in sites])
        return xarray.Dataset(
            {
                "hit_rate": (("site", "control"), hits, {**share, "smooth": False, "trials": inner[:, None]}),
                "place": ("site", place, {"limits": (None, 1.0)}),
                "pixels": (("site", "relation"), pixels, {"limits": (None, 1.0)}),
                "stays": ("site", stays, share),
                "evenly": ("site", [1 / len(asked(cells_at(site))) for _, site in sites], {"exact": True}),
            },
            coords={
                **site_coordinates(scene, sites),
                "inner_tokens": ("site", inner),
                "control": list(CONTROLS),
                "relation": list(PATCHES),
            },
            attrs={"images": int(total.images.sum())},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts, hits = [], {control: hits_at_end(finding, control) for control in CONTROLS}
        for subject in subjects_in(finding):
            last = finding.isel(site=site_indices(finding, subject)[-1])
            plain, colourless, mixed = (spanned(hits[control][subject], ".0%") for control in CONTROLS)
            known = np.isfinite(hits["patches shuffled"][subject][0])
            shuffle = f", {mixed} when patches are shuffled" if known else ""
            own, adjacent = (in_words(last.sel(relation=each), "pixels", ".2f") for each in ("own", "adjacent"))
            where = "the last block" if float(last.depth) == 1 else f"{last['name'].item()}, the last with places,"
            parts.append(
                f"In {where} of {subject} {plain} of the interior tokens hit their own patch, {colourless} without "
                f"mean colours{shuffle}; a linear decoder finds the place of a token with R² "
                f"{in_words(last, 'place', '.2f')} and its patch with R² {own} (an adjacent one {adjacent})."
            )
        readings = {
            "CKA": hits["plain"],
            "CKA on shuffled patches": hits["patches shuffled"],
            "the place decoder": ends_at_end(finding, "place"),
            "the patch decoder": ends_at_end(finding, "pixels", relation="own"),
            "the exchange of patches": ends_at_end(finding, "stays"),
        }
        said = " ".join(parts)
        return f"{said}\n{ranking}" if (ranking := same_ranking(readings)) else said


def ends_at_end(finding: xarray.Dataset, variable: str, **where: str) -> dict[str, Ends]:
    """A number of the last block looked at of each subject, with its interval."""
    value, low, high = (at_end(f"{variable}{end}", **where)(finding) for end in ("", "_low", "_high"))
    return {subject[0]: (value[subject], low[subject], high[subject]) for subject in value}


def same_ranking(readings: Mapping[str, Mapping[str, Ends]]) -> str:
    """Which readings order the subjects as the first does, as far as their intervals tell them apart."""
    orders = {name: in_order(ends) for name, ends in readings.items() if np.isfinite(list(ends.values())).all()}
    if len(orders) < 2 or len(readings["CKA"]) < 2:
        return ""
    first, *others = orders
    phrases = [f"by {name} it is {orders[name]}" for name in others if orders[name] != orders[first]]
    told = f"By {first} the order is {orders[first]}; {'; '.join(phrases) or 'by every other reading, too'}."
    return f"{told} “>” stands where the interval of the difference, made of both, lies above 0, “≈” where it does not."


def in_order(values: Mapping[str, Ends]) -> str:
    """
    >>> in_order({"a": (0.1, 0.0, 0.2), "b": (0.9, 0.8, 1.0), "c": (0.0, 0.0, 0.1)})
    'b > a ≈ c'
    """
    ranked = sorted(values, key=lambda subject: -values[subject][0])
    signs = [">" if clearly_above(values[one], values[two]) else "≈" for one, two in pairwise(ranked)]
    return " ".join([ranked[0], *(f"{sign} {subject}" for sign, subject in zip(signs, ranked[1:], strict=True))])


def add_sums(tally: TokenPlaceTally, fold: int, row: int, features: Tensor, targets: Tensor) -> None:
    """The sums of one chunk, images dealt to the two halves in turn."""
    for half in (0, 1):
        x, y = features[half::2].double(), targets[half::2].double()
        width, tokens = x.shape[2], x.shape[1]
        flat, aims = x.flatten(0, 1), y.flatten(0, 1)
        tally.products[fold, half, row, :width, :width] += flat.T @ flat
        tally.cross[fold, half, row, :width] += flat.T @ aims
        tally.squares[fold, half, row] += aims.square().sum(0)
        tally.features[fold, half, row, :tokens, :width] += x.sum(0)
        tally.targets[fold, half, row, :tokens] += y.sum(0)


def sums_of(total: TokenPlaceTally, half: int, row: int, width: int, tokens: int) -> Sums:
    return Sums(
        products=total.products[half, row, :width, :width].numpy(),
        cross=total.cross[half, row, :width].numpy(),
        squares=total.squares[half, row].numpy(),
        features=total.features[half, row, :tokens, :width].numpy(),
        targets=total.targets[half, row, :tokens].numpy(),
        images=float(total.half_images[half]),
    )


def hit_rate(total: TokenPlaceTally, control: int, subject: int, cells: Cells) -> float:
    tokens, patches = len(asked(cells)), math.prod(cells)
    token = scale_of(total.token[control, subject, :tokens].numpy())
    patch = scale_of(total.patch[control, subject, :patches].numpy())
    return read(total.hsic[control, subject, :tokens, :patches].numpy() / np.outer(token, patch), cells).hit_rate
