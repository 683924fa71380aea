"""PFA: rounds worked by hand, the projection against a dense eigen-solve, who is public, PFA+, and its cost on
ResNet-20.
"""

import time

import numpy as np
import pytest
import torch
from algorithm_setups import setup, updates
from hypothesis import given, settings
from hypothesis import strategies as st

from dpflbench.errors import DpflbenchError
from dpflbench_algorithms.pfa import ProjectedMean, pfa, principal_rows, project, top, upper_cluster


def aggregated(aggregator, rows, epsilon, sizes=None, state=None, facts=None):
    facts = facts or setup(epsilon, epsilon=epsilon, sizes=sizes or (len(rows[0]),))
    return aggregator.aggregate(updates(rows, epsilon=epsilon), state or aggregator.init(facts))


def rows_of(seed, k, d):
    return torch.randn(k, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---------------------------------------------------------------- worked by hand


def test_one_public_client_keeps_of_the_private_mean_what_lies_along_its_update():
    # public (2, 0) with ε 3; private (1, 5) with ε 1 keeps (1, 0): (3·(2, 0) + 1·(1, 0)) / 4
    direction, _ = aggregated(ProjectedMean(share=0.5), [[2.0, 0.0], [1.0, 5.0]], [3.0, 1.0])
    assert direction.tolist() == pytest.approx([1.75, 0.0])


def test_two_public_clients_centre_their_subspace():
    # public (1, 1) and (3, 1): centre (2, 1), direction (1, 0); private (7, 9) becomes (7, 1)
    # weights ε = 2, 2, 1: public mean (2, 1) with 4/5, private with 1/5
    direction, _ = aggregated(ProjectedMean(share=0.7), [[1.0, 1.0], [3.0, 1.0], [7.0, 9.0]], [2.0, 2.0, 1.0])
    assert direction.tolist() == pytest.approx([0.8 * 2 + 0.2 * 7, 1.0])


def test_the_text_s_version_points_along_the_public_mean():
    # û = (<x̄_pri, x̄_pub> / |x̄_pub|²) x̄_pub: public mean (2, 1), private (7, 9): 23/5 · (2, 1)
    literal = ProjectedMean(rank=3, basis="global", center=False, sigma="mean", share=0.7)
    direction, _ = aggregated(literal, [[1.0, 1.0], [3.0, 1.0], [7.0, 9.0]], [2.0, 2.0, 1.0])
    assert direction.tolist() == pytest.approx([0.8 * 2 + 0.2 * 9.2, 0.8 + 0.2 * 4.6])


def test_each_tensor_has_its_own_subspace():
    # block by block the public row spans everything; over the whole vector only its own line
    rows, epsilon = [[1.0, 1.0], [3.0, -3.0]], [3.0, 1.0]
    per_tensor, _ = aggregated(ProjectedMean(share=0.5), rows, epsilon, sizes=(1, 1))
    whole, _ = aggregated(ProjectedMean(share=0.5, basis="global"), rows, epsilon, sizes=(1, 1))
    assert per_tensor.tolist() == pytest.approx([0.75 + 0.75, 0.75 - 0.75])
    assert whole.tolist() == pytest.approx([0.75, 0.75])


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("basis", ["per_tensor", "global"])
def test_with_everybody_public_it_is_the_weighted_mean(basis):
    rows, epsilon = rows_of(0, 5, 6), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    direction, _ = aggregated(ProjectedMean(share=1.0, basis=basis), rows, epsilon, sizes=(2, 4))
    assert torch.allclose(direction, torch.as_tensor(epsilon / 15) @ rows, rtol=1e-14)
    equal, _ = aggregated(ProjectedMean(basis=basis), rows, np.full(5, 0.7), sizes=(2, 4))
    assert torch.allclose(equal, rows.mean(0), rtol=1e-14)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("rank", [1, 2, 9])
def test_the_projection_equals_a_dense_eigen_solve(center, rank):
    rows, epsilon = rows_of(1, 8, 12), np.array([5.0, 5, 5, 5, 1, 2, 3, 4])
    direction, _ = aggregated(ProjectedMean(rank=rank, center=center, share=0.5, basis="global"), rows, epsilon)
    public, private = rows[:4], rows[4:]
    centre = public.mean(0) if center else torch.zeros(12, dtype=torch.float64)
    values, vectors = torch.linalg.eigh((public - centre).T @ (public - centre))  # 12 × 12
    kept = [i for i in range(11, 11 - rank, -1) if values[i] > 1e-10 * values[-1]]
    dense = vectors[:, kept] @ vectors[:, kept].T
    mean = torch.tensor([1.0, 2, 3, 4], dtype=torch.float64) / 10 @ private
    expected = (20 * public.mean(0) + 10 * (dense @ (mean - centre) + centre)) / 30
    assert torch.allclose(direction, expected, rtol=1e-10, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 8), st.integers(1, 5))
def test_the_projection_is_idempotent_and_never_lengthens(seed, m, p, rank):
    rows = rows_of(seed, m, p)
    basis = principal_rows(rows, rank)
    assert len(basis) <= min(m, p, rank)
    assert torch.allclose(basis @ basis.T, torch.eye(len(basis), dtype=torch.float64), atol=1e-5)
    x, centre = rows_of(seed + 1, 1, p)[0], rows.mean(0)
    once = project(x, basis, centre)
    assert torch.allclose(project(once, basis, centre), once, atol=1e-5)
    assert (once - centre).norm() <= (x - centre).norm() * (1 + 1e-5)


