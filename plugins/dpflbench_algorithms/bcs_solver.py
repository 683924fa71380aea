"""P1 of DPFL-BCS solved: how many participations each client gets (Ma et al., arXiv 2408.08642, section on client
selection).

    minimise  Σ_n a_n x_n^(z+1) + b_n x_n   over   Σ_n x_n = total,  0 <= x_n <= cap_n

Separable and convex, so no general solver is needed. Over real numbers: water-filling on the multiplier ν. Over
integers: the optimum takes the `total` cheapest units, the (k+1)-th unit of client n costing a_n ((k+1)^(z+1) -
k^(z+1)) + b_n, which grows with k (Gross 1956; Ibaraki and Katoh, "Resource Allocation Problems", 1988). How many units
cost at most a given price has a closed form, so bisection on the price and one sort of the at most N units in its last
bracket find them in O(N log N), without a heap.

| paper | here |
|---|---|
| T_n | x_n, `uses` |
| Ω_A Φ_n, Ω_B Γ_n | `noise`, `bias`, up to a common factor |
| z | `exponent` |
| K T | `total` |

Where an accountant's noise grows with no power of uses, a_n x_n^z is read as a_n times a tabulated `Growth`: the units
are the same, their prices are differences of the table, and how many cost at most a price is found by halving.

Differs: 0 <= T_n <= rounds left is part of the programme (a client cannot join a round twice) and uses are whole
numbers; `cvxpy` is the paper's way, solved over real numbers and rounded.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpflbench.errors import RunEnded
from dpflbench.interfaces import Floats, Ints

Solver = Literal["exact", "cvxpy"]
STEEP = 20.0  # a power of uses that nobody takes: of noise that has no end beyond some count


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """By what factor the noise of one message grows with a client's uses: [N, J] at J counts, straight lines between
    them in logarithms, none less steep than the one before, so that uses times noise is convex.
    """

    uses: Floats  # [J], ascending from 1
    log_factor: Floats  # [N, J], ascending from 0

    @classmethod
    def through(cls, uses: Floats, noise: Floats) -> "Growth":
        """Through what was measured [N, J], made convex from the left; who has no finite noise at all stays flat."""
        steps = np.diff(np.log(uses))
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.nan_to_num(np.diff(np.log(noise), axis=1) / steps, posinf=STEEP)
        slopes = np.maximum.accumulate(np.maximum(slopes, 0.0), axis=1)
        return cls(uses, np.cumsum(np.column_stack([np.zeros(len(noise)), slopes * steps]), axis=1))

    def of(self, clients: NDArray[np.bool_]) -> "Growth":
        """The rows of some clients."""
        return replace(self, log_factor=self.log_factor[clients])

    def at(self, uses: Floats, client: NDArray[np.int64]) -> Floats:
        """The factors [M] of so many uses [M] of clients [M]; 0 for no use."""
        if len(self.uses) == 1:
            return (uses > 0).astype(np.float64)
        knots, x = np.log(self.uses), np.log(np.maximum(uses, 1.0))
        left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
        low, high = self.log_factor[client, left], self.log_factor[client, left + 1]
        share = (x - knots[left]) / (knots[left + 1] - knots[left])
        return np.where(uses > 0, np.exp(low + share * (high - low)), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Programme:
    """P1 in figures."""

    noise: Floats  # [N], a_n > 0 wherever cap > 0
    bias: Floats  # [N], b_n
    cap: Ints  # [N]
    total: int
    exponent: int  # z >= 1; 0 with a growth of its own
    growth: Growth | None = None

    def objective(self, uses: Floats | Ints) -> float:
        """Σ a_n x_n^(z+1) + b_n x_n; clients without a use cost nothing, whatever their price."""
        x, some = np.asarray(uses, dtype=np.float64), np.asarray(uses) > 0
        if self.growth is not None:
            grown = x * self.growth.at(x, np.arange(len(x)))
            return float(np.sum(self.noise[some] * grown[some] + self.bias[some] * x[some]))
        return float(np.sum(self.noise[some] * x[some] ** (self.exponent + 1) + self.bias[some] * x[some]))


def solve(programme: Programme, solver: Solver = "exact") -> Ints:
    """Integer uses [N]: the optimum of P1, or cvxpy's real optimum rounded."""
    able = programme.cap > 0
    if programme.growth is not None and solver == "cvxpy":
        raise RunEnded("DPFL-BCS: cvxpy solves P1 where noise grows with a power of uses; allowed here: solver: exact")
    if int(programme.cap.sum()) < programme.total:
        raise RunEnded(
            f"DPFL-BCS: {programme.total} participations are wanted; the {int(able.sum())} clients with budget left "
            f"allow {int(programme.cap.sum())}"
        )
    # clients that cannot take part have no finite price; a bias common to all only adds a constant
    bias = programme.bias[able]
    part = (
        Programme(
            programme.noise[able],
            bias - bias.min(initial=np.inf),
            programme.cap[able],
            programme.total,
            programme.exponent,
            None if programme.growth is None else programme.growth.of(able),
        )
        if able.any()
        else programme
    )
    uses = np.zeros(len(programme.cap), dtype=np.int64)
    if programme.total > 0:
        uses[able] = cheapest_units(part) if solver == "exact" else round_up_largest(reference(part), programme.total)
    return uses


