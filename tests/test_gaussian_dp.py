"""Exact Gaussian DP: against arbitrary-precision arithmetic, against the printed tables, and always on the private
side.
"""

import time
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpflbench.errors import DpflbenchError
from dpflbench.privacy import gaussian_dp
from dpflbench.privacy.gaussian_dp import delta, epsilon_of, log_delta, mu_of

EPSILONS = np.logspace(-3, 3, 13)
DELTAS = np.logspace(-12, -1, 12)
GRID = [(float(e), float(d)) for e in EPSILONS for d in DELTAS]


def oracle(epsilon, mu):
    """delta of mu-GDP by its definition, in 80 digits."""
    with mpmath.workdps(80):
        e, m = mpmath.mpf(float(epsilon)), mpmath.mpf(float(mu))
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


def test_delta_equals_the_formula_in_eighty_digits():
    for epsilon, mu in [
        (0.0, 1.0),
        (1e-3, 1e-4),
        (1e-3, 0.2),
        (1.0, 0.2681),
        (1.0, 3.0),
        (10.0, 0.5),
        (1e3, 38.0),
        (3.0, 30.0),
    ]:
        assert float(delta(epsilon, mu)) == pytest.approx(float(oracle(epsilon, mu)), rel=1e-9)


def test_delta_at_epsilon_zero_is_the_total_variation_distance():
    assert float(delta(0.0, 1.0)) == pytest.approx(0.3829249225480262, rel=1e-14)  # 2 Phi(1/2) - 1


def test_log_delta_goes_on_where_delta_underflows():
    assert float(delta(100.0, 1.0)) == 0.0
    assert float(log_delta(100.0, 1.0)) == pytest.approx(float(mpmath.log(oracle(100.0, 1.0))), rel=1e-12)


def test_the_stated_rounding_error_of_log_delta_is_a_bound():
    for epsilon in (1e-3, 0.1, 1.0, 30.0, 1e3):
        for target in (1e-12, 1e-5, 0.1):
            for factor in (0.1, 0.3, 1.0, 3.0):
                mu = float(mu_of(epsilon, target)) * factor
                value, error = gaussian_dp._log_delta(np.array(epsilon), np.array(mu))
                with mpmath.workdps(80):
                    truth = mpmath.log(oracle(epsilon, mu))
                    assert abs(truth - float(value)) <= float(error), (epsilon, mu)
                assert factor != 1.0 or float(error) < 1e-8  # and no idle one


def test_mu_is_never_too_large_and_at_most_a_billionth_too_small():
    for (epsilon, target), mu in zip(GRID, mu_of(*np.array(GRID).T), strict=True):
        assert oracle(epsilon, mu) <= mpmath.mpf(target), (epsilon, target)
        assert oracle(epsilon, mu * (1 + 1e-9)) > mpmath.mpf(target), (epsilon, target)


def test_epsilon_is_never_too_small_and_at_most_a_billionth_too_large():
    for mu in (1e-4, 0.01, 0.3, 1.0, 2.0, 10.0, 40.0):
        for target in (1e-12, 1e-8, 1e-5, 1e-3):
            epsilon = float(epsilon_of(mu, target))
            if epsilon == 0.0:
                assert oracle(0.0, mu) <= mpmath.mpf(target)
                continue
            assert oracle(epsilon, mu) <= mpmath.mpf(target), (mu, target)
            assert oracle(epsilon - 1e-9 * (1e-3 + epsilon), mu) > mpmath.mpf(target), (mu, target)


@pytest.mark.parametrize("wrong", [-0.5, 0.5, 30.0, np.nan])
def test_whatever_the_solver_proposes_the_answer_is_private(monkeypatch, wrong):
    real = gaussian_dp._solve
    monkeypatch.setattr(gaussian_dp, "_solve", lambda *a: real(*a) + wrong)
    for epsilon, target in GRID[::17]:
        assert oracle(epsilon, mu_of(epsilon, target)) <= mpmath.mpf(target), (epsilon, target)
    for mu in (0.01, 1.0, 10.0):
        assert oracle(epsilon_of(mu, 1e-8), mu) <= mpmath.mpf(1e-8), mu


@settings(deadline=None, max_examples=200)
@given(st.floats(-3, 3), st.floats(-12, -1))
def test_converting_there_and_back_never_exceeds_the_budget(log_epsilon, log_delta_):
    epsilon, target = 10.0**log_epsilon, 10.0**log_delta_
    back = float(epsilon_of(mu_of(epsilon, target), target))
    assert epsilon * (1 - 1e-8) - 1e-12 <= back <= epsilon


