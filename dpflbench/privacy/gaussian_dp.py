"""Gaussian DP and pure DP: exact conversions between (epsilon, delta) and costs that add up, vectorised over clients.

A Gaussian release of L2 sensitivity s and standard deviation sigma is exactly mu-GDP with mu = s / sigma, and releases
compose to mu² = sum of mu_i² without loss (Dong, Roth, Su, "Gaussian differential privacy", 2019, corollary 2). Pure
epsilons simply add. Every conversion here errs to the private side: `mu_of` never returns too much, `epsilon_of` never
too little.

Why that holds. With a = epsilon/mu - mu/2, b = epsilon/mu + mu/2 and the Mills ratio R(x) = Phi(-x) / phi(x), the
identity phi(a) = e^epsilon phi(b) turns delta = Phi(-a) - e^epsilon Phi(-b) into

    log delta = -a²/2 - log sqrt(2 pi) + log(R(a) - R(b)),

which neither under- nor overflows. `_log_delta` returns it together with a bound on its own rounding error. Any solver
may propose a mu or an epsilon: it is returned only after `log delta + error <= log(target)` was checked for exactly
that number, so its true delta is at most the target; and delta grows with mu and falls with epsilon. Where the check
fails (numbers beyond all use) the answer is the bound that follows from delta <= Phi(-a) alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfcx, ndtr, ndtri

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Floats

ULP = 2.0**-52
LOG_ROOT_TWO_PI = 0.9189385332046727  # log sqrt(2 pi)
ROOT_HALF_PI = 1.2533141373155001  # sqrt(pi / 2)
ROOT_HALF = 0.7071067811865476
NEWTON_STEPS = 80  # about six suffice within the documented range; the rest are bisections for absurd input
CHUNK = 1 << 15  # clients at a time: intermediate arrays stay in the cache
Objective = Callable[[Floats], tuple[Floats, Floats, Floats]]


def delta(epsilon: Any, mu: Any) -> Floats:
    """Exact delta of mu-GDP at epsilon: Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2) (Dong et al.,
    corollary 1).
    """
    epsilon, mu = _arrays(epsilon=epsilon, mu=mu)
    return np.asarray(np.exp(_log_delta(epsilon, mu)[0]))


def log_delta(epsilon: Any, mu: Any) -> Floats:
    """Natural logarithm of `delta`, accurate where delta itself underflows; -inf where mu is 0."""
    epsilon, mu = _arrays(epsilon=epsilon, mu=mu)
    return _log_delta(epsilon, mu)[0]


def mu_of(epsilon: Any, delta: Any) -> Floats:
    """The largest mu that is (epsilon, delta)-DP, rounded down by some 1e-10 at most: [...] and [...] → [...].

    Built for epsilon in 1e-3..1e3 and delta in 1e-12..0.1, right (private) for all others. 0 where delta is 0: no
    Gaussian is pure. The margin is four times the error bound, `epsilon_of` takes one: hence epsilon_of(mu_of(e, d), d)
    <= e within that range.
    """
    return _in_chunks(_mu_of, *_arrays(epsilon=epsilon, delta=delta))


def epsilon_of(mu: Any, delta: Any) -> Floats:
    """The smallest epsilon at which mu-GDP has this delta, rounded up: [...] and [...] → [...].

    0 where mu is 0, infinite where delta is 0 and mu is not.
    """
    return _in_chunks(_epsilon_of, *_arrays(mu=mu, delta=delta))


def _arrays(**values: Any) -> tuple[Floats, Floats]:
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}
    for name, array in arrays.items():
        top = 1.0 if name == "delta" else np.inf
        if not ((array >= 0) & (array <= top)).all():
            raise DpflbenchError(
                f"{name}: found {array[~((array >= 0) & (array <= top))].flat[0]}; allowed: 0 to {top:g}"
            )
    first, second = np.broadcast_arrays(*arrays.values())
    return first, second


def _in_chunks(convert: Callable[[Floats, Floats], Floats], first: Floats, second: Floats) -> Floats:
    x, y = np.ravel(first), np.ravel(second)
    out = np.empty(x.shape)
    with np.errstate(all="ignore"):  # infinities of corner cases are decided by np.where
        for start in range(0, x.size, CHUNK):
            part = slice(start, start + CHUNK)
            out[part] = convert(x[part], y[part])
    return out.reshape(np.shape(first))


def _mills(x: Floats) -> Floats:
    return np.asarray(ROOT_HALF_PI * erfcx(x * ROOT_HALF))


def _log_delta(epsilon: Floats, mu: Floats) -> tuple[Floats, Floats]:
    """log delta and a bound on its rounding error.

    With relative errors of 4 ulp in erfcx and of 2 ulp in a and b before their subtraction: a²/2 is off by at most 4
    ulp |a| b, the difference of the Mills ratios by 8 ulp (R(a) + R(b)) relative to R(a) - R(b). For a < 0, where R(a)
    would overflow, the same difference is taken between probabilities. The bound doubles all this.
    """
    with np.errstate(all="ignore"):
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        up = np.maximum(a, 0.0)
        near, far = _mills(up), _mills(b)
        upper = np.log(near - far) - up * up / 2 - LOG_ROOT_TWO_PI
        lower = np.log(ndtr(-a) - np.exp(-a * a / 2 - LOG_ROOT_TWO_PI) * far)
        value = np.where(a >= 0, upper, lower)
        error = 16 * ULP * (1 + np.abs(a) * b + np.abs(value) + (near + far) / (near - far))
    pure, full = (mu == 0) | np.isinf(epsilon), np.isinf(mu)
    value = np.where(pure, -np.inf, np.where(full, 0.0, value))
    return value, np.where(pure | full, 0.0, error)


def _solve(objective: Objective, low: Floats, high: Floats, start: Floats, target: Floats) -> Floats:
    """The a at which a decreasing objective(a) = (log delta, slope, rounding) meets target, to within its rounding.

    Newton's method, with bisection where a step leaves [low, high].
    """
    a = start
    for _ in range(NEWTON_STEPS):
        value, slope, rounding = objective(a)
        excess = value - target
        if not (np.abs(excess) > rounding).any():  # a NaN has no solution to wait for
            break
        low, high = np.where(excess >= 0, a, low), np.where(excess < 0, a, high)
        step = a - excess / slope
        a = np.where((step >= low) & (step <= high), step, (low + high) / 2)
    return a


def _mu_of(epsilon: Floats, delta: Floats) -> Floats:
    # delta <= Phi(-a), and for a < 0 also delta >= 2 Phi(-a) - 1: a lies between these two
    high, low = -ndtri(delta), -ndtri((1 + delta) / 2)
    target = np.log(delta)

    def from_a(a: Floats) -> tuple[Floats, Floats]:  # mu, b; b - a without cancellation
        b = np.sqrt(a * a + 2 * epsilon)
        return np.where(a > 0, 2 * epsilon / (a + b), b - a), b

    def objective(a: Floats) -> tuple[Floats, Floats, Floats]:
        (mu, b), near = from_a(a), _mills(a)
        gap = near - _mills(b)
        return np.log(gap) - a * a / 2 - LOG_ROOT_TWO_PI, -mu / (b * gap), 16 * ULP * (1 + a * a + near / gap)

    # both bounds as mu: Phi(-a) = delta, and mu at epsilon = 0; the larger is the nearer
    floor = np.maximum(from_a(high)[0], -2 * low) * (1 - 64 * ULP)
    start = np.clip(epsilon / floor - floor / 2, low, high)
    mu = from_a(_solve(objective, low, high, start, target))[0]
    error = _log_delta(epsilon, mu)[1]
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    mu = mu - (6 * error + 16 * ULP) * (_mills(a) - _mills(b)) - 8 * ULP * mu  # d log delta / d mu = 1 / (R(a) - R(b))
    value, error = _log_delta(epsilon, mu)
    mu = np.where(value + 4 * error <= target, mu, floor)
    return np.where(delta == 0, 0.0, np.where((delta == 1) | np.isinf(epsilon), np.inf, mu))


def _epsilon_of(mu: Floats, delta: Floats) -> Floats:
    high, low = -ndtri(delta), np.maximum(-ndtri((1 + delta) / 2), -mu / 2)
    target = np.log(delta)

    def objective(a: Floats) -> tuple[Floats, Floats, Floats]:
        near, far = _mills(a), _mills(a + mu)
        gap = near - far
        return np.log(gap) - a * a / 2 - LOG_ROOT_TWO_PI, -mu * far / gap, 16 * ULP * (1 + a * a + near / gap)

    ceiling = np.maximum(mu * (high + mu / 2), 0.0) * (1 + 64 * ULP)
    a = _solve(objective, np.minimum(low, high), high, high, target)
    epsilon = np.maximum(mu * (a + mu / 2), 0.0)
    error = _log_delta(epsilon, mu)[1]
    near, far = _mills(a), _mills(a + mu)
    # d log delta / d epsilon = -R(b) / (R(a) - R(b))
    epsilon = epsilon + (1.5 * error + 4 * ULP) * (near - far) / far + 4 * ULP * epsilon
    value, error = _log_delta(epsilon, mu)
    epsilon = np.where(value + error <= target, np.minimum(epsilon, ceiling), ceiling)
    none_needed = delta >= 2 * ndtr(mu / 2) * (1 + 4 * ULP) - 1 + 4 * ULP  # delta at epsilon = 0
    epsilon = np.where(none_needed, 0.0, epsilon)
    return np.where((mu == 0) | (delta == 1), 0.0, np.where((delta == 0) | np.isinf(mu), np.inf, epsilon))