def cheapest_units(programme: Programme) -> Ints:
    """The integer optimum [N] of a feasible programme with positive caps."""
    low, high = _bracket(programme)
    below, above = _count(programme, low), _count(programme, high)
    while int((above - below).sum()) > len(below):
        price = 0.5 * (low + high)
        if not low < price < high:  # neighbouring floats: all that is left between them costs the same
            break
        count = _count(programme, price)
        if int(count.sum()) <= programme.total:
            low, below = price, count
        else:
            high, above = price, count
    room = above - below
    client = np.repeat(np.arange(len(room)), room)
    nth = np.arange(len(client)) - np.repeat(np.cumsum(room) - room, room) + below[client]
    # stable: of equally dear units the earlier one of a client comes first, so what is taken is a prefix
    order = np.argsort(_marginal(programme, nth, client), kind="stable")
    taken = client[order[: programme.total - int(below.sum())]]
    return below + np.bincount(taken, minlength=len(room))


def water_filling(programme: Programme) -> Floats:
    """The optimum [N] over real numbers: x_n = min(cap_n, ((ν - b_n)_+ / ((z+1) a_n))^(1/z)) at the ν where they sum to
    total.
    """
    low, high = _bracket(programme)
    low, high = (
        0.5 * low,
        2.0 * high + float(np.ptp(programme.bias)),
    )  # integer marginals lag behind derivatives by half a unit
    while _levels(programme, high).sum() < programme.total:
        high *= 2.0
    while _levels(programme, low).sum() > programme.total:
        low *= 0.5
    while low < (price := 0.5 * (low + high)) < high:
        if _levels(programme, price).sum() <= programme.total:
            low = price
        else:
            high = price
    under, over = _levels(programme, low), _levels(programme, high)
    gap = float(over.sum() - under.sum())
    return under + (over - under) * ((programme.total - under.sum()) / gap if gap > 0 else 0.0)


def reference(programme: Programme) -> Floats:
    """The same optimum [N] from cvxpy: slower, and independent of everything above."""
    import cvxpy as cp

    # u = a^(1/(z+1)) x has unit coefficients: the solver's own scaling copes with prices that differ a millionfold
    power = programme.exponent + 1
    unit = programme.noise ** (1.0 / power)
    weight, size = 1.0 / unit, programme.total / np.sum(1.0 / unit)
    u = cp.Variable(len(unit))
    cost = cp.sum(cp.power(u, power)) + (programme.bias * weight / size**programme.exponent) @ u
    limits = [u >= 0, u <= programme.cap / (weight * size), (weight / weight.sum()) @ u == 1.0]
    problem = cp.Problem(cp.Minimize(cost), limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    if problem.status not in ("optimal", "optimal_inaccurate") or u.value is None:
        raise RunEnded(f"DPFL-BCS: cvxpy ended with status {problem.status!r}; solver: exact needs no cvxpy")
    return np.clip(np.asarray(u.value, dtype=np.float64) * weight * size, 0.0, programme.cap)


def round_up_largest(expected: Floats, total: int) -> Ints:
    """Whole numbers that sum to total: floors, and one more where the fraction is largest."""
    floor = np.floor(expected + 1e-9).astype(np.int64)
    order = np.argsort(floor - expected, kind="stable")
    floor[order[: total - int(floor.sum())]] += 1
    return floor


def _bracket(programme: Programme) -> tuple[float, float]:
    """Prices low <= ν <= high: at most `total` units cost up to low, at least `total` up to high."""
    even = np.minimum(programme.cap - 1, programme.total // len(programme.cap))
    high = float(np.median(_marginal(programme, even)))
    while int(_count(programme, high).sum()) < programme.total:
        high *= 4.0
    low = high
    while int(_count(programme, low).sum()) > programme.total:
        low *= 0.25
    return low, high


def _marginal(programme: Programme, nth: Ints, client: NDArray[np.int64] | None = None) -> Floats:
    noise, bias = (
        (programme.noise, programme.bias) if client is None else (programme.noise[client], programme.bias[client])
    )
    low = nth.astype(np.float64)
    high = low + 1.0
    if programme.growth is not None:
        who = np.arange(len(nth)) if client is None else client
        at = programme.growth.at
        return noise * (high * at(high, who) - low * at(low, who)) + bias
    # (k+1)^(z+1) - k^(z+1) = Σ_j (k+1)^j k^(z-j), by products alone: exact, and faster than powers
    growth, power = high + low, high
    for _ in range(programme.exponent - 1):
        power = power * high
        growth = growth * low + power
    return noise * growth + bias


def _count(programme: Programme, price: float) -> Ints:
    """Units of each client [N] that cost at most the price.

    (k+1)^(z+1) - k^(z+1) lies between (z+1)(k+1/2)^z and (z+1)(k+1)^z: the count is ⌊r⌋ or ⌊r⌋ + 1 for the real root r.
    Rounding can push r over an integer, hence the second comparison.
    """
    if programme.growth is not None:
        return _count_by_halving(programme, price)
    guess = np.floor(_levels(programme, price)).astype(np.int64)
    guess += (_marginal(programme, guess) <= price).astype(np.int64)
    guess -= ((guess > 0) & (_marginal(programme, np.maximum(guess - 1, 0)) > price)).astype(np.int64)
    return np.minimum(guess, programme.cap)


def _count_by_halving(programme: Programme, price: float) -> Ints:
    low, high = np.zeros_like(programme.cap), programme.cap.copy()
    while (low < high).any():
        middle = (low + high) // 2
        dear = _marginal(programme, middle) > price  # of the unit after `middle` ones
        low, high = np.where(dear | (low == high), low, middle + 1), np.where(dear, middle, high)
    return low


def _levels(programme: Programme, price: float) -> Floats:
    with np.errstate(over="ignore"):
        level = np.maximum(price - programme.bias, 0.0) / (programme.noise * (programme.exponent + 1))
    if programme.exponent == 2:
        level = np.sqrt(level)
    elif programme.exponent > 2:
        level = level ** (1.0 / programme.exponent)
    return np.minimum(level, programme.cap)
