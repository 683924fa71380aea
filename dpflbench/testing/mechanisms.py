"""Check of a mechanism: what it claims about its own noise hangs together. What the noise hides is shown by `dpflbench
audit`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dpflbench.interfaces import Mechanism
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
    needs_methods(who, mechanism, Mechanism, {"sample": 3, "variance": 1, "release": 3, "event": 4})
    _attributes(mechanism, who)
    for device in devices():
        _noise(mechanism, device, who)
    _variance(mechanism, who)
    pickled(who, mechanism)


def _attributes(mechanism: Any, who: str) -> None:
    def text(value: Any) -> bool:
        return isinstance(value, str) and bool(value)

    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "name": (text, "a name"),
        "law": (text, "the name of a distribution that an accountant knows"),
        "accountant": (text, "the name of an accountant"),
        "clip_order": (lambda v: v in (1, 2) and not isinstance(v, bool), "1 or 2"),
    }
    for name, (fits, expected) in rules.items():
        value = getattr(mechanism, name, None)
        if not fits(value):
            refuse(who, f"{name} is {value!r}", expected, f"set {name} as dpflbench.interfaces.Mechanism says")


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
