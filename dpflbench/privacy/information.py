"""How well budgets are turned into low noise, and how much data stands behind the steps: two numbers, no training.

A run's direction of round t is Σ a_nt (g_n + Z_nt) over its cohort, with noise of variance v_nt in each coordinate. Per
unit of weight it holds noise of variance V_t = Σ a_nt² v_nt / (Σ a_nt)²; the run injects their mean over rounds, V.
**Noise efficiency** is the least V that any selector and linear weighting could have reached at the same budgets, over
V. In what follows Δ_n is the sensitivity of one message at the suite's clip bound; whoever clips tighter than that
(`clip_factor`) pays with bias for less noise, and may exceed 1.

Whatever the law: for given v the least V_t is 1 / J_t, J_t = Σ_n 1 / v_nt (weights by inverse variance).

*Gaussian.* Client n's releases are exactly mu-GDP with mu² = Σ_t Δ_n² / v_nt, and (ε_n, δ_n) allows mu_n², whichever
accountant counts. So Σ_t 1 / v_nt ≤ I_n = mu_n² / Δ_n², Σ_t J_t ≤ Σ I_n, and the mean of 1 / J_t over T rounds is
least where all J_t are equal: V ≥ T / Σ I_n. It does not matter over how many uses a client splits its budget. Weights
1 / v_nt reach the limit, and so does a plain mean with uses in proportion to I_n, which makes all v_nt equal.

*Laplace.* Here epsilon adds up: with x_nt = sqrt(2 / v_nt) = 1 / scale, Σ_t x_nt ≤ q_n = ε_n / Δ_n, while J_t = Σ_n
x_nt² / 2. Squares favour a budget spent in few uses, and in a round few clients: from |x_t|_2 ≤ |x_t|_1 and Σ_t |x_t|_1
≤ Q = Σ q_n the mean of 2 / |x_t|_2² is at least 2 T² / Q² (convexity). Also Σ_t |x_t|_2² ≤ Σ_n q_n² (x_nt ≤ q_n, so
Σ_t x_nt² ≤ q_n²), hence V ≥ 2 T / Σ q_n². The limit is the larger of the two: the first is reached where every round
is carried by one client that spends Q / T on it, the second where each client spends all at once and rounds balance.
A *plain mean* of K has V_t = Σ 2 / x_nt² / K², least for equal x: V ≥ 2 K T² / Q², K times the first.

*Sums* (`trust: secure_sum | central`, exact cohorts, Gaussian). One noise protects a whole cohort. Let x_nt be
sqrt(c_nt) / Δ_n, where c_nt is what client n spends on round t: then σ_t ≥ a_nt / x_nt for all n, so with unit weight
σ_t ≥ 1 / y_t, y_t = Σ_n x_nt. Σ_t x_nt² ≤ I_n as above, the mean of y_t^-2 is at least T / Σ y_t² (convexity), and Σ
y_t² is at most (Σ_n sqrt(I_n))² (triangle inequality) and at most K Σ_n I_n (Cauchy's inequality, K clients a round).
So V is at least T / min((Σ sqrt(I_n))², K Σ I_n), over h where a share h of the noise is counted on. The first is
reached where everybody takes part in every round and weighs as 1 / scale, the second where all budgets are equal. A
sum needs up to K times less variance than rows: that is what trust buys. Under Poisson cohorts no limit is known
here.

**Data coverage** is the share of examples behind the steps: with w_n a client's weight added up over rounds, each of
its D_n examples has weight w_n / D_n, and the effective number of examples (Σ v_i)² / Σ v_i² (Kish) over their number M
is (Σ w_n)² / (M Σ w_n² / D_n). It is 1 where every example weighs the same.
"""

import math

import numpy as np

from dpflbench.interfaces import Event, Floats, Ints, Setup, Trust
from dpflbench.privacy.gaussian_dp import mu_of

UNKNOWN = math.nan


def variance_limit(setup: Setup) -> float:
    """The least mean variance of noise in one coordinate of a direction, at the budgets of a run; NaN where no limit is
    known: sampled or several releases a participation, Poisson cohorts, other laws, Laplace noise that is not priced by
    epsilon alone or that is added to a sum.
    """
    if setup.cohorts == "poisson":
        return UNKNOWN
    pure, size = setup.accountant.pure, setup.cohort_size
    return least_variance(setup.message(), setup.epsilon, setup.delta, setup.rounds, pure, setup.trust, size)


def least_variance(
    message: Event, epsilon: Floats, delta: Floats, rounds: int, pure: bool, trust: Trust | None = None, cohort: int = 1
) -> float:
    """The same from one message of every client [N], budgets [N], whether the accountant is pure, and what the server
    sees of how many.
    """
    once, sums = (message.rate == 1).all() and (message.steps == 1).all(), trust is not None and not trust.rows
    if not once or not np.isfinite(message.sensitivity).all():
        return UNKNOWN
    if message.law == "gaussian" and trust is not None and sums:
        return sum_limit(mu_of(epsilon, delta) / message.sensitivity, rounds, cohort) / trust.counted(cohort)
    if message.law == "gaussian":
        return gaussian_limit(mu_of(epsilon, delta) / message.sensitivity, rounds)
    if sums:
        return UNKNOWN
    if message.law == "laplace" and pure:
        return laplace_limit(epsilon / message.sensitivity, rounds)
    return UNKNOWN


def mean_limit(setup: Setup) -> float:
    """The same for a plain mean of the cohort: no other for Gaussian noise, larger for Laplace noise."""
    limit = variance_limit(setup)
    if setup.message().law != "laplace" or math.isnan(limit):
        return limit
    q = float(np.sum(setup.epsilon / setup.message().sensitivity))
    return max(limit, 2.0 * setup.cohort_size * setup.rounds**2 / q**2)


def gaussian_limit(ratio: Floats, rounds: int) -> float:
    """T / Σ I_n, from mu_n / Δ_n [N]."""
    return rounds / float(np.sum(np.square(ratio)))


def sum_limit(ratio: Floats, rounds: int, cohort: int) -> float:
    """T / min((Σ sqrt(I_n))², K Σ I_n), from mu_n / Δ_n [N]."""
    return rounds / min(float(np.sum(ratio)) ** 2, cohort * float(np.sum(np.square(ratio))))


def laplace_limit(ratio: Floats, rounds: int) -> float:
    """max(2 T² / (Σ q_n)², 2 T / Σ q_n²), from q_n = ε_n / Δ_n [N]."""
    return max(2.0 * rounds**2 / float(np.sum(ratio)) ** 2, 2.0 * rounds / float(np.sum(np.square(ratio))))


def noise_efficiency(limit: float, variance: float) -> float:
    """The limit over the variance; 0 where a round had noise and no weight, NaN where no limit is known."""
    return limit / variance if variance > 0 else UNKNOWN


def data_coverage(weight: Floats, n_examples: Ints) -> float:
    """Effective share of examples behind the steps, from each client's weight over the run [N] and its size [N]; NaN
    where nobody had any.
    """
    squares = float(np.sum(np.square(weight) / n_examples))
    return float(np.sum(weight)) ** 2 / (float(np.sum(n_examples)) * squares) if squares > 0 else UNKNOWN
