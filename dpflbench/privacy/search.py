"""Two searches for many clients at once: the largest x that still fits, and the place of a single peak."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpflbench.interfaces import Floats

TOLERANCE = 2.0**-10
MOST_ROUNDS = 100
LEAST = -600.0  # exp(x) is no number to work with any more
Rows = NDArray[np.intp]


def largest(
    growing: Callable[[Floats, Rows], Floats], target: Floats, x: Floats, slope: Floats
) -> tuple[Floats, Floats]:
    """The largest x found with growing(x, rows) <= target, and d ln growing / dx there: [N] → [N], [N].

    What is returned was evaluated and fits (LEAST if nothing does); x + TOLERANCE would not. Secants of ln growing from
    the first guess `x` on; where one leaves the bracket or the last hardly narrowed it, halving, so the end is certain.
    """
    found, steep, rows, origin = np.full(x.shape, LEAST), slope.copy(), np.arange(len(x)), x
    low, high, old_x, old_y = (np.full(x.shape, value) for value in (-np.inf, np.inf, np.nan, np.nan))
    for _ in range(MOST_ROUNDS):
        value = growing(x, rows)
        fits, width = value <= target[rows], high - low
        low, high = np.where(fits, x, low), np.where(fits, high, x)
        with np.errstate(all="ignore"):
            y = np.log(value / target[rows])
            secant = (y - old_y) / (x - old_x)
        slope = np.where((secant > 0.01) & np.isfinite(secant), secant, slope)
        band = TOLERANCE * np.minimum(slope, 1.0)
        found[rows], steep[rows] = np.maximum(low, LEAST), slope
        going = ~((fits & (y >= -band)) | (high - low < TOLERANCE / 4) | (x < LEAST))
        if not going.any():
            break
        step, far = x - (y + band / 2) / slope, np.maximum(np.abs(x - origin[rows]), 1.0)
        middle = np.where(np.isinf(low), x - far, np.where(np.isinf(high), x + far, (low + high) / 2))
        quick = (step > low) & (step < high) & ~(high - low > 0.6 * width)
        old_x, old_y, x = x[going], y[going], np.where(quick, step, middle)[going]
        rows, low, high, slope = rows[going], low[going], high[going], slope[going]
    return found, steep


def peak(rises: Callable[[Rows, Rows], NDArray[np.bool_]], count: int, places: int) -> Rows:
    """[count], which of `places` has the peak of something with a single one; rises(at, rows): the next is no lower."""
    low, high = np.zeros(count, dtype=np.intp), np.full(count, places - 1, dtype=np.intp)
    while (rows := np.flatnonzero(low < high)).size:
        middle = (low[rows] + high[rows]) // 2
        right = rises(middle, rows)
        low[rows[right]], high[rows[~right]] = middle[right] + 1, middle[~right]
    return low
