"""Prices as a reading has them, and what its releases really cost.

An accountant here calibrates and charges by what its reading claims, so that a run has the noise the reading would have
had. That is no proof, and it says so (`unproved`); its second opinion is dp-accounting on the true sensitivities, so
`dpflbench verify` names the true epsilon beside the claimed one and every table marks the row. How far a record really
moves a release, against what the reading claims:

* l2_clip, sqrt(dim) times: a sample clipped to B in L2 has an L1 norm of up to sqrt(dim) B, and Laplace noise hides L1
  distances. Tight: a gradient whose coordinates are all alike has that norm.
* halved, twice: replacing a sample takes one clipped gradient away and brings another, 2 B / D and not B / D. Tight:
  the two may point in opposite directions. (B / D is right where a neighbour's record contributes nothing, `zero_out`.)
* kept_momentum, 1 / (1 - beta) times: a client releases m_j = sum_i beta^(j - i) g_i. Given earlier releases the models
  are fixed, so each g_i moves by at most 2 B / D, and m_j by at most that times the sum of beta^i.
* l2_clip_momentum, both: sqrt(dim) / (1 - beta) times.
* epoch, no finite bound is claimed here: after the batch with the record every later step of the epoch starts from a
  model that depends on it, and clipping bounds each step by B and not by B / D.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Event, Floats, Ints
from dpflbench_algorithms.accountants import GaussianDP, PureDP, round_up

Reading = Literal["l2_clip", "halved", "kept_momentum", "l2_clip_momentum", "epoch"]
WHY: dict[Reading, str] = {
    "l2_clip": "samples are clipped in L2 and Laplace noise hides L1 distances, up to sqrt(dim) times as long",
    "halved": "replacing a record moves a mean of clipped gradients by 2 B / D, and the noise is for B / D",
    "kept_momentum": "a momentum of gradients without noise moves by up to 1 / (1 - beta) times what one of them does",
    "l2_clip_momentum": "samples are clipped in L2 under Laplace noise, and a momentum without noise of its own leaves",
    "epoch": "noise once for a whole epoch of steps, of which each after a record's own depends on it",
}


def stretch(reading: Reading, dim: int, beta: float) -> float:
    """How many times further a record moves a release than its reading claims, at most."""
    if dim < 0:
        raise DpflbenchError(f"dim: {dim}; allowed: the number of coordinates noised together, or 0 for unknown")
    if not 0 <= beta < 1:
        raise DpflbenchError(f"beta: {beta}; allowed: 0 to below 1")
    return {
        "l2_clip": math.sqrt(dim) if dim else math.inf,
        "halved": 2.0,
        "kept_momentum": 1 / (1 - beta),
        "l2_clip_momentum": (math.sqrt(dim) if dim else math.inf) / (1 - beta),
        "epoch": math.inf,
    }[reading]


@dataclass(frozen=True)
class GaussianAsPrinted(GaussianDP):
    """Gaussian releases at the price a reading claims for them."""

    name: ClassVar[str] = "as_printed_gdp"
    reading: Literal["halved", "kept_momentum", "epoch"] = "halved"
    beta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        stretch(self.reading, 1, self.beta)

    @property
    def unproved(self) -> str:
        """Return what is wrong with the reading."""
        return WHY[self.reading]

    def second_opinion(self, events: Event, client: Ints, delta: Floats) -> tuple[str, Floats]:
        """Return the true epsilon, by dp-accounting."""
        return super().second_opinion(_stretched(events, stretch(self.reading, 1, self.beta)), client, delta)


@dataclass(frozen=True)
class PureAsPrinted(PureDP):
    """Laplace releases at the price a reading claims for them."""

    name: ClassVar[str] = "as_printed_pure"
    reading: Reading = "l2_clip"
    dim: int = 0  # of the message, for l2_clip; 0: unknown, and then there is no finite bound
    beta: float = 0.9

    def __post_init__(self) -> None:
        stretch(self.reading, self.dim, self.beta)

    @property
    def unproved(self) -> str:
        """Return what is wrong with the reading."""
        return WHY[self.reading]

    def second_opinion(self, events: Event, client: Ints, delta: Floats) -> tuple[str, Floats]:
        """Return the true epsilon, by dp-accounting."""
        return super().second_opinion(_stretched(events, stretch(self.reading, self.dim, self.beta)), client, delta)


@dataclass(frozen=True)
class ForcedNorm(GaussianDP):
    """Noise whose norm in the mean of a round is given, whatever budgets say: one point of utility against noise."""

    name: ClassVar[str] = "forced_norm"
    examples: ClassVar[tuple[dict[str, float], ...]] = ({"norm": 3.0, "dim": 10, "cohort": 4},)
    norm: float = 1.0
    dim: int = 1
    cohort: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 < self.norm < math.inf and self.dim >= 1 and self.cohort >= 1):
            raise DpflbenchError(f"norm: {self.norm}, dim: {self.dim}, cohort: {self.cohort}; allowed: above 0")

    @property
    def unproved(self) -> str:
        """Return what is wrong with it."""
        return f"noise of norm {self.norm:g} in the mean of a round, for no budget"

    def cost(self, event: Event) -> Floats:
        """Return nothing: no budget is asked."""
        return np.zeros((*np.shape(event.scale), 1))

    def scale(self, cost: Floats, event: Event) -> Floats:
        """Return the standard deviation at which the mean of `cohort` messages of `dim` coordinates has that norm."""
        wanted = self.norm * math.sqrt(self.cohort / self.dim)
        return round_up(np.where(cost[..., 0] > 0, wanted, np.inf))


def _stretched(events: Event, times: float) -> Event:
    return replace(events, sensitivity=events.sensitivity * times)
