"""Check of a mechanism: what it claims about its own noise hangs together. What the noise hides is shown by `dpflbench
audit`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from dpflbench.interfaces import Floats, Mechanism
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import (
    attempt,
    difference,
    keep,
    needs_methods,
    no_global_draws,
    pickled,
    refuse,
    unchanged,
)
from dpflbench.testing.worlds import devices

DRAWS = 200_000
SLACK = 1 + 1e-9  # rounding; a promise broken by more than that is broken


def check_mechanism(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is a mechanism or a factory of one."""
    who = named(part, "mechanism", who)
    mechanism = obtain(part, who)
    needs_methods(
        who,
        mechanism,
        Mechanism,
        {"sample": 3, "cost": 2, "budget": 2, "epsilon": 2, "scale": 2, "variance": 1, "per_use": 4},
    )
    _attributes(mechanism, who)
    for device in devices():
        _noise(mechanism, device, who)
    _variance(mechanism, who)
    sensitivity = np.array([1e-3, 0.02, 1.0, 40.0])
    epsilon = np.array([0.1, 1.0, 3.0, 8.0])
    delta = np.zeros(4) if mechanism.pure else np.array([1e-6, 1e-5, 1e-4, 1e-5])
    _currency(mechanism, epsilon, delta, sensitivity, who)
    _shares(mechanism, epsilon, delta, who)
    pickled(who, mechanism)


def _attributes(mechanism: Any, who: str) -> None:
    rules: dict[str, Callable[[Any], bool]] = {
        "name": lambda v: isinstance(v, str) and bool(v),
        "clip_order": lambda v: v in (1, 2) and not isinstance(v, bool),
        "pure": lambda v: isinstance(v, bool),
        "exponent": lambda v: isinstance(v, int) and v >= 1,
    }
    expected = {
        "name": "a name",
        "clip_order": "1 or 2",
        "pure": "true or false",
        "exponent": "a whole number from 1 on",
    }
    for name, fits in rules.items():
        value = getattr(mechanism, name, None)
        if not fits(value):
            refuse(who, f"{name} is {value!r}", expected[name], f"set {name} as dpflbench.interfaces.Mechanism says")


def _noise(mechanism: Any, device: str, who: str) -> None:
    """Shape, type and device follow the scale; the rng decides everything."""
    scale = torch.tensor([[0.5], [2.0], [1e-3]], device=device)
    before = keep(scale)

    def draw(seed: int) -> Any:
        return attempt(
            who,
            "sample(scale, shape, rng)",
            "noise",
            lambda: mechanism.sample(scale, (3, 7), torch.Generator(device=device).manual_seed(seed)),
        )

    with no_global_draws(who, "sample"):
        noise = draw(1)
    unchanged(who, "sample", before, scale, "scale ")
    if (
        not isinstance(noise, torch.Tensor)
        or noise.shape != (3, 7)
        or noise.dtype != scale.dtype
        or noise.device != scale.device
    ):
        found = (
            f"{noise.dtype} {tuple(noise.shape)} on {noise.device}"
            if isinstance(noise, torch.Tensor)
            else type(noise).__name__
        )
        refuse(
            who,
            f"sample returns {found}",
            f"{scale.dtype} (3, 7) on {scale.device}, as the scale",
            "draw with shape, dtype and device",
        )
    if difference(noise, draw(1)):
        refuse(who, "two draws under one seed differ", "noise that the rng argument determines", "pass generator=rng")
    if not difference(noise, draw(2)) or not bool(torch.isfinite(noise).all()) or bool((noise == 0).all(1).any()):
        refuse(
            who,
            "noise is not finite, is zero, or is the same under two seeds",
            "fresh finite noise",
            "draw from the rng at the given scale",
        )


