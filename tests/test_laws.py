"""`check` holds a mechanism's draws against its law, and its law against its accountant."""

import time
from dataclasses import replace

import numpy as np
import pytest
from test_residuals import HOSTILE, Broken, ForOne, Reused

from dpflbench.draws import LAPLACE, NORMAL, Law
from dpflbench.privacy.gaussian_dp import epsilon_of
from dpflbench.testing import ConformanceError, check_mechanism
from dpflbench.testing.laws import given_away
from dpflbench_algorithms.mechanisms import Gaussian, Laplace


class TenthLess(Gaussian):
    """Noise of nine tenths of its scale, and a variance that says so: aggregators weigh rightly."""

    def noised(self, value, scale, draws):
        return super().noised(value, 0.9 * scale, draws)

    def variance(self, scale):
        return super().variance(0.9 * scale)


def test_a_scale_of_nine_tenths_is_red_within_seconds():
    began = time.process_time()
    with pytest.raises(ConformanceError, match=r"300,000 draws are not of its law, gaussian"):
        check_mechanism(TenthLess)
    assert time.process_time() - began < 5  # half a second on a quiet core


def scaled(law: Law, factor: float) -> Law:
    """A law that lies about its scale, in all three functions alike."""
    return Law(
        law.name,
        lambda x: factor * law.quick(x),
        lambda u: factor * law.quantile(u),
        lambda mp, z: law.survival(mp, z / factor),
    )


class LyingGaussian(Gaussian):
    """Its draws follow its law, and its law is not what its accountant proves."""

    law = scaled(NORMAL, 0.98)

    def variance(self, scale):
        return super().variance(0.98 * scale)


class LyingLaplace(Laplace):
    law = scaled(LAPLACE, 0.98)

    def variance(self, scale):
        return super().variance(0.98 * scale)


@pytest.mark.parametrize(("kind", "accountant"), [(LyingGaussian, "gdp"), (LyingLaplace, "pure")])
def test_a_law_that_is_not_what_its_accountant_proves_is_refused(kind, accountant):
    with pytest.raises(ConformanceError, match=rf"accountant {accountant} charges epsilon .* its law gives away delta"):
        check_mechanism(kind)


class Generous(Gaussian):
    """More noise than it is charged for."""

    law = scaled(NORMAL, 1.1)

    def variance(self, scale):
        return super().variance(1.1 * scale)


@pytest.mark.parametrize("kind", [Gaussian, Laplace, Generous])
def test_honest_mechanisms_pass(kind):
    check_mechanism(kind)


def test_a_law_of_two_distributions_is_none():
    class Torn(Gaussian):
        law = replace(NORMAL, survival=LAPLACE.survival)

    with pytest.raises(ConformanceError, match="quick, quantile and survival of one symmetric distribution"):
        check_mechanism(Torn)


SPECIAL = {Broken, ForOne, Reused}  # at a scale that a check does not try, or for messages of one shape


@pytest.mark.parametrize("kind", [k for k in HOSTILE if k not in SPECIAL], ids=lambda k: k.__name__)
def test_what_an_audit_accuses_a_check_refuses_too(kind):
    with pytest.raises(ConformanceError):
        check_mechanism(kind)


def test_what_noise_gives_away_by_hand():
    """A Laplace release at its own epsilon gives away nothing, at half of it 1 - e^(-1/2) of half the mass."""
    assert given_away(LAPLACE, 1.0, 1.0) < 1e-6
    # P(Z > -1) - e^0.5 P(Z > 0) = 1 - e^-1 / 2 - e^0.5 / 2 at the threshold 0, more in between
    assert given_away(LAPLACE, 1.0, 0.5) == pytest.approx(1 - np.exp(-0.25), abs=1e-3)
    epsilon = float(epsilon_of(0.5, 1e-5))
    assert given_away(NORMAL, 0.5, epsilon) == pytest.approx(1e-5, rel=1e-3)
