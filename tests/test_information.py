"""Noise efficiency and data coverage: the limits, who reaches them, and what a run keeps of its weights."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from algorithm_setups import setup, updates, view

from dpflbench.federation.calibration import calibrate
from dpflbench.federation.pull import Pull, foreseen
from dpflbench.federation.schedule import draw_cohort, round_uses
from dpflbench.interfaces import Plan
from dpflbench.privacy.gaussian_dp import mu_of
from dpflbench.privacy.information import (
    data_coverage,
    gaussian_limit,
    laplace_limit,
    mean_limit,
    noise_efficiency,
    variance_limit,
)
from dpflbench.randomness import Streams
from dpflbench_algorithms.bcs import BiasedSelection
from dpflbench_algorithms.parts import Mean, UniformSelection
from dpflbench_algorithms.weiavg import EpsilonWeighted


@dataclass(frozen=True)
class InverseVariance:
    """Weights in proportion to 1 / variance."""

    def weights(self, cohort):
        """Return them, adding up to 1."""
        return (1 / cohort.variance) / (1 / cohort.variance).sum()


def population(mechanism="gaussian", n=100, cohort=20, rounds=200, seed=0):
    """The reference population: 540 examples each, epsilon U(0.1, 3), delta U(1e-5, 1e-4)."""
    rng = np.random.default_rng(seed)
    epsilon, delta = rng.uniform(0.1, 3.0, n), rng.uniform(1e-5, 1e-4, n)
    if mechanism == "laplace":
        return setup(epsilon, mechanism=mechanism, cohort=cohort, rounds=rounds, n_examples=540)
    budget = mu_of(epsilon, delta) ** 2
    return setup(budget, cohort=cohort, rounds=rounds, n_examples=540, epsilon=epsilon, delta=delta)


def pull_of(plan, facts, aggregator, seed=0):
    """The pull of all rounds of a plan, without training."""
    left, cohorts, streams = plan.uses.copy(), [], Streams(seed)
    for round in range(plan.horizon):
        cohorts.append(draw_cohort(left, plan.horizon - round, streams.numpy("select", round)))
        left[cohorts[-1]] -= 1
    nothing = Pull(weight=np.zeros(facts.n_clients))
    return foreseen(nothing, cohorts, calibrate(plan, facts.budget, facts), facts, aggregator)


def efficiency_of(facts, selector, aggregator, seed=0):
    """Noise efficiency and coverage of all rounds of a plan, without training."""
    plan = selector.plan(view(facts), np.random.default_rng(seed))
    pull = pull_of(plan, facts, aggregator, seed)
    mean = pull.variance / pull.rounds
    return noise_efficiency(variance_limit(facts), mean), data_coverage(pull.weight, facts.n_examples)


ROWS = {
    "DPSGD": (UniformSelection(), Mean(), 0.14),
    "WeiAvg": (UniformSelection(), EpsilonWeighted(), 0.83),
    "InvVar": (UniformSelection(), InverseVariance(), 0.97),
    "DPFL-BCS": (BiasedSelection(heterogeneity="zero"), Mean(), 1.00),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_reference_population_has_the_reference_efficiencies(name):
    selector, aggregator, expected = ROWS[name]
    found = np.array([efficiency_of(population(seed=seed), selector, aggregator, seed)[0] for seed in range(30)])
    # the variances of many populations against their limit: one strict client moves a plain mean from 0.11 to 0.27
    assert 1 / np.mean(1 / found) == pytest.approx(expected, abs=0.01)
    assert found.max() <= 1.0


def test_two_gaussian_clients_by_hand():
    # mu² 1 and 4, sensitivity 2 / 100: I = 2500 and 10000, in 10 rounds no less than 10 / 12500
    assert gaussian_limit(np.array([1.0, 2.0]) / 0.02, 10) == pytest.approx(10 / 12500)
    # a plain mean of both in every round: variances 10 / 2500 and 10 / 10000, a quarter of their sum is 1.25e-3
    facts = setup([1.0, 4.0], cohort=2, rounds=10, epsilon=[1.0, 2.0], delta=[0.1, 0.1])
    plan = Plan(np.array([10, 10]), 10)
    pull = pull_of(plan, facts, Mean())
    assert pull.variance / pull.rounds == pytest.approx(1.25e-3)
    best = pull_of(plan, facts, InverseVariance())
    assert best.variance / best.rounds == pytest.approx(10 / 12500)


def compositions(total, parts):
    """All ways to write a whole number as an ordered sum of that many."""
    for cuts in itertools.combinations(range(total + parts - 1), parts - 1):
        edges = (-1, *cuts, total + parts - 1)
        yield [b - a - 1 for a, b in itertools.pairwise(edges)]


def least_by_search(ratios, rounds, steps, power):
    """The least mean of 1 / J_t over all splits of each client's budget over rounds, in `steps` parts each; J_t adds up
    what is spent (power 1, Gaussian: mu²) or half its square (power 2, Laplace: epsilon).
    """
    ways = list(compositions(steps, rounds))
    best = np.inf
    for chosen in itertools.product(ways, repeat=len(ratios)):
        spent = np.array(chosen) / steps * np.asarray(ratios)[:, None]
        j = (spent if power == 1 else spent**2 / 2).sum(0)
        if (j > 0).all():
            best = min(best, float(np.mean(1 / j)))
    return best


@pytest.mark.parametrize(
    ("ratios", "rounds"),
    [([1.0, 1.0], 2), ([2.0, 1.0], 3), ([1.0, 2.0, 3.0], 2), ([3.0, 1.0], 4), ([1.0, 1.0, 1.0], 2), ([5.0], 3)],
)
def test_no_split_of_epsilons_beats_the_limit_of_laplace_noise(ratios, rounds):
    found, limit = least_by_search(ratios, rounds, 6, 2), laplace_limit(np.array(ratios), rounds)
    assert found >= limit * (1 - 1e-12)


@pytest.mark.parametrize(("ratios", "rounds"), [([1.0, 1.0], 2), ([2.0, 1.0], 3), ([3.0, 1.0], 4), ([5.0], 3)])
def test_the_limit_of_laplace_noise_is_reached_where_one_client_can_carry_each_round(ratios, rounds):
    assert least_by_search(ratios, rounds, 6, 2) == pytest.approx(laplace_limit(np.array(ratios), rounds))


def test_fewer_rounds_than_clients_have_the_second_limit_of_laplace_noise():
    # four clients, two rounds: two of them in each, all spent at once: J = 2 · 1 / 2, so 1; 2 T² / Q² would be 0.5
    assert laplace_limit(np.ones(4), 2) == pytest.approx(1.0)
    assert least_by_search([1.0] * 4, 2, 4, 2) == pytest.approx(1.0)


@pytest.mark.parametrize(("ratios", "rounds"), [([1.0, 1.0], 2), ([2.0, 1.0], 3), ([1.0, 2.0, 3.0], 2)])
def test_no_split_of_squared_mu_beats_the_limit_of_gaussian_noise_and_some_reach_it(ratios, rounds):
    found = least_by_search(np.array(ratios), rounds, 6, 1)
    assert found == pytest.approx(gaussian_limit(np.sqrt(ratios), rounds))


def test_a_plain_mean_under_laplace_noise_stays_a_cohort_below_the_limit():
    facts = population("laplace")
    assert mean_limit(facts) == pytest.approx(20 * variance_limit(facts))
    # uses in proportion to epsilon make all noise equal: what a plain mean can do, but for whole numbers of uses
    uses = round_uses(facts.epsilon / facts.epsilon.sum() * 4000, 4000, np.random.default_rng(0))
    plan = Plan(np.minimum(uses, 200), 200)
    pull = pull_of(plan, facts, Mean())
    assert mean_limit(facts) / (pull.variance / pull.rounds) == pytest.approx(1.0, abs=0.02)
    # weights that may differ do better than any plain mean
    weighted, _ = efficiency_of(facts, UniformSelection(), InverseVariance())
    assert 1 / 20 < weighted < 1


def test_no_limit_is_claimed_for_sampled_releases(monkeypatch):
    facts = population()
    event = type(facts).message
    monkeypatch.setattr(type(facts), "message", lambda self, *a: _sampled(event(self, *a)))
    assert np.isnan(variance_limit(facts))


def _sampled(event):
    from dataclasses import replace

    return replace(event, rate=event.rate / 2)


def test_coverage_counts_examples_not_clients():
    assert data_coverage(np.array([1.0, 1.0]), np.array([50, 50])) == pytest.approx(1.0)
    assert data_coverage(np.array([1.0, 0.0]), np.array([50, 50])) == pytest.approx(0.5)
    assert data_coverage(np.array([3.0, 1.0]), np.array([75, 25])) == pytest.approx(1.0)  # as they own, so they weigh
    assert data_coverage(np.array([1.0, 1.0]), np.array([75, 25])) == pytest.approx(4 / (100 * (1 / 75 + 1 / 25)))


def test_selection_pays_for_efficiency_with_coverage_and_weighting_no_less():
    facts = population()
    _, mean = efficiency_of(facts, UniformSelection(), Mean())
    _, weighted = efficiency_of(facts, UniformSelection(), InverseVariance())
    _, biased = efficiency_of(facts, BiasedSelection(heterogeneity="zero"), Mean())
    assert mean == pytest.approx(1.0)
    assert weighted == pytest.approx(biased, abs=0.03)
    assert biased == pytest.approx(0.64, abs=0.01)


def test_a_pull_is_per_unit_of_weight_and_counts_what_it_guesses():
    cohort = updates([[0.0], [0.0]], clients=[2, 0], variance=[4.0, 8.0])
    pull = Pull(weight=np.zeros(3)).after(cohort, torch.tensor([1.5, 0.5]))
    assert pull.weight.tolist() == [0.5, 0.0, 1.5]
    assert pull.variance == pytest.approx((1.5**2 * 4 + 0.5**2 * 8) / 4)  # halving all weights changes nothing
    pull = pull.after(cohort, None)
    assert (pull.rounds, pull.guessed) == (2, 1)
    assert pull.variance == pytest.approx(2.75 + 3.0)
    assert pull.after(cohort, torch.tensor([1.0, -1.0])).variance == np.inf
