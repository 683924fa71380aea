"""Rényi accounting at a frozen order: against arbitrary precision, against dp-accounting, and always on the private
side.
"""

import math
import time
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from dpflbench.errors import DpflbenchError
from dpflbench.privacy import renyi
from dpflbench.privacy.renyi import ORDERS, budget_of, cost_of, epsilon_of, log_moment
from dpflbench.privacy.renyi_calibration import (
    calibrate_noise,
    calibrate_rate,
    calibrate_steps,
    noise_of,
    rate_of,
    steps_of,
)


def oracle(order, rate, noise):
    """ln A by its definition in 60 digits, each term from the one before."""
    with mpmath.workdps(60):
        q, step = mpmath.mpf(float(rate)), mpmath.exp(1 / mpmath.mpf(float(noise)) ** 2)
        if q == 1:
            return order * (order - 1) / (2 * mpmath.mpf(float(noise)) ** 2)
        odds, term, growth = q / (1 - q), (1 - q) ** int(order), mpmath.mpf(1)
        total = term
        for k in range(int(order)):  # growth = exp(k / z²)
            term *= odds * (int(order) - k) / (k + 1) * growth
            growth *= step
            total += term
        return mpmath.log(total)


def true_epsilon(order, rate, noise, steps, delta):
    with mpmath.workdps(60):
        a = mpmath.mpf(int(order))
        rho = oracle(order, rate, noise) / (a - 1)
        return steps * rho + mpmath.log(1 - 1 / a) - mpmath.log(a * mpmath.mpf(float(delta))) / (a - 1)


def draw(rng, count):
    """Settings over the whole documented range, evenly on log scales: epsilon, delta, rate, steps."""
    return (
        10 ** rng.uniform(-3, math.log10(50), count),
        10 ** rng.uniform(-12, -2, count),
        10 ** rng.uniform(-4, 0, count),
        np.floor(10 ** rng.uniform(0, 6, count)),
    )


def many_clients(count):
    """Epsilon, delta, rate and steps of a large federation: batches of 64, 5 steps in each of up to 200 rounds."""
    rng = np.random.default_rng(10)
    sizes = np.round(np.exp(rng.normal(6.5, 1.0, count)).clip(64))
    steps = 5.0 * rng.integers(1, 200, count)
    return rng.uniform(0.1, 3, count), rng.uniform(1e-5, 1e-4, count), 64 / sizes, steps


# ---------------------------------------------------------------- the curve


def test_order_two_can_be_checked_by_hand():
    """A_2 = 1 + q² (exp(1/z²) - 1)."""
    assert float(log_moment(2, 0.1, 1.0)) == pytest.approx(math.log(1 + 0.01 * (math.e - 1)), rel=1e-13)


def test_a_full_batch_costs_half_the_order_over_the_squared_noise():
    assert float(cost_of(8, 1.0, 2.0)) == pytest.approx(1.0, rel=1e-14)
    assert float(cost_of(8, 1.0, 2.0, 30)) == pytest.approx(30.0, rel=1e-14)
    np.testing.assert_allclose(noise_of([1.0, 0.25], [8, 8], 1.0), [2.0, 4.0], rtol=1e-12)


def test_the_moment_is_never_below_sixty_digits_and_hardly_above():
    rng = np.random.default_rng(1)
    for order in (2, 3, 5, 17, 32, 76, 256, 1024, 2435):
        for _ in range(12):
            rate, noise = 10 ** rng.uniform(-4, -0.01), 10 ** rng.uniform(-0.7, 2.5)
            truth, found = oracle(order, rate, noise), float(log_moment(order, rate, noise))
            assert truth <= found, (order, rate, noise)
            hopeless = truth > 100 * order  # an upper bound is enough there
            assert hopeless or found <= truth * (1 + mpmath.mpf(10) ** -9), (order, rate, noise)


