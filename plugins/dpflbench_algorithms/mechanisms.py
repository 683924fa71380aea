"""Gaussian and Laplace noise. Drawn by `dpflbench.draws`: full tails, and no trace of the value in the low bits."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dpflbench.draws import LAPLACE, NORMAL, Law
from dpflbench.interfaces import Floats, Mechanism


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Normal noise of standard deviation `scale`."""

    name: ClassVar[str] = "gaussian"
    law: ClassVar[Law] = NORMAL
    clip_order: ClassVar[Literal[1, 2]] = 2
    accountant: ClassVar[str] = "gdp"

    def variance(self, scale: Floats) -> Floats:
        """Return scale²."""
        return np.square(scale)


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise of scale b = `scale` (variance 2 b²)."""

    name: ClassVar[str] = "laplace"
    law: ClassVar[Law] = LAPLACE
    clip_order: ClassVar[Literal[1, 2]] = 1
    accountant: ClassVar[str] = "pure"

    def variance(self, scale: Floats) -> Floats:
        """Return 2 scale²."""
        return 2.0 * np.square(scale)
