"""IDP-clipping: the same noise for everybody, clip bounds by budget."""

import numpy as np
import pytest
from algorithm_setups import setup, view

from dpflbench.federation.calibration import calibrate
from dpflbench_algorithms.idp_clipping import IndividualClipping


def planned(facts):
    return IndividualClipping().plan(view(facts), np.random.default_rng(0))


def test_gaussian_clip_bounds_follow_size_and_mu():
    # μ = 1, 3, 1 and sizes 100, 100, 200: factors 1 : 3 : 2, mean 1
    plan = planned(setup([1.0, 9.0, 1.0], rounds=12, n_examples=[100, 100, 200]))
    assert plan.clip_factor == pytest.approx([0.5, 1.5, 1.0], rel=1e-6)
    assert plan.uses.tolist() == [4, 4, 4]


def test_laplace_clip_bounds_follow_size_and_epsilon():
    plan = planned(setup([1.0, 9.0, 1.0], mechanism="laplace", rounds=12, n_examples=[100, 100, 200]))
    assert plan.clip_factor == pytest.approx([1 / 4, 9 / 4, 2 / 4], rel=1e-6)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_all_messages_carry_the_same_noise(mechanism):
    rng = np.random.default_rng(1)
    facts = setup(
        rng.uniform(0.1, 3.0, 7), mechanism=mechanism, rounds=20, cohort=2, n_examples=rng.integers(20, 500, 7)
    )
    plan = planned(facts)
    scale = calibrate(plan, facts.budget, facts).message.scale
    assert scale == pytest.approx(np.full(7, scale[0]), rel=1e-6)
    assert plan.clip_factor.mean() == pytest.approx(1.0)


def test_equal_clients_are_clipped_equally():
    assert planned(setup([0.7] * 4, rounds=8)).clip_factor == pytest.approx([1.0] * 4)


def test_clients_without_a_use_keep_a_positive_factor():
    plan = planned(setup([1.0] * 5, rounds=2))
    assert (plan.clip_factor > 0).all()
    assert int(plan.uses.sum()) == 2
