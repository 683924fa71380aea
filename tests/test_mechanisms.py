"""Gaussian and Laplace noise: what is released follows its law at its scale, in float64, on any device alike."""

import numpy as np
import pytest
import torch
from scipy import stats

from dpflbench.draws import LAPLACE, NORMAL, Draws
from dpflbench_algorithms.mechanisms import Gaussian, Laplace

KEY = bytes(range(32))


def test_names_laws_and_norms():
    gaussian, laplace = Gaussian(), Laplace()
    assert (gaussian.name, gaussian.law, gaussian.clip_order, gaussian.accountant) == ("gaussian", NORMAL, 2, "gdp")
    assert (laplace.name, laplace.law, laplace.clip_order, laplace.accountant) == ("laplace", LAPLACE, 1, "pure")


def test_a_release_is_what_the_stream_makes_of_the_value_and_an_event_says_what_was_released():
    value, scale = np.ones((2, 3)), np.array([0.5, 2.0])
    noisy = Gaussian().release(torch.from_numpy(value), scale, Draws(KEY))
    assert noisy.dtype == torch.float64
    assert noisy.tolist() == Draws(KEY).noised(value, scale, NORMAL).tolist()
    event = Laplace().event("loss", np.array([0.1, 0.2]))
    assert (event.kind, event.law, event.rate.tolist(), event.steps.tolist()) == ("loss", "laplace", [1.0, 1.0], [1, 1])
    assert np.isnan(event.scale).all()
    assert event.at(np.array([1.0, 3.0])).of(np.array([1])).scale.tolist() == [3.0]


@pytest.mark.parametrize(("mechanism", "law"), [(Gaussian(), stats.norm()), (Laplace(), stats.laplace())])
def test_noise_follows_its_law_at_its_scale(mechanism, law):
    scale = np.array([0.5, 3.0])
    noise = mechanism.noised(np.zeros((2, 100_000)), scale, Draws(KEY))
    for row, s in zip(noise, scale, strict=True):
        assert stats.kstest(row / s, law.cdf).pvalue > 1e-3
        assert row.var() == pytest.approx(float(mechanism.variance(np.array(s))), rel=0.03)


def test_a_value_is_not_changed_where_it_lies():
    value = torch.ones(2, 3, dtype=torch.float64)
    Gaussian().release(value, np.array([0.5, 2.0]), Draws(KEY))
    assert value.tolist() == [[1.0] * 3] * 2
