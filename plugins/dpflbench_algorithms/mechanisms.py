"""Gaussian and Laplace noise: what is drawn, what it costs, how much of it a budget needs.

Scales are rounded up to float32 numbers, at least the smallest normal one: the noise drawn on the device is then
exactly the noise the ledger charges. Conversions err to the private side, each by a few units in the last place.

Floating-point noise is not the real-valued noise of the proofs: an adversary who reads the low bits of single
coordinates can learn from them (Mironov, "On significance of the least significant bits", 2012). Benchmarks measure
utility and spending; a deployment that publishes updates needs a discrete mechanism as well.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from dpflbench.interfaces import Floats, Mechanism
from dpflbench.privacy.gaussian_dp import epsilon_of, mu_of

UP, DOWN = 1 + 2.0**-50, 1 - 2.0**-50  # four ulps of slack: more than a quotient, a root and a product can round
SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Normal noise of standard deviation `scale`. Currency: mu² of Gaussian DP, exact under composition.

    composition="exact" splits mu² evenly over the uses, so variance grows with uses (the paper's Lemma 1, exponent 1).
    composition="linear" is the paper's Algorithm 2 to the letter: each use gets (epsilon / uses, delta / uses) and the
    classic scale = sensitivity sqrt(2 ln(1.25 / delta)) / epsilon, so variance grows with uses² (and a logarithm;
    exponent 2). The ledger accounts exactly in both cases: linear leaves most of the budget unspent, and never gets
    more than the exact even share.
    """

    name: ClassVar[str] = "gaussian"
    clip_order: ClassVar[Literal[1, 2]] = 2
    composition: Literal["exact", "linear"] = "exact"
    exponent: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exponent", 2 if self.composition == "linear" else 1)

    def sample(self, scale: Tensor, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        """Draw scale * N(0, 1) in one call. In float32 torch's normals end at about 6 standard deviations on some
        devices.
        """
        return scale * torch.randn(shape, generator=rng, device=scale.device, dtype=scale.dtype)

    def cost(self, scale: Floats, sensitivity: Floats) -> Floats:
        """Return mu² = (sensitivity / scale)² as [..., 1]."""
        return (_ratio(sensitivity, scale) ** 2)[..., None]

    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """Return mu² at (epsilon, delta), rounded down, as [..., 1]."""
        return (mu_of(epsilon, delta) ** 2 * DOWN)[..., None]

    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """Return the exact epsilon of a total mu² at delta, rounded up."""
        return epsilon_of(np.sqrt(cost[..., 0]) * (1 + 2.0**-52), delta)

    def scale(self, cost: Floats, sensitivity: Floats) -> Floats:
        """Return sensitivity / sqrt(cost), rounded up; inf where cost is 0."""
        return _round_up(_ratio(sensitivity, np.sqrt(cost[..., 0])))

    def variance(self, scale: Floats) -> Floats:
        """Return scale²."""
        return np.square(scale)

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


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise of scale b = `scale` (variance 2 b²). Currency: pure epsilon, additive; delta is not used."""

    name: ClassVar[str] = "laplace"
    clip_order: ClassVar[Literal[1, 2]] = 1
    pure: ClassVar[bool] = True
    exponent: int = field(init=False, default=2)

    def sample(self, scale: Tensor, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        """Draw scale * Laplace(0, 1) by inverting its distribution function at one uniform number a coordinate.

        A uniform u in [0, 1) is a multiple of step = 2^-24 (float32) or 2^-53; u + step/2 stands for it, so that
        neither end is ever reached and no noise is infinite. The price: in float32 the tails end at 24 ln 2 = 16.6
        scales, with 6e-8 of the mass beyond.
        """
        step = torch.finfo(scale.dtype).eps / 2
        u = torch.rand(shape, generator=rng, device=scale.device, dtype=scale.dtype)
        tail = torch.minimum(
            u + step / 2, (1 - u) - step / 2
        )  # distance to the nearer end; the smaller of the two is exact
        size = torch.log_(2 * tail)  # minus the noise's size
        return scale * torch.where(u < 0.5, size, -size)

    def cost(self, scale: Floats, sensitivity: Floats) -> Floats:
        """Return epsilon = sensitivity / scale as [..., 1]."""
        return _ratio(sensitivity, scale)[..., None]

    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """Return epsilon as [..., 1]."""
        return np.asarray(epsilon, dtype=np.float64)[..., None]

    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """Return the total itself."""
        return cost[..., 0]

    def scale(self, cost: Floats, sensitivity: Floats) -> Floats:
        """Return sensitivity / cost, rounded up; inf where cost is 0."""
        return _round_up(_ratio(sensitivity, cost[..., 0]))

    def variance(self, scale: Floats) -> Floats:
        """Return 2 scale²."""
        return 2.0 * np.square(scale)


def _ratio(above: Floats, below: Floats) -> Floats:
    """above / below, inf where below is 0 (also for 0 / 0: no noise is never free)."""
    above, below = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(below == 0, np.inf, above / below)


def _round_up(scale: Floats) -> Floats:
    """The next float32 number above scale and its slack, as float64."""
    with np.errstate(over="ignore"):
        wanted = np.maximum(scale * UP, SMALLEST)
        near = wanted.astype(np.float32)
        up = np.where(near.astype(np.float64) < wanted, np.nextafter(near, np.float32(np.inf)), near)
    return up.astype(np.float64)
