"""A run without privacy, in the words of one with it: no noise, no price, a ledger that never runs out.

With these three the round needs to know nothing of privacy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from dpflbench.draws import Draws, Law
from dpflbench.interfaces import Accountant, Event, Floats, Ints, Mechanism
from dpflbench.privacy.chain import LINK_BYTES


@dataclass(frozen=True)
class NoNoise(Mechanism):
    """Nothing is drawn."""

    name: ClassVar[str] = "none"
    law: ClassVar[Law] = Law("none", np.zeros_like, np.zeros_like, lambda mp, z: mp.zero)
    accountant: ClassVar[str] = "none"
    clip_order: ClassVar[Literal[1, 2]] = 2

    def release(self, value: Tensor, scale: Floats, draws: Draws) -> Tensor:
        """Return the value itself."""
        return value

    def variance(self, scale: Floats) -> Floats:
        """Return zeros."""
        return np.zeros_like(scale)


@dataclass(frozen=True)
class NoNoiseL1(NoNoise):
    """Nothing is drawn, and an algorithm that clips all the same does so in L1."""

    clip_order: ClassVar[Literal[1, 2]] = 1


@dataclass(frozen=True)
class NoPrice(Accountant):
    """Everything is free, and amounts to an infinite epsilon."""

    name: ClassVar[str] = "none"
    exponent: int = 1

    def supports(self, event: Event) -> str:
        """Return nothing: nothing is proved."""
        return ""

    def cost(self, event: Event) -> Floats:
        """Return zeros."""
        return np.zeros((len(event.scale), 1))

    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """Return infinity."""
        return np.full((*np.shape(epsilon), 1), np.inf)

    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """Return infinity."""
        return np.full(cost.shape[:-1], np.inf)

    def scale(self, cost: Floats, event: Event) -> Floats:
        """Return zeros."""
        return np.zeros(cost.shape[:-1])

    def rate(self, cost: Floats, event: Event, noise: float) -> Floats:
        """Return the rates as they are."""
        return event.rate


class Unlimited:
    """The ledger of a run without privacy: it counts participations and writes nothing down."""

    def __init__(self, n_clients: int) -> None:
        self.used: Ints = np.zeros(n_clients, dtype=np.int64)
        self.left: Floats = np.full((n_clients, 1), np.inf)

    def charge(self, round: int, clients: Ints, releases: Sequence[Event]) -> None:
        """Count a participation of each client."""
        self.used[clients] += 1

    def events(self) -> dict[str, Any]:
        """Return no columns."""
        return {}

    def epsilon_spent(self) -> Floats:
        """Return infinity for everybody."""
        return np.full(len(self.used), np.inf)

    def digest(self) -> str:
        """Return nothing: there is no ledger to vouch for."""
        return ""

    def chain(self) -> Any:
        """Return no links."""
        return np.zeros((0, LINK_BYTES), dtype=np.uint8)

    def state(self) -> dict[str, Any]:
        """Return the counts."""
        return {"used": self.used.copy()}

    def restored(self, state: Mapping[str, Any]) -> "Unlimited":
        """Return the ledger with those counts."""
        ledger = Unlimited(len(self.used))
        ledger.used = np.asarray(state["used"], dtype=np.int64)
        return ledger
