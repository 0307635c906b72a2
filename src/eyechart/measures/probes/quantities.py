"""What the curves of probes say: where readouts part, and whose tokens or means tell the class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from eyechart.quantity import subjects_in
from eyechart.reading_estimates import late_over_rest, places_of, thirds
from eyechart.tracing.readouts import READOUTS, Group

if TYPE_CHECKING:
    import xarray

    from eyechart.quantity import PerSubjects


def mean_of(estimate: xarray.Dataset, places: np.ndarray, readout: str) -> float:
    return float(estimate.accuracy.sel(readout=readout).values[places].mean())


def vits(estimate: xarray.Dataset, pooling: str) -> dict[str, np.ndarray]:
    """ViTs that read their class token, or the mean of all, with the places of their blocks."""
    found = {subject: places_of(estimate, subject) for subject in subjects_in(estimate, "vit")}
    return {who: places for who, places in found.items() if estimate.pooling.values[places[0]] == pooling}


def own_readout(estimate: xarray.Dataset, places: np.ndarray) -> float:
    """At the last block, what the classifier itself reads: the class token, or the mean."""
    return mean_of(estimate, places[-1:], "cls" if estimate.pooling.values[places[0]] == "cls" else "gap")


def thirds_of(places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, high = thirds(places)
    return low, np.setdiff1d(places, np.concatenate([low, high])), high


def twins(estimate: xarray.Dataset) -> list[tuple[str, np.ndarray, str, np.ndarray]]:
    """Every GAP ViT with every class-token ViT of the same build, and the places of their blocks."""
    return [
        (gap, there, cls, here)
        for gap, there in vits(estimate, "gap").items()
        for cls, here in vits(estimate, "cls").items()
        if estimate.build.values[there[0]] == estimate.build.values[here[0]]
    ]


def cnns_with_vits(estimate: xarray.Dataset) -> list[tuple[str, np.ndarray, str, np.ndarray]]:
    """Every CNN with every class-token ViT."""
    return [
        (cnn, places_of(estimate, cnn), cls, here)
        for cnn in subjects_in(estimate, "cnn")
        for cls, here in vits(estimate, "cls").items()
    ]


Pairs = Callable[["xarray.Dataset"], list[tuple[str, np.ndarray, str, np.ndarray]]]


def token_gap(pairs: Pairs) -> Callable[[xarray.Dataset], PerSubjects]:
    """Single tokens at the last block: the other subject minus the class-token ViT."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        return {
            (other, cls): mean_of(estimate, there[-1:], "tokens") - mean_of(estimate, here[-1:], "tokens")
            for other, there, cls, here in pairs(estimate)
        }

    return compute


def shortfall_gap(pairs: Pairs) -> Callable[[xarray.Dataset], PerSubjects]:
    """How much less a single token tells than what the classifier reads: the class-token ViT minus the other subject.

    A class-token ViT that tells nothing anywhere has bad tokens too, but not worse ones than its class token.
    """

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        def short(places: np.ndarray) -> float:
            return own_readout(estimate, places) - mean_of(estimate, places[-1:], "tokens")

        return {(other, cls): short(here) - short(there) for other, there, cls, here in pairs(estimate)}

    return compute


def first_token_rise(estimate: xarray.Dataset) -> PerSubjects:
    """First patch token of a GAP ViT, last block minus middle third: a token as bad as a collapsed mean is no good."""
    result: PerSubjects = {}
    for who, places in vits(estimate, "gap").items():
        middle = thirds_of(places)[1]
        if len(middle):
            result[who,] = mean_of(estimate, places[-1:], "first") - mean_of(estimate, middle, "first")
    return result


def pooled_over_first_at_mid_depth(estimate: xarray.Dataset) -> PerSubjects:
    result: PerSubjects = {}
    for who, places in vits(estimate, "gap").items():
        middle = thirds_of(places)[1]
        if len(middle):
            result[who,] = mean_of(estimate, middle, "gap") - mean_of(estimate, middle, "first")
    return result


