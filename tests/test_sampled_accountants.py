"""`rdp` and `pld` as accountants: reference values, budgets that are never exceeded, orders that stay frozen."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from releases import event
from test_renyi import many_clients

from dpflbench.errors import BudgetExceeded, DpflbenchError
from dpflbench.privacy import pld
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.renyi import ORDERS, cost_of, epsilon_of
from dpflbench_algorithms import sampled_accountants
from dpflbench_algorithms.sampled_accountants import ASKED, LossDistribution, Renyi


def release(rate, steps, count=1, sensitivity=1.0, scale=np.nan, neighbours="zero_out", law="gaussian"):
    made = event(np.full(count, sensitivity), scale, rate=rate, steps=steps, law=law)
    return type(made)(**{name: getattr(made, name) for name in made.__slots__} | {"neighbours": neighbours})


def spread(accountant, epsilon, delta, uses, what):
    """The scale at which a whole budget is spread evenly over so many uses."""
    budgets = np.array([epsilon]), np.array([delta])
    own = accountant.of(*budgets)
    return own.scale(own.per_use(own.budget(*budgets), np.array([float(uses)]), *budgets), what)


def test_the_reference_values():
    """Rate 0.0533, 600 steps, delta 1e-5: noise at epsilon 1 and 4 by both, however the steps are dealt out."""
    for accountant, at_one, at_four in ((Renyi(), 5.406, 1.727), (LossDistribution(), 4.988, 1.624)):
        for uses, steps in ((600, 1), (60, 10)):
            what = release(0.0533, steps)
            assert spread(accountant, 1.0, 1e-5, uses, what)[0] == pytest.approx(at_one, rel=1.5e-3)
            assert spread(accountant, 4.0, 1e-5, uses, what)[0] == pytest.approx(at_four, rel=1.5e-3)


def test_a_full_release_costs_half_the_order_over_the_squared_noise():
    """Order 8 is column 6: 8 / (2 * 4²) = 0.25."""
    cost = Renyi().cost(release(1.0, 1, sensitivity=0.5, scale=2.0))
    assert ORDERS[6] == 8
    assert cost[0, 6] == pytest.approx(0.25, rel=1e-12)


def test_what_they_have_a_proof_for():
    assert Renyi().supports(release(0.1, 5)) == LossDistribution().supports(release(0.1, 5, neighbours="replace")) == ""
    assert Renyi().supports(release(1.0, 1, neighbours="replace")) == ""  # nothing is sampled
    assert "zero_out" in Renyi().supports(release(0.1, 5, neighbours="replace"))
    for accountant in (Renyi(), LossDistribution()):
        assert "laplace noise; allowed: gaussian" in accountant.supports(release(0.1, 5, law="laplace"))


@settings(deadline=None, max_examples=150)
@given(
    log_epsilon=st.floats(-3, np.log10(50)),
    log_delta=st.floats(-12, -2),
    log_rate=st.floats(-4, 0),
    uses=st.integers(1, 1000),
    log_steps=st.floats(0, 3),
)
def test_calibrating_then_charging_never_exceeds_a_budget(log_epsilon, log_delta, log_rate, uses, log_steps):
    epsilon, delta, steps = 10.0**log_epsilon, 10.0**log_delta, int(10**log_steps)
    ledger = Ledger(Renyi(), np.array([epsilon]), np.array([delta]))
    if not (ledger.left > 0).any():
        return  # nothing so small is proved at any order, and no noise is offered
    what = release(10.0**log_rate, steps)
    what = what.at(spread(Renyi(), epsilon, delta, uses, what))
    for round in range(min(uses, 20)):
        ledger.charge(round, np.array([0]), [what])
    spent = ledger.events()["cost"].sum() / min(uses, 20) * uses
    order = ledger.state()["order"]
    assert spent <= Renyi().budget(ledger.epsilon, ledger.delta)[0, order[0]]
    assert ledger.epsilon_spent()[0] <= epsilon


@settings(deadline=None, max_examples=60)
@given(
    log_epsilon=st.floats(-3, np.log10(50)),
    log_delta=st.floats(-12, -2),
    log_noise=st.floats(-0.3, 2),
    uses=st.integers(1, 1000),
    log_steps=st.floats(0, 3),
)
def test_rates_that_meet_budgets_are_never_charged_more(log_epsilon, log_delta, log_noise, uses, log_steps):
    ledger = Ledger(Renyi(), np.array([10.0**log_epsilon]), np.array([10.0**log_delta]))
    noise, what = 10.0**log_noise, release(1.0, int(10**log_steps))
    rate = Renyi().rate(ledger.left / uses, what, noise)
    assert 0 <= rate[0] <= 1
    if rate[0] == 0:  # nothing is proved at so little noise: no rate, however small
        least = Renyi().cost(release(1e-9, int(10**log_steps), scale=noise)) * uses
        assert not (least <= ledger.left).any()
        return
    what = release(float(rate[0]), int(10**log_steps), scale=noise)
    for round in range(min(uses, 20)):
        ledger.charge(round, np.array([0]), [what])
    spent = ledger.events()["cost"].sum() / min(uses, 20) * uses
    assert spent <= ledger.budget[0, ledger.state()["order"][0]]


def test_a_budget_that_no_order_proves_gets_no_noise_at_all():
    ledger = Ledger(Renyi(), np.array([1e-5]), np.array([1e-12]))
    assert (ledger.left == 0).all()
    assert np.isinf(spread(Renyi(), 1e-5, 1e-12, 3, release(0.1, 5)))[0]


def test_an_even_split_fits_and_hardly_more_does():
    ledger = Ledger(Renyi(), np.array([2.0]), np.array([1e-5]))
    what = release(0.05, 10)
    what = what.at(spread(Renyi(), 2.0, 1e-5, 40, what))
    for round in range(40):
        ledger.charge(round, np.array([0]), [what])
    assert 1.99 <= ledger.epsilon_spent()[0] <= 2.0
    with pytest.raises(BudgetExceeded):
        ledger.charge(40, np.array([0]), [what])


def test_the_order_is_frozen_by_the_first_participation_and_pays_for_all_later_ones():
    """Twenty uses are planned; after five the plan changes to three of half the rate, at what the frozen order has
    left.
    """
    ledger = Ledger(Renyi(), np.array([1.0]), np.array([1e-5]))
    first = release(0.05, 10)
    first = first.at(spread(Renyi(), 1.0, 1e-5, 20, first))
    for round in range(5):
        ledger.charge(round, np.array([0]), [first])
    left = ledger.left
    assert (left > 0).sum() == 1
    second = release(0.025, 10)
    second = second.at(Renyi().scale(left / 3, second))
    for round in range(5, 8):
        ledger.charge(round, np.array([0]), [second])
    assert 0.97 <= ledger.epsilon_spent()[0] <= 1.0
    again = ledger.restored(ledger.state())
    assert again.digest() == ledger.digest()
    np.testing.assert_array_equal(again.left, ledger.left)


def test_a_loss_and_a_message_of_one_participation_are_calibrated_at_one_order():
    """Alone, a full release would choose another order than a sampled one, and the two together would overspend."""
    epsilon, delta, uses = np.array([1.0]), np.array([1e-5]), 20
    accountant = Renyi()
    message, loss = release(0.01, 10), release(1.0, 1)
    share = accountant.budget(epsilon, delta) / uses
    cost = accountant.settled(share, message)
    assert (cost > 0).sum() == 1
    apart = accountant.settled(share, loss)
    assert np.argmax(apart) != np.argmax(cost)
    ledger = Ledger(accountant, epsilon, delta)
    message, loss = message.at(accountant.scale(cost * 0.9, message)), loss.at(accountant.scale(cost * 0.1, loss))
    for round in range(uses):
        ledger.charge(round, np.array([0]), [message, loss])
    assert ledger.epsilon_spent()[0] <= 1.0
    alone = release(1.0, 1)
    alone = alone.at(accountant.scale(apart * 0.1, alone))
    other = Ledger(accountant, epsilon, delta)

    def everything():
        for round in range(uses):
            other.charge(round, np.array([0]), [message, alone])

    with pytest.raises(BudgetExceeded):
        everything()


def test_the_second_opinion_is_below_and_close():
    rng = np.random.default_rng(1)
    n, uses = 6, 10
    epsilon, delta = rng.uniform(0.5, 4, n), np.full(n, 1e-5)
    what = release(0.05, 20, n)
    what = what.at(Renyi().scale(Renyi().budget(epsilon, delta) / uses, what))
    rows = np.repeat(np.arange(n), uses)
    who, theirs = Renyi().second_opinion(what.of(rows), rows, delta)
    assert who.startswith("dp-accounting ")
    assert (theirs <= epsilon).all()
    assert (theirs > 0.8 * epsilon).all()


def test_of_many_distinct_clients_a_seeded_sample_is_asked(monkeypatch):
    n, asked = 1000, []
    monkeypatch.setattr(pld, "epsilon", lambda releases, delta, relation: asked.append(releases) or 0.1)
    what = release(0.05, 20, n, scale=np.linspace(1, 2, n))
    who, theirs = Renyi().second_opinion(what, np.arange(n), np.full(n, 1e-5))
    assert len(asked) == ASKED
    assert who.endswith(f" for {ASKED} of {n} clients")
    assert ((theirs > 0).sum(), (theirs[theirs > 0] == 0.1).all()) == (ASKED, True)
    again = Renyi().second_opinion(what, np.arange(n), np.full(n, 1e-5))[1]
    np.testing.assert_array_equal(again, theirs)
    other = Renyi().second_opinion(what.at(what.scale * 1.01), np.arange(n), np.full(n, 1e-5))[1]
    assert (other != theirs).any()  # whoever changes a release changes who is asked


# ---------------------------------------------------------------- pld


@pytest.mark.parametrize("neighbours", ["zero_out", "replace"])
def test_pld_lets_a_plan_be_used_exactly_and_not_once_more(neighbours):
    epsilon, delta = np.array([1.0]), np.array([1e-5])
    ledger = Ledger(LossDistribution(), epsilon, delta)
    what = release(0.05, 10, neighbours=neighbours)
    what = what.at(spread(LossDistribution(), 1.0, 1e-5, 12, what))
    for round in range(12):
        ledger.charge(round, np.array([0]), [what])
    assert ledger.epsilon_spent()[0] == 1.0
    with pytest.raises(BudgetExceeded):
        ledger.charge(12, np.array([0]), [what])
    exact = pld.epsilon(((float(what.scale[0]), 0.05, 120),), 1e-5, neighbours)
    assert 0.99 <= exact <= 1.0


def test_pld_needs_less_noise_than_rdp_and_knows_no_price_without_a_budget():
    what = release(0.05, 10)
    ratio = spread(LossDistribution(), 1.0, 1e-5, 12, what) / spread(Renyi(), 1.0, 1e-5, 12, what)
    assert 0.88 < ratio[0] < 0.96
    with pytest.raises(DpflbenchError, match="a share of no budget"):
        LossDistribution().cost(release(0.1, 5, scale=1.0))


# ---------------------------------------------------------------- speed


def setting(rng, n):
    rate = rng.uniform(0.005, 0.3, n)
    what = release(0.5, 1, n)
    what = type(what)(
        **{name: getattr(what, name) for name in what.__slots__} | {"rate": rate, "steps": rng.integers(1, 30, n)}
    )
    return what, rng.uniform(0.1, 8, n), 10 ** rng.uniform(-6, -4, n), rng.integers(1, 200, n)


def timed(monkeypatch, what, epsilon, delta, uses):
    """CPU seconds of a calibration, and the epsilon each client spends with it at the order it was given."""
    solved, least = [], sampled_accountants.least_noise
    monkeypatch.setattr(sampled_accountants, "least_noise", lambda *given: solved.append(least(*given)) or solved[-1])
    start = time.process_time()
    share = Renyi().budget(epsilon, delta)
    share /= uses[:, None]
    noise = Renyi().scale(share, what) / what.sensitivity
    seconds = time.process_time() - start
    order = ORDERS[solved[0][0]]
    return seconds, epsilon_of(cost_of(order, what.rate, noise, what.steps * uses), order, delta)


def test_a_thousand_distinct_settings_are_calibrated_within_two_cpu_seconds(monkeypatch):
    what, epsilon, delta, uses = setting(np.random.default_rng(0), 1000)
    seconds, spent = timed(monkeypatch, what, epsilon, delta, uses)
    assert seconds < 2  # 0.06 s on a quiet core
    assert (spent <= epsilon).all()


def test_a_million_clients_are_calibrated_within_ten_cpu_seconds_and_lose_nothing(monkeypatch):
    """All budgets, rates and uses differ, and nobody is rounded to a grid."""
    epsilon, delta, rate, steps = many_clients(10**6)
    what = event(np.ones(10**6), rate=rate, steps=5)
    seconds, spent = timed(monkeypatch, what, epsilon, delta, steps / 5)
    assert (spent <= epsilon).all()
    assert np.median(spent / epsilon) > 0.999
    assert seconds < 10.0  # 5 s on a quiet core
