"""Empirical lower bounds on privacy loss: how well can releases from two neighbouring worlds be told apart?

The attack is fitted on one set of releases and judged on fresh ones. With error rates (false alarms, misses) of a
threshold test, bounded from above by Clopper and Pearson at the stated confidence, the mechanism

* is not (epsilon, delta)-DP for any epsilon below log((1 - delta - misses) / false alarms), nor with the two exchanged
  (Kairouz, Oh, Viswanath, "The composition theorem for differential privacy", 2015);
* is not mu-GDP for any mu below Phi^-1(1 - false alarms) - Phi^-1(misses) (Dong, Roth, Su, 2019): the tighter one for
  Gaussian noise, for it uses the whole curve and not its far end (Nasr et al., "Tight auditing of DP machine learning",
  2023).

Each is a fact about the releases whatever made them; a claim above which it lies is refuted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from dpflbench.interfaces import Floats
from dpflbench.privacy.gaussian_dp import epsilon_of

Law = Literal["gaussian", "laplace"]
Release = Callable[[int], tuple[Floats, Floats]]  # seed → releases [n, M] of the one world and of the other
THRESHOLDS = 400


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised: epsilon at delta, and for Gaussian noise the mu behind it."""

    epsilon: float
    delta: float
    mu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What an audit found, at a confidence."""

    claim: Promise
    confidence: float
    trials: int  # fresh releases of each world
    epsilon: float  # lower bound by Clopper and Pearson
    mu: float  # lower bound in Gaussian DP
    epsilon_by_mu: float  # what a Gaussian mechanism of that mu amounts to at the claim's delta

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon > self.claim.epsilon or (self.claim.mu is not None and self.mu > self.claim.mu)


def audit(
    release: Release,
    claim: Promise,
    law: Law = "gaussian",
    confidence: float = 0.999,
    seed: int = 0,
    shift: Floats | None = None,
) -> Bound:
    """Fit attacks to the releases of `seed`, choose among them and their thresholds on `seed` + 1, judge the choice on
    `seed` + 2.

    `shift` [M] is how far the releases of the two worlds lie apart without noise, where the adversary can know it: one
    attack uses it, another only what releases show.
    """
    first, pilot, fresh = release(seed), release(seed + 1), release(seed + 2)
    attacks = [fit(*first, law)] + ([] if shift is None else [fit(*first, law, shift)])
    found = []
    for kind in (0, 1):  # epsilon, mu: each has its own best test
        choices = []
        for score in attacks:
            scores = score(pilot[0]), score(pilot[1])
            levels = np.unique(np.quantile(np.concatenate(scores), np.linspace(0.001, 0.999, THRESHOLDS)))
            values = _bounds(scores[0], scores[1], levels, claim.delta, confidence)[kind]
            choices.append((float(values.max()), score, levels[[int(values.argmax())]]))
        _, score, level = max(choices, key=lambda choice: choice[0])
        found.append(float(_bounds(score(fresh[0]), score(fresh[1]), level, claim.delta, confidence)[kind][0]))
    epsilon, mu = found
    return Bound(
        claim=claim,
        confidence=confidence,
        trials=min(map(len, fresh)),
        epsilon=epsilon,
        mu=mu,
        epsilon_by_mu=float(epsilon_of(mu, claim.delta)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """Where an attack comes nearest to a promised curve of deltas over epsilons, or beyond it."""

    epsilon: float
    promised: float  # the delta there
    delta: float  # the least the releases give away there, at the confidence asked for
    trials: int  # fresh releases of each world

    @property
    def violated(self) -> bool:
        """Whether the promise is refuted."""
        return self.delta > self.promised


def audit_curve(
    release: Release,
    curve: Sequence[tuple[float, float]],
    confidence: float = 0.999,
    seed: int = 0,
    shift: Floats | None = None,
) -> Crossed:
    """As `audit`, against all (epsilon, delta) of a curve at once: its point is chosen on `seed` + 1 as well.

    For noise that is normal around a mixture of shifts along one line, as of a record that is drawn now and then, the
    likelihood ratio grows along that line, so that a linear score is the best one.
    """
    first, pilot, fresh = release(seed), release(seed + 1), release(seed + 2)
    choices = []
    for score in [fit(*first, "gaussian")] + ([] if shift is None else [fit(*first, "gaussian", shift)]):
        scores = score(pilot[0]), score(pilot[1])
        levels = np.unique(np.quantile(np.concatenate(scores), np.linspace(0.001, 0.999, THRESHOLDS)))
        beyond = deltas_of(*_rates(*scores, levels, confidence), curve) - [delta for _, delta in curve]
        at = np.unravel_index(int(beyond.argmax()), beyond.shape)
        choices.append((float(beyond[at]), score, levels[[at[0]]], curve[int(at[1])]))
    _, score, level, point = max(choices, key=lambda choice: choice[0])
    rates = _rates(score(fresh[0]), score(fresh[1]), level, confidence)
    found = float(deltas_of(*rates, [point])[0, 0])
    return Crossed(epsilon=point[0], promised=point[1], delta=found, trials=min(map(len, fresh)))


def deltas_of(false_alarms: Floats, misses: Floats, curve: Sequence[tuple[float, float]]) -> Floats:
    """The delta that error rates [L] of tests refute from below at each epsilon of a curve [C]: [L, C]."""
    grown = np.exp([epsilon for epsilon, _ in curve])
    a, b = false_alarms[:, None], misses[:, None]
    return np.asarray(np.maximum(1 - b - grown * a, 1 - a - grown * b))


def fit(one: Floats, other: Floats, law: Law, shift: Floats | None = None) -> Callable[[Floats], Floats]:
    """A score that is larger in the other world: the log-likelihood ratio of independent coordinates around their
    centres.

    Spreads, and the shift unless it is given, are estimated coordinate by coordinate; a coordinate without spread that
    differs betrays the world by itself.
    """
    centre = np.mean if law == "gaussian" else np.median
    zero, moved = centre(one, axis=0), centre(other, axis=0)
    pooled = np.concatenate([one - zero, other - moved])
    spread = pooled.std(0) if law == "gaussian" else np.abs(pooled).mean(0)
    if shift is None:
        shift = moved - zero
    top = max(float(np.abs(shift).max(initial=0.0)), float(spread.max(initial=0.0)), 1e-300)
    spread = np.maximum(spread, 1e-7 * top)  # float32 jitter is no spread
    middle, half = (zero + moved) / 2, shift / 2
    if law == "gaussian":
        return lambda x: np.asarray(((x - middle) / spread) @ (shift / spread))
    return lambda x: np.asarray(((np.abs(x - middle + half) - np.abs(x - middle - half)) / spread).sum(1))


def upper_rate(count: ArrayLike, trials: int, alpha: float) -> Floats:
    """Clopper and Pearson's upper bound on a rate of which `count` in `trials` were seen; wrong with probability alpha
    at most.
    """
    count = np.asarray(count)
    return np.where(count >= trials, 1.0, beta.ppf(1 - alpha, count + 1, np.maximum(trials - count, 1)))


def bounds_of(false_alarms: ArrayLike, misses: ArrayLike, delta: float) -> tuple[Floats, Floats]:
    """The epsilon and the mu that error rates of a test refute from below."""
    a, b = np.asarray(false_alarms, dtype=np.float64), np.asarray(misses, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon = np.log(np.maximum(np.maximum(1 - delta - b, 0) / a, np.maximum(1 - delta - a, 0) / b))
        mu = -ndtri(a) - ndtri(b)
    return np.maximum(epsilon, 0.0), np.maximum(mu, 0.0)


def _bounds(one: Floats, other: Floats, thresholds: Floats, delta: float, confidence: float) -> tuple[Floats, Floats]:
    return bounds_of(*_rates(one, other, thresholds, confidence), delta)


def _rates(one: Floats, other: Floats, thresholds: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Upper bounds on false alarms and misses of each threshold."""
    alpha = (1 - confidence) / 2  # two rates
    alarms = len(one) - np.searchsorted(np.sort(one), thresholds, side="right")  # scores above
    misses = np.searchsorted(np.sort(other), thresholds, side="right")  # scores at or below
    return upper_rate(alarms, len(one), alpha), upper_rate(misses, len(other), alpha)