def lead_of_cls(estimate: xarray.Dataset) -> dict[str, np.ndarray]:
    """Class token minus the mean of all tokens, block by block, of every class-token ViT.

    The mean of all tokens, the class token among them: the paper's "CLS; GAP". "CLS; GAP except CLS" is another curve.
    """
    result = {}
    for who, places in vits(estimate, "cls").items():
        accuracy = estimate.accuracy.isel(site=places)
        result[who] = (accuracy.sel(readout="cls") - accuracy.sel(readout="gap with cls")).values
    return result


def depth_of_half(lead: np.ndarray, depth: np.ndarray) -> float:
    """Depth at which a lead first reaches half of its largest value (between blocks: a straight line); 1 if none.

    The depth from which on a lead exceeds five points would jump by whole blocks, and by half the network where a flat
    curve crosses: on zoo:vit its interval was [.15, 1].

    >>> round(depth_of_half(np.array([0.0, 0.0, 0.1, 0.4]), np.array([0.25, 0.5, 0.75, 1.0])), 3)
    0.833
    """
    half = lead.max() / 2
    if np.isnan(half):
        return float("nan")
    if half <= 0:
        return 1.0
    at = int(np.argmax(lead >= half))
    return float(np.interp(half, lead[at - 1 : at + 1], depth[at - 1 : at + 1]) if at else depth[0])


def half_lead_depth(estimate: xarray.Dataset) -> PerSubjects:
    leads = lead_of_cls(estimate)
    return {(who,): depth_of_half(lead, estimate.depth.values[places_of(estimate, who)]) for who, lead in leads.items()}


