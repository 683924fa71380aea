"""P1 of DPFL-BCS: hand-worked plans, optimality conditions, a brute force, a plain greedy, cvxpy, and a million
clients.
"""

import heapq
import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpflbench.errors import RunEnded
from dpflbench_algorithms.bcs_solver import Programme, cheapest_units, reference, round_up_largest, solve, water_filling


def programme(noise, bias=None, cap=None, total=1, exponent=1):
    noise = np.asarray(noise, dtype=np.float64)
    bias = np.zeros(len(noise)) if bias is None else np.asarray(bias, dtype=np.float64)
    cap = np.full(len(noise), total) if cap is None else np.asarray(cap)
    return Programme(noise, bias, cap.astype(np.int64), total, exponent)


def random_programme(rng, n, exponent, total=None, cap=None):
    cap = cap or int(rng.integers(1, 40))
    total = total or int(rng.integers(1, n * cap + 1))
    noise = 10.0 ** rng.uniform(-4, 2, n)
    bias = rng.exponential(float(np.median(noise)) * cap, n) * rng.integers(0, 2)
    return programme(noise, bias, np.full(n, cap), total, exponent)


def greedy(p):
    """One unit at a time to whoever is cheapest: the definition, too slow for many clients."""

    def price(n, k):
        return p.noise[n] * ((k + 1.0) ** (p.exponent + 1) - float(k) ** (p.exponent + 1)) + p.bias[n]

    uses = np.zeros(len(p.noise), dtype=np.int64)
    heap = [(price(n, 0), n) for n in range(len(uses)) if p.cap[n] > 0]
    heapq.heapify(heap)
    for _ in range(p.total):
        _, n = heapq.heappop(heap)
        uses[n] += 1
        if uses[n] < p.cap[n]:
            heapq.heappush(heap, (price(n, int(uses[n])), n))
    return uses


def test_gaussian_uses_fall_with_the_price_of_noise():
    # unit costs 1, 3, 5, 7, 9 and 4, 12: the five cheapest are 1, 3, 4, 5, 7
    p = programme([1, 4], total=5)
    assert solve(p).tolist() == [4, 1]
    assert p.objective(np.array([4, 1])) == 16 + 4


def test_laplace_uses_fall_with_the_root_of_the_price():
    # unit costs 1, 7, 19, 37, 61 and 4, 28, 76: the six cheapest are 1, 4, 7, 19, 28, 37
    assert solve(programme([1, 4], total=6, exponent=2)).tolist() == [4, 2]


def test_heterogeneity_shifts_uses_by_half_its_weight():
    # 2 x = ν and 2 y + 4 = ν with x + y = 4
    p = programme([1, 1], bias=[0, 4], total=4)
    assert solve(p).tolist() == [3, 1]
    assert water_filling(p) == pytest.approx([3, 1])


def test_a_cap_hands_the_rest_to_the_others():
    p = programme([1, 4], cap=[3, 10], total=5)
    assert solve(p).tolist() == [3, 2]
    assert water_filling(p) == pytest.approx([3, 2])


def test_clients_without_budget_get_nothing_and_cost_nothing():
    p = programme([1, np.inf, 1], cap=[9, 0, 9], total=6)
    assert solve(p).tolist() == [3, 0, 3]
    assert p.objective(solve(p)) == 18


def test_a_programme_that_cannot_be_met_says_what_is_missing():
    with pytest.raises(RunEnded, match="7 participations are wanted; the 2 clients with budget left allow 6"):
        solve(programme([1, 1, np.inf], cap=[3, 3, 0], total=7))


@pytest.mark.parametrize("exponent", [1, 2, 3])
def test_no_other_integer_plan_is_cheaper(exponent):
    rng = np.random.default_rng(exponent)
    for _ in range(25):
        p = random_programme(rng, 4, exponent, cap=4)
        best = min(p.objective(np.array(x)) for x in itertools.product(range(5), repeat=4) if sum(x) == p.total)
        uses = solve(p)
        assert uses.sum() == p.total
        assert uses.max() <= 4
        assert p.objective(uses) == pytest.approx(best, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.sampled_from([1, 2, 3]))
def test_the_plan_costs_what_the_plain_greedy_plan_costs(seed, n, exponent):
    p = random_programme(np.random.default_rng(seed), n, exponent)
    uses = solve(p)
    assert int(uses.sum()) == p.total
    assert (uses >= 0).all()
    assert (uses <= p.cap).all()
    assert p.objective(uses) == pytest.approx(p.objective(greedy(p)), rel=1e-12)


def test_equal_clients_differ_by_at_most_one_use():
    uses = solve(programme(np.full(7, 0.3), bias=np.full(7, 5.0), cap=np.full(7, 10), total=45))
    assert sorted(uses.tolist()) == [6, 6, 6, 6, 7, 7, 7]


@pytest.mark.parametrize("exponent", [1, 2, 3])
def test_water_filling_meets_the_optimality_conditions(exponent):
    rng = np.random.default_rng(40 + exponent)
    for _ in range(20):
        p = random_programme(rng, 50, exponent)
        x = water_filling(p)
        slope = (exponent + 1) * p.noise * x**exponent + p.bias
        inside = (x > 1e-9) & (x < p.cap - 1e-9)
        assert x.sum() == pytest.approx(p.total, rel=1e-12)
        assert ((x >= 0) & (x <= p.cap)).all()
        if inside.any():
            price = slope[inside].max()
            assert slope[inside] == pytest.approx(price, rel=1e-6)
            assert (slope[x <= 1e-9] >= price * (1 - 1e-6)).all()
            assert (slope[x >= p.cap - 1e-9] <= price * (1 + 1e-6)).all()


@pytest.mark.parametrize("exponent", [1, 2])
def test_water_filling_and_cvxpy_reach_the_same_objective(exponent):
    rng = np.random.default_rng(7)
    for n in (3, 100):
        p = random_programme(rng, n, exponent, total=20 * n, cap=40)
        ours, theirs = water_filling(p), reference(p)
        assert theirs.sum() == pytest.approx(p.total, rel=1e-6)
        assert p.objective(ours) == pytest.approx(p.objective(theirs), rel=1e-6)
        # real numbers bound whole ones from below; rounding cvxpy's answer cannot beat the exact plan
        assert p.objective(ours) <= p.objective(solve(p)) * (1 + 1e-12)
        assert p.objective(solve(p)) <= p.objective(solve(p, "cvxpy")) * (1 + 1e-12)
        assert int(solve(p, "cvxpy").sum()) == p.total


def test_rounding_goes_to_the_largest_fractions():
    assert round_up_largest(np.array([1.2, 2.7, 0.1, 3.0]), 7).tolist() == [1, 3, 0, 3]


@pytest.mark.parametrize("exponent", [1, 2])
def test_a_million_clients_are_planned_in_two_seconds(exponent):
    rng = np.random.default_rng(0)
    n = 1_000_000
    epsilon, size = rng.uniform(0.1, 3.0, n), rng.integers(20, 1000, n)
    p = programme(
        (size * epsilon) ** -2.0, bias=rng.exponential(1e-4, n), cap=np.full(n, 200), total=20 * n, exponent=exponent
    )
    start = time.process_time()
    uses = cheapest_units(p)
    seconds = time.process_time() - start
    assert int(uses.sum()) == p.total
    assert uses.max() <= 200
    assert seconds < 2.0
