"""The ledger refuses before it records, forgets nothing, and rounds to the private side."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from releases import event

from dpflbench.errors import BudgetExceeded, RunEnded
from dpflbench.interfaces import Accountant
from dpflbench.privacy import ledger as ledger_module
from dpflbench.privacy.chain import chain_of
from dpflbench.privacy.ledger import Ledger, LedgerError
from dpflbench_algorithms.accountants import GaussianDP, PureDP


def laplace_ledger(n=4, epsilon=1.0):
    return Ledger(PureDP(), np.full(n, epsilon), np.zeros(n))


def charge(ledger, round, clients, sensitivity, scale, kind="gradient"):
    law = "laplace" if ledger.accountant.name == "pure" else "gaussian"
    ledger.charge(round, clients, [event(sensitivity, scale, kind, law)])


def at(*clients):
    return np.array(clients, dtype=np.int64)


def test_a_charge_is_recorded_as_one_event_a_client():
    ledger = laplace_ledger()
    charge(ledger, 3, at(2, 0), np.array([0.1, 0.2]), np.array([0.4, 0.4]))
    events = ledger.events()
    np.testing.assert_array_equal(events["client"], [2, 0])
    np.testing.assert_array_equal(events["round"], [3, 3])
    np.testing.assert_array_equal(events["cost"], [0.25, 0.5])
    assert {k: v.dtype.str for k, v in events.items()} == {
        "client": "<i4",
        "round": "<i4",
        "kind": "|i1",
        "sensitivity": "<f8",
        "scale": "<f8",
        "rate": "<f8",
        "steps": "<i4",
        "cost": "<f8",
    }
    np.testing.assert_array_equal(ledger.used, [1, 0, 1, 0])
    np.testing.assert_allclose(ledger.left[:, 0], [0.5, 1.0, 0.75, 1.0], rtol=1e-9)
    np.testing.assert_array_equal(ledger.epsilon_spent(), [0.5, 0.0, 0.25, 0.0])


def test_overspending_is_refused_before_anything_is_recorded():
    ledger = laplace_ledger()
    charge(ledger, 0, at(0, 1), np.full(2, 0.3), np.full(2, 0.5))
    before = ledger.digest()
    with pytest.raises(
        BudgetExceeded, match=r"round 7, client 1: a gradient release at scale 0.5 costs 0.6, 0.6 of 1 is spent"
    ):
        charge(ledger, 7, at(3, 1), np.full(2, 0.3), np.full(2, 0.5))
    assert ledger.digest() == before
    assert ledger.used.sum() == 2
    assert BudgetExceeded.status == "disqualified"


def test_a_release_without_noise_disqualifies():
    for accountant in (PureDP(), GaussianDP()):
        ledger = Ledger(accountant, np.array([1.0, np.inf]), np.full(2, 1e-5))
        for client in (0, 1):  # not even an infinite budget pays for it
            with pytest.raises(BudgetExceeded, match="costs inf"):
                charge(ledger, 0, at(client), np.array([0.1]), np.array([0.0]))


@pytest.mark.parametrize(
    ("clients", "sensitivity", "scale", "kind", "word"),
    [
        (at(0), [0.1], [np.nan], "gradient", "scale nan"),
        (at(0), [0.1], [-1.0], "gradient", "scale -1"),
        (at(0), [np.nan], [1.0], "gradient", "sensitivity nan"),
        (at(0), [-0.1], [1.0], "gradient", "sensitivity -0.1"),
        (at(1, 1), [0.1, 0.1], [1.0, 1.0], "gradient", "twice"),
        (at(4), [0.1], [1.0], "gradient", "allowed: 0 to 3"),
        (at(-1), [0.1], [1.0], "gradient", "allowed: 0 to 3"),
        (np.array([0.0]), [0.1], [1.0], "gradient", "integers"),
        (at(0), [0.1], [1.0], "rumour", "kind 'rumour'"),
    ],
)
def test_what_is_no_release_is_refused(clients, sensitivity, scale, kind, word):
    ledger = laplace_ledger()
    with pytest.raises(LedgerError, match=word):
        charge(ledger, 0, clients, np.array(sensitivity), np.array(scale), kind)
    assert len(ledger.events()["client"]) == 0
    assert issubclass(LedgerError, RunEnded)


def test_infinite_noise_is_a_free_release():
    ledger = Ledger(GaussianDP(), np.ones(1), np.full(1, 1e-5))
    charge(ledger, 0, at(0), np.array([0.1]), np.array([np.inf]))
    assert ledger.epsilon_spent()[0] == 0.0
    assert ledger.used[0] == 1


def test_the_releases_of_a_participation_are_charged_together_and_count_as_one_use():
    ledger = laplace_ledger()
    gradient, loss = event([0.1], 1.0, "gradient", "laplace"), event([0.1], 1.0, "loss", "laplace")
    ledger.charge(0, at(1), [gradient, loss, loss])
    ledger.charge(1, at(1), [event([0.1], 1.0, "joint", "laplace")])
    assert ledger.used[1] == 2
    np.testing.assert_allclose(ledger.epsilon_spent()[1], 0.4)
    np.testing.assert_array_equal(ledger.events()["kind"], [0, 1, 1, 2])


def test_a_participation_that_can_pay_for_its_gradient_alone_records_nothing():
    ledger = laplace_ledger()
    with pytest.raises(BudgetExceeded, match="a gradient and loss release"):
        ledger.charge(0, at(1), [event([0.9], 1.0, "gradient", "laplace"), event([0.2], 1.0, "loss", "laplace")])
    assert len(ledger.events()["client"]) == 0
    assert ledger.used.sum() == 0


def test_releases_the_accountant_has_no_proof_for_are_refused():
    ledger = Ledger(GaussianDP(), np.ones(2), np.full(2, 1e-5))
    for odd, word in (
        (event([0.1], 1.0, law="laplace"), "laplace noise; allowed: gaussian"),
        (event([0.1], 1.0, rate=0.5), "a sample of the records"),
        (event([0.1], 1.0, steps=2), "several steps"),
    ):
        with pytest.raises(LedgerError, match=word):
            ledger.charge(0, at(0), [odd])


@pytest.mark.parametrize("accountant", [GaussianDP(), PureDP()], ids=["gaussian", "laplace"])
@settings(deadline=None, max_examples=40)
@given(epsilon=st.floats(1e-3, 100), uses=st.integers(1, 1000), sensitivity=st.floats(1e-6, 10))
def test_an_even_split_always_fits_and_one_release_more_never_does(accountant, epsilon, uses, sensitivity):
    ledger = Ledger(accountant, np.array([epsilon]), np.array([1e-5]))
    each = accountant.per_use(ledger.left, np.array([float(uses)]), ledger.epsilon, ledger.delta)
    scale = accountant.scale(each, event([sensitivity]))
    for round in range(uses):
        charge(ledger, round, at(0), np.array([sensitivity]), scale)
    assert epsilon * (1 - 1e-5) <= ledger.epsilon_spent()[0] <= epsilon
    with pytest.raises(BudgetExceeded):
        charge(ledger, uses, at(0), np.array([sensitivity]), scale)


def test_shares_without_any_slack_fit_whatever_their_sum_rounds_to():
    """Cost = sensitivity at scale 1: nothing is rounded up, so sums of shares often round above the budget by an
    ulp.
    """
    above = 0
    for uses in range(1, 120):
        ledger = laplace_ledger(1, 0.7)
        share = ledger.left[0] / uses
        for round in range(uses):
            charge(ledger, round, at(0), share, np.ones(1))
        above += ledger.spent[0] > ledger.budget[0, 0]
        assert ledger.spent[0] < 0.7
    assert above > 10


def test_the_true_sum_of_many_charges_stays_below_the_budget_in_exact_arithmetic():
    from fractions import Fraction

    ledger = laplace_ledger(1, 0.7)
    scale = PureDP().scale(ledger.left / 3001, event([0.01]))
    for round in range(3001):
        charge(ledger, round, at(0), np.array([0.01]), scale)
    assert sum(Fraction(float(c)) for c in ledger.events()["cost"]) <= Fraction(0.7)


def test_state_and_back_gives_the_same_ledger_to_the_last_bit():
    rng = np.random.default_rng(0)
    ledger = Ledger(GaussianDP(), rng.uniform(1, 3, 50), np.full(50, 1e-5))
    for round in range(40):
        clients = rng.permutation(50)[:10]
        charge(
            ledger,
            round,
            clients,
            rng.uniform(0.001, 0.01, 10),
            rng.uniform(0.2, 0.4, 10),
            ("gradient", "loss", "joint")[round % 3],
        )
    again = Ledger(GaussianDP(), ledger.epsilon, ledger.delta).restored(ledger.state())
    assert again.digest() == ledger.digest()
    for name in ("budget", "left", "used", "spent"):
        np.testing.assert_array_equal(getattr(again, name), getattr(ledger, name))
    for one in (ledger, again):
        charge(one, 40, at(1), np.array([0.01]), np.array([0.3]))
    assert again.digest() == ledger.digest()
    assert laplace_ledger().restored(laplace_ledger().state()).used.sum() == 0


def test_a_state_that_overspends_or_names_strangers_is_refused():
    ledger = laplace_ledger()
    charge(ledger, 0, at(1), np.array([0.5]), np.array([1.0]))
    state = ledger.state()
    for damage, error in (
        ({"cost": np.array([1.5])}, BudgetExceeded),
        ({"cost": np.array([-0.5])}, BudgetExceeded),
        ({"client": np.array([9])}, LedgerError),
        ({"epsilon": np.full(4, 0.4)}, LedgerError),
    ):
        with pytest.raises(error):
            ledger.restored(state | damage)


def test_any_change_of_the_events_changes_the_digest():
    digests = set()
    for client, round, scale in ((0, 0, 1.0), (1, 0, 1.0), (0, 1, 1.0), (0, 0, 1.5)):
        ledger = laplace_ledger()
        charge(ledger, round, at(client), np.array([0.1]), np.array([scale]))
        digests.add(ledger.digest())
    assert len(digests) == 4


def test_the_chain_has_a_link_a_round_and_each_covers_what_came_before():
    short, long, other = laplace_ledger(), laplace_ledger(), laplace_ledger()
    for round in range(5):
        for ledger in (short, long, other) if round < 3 else (long, other):
            scale = 2.0 if ledger is other and round == 1 else 1.0
            charge(ledger, round, at(0, 3), np.full(2, 0.01), np.full(2, scale))
    assert long.chain().shape == (5, 16)
    np.testing.assert_array_equal(short.chain(), long.chain()[:3])
    same = (long.chain() == other.chain()).all(1)
    assert same.tolist() == [True, False, False, False, False]  # from the round that differs on
    assert chain_of("pure", long.epsilon, long.delta, long.events()).digest == long.digest()
    assert chain_of("gdp", long.epsilon, long.delta, long.events()).digest != long.digest()
    assert laplace_ledger().chain().shape == (0, 16)


def test_who_changes_an_earlier_release_in_memory_breaks_the_chain():
    ledger = laplace_ledger()
    for round in range(3):
        charge(ledger, round, at(0, 3), np.full(2, 0.01), np.full(2, 1.0))
    ledger._chunks["scale"][1][:] = 50.0  # as code in the same process could
    kept, again = ledger.chain(), chain_of("pure", ledger.epsilon, ledger.delta, ledger.events()).links
    assert (kept == again).all(1).tolist() == [True, False, False]


class TwoOrders(Accountant):
    """A curve of two orders with made-up costs: a full release costs 1 and 0.1, one at a smaller rate 0.1 and 1."""

    name = "two-orders"
    exponent = 1

    def supports(self, event):
        return ""

    def cost(self, event):
        full = event.rate == 1
        return np.stack([np.where(full, 1.0, 0.1), np.where(full, 0.1, 1.0)], -1)

    def budget(self, epsilon, delta):
        return np.stack([epsilon, epsilon], -1)

    def epsilon(self, cost, delta):
        return cost.min(-1)

    def scale(self, cost, event):
        return event.sensitivity


def test_with_a_curve_one_order_is_frozen_and_counts():
    ledger = Ledger(TwoOrders(), np.array([1.05, 1.05]), np.full(2, 1e-5))
    for round in range(10):  # the first order is over after one release, the second after ten
        charge(ledger, round, at(0), [1.0], 1.0)
    with pytest.raises(BudgetExceeded, match=r"costs 0\.1, 1 of 1\.05 is spent"):
        charge(ledger, 10, at(0), [1.0], 1.0)
    np.testing.assert_array_equal(ledger.events()["cost"], np.full(10, 0.1))  # at the order that counts
    assert ledger.epsilon_spent()[0] == pytest.approx(1.0)
    assert (ledger.left[0, 0], ledger.left[1, 0] > 1) == (0.0, True)  # what is not frozen is not for sale
    again = ledger.restored(ledger.state())
    assert again.digest() == ledger.digest()
    np.testing.assert_array_equal(again.left, ledger.left)
    with pytest.raises(BudgetExceeded):
        charge(again, 10, at(0), [1.0], 1.0)


def test_an_order_that_would_fit_after_the_fact_is_no_proof():
    """A sampled release costs 0.1 and 1 and freezes the first order; a full one then brings the sums to 1.1 and 1.1, a
    second full one to 2.1 and 1.2. With a budget of 1.5 the last fits the second order only, which is not the one that
    was chosen before anything was released: refused.
    """
    ledger = Ledger(TwoOrders(), np.array([1.5]), np.array([1e-5]))
    ledger.charge(0, at(0), [event([1.0], 1.0, rate=0.5)])
    ledger.charge(1, at(0), [event([1.0], 1.0)])
    with pytest.raises(BudgetExceeded):
        ledger.charge(2, at(0), [event([1.0], 1.0)])
    assert ledger.epsilon_spent()[0] == pytest.approx(1.1)


def test_an_accountant_whose_costs_have_the_wrong_shape_is_refused():
    class Flat(PureDP):
        def cost(self, event):
            return event.sensitivity / event.scale

    ledger = Ledger(Flat(), np.ones(2), np.zeros(2))
    with pytest.raises(LedgerError, match="cost of shape"):
        charge(ledger, 0, at(0), np.array([0.1]), np.array([1.0]))
    with pytest.raises(LedgerError, match="epsilon has shape"):
        Ledger(PureDP(), np.ones(2), np.zeros(3))


def test_charging_does_not_touch_all_clients(monkeypatch):
    """A round of 20 among a million clients: no array of a million is made."""
    ledger = Ledger(PureDP(), np.ones(10**6), np.zeros(10**6))
    sizes = []
    real = np.asarray
    monkeypatch.setattr(ledger_module.np, "asarray", lambda a, *x, **k: sizes.append(np.size(a)) or real(a, *x, **k))
    import tracemalloc

    tracemalloc.start()
    charge(ledger, 0, np.arange(20), np.full(20, 0.01), np.ones(20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(sizes) == 20
    assert peak < 200_000