@settings(deadline=None, max_examples=150)
@given(st.floats(0, 1e4), st.floats(1e-30, 0.999), st.floats(0, 1e3))
def test_far_outside_the_stated_range_the_answer_is_still_private(epsilon, target, mu):
    found = float(mu_of(epsilon, target))
    assert found == 0.0 or oracle(epsilon, found) <= mpmath.mpf(target) * (1 + mpmath.mpf(10) ** -30)
    found = float(epsilon_of(mu, target))
    assert mu == 0.0 or found > 2000 or oracle(found, mu) <= mpmath.mpf(target) * (1 + mpmath.mpf(10) ** -30)


def test_the_ends_of_the_scale_are_exact_and_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(mu_of([1.0, np.inf, 1.0, 0.0], [0.0, 0.1, 1.0, 0.0]), [0.0, np.inf, np.inf, 0.0])
        np.testing.assert_array_equal(
            epsilon_of([0.0, 1.0, np.inf, 1.0], [0.1, 0.0, 0.1, 1.0]), [0.0, np.inf, np.inf, 0.0]
        )
        np.testing.assert_array_equal(delta([0.0, 1.0, np.inf], [0.0, np.inf, 1.0]), [0.0, 1.0, 0.0])
        assert float(epsilon_of(0.1, 0.04)) == 0.0  # 2 Phi(0.05) - 1 = 0.0399: delta alone pays


@pytest.mark.parametrize(("epsilon", "target"), [(-1.0, 0.1), (np.nan, 0.1), (1.0, -0.1), (1.0, 1.5), (1.0, np.nan)])
def test_numbers_that_are_no_budget_are_refused(epsilon, target):
    with pytest.raises(DpflbenchError, match="allowed: 0 to"):
        mu_of(epsilon, target)


def test_shapes_broadcast():
    assert mu_of(np.ones((3, 1)), np.full(4, 1e-5)).shape == (3, 4)
    assert mu_of(1.0, 1e-5).shape == ()
    assert mu_of(np.ones(0), np.ones(0)).shape == (0,)


def test_a_million_clients_take_about_two_seconds():
    rng = np.random.default_rng(1)
    epsilon, target = 10.0 ** rng.uniform(-3, 3, 10**6), 10.0 ** rng.uniform(-12, -1, 10**6)
    start = time.process_time()
    mu = mu_of(epsilon, target)
    seconds = time.process_time() - start
    assert np.isfinite(mu).all()
    assert seconds < 6.0  # 0.9 s on a quiet core; three times the goal for a busy one


# ---------------------------------------------------------------- printed values


@pytest.mark.parametrize(
    ("target", "epsilon", "c2"),
    [(1e-5, e, c) for e, c in zip([0.1, 0.5, 1, 3, 6, 10], [0.906, 1.036, 1.099, 1.230, 1.350, 1.473], strict=True)]
    + [(1e-4, e, c) for e, c in zip([0.1, 0.5, 1, 3, 6, 10], [0.808, 0.971, 1.050, 1.209, 1.355, 1.500], strict=True)],
)
def test_the_constant_lemma_1_leaves_open(target, epsilon, c2):
    """c2 = epsilon / (mu sqrt(ln(1/delta))) makes the paper's Lemma 1 exact."""
    assert round(epsilon / float(mu_of(epsilon, target)) / np.sqrt(np.log(1 / target)), 3) == c2


def test_the_table_of_mu_at_delta_one_in_a_hundred_thousand():
    found = mu_of([0.1, 0.5, 1, 3, 6, 10], 1e-5)
    np.testing.assert_array_equal(np.round(found, 4), [0.0325, 0.1422, 0.2681, 0.7191, 1.3095, 2.0004])


def test_setting_the_constant_to_one_is_not_private():
    """With c2 = 1 the noise gives mu = epsilon / sqrt(ln(1/delta)): claimed 1, 3, 6 are really 1.11, 3.80, 8.60."""
    mu = np.array([1.0, 3.0, 6.0]) / np.sqrt(np.log(1e5))
    np.testing.assert_array_equal(np.round(epsilon_of(mu, 1e-5), 2), [1.11, 3.80, 8.60])


def test_splitting_epsilon_and_delta_linearly_costs_this_much_noise():
    """Algorithm 2: (1/T, 1e-5/T) by the classic formula, against sqrt(T) / mu: 4.5, 9.4, 15 and 22 times as much."""
    uses = np.array([10, 40, 100, 200])
    linear = np.sqrt(2 * np.log(1.25 * uses / 1e-5)) * uses
    ratio = linear / (np.sqrt(uses) / mu_of(1.0, 1e-5))
    np.testing.assert_array_equal(np.round(ratio[:2], 1), [4.5, 9.4])
    np.testing.assert_array_equal(np.round(ratio[2:]), [15, 22])
