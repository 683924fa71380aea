"""Gaussian and Laplace: laws of calibration, and that the noise drawn is the noise charged."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpflbench_algorithms.mechanisms import Gaussian, Laplace

MECHANISMS = [Gaussian(), Gaussian(composition="linear"), Laplace()]
positive = st.floats(-12, 12).map(lambda x: 10.0**x)


def one(value):
    return np.array([value], dtype=np.float64)


def test_names_norms_and_exponents():
    assert (Gaussian().name, Gaussian().clip_order, Gaussian().exponent) == ("gaussian", 2, 1)
    assert (Laplace().name, Laplace().clip_order, Laplace().exponent) == ("laplace", 1, 2)
    assert Gaussian("linear").exponent == 2
    assert Gaussian() == Gaussian("exact") != Gaussian("linear")


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@settings(deadline=None, max_examples=300)
@given(cost=positive, sensitivity=positive)
def test_calibrating_then_accounting_never_exceeds_the_target(mechanism, cost, sensitivity):
    scale = mechanism.scale(one(cost)[:, None], one(sensitivity))
    assert mechanism.cost(scale, one(sensitivity))[0, 0] <= cost
    assert mechanism.cost(scale, one(sensitivity))[0, 0] >= cost * (1 - 1e-6)  # and wastes next to nothing


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@settings(deadline=None, max_examples=100)
@given(log_epsilon=st.floats(-3, 3), log_delta=st.floats(-12, -1), uses=st.integers(1, 100_000), sensitivity=positive)
def test_a_whole_budget_spread_over_any_number_of_uses_stays_within_it(
    mechanism, log_epsilon, log_delta, uses, sensitivity
):
    epsilon, delta = one(10.0**log_epsilon), one(10.0**log_delta)
    each = mechanism.per_use(mechanism.budget(epsilon, delta), one(uses), epsilon, delta)
    scale = mechanism.scale(each, one(sensitivity))
    spent = mechanism.cost(scale, one(sensitivity)) * uses
    assert mechanism.epsilon(spent * (1 - 2.0**-50), delta)[0] <= epsilon[0]  # the product itself may round up


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_more_uses_never_need_less_noise(mechanism):
    epsilon, delta, uses = np.full(1000, 1.0), np.full(1000, 1e-5), np.arange(1.0, 1001.0)
    scale = mechanism.scale(mechanism.per_use(mechanism.budget(epsilon, delta), uses, epsilon, delta), np.ones(1000))
    assert (np.diff(scale) > 0).all()


def test_the_exponent_says_how_variance_grows_with_uses():
    for mechanism, tolerance in (
        (Gaussian(), 1e-5),
        (Laplace(), 1e-5),
        (Gaussian("linear"), 0.25),
    ):  # linear: and a logarithm
        epsilon, delta, uses = np.ones(2), np.full(2, 1e-5), np.array([100.0, 200.0])
        each = mechanism.per_use(mechanism.budget(epsilon, delta), uses, epsilon, delta)
        variance = mechanism.variance(mechanism.scale(each, np.ones(2)))
        assert variance[1] / variance[0] == pytest.approx(2.0**mechanism.exponent, rel=tolerance)


def test_linear_composition_is_the_classic_formula_and_never_more_than_the_even_share():
    """epsilon 1, delta 1e-5, 40 uses: scale = 40 sqrt(2 ln(1.25 * 40 / 1e-5)) = 222.1 sensitivities, 9.4 times the
    exact one.
    """
    epsilon, delta, uses = one(1.0), one(1e-5), one(40.0)
    scales = {}
    for mechanism in (Gaussian("linear"), Gaussian()):
        each = mechanism.per_use(mechanism.budget(epsilon, delta), uses, epsilon, delta)
        scales[mechanism.composition] = float(mechanism.scale(each, one(1.0))[0])
    assert scales["linear"] == pytest.approx(40 * np.sqrt(2 * np.log(1.25 * 40 / 1e-5)), rel=1e-6)
    assert round(scales["linear"] / scales["exact"], 1) == 9.4
    left = one(1e-6)[:, None]
    assert Gaussian("linear").per_use(left, uses, epsilon, delta)[0, 0] == 1e-6 / 40
    big = Gaussian("linear")  # one use at epsilon 10: the classic formula would overspend, the cap holds
    budget = big.budget(one(10.0), delta)
    assert 100 / (2 * np.log(1.25e5)) > budget[0, 0]
    assert big.per_use(budget, one(1.0), one(10.0), delta)[0, 0] == budget[0, 0]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_client_that_is_never_used_costs_nothing_and_gets_infinite_scale_in_silence(mechanism):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epsilon, delta = np.ones(2), np.full(2, 1e-5)
        each = mechanism.per_use(mechanism.budget(epsilon, delta), np.array([0.0, 3.0]), epsilon, delta)
        scale = mechanism.scale(each, np.ones(2))
        assert each[0, 0] == 0.0
        assert scale[0] == np.inf
        assert mechanism.cost(scale, np.ones(2))[0, 0] == 0.0
        assert mechanism.epsilon(np.zeros((1, 1)), np.array([1e-5]))[0] == 0.0
        assert np.isinf(mechanism.cost(np.zeros(2), np.array([1.0, 0.0]))).all()  # no noise is never free


def test_linear_composition_without_delta_gives_no_share_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechanism = Gaussian("linear")
        each = mechanism.per_use(mechanism.budget(one(1.0), one(0.0)), one(5.0), one(1.0), one(0.0))
    assert each[0, 0] == 0.0


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_scales_are_float32_numbers_so_that_what_is_drawn_is_what_is_charged(mechanism):
    scale = mechanism.scale(np.random.default_rng(0).uniform(1e-6, 2, (1000, 1)), np.full(1000, 0.003))
    np.testing.assert_array_equal(torch.tensor(scale, dtype=torch.float32).double().numpy(), scale)
    tiny = mechanism.scale(one(1e300)[:, None], one(1e-300))
    assert tiny[0] == np.finfo(np.float32).tiny  # not flushed to zero on any device


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("mechanism", "law"), [(Gaussian(), stats.norm()), (Laplace(), stats.laplace())])
def test_noise_follows_its_law_at_its_scale(mechanism, law, dtype):
    scale = torch.tensor([[0.5], [3.0]], dtype=dtype)
    noise = mechanism.sample(scale, (2, 100_000), torch.Generator().manual_seed(7))
    assert noise.dtype == dtype
    assert noise.shape == (2, 100_000)
    for row, s in zip(noise.double().numpy(), (0.5, 3.0), strict=True):
        assert stats.kstest(row / s, law.cdf).pvalue > 1e-3
        assert row.var() == pytest.approx(float(mechanism.variance(np.array(s))), rel=0.03)
    again = mechanism.sample(scale, (2, 100_000), torch.Generator().manual_seed(7))
    assert torch.equal(noise, again)


def test_laplace_noise_is_finite_at_both_ends_of_the_uniform_numbers(monkeypatch):
    """u = 0 and u = 1 - 2^-24, the extreme float32 uniforms, give -/+ 24 ln 2 = 16.6; u = 1/2 - 2^-24 and 1/2 give -/+
    6e-8.
    """
    u = torch.tensor([0.0, 1 - 2.0**-24, 0.5 - 2.0**-24, 0.5])
    monkeypatch.setattr(torch, "rand", lambda *_, **__: u.clone())
    noise = Laplace().sample(torch.tensor(1.0), (4,), torch.Generator())
    assert torch.isfinite(noise).all()
    np.testing.assert_allclose(noise.numpy(), [-24 * np.log(2), 24 * np.log(2), -(2.0**-24), 2.0**-24], rtol=1e-3)


def test_laplace_noise_is_symmetric_to_the_last_bit_over_all_uniform_numbers(monkeypatch):
    u = torch.arange(0, 2**24, 97, dtype=torch.float64)
    u = torch.cat([u, 2**24 - 1 - u]) * 2.0**-24
    monkeypatch.setattr(torch, "rand", lambda *_, **__: u.float())
    noise = Laplace().sample(torch.tensor(1.0), tuple(u.shape), torch.Generator())
    half = len(noise) // 2
    assert torch.equal(noise[:half], -noise[half:])
    assert (noise[:half].diff()[u[:half].diff() > 0] > 0).all()


def test_laplace_costs_add_up_to_epsilon_by_hand():
    """Two releases of sensitivity 0.1 at scale 0.4: 0.25 each; variance 2 * 0.16."""
    assert Laplace().cost(one(0.4), one(0.1))[0, 0] == 0.25
    assert Laplace().epsilon(one(0.5)[:, None], one(0.0))[0] == 0.5
    assert Laplace().variance(one(0.4))[0] == pytest.approx(0.32)


def test_gaussian_costs_are_squared_ratios_by_hand():
    assert Gaussian().cost(one(0.4), one(0.1))[0, 0] == 0.0625
    assert Gaussian().variance(one(0.4))[0] == pytest.approx(0.16)
