"""DP-Ditto: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, on
private steps.

Two passes a participation: the shared model by plain steps, then the client's own model v_n, pulled to the received
one: direction g + lambda (v_n - theta). The second pass looks at data as often as the first, so a ledger has twice the
steps and each has more noise: what the shared model of DP-Ditto loses to DP-FedAvg is the price of the other.

Differs: the personal model is trained in the rounds in which its client takes part, as many steps as the shared one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Finished, Journey, Visit, moved
from dpflbench_algorithms.dp_fedavg import GAUSSIAN
from dpflbench_algorithms.local_training import OwnModel
from dpflbench_algorithms.parts import Mean, UniformSelection


@dataclass(frozen=True, slots=True)
class Ditto(OwnModel):
    """A shared model, and one of one's own pulled to it by `strength`, the paper's lambda."""

    passes: ClassVar[int] = 2
    strength: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.strength < float("inf"):
            raise DpflbenchError(f"strength: {self.strength}; allowed: 0 or more")

    def start(self, visit: Visit) -> Tensor:
        """Return the received model, in the second pass v_n."""
        return visit.own["model"] if visit.number else visit.theta.expand(len(visit.steps), -1)

    def direction(self, noisy: Tensor, model: Tensor, visit: Visit) -> Tensor:
        """Return g, in the second pass g + lambda (v_n - theta)."""
        return noisy + self.strength * (model - visit.theta) if visit.number else noisy

    def finish(self, journeys: Sequence[Journey], visit: Visit) -> Finished:
        """Return where the shared model went, and keep the other."""
        return Finished(moved(journeys[0], visit), {"model": journeys[1].model})


def dp_ditto(strength: float = 1.0) -> Algorithm:
    """DP-Ditto: a shared model, and one for every client pulled to it, at twice the steps."""
    return Algorithm("DP-Ditto", UniformSelection(), Mean(), rule=Ditto(strength), mechanisms=GAUSSIAN)


@hookimpl
def dpflbench_local_rules() -> Factories:
    """Two models, two passes."""
    return {"ditto": Ditto}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """DP-Ditto."""
    return {"DP-Ditto": dp_ditto}
