"""Quantities of the curves of probes: where readouts part, and from which tokens or means the class can be read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray

from eyechart.quantity import Compute, OfOne, OfTwo, of_each, of_pairs, subjects_in
from eyechart.reading_estimates import by_subject, late_over_rest, site_indices, thirds
from eyechart.tracing.readouts import READOUTS, Group


def mean_of(estimate: xarray.Dataset, blocks: np.ndarray, readout: str) -> float:
    return float(estimate.accuracy.sel(readout=readout).values[blocks].mean())


def at_last(estimate: xarray.Dataset, subject: str, readout: str) -> float:
    return mean_of(estimate, site_indices(estimate, subject)[-1:], readout)


def pooling_of(estimate: xarray.Dataset, subject: str) -> str:
    return str(estimate.pooling.values[site_indices(estimate, subject)[0]])


def own_readout(estimate: xarray.Dataset, subject: str) -> float:
    """At the last block, what the classifier itself reads: the class token, or the mean."""
    return at_last(estimate, subject, "cls" if pooling_of(estimate, subject) == "cls" else "gap")


def middle_third(estimate: xarray.Dataset, subject: str) -> np.ndarray:
    """Indices of the blocks between the lowest and the highest third."""
    blocks = site_indices(estimate, subject)
    return np.setdiff1d(blocks, np.concatenate(thirds(blocks)))


# --- which subjects -------------------------------------------------------------------------------------------------


def class_token_vits(estimate: xarray.Dataset) -> list[str]:
    return [subject for subject in subjects_in(estimate, "vit") if pooling_of(estimate, subject) == "cls"]


def gap_vits(estimate: xarray.Dataset) -> list[str]:
    """ViTs that read the mean of their tokens."""
    return [subject for subject in subjects_in(estimate, "vit") if pooling_of(estimate, subject) == "gap"]


def of_twins(number: OfTwo) -> Compute:
    """A number of every GAP ViT with every class-token ViT of the same build."""

    def of_one_build(estimate: xarray.Dataset, gap: str, cls: str) -> float | None:
        build = by_subject(estimate, "build")
        return number(estimate, gap, cls) if build[gap] == build[cls] else None

    return of_pairs(of_one_build, gap_vits, class_token_vits)


def of_cnns_with_vits(number: OfTwo) -> Compute:
    """A number of every CNN with every class-token ViT."""
    return of_pairs(number, "cnn", class_token_vits)


# --- numbers --------------------------------------------------------------------------------------------------------


def token_gap(estimate: xarray.Dataset, other: str, cls: str) -> float:
    """Single tokens at the last block: the other subject minus the class-token ViT."""
    return at_last(estimate, other, "tokens") - at_last(estimate, cls, "tokens")


def shortfall_gap(estimate: xarray.Dataset, other: str, cls: str) -> float:
    """What the classifier reads minus a single token: the class-token ViT minus the other subject.

    A class-token ViT in which no readout knows the class has poor tokens too, but no shortfall.
    """

    def shortfall(subject: str) -> float:
        return own_readout(estimate, subject) - at_last(estimate, subject, "tokens")

    return shortfall(cls) - shortfall(other)


def first_token_rise(estimate: xarray.Dataset, subject: str) -> float | None:
    """First patch token, last block minus middle third: as good as the mean counts only if the mean is any good."""
    middle = middle_third(estimate, subject)
    return at_last(estimate, subject, "first") - mean_of(estimate, middle, "first") if len(middle) else None


def pooled_over_first_at_mid_depth(estimate: xarray.Dataset, subject: str) -> float | None:
    middle = middle_third(estimate, subject)
    return mean_of(estimate, middle, "gap") - mean_of(estimate, middle, "first") if len(middle) else None


def lead_of_cls(estimate: xarray.Dataset, subject: str) -> np.ndarray:
    """Class token minus the mean of all tokens, block by block.

    The mean of all tokens, the class token among them: the paper's "CLS; GAP". "CLS; GAP except CLS" is another curve.
    """
    columns = estimate.variables  # asked of 400 estimates for an interval: sel took a third of it
    readouts, accuracy = columns["readout"].values.tolist(), columns["accuracy"].values[site_indices(estimate, subject)]
    return np.asarray(accuracy[:, readouts.index("cls")] - accuracy[:, readouts.index("gap with cls")])


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


def half_lead_depth(estimate: xarray.Dataset, subject: str) -> float:
    return depth_of_half(lead_of_cls(estimate, subject), estimate.depth.values[site_indices(estimate, subject)])


def early_lead(estimate: xarray.Dataset, subject: str) -> float | None:
    """Lead of the class token over the first half of the blocks: if it leads from the start, it does not part late."""
    lead = lead_of_cls(estimate, subject)
    return float(lead[: len(lead) // 2].mean()) if len(lead) >= 2 else None


def last_block_gap(one: str, other: str) -> OfOne:
    """One readout minus another at the last block."""
    return lambda estimate, subject: at_last(estimate, subject, one) - at_last(estimate, subject, other)


def divergence(estimate: xarray.Dataset, gap: str, cls: str) -> float | None:
    """Mean size of the difference of two ViTs' token probes in the last third of the blocks, minus twice that before.

    Sizes are taken block by block: differences that change sign would cancel. Noise makes each at least .8 of its
    standard error (.006 with 1,000 images), which counts twice against the claim.
    """
    tokens = estimate.accuracy.sel(readout="tokens").values
    of_gap, of_cls = (tokens[site_indices(estimate, subject)] for subject in (gap, cls))
    return late_over_rest(np.abs(of_gap - of_cls)) if len(of_cls) >= 3 else None


def middle_accuracy(estimate: xarray.Dataset, subject: str) -> float | None:
    """Mean token at the middle third of the blocks, of every subject that has three."""
    deep = len(site_indices(estimate, subject)) >= 3
    return mean_of(estimate, middle_third(estimate, subject), "gap") if deep else None


def middle_gap(estimate: xarray.Dataset, vit: str, cnn: str) -> float | None:
    """The same, ViT minus CNN."""
    of_vit, of_cnn = middle_accuracy(estimate, vit), middle_accuracy(estimate, cnn)
    return None if of_vit is None or of_cnn is None else of_vit - of_cnn


def middle_over_last_gap(estimate: xarray.Dataset, vit: str, cnn: str) -> float | None:
    """The same, less the lead at the last block by what each classifier reads: a better model leads everywhere."""
    ahead = middle_gap(estimate, vit, cnn)
    return None if ahead is None else ahead - (own_readout(estimate, vit) - own_readout(estimate, cnn))


TWICE = ("token_shortfall_gap", "token_shortfall_gap_cnn", "middle_over_last_probe_gap")
"""Differences of differences: they reach from −2 to 2."""
DIFFERENCES: tuple[tuple[str, Compute, str], ...] = (
    ("token_probe_gap", of_twins(token_gap), "single-token probe at the last block, GAP ViT minus class-token ViT"),
    (
        "token_shortfall_gap",
        of_twins(shortfall_gap),
        "what the classifier reads minus a single token, last block, class-token ViT minus GAP ViT",
    ),
    (
        "token_probe_gap_cnn",
        of_cnns_with_vits(token_gap),
        "single-token probe at the last block, CNN minus class-token ViT",
    ),
    (
        "token_shortfall_gap_cnn",
        of_cnns_with_vits(shortfall_gap),
        "what the classifier reads minus a single token, last block, class-token ViT minus CNN",
    ),
    (
        "pooled_over_first_last",
        of_each(last_block_gap("gap", "first"), gap_vits),
        "probe of the mean token minus the first patch token, last block",
    ),
    (
        "pooled_over_first_middle",
        of_each(pooled_over_first_at_mid_depth, gap_vits),
        "probe of the mean token minus the first patch token, middle third of the blocks",
    ),
    (
        "first_token_rise",
        of_each(first_token_rise, gap_vits),
        "probe of the first patch token, last block minus middle third of the blocks",
    ),
    (
        "cls_over_mean_early",
        of_each(early_lead, class_token_vits),
        "probe of the class token minus the mean of all tokens, first half of the blocks",
    ),
    (
        "cls_over_mean_last",
        of_each(last_block_gap("cls", "gap with cls"), class_token_vits),
        "probe of the class token minus the mean of all tokens, last block",
    ),
    (
        "mean_without_cls",
        of_each(last_block_gap("gap", "gap with cls"), class_token_vits),
        "probe of the mean token at the last block, without minus with the class token",
    ),
    ("middle_probe_gap", of_pairs(middle_gap), "probe of the mean token at the middle third of blocks, ViT minus CNN"),
    (
        "middle_over_last_probe_gap",
        of_pairs(middle_over_last_gap),
        "the same, less the lead at the last block of what each classifier reads",
    ),
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
    phrases = []
    for subject in subjects_in(finding):
        blocks = finding.isel(site=site_indices(finding, subject))
        features, read = blocks.features.values, blocks.features_read.values
        for words, columns in (("single tokens", slice(0, 1)), ("pooled readouts", slice(1, None))):
            projected = features[:, columns] > read[:, columns]
            if projected.any():
                many = sorted(set(features[:, columns][projected].tolist()))
                span = f"{many[0]}" if len(many) == 1 else f"{many[0]} to {many[-1]}"
                where = (
                    "" if projected.any(1).all() else f" at {int(projected.any(1).sum())} of {len(projected)} blocks"
                )
                phrases.append(f"{words} of {subject}{where} ({span} features read as {read[:, columns].max()})")
    if not phrases:
        return []
    how = "a fixed random projection, which can cost a probe several points"
    return [f"Read through {how}: {', '.join(phrases)}."]
