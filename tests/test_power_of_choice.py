"""Power-of-choice: the largest noisy losses first, and plans that never run dry."""

import numpy as np
import pytest
from algorithm_setups import losses, setup, view
from hypothesis import given, settings
from hypothesis import strategies as st

from dpflbench.errors import DpflbenchError
from dpflbench.federation.schedule import check_plan
from dpflbench_algorithms.power_of_choice import PowerOfChoice, must, power_of_choice

RNG = np.random.default_rng


def test_of_all_candidates_the_largest_last_losses_are_chosen():
    facts = setup([1.0] * 5, cohort=2, rounds=10)
    seen = losses([(0, 0, 9.0), (0, 1, 2.0), (1, 2, 3.0), (1, 3, 1.0), (2, 4, 0.5), (2, 0, 0.1)])
    plan = PowerOfChoice(candidates=5).plan(view(facts, round=3, used=[2, 1, 1, 1, 1], seen=seen), RNG(0))
    assert np.flatnonzero(plan.uses).tolist() == [1, 2]  # client 0's latest loss is 0.1
    assert plan.horizon == 1


def test_clients_never_seen_come_first():
    facts = setup([1.0] * 4, cohort=2, rounds=10)
    seen = losses([(0, 0, 9.0), (0, 1, 2.0)])
    plan = PowerOfChoice(candidates=4).plan(view(facts, round=1, used=[1, 1, 0, 0], seen=seen), RNG(0))
    assert np.flatnonzero(plan.uses).tolist() == [2, 3]


def test_candidates_are_drawn_by_size():
    facts = setup([1.0] * 3, rounds=100, n_examples=[1, 1, 8])
    chosen = sum(PowerOfChoice(candidates=1).plan(view(facts), RNG(seed)).uses for seed in range(500))
    assert chosen / 500 == pytest.approx([0.1, 0.1, 0.8], abs=0.06)


def test_a_use_costs_an_even_share_of_the_capped_uses():
    # fair share 2 · 20 / 8 = 5, at most 10 uses
    facts = setup([1.0, *[2.0] * 7], cohort=2, rounds=20)
    plan = PowerOfChoice().plan(view(facts), RNG(0))
    assert plan.cost[:, 0] == pytest.approx([0.1, *[0.2] * 7])
    assert (plan.probe.loss_bound, plan.probe.share, plan.probe.joint) == (np.log(10), 0.05, False)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 12), st.integers(1, 12), st.integers(1, 25), st.floats(1.0, 4.0))
def test_every_round_has_its_cohort_and_nobody_exceeds_the_cap_or_the_budget(seed, n, cohort, rounds, cap):
    cohort = min(cohort, n)
    rng = RNG(seed)
    facts = setup(rng.uniform(0.1, 3.0, n), cohort=cohort, rounds=rounds, n_examples=rng.integers(1, 50, n))
    used, left, rows = np.zeros(n, dtype=np.int64), facts.budget[:, 0].copy(), []
    for t in range(rounds):
        plan = PowerOfChoice(cap=cap).plan(view(facts, round=t, used=used, left=left, seen=losses(rows)), rng)
        check_plan(plan, n_clients=n, cohort_size=cohort, rounds_left=rounds - t, who="Power-of-choice")
        left = left - plan.uses * plan.cost[:, 0]
        used = used + plan.uses
        rows += [(t, client, client + rng.normal()) for client in np.flatnonzero(plan.uses)]
    assert used.max() <= np.ceil(cap * cohort * rounds / n)
    assert (left >= -1e-12).all()


def test_clients_needed_to_fill_the_last_rounds_cannot_be_passed_over():
    # two rounds of one client, uses left 2 and 0: client 0 must go; with 2 and 1 there is slack for one round
    assert must(np.array([2, 0]), 2, 1, RNG(0)).tolist() == [0]
    assert must(np.array([2, 1]), 2, 1, RNG(0)).tolist() == []
    assert sorted(must(np.array([3, 3, 3]), 3, 3, RNG(0)).tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"candidates": 0}, "candidates: found 0"),
        ({"cap": 0.5}, "cap: found 0.5"),
        ({"probe_share": 0.0}, "probe_share: found 0.0"),
        ({"loss_bound": -1.0}, "loss_bound: found -1.0"),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, message):
    with pytest.raises(DpflbenchError, match=message):
        power_of_choice(**wrong)


def test_regression_needs_a_loss_bound():
    with pytest.raises(DpflbenchError, match="loss_bound is missing"):
        PowerOfChoice().plan(view(setup([1.0, 1.0], classes=0)), RNG(0))
