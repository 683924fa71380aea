"""Check of a mechanism: what it claims about its own noise hangs together. What its law and its accountant claim is
held against its draws in `testing.laws`; what the noise hides is shown by `dpflbench audit`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpflbench.catalogue import Part, load
from dpflbench.draws import Draws, Law
from dpflbench.interfaces import Mechanism
from dpflbench.testing.factories import named, obtain, required
from dpflbench.testing.laws import check_law
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

DRAWS = 200_000
SLACK = 1 + 1e-9  # rounding; a promise broken by more than that is broken


def check_mechanism(part: Any, who: str = "", accountants: Mapping[str, Part] | None = None) -> None:
    """Raise ConformanceError at the first broken rule; `part` is a mechanism or a factory of one.

    `accountants` are the installed ones: the one it names is held against its law, if it is there.
    """
    who = named(part, "mechanism", who)
    mechanism = obtain(part, who)
    needs_methods(who, mechanism, Mechanism, {"noised": 3, "variance": 1, "release": 3, "event": 4})
    _attributes(mechanism, who)
    _noise(mechanism, who)
    _variance(mechanism, who)
    known = load().parts["accountants"] if accountants is None else accountants
    priced = known.get(mechanism.accountant)
    check_law(mechanism, priced.factory() if priced is not None and not required(priced.factory) else None, who)
    pickled(who, mechanism)


def _attributes(mechanism: Any, who: str) -> None:
    def text(value: Any) -> bool:
        return isinstance(value, str) and bool(value)

    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "name": (text, "a name"),
        "law": (lambda v: isinstance(v, Law) and text(v.name), "a dpflbench.draws.Law whose name an accountant knows"),
        "accountant": (text, "the name of an accountant"),
        "clip_order": (lambda v: v in (1, 2) and not isinstance(v, bool), "1 or 2"),
    }
    for name, (fits, expected) in rules.items():
        value = getattr(mechanism, name, None)
        if not fits(value):
            refuse(who, f"{name} is {value!r}", expected, f"set {name} as dpflbench.interfaces.Mechanism says")


def _noise(mechanism: Any, who: str) -> None:
    """The shape of the value, fresh and finite; the draws decide everything."""
    value, scale = np.linspace(-1.0, 1.0, 21).reshape(3, 7), np.array([0.5, 2.0, 1e-3])
    before = keep((value, scale))

    def noised(stream: int) -> Any:
        draws = Draws(bytes([stream] * 32))
        return attempt(
            who, "noised(value, scale, draws)", "noisy values", lambda: mechanism.noised(value, scale, draws)
        )

    with no_global_draws(who, "noised"):
        noisy = noised(1)
    unchanged(who, "noised", before, (value, scale), "value or scale ")
    if not isinstance(noisy, np.ndarray) or noisy.shape != (3, 7) or noisy.dtype != np.float64:
        found = f"{noisy.dtype} {noisy.shape}" if isinstance(noisy, np.ndarray) else type(noisy).__name__
        refuse(who, f"noised returns {found}", "float64 (3, 7), as the value", "add noise to an array of its shape")
    if difference(noisy, noised(1)):
        refuse(who, "two draws from one stream differ", "noise that `draws` determines", "draw from `draws` alone")
    if not difference(noisy, noised(2)) or not np.isfinite(noisy).all() or (noisy == value).all(1).any():
        refuse(
            who,
            "noise is not finite, is zero, or is the same in two streams",
            "fresh finite noise",
            "draw from `draws` at the given scale",
        )


def _variance(mechanism: Any, who: str) -> None:
    """The variance it names is the variance of what it draws: aggregators weigh by it."""
    for scale in (0.5, 3.0):
        drawn = mechanism.noised(np.zeros((1, DRAWS)), np.array([scale]), Draws(bytes([11] * 32)))
        claimed = float(np.asarray(mechanism.variance(np.array([scale])))[0])
        measured, mean = float(drawn.var()), float(drawn.mean())
        if not abs(measured / claimed - 1) < 0.05 or abs(mean) > 6 * (claimed / DRAWS) ** 0.5:
            refuse(
                who,
                f"at scale {scale} the variance of {DRAWS} draws is {measured:.4g} (mean {mean:.2g}), by "
                f"variance() {claimed:.4g}",
                "noise around 0 of the variance it claims",
                "make noised and variance speak of the same distribution",
            )
