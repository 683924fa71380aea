"""Uniform-minimum: everybody spends what the strictest client can."""

import numpy as np
import pytest
from algorithm_setups import setup, view

from dpflbench_algorithms.uniform_minimum import UniformMinimum


def planned(facts, **more):
    return UniformMinimum().plan(view(facts, **more), np.random.default_rng(0))


def test_every_use_costs_what_the_smallest_budget_allows():
    # 3 clients, one a round, 12 rounds: 4 uses each at 0.2 / 4
    plan = planned(setup([0.8, 0.2, 5.0], rounds=12))
    assert plan.uses.tolist() == [4, 4, 4]
    assert plan.cost[:, 0] == pytest.approx([0.05] * 3)
    assert plan.horizon == 12


def test_a_client_with_one_use_more_pays_no_more_a_use():
    plan = planned(setup([0.8, 0.2, 5.0], rounds=13))
    assert sorted(plan.uses.tolist()) == [4, 4, 5]
    assert plan.cost[:, 0] == pytest.approx([0.04] * 3)
    assert (plan.uses * plan.cost[:, 0] <= 0.2 * (1 + 1e-12)).all()


def test_linear_composition_splits_the_strictest_epsilon():
    facts = setup([0.8, 0.2, 5.0], mechanism="linear", rounds=12, epsilon=[1.0, 0.3, 3.0], delta=[1e-5, 1e-4, 1e-4])
    classic = 0.3**2 / (2 * 16 * np.log(1.25 * 4 / 1e-5))
    assert planned(facts).cost[:, 0] == pytest.approx([classic] * 3)