def test_equal_updates_aggregate_to_that_update_whoever_sends_them():
    row = [0.3, -1.0, 2.0]
    for options in (
        {},
        {"center": False},
        {"center": False, "sigma": "mean", "basis": "global"},
        {"public": "per_round"},
    ):
        direction, _ = aggregated(ProjectedMean(**options), [row] * 4, [1.0, 2.0, 3.0, 4.0], sizes=(1, 2))
        assert direction.tolist() == pytest.approx(row)


def test_the_order_of_rows_does_not_matter():
    rows, epsilon = rows_of(3, 6, 7), np.array([3.0, 1.0, 2.0, 3.0, 0.5, 3.0])
    order = torch.tensor([4, 2, 5, 0, 1, 3])
    aggregator = ProjectedMean(rank=2, share=0.5)
    state = aggregator.init(setup(epsilon, epsilon=epsilon, sizes=(3, 4)))
    one, _ = aggregator.aggregate(updates(rows, epsilon=epsilon), state)
    other, _ = aggregator.aggregate(updates(rows[order], clients=order, epsilon=epsilon[order.numpy()]), state)
    assert torch.allclose(one, other, rtol=1e-10)


def test_zero_updates_aggregate_to_zero():
    direction, _ = aggregated(ProjectedMean(), [[0.0, 0.0]] * 3, [1.0, 2.0, 3.0])
    assert direction.tolist() == [0.0, 0.0]


def test_incoming_tensors_stay_as_they_were():
    rows, epsilon = rows_of(4, 4, 3), np.array([1.0, 2.0, 3.0, 4.0])
    before = rows.clone()
    aggregated(ProjectedMean(delayed=True), rows, epsilon)
    assert torch.equal(rows, before)


# ---------------------------------------------------------------- who is public


def test_a_tenth_of_the_clients_is_public_and_at_least_one():
    assert np.flatnonzero(top(np.arange(100.0), 0.1)).tolist() == list(range(90, 100))
    assert np.flatnonzero(top(np.array([1.0, 5.0, 2.0]), 0.1)).tolist() == [1]
    assert np.flatnonzero(top(np.array([5.0, 5.0, 2.0]), 0.1)).tolist() == [0, 1]
    assert int(top(np.arange(10.0), 0.3).sum()) == 3  # 0.3 · 10 is just below 3 in floats


def test_a_mixture_separates_two_crowds():
    epsilon = np.concatenate([np.linspace(0.1, 0.4, 30), np.linspace(5.0, 6.0, 10)])
    assert np.array_equal(upper_cluster(epsilon), epsilon > 1)
    assert upper_cluster(np.full(5, 0.3)).all()


def test_a_cohort_without_public_clients_lets_its_highest_epsilon_act():
    epsilon = np.array([9.0, 1.0, 3.0])
    aggregator = ProjectedMean(share=0.4)
    state = aggregator.init(setup(epsilon, epsilon=epsilon, sizes=(2,)))
    direction, _ = aggregator.aggregate(updates([[1.0, 5.0], [2.0, 0.0]], clients=[1, 2], epsilon=[1.0, 3.0]), state)
    assert direction.tolist() == pytest.approx([1.75, 0.0])


def test_the_top_of_each_cohort_can_be_public():
    aggregator = ProjectedMean(public="per_round", share=0.5)
    direction, _ = aggregated(aggregator, [[2.0, 0.0], [1.0, 5.0]], [3.0, 1.0])
    assert direction.tolist() == pytest.approx([1.75, 0.0])


# ---------------------------------------------------------------- PFA+


def test_pfa_plus_projects_on_the_subspace_of_the_round_before():
    epsilon = [3.0, 1.0]
    aggregator = ProjectedMean(share=0.5, delayed=True)
    first, state = aggregated(aggregator, [[2.0, 0.0], [1.0, 5.0]], epsilon)
    assert first.tolist() == pytest.approx([1.75, 0.0])  # no round before: as PFA
    # now the public update is (0, 2), the old subspace still the first axis: private (1, 5) keeps (1, 0)
    second, state = aggregated(aggregator, [[0.0, 2.0], [1.0, 5.0]], epsilon, state=state)
    assert second.tolist() == pytest.approx([0.25, 1.5])
    third, _ = aggregated(aggregator, [[2.0, 0.0], [1.0, 5.0]], epsilon, state=state)
    assert third.tolist() == pytest.approx([1.5, 1.25])


# ---------------------------------------------------------------- options and cost


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"rank": 0}, "rank: found 0"), ({"share": 0.0}, "share: found 0.0"), ({"sigma": "mean"}, "center: found true")],
)
def test_wrong_options_are_refused_by_name(wrong, message):
    with pytest.raises(DpflbenchError, match=message):
        pfa(**wrong)


def test_a_round_of_resnet_20_takes_well_under_a_quarter_of_a_second():
    # 272,474 parameters in 65 tensors, the largest of 36,864; the d × d covariance would have 7·10^10 entries
    sizes = [
        432,
        16,
        16,
        *[2304, 16, 16] * 6,
        4608,
        32,
        32,
        *[9216, 32, 32] * 5,
        512,
        32,
        32,
        18432,
        64,
        64,
        *[36864, 64, 64] * 5,
        2048,
        64,
        64,
        640,
        10,
    ]
    assert (sum(sizes), len(sizes)) == (272_474, 65)
    epsilon = np.linspace(0.1, 6.0, 20)
    aggregator = ProjectedMean(share=0.5, rank=3)
    state = aggregator.init(setup(epsilon, epsilon=epsilon, sizes=sizes))
    rows = updates(rows_of(0, 20, 272_474), epsilon=epsilon, dtype=torch.float32)
    aggregator.aggregate(rows, state)
    start = time.process_time()
    direction, _ = aggregator.aggregate(rows, state)
    assert time.process_time() - start < 0.25
    assert direction.dtype == torch.float32
    assert direction.shape == (272_474,)
