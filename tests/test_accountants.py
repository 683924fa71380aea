"""Gaussian DP and pure DP as accountants: laws of calibration, what they have a proof for, and who else says so."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from releases import event as release

from dpflbench_algorithms.accountants import GaussianDP, PureDP

ACCOUNTANTS = [GaussianDP(), GaussianDP(composition="linear"), PureDP()]
positive = st.floats(-12, 12).map(lambda x: 10.0**x)


def one(value):
    return np.array([value], dtype=np.float64)


def test_names_and_exponents():
    assert (GaussianDP().name, GaussianDP().exponent, GaussianDP().pure) == ("gdp", 1, False)
    assert (PureDP().name, PureDP().exponent, PureDP().pure) == ("pure", 2, True)
    assert GaussianDP("linear").exponent == 2
    assert GaussianDP() == GaussianDP("exact") != GaussianDP("linear")


def test_each_has_a_proof_for_its_own_noise_over_all_records_and_for_nothing_else():
    for accountant, law, other in ((GaussianDP(), "gaussian", "laplace"), (PureDP(), "laplace", "gaussian")):
        assert accountant.supports(release(one(1.0), 1.0, law=law)) == ""
        assert accountant.supports(release(one(1.0), 1.0, law=other)) == f"{other} noise; allowed: {law}"
        for odd in ({"rate": 0.5}, {"steps": 3}):
            assert "allowed: rate 1, one step" in accountant.supports(release(one(1.0), 1.0, law=law, **odd))


def test_the_second_opinion_comes_from_somebody_else_and_agrees():
    """Four releases of ratio 1/2 are one of ratio 1: mu = 1; two Laplace releases of ratio 1/4 are epsilon 1/2."""
    delta = np.array([1e-5, 1e-5])
    who, spent = GaussianDP().second_opinion(release(np.full(4, 0.5), 1.0), np.zeros(4, dtype=np.int64), delta)
    assert who.startswith("dp-accounting ")
    assert spent[0] == pytest.approx(GaussianDP().epsilon(one(1.0)[:, None], delta[:1])[0], rel=1e-6)
    assert spent[1] == 0.0
    _, spent = PureDP().second_opinion(release(np.full(2, 0.25), 1.0), np.ones(2, dtype=np.int64), np.zeros(2))
    np.testing.assert_allclose(spent, [0.0, 0.5])


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=str)
@settings(deadline=None, max_examples=300)
@given(cost=positive, sensitivity=positive)
def test_calibrating_then_accounting_never_exceeds_the_target(accountant, cost, sensitivity):
    scale = accountant.scale(one(cost)[:, None], release(one(sensitivity)))
    assert accountant.cost(release(one(sensitivity), scale))[0, 0] <= cost
    assert accountant.cost(release(one(sensitivity), scale))[0, 0] >= cost * (1 - 1e-6)  # and wastes next to nothing


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=str)
@settings(deadline=None, max_examples=100)
@given(log_epsilon=st.floats(-3, 3), log_delta=st.floats(-12, -1), uses=st.integers(1, 100_000), sensitivity=positive)
def test_a_whole_budget_spread_over_any_number_of_uses_stays_within_it(
    accountant, log_epsilon, log_delta, uses, sensitivity
):
    epsilon, delta = one(10.0**log_epsilon), one(10.0**log_delta)
    each = accountant.per_use(accountant.budget(epsilon, delta), one(uses), epsilon, delta)
    scale = accountant.scale(each, release(one(sensitivity)))
    spent = accountant.cost(release(one(sensitivity), scale)) * uses
    assert accountant.epsilon(spent * (1 - 2.0**-50), delta)[0] <= epsilon[0]  # the product itself may round up


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=str)
def test_more_uses_never_need_less_noise(accountant):
    epsilon, delta, uses = np.full(1000, 1.0), np.full(1000, 1e-5), np.arange(1.0, 1001.0)
    scale = accountant.scale(
        accountant.per_use(accountant.budget(epsilon, delta), uses, epsilon, delta), release(np.ones(1000))
    )
    assert (np.diff(scale) > 0).all()


def test_the_exponent_says_how_variance_grows_with_uses():
    for accountant, tolerance in (
        (GaussianDP(), 1e-5),
        (PureDP(), 1e-5),
        (GaussianDP("linear"), 0.25),
    ):  # linear: and a logarithm
        epsilon, delta, uses = np.ones(2), np.full(2, 1e-5), np.array([100.0, 200.0])
        each = accountant.per_use(accountant.budget(epsilon, delta), uses, epsilon, delta)
        variance = accountant.scale(each, release(np.ones(2))) ** 2
        assert variance[1] / variance[0] == pytest.approx(2.0**accountant.exponent, rel=tolerance)


def test_linear_composition_is_the_classic_formula_and_never_more_than_the_even_share():
    """epsilon 1, delta 1e-5, 40 uses: scale = 40 sqrt(2 ln(1.25 * 40 / 1e-5)) = 222.1 sensitivities, 9.4 times the
    exact one.
    """
    epsilon, delta, uses = one(1.0), one(1e-5), one(40.0)
    scales = {}
    for accountant in (GaussianDP("linear"), GaussianDP()):
        each = accountant.per_use(accountant.budget(epsilon, delta), uses, epsilon, delta)
        scales[accountant.composition] = float(accountant.scale(each, release(one(1.0)))[0])
    assert scales["linear"] == pytest.approx(40 * np.sqrt(2 * np.log(1.25 * 40 / 1e-5)), rel=1e-6)
    assert round(scales["linear"] / scales["exact"], 1) == 9.4
    left = one(1e-6)[:, None]
    assert GaussianDP("linear").per_use(left, uses, epsilon, delta)[0, 0] == 1e-6 / 40
    big = GaussianDP("linear")  # one use at epsilon 10: the classic formula would overspend, the cap holds
    budget = big.budget(one(10.0), delta)
    assert 100 / (2 * np.log(1.25e5)) > budget[0, 0]
    assert big.per_use(budget, one(1.0), one(10.0), delta)[0, 0] == budget[0, 0]


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=str)
def test_a_client_that_is_never_used_costs_nothing_and_gets_infinite_scale_in_silence(accountant):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epsilon, delta = np.ones(2), np.full(2, 1e-5)
        each = accountant.per_use(accountant.budget(epsilon, delta), np.array([0.0, 3.0]), epsilon, delta)
        scale = accountant.scale(each, release(np.ones(2)))
        assert each[0, 0] == 0.0
        assert scale[0] == np.inf
        assert accountant.cost(release(np.ones(2), scale))[0, 0] == 0.0
        assert accountant.epsilon(np.zeros((1, 1)), np.array([1e-5]))[0] == 0.0
        assert np.isinf(accountant.cost(release(np.array([1.0, 0.0]), np.zeros(2)))).all()  # no noise is never free


def test_linear_composition_without_delta_gives_no_share_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accountant = GaussianDP("linear")
        each = accountant.per_use(accountant.budget(one(1.0), one(0.0)), one(5.0), one(1.0), one(0.0))
    assert each[0, 0] == 0.0


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=str)
def test_scales_are_float32_numbers_so_that_what_is_drawn_is_what_is_charged(accountant):
    scale = accountant.scale(np.random.default_rng(0).uniform(1e-6, 2, (1000, 1)), release(np.full(1000, 0.003)))
    np.testing.assert_array_equal(torch.tensor(scale, dtype=torch.float32).double().numpy(), scale)
    tiny = accountant.scale(one(1e300)[:, None], release(one(1e-300)))
    assert tiny[0] == np.finfo(np.float32).tiny  # not flushed to zero on any device


def test_laplace_costs_add_up_to_epsilon_by_hand():
    """Two releases of sensitivity 0.1 at scale 0.4: 0.25 each."""
    assert PureDP().cost(release(one(0.1), 0.4))[0, 0] == 0.25
    assert PureDP().epsilon(one(0.5)[:, None], one(0.0))[0] == 0.5


def test_gaussian_costs_are_squared_ratios_by_hand():
    assert GaussianDP().cost(release(one(0.1), 0.4))[0, 0] == 0.0625
