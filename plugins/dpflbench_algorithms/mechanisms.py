"""Gaussian and Laplace noise: what is drawn.

Floating-point noise is not the real-valued noise of the proofs: an adversary who reads the low bits of single
coordinates can learn from them (Mironov, "On significance of the least significant bits", 2012). Benchmarks measure
utility and spending; a deployment that publishes updates needs a discrete mechanism as well.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from dpflbench.interfaces import Floats, Mechanism


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Normal noise of standard deviation `scale`."""

    name: ClassVar[str] = "gaussian"
    law: ClassVar[str] = "gaussian"
    clip_order: ClassVar[Literal[1, 2]] = 2
    accountant: ClassVar[str] = "gdp"

    def sample(self, scale: Tensor, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        """Draw scale * N(0, 1) in one call. In float32 torch's normals end at about 6 standard deviations on some
        devices.
        """
        return scale * torch.randn(shape, generator=rng, device=scale.device, dtype=scale.dtype)

    def variance(self, scale: Floats) -> Floats:
        """Return scale²."""
        return np.square(scale)


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise of scale b = `scale` (variance 2 b²)."""

    name: ClassVar[str] = "laplace"
    law: ClassVar[str] = "laplace"
    clip_order: ClassVar[Literal[1, 2]] = 1
    accountant: ClassVar[str] = "pure"

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

    def variance(self, scale: Floats) -> Floats:
        """Return 2 scale²."""
        return 2.0 * np.square(scale)