def _variance(mechanism: Any, who: str) -> None:
    """The variance it names is the variance of what it draws: aggregators weigh by it."""
    for scale in (0.5, 3.0):
        drawn = mechanism.sample(
            torch.full((DRAWS,), scale, dtype=torch.float64), (DRAWS,), torch.Generator().manual_seed(11)
        )
        claimed = float(np.asarray(mechanism.variance(np.array([scale])))[0])
        measured, mean = float(drawn.var()), float(drawn.mean())
        if not abs(measured / claimed - 1) < 0.05 or abs(mean) > 6 * (claimed / DRAWS) ** 0.5:
            refuse(
                who,
                f"at scale {scale} the variance of {DRAWS} draws is {measured:.4g} (mean {mean:.2g}), by "
                f"variance() {claimed:.4g}",
                "noise around 0 of the variance it claims",
                "make sample and variance speak of the same distribution",
            )


def _currency(mechanism: Any, epsilon: Floats, delta: Floats, sensitivity: Floats, who: str) -> None:
    """Costs add up, calibration never exceeds what it may spend, and (epsilon, delta) survive the way there and
    back.
    """
    budget = np.asarray(attempt(who, "budget(epsilon, delta)", "[N, A]", lambda: mechanism.budget(epsilon, delta)))
    if budget.ndim != 2 or len(budget) != 4 or not (np.isfinite(budget) & (budget > 0)).any(-1).all():
        refuse(
            who,
            f"budget of 4 clients is {budget!r:.80}",
            "positive numbers [4, A]",
            "return the total with a last axis: total[..., None]",
        )
    back = np.asarray(attempt(who, "epsilon(cost, delta)", "[N]", lambda: mechanism.epsilon(budget, delta)))
    if back.shape != (4,) or not (back <= epsilon * SLACK).all():
        refuse(
            who,
            f"spending the whole budget of epsilon {epsilon} amounts to {back}",
            "at most the epsilon it came from",
            "round budget() down and epsilon() up",
        )
    for share in (1.0, 0.1, 1e-4):
        part = budget * share
        scale = np.asarray(attempt(who, "scale(cost, sensitivity)", "[N]", partial(mechanism.scale, part, sensitivity)))
        cost = np.asarray(mechanism.cost(scale, sensitivity)) if scale.shape == (4,) else np.zeros(0)
        if cost.shape != budget.shape or not (cost <= part * SLACK).any(-1).all():
            refuse(
                who,
                f"a release calibrated to {part.ravel()} costs {cost.ravel()}",
                "at most what it was calibrated to, [N, A]",
                "round scale() up",
            )
        if not (np.asarray(mechanism.cost(scale * 2, sensitivity)) < cost).all():
            refuse(
                who,
                "twice the noise does not cost less",
                "a cost that falls as the scale grows",
                "check cost() against scale()",
            )
    with np.errstate(all="ignore"):
        none, unpaid = mechanism.cost(np.zeros(4), sensitivity), mechanism.scale(np.zeros_like(budget), sensitivity)
    if not np.isinf(none).all() or not np.isinf(unpaid).all():
        refuse(
            who,
            f"no noise costs {np.ravel(none)[0]:g} and a cost of 0 needs scale {np.ravel(unpaid)[0]:g}",
            "infinity in both cases, never NaN",
            "treat 0 explicitly: no noise is never free",
        )


def _shares(mechanism: Any, epsilon: Floats, delta: Floats, who: str) -> None:
    """A plan's shares add up to what is left, and a client without uses has no cost."""
    left, uses = np.asarray(mechanism.budget(epsilon, delta)), np.array([0.0, 1.0, 7.0, 200.0])
    share = np.asarray(
        attempt(
            who, "per_use(left, uses, epsilon, delta)", "[N, A]", lambda: mechanism.per_use(left, uses, epsilon, delta)
        )
    )
    if share.shape != left.shape or not (share * uses[:, None] <= left * SLACK).any(-1).all() or (share[0] != 0).any():
        refuse(
            who,
            f"shares {share.ravel()} of {left.ravel()} for {uses} uses",
            "uses * share within what is left, and 0 for no uses",
            "divide what is left by the uses",
        )