def test_the_stated_rounding_error_is_a_bound():
    rng = np.random.default_rng(2)
    for order in (2, 9, 64, 1024, 8192):
        for _ in range(6):
            rate, noise = 10 ** rng.uniform(-4, -0.1), 10 ** rng.uniform(0.7, 2.5)
            bare, safe = (float(log_moment(order, rate, noise, margin)) for margin in (0.0, 1.0))
            assert abs(oracle(order, rate, noise) - bare) <= safe - bare


def test_terms_and_integral_are_two_ways_to_one_number():
    rng = np.random.default_rng(3)
    for order in (40, 200, 1000):
        rate, half = 10 ** rng.uniform(-4, -0.1, 50), 0.5 / 10 ** rng.uniform(0.7, 3, 50) ** 2
        nodes = int(order * math.sqrt(2 * half.max()) / renyi.STEP) + 40
        terms = renyi._by_terms(order, rate, half, 0.0)
        np.testing.assert_allclose(renyi._by_integral(np.full(50, float(order)), rate, half, nodes, 0.0), terms, 1e-9)


@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [(0.0533, 5.406, 600), (0.3, 0.8, 3), (1e-3, 1.0, 10**5), (1, 4, 9)]
)
def test_dp_accounting_agrees_at_the_same_orders(rate, noise, steps):
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    for order in (2, 3, 8, 18, 32, 64, 256):
        theirs = RdpAccountant([order]).compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps)
        ours = epsilon_of(cost_of(order, rate, noise, steps), order, 1e-5)
        assert float(ours) == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-9)


