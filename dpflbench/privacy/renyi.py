"""Rényi DP of Poisson-sampled Gaussian steps at ONE integer order per client: what a participation costs, what
(epsilon, delta) allows, and the way back. Vectorised over clients, float64, never too cheap.

**The curve.** A step draws each record independently with `rate` q, sums clipped contributions (one record moves the
sum by at most `sensitivity`) and adds Gaussian noise of standard deviation `noise` z times that. For an integer order a

    A_a(q, z) = sum_k C(a, k) (1-q)^(a-k) q^k exp(k (k-1) / (2 z²)),        rho_a = ln A_a / (a - 1)

is its exact Rényi divergence when one record is added, removed or replaced by nothing (`zero_out`), the larger of both
directions (Mironov, Talwar, Zhang, "Rényi differential privacy of the sampled Gaussian mechanism", 2019, section 3). At
q = 1 it is a / (2 z²), whatever the relation, given its sensitivity; there any noise with rho_a <= a / (2 z²) is
covered as well, such as the discrete Gaussian (Canonne, Kamath, Steinke, "The discrete Gaussian for differential
privacy", 2020).

It is NOT a bound for replacing one record by another (see pld.py), nor for batches of fixed size or from a shuffled
order: those leak more, epsilon above 10 where Poisson has 1 (Lebeda, Regehr, Kamath, Steinke, "Avoiding pitfalls for
privacy accounting of subsampled mechanisms under composition", 2024). Whoever draws batches so must not be accounted
here. Nor is a client's rate to be multiplied by the rate at which clients are drawn where the adversary sees who takes
part.

**The conversion.** (a, rho)-RDP is (epsilon, delta)-DP with epsilon = rho + ln(1 - 1/a) - ln(a delta) / (a - 1) (the
discrete Gaussian paper, proposition 12). Hence a ledger: client n may spend beta_n = budget_of(a_n, epsilon_n, delta_n)
and an event costs steps * rho_{a_n}(q, z).

**Why one order, frozen before the first release.** Let L_t be the privacy loss of release t given what was released
before, rho_t its cost at order a, which may depend on the past. Then E[exp((a-1) L_t) | past] <= exp((a-1) rho_t), so
exp((a-1) sum_{s<=t} (L_s - rho_s)) is a supermartingale; and while the rho_t add up to at most beta on every path, E
exp((a-1) sum L_t) <= exp((a-1) beta): the whole is (a, beta)-RDP, however plans, rates and noise were chosen along the
way (Feldman, Zrnic, "Individual privacy accounting via a Rényi filter", 2020). The rule "go on while SOME order of a
curve has budget left" has no such proof and is wrong: on different paths different orders fit, each path then
contributes its own delta, and the sum exceeds delta (tests/test_renyi.py builds one: 1.8 times). Calibration may search
for the best order; after it the order is a constant.

**Rounding.** ln A_a is taken as ln(1 + sum_{k>=2} C(a, k) (1-q)^(a-k) q^k (exp(k (k-1) / (2 z²)) - 1)), a sum without
cancellation; its relative error is at most ULP times the sizes of its exponents, and that bound is added. What
`cost_of` and `epsilon_of` return is at or above, what `budget_of` returns at or below the true number.
"""

from functools import cache
from math import comb, log
from typing import Any

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Floats, Ints

ULP = 2.0**-52
TINY = 1e-300
CHUNK = 1 << 16  # clients at a time
BLOCK = 1 << 15  # numbers in one intermediate array: stays in the cache
LONGEST = 1024  # order summed term by term
REACH, STEP = 9.0, 0.5  # of the trapezoidal rule: see _by_integral
MOST_DRIFT = 500.0  # exp of it does not overflow
LOG_ROOT_TWO_PI = 0.9189385332046727
ORDERS: Ints = np.unique(
    np.r_[2:33, np.round(32 * 2 ** (np.arange(1, 45) / 4))].astype(np.int64)
)  # 2..32, then to 2^16


