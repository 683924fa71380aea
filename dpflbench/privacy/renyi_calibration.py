"""How much noise, how small a rate or how few steps keep a client within (epsilon, delta): renyi.py turned round.

`calibrate_*` choose the client's order, which is a constant from then on (renyi.py says why), and the number that meets
the budget at it; `noise_of`, `rate_of` and `steps_of` do the latter alone, for whatever is left at a frozen order.

**The number.** ln A grows with 1/z² and with q. The search stops within 0.05 % of the noise or 0.1 % of the rate and
keeps the side that fits. Only what was evaluated with four times its rounding error is returned, while `cost_of` adds
the error once: cost_of(a, q, noise_of(c, a, q)) <= c. What `calibrate_*` return was evaluated forward, or is refused.

**The order.** ln A_a is convex in a (a cumulant function), and so are -ln(a delta) and (a-1) ln(1 - 1/a). Hence epsilon
times (a - 1) is convex in a, the orders that meet a budget at a given noise form an interval, these intervals are
nested as the noise grows, and the least noise is a function of the order with a single valley: comparing neighbours
finds its bottom. It is found by halving for settings rounded to a coarse grid, most of which clients of a large
federation share, and from there by steps for each client as it is: a million clients lose nothing to the grid.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Floats, Ints
from dpflbench.privacy.renyi import ORDERS, ULP, budget_of, checked, cost_of, epsilon_of, log_moment
from dpflbench.privacy.search import TOLERANCE, Rows, largest, peak

GRID = 2  # cells of the grid in one octave
SOME_K = np.unique(np.round(2.0 ** np.arange(1, 16.5, 0.5)))[:, None]
SOME = 1 << 12  # clients whose first guesses are made at a time: stays in the cache
MOST_STEPS = 2.0**53
MARGIN = 4.0


@dataclass(frozen=True, slots=True)
class Unknown:
    """A number exp(x) that ln A grows with, while `given`, the other of noise and rate, is known."""

    moment: Callable[[Floats, Floats, Floats], Floats]  # order, given and x → ln A and its margin
    start: Callable[[Floats, Floats, Floats], Floats]  # ln A to reach, order and given → x to begin with
    exact: Callable[[Floats, Floats, Floats], Floats]  # cost, order and given → x where there is a formula, else NaN


def calibrate_noise(epsilon: Any, delta: Any, rate: Any, steps: Any) -> tuple[Ints, Floats]:
    """The order and the least noise z at which `steps` steps of `rate` stay within (epsilon, delta): [N] → [N], [N]."""
    e, d, t, q = checked(epsilon=epsilon, delta=delta, steps=steps, rate=rate)
    order, x = _calibrate(NOISE, e, d, t, q)
    noise = np.exp(-x / 2)
    _confirm(e, d, order, np.where(np.isinf(noise), np.inf, cost_of(order, q, noise, t)))
    return order, noise


def calibrate_rate(epsilon: Any, delta: Any, noise: Any, steps: Any) -> tuple[Ints, Floats]:
    """The order and the largest rate at which `steps` steps at `noise` stay within (epsilon, delta): [N] → [N], [N]."""
    e, d, t, z = checked(epsilon=epsilon, delta=delta, steps=steps, noise=noise)
    order, x = _calibrate(RATE, e, d, t, z)
    rate = np.exp(x)
    _confirm(e, d, order, np.where(rate == 0, np.inf, cost_of(order, rate, z, t)))
    return order, rate


def calibrate_steps(epsilon: Any, delta: Any, rate: Any, noise: Any) -> tuple[Ints, Ints]:
    """The order and the largest number of steps of `rate` at `noise` within (epsilon, delta): [N] → [N], [N]."""
    shaped = checked(epsilon=epsilon, delta=delta, rate=rate, noise=noise)
    epsilons, deltas, rates, noises = (array.ravel() for array in shaped)

    def rises(at: Rows, rows: Rows) -> NDArray[np.bool_]:
        with np.errstate(divide="ignore", invalid="ignore"):
            here, there = (
                budget_of(order, epsilons[rows], deltas[rows]) / cost_of(order, rates[rows], noises[rows])
                for order in (ORDERS[at], ORDERS[at + 1])
            )
        return ~(here > there)

    order = ORDERS[peak(rises, shaped[0].size, len(ORDERS))].reshape(shaped[0].shape)
    e, d, q, z = shaped
    steps = steps_of(budget_of(order, e, d), cost_of(order, q, z))
    _confirm(e, d, order, cost_of(order, q, z, steps))
    return order, steps


def noise_of(cost: Any, order: Any, rate: Any) -> Floats:
    """The least noise z at which a step of `rate` costs at most `cost` at `order`: infinite for no cost, 0 for any."""
    c, a, q = checked(cost=cost, order=order, rate=rate)
    return np.exp(-solve(NOISE, c.ravel(), a.ravel(), q.ravel())[0] / 2).reshape(c.shape)


def rate_of(cost: Any, order: Any, noise: Any) -> Floats:
    """The largest rate at which one step at `noise` costs at most `cost` at `order`: 1 where even that fits."""
    c, a, z = checked(cost=cost, order=order, noise=noise)
    return np.exp(solve(RATE, c.ravel(), a.ravel(), z.ravel())[0]).reshape(c.shape)


def steps_of(budget: Any, cost: Any) -> Ints:
    """How often `cost` fits into `budget`; 2^53 where it is nothing."""
    b, c = checked(budget=budget, cost=cost)
    with np.errstate(divide="ignore", invalid="ignore"):
        count = np.floor(np.where(c == 0, MOST_STEPS, b / c * (1 - 16 * ULP)))
    return np.asarray(np.minimum(np.nan_to_num(count), MOST_STEPS), dtype=np.int64)


def _calibrate(unknown: Unknown, *settings: Floats) -> tuple[Ints, Floats]:
    """The best order of each client and the largest x at it; settings are epsilon, delta, steps and what is given."""
    table = np.stack([array.ravel() for array in settings])
    cells, of = _cells(table)
    slot = peak(lambda at, rows: _better(unknown, at, 1, cells[:, rows]), cells.shape[1], len(ORDERS))
    x, slope = (values[of] for values in _at_order(unknown, slot, cells))
    at = slot[of]
    x, slope = _at_order(unknown, at, table, x, slope)
    for way in (1, -1):
        rows = np.flatnonzero(at == slot[of])
        while (rows := rows[(at[rows] + way >= 0) & (at[rows] + way < len(ORDERS))]).size:
            rows = rows[_better(unknown, at[rows], way, table[:, rows], x[rows])]
            at[rows] += way
            x[rows], slope[rows] = _at_order(unknown, at[rows], table[:, rows], x[rows], slope[rows])
    return ORDERS[at].reshape(settings[0].shape), x.reshape(settings[0].shape)


def _cells(table: Floats) -> tuple[Floats, Rows]:
    """The distinct cells [4, C] of the grid and each client's [N]."""
    with np.errstate(divide="ignore", over="ignore"):
        spot = np.clip(np.round(GRID * np.log2(table)), -(2**15), 2**15 - 1).astype(np.int64)
        key = (spot << np.array([[0], [16], [32], [48]])).sum(0)  # wraps around, one to one
        _, first, of = np.unique(key, return_index=True, return_inverse=True)
        return 2.0 ** (spot[:, first] / GRID), of


