"""Check of a selector: plans played through a whole run against a real ledger, without any model."""

from typing import Any

import numpy as np

from dpflbench.errors import BudgetExceeded, DpflbenchError, PluginError
from dpflbench.federation.calibration import Calibration, calibrate, check_affordable
from dpflbench.federation.schedule import check_plan, cohort_of
from dpflbench.interfaces import Accountant, Ints, Losses, Mechanism, Plan, PlanView, Selector, Setup
from dpflbench.privacy.ledger import Ledger
from dpflbench.randomness import Streams
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import (
    ConformanceError,
    attempt,
    difference,
    keep,
    needs_methods,
    no_global_draws,
    pickled,
    refuse,
    unchanged,
)
from dpflbench.testing.worlds import TwoOrders, setup_of, standard_noise

# (clients, cohort, rounds, equal clients): everybody every round, one a round, a single client, a single round
EDGES = ((6, 6, 4, False), (6, 1, 12, False), (1, 1, 3, False), (8, 3, 1, False), (9, 3, 6, True))


def check_selector(part: Any, who: str = "", mechanisms: frozenset[str] | None = None) -> None:
    """Raise ConformanceError at the first broken rule; `part` is a selector or a factory of one.

    `mechanisms` restricts the check to those an algorithm is defined for.
    """
    who = named(part, "selector", who)
    selector = obtain(part, who)
    needs_methods(who, selector, Selector, {"plan": 2})
    for name, noise in standard_noise().items():
        if mechanisms is None or name in mechanisms:
            _check_under(selector, noise, who)
            played(selector, setup_of((noise[0], TwoOrders(noise[1]))), 1, f"{who} (a currency of two orders)")


def _check_under(selector: Any, noise: tuple[Mechanism, Accountant], who: str) -> None:
    setup = setup_of(noise)
    first = attempt(who, "planning 4 of 12 clients in 10 rounds", "a plan", lambda: played(selector, setup, 1, who))
    if difference(first, played(selector, setup, 1, who)):
        refuse(
            who,
            "the same run planned twice under one seed gives different plans",
            "a function of the view and the rng argument",
            "draw from the rng argument only, and keep nothing between calls",
        )
    if difference(first, played(pickled(who, selector), setup, 1, who)):
        refuse(
            who, "plans otherwise after pickling", "the same part in every worker", "keep only parameters in its fields"
        )
    for n, cohort, rounds, equal in EDGES:
        world = f"{who} ({cohort} of {n} clients, {rounds} rounds)"
        try:
            played(selector, setup_of(noise, n, cohort, rounds, equal), 2, world)
        except ConformanceError:
            raise
        except DpflbenchError:
            continue  # a readable refusal of an unusual world is an answer


def played(selector: Any, setup: Setup, seed: int, who: str) -> list[dict[str, Any]]:
    """Every plan of a whole run, checked, scheduled and charged; as plain mappings."""
    ledger, streams = Ledger(setup.accountant, setup.epsilon, setup.delta), Streams(seed)
    used = np.zeros(setup.n_clients, dtype=np.int64)
    losses = Losses(used[:0], used[:0], np.zeros(0), np.zeros(0), np.zeros(0))
    plans: list[dict[str, Any]] = []
    round = 0
    while round < setup.rounds:
        view = PlanView(setup, round, used, ledger.left, losses)
        plan = _planned(selector, view, streams, who)
        calibration = calibrate(plan, ledger.left, setup)
        end, uses_left = round + int(plan.horizon), plan.uses.astype(np.int64)
        for now in range(round, end):
            cohort = cohort_of(plan, uses_left, now - round, streams.numpy("select", now))
            _charged(ledger, plan, calibration, cohort, now, who)
            uses_left[cohort] -= 1
            used[cohort] += 1
            losses = _answered(losses, plan, calibration, setup, cohort, now, streams)
        plans.append(
            {
                "uses": plan.uses,
                "horizon": int(plan.horizon),
                "cost": plan.cost,
                "clip_factor": plan.clip_factor,
                "probe": plan.probe,
                "cohorts": plan.cohorts,
                "adaptive": plan.adaptive,
                "notes": dict(plan.notes),
            }
        )
        round = end
    return plans


def _planned(selector: Any, view: PlanView, streams: Streams, who: str) -> Plan:
    """One plan with all that can be seen of the call."""
    before, attributes = keep(view), keep(selector)
    with no_global_draws(who, "plan"):
        try:
            plan = selector.plan(view, streams.numpy("select", -1 - view.round))
        except DpflbenchError:
            raise
        except Exception as e:  # a stranger's code may raise anything
            refuse(
                who,
                f"plan(view, rng) raises {type(e).__name__}: {e}"[:300],
                "a Plan for the rounds left",
                "plan for any number of clients, cohort and rounds, or raise DpflbenchError with the reason",
            )
    unchanged(who, "plan", before, view, "view")
    unchanged(who, "plan", attributes, selector, "its own attributes ")
    if not isinstance(plan, Plan):
        refuse(who, f"plan returns {type(plan).__name__}", "a dpflbench.interfaces.Plan", "return Plan(uses, horizon)")
    setup, fix = view.setup, "; fix: dpflbench.federation.schedule.round_uses and even_uses make such plans"
    try:
        check_plan(
            plan, n_clients=setup.n_clients, cohort_size=setup.cohort_size, rounds_left=view.rounds_left, who=who
        )
        fix = ""
        check_affordable(plan, view.left, view.used, setup, who)
    except PluginError as e:
        raise ConformanceError(f"{who}: {str(e).removeprefix(f'selector of {who}: ')}{fix}") from None
    return plan


def _charged(ledger: Ledger, plan: Plan, calibration: Calibration, cohort: Ints, round: int, who: str) -> None:
    try:
        ledger.charge(round, cohort, calibration.releases(cohort, plan.probe))
    except BudgetExceeded as e:
        refuse(
            who,
            f"its plan overspends ({e})",
            "uses * cost within view.left for every client",
            "leave Plan.cost out (even shares of what is left), or keep uses * cost at or below view.left",
        )


def _answered(
    losses: Losses, plan: Plan, calibration: Calibration, setup: Setup, cohort: Ints, round: int, streams: Streams
) -> Losses:
    """The losses with made-up noisy answers to the plan's probe."""
    if plan.probe is None:
        return losses
    rng = streams.numpy("transform", round)
    received = rng.uniform(0.0, plan.probe.loss_bound, len(cohort))
    stepped = (
        rng.uniform(0.0, plan.probe.loss_bound, len(cohort)) if plan.probe.after_step else np.full(len(cohort), np.nan)
    )
    return Losses(
        np.append(losses.round, np.full(len(cohort), round)),
        np.append(losses.client, cohort),
        np.append(losses.received, received),
        np.append(losses.stepped, stepped),
        np.append(losses.variance, setup.mechanism.variance(calibration.loss_scale()[cohort])),
    )