def log_moment(order: Any, rate: Any, noise: Any, margin: float = 1.0) -> Floats:
    """ln A_a(q, z), exceeded by `margin` times the bound on its rounding error: [...] → [...], all broadcast.

    Infinite where noise is 0, and 0 where rate is 0 or noise infinite.
    """
    shaped = checked(order=order, rate=rate, noise=noise)
    a, q, z = (array.ravel() for array in shaped)
    with np.errstate(divide="ignore", over="ignore"):
        half = np.maximum(0.5 / z / z, TINY)  # 1 / (2 z²)
        out = a * (a - 1) * half * (1 + 8 * ULP)  # rate 1
    rows = np.flatnonzero((q < 1) & (q > 0) & np.isfinite(out))
    for part in np.array_split(rows, len(rows) // CHUNK + 1):
        out[part] = _sampled(a[part], q[part], half[part], margin)
    out[(q == 0) | np.isinf(z)] = 0.0
    return out.reshape(shaped[0].shape)


def cost_of(order: Any, rate: Any, noise: Any, steps: Any = 1.0) -> Floats:
    """steps * rho_a(q, z), rounded up: what a participation of so many steps spends at the client's order."""
    order = np.asarray(order, dtype=np.float64)
    value = log_moment(order, rate, noise)
    with np.errstate(invalid="ignore"):
        return np.where((value == 0) | (np.asarray(steps) == 0), 0.0, value * steps / (order - 1) * (1 + 4 * ULP))


def budget_of(order: Any, epsilon: Any, delta: Any) -> Floats:
    """beta: the cost at which (epsilon, delta) is used up, rounded down; 0 where this order proves nothing so small."""
    shaped = checked(order=order, epsilon=epsilon, delta=delta)
    out = np.empty(shaped[0].shape)
    rows = BLOCK * len(out) // out.size + 1 if out.ndim and out.size else 1
    for first in range(0, len(out) if out.ndim else 1, rows):  # of many clients at many orders a few at a time
        part = slice(first, first + rows) if out.ndim else ...
        a, e, d = (array[part] for array in shaped)
        gap, size = _offset(a, d)
        beta = e - gap - 16 * ULP * (np.where(np.isfinite(e), e, 0.0) + size)
        out[part] = np.where(d == 0, 0.0, np.maximum(beta, 0.0))
    return out


def epsilon_of(cost: Any, order: Any, delta: Any) -> Floats:
    """The epsilon a total cost amounts to at delta, rounded up; 0 for no cost, infinite where delta is 0."""
    a, c, d = checked(order=order, cost=cost, delta=delta)
    gap, size = _offset(a, d)
    epsilon = np.where(d == 0, np.inf, np.maximum(c + gap + 4 * ULP * (c + size), 0.0))
    return np.where(c == 0, 0.0, epsilon)


def _offset(order: Floats, delta: Floats) -> tuple[Floats, Floats]:
    """ln(1 - 1/a) - ln(a delta) / (a - 1) and the size of its terms."""
    with np.errstate(divide="ignore"):
        first, second = np.log1p(-1 / order), np.log(order * delta) / (order - 1)
    return np.where(delta == 0, 0.0, first - second), np.where(delta == 0, 0.0, 1 + np.abs(second))


def _sampled(order: Floats, rate: Floats, half: Floats, margin: float) -> Floats:
    """ln A for flat arrays with 0 < rate < 1, by whichever of two sums is shorter.

    Where one is long and the other overflows, at high orders with little noise, by A <= 1 - q + q A(q = 1): no budget
    leads there.
    """
    out, shift = np.empty(order.shape), np.sqrt(2 * half)
    nodes = np.ceil((order * shift + 2 * REACH) / STEP) + 1
    integral = ((3 * nodes < order) | (order > LONGEST)) & ((order * shift + 2 * REACH) * shift < MOST_DRIFT)
    summed = ~integral & (order <= LONGEST)
    rows = np.flatnonzero(~integral & ~summed)
    full = order[rows] * (order[rows] - 1) * half[rows] * (1 + 16 * ULP)
    out[rows] = np.logaddexp(np.log1p(-rate[rows]), np.log(rate[rows]) + full)
    rows = np.flatnonzero(summed)
    rows = rows[np.argsort(order[rows].astype(np.uint16), kind="stable")]
    for group in np.split(rows, np.flatnonzero(np.diff(order[rows])) + 1) if len(rows) else []:
        a = int(order[group[0]])
        for part in np.array_split(group, len(group) * a // BLOCK + 1):
            out[part] = _by_terms(a, rate[part], half[part], margin)
    rows = np.flatnonzero(integral)
    rows = rows[np.argsort(nodes[rows], kind="stable")]
    for part in np.array_split(rows, int(nodes[rows].sum()) // BLOCK + 1) if len(rows) else []:
        out[part] = _by_integral(order[part], rate[part], half[part], int(nodes[part[-1]]), margin)
    return np.maximum(out * (1 + 4 * ULP), TINY)


@cache
def _terms(order: int) -> tuple[Floats, Floats, Floats]:
    """k = 2..order, ln C(order, k) and k (k-1), as columns."""
    k = np.arange(2, order + 1, dtype=np.float64)[:, None]
    return k, np.array([[log(comb(order, i))] for i in range(2, order + 1)]), k * (k - 1)


def _by_terms(order: int, rate: Floats, half: Floats, margin: float) -> Floats:
    k, log_binomial, pairs = _terms(order)
    yes, no = np.log(rate), np.log1p(-rate)
    growth = pairs * half  # [order - 1, n]
    exponent = k * (yes - no)
    exponent += log_binomial
    exponent += growth
    top = exponent.max(0)
    exponent -= top
    np.exp(exponent, out=exponent)
    np.negative(growth, out=growth)
    exponent *= np.expm1(growth, out=growth)
    value = np.log(-exponent.sum(0)) + top + order * no  # ln(A - 1)
    size = log_binomial.max() - order * (yes + no) + order * (order - 1) * half + np.abs(value)
    return np.asarray(np.logaddexp(0.0, value + margin * ULP * (8 * size + order + 16)))


def _by_integral(order: Floats, rate: Floats, half: Floats, nodes: int, margin: float) -> Floats:
    """ln A by the trapezoidal rule on A = E (1 + q (exp(x/z - 1/(2z²)) - 1))^a, x standard normal: for high orders.

    The integrand is a sum of unit bells at k/z, weighted by the terms of A. Over all multiples of STEP the rule
    integrates each bell with a relative error below 2.1 exp(-2 pi² / STEP²) < 2^-110 (Poisson summation), and what lies
    beyond REACH of the first and the last bell is less than 2^-62 of it. A - 1 is summed, not A.
    """
    shift = np.sqrt(2 * half)
    x = (-REACH + STEP * np.arange(nodes))[:, None]
    lift = np.expm1(np.minimum(x * shift - half, MOST_DRIFT))  # a neighbour's nodes may lie far beyond a client's own
    lift *= rate
    tilt = np.log1p(lift)
    tilt *= order
    bell = -x * x / 2 - LOG_ROOT_TWO_PI + np.log(STEP)
    top = np.maximum((tilt + bell).max(0), 0.0)
    at, row = np.nonzero((np.maximum(tilt, 0.0) + bell) > top - 60)  # the others are less than 2^-80 of it
    tilt, lift, x, bell = tilt[at, row], lift[at, row], x[at, 0], bell[at, 0] - top[row]
    flat, tilted = np.exp(bell), np.exp(tilt + bell)
    terms = np.where(tilt < 1, flat * np.expm1(np.minimum(tilt, 1.0)), tilted - flat)
    push = order[row] * (lift + rate[row]) / (1 + lift) * (np.abs(x) * shift[row] + half[row])
    doubt = tilted * (8 * (np.abs(tilt) + push) * ULP + 2.0**-60) + (nodes + 16) * ULP * np.abs(terms)
    value = top + np.log(np.maximum(np.bincount(row, terms + margin * doubt), TINY))
    return np.asarray(np.logaddexp(0.0, value + 8 * ULP * np.abs(value)))


def checked(**values: Any) -> list[Floats]:
    """The values as float64 arrays of one shape, each within its range."""
    limits = {"order": (2.0, float(ORDERS[-1])), "rate": (0.0, 1.0), "delta": (0.0, 1.0)}
    arrays = [np.asarray(value, dtype=np.float64) for value in values.values()]
    for name, array in zip(values, arrays, strict=True):
        low, high = limits.get(name, (0.0, np.inf))
        bad = ~((array >= low) & (array <= high))
        if name == "order":
            bad |= array != np.floor(array)
        if bad.any():
            whole = "whole numbers, " if name == "order" else ""
            raise DpflbenchError(f"{name}: found {array[bad].flat[0]:g}; allowed: {whole}{low:g} to {high:g}")
    return list(np.broadcast_arrays(*arrays))