def test_an_event_costs_the_same_alone_and_beside_others():
    """High orders are integrated in blocks of clients with as many nodes; little noise must not overflow in one."""
    rng = np.random.default_rng(12)
    order, noise = rng.choice([2, 40, 1024, 3444, 8192, 65536], 400), 10 ** rng.uniform(-0.5, 3, 400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = cost_of(order, 1e-3, noise)
        alone = [float(cost_of(a, 1e-3, z)) for a, z in zip(order, noise, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-9)


@settings(deadline=None, max_examples=100)
@given(st.integers(2, 2000), st.floats(-4, 0), st.floats(-0.5, 3), st.floats(1.001, 2))
def test_cost_grows_with_order_and_rate_and_falls_with_noise(order, log_rate, log_noise, factor):
    rate, noise = 10.0**log_rate, 10.0**log_noise
    base = float(cost_of(order, rate, noise)) * (1 - 1e-9)
    assert base <= float(cost_of(order + 1, rate, noise)) * (1 + 1e-7)  # both sums meet here
    assert base <= float(cost_of(order, min(rate * factor, 1.0), noise))
    assert base <= float(cost_of(order, rate, noise / factor))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_a_full_batch_with_discrete_gaussian_noise_costs_no_more(sigma):
    x = np.arange(-400, 400)
    log_p, log_q = (-((x - shift) ** 2) / (2 * sigma**2) for shift in (0, 1))
    log_p, log_q = log_p - logsumexp(log_p), log_q - logsumexp(log_q)
    for order in (2, 5, 20):
        rho = logsumexp(order * log_p + (1 - order) * log_q) / (order - 1)
        assert 0.9 * order / (2 * sigma**2) < rho <= float(cost_of(order, 1.0, sigma)) * (1 + 1e-12)


# ---------------------------------------------------------------- conversion


def test_the_conversion_at_order_two_by_hand():
    """epsilon = rho + ln(1/2) - ln(2 delta)."""
    assert float(epsilon_of(1.0, 2, 1e-5)) == pytest.approx(1.0 - math.log(2) - math.log(2e-5), rel=1e-14)
    assert float(budget_of(2, 12.0, 1e-5)) == pytest.approx(12.0 + math.log(2) + math.log(2e-5), rel=1e-14)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(ORDERS.tolist()), st.floats(-3, 2), st.floats(-12, -0.1))
def test_budget_and_epsilon_are_inverse_to_each_other_and_lean_inwards(order, log_epsilon, log_delta):
    epsilon, delta = 10.0**log_epsilon, 10.0**log_delta
    beta = budget_of(order, epsilon, delta)
    if float(beta) > 0:
        back = float(epsilon_of(beta, order, delta))
        assert epsilon - 1e-11 * (1 + epsilon) <= back <= epsilon


def test_the_ends_of_the_scale_are_exact_and_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(
            cost_of(8, [0.0, 0.5, 0.5, 0.5], [1.0, 0.0, np.inf, 1e-200]), [0, np.inf, 0, np.inf]
        )
        np.testing.assert_array_equal(cost_of(8, 0.5, [0.0, 1.0], 0), [0.0, 0.0])
        np.testing.assert_array_equal(epsilon_of([0.0, 1.0, 0.0], 8, [0.0, 0.0, 1e-5]), [0.0, np.inf, 0.0])
        np.testing.assert_array_equal(budget_of(8, [1.0, np.inf, 1e-3], [0.0, 1e-5, 1e-5]), [0.0, np.inf, 0.0])
        np.testing.assert_array_equal(
            noise_of([0.0, np.inf, 1.0, 0.0], 8, [0.5, 0.5, 0.0, 1.0]), [np.inf, 0.0, 0.0, np.inf]
        )
        np.testing.assert_array_equal(rate_of([0.0, 1e9, 1.0], 8, [1.0, 1.0, 0.0]), [0.0, 1.0, 0.0])
        np.testing.assert_array_equal(steps_of([1.0, 1.0, 0.0, 1.0], [0.3, 0.0, 0.1, np.inf]), [3, 2**53, 0, 0])
        order, noise = calibrate_noise([np.inf, 1.0, 1.0], 1e-5, [0.1, 0.1, 0.0], [10, 0, 10])
        np.testing.assert_array_equal(noise, [0.0, 0.0, 0.0])
        assert order.shape == (3,)


def test_shapes_broadcast():
    assert cost_of(np.full((3, 1), 8), np.full(4, 0.1), 2.0).shape == (3, 4)
    assert cost_of(8, 0.1, 2.0).shape == budget_of(8, 1.0, 1e-5).shape == ()
    assert noise_of(np.ones(0), 8, 0.5).shape == (0,)
    order, noise = calibrate_noise(np.ones((2, 1)), 1e-5, np.full(3, 0.1), 100)
    assert order.shape == noise.shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cost_of(1, 0.1, 1.0), "order: found 1; allowed: whole numbers, 2 to 65536"),
        (lambda: cost_of(np.inf, 0.1, 1.0), "order: found inf; allowed: whole numbers, 2 to 65536"),
        (lambda: cost_of(2.5, 0.1, 1.0), "order: found 2.5; allowed: whole numbers"),
        (lambda: cost_of(2, 1.1, 1.0), "rate: found 1.1; allowed: 0 to 1"),
        (lambda: cost_of(2, 0.1, np.nan), "noise: found nan; allowed: 0 to inf"),
        (lambda: budget_of(2, 1.0, -1e-5), "delta: found -1e-05; allowed: 0 to 1"),
        (lambda: calibrate_noise(1.0, 1e-5, 0.1, -1), "steps: found -1; allowed: 0 to inf"),
        (
            lambda: calibrate_noise([1.0, 1.0], [1e-5, 0.0], 0.1, 10),
            "client 1: epsilon 1 at delta 0 has no Rényi proof",
        ),
        (lambda: calibrate_noise(1e-4, 1e-12, 0.1, 10), "client 0: epsilon 0.0001 at delta 1e-12 has no Rényi proof"),
        (lambda: calibrate_rate(0.01, 1e-5, 0.1, 100), "client 0: epsilon 0.01 at delta 1e-05 has no Rényi proof"),
    ],
)
def test_what_is_no_number_or_has_no_proof_is_refused_in_one_line(call, message):
    with pytest.raises(DpflbenchError) as refusal:
        call()
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


# ---------------------------------------------------------------- calibration


