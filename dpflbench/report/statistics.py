"""Paired statistics over seeds: differences, intervals, exact tests, Holm's correction, critical differences.

The seed is the unit of replication: algorithms share data, budgets and initial model under a seed, so all comparisons
are paired.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05  # two-sided significance level of everything in a report
MAX_ENUMERATED = 16  # 2**16 sign patterns; above it Wilcoxon's signed ranks serve
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """What n paired differences say; NaN where they are too few, or too much alike, to say it."""

    n: int
    mean: float
    low: float  # 95 % confidence interval of the mean difference (Student's t)
    high: float
    p: float  # two-sided, uncorrected
    effect: float  # mean difference over its standard deviation (Cohen's d_z)
    above: int  # differences above zero
    below: int


@lru_cache(maxsize=MAX_ENUMERATED)
def _signs(n: int) -> Floats:
    """All sign patterns of n numbers, up to a common sign [2**(n-1), n]."""
    bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1
    return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)


def paired_p(differences: Sequence[float] | Floats) -> float:
    """Two-sided p of "the differences are symmetric around 0": exact permutation of signs, above 16 pairs Wilcoxon.

    p = share of the 2**n sign patterns whose |sum| reaches the observed one; never below 2**(1 - n). NaN without a
    pair.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.size == 0 or not np.all(np.isfinite(d)):
        return math.nan
    if not np.any(d):
        return 1.0
    if d.size > MAX_ENUMERATED:
        from scipy.stats import wilcoxon

        return float(wilcoxon(d, zero_method="zsplit").pvalue)
    sums = np.abs(_signs(d.size) @ d)
    slack = 1e-12 * float(np.abs(d).sum())  # sums that are equal on paper may differ in the last bit
    return float(np.mean(sums >= abs(float(d.sum())) - slack))


def interval(differences: Sequence[float] | Floats, level: float = LEVEL) -> tuple[float, float]:
    """Student's confidence interval of the mean at 1 - level; NaN below two values."""
    d = np.asarray(differences, dtype=np.float64)
    if d.size < 2:
        return math.nan, math.nan
    from scipy.special import stdtrit

    half = float(stdtrit(d.size - 1, 1 - level / 2)) * float(d.std(ddof=1)) / math.sqrt(d.size)
    return float(d.mean()) - half, float(d.mean()) + half


def effect_size(differences: Sequence[float] | Floats) -> float:
    """Cohen's d_z, mean over standard deviation of the differences; infinite when they are all the same, 0 when all are
    0.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.size < 2:
        return math.nan
    mean, std = float(d.mean()), float(d.std(ddof=1))
    if std <= 1e-12 * max(abs(mean), 1e-300):
        return 0.0 if mean == 0.0 else math.copysign(math.inf, mean)
    return mean / std


def paired(differences: Sequence[float] | Floats) -> Paired:
    """Everything a table says about paired differences."""
    d = np.asarray(differences, dtype=np.float64)
    effect = effect_size(d)
    # equal differences show no spread, which is not the same as knowing that there is none
    low, high = interval(d) if math.isfinite(effect) and np.any(d) else (math.nan, math.nan)
    return Paired(
        n=int(d.size),
        mean=float(d.mean()) if d.size else math.nan,
        low=low,
        high=high,
        p=paired_p(d),
        effect=effect,
        above=int(np.sum(d > 0)),
        below=int(np.sum(d < 0)),
    )


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction (1979): p_(i) becomes max over j <= i of (m - j + 1) p_(j), at most 1; NaN is no
    test.
    """
    out = list(map(float, p))
    tests = [i for i, value in enumerate(out) if not math.isnan(value)]
    largest = 0.0
    for rank, i in enumerate(sorted(tests, key=lambda i: out[i])):
        largest = max(largest, min(1.0, (len(tests) - rank) * out[i]))
        out[i] = largest
    return out


def smallest_p(seeds: int, comparisons: int = 1) -> float:
    """The smallest p a two-sided exact paired test on `seeds` pairs can reach, Holm-corrected for `comparisons`
    tests.
    """
    return min(1.0, comparisons * 2.0 ** (1 - seeds)) if seeds > 0 else 1.0


def seeds_needed(comparisons: int = 1, level: float = LEVEL) -> int:
    """Seeds from which on an exact paired test can be significant at all: 6 for one comparison at 0.05, 8 for five."""
    n = 1
    while smallest_p(n, comparisons) > level:
        n += 1
    return n


def mean_ranks(values: Floats, higher_is_better: NDArray[np.bool_]) -> Floats:
    """Mean rank of each column of values [blocks, k], 1 the best, ties shared; `higher_is_better` [blocks]."""
    from scipy.stats import rankdata

    oriented = np.where(higher_is_better[:, None], -values, values)
    ranks: Floats = np.asarray(rankdata(oriented, axis=1), dtype=np.float64)
    return np.asarray(ranks.mean(axis=0), dtype=np.float64)


def critical_difference(k: int, blocks: int, level: float = LEVEL) -> float:
    """Nemenyi's critical difference of mean ranks (Demšar 2006): q_level(k) / sqrt(2) * sqrt(k (k + 1) / (6
    blocks)).
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - level, k, np.inf)) / math.sqrt(2)
    return q * math.sqrt(k * (k + 1) / (6 * blocks))


def friedman_p(values: Floats) -> float:
    """p of Friedman's test that all columns of values [blocks, k] rank alike; NaN below 3 columns or 2 blocks."""
    if values.shape[0] < 2 or values.shape[1] < 3:
        return math.nan
    from scipy.stats import friedmanchisquare

    if np.all(values == values[:, :1]):
        return 1.0
    return float(friedmanchisquare(*values.T).pvalue)
