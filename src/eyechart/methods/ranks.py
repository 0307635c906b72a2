"""Rank correlation (Spearman), with an answer where values are missing or equal."""

from __future__ import annotations

import numpy as np


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's, with ties sharing their rank; NaN where a value is missing or all are equal.

    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([5.0, 6.0, 7.0]))
    1.0
    """
    from scipy.stats import rankdata

    if not np.isfinite(one + other).all():
        return float("nan")
    a, b = (rankdata(values) - (len(values) + 1) / 2 for values in (one, other))
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else float("nan")