def test_the_reference_values():
    """q = 0.0533, 600 steps, delta 1e-5: noise 5.406 at epsilon 1, 1.728 at 4 (1.727 with orders between integers)."""
    order, noise = calibrate_noise([1.0, 4.0], 1e-5, 0.0533, 600)
    np.testing.assert_array_equal(order, [18, 6])
    np.testing.assert_allclose(noise, [5.406, 1.728], atol=1e-3)
    assert float(calibrate_rate(1.0, 1e-5, noise[0], 600)[1]) == pytest.approx(0.0533, rel=2e-3)
    assert int(calibrate_steps(1.0, 1e-5, 0.0533, noise[0])[1]) == 600


@settings(deadline=None, max_examples=120)
@given(st.floats(-3, math.log10(50)), st.floats(-12, -2), st.floats(-4, 0), st.floats(0, 6))
def test_calibrated_noise_never_exceeds_a_budget_in_sixty_digits(log_epsilon, log_delta, log_rate, log_steps):
    epsilon, delta, rate, steps = 10.0**log_epsilon, 10.0**log_delta, 10.0**log_rate, math.floor(10.0**log_steps)
    order, noise = calibrate_noise(epsilon, delta, rate, steps)
    assert float(epsilon_of(cost_of(order, rate, noise, steps), order, delta)) <= epsilon
    if order <= 2500:  # higher ones take the oracle seconds, and are covered below
        assert true_epsilon(order, rate, noise, steps, delta) <= mpmath.mpf(epsilon)
        if rate < 1:  # and 0.1 % less noise would
            assert true_epsilon(order, rate, float(noise) * 0.999, steps, delta) > mpmath.mpf(epsilon) * (1 - 1e-9)


def test_the_strictest_budgets_are_met_at_high_orders_in_sixty_digits():
    for epsilon, delta, rate, steps in [(1e-3, 1e-12, 1e-4, 1), (1e-3, 1e-12, 0.01, 1000), (2e-3, 1e-9, 0.5, 10**6)]:
        order, noise = calibrate_noise(epsilon, delta, rate, steps)
        assert order > 2500
        assert true_epsilon(order, rate, noise, steps, delta) <= mpmath.mpf(epsilon)


@settings(deadline=None, max_examples=60)
@given(st.floats(-3, math.log10(50)), st.floats(-12, -2), st.floats(-0.3, 2), st.floats(0, 6))
def test_calibrated_rate_never_exceeds_a_budget(log_epsilon, log_delta, log_noise, log_steps):
    epsilon, delta, noise, steps = 10.0**log_epsilon, 10.0**log_delta, 10.0**log_noise, math.floor(10.0**log_steps)
    try:
        order, rate = calibrate_rate(epsilon, delta, noise, steps)
    except DpflbenchError:  # no rate at all: then the smallest sensible one must not do either
        assert not np.isfinite(noise) or _least_epsilon(1e-9, noise, steps, delta) > epsilon
        return
    assert 0 < float(rate) <= 1
    if order <= 2500:
        assert true_epsilon(order, rate, noise, steps, delta) <= mpmath.mpf(epsilon)
        if rate < 1:
            assert true_epsilon(order, float(rate) * 1.0012, noise, steps, delta) > mpmath.mpf(epsilon) * (1 - 1e-9)


def _least_epsilon(rate, noise, steps, delta):
    return float(np.min(epsilon_of(cost_of(ORDERS, rate, noise, steps), ORDERS, delta)))


def test_calibrated_steps_fit_and_one_more_does_not():
    rng = np.random.default_rng(4)
    epsilon, delta, rate, _ = draw(rng, 300)
    noise = 10 ** rng.uniform(-0.3, 2, 300)
    order, steps = calibrate_steps(epsilon, delta, rate, noise)
    assert (epsilon_of(cost_of(order, rate, noise, steps), order, delta) <= epsilon).all()
    more = epsilon_of(cost_of(order, rate, noise, steps * (1 + 1e-12) + 1), order, delta)
    assert (more > epsilon * (1 - 1e-12)).all()
    best = np.max([steps_of(budget_of(a, epsilon, delta), cost_of(a, rate, noise)) for a in ORDERS], axis=0)
    np.testing.assert_array_equal(steps, best)
    assert (steps == 0).any()
    assert (steps > 1000).any()


