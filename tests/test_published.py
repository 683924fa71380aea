"""Claimed against true epsilon: published recipes, and numbers anybody can look up."""

import math

import numpy as np
import pytest
from typer.testing import CliRunner

from dpflbench.cli.account import app
from dpflbench.errors import DpflbenchError
from dpflbench.judges import published


def value(result, text):
    return next(row.value for row in result.rows if text in row.what)


def test_gaussian_noise_by_four_analyses():
    """sigma 10, 40 uses: mu = sqrt(40) / 10 = 0.632; the classic split claims 40 / 10 * sqrt(2 ln(1.25 * 40 / 1e-5)) =
    22.2.
    """
    result = published.gaussian(sigma=10.0, uses=40, delta=1e-5)
    assert result.low == result.high == pytest.approx(2.59438, abs=1e-5)
    assert value(result, "exact, by dp-accounting") == pytest.approx(result.low, abs=1e-9)
    assert result.low < value(result, "Rényi") < 1.1 * result.low
    assert value(result, "classic") == pytest.approx(4 * math.sqrt(2 * math.log(1.25 * 40 / 1e-5)))


def test_sensitivity_scales_gaussian_noise():
    assert published.gaussian(20.0, 40, 1e-5, sensitivity=2.0).low == published.gaussian(10.0, 40, 1e-5).low


def test_laplace_noise_adds_up_and_composes_better_at_a_delta():
    assert published.laplace(10.0, 40).low == pytest.approx(4.0)
    tighter = published.laplace(10.0, 40, delta=1e-5)
    assert 2.44 < tighter.low <= tighter.high < 2.46
    assert not published.laplace(10.0, 40, claimed=4.0).broken
    assert published.laplace(10.0, 40, claimed=3.9).broken


@pytest.mark.parametrize(("claimed", "true"), [(1.0, 1.11), (3.0, 3.80), (6.0, 8.60)])
def test_lemma_1_with_its_constant_set_to_one_overclaims(claimed, true):
    result = published.paper_bcs(claimed, 1e-5, uses=40)
    assert round(value(result, "Lemma 1 with c2 = 1"), 2) == true
    assert result.broken
    assert "Lemma 1" in result.verdict


def test_algorithm_2_adds_nine_times_the_noise_it_needs_and_still_breaks_where_uses_are_a_fraction():
    result = published.paper_bcs(1.0, 1e-5, uses=40)
    assert round(value(result, "over the exact noise"), 1) == 9.4
    assert value(result, "Algorithm 2 after 40 uses") < 0.1
    assert round(value(result, "c2 at which"), 3) == 1.099
    result = published.paper_bcs(3.0, 1e-5, uses=0.2)  # one selection at epsilon 3 / 0.2 = 15
    assert value(result, "after 1 uses planned as 0.2") > 15
    assert "Algorithm 2 does NOT hold" in result.verdict


@pytest.mark.parametrize(
    ("claimed", "n_examples", "batch", "renyi", "sigma"),
    [(3.0, 6000, 4, 7.8, 0.44), (10.0, 6000, 4, 435, 0.13), (10.0, 3000, 4, 81, 0.27), (10.0, 1200, 8, 2.3, 1.33)],
)
def test_the_closed_form_of_pfa_is_no_accountant(claimed, n_examples, batch, renyi, sigma):
    """Claimed 10 is several hundred for a client of 6000 examples with minibatches of 4, and 2.3 for one of 1200 with
    8.
    """
    result = published.pfa_formula(claimed, n_examples, batch)
    assert round(value(result, "sigma"), 2) == sigma
    assert value(result, "Rényi") == pytest.approx(renyi, rel=0.02)
    assert result.low <= value(result, "distribution, at most") <= value(result, "Rényi")
    assert result.broken == (renyi > claimed)
    if renyi == 435:
        assert result.low > 370  # not only unproved: a lower bound on the true epsilon


def test_the_closed_form_of_pfa_wastes_noise_at_a_small_epsilon():
    result = published.pfa_formula(1.0, 6000, 4)
    assert value(result, "Rényi") == pytest.approx(0.34, rel=0.02)
    assert not result.broken
    assert result.verdict.startswith("claimed epsilon 1 holds")


@pytest.mark.parametrize(
    "call",
    [
        lambda: published.gaussian(0.0, 1, 1e-5),
        lambda: published.laplace(1.0, 0),
        lambda: published.gaussian(np.nan, 1, 1e-5),
        lambda: published.gaussian(1.0, 1, 0.0),
        lambda: published.pfa_formula(1.0, 10, 20),
        lambda: published.paper_bcs(1.0, 0.0, 3),
    ],
)
def test_numbers_that_make_no_mechanism_are_refused(call):
    with pytest.raises(DpflbenchError, match="allowed"):
        call()


def test_the_command_prints_every_analysis_and_exits_one_when_a_claim_breaks():
    run = CliRunner()
    shown = run.invoke(app, ["gaussian", "--sigma", "10", "--uses", "40", "--delta", "1e-5"])
    assert shown.exit_code == 0, shown.output
    assert "2.59438" in shown.output
    assert "epsilon is 2.594" in shown.output
    shown = run.invoke(app, ["gaussian", "--sigma", "10", "--uses", "40", "--delta", "1e-5", "--claimed", "2"])
    assert shown.exit_code == 1
    assert "does NOT hold" in shown.output
    assert run.invoke(app, ["laplace", "--scale", "10", "--uses", "40"]).exit_code == 0
    assert run.invoke(app, ["paper-bcs", "--epsilon", "1", "--delta", "1e-5", "--uses", "40"]).exit_code == 1
    assert run.invoke(app, ["pfa-formula", "--epsilon", "10", "--n-examples", "1200", "--batch", "8"]).exit_code == 0
    assert run.invoke(app, ["gaussian", "--sigma", "10", "--uses", "0", "--delta", "1e-5"]).exit_code == 2
