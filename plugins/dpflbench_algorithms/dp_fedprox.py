"""DP-FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, on private steps.

Every local step is pulled back to the received model: direction g + mu (y - theta). The pull depends on no data, so it
is added after the noise and outside the clip. mu = 0 is DP-FedAvg.

Differs:
* A fixed number of noisy steps instead of an inexact minimiser of the proximal objective with a stopping rule: how long
  a client went on would depend on its data, and is not accounted.
* Everybody who is selected takes part to the end: no stragglers, hence no partial work.
"""

from dataclasses import dataclass

from torch import Tensor

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Plain, Visit
from dpflbench_algorithms.dp_fedavg import GAUSSIAN
from dpflbench_algorithms.parts import Mean, UniformSelection


@dataclass(frozen=True, slots=True)
class Prox(Plain):
    """A pull of strength `mu` to the received model."""

    mu: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise DpflbenchError(f"mu: {self.mu}; allowed: 0 or more")

    def direction(self, noisy: Tensor, model: Tensor, visit: Visit) -> Tensor:
        """Return g + mu (y - theta)."""
        return noisy + self.mu * (model - visit.theta)


def dp_fedprox(mu: float = 0.1) -> Algorithm:
    """DP-FedProx: local steps pulled back to the received model."""
    return Algorithm("DP-FedProx", UniformSelection(), Mean(), rule=Prox(mu), mechanisms=GAUSSIAN)


@hookimpl
def dpflbench_local_rules() -> Factories:
    """The proximal pull."""
    return {"prox": Prox}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """DP-FedProx."""
    return {"DP-FedProx": dp_fedprox}
