"""Check of an accountant: what it claims about costs hangs together, and where it has a second opinion the two
agree.
"""

from functools import partial
from typing import Any

import numpy as np

from dpflbench.interfaces import Accountant, Event, Floats
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import attempt, needs_methods, pickled, refuse

SLACK = 1 + 1e-9  # rounding; a promise broken by more than that is broken
LAWS = ("gaussian", "laplace")


def check_accountant(part: Any, who: str = "", laws: tuple[str, ...] = LAWS) -> None:
    """Raise ConformanceError at the first broken rule; `part` is an accountant or a factory of one.

    `laws` are those of the installed mechanisms: it must have a proof for full releases under one of them.
    """
    who = named(part, "accountant", who)
    accountant = obtain(part, who)
    methods = {"supports": 1, "cost": 1, "budget": 2, "epsilon": 2, "scale": 2, "per_use": 4, "second_opinion": 3}
    methods |= {"of": 2, "settled": 2}
    needs_methods(who, accountant, Accountant, methods)
    for name, kind, expected in (
        ("name", str, "a name"),
        ("pure", bool, "true or false"),
        ("exponent", int, "0 or more"),
    ):
        value = getattr(accountant, name, None)
        if not isinstance(value, kind) or value == "" or (isinstance(value, int) and value < 0):
            refuse(who, f"{name} is {value!r}", expected, f"set {name} as dpflbench.interfaces.Accountant says")
    known = [
        law for law in laws if not attempt(who, "supports(event)", "a text", partial(accountant.supports, _event(law)))
    ]
    if not known:
        refuse(
            who,
            f"has a proof for none of {', '.join(laws)} noise",
            "releases it supports under an installed mechanism",
            "return '' from supports for the noise it is made for",
        )
    epsilon = np.array([0.1, 1.0, 3.0, 10.0])
    delta = np.zeros(4) if accountant.pure else np.array([1e-6, 1e-5, 1e-4, 1e-5])
    accountant = attempt(who, "of(epsilon, delta)", "an accountant", lambda: accountant.of(epsilon, delta))
    sampled = [_event(law, rate=0.1, steps=5) for law in known]
    for event in (*map(_event, known), *(event for event in sampled if not accountant.supports(event))):
        _currency(accountant, epsilon, delta, event, who)
        _second(accountant, epsilon, delta, event, who)
    _shares(accountant, epsilon, delta, who)
    pickled(who, accountant)


def _event(law: str, rate: float = 1.0, steps: int = 1) -> Event:
    """Releases of each of four clients, full ones unless told otherwise."""
    sensitivity = np.array([0.02, 1.0, 0.5, 1e-4])
    return Event(
        kind="gradient",
        law=law,
        sensitivity=sensitivity,
        scale=np.full(4, np.nan),
        rate=np.full(4, rate),
        steps=np.full(4, steps, dtype=np.int64),
        neighbours="zero_out",
    )


def _second(accountant: Any, epsilon: Floats, delta: Floats, event: Event, who: str) -> None:
    """Whoever else is asked must find no more than the accountant itself."""
    spent = event.at(accountant.scale(accountant.budget(epsilon, delta) / 2, event))
    second = attempt(
        who,
        "second_opinion(events, client, delta)",
        "a name and an epsilon a client, or None",
        lambda: accountant.second_opinion(spent, np.arange(4), delta),
    )
    if second is None:
        return
    mine = accountant.epsilon(accountant.cost(spent), delta)
    if len(second) != 2 or not (np.asarray(second[1]) <= mine + 1e-6 * (1 + mine)).all():
        refuse(
            who,
            f"charges epsilon {mine}, its second opinion {second[1]!r:.80}",
            "a second opinion at or below its own",
            "mend the one that is wrong",
        )


def _currency(accountant: Any, epsilon: Floats, delta: Floats, event: Event, who: str) -> None:
    """Costs add up, calibration never exceeds what it may spend, and (epsilon, delta) survive the way there and
    back.
    """
    budget = np.asarray(attempt(who, "budget(epsilon, delta)", "[N, A]", lambda: accountant.budget(epsilon, delta)))
    if budget.ndim != 2 or len(budget) != 4 or not (np.isfinite(budget) & (budget > 0)).any(-1).all():
        refuse(
            who,
            f"budget of 4 clients is {budget!r:.80}",
            "positive numbers [4, A]",
            "return the total with a last axis: total[..., None]",
        )
    back = np.asarray(attempt(who, "epsilon(cost, delta)", "[N]", lambda: accountant.epsilon(budget, delta)))
    if back.shape != (4,) or not (back <= epsilon * SLACK).all():
        refuse(
            who,
            f"spending the whole budget of epsilon {epsilon} amounts to {back}",
            "at most the epsilon it came from",
            "round budget() down and epsilon() up",
        )
    for share in (1.0, 0.1, 1e-4):
        part = budget * share
        scale = np.asarray(attempt(who, "scale(cost, event)", "[N]", partial(accountant.scale, part, event)))
        cost = np.asarray(accountant.cost(event.at(scale))) if scale.shape == (4,) else np.zeros(0)
        if cost.shape != budget.shape or not (cost <= part * SLACK).any(-1).all():
            refuse(
                who,
                f"a release calibrated to {part.ravel()} costs {cost.ravel()}",
                "at most what it was calibrated to, [N, A]",
                "round scale() up",
            )
        if not (np.asarray(accountant.cost(event.at(scale * 2))) < cost).all():
            refuse(
                who,
                "twice the noise does not cost less",
                "a cost that falls as the scale grows",
                "check cost() against scale()",
            )
    with np.errstate(all="ignore"):
        none, unpaid = accountant.cost(event.at(np.zeros(4))), accountant.scale(np.zeros_like(budget), event)
    if not np.isinf(none).all() or not np.isinf(unpaid).all():
        refuse(
            who,
            f"no noise costs {np.ravel(none)[0]:g} and a cost of 0 needs scale {np.ravel(unpaid)[0]:g}",
            "infinity in both cases, never NaN",
            "treat 0 explicitly: no noise is never free",
        )


def _shares(accountant: Any, epsilon: Floats, delta: Floats, who: str) -> None:
    """A plan's shares add up to what is left, and a client without uses has no cost."""
    left, uses = np.asarray(accountant.budget(epsilon, delta)), np.array([0.0, 1.0, 7.0, 200.0])
    share = np.asarray(
        attempt(
            who, "per_use(left, uses, epsilon, delta)", "[N, A]", lambda: accountant.per_use(left, uses, epsilon, delta)
        )
    )
    if share.shape != left.shape or not (share * uses[:, None] <= left * SLACK).any(-1).all() or (share[0] != 0).any():
        refuse(
            who,
            f"shares {share.ravel()} of {left.ravel()} for {uses} uses",
            "uses * share within what is left, and 0 for no uses",
            "divide what is left by the uses",
        )