def early_lead(estimate: xarray.Dataset) -> PerSubjects:
    """Lead of the class token over the first half of the blocks: where it leads from the start, nothing parts late."""
    leads = lead_of_cls(estimate)
    return {(who,): float(lead[: len(lead) // 2].mean()) for who, lead in leads.items() if len(lead) >= 2}


def at_the_end(one: str, other: str, pooling: str) -> Callable[[xarray.Dataset], PerSubjects]:
    """One readout minus another at the last block of every ViT of one pooling."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        return {
            (who,): mean_of(estimate, places[-1:], one) - mean_of(estimate, places[-1:], other)
            for who, places in vits(estimate, pooling).items()
        }

    return compute


def divergence(estimate: xarray.Dataset) -> PerSubjects:
    """Mean size of the difference of two ViTs' token probes in the last third of the blocks, minus twice that before.

    Sizes are taken block by block: differences that change sign would cancel. Noise makes each at least .8 of its
    standard error (.006 with 1,000 images), which counts twice against the claim.
    """
    result: PerSubjects = {}
    for gap, there, cls, here in twins(estimate):
        if len(here) >= 3:
            tokens = estimate.accuracy.sel(readout="tokens").values
            result[gap, cls] = late_over_rest(np.abs(tokens[there] - tokens[here]))
    return result


def middle_accuracy(estimate: xarray.Dataset) -> PerSubjects:
    """Mean token at the middle third of the blocks, of every subject that has three."""
    places = {who: places_of(estimate, who) for who in subjects_in(estimate)}
    return {(who,): mean_of(estimate, thirds_of(here)[1], "gap") for who, here in places.items() if len(here) >= 3}


def middle_gap(estimate: xarray.Dataset) -> PerSubjects:
    """Mean token at the middle third of the blocks, ViT minus CNN."""
    return {
        (vit, cnn): mean_of(estimate, thirds_of(here)[1], "gap") - mean_of(estimate, thirds_of(there)[1], "gap")
        for vit, here, cnn, there in deep_vits_with_cnns(estimate)
    }


def middle_over_last_gap(estimate: xarray.Dataset) -> PerSubjects:
    """The same, less the lead at the last block by what each classifier reads: a better model leads everywhere."""
    ahead = middle_gap(estimate)
    return {
        (vit, cnn): ahead[vit, cnn] - (own_readout(estimate, here) - own_readout(estimate, there))
        for vit, here, cnn, there in deep_vits_with_cnns(estimate)
    }


def deep_vits_with_cnns(estimate: xarray.Dataset) -> list[tuple[str, np.ndarray, str, np.ndarray]]:
    """Every ViT with every CNN, of at least three blocks each."""
    places = {who: places_of(estimate, who) for who in subjects_in(estimate)}
    return [
        (vit, places[vit], cnn, places[cnn])
        for vit in subjects_in(estimate, "vit")
        for cnn in subjects_in(estimate, "cnn")
        if len(places[vit]) >= 3 <= len(places[cnn])
    ]


DIFFERENCES: tuple[tuple[str, Callable[[xarray.Dataset], PerSubjects], str], ...] = (
    ("token_probe_gap", token_gap(twins), "single-token probe at the last block, GAP ViT minus class-token ViT"),
    (
        "token_shortfall_gap",
        shortfall_gap(twins),
        "what the classifier reads minus a single token, last block, class-token ViT minus GAP ViT",
    ),
    (
        "token_probe_gap_cnn",
        token_gap(cnns_with_vits),
        "single-token probe at the last block, CNN minus class-token ViT",
    ),
    (
        "token_shortfall_gap_cnn",
        shortfall_gap(cnns_with_vits),
        "what the classifier reads minus a single token, last block, class-token ViT minus CNN",
    ),
    (
        "pooled_over_first_last",
        at_the_end("gap", "first", "gap"),
        "probe of the mean token minus the first patch token, last block",
    ),
    (
        "pooled_over_first_middle",
        pooled_over_first_at_mid_depth,
        "probe of the mean token minus the first patch token, middle third of the blocks",
    ),
    (
        "first_token_rise",
        first_token_rise,
        "probe of the first patch token, last block minus middle third of the blocks",
    ),
    (
        "cls_over_mean_early",
        early_lead,
        "probe of the class token minus the mean of all tokens, first half of the blocks",
    ),
    (
        "cls_over_mean_last",
        at_the_end("cls", "gap with cls", "cls"),
        "probe of the class token minus the mean of all tokens, last block",
    ),
    (
        "mean_without_cls",
        at_the_end("gap", "gap with cls", "cls"),
        "probe of the mean token at the last block, without minus with the class token",
    ),
    ("middle_probe_gap", middle_gap, "probe of the mean token at the middle third of blocks, ViT minus CNN"),
    ("middle_over_last_probe_gap", middle_over_last_gap, "the same, less the lead at the last block"),
)
"""Quantities that are differences of two accuracies on the same images: name, number, words."""


def widths_read(groups: Sequence[Group], sites: int) -> dict[str, tuple[tuple[str, str], np.ndarray]]:
    """How many features each readout of a site has, and how many its probe reads; 0 where there is no such readout."""
    table = np.zeros((2, sites, len(READOUTS)), dtype=np.int64)
    for group in groups:
        table[:, group.site, READOUTS.index(group.readout)] = group.channels, group.width
    return {name: (("site", "readout"), table[at]) for at, name in enumerate(("features", "features_read"))}


def through_a_projection(finding: xarray.Dataset) -> list[str]:
    """Which probes did not read the features themselves, as a sentence; none where all did."""
    told = []
    for subject in subjects_in(finding):
        own = finding.isel(site=places_of(finding, subject))
        features, read = own.features.values, own.features_read.values
        for words, columns in (("single tokens", slice(0, 1)), ("single vectors", slice(1, None))):
            projected = features[:, columns] > read[:, columns]
            if projected.any():
                many = sorted(set(features[:, columns][projected].tolist()))
                span = f"{many[0]}" if len(many) == 1 else f"{many[0]} to {many[-1]}"
                where = (
                    "" if projected.any(1).all() else f" at {int(projected.any(1).sum())} of {len(projected)} blocks"
                )
                told.append(f"{words} of {subject}{where} ({span} features, {read[:, columns].max()} read)")
    if not told:
        return []
    how = (
        "a fixed random projection, which can cost a probe several points (probes.width and probes.token_width set it)"
    )
    return [f"Read through {how}: {'; '.join(told)}."]