def trials_needed(
    claimed: float, true: float, law: Law = "gaussian", confidence: float = 0.999, power: float = 0.9
) -> int:
    """Releases of each world at which a violation is seen with probability `power`.

    For "gaussian" claimed and true are mu, for "laplace" epsilon of a single coordinate; the attack is assumed to know
    the direction.
    """
    if not 0 < claimed < true:
        raise ValueError(f"no violation: claimed {claimed}, true {true}")
    gaussian = law == "gaussian"
    # false alarms and misses of a test in the middle, and for Laplace noise also of one at the far centre
    middle = float(ndtr(-true / 2)) if gaussian else math.exp(-true / 2) / 2
    tests = [(middle, middle)] if gaussian else [(middle, middle), (math.exp(-true) / 2, 0.5)]

    def seen(n: int) -> bool:
        for rates in tests:
            alarms, misses = (
                upper_rate(int(binom.ppf(math.sqrt(power), n, r)), n, (1 - confidence) / 2) for r in rates
            )
            if float(bounds_of(alarms, misses, 0.0)[1 if gaussian else 0]) > claimed:
                return True
        return False

    high = 8
    while not seen(high):
        high *= 2
        if high > 1 << 40:
            raise ValueError(
                f"claimed {claimed} and true {true} cannot be told apart by any number of trials worth naming"
            )
    low = high // 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


@cache
def noise_seen(claim: Promise, law: Law, trials: int, confidence: float = 0.999) -> float:
    """The share of the noise it should have below which a release is caught nine times in ten; 0: never."""
    claimed = claim.epsilon if claim.mu is None else claim.mu
    low, high = 0.05, 1.0

    def caught(share: float) -> bool:
        try:
            return trials_needed(claimed, claimed / share, law, confidence) <= trials
        except ValueError:
            return False

    if not caught(low):
        return 0.0
    while high - low > 0.005:
        middle = (low + high) / 2
        low, high = (middle, high) if caught(middle) else (low, middle)
    return low
