"""Privacy loss distributions: the printed values, both relations, the second opinion on Rényi, and what the arithmetic
of dp-accounting can bear.
"""

import math

import numpy as np
import pytest

from dpflbench.errors import DpflbenchError
from dpflbench.privacy import pld, renyi, renyi_calibration
from dpflbench.privacy.gaussian_dp import epsilon_of


def test_the_reference_values_six_to_eight_per_cent_below_renyi():
    """q = 0.0533, 600 steps, delta 1e-5, epsilon 1 and 4; the central limit's 4.922 and 1.570 would overspend."""
    noise = pld.calibrate_noise([1.0, 4.0], 1e-5, 0.0533, 600, "zero_out")
    np.testing.assert_allclose(noise, [4.988, 1.624], atol=2e-3)
    assert (pld.epsilons(noise, 0.0533, 600, 1e-5, "zero_out") <= [1.0, 4.0]).all()
    assert (pld.epsilons([4.922, 1.570], 0.0533, 600, 1e-5, "zero_out") > [1.01, 4.1]).all()
    ratio = renyi_calibration.calibrate_noise([1.0, 4.0], 1e-5, 0.0533, 600)[1] / noise
    assert (ratio > 1.06).all()
    assert (ratio < 1.09).all()


def test_rdp_and_pld_of_dp_accounting_mean_different_sensitivities_when_one_record_is_replaced():
    """The same event, 4.73 against 10.0: a factor two in the noise, which is applied in pld.py."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, UnsupportedEventError
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    replace, event = NeighboringRelation.REPLACE_ONE, GaussianDpEvent(1.0)
    assert round(RdpAccountant(neighboring_relation=replace).compose(event).get_epsilon(1e-5), 2) == 4.73
    assert round(PLDAccountant(neighboring_relation=replace).compose(event).get_epsilon(1e-5), 1) == 10.0
    assert round(float(epsilon_of(2.0, 1e-5)), 1) == 10.0
    assert pld.epsilon(((1.0, 1.0, 1),), 1e-5, "replace") == pytest.approx(float(epsilon_of(1.0, 1e-5)), rel=1e-4)
    with pytest.raises(UnsupportedEventError):  # its RDP does not know Poisson batches there at all
        RdpAccountant(neighboring_relation=replace).compose(PoissonSampledDpEvent(0.1, event))


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (5.0, 40), (200.0, 100)])
def test_a_full_batch_is_exact_gaussian_privacy_under_either_relation(relation, noise, steps):
    exact = float(epsilon_of(math.sqrt(steps) / noise, 1e-5))
    found = pld.epsilon(((noise, 1.0, steps),), 1e-5, relation)
    assert exact <= found <= exact * 1.001


def divergence(t, q, u, v, sigma):
    """Hockey-stick divergence of two sampled Gaussians, by summing over a fine line; u and v broadcast."""
    x = np.linspace(-12 * sigma, 12 * sigma, 4001)
    bells = (np.exp(-((x - np.asarray(w)[..., None]) ** 2) / (2 * sigma**2)) for w in (0.0, u, v))
    zero, first, second = (bell / (sigma * math.sqrt(2 * math.pi)) for bell in bells)
    gap = (1 - q) * (1 - t) * zero + q * first - t * q * second
    return np.maximum(gap, 0.0).sum(-1) * (x[1] - x[0])


def test_no_pair_of_records_leaks_more_than_opposite_ones():
    u, v = np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9))
    for sigma in (0.5, 1.0, 3.0):
        for q in (0.05, 0.4, 0.9):
            for t in (0.3, 1.0, 1.2, 2.0, 8.0):
                every = divergence(t, q, u, v, sigma)
                assert every.max() <= divergence(t, q, 1.0, -1.0, sigma) + 1e-9
                assert every.min() < every.max() or t > 1.2  # at large t little noise is needed to tell anything


def test_one_step_under_replace_has_the_delta_of_that_pair():
    """Sensitivity 2 C = 1, so C = 1/2 and the standard deviation is 2 noise C."""
    found = pld.epsilon(((0.8, 0.3, 1),), 1e-3, "replace")
    assert divergence(math.exp(found), 0.3, 1.0, -1.0, 1.6) == pytest.approx(1e-3, rel=2e-3)


def test_sampled_steps_need_less_noise_per_sensitivity_under_replace_but_more_in_all():
    """The sensitivity is twice as large: 1.41 times 2 C against 1.62 times C."""
    zero_out, replace = (pld.calibrate_noise(4.0, 1e-5, 0.0533, 600, r) for r in ("zero_out", "replace"))
    assert replace < zero_out < 2 * replace


def test_it_never_says_more_than_renyi_which_never_says_less():
    rng = np.random.default_rng(1)
    count = 25
    epsilon, delta = 10 ** rng.uniform(-2, 1.3, count), 10 ** rng.uniform(-8, -3, count)
    rate, steps = 10 ** rng.uniform(-3, -0.1, count), np.floor(10 ** rng.uniform(0, 3.5, count))
    order, noise = renyi_calibration.calibrate_noise(epsilon, delta, rate, steps)
    claimed = renyi.epsilon_of(renyi.cost_of(order, rate, noise, steps), order, delta)
    found = pld.epsilons(noise, rate, steps, delta, "zero_out")
    assert (found <= claimed).all()
    assert np.median(found / claimed) > 0.8  # and no idle opinion


def test_a_ledger_with_a_tampered_row_is_found_out():
    """Three participations calibrated to epsilon 2; then the rate, the steps or the noise of one is not what it was."""
    noise = renyi_calibration.calibrate_noise(2.0, 1e-5, 0.05, 300)[1]
    client, rate, steps, noises = np.array([1, 1, 1]), np.full(3, 0.05), np.full(3, 100.0), np.full(3, float(noise))
    delta = np.full(2, 1e-5)
    honest = pld.client_epsilons(client, noises, rate, steps, delta, "zero_out")
    assert honest[0] == 0.0
    assert 1.7 < honest[1] <= 2.0
    assert honest[1] == pytest.approx(float(pld.epsilons(noise, 0.05, 300, 1e-5, "zero_out")))
    for column, factor in ((rate, 2.0), (steps, 3.0), (noises, 0.6)):
        column[2] *= factor
        assert pld.client_epsilons(client, noises, rate, steps, delta, "zero_out")[1] > 2.05
        column[2] /= factor


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_calibrated_noise_meets_the_budget_and_hardly_more(relation):
    epsilon, delta, rate, steps = (
        [0.05, 0.5, 3.0, 20.0, 1.0],
        [1e-6, 1e-5, 1e-5, 1e-4, 1e-9],
        [0.02, 0.1, 1.0, 0.5, 0.3],
        100,
    )
    noise = pld.calibrate_noise(epsilon, delta, rate, steps, relation)
    assert (pld.epsilons(noise, rate, steps, delta, relation) <= epsilon).all()
    assert (pld.epsilons(noise * 0.998, rate, steps, delta, relation) > epsilon).all()


def test_each_distinct_setting_is_computed_once():
    pld.epsilon.cache_clear()
    found = pld.epsilons(np.repeat([2.0, 3.0], 500), 0.1, 50, 1e-5, "zero_out")
    assert found.shape == (1000,)
    assert pld.epsilon.cache_info().misses == 2


def test_the_arithmetic_of_dp_accounting_is_believed_only_where_it_holds():
    """Its Fourier transforms lose some of delta with every step: what is taken off beforehand is more than that."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    for steps, mu, grid in [
        (100, 1.0, 1e-4),
        (10**4, 1.0, 1e-4),
        (10**4, 0.1, 1e-5),
        (10**5, 1.0, 1e-4),
        (10**5, 3.0, 1e-4),
    ]:
        loss = from_gaussian_mechanism(math.sqrt(steps) / mu, value_discretization_interval=grid).self_compose(steps)
        for delta in (4 * pld.LOST * steps, 1e-9, 1e-5):
            assert loss.get_epsilon_for_delta(delta - pld.LOST * steps) >= float(epsilon_of(mu, delta)) * (1 - 1e-9)
    with pytest.raises(
        DpflbenchError, match=r"1000000 steps at delta 1e-10 drown in rounding; allowed: from 4\.44e-10"
    ):
        pld.epsilon(((1.0, 0.01, 10**6),), 1e-10, "zero_out")


def test_the_ends_of_the_scale():
    assert pld.epsilon((), 1e-5, "zero_out") == 0.0
    assert pld.epsilon(((1.0, 0.0, 5), (1.0, 0.1, 0), (math.inf, 0.1, 5)), 1e-5, "replace") == 0.0
    assert pld.epsilon(((0.0, 0.1, 5),), 1e-5, "zero_out") == math.inf
    assert pld.epsilon(((1.0, 0.1, 5),), 0.0, "zero_out") == math.inf
    np.testing.assert_array_equal(
        pld.calibrate_noise([1.0, 1.0, np.inf], 1e-5, [0.0, 0.1, 0.1], [5, 0, 5], "zero_out"), 0
    )
    with pytest.raises(DpflbenchError, match="relation 'add'; allowed: zero_out, replace"):
        pld.epsilon(((1.0, 0.1, 5),), 1e-5, "add")
