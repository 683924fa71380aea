"""Integer plans and exact systematic sampling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpflbench.errors import PluginError
from dpflbench.federation.schedule import check_plan, draw_cohort, even_uses, round_uses
from dpflbench.interfaces import Plan, Probe


def random_plan(n: int, cohort: int, rounds: int, seed: int) -> np.ndarray:
    """Any uses that sum to cohort * rounds with none above rounds."""
    rng = np.random.default_rng(seed)
    uses = np.zeros(n, dtype=np.int64)
    for _ in range(rounds):
        uses[rng.choice(n, cohort, replace=False, p=rng.dirichlet(np.full(n, 5.0)))] += 1
    return uses


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 30), share=st.floats(0.01, 1), rounds=st.integers(1, 25), seed=st.integers(0, 10**6))
def test_every_plan_is_used_exactly_and_every_cohort_has_k_distinct_clients(n, share, rounds, seed):
    cohort = max(1, int(share * n))
    plan = random_plan(n, cohort, rounds, seed)
    left, rng = plan.copy(), np.random.default_rng(seed)
    for t in range(rounds):
        drawn = draw_cohort(left, rounds - t, rng)
        assert len(drawn) == cohort == len(set(drawn.tolist()))
        left[drawn] -= 1
        assert left.min() >= 0
        assert left.max() <= rounds - t - 1
    assert left.sum() == 0


def test_a_client_is_drawn_at_its_rate():
    uses = np.array([4, 3, 2, 2, 1])  # sums to 12 = 3 a round for 4 rounds
    hits = sum(np.bincount(draw_cohort(uses, 4, np.random.default_rng(s)), minlength=5) for s in range(4000))
    np.testing.assert_allclose(hits / 4000, uses / 4, atol=0.03)
    assert hits[0] == 4000


def test_even_uses_differ_by_at_most_one_and_the_odd_ones_are_drawn():
    draws = [even_uses(7, 17, np.random.default_rng(s)) for s in range(20)]
    for uses in draws:
        assert uses.sum() == 17
        assert set(uses.tolist()) == {2, 3}
    assert len({tuple(u) for u in draws}) > 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 9), min_size=1, max_size=40), st.integers(0, 1000))
def test_rounded_uses_keep_the_sum_and_move_by_less_than_one(values, seed):
    total = round(sum(values))
    expected = np.array(values) * (total / sum(values)) if sum(values) else np.array(values)
    if sum(values) == 0:
        total = 0
    uses = round_uses(expected, total, np.random.default_rng(seed))
    assert uses.sum() == total
    assert (np.abs(uses - expected) < 1 + 1e-6).all()


def test_rounded_uses_have_the_expected_mean():
    expected = np.array([0.25, 0.75, 1.5, 2.5])
    mean = np.mean([round_uses(expected, 5, np.random.default_rng(s)) for s in range(4000)], axis=0)
    np.testing.assert_allclose(mean, expected, atol=0.04)


def test_expected_uses_with_another_sum_are_refused():
    with pytest.raises(PluginError, match="sum to 3, not to 5"):
        round_uses(np.array([1.0, 2.0]), 5, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(np.array([2.0, 2.0]), 2), "integer array"),
        (Plan(np.array([2, 2, 0]), 2), r"shape \(2,\)"),
        (Plan(np.array([3, 1]), 2), "0 to the horizon 2"),
        (Plan(np.array([-1, 2]), 2), "from -1 to 2"),
        (Plan(np.array([1, 2]), 2), r"sums to 3; expected horizon \* cohort = 4"),
        (Plan(np.array([2, 2]), 9), "1 to 5, the rounds left"),
        (Plan(np.array([2, 2]), 2, cost=np.array([[np.nan], [1.0]])), "plan.cost must hold 2 finite"),
        (Plan(np.array([2, 2]), 2, clip_factor=np.array([0.0, 1.0])), "clip_factor must be positive"),
        (Plan(np.array([2, 2]), 2, probe=Probe(loss_bound=-1.0)), "loss_bound must be positive"),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused_by_name(plan, message):
    with pytest.raises(PluginError, match=message) as caught:
        check_plan(plan, n_clients=2, cohort_size=2, rounds_left=5, who="X")
    assert str(caught.value).startswith("selector of X: ")