def test_the_order_is_the_best_of_all():
    epsilon, delta, rate, steps = draw(np.random.default_rng(5), 300)
    order, noise = calibrate_noise(epsilon, delta, rate, steps)
    every = np.array([noise_of(budget_of(a, epsilon, delta) / steps, a, rate) for a in ORDERS])
    np.testing.assert_allclose(noise, every.min(0), rtol=1e-3)
    assert len(np.unique(order)) > 30


def test_epsilon_has_a_single_valley_over_the_orders():
    """What the search for an order relies on."""
    rng = np.random.default_rng(6)
    for _ in range(60):
        rate, noise, delta, steps = (
            10 ** rng.uniform(-4, 0),
            10 ** rng.uniform(-0.3, 2),
            10 ** rng.uniform(-12, -2),
            500,
        )
        orders = np.arange(2, 300)
        rise = np.diff(epsilon_of(cost_of(orders, rate, noise, steps), orders, delta))
        rise[np.abs(rise) < 1e-12] = 0.0
        assert not ((rise[:-1] > 0) & (rise[1:] < 0)).any()


def test_what_is_left_at_a_frozen_order_buys_noise_that_costs_no_more():
    rng = np.random.default_rng(7)
    order, rate, cost = rng.choice(ORDERS[:50], 2000), 10 ** rng.uniform(-4, 0, 2000), 10 ** rng.uniform(-8, 1, 2000)
    noise = noise_of(cost, order, rate)
    spent = cost_of(order, rate, noise)
    assert (spent <= cost).all()
    assert (cost_of(order, rate, noise * 0.999) > cost).all()
    rates = rate_of(cost, order, noise)
    assert (cost_of(order, rates, noise) <= cost).all()
    np.testing.assert_allclose(rates, rate, rtol=0.01)


def test_a_plan_changed_half_way_still_fits_the_frozen_order():
    """60 of 100 planned participations and a full-batch probe; then half the rate, 300 steps, with what is left."""
    epsilon, delta, rate = np.array([0.5, 2.0, 8.0]), 1e-5, np.array([0.02, 0.1, 0.4])
    order, noise = calibrate_noise(epsilon, delta, rate, 100 * 10)
    budget = budget_of(order, epsilon, delta)
    spent = 60 * cost_of(order, rate, noise, 10) + cost_of(order, 1.0, 100.0)
    again = noise_of((budget - spent) / 300 * (1 - 2.0**-33), order, rate / 2)
    spent += cost_of(order, rate / 2, again, 300)
    assert (spent <= budget).all()
    total = epsilon_of(spent, order, delta)
    assert (total <= epsilon).all()
    assert (total > 0.99 * epsilon).all()


@settings(deadline=None, max_examples=60)
@given(st.floats(-2, 1), st.floats(-10, -3), st.floats(-3.5, -0.2), st.floats(0, 5), st.floats(1.02, 3))
def test_a_harder_task_never_needs_less_noise(log_epsilon, log_delta, log_rate, log_steps, factor):
    e, d, q, t = 10.0**log_epsilon, 10.0**log_delta, 10.0**log_rate, math.floor(10.0**log_steps)
    harder = [
        (e, d, q, t),
        (e / factor, d, q, t),
        (e, d / factor, q, t),
        (e, d, min(q * factor, 1), t),
        (e, d, q, t * factor),
    ]
    noise = calibrate_noise(*np.array(harder).T)[1]
    assert (noise >= noise[0] * (1 - 1e-3)).all()


