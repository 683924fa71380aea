"""Check of a mechanism's law: the law is one, the draws follow it, and the accountant charges for no more noise than it
has.
"""

import math
from typing import Any

import numpy as np
import torch

from dpflbench.draws import Draws, Law
from dpflbench.interfaces import Accountant, Floats
from dpflbench.privacy.residuals import Tape, examine, excess, excess_table, shadowed
from dpflbench.testing.rules import attempt, refuse

CALLS, CLIENTS, WIDTH = 30, 40, 250  # 300,000 draws: noise at 0.99 of its scale is seen
RATIOS = (0.05, 0.5, 2.0)  # sensitivity over scale


def check_law(mechanism: Any, accountant: Accountant | None, who: str) -> None:
    """Refuse a law that contradicts itself, noise of another law, and an accountant that thinks it hides more."""
    _sound(mechanism.law, who)
    _drawn(mechanism, who)
    if accountant is not None:
        _priced(mechanism, accountant, who)


def _sound(law: Law, who: str) -> None:
    """Its three functions are of one distribution."""
    from mpmath import MPContext

    mp = MPContext()
    tail = np.array([1.0, 0.9, 0.5, 1e-2, 1e-4, 1e-9])
    z = np.asarray(attempt(who, "law.quantile(u)", "z", lambda: law.quantile(tail)))
    quick = np.asarray(attempt(who, "law.quick(x)", "z", lambda: law.quick(np.concatenate([tail - 1, 1 - tail]))))
    again = np.array([float(law.survival(mp, mp.mpf(float(v)))) for v in z])
    if (
        not (np.diff(z) > 0).all()
        or not np.allclose(again, tail, rtol=1e-9, atol=0)
        or not np.allclose(quick[:5], -z[:5], rtol=1e-6, atol=1e-9)
        or not np.allclose(quick[6:11], z[:5], rtol=1e-6, atol=1e-9)
    ):
        refuse(
            who,
            f"its law: P(|Z| > z) at quantile(u) for u = {tail} is {again}",
            "quick, quantile and survival of one symmetric distribution",
            "derive all three from the same formula",
        )


def _drawn(mechanism: Any, who: str) -> None:
    """Residuals of 300,000 draws, at small and large scales and values, against the law."""
    tape, rng = Tape(), np.random.default_rng(3)
    shadow = shadowed(mechanism, tape)
    for call in range(CALLS):
        scale = rng.choice([1e-6, 0.3, 1.0, 1e4], CLIENTS)
        value = rng.normal(size=(CLIENTS, WIDTH)) * scale[:, None] * 10.0 ** (call % 4 - 3)
        draws = Draws(call.to_bytes(32, "big"))
        attempt(
            who,
            "release(value, scale, draws)",
            "noisy values",
            lambda v=value, s=scale, d=draws: shadow.release(torch.from_numpy(v), s, d),  # type: ignore[misc]
        )
    found = examine(tape, mechanism.law)
    if found.alarms:
        worst = min(found.alarms, key=lambda test: test.p)
        refuse(
            who,
            f"{found.residuals:,} draws are not of its law, {mechanism.law.name} ({worst.name}: {worst.about})",
            "independent draws of the law it declares at the scale it is given",
            "return draws.noised(value, scale, self.law), or declare the law that is drawn",
        )


def _priced(mechanism: Any, accountant: Accountant, who: str) -> None:
    """The epsilon an accountant charges for one release is not below what one coordinate of the noise gives away."""
    for ratio in RATIOS:
        event = mechanism.event("gradient", np.array([ratio])).at(np.ones(1))
        why = accountant.supports(event)
        if why:
            refuse(who, f"accountant {accountant.name} has no proof for it: {why}", "one that has", "name another")
        delta = 0.0 if accountant.pure else 1e-5
        charged = float(accountant.epsilon(accountant.cost(event), np.array([delta]))[0])
        shown = given_away(mechanism.law, ratio, charged)
        if shown > delta * 1.01 + 1e-9:
            refuse(
                who,
                f"accountant {accountant.name} charges epsilon {charged:.4g} for a sensitivity of {ratio:g} scales; "
                f"at that epsilon its law gives away delta {shown:.3g}, not {delta:.3g}",
                "a law whose noise is what its accountant proves",
                "give the law the scale its accountant means, or name the accountant it belongs to",
            )


def given_away(law: Law, ratio: float, epsilon: float) -> float:
    """A lower bound on delta at epsilon when noise of scale 1 is shifted by `ratio`: the best test by a threshold."""
    edges, _ = excess_table(law)
    points = np.concatenate([-edges[::-1], edges]) + ratio / 2

    def above(c: Floats) -> Floats:
        half = np.exp(-excess(law, np.abs(c))) / 2
        return np.where(c > 0, half, 1 - half)

    near = above(points - ratio) * (1 - 1e-6)  # what the table may be off by
    return float(np.max(near - math.exp(min(epsilon, 700.0)) * above(points)))
