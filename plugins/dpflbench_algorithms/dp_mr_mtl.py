"""DP-MR-MTL: Liu, Hu, Wu, Smith, "On Privacy and Personalization in Cross-Silo Federated Learning", NeurIPS 2022 (arXiv
2206.07902), mean-regularised multi-task learning.

Every client keeps a model w_n of its own and goes on from it, pulled to the mean model it receives: direction
g + lambda (w_n - w̄). `strength` 0 is local training alone, a large one federated averaging. The message is where its
own model is, so that the server's model is the mean of the cohort's (with a plain mean and server step), whatever the
learning rates. Personal models are judged by `utility_personal`.

Differs:
* Cohorts instead of all silos in every round: w̄ follows those that took part, by the server's own step.
* A client that never takes part keeps the first model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Finished, Journey, Visit
from dpflbench_algorithms.dp_fedavg import GAUSSIAN
from dpflbench_algorithms.local_training import OwnModel
from dpflbench_algorithms.parts import Mean, UniformSelection


@dataclass(frozen=True, slots=True)
class MeanRegularised(OwnModel):
    """Models of one's own, pulled to their mean by `strength`, the paper's lambda."""

    strength: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.strength < float("inf"):
            raise DpflbenchError(f"strength: {self.strength}; allowed: 0 or more")

    def direction(self, noisy: Tensor, model: Tensor, visit: Visit) -> Tensor:
        """Return g + lambda (w_n - w̄): the pull depends on no data, so it is outside the clip."""
        return noisy + self.strength * (model - visit.theta)

    def finish(self, journeys: Sequence[Journey], visit: Visit) -> Finished:
        """Return where the models are, so that the server's step ends at their mean, and keep them."""
        model = journeys[0].model
        return Finished((visit.theta - model) / visit.server_lr, {"model": model})


def dp_mr_mtl(strength: float = 1.0) -> Algorithm:
    """DP-MR-MTL: a model for every client, pulled to their mean."""
    return Algorithm("DP-MR-MTL", UniformSelection(), Mean(), rule=MeanRegularised(strength), mechanisms=GAUSSIAN)


@hookimpl
def dpflbench_local_rules() -> Factories:
    """Mean-regularised models."""
    return {"mr_mtl": MeanRegularised}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """DP-MR-MTL."""
    return {"DP-MR-MTL": dp_mr_mtl}