def test_a_client_gets_the_same_alone_and_in_company():
    settings_ = draw(np.random.default_rng(8), 200)
    order, noise = calibrate_noise(*settings_)
    for n in range(0, 200, 9):
        alone = calibrate_noise(*(column[n] for column in settings_))
        assert alone[0] == order[n]
        assert float(alone[1]) == pytest.approx(noise[n], rel=1e-9)


def test_a_thousand_distinct_settings_take_half_a_second():
    settings_ = draw(np.random.default_rng(9), 1000)
    start = time.process_time()
    calibrate_noise(*settings_)
    assert time.process_time() - start < 2.0  # 0.5 s on a quiet core


def test_a_hundred_thousand_clients_lose_nothing_to_the_grid_they_start_from():
    """All four numbers differ between clients; every client was evaluated forward before it is returned."""
    epsilon, delta, rate, steps = many_clients(10**5)
    order, noise = calibrate_noise(epsilon, delta, rate, steps)
    spent = epsilon_of(cost_of(order, rate, noise, steps), order, delta)
    assert (spent <= epsilon).all()
    assert np.median(spent / epsilon) > 0.999


def test_a_hundred_thousand_events_are_priced_in_a_twentieth_of_a_second():
    rng, count = np.random.default_rng(11), 10**5
    order, rate, noise = (
        rng.integers(2, 33, count),
        10 ** rng.uniform(-3, -0.5, count),
        10 ** rng.uniform(-0.2, 1, count),
    )
    start = time.process_time()
    cost_of(order, rate, noise, 10)
    assert time.process_time() - start < 0.3  # 0.05 s on a quiet core


# ---------------------------------------------------------------- why the order is frozen


def rho(p, q, order):
    """Rényi divergence of two finite distributions, the larger direction."""
    p, q = np.array(p), np.array(q)
    return max(np.log((x**order * y ** (1 - order)).sum()) / (order - 1) for x, y in ((p, q), (q, p)))


def two_outcomes(budget, order, loss):
    """A mechanism that betrays `loss` as often as the budget at this order allows."""
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        fits = rho([p, 1 - p], [p * math.exp(-loss), 1 - p * math.exp(-loss)], order) <= budget
        low, high = (p, high) if fits else (low, p)
    return [low, 1 - low], [low * math.exp(-loss), 1 - low * math.exp(-loss)]


def attack(budgets, plan, epsilon):
    """True delta of an adaptive run: a first release with three outcomes, after the first two a second one that spends
    all that is left at the order `plan` names for that outcome. Also the costs on both paths at every order.
    """
    p, q = [0.7, 0.01, 0.29], [0.7 * math.exp(-2), 0.01 * math.exp(-3)]
    q.append(1 - sum(q))
    delta, paths = max(0.0, p[2] - math.exp(epsilon) * q[2]), []
    for outcome, order in enumerate(plan):
        loss = epsilon + math.log(order / (order - 1)) - math.log(p[outcome] / q[outcome])
        then = two_outcomes(budgets[order] - rho(p, q, order), order, loss)
        delta += sum(max(0.0, p[outcome] * x - math.exp(epsilon) * q[outcome] * y) for x, y in zip(*then, strict=True))
        paths.append({a: rho(p, q, a) + rho(*then, a) for a in budgets})
    return delta, paths


def test_any_order_that_fits_is_no_filter_but_one_frozen_order_is():
    epsilon, delta = 10.0, 1e-3
    budgets = {order: float(budget_of(order, epsilon, delta)) for order in (2, 8)}
    spent, paths = attack(budgets, (2, 8), epsilon)
    for path in paths:  # the rule "some order has budget left" admits both paths
        assert any(path[order] <= budgets[order] for order in budgets)
    for order in budgets:  # a frozen order refuses one of them
        assert any(path[order] > budgets[order] for path in paths)
    assert spent > 1.8 * delta  # and rightly so
    for order in budgets:
        honest, paths = attack(budgets, (order, order), epsilon)
        assert all(path[order] <= budgets[order] for path in paths)
        assert honest <= delta
