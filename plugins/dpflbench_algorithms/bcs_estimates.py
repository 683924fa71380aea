"""What DPFL-BCS has to guess from noisy losses: the heterogeneity Γ_n and the constants of its bound (Ma et al., arXiv
2408.08642).

| paper | here |
|---|---|
| Γ_n = F_n(w*) - F_n* | `heterogeneity` |
| F̂_n(w^(t-1)), F̂_n(w_n^t) | `losses.received`, `losses.stepped` |
| ρ_min, γ, L, μ | `Constants` |
| P2, five unknowns (‖w_0 - w*‖², γ, σ², L, μ) | `alternating_fit`, in that order |

Differs:
* `shrunk_excess` (default) in place of the paper's `smallest_drop`. The latter is the smallest of a client's absolute
  noisy drops: it measures one step, not a gap to an optimum, and tends to 0 the more often a client is seen, whatever
  its data.
* `schedule_constants` (default): the theorem's rate 2 / (μ (t + γ)) with γ = 8 L / μ and the run's rate a / (1 + t / b)
  are the same curve for γ = b, μ = 2 / (a b), L = γ μ / 8. P2 is one equation in five unknowns, and its answer is where
  one starts.
* P2's bound: the paper's noise, non-IID and selection terms follow from P1; the two that P1 does not need, initial
  distance and gradient variance, are here those of the standard proof, L γ ‖w_0 - w*‖² / 2 and 4 L σ² / (K μ²), each
  over γ + T.
* ρ̂_min divides by the number of losses seen instead of K (T_0 - 1), which is the same when every participation reports
  one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from dpflbench.interfaces import Floats, Ints, LearningRate, Losses

Bound = Callable[[Floats], float]
SWEEPS, FAR = 50, math.log(1e9)


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of the convergence bound."""

    gamma: float
    smoothness: float  # L
    strong_convexity: float  # μ

    def bias_weight(self, cohort_size: int, rounds: int) -> float:
        """Λ Ω_B / Ω_A = K (L + 3 μ (γ + T) / 8): what a unit of Γ weighs against a unit of noise energy.

        With a constant learning rate γ is infinite and μ is 0; their product stays 8 L.
        """
        pull = 8.0 * self.smoothness if math.isinf(self.gamma) else self.strong_convexity * (self.gamma + rounds)
        return cohort_size * (self.smoothness + 0.375 * pull)


def schedule_constants(lr: LearningRate) -> Constants:
    """The constants at which the theorem's learning rate is the run's: γ = b, μ = 2 / (a b), L = 1 / (4 a)."""
    return Constants(gamma=lr.decay, smoothness=0.25 / lr.initial, strong_convexity=2.0 / (lr.initial * lr.decay))


# ---------------------------------------------------------------- heterogeneity


def shrunk_excess(losses: Losses, n_clients: int) -> Floats:
    """Γ̂_n = τ² / (τ² + s_n) (ē_n)_+: a client's mean excess over its rounds' means, shrunk by how noisy it is; [N].

    Means are weighted by 1 / noise variance, s_n is the noise variance of ē_n, and τ², the variance between clients,
    comes from moments (DerSimonian and Laird, 1986). Clients never seen get the mean of the others.
    """
    if not len(losses.client):
        return np.zeros(n_clients)
    top = float(losses.variance.max())
    weight = 1.0 / np.maximum(losses.variance, 1e-12 * top) if top > 0 else np.ones(len(losses.client))
    _, which = np.unique(losses.round, return_inverse=True)
    level = np.bincount(which, weight * losses.received) / np.bincount(which, weight)
    precision = np.bincount(losses.client, weight, n_clients)
    seen = precision > 0
    w = precision[seen]
    excess = np.bincount(losses.client, weight * (losses.received - level[which]), n_clients)[seen] / w
    scatter = float(np.sum(w * np.square(excess - np.average(excess, weights=w))))
    freedom, spread = len(w) - 1, float(w.sum() - np.square(w).sum() / w.sum())
    between = max(scatter - freedom, 0.0) / spread if spread > 0 else 0.0
    return _with_unseen(np.maximum(excess, 0.0) * between / (between + 1.0 / w), seen)


def smallest_drop(losses: Losses, n_clients: int) -> Floats:
    """Γ̂_n = min over visits |F̂_n(w^(t-1)) - F̂_n(w_n^t)|, the mean of them where a client was never seen; [N]."""
    if not len(losses.client):
        return np.zeros(n_clients)
    drop = np.full(n_clients, np.inf)
    np.minimum.at(drop, losses.client, np.abs(losses.received - losses.stepped))
    seen = np.isfinite(drop)
    return _with_unseen(drop[seen], seen)


def _with_unseen(values: Floats, seen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
    full = np.full(len(seen), values.mean())
    full[seen] = values
    return full


# ---------------------------------------------------------------- constants


def last_losses(losses: Losses, n_clients: int) -> Floats:
    """F̂_n [N], the last noisy loss at a received model; NaN where there is none."""
    last = np.full(n_clients, np.nan)
    order = np.argsort(losses.round, kind="stable")
    last[losses.client[order]] = losses.received[order]  # assignments come in order: the latest stays
    return last


def selection_skew(losses: Losses, n_clients: int) -> float:
    """ρ̂_min = Σ C_n F̂_n / (F̂ Σ C_n) with F̂ the mean of F̂_n; 1 (no skew) where no positive loss was seen."""
    last = last_losses(losses, n_clients)
    seen = ~np.isnan(last)
    if not seen.any() or last[seen].mean() <= 0:
        return 1.0
    count = np.bincount(losses.client, minlength=n_clients)
    return float(np.sum(count[seen] * last[seen]) / (count.sum() * last[seen].mean()))


def convergence_bound(heterogeneity: Floats, used: Ints, noise_energy: float, skew: float, rounds: int) -> Bound:
    """The bound on F(w^T) - F* after `rounds` as a function of (‖w_0 - w*‖², γ, σ², L, μ).

    `used` [N] are the participations so far, `noise_energy` the sum of E‖Z‖² over all their messages, in gradient
    units.
    """
    visits, n_clients = float(used.sum()), len(used)
    cohort = visits / rounds
    non_iid = float(used @ heterogeneity)
    skewed = float((used / visits - skew / n_clients) @ heterogeneity)

    def bound(x: Floats) -> float:
        distance, gamma, variance, smooth, convex = x
        curved = 4.0 * smooth / convex**2
        decaying = (
            smooth * gamma * distance / 2.0
            + curved * variance / cohort
            + curved * smooth * non_iid / visits
            + curved * noise_energy / (visits * cohort)
        )
        return float(decaying / (gamma + rounds) + 1.5 * smooth / convex * skewed)

    return bound


def alternating_fit(loss: float, bound: Bound, start: Floats) -> tuple[Floats, float]:
    """P2: minimise |F̂ - bound| in one unknown after another; the point [5] and the gap that is left, relative to F̂."""
    point = np.log(start)

    def gap(value: float, i: int) -> float:
        trial = point.copy()
        trial[i] = value
        return abs(loss - bound(np.exp(trial)))

    best = gap(point[0], 0)
    for _ in range(SWEEPS):
        before = best
        for i in range(len(point)):
            found = minimize_scalar(gap, args=(i,), bounds=(-FAR, FAR), method="bounded", options={"xatol": 1e-12})
            if found.fun < best:
                best, point[i] = float(found.fun), float(found.x)
        if best <= 1e-9 * abs(loss) or best > before * (1.0 - 1e-6):
            break
    return np.exp(point), best / max(abs(loss), 1e-300)
