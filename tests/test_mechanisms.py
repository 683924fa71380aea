"""Gaussian and Laplace noise: what is drawn follows its law at its scale."""

import numpy as np
import pytest
import torch
from scipy import stats

from dpflbench_algorithms.mechanisms import Gaussian, Laplace


def test_names_laws_and_norms():
    assert (Gaussian().name, Gaussian().law, Gaussian().clip_order, Gaussian().accountant) == (
        "gaussian",
        "gaussian",
        2,
        "gdp",
    )
    assert (Laplace().name, Laplace().law, Laplace().clip_order, Laplace().accountant) == (
        "laplace",
        "laplace",
        1,
        "pure",
    )


def test_a_release_is_the_value_plus_noise_and_an_event_says_what_was_released():
    value, scale = torch.ones(2, 3), torch.tensor([[0.5], [2.0]])
    noise = Gaussian().sample(scale, (2, 3), torch.Generator().manual_seed(1))
    assert torch.equal(Gaussian().release(value, scale, torch.Generator().manual_seed(1)), value + noise)
    event = Laplace().event("loss", np.array([0.1, 0.2]))
    assert (event.kind, event.law, event.rate.tolist(), event.steps.tolist()) == ("loss", "laplace", [1.0, 1.0], [1, 1])
    assert np.isnan(event.scale).all()
    assert event.at(np.array([1.0, 3.0])).of(np.array([1])).scale.tolist() == [3.0]


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
