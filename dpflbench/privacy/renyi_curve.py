"""The least noise, or the largest rate, that a curve of costs allows: for what may be spent is known at every order.

What (epsilon, delta) leaves over is such a curve, whoever spent how much before; so is the smallest of several. At a
given noise the orders that fit it form an interval, these are nested as the noise grows (renyi_calibration.py), and
comparing neighbours finds the order that needs least.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpflbench.interfaces import Floats
from dpflbench.privacy.renyi import ORDERS, cost_of
from dpflbench.privacy.renyi_calibration import NOISE, RATE, Unknown, log_moment_for, solve
from dpflbench.privacy.search import Rows, peak

KEPT = 1 << 12  # settings that are remembered: what a cohort releases, it releases in many rounds
GRID = 2  # cells of the coarse search in one octave
MIX = 2**61 // (3 * 5 ** np.arange(10, dtype=np.int64)) * 2 + 1  # odd and far apart
LOOK = np.searchsorted(ORDERS, [2, 3, 5, 8, 16, 32, 128, 1024, 8192])  # where two curves of a cell must be alike


def least_noise(cost: Floats, rate: Floats) -> tuple[Rows, Floats]:
    """The order, as a column, at which a step of `rate` [K] may have least noise for `cost` [K, A], and that noise."""
    column, x = _largest(NOISE, cost, rate)
    return column, np.exp(-x / 2)


def largest_rate(cost: Floats, noise: Floats) -> Floats:
    """The largest rate at which a step at `noise` [K] costs at most `cost` [K, A] at one of the orders."""
    return np.exp(_largest(RATE, cost, noise)[1])


def _largest(unknown: Unknown, cost: Floats, given: Floats) -> tuple[Rows, Floats]:
    """The column of the order that allows the largest x, and that x; -inf where nothing may be spent."""
    column, x = np.zeros(len(cost), dtype=np.intp), np.full(len(cost), -np.inf)
    some = cost > 0
    choices = np.count_nonzero(some, axis=1)
    column[choices == 1] = np.argmax(some[choices == 1], axis=1)
    free, rows = np.flatnonzero(choices > 1), np.flatnonzero(choices)
    column[free] = _best(unknown, cost, given, free)
    x[rows] = solve(unknown, cost[rows, column[rows]], ORDERS[column[rows]].astype(np.float64), given[rows])[0]
    return column, x


def _best(unknown: Unknown, cost: Floats, given: Floats, free: Rows) -> Rows:
    """The best column of the rows that have a choice: by halving for one of each cell, then step by step."""
    cells, of = _cells(cost[free[:, None], LOOK], given[free])
    start = peak(lambda at, rows: _better(unknown, cost, given, free[cells[rows]], at, 1), len(cells), len(ORDERS))
    column = start[of]
    for way in (1, -1):
        rows = np.flatnonzero(column == start[of])
        while (rows := rows[(column[rows] + way >= 0) & (column[rows] + way < len(ORDERS))]).size:
            rows = rows[_better(unknown, cost, given, free[rows], column[rows], way)]
            column[rows] += way
    return column


def _cells(cost: Floats, given: Floats) -> tuple[Rows, Rows]:
    """One client of each distinct cell [C], and the cell of each [K]."""
    with np.errstate(divide="ignore"):
        spot = np.round(GRID * np.log2(np.column_stack([cost, given])))
        key = (np.clip(spot, -1e6, 1e6).astype(np.int64) * MIX).sum(
            1
        )  # wraps around; who shares a key only starts there
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    return first, of


def _better(unknown: Unknown, cost: Floats, given: Floats, rows: Rows, at: Rows, way: int) -> NDArray[np.bool_]:
    """Of some rows, whether the next column has room to spare where this one has none left; also where this one proves
    nothing.
    """
    here, there, given = cost[rows, at], cost[rows, at + way], given[rows]
    x = solve(unknown, here, ORDERS[at].astype(np.float64), given)[0]
    order = ORDERS[at + way].astype(np.float64)
    with np.errstate(over="ignore"):
        room = unknown.moment(order, given, x) < log_moment_for(there, order)
    return np.asarray((room & (there > 0)) | ((here == 0) & (way > 0)))


def curve_of(rate: Floats, noise: Floats, steps: Any) -> Floats:
    """What steps of `rate` at `noise` cost at every order: [K] → [K, A]; each distinct setting is computed once."""
    pairs, of = np.unique(np.stack([rate, noise]), axis=1, return_inverse=True)
    few = 0 < pairs.shape[1] <= KEPT
    curves = np.stack([_curve(*pair) for pair in pairs.T.tolist()]) if few else cost_of(ORDERS, *pairs[:, :, None])
    with np.errstate(invalid="ignore"):
        each = curves[of.reshape(-1)] * np.asarray(steps, dtype=np.float64)[:, None]
    return np.nan_to_num(each, nan=0.0, posinf=np.inf) * (1 + 2.0**-51)


@lru_cache(maxsize=8 * KEPT)
def _curve(rate: float, noise: float) -> Floats:
    return cost_of(ORDERS, rate, noise)
