"""What a plan can pay for: remainders that rounding leaves are dust, what is kept back on purpose is not."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from algorithm_setups import setup
from harness import record_of, world_of
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dpflbench.errors import PluginError
from dpflbench.federation.calibration import DUST, calibrate, check_affordable
from dpflbench.federation.schedule import even_uses
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.interfaces import Accountant, Plan
from dpflbench.privacy.ledger import Ledger
from dpflbench.testing import ConformanceError, check_selector

NOISE = ("gaussian", "linear", "laplace")


@dataclass(frozen=True)
class InStages:
    """Even uses, planned anew every `horizon` rounds; keeps nothing back unless told to."""

    horizon: int
    keeps: float = 0.0

    def plan(self, view, rng):
        """Return uses at an even share of all that is not kept."""
        uses = even_uses(view.setup.n_clients, self.horizon * view.setup.cohort_size, rng)
        cost = None if not self.keeps else view.left * (1 - self.keeps) / np.maximum(uses, 1)[:, None]
        return Plan(uses, self.horizon, cost=cost)


def affordable(facts, uses, *, left=1.0, used=0, cost=None):
    """Whether one client whose budget is 1 may be asked for so many uses more."""
    plan = Plan(np.array([uses]), uses, cost=None if cost is None else np.array([[cost]]))
    try:
        check_affordable(plan, left * facts.budget, np.array([used]), facts, "X")
    except PluginError:
        return False
    return True


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_plan_that_would_be_paid_from_rounding_remainders_is_refused_by_client_and_share(tiny, catalogue, mechanism):
    tiny["privacy"]["mechanism"] = mechanism
    prepared = world_of(tiny, catalogue, "WeiAvg", algorithm={"selector": InStages(2)})
    start = initial_state(prepared.world, prepared.theta, prepared.phi)
    with pytest.raises(PluginError, match=r"^selector of WeiAvg: client 0 has \S+e-0\d of an even share .* 0\.001 or"):
        list(rounds(prepared.world, start, prepared.ledger))
    assert set(prepared.ledger.events()["round"]) == {0, 1}  # the second plan was not begun
    left = prepared.ledger.left / prepared.ledger.budget
    assert (left > 0).any()
    assert left.max() < 2.0**-21
    with pytest.raises(ConformanceError, match=r"client \d+ has \S+ of an even share of its budget for a planned use"):
        check_selector(InStages(2))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_selector_that_keeps_a_hundredth_for_as_many_uses_again_may_do_so(tiny, catalogue, mechanism):
    tiny["privacy"]["mechanism"] = mechanism
    prepared = world_of(tiny, catalogue, "WeiAvg", algorithm={"selector": InStages(3, keeps=0.01)})
    *_, end = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
    assert end.round == 6


def test_a_use_may_get_a_thousandth_of_an_even_share_and_no_less():
    """One use more after one that left a share s: an even share of two is 1/2, so the second gets 2 s of it."""
    facts = setup([1.0])
    assert DUST == 1e-3
    assert affordable(facts, 1, left=0.51e-3, used=1)
    assert not affordable(facts, 1, left=0.49e-3, used=1)
    assert not affordable(facts, 1, left=0.0, used=1)
    # half of what is left every time: the k-th use can get k / 2^(k-1) even shares
    halving = [affordable(facts, 1, left=2.0 ** -(k - 1), used=k - 1) for k in range(1, 20)]
    assert halving == [k / 2 ** (k - 1) >= 1e-3 for k in range(1, 20)]
    assert halving.index(False) == 14


@pytest.mark.parametrize("mechanism", NOISE)
def test_a_million_uses_are_no_dust_at_once_or_one_by_one(mechanism):
    facts = setup([1.0], mechanism=mechanism, epsilon=[1.0], delta=[1e-5])
    assert affordable(facts, 10**6)
    for used in (1, 10, 10**3, 10**6 - 1):
        assert affordable(facts, 1, left=1 - used / 10**6, used=used)


@pytest.mark.parametrize("mechanism", NOISE)
@hypothesis_settings(deadline=None, max_examples=60)
@given(uses=st.lists(st.integers(1, 40), min_size=1, max_size=12), log_epsilon=st.floats(-3, 2))
def test_even_shares_planned_in_any_stages_are_never_refused(mechanism, uses, log_epsilon):
    epsilon = np.array([10.0**log_epsilon])
    delta = np.array([0.0 if mechanism == "laplace" else 1e-6])
    accountant = setup([1.0], mechanism=mechanism).accountant
    ledger, total = Ledger(accountant, epsilon, delta), sum(uses)
    facts = replace(setup([1.0], mechanism=mechanism, epsilon=epsilon, delta=delta), budget=ledger.budget)
    for count in uses:
        remaining = np.array([total - ledger.used[0]], dtype=float)
        plan = Plan(np.array([count]), count, cost=accountant.per_use(ledger.left, remaining, epsilon, delta))
        check_affordable(plan, ledger.left, ledger.used, facts, "X")
        for _ in range(count):
            ledger.charge(int(ledger.used[0]), np.array([0]), calibrate(plan, ledger.left, facts).releases([0], None))
    if mechanism != "linear":  # which leaves most unspent, on purpose
        with pytest.raises(PluginError, match="client 0"):
            check_affordable(Plan(np.array([1]), 1), ledger.left, ledger.used, facts, "X")


def test_a_low_cost_is_the_selector_s_choice_as_long_as_there_is_more_but_nothing_is_no_cost(tiny, catalogue):
    facts = setup([1.0])
    assert affordable(facts, 3, cost=1e-12)
    assert not affordable(facts, 3, cost=0.0)
    tiny["privacy"]["epsilon"] = {"kind": "uniform", "low": 0.001, "high": 8.0}
    assert record_of(tiny, catalogue, "Uniform-minimum").status == "done"


def test_of_a_curve_the_order_counts_at_which_a_client_is_charged():
    class Curve(Accountant):
        supports = cost = budget = epsilon = scale = None

    Curve.__abstractmethods__ = frozenset()
    facts = replace(setup([1.0]), accountant=Curve(), budget=np.array([[0.0, 1.0, 2.0]]))
    plan = Plan(np.array([1]), 1)
    check_affordable(plan, np.array([[0.0, 0.0, 0.01]]), np.array([3]), facts, "X")
    with pytest.raises(PluginError, match=r"client 0 has 0\.0004 of an even share"):
        check_affordable(plan, np.array([[0.0, 0.0, 0.0002]]), np.array([3]), facts, "X")


def test_without_privacy_there_is_no_dust(tiny, catalogue):
    prepared = world_of(tiny, catalogue, "FedSGD", algorithm={"selector": InStages(2)})
    *_, end = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
    assert end.round == 6