def _at_order(
    unknown: Unknown, at: Rows, table: Floats, x: Floats | None = None, slope: Floats | None = None
) -> tuple[Floats, Floats]:
    epsilon, delta, steps, given = table
    order = ORDERS[at].astype(np.float64)
    return solve(unknown, _share(budget_of(order, epsilon, delta), steps), order, given, x, slope)


def _better(unknown: Unknown, at: Rows, way: int, table: Floats, x: Floats | None = None) -> NDArray[np.bool_]:
    """Whether the next order has room to spare where this one has none left; also where this one proves nothing."""
    epsilon, delta, steps, given = table
    x = _at_order(unknown, at, table)[0] if x is None else x
    order = ORDERS[at + way].astype(np.float64)
    target = log_moment_for(_share(budget_of(order, epsilon, delta), steps), order)
    return (unknown.moment(order, given, x) < target) | (np.isneginf(x) & (way > 0))


def solve(
    unknown: Unknown, cost: Floats, order: Floats, given: Floats, x: Floats | None = None, slope: Floats | None = None
) -> tuple[Floats, Floats]:
    """The largest x at which one step costs at most `cost`, and d ln ln A / dx; -inf where cost is 0."""
    out = np.where(cost > 0, unknown.exact(cost, order, given), -np.inf)
    steep = np.ones(len(out)) if slope is None else slope.copy()
    rows = np.flatnonzero(np.isnan(out))
    target, a, given = log_moment_for(cost[rows], order[rows]), order[rows], given[rows]
    start = np.full(len(rows), np.nan) if x is None else x[rows]
    new = np.flatnonzero(~np.isfinite(start))
    for part in np.array_split(new, len(new) // SOME + 1):
        start[part] = unknown.start(target[part], a[part], given[part])
    out[rows], steep[rows] = largest(lambda x, at: unknown.moment(a[at], given[at], x), target, start, steep[rows])
    return out, steep


def log_moment_for(cost: Floats, order: Floats) -> Floats:
    """ln A of a step that costs so much at its order, rounded down."""
    return cost * (order - 1) * (1 - 16 * ULP)


def _share(budget: Floats, steps: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(steps == 0, np.inf, budget / steps * (1 - 4 * ULP))


def _noise_start(target: Floats, order: Floats, rate: Floats) -> Floats:
    """Each term of A - 1 alone bounds 1/z²; the least bound is near."""
    k, log_binomial = _binomials(order)
    room = _log_expm1(target) - (log_binomial + k * np.log(rate) + (order - k) * np.log1p(-rate))
    return np.asarray(np.log((2 * np.logaddexp(0.0, room) / (k * (k - 1))).min(0)))


def _rate_start(target: Floats, order: Floats, noise: Floats) -> Floats:
    """Each term alone, its (1-q)^(a-k) left out, gives a rate; the least is near."""
    k, log_binomial = _binomials(order)
    room = _log_expm1(target) - _log_expm1(k * (k - 1) / (2 * noise * noise))
    return np.asarray(np.minimum(((room - log_binomial) / k).min(0), -TOLERANCE))


def _binomials(order: Floats) -> tuple[Floats, Floats]:
    """Some k of 2..order, order itself among them, and ln C(order, k) well enough to start from: [J, N]."""
    orders, of = np.unique(order, return_inverse=True)  # few, whoever has them
    k = np.minimum(SOME_K[: np.searchsorted(SOME_K[:, 0], orders.max(initial=2.0)) + 1], orders)
    return k[:, of], (gammaln(orders + 1) - gammaln(k + 1) - gammaln(orders - k + 1))[:, of]


def _log_expm1(x: Floats) -> Floats:
    return np.asarray(x + np.log(-np.expm1(-x)))


def _noise_exact(cost: Floats, order: Floats, rate: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        full = np.log(2 * cost / order) - 256 * ULP  # cost = order / (2 z²)
    return np.where((rate == 0) | np.isinf(cost), np.inf, np.where(rate == 1, full, np.nan))


def _rate_exact(cost: Floats, order: Floats, noise: Floats) -> Floats:
    return np.where(cost_of(order, 1.0, noise) <= cost, 0.0, np.where(noise == 0, -np.inf, np.nan))


def _noise_moment(order: Floats, rate: Floats, x: Floats) -> Floats:
    return log_moment(order, rate, np.exp(-x / 2), MARGIN)


def _rate_moment(order: Floats, noise: Floats, x: Floats) -> Floats:
    return log_moment(order, np.exp(np.minimum(x, 0.0)), noise, MARGIN)


NOISE = Unknown(_noise_moment, _noise_start, _noise_exact)  # x = ln(1 / z²)
RATE = Unknown(_rate_moment, _rate_start, _rate_exact)  # x = ln q


def _confirm(epsilon: Floats, delta: Floats, order: Ints, cost: Floats) -> None:
    """Refuse what does not hold when it is evaluated forward."""
    spent = epsilon_of(cost, order, delta)
    bad = np.flatnonzero(~(spent <= epsilon))
    if bad.size:
        e, d, a, s = (array.flat[bad[0]] for array in (epsilon, delta, order, spent))
        raise DpflbenchError(
            f"client {bad[0]}: epsilon {e:.6g} at delta {d:.3g} has no Rényi proof; the best order, {a}, gives "
            f"{s:.6g}; allowed: a larger epsilon or delta, more noise where it is given, or accountant pld"
        )
