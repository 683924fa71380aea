"""Robust-HDP: the split into common part and rest, and the weights it gives."""

import numpy as np
import pytest
import torch
from algorithm_setups import setup, updates

from dpflbench.errors import DpflbenchError
from dpflbench_algorithms.robust_hdp import NoiseAware, robust_hdp, split

RNG = torch.Generator


def noisy_rows(sigma, p=600, seed=0, strength=0.05):
    rng = RNG().manual_seed(seed)
    common = strength * torch.randn(1, p, generator=rng, dtype=torch.float64)
    return common + torch.as_tensor(sigma)[:, None] * torch.randn(len(sigma), p, generator=rng, dtype=torch.float64)


def test_a_low_rank_matrix_with_a_few_large_errors_is_taken_apart():
    rng = RNG().manual_seed(1)
    common = torch.randn(20, 1, generator=rng, dtype=torch.float64) @ torch.randn(
        1, 200, generator=rng, dtype=torch.float64
    )
    errors = torch.where(torch.rand(20, 200, generator=rng) < 0.03, 10.0, 0.0).double()
    low, rest = split(common + errors, 1e-7, 2000)
    assert torch.allclose(low, common, atol=1e-3)
    assert torch.allclose(rest, errors, atol=1e-3)


def test_the_split_is_optimal():
    # conditions of principal component pursuit: one dual matrix serves both parts
    rows = noisy_rows(np.linspace(0.3, 2.0, 6), p=40, strength=1.0)
    low, rest = split(rows, 1e-9, 20_000)
    weight = 1 / 40**0.5
    best = float(torch.linalg.matrix_norm(low, "nuc") + weight * rest.abs().sum())
    rng = RNG().manual_seed(3)
    for scale in (1e-3, 1e-2, 1e-1):
        for _ in range(20):
            move = scale * torch.randn(rows.shape, generator=rng, dtype=torch.float64)
            moved = torch.linalg.matrix_norm(low + move, "nuc") + weight * (rest - move).abs().sum()
            assert float(moved) >= best - 1e-6


def test_weights_are_nearly_the_inverse_noise_variances():
    sigma = np.linspace(0.3, 3.0, 12)
    rows = noisy_rows(sigma, p=3000)
    direction, _ = NoiseAware().aggregate(updates(rows), NoiseAware().init(setup(np.ones(12))))
    weights = sigma**-2 / (sigma**-2).sum()
    found = torch.linalg.lstsq(rows.T, direction[:, None]).solution[:, 0].numpy()
    assert found == pytest.approx(weights, rel=0.15)


def test_it_never_looks_at_epsilon():
    rows = noisy_rows(np.linspace(0.3, 3.0, 5))
    state = NoiseAware().init(setup(np.ones(5)))
    one, _ = NoiseAware().aggregate(updates(rows, epsilon=[1, 2, 3, 4, 5]), state)
    other, _ = NoiseAware().aggregate(updates(rows, epsilon=[5, 4, 3, 2, 1]), state)
    assert torch.equal(one, other)


def test_a_client_keeps_its_first_energy_unless_told_otherwise():
    first, later = noisy_rows([1.0, 1.0, 1.0]), noisy_rows([1.0, 1.0, 9.0], seed=1)
    for refresh, kept in (("first", True), ("always", False)):
        aggregator = NoiseAware(refresh=refresh)
        _, state = aggregator.aggregate(updates(first), aggregator.init(setup(np.ones(3))))
        _, after = aggregator.aggregate(updates(later), state)
        assert torch.equal(after["energy"], state["energy"]) is kept
        assert after["visits"].tolist() == ([1, 1, 1] if kept else [2, 2, 2])


def test_only_clients_not_seen_before_are_measured():
    aggregator = NoiseAware()
    _, state = aggregator.aggregate(updates(noisy_rows([1.0, 1.0]), clients=[0, 1]), aggregator.init(setup(np.ones(3))))
    _, after = aggregator.aggregate(updates(noisy_rows([1.0, 1.0], seed=1), clients=[1, 2]), state)
    assert after["visits"].tolist() == [1, 1, 1]
    assert after["energy"][1] == state["energy"][1]
    assert state["visits"].tolist() == [1, 1, 0]  # what came in stays as it was


def test_equal_rows_aggregate_to_that_row_and_zero_rows_to_zero():
    aggregator = NoiseAware()
    state = aggregator.init(setup(np.ones(3)))
    row = [0.3, -1.0, 2.0, 5.0]
    assert aggregator.aggregate(updates([row] * 3), state)[0].tolist() == pytest.approx(row)
    assert aggregator.aggregate(updates([[0.0] * 4] * 3), state)[0].tolist() == [0.0] * 4


def test_the_order_of_rows_does_not_matter():
    rows, order = noisy_rows(np.linspace(0.3, 2.0, 5)), torch.tensor([3, 0, 4, 1, 2])
    aggregator = NoiseAware()
    state = aggregator.init(setup(np.ones(5)))
    one, _ = aggregator.aggregate(updates(rows), state)
    other, _ = aggregator.aggregate(updates(rows[order], clients=order), state)
    assert torch.allclose(one, other, rtol=1e-8)


def test_a_sample_of_coordinates_gives_nearly_the_same_weights():
    sigma = np.linspace(0.3, 3.0, 8)
    rows = noisy_rows(sigma, p=8000)
    energies = [
        NoiseAware(coordinates=c).aggregate(updates(rows), NoiseAware().init(setup(np.ones(8))))[1]["energy"]
        for c in (1000, 8000)
    ]
    assert energies[0].numpy() == pytest.approx(energies[1].numpy(), rel=0.25)


def test_wrong_parameters_are_refused_by_name():
    with pytest.raises(DpflbenchError, match="coordinates: found 0; allowed: above 0"):
        robust_hdp(coordinates=0)
