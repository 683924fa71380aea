"""Gaussian DP and pure DP as accountants: what a release costs, how much noise a budget needs.

Scales are rounded up to float32 numbers, at least the smallest normal one: the noise drawn on the device is then
exactly the noise the ledger charges. Conversions err to the private side, each by a few units in the last place.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from dpflbench.interfaces import Accountant, Event, Floats, Ints
from dpflbench.privacy.gaussian_dp import epsilon_of, mu_of

UP, DOWN = 1 + 2.0**-50, 1 - 2.0**-50  # four ulps of slack: more than a quotient, a root and a product can round
SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class GaussianDP(Accountant):
    """Gaussian releases of everything a client has. Currency: mu² of Gaussian DP, exact under composition.

    composition="exact" splits mu² evenly over the uses, so variance grows with uses (the paper's Lemma 1, exponent 1).
    composition="linear" is the paper's Algorithm 2 to the letter: each use gets (epsilon / uses, delta / uses) and the
    classic scale = sensitivity sqrt(2 ln(1.25 / delta)) / epsilon, so variance grows with uses² (and a logarithm;
    exponent 2). The ledger accounts exactly in both cases: linear leaves most of the budget unspent, and never gets
    more than the exact even share.
    """

    name: ClassVar[str] = "gdp"
    composition: Literal["exact", "linear"] = "exact"
    exponent: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exponent", 2 if self.composition == "linear" else 1)

    def supports(self, event: Event) -> str:
        """Return nothing for Gaussian noise without subsampling."""
        return _whole(event, "gaussian")

    def cost(self, event: Event) -> Floats:
        """Return mu² = (sensitivity / scale)² as [..., 1]."""
        return (_ratio(event.sensitivity, event.scale) ** 2)[..., None]

    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """Return mu² at (epsilon, delta), rounded down, as [..., 1]."""
        return (mu_of(epsilon, delta) ** 2 * DOWN)[..., None]

    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """Return the exact epsilon of a total mu² at delta, rounded up."""
        return epsilon_of(np.sqrt(cost[..., 0]) * (1 + 2.0**-52), delta)

    def scale(self, cost: Floats, event: Event) -> Floats:
        """Return sensitivity / sqrt(cost), rounded up; inf where cost is 0."""
        return round_up(_ratio(event.sensitivity, np.sqrt(cost[..., 0])))

    def per_use(self, left: Floats, uses: Floats, epsilon: Floats, delta: Floats) -> Floats:
        """Return even shares of mu²; with "linear" what the classic scale at (epsilon / uses, delta / uses) costs, if
        that is less.

        Differs: the classic calibration is proved for epsilon < 1 only; the cap by the even share makes it private for
        any. A selector that plans twice hands over the uses of each plan, and each splits the whole (epsilon, delta)
        under that cap.
        """
        share = super().per_use(left, uses, epsilon, delta)
        if self.composition == "exact":
            return share
        times = np.maximum(uses, 1.0)
        with np.errstate(divide="ignore"):  # delta 0 has no Gaussian: the logarithm is inf and the share 0
            classic = epsilon**2 / (2.0 * times**2 * np.log(1.25 * times / delta))
        return np.minimum(share, np.asarray(classic * DOWN)[:, None])

    def second_opinion(self, events: Event, client: Ints, delta: Floats) -> tuple[str, Floats]:
        """Return what dp-accounting says: its analytic Gaussian, which its Rényi accountant must not contradict."""
        from dpflbench.judges.second_accountant import gaussian_epsilon, opinion

        return opinion(gaussian_epsilon, events, client, delta)


@dataclass(frozen=True)
class PureDP(Accountant):
    """Laplace releases of everything a client has. Currency: pure epsilon, additive; delta is not used."""

    name: ClassVar[str] = "pure"
    pure: ClassVar[bool] = True
    exponent: int = field(init=False, default=2)

    def supports(self, event: Event) -> str:
        """Return nothing for Laplace noise without subsampling."""
        return _whole(event, "laplace")

    def cost(self, event: Event) -> Floats:
        """Return epsilon = sensitivity / scale as [..., 1]."""
        return _ratio(event.sensitivity, event.scale)[..., None]

    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """Return epsilon as [..., 1]."""
        return np.asarray(epsilon, dtype=np.float64)[..., None]

    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """Return the total itself."""
        return cost[..., 0]

    def scale(self, cost: Floats, event: Event) -> Floats:
        """Return sensitivity / cost, rounded up; inf where cost is 0."""
        return round_up(_ratio(event.sensitivity, cost[..., 0]))

    def second_opinion(self, events: Event, client: Ints, delta: Floats) -> tuple[str, Floats]:
        """Return what dp-accounting's privacy loss of each release adds up to."""
        from dpflbench.judges.second_accountant import laplace_epsilon, opinion

        return opinion(laplace_epsilon, events, client, delta)


def _whole(event: Event, law: str) -> str:
    """Empty for releases of that law that use all of a client's records once, else what they are instead."""
    if event.law != law:
        return f"{event.law} noise; allowed: {law}"
    if (event.rate != 1).any() or (event.steps != 1).any():
        return "several steps or a sample of the records in a release; allowed: rate 1, one step"
    return ""


def _ratio(above: Floats, below: Floats) -> Floats:
    """above / below, inf where below is 0 (also for 0 / 0: no noise is never free)."""
    above, below = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(below == 0, np.inf, above / below)


def round_up(scale: Floats) -> Floats:
    """The next float32 number above scale and its slack, as float64."""
    with np.errstate(over="ignore"):
        wanted = np.maximum(scale * UP, SMALLEST)
        near = wanted.astype(np.float32)
        up = np.where(near.astype(np.float64) < wanted, np.nextafter(near, np.float32(np.inf)), near)
    return up.astype(np.float64)
