"""Local and Fine-tuned: the two baselines of every table of personal models (Yu, Bagdasaryan, Shmatikov, "Salvaging
Federated Learning by Local Adaptation", 2020; Liu et al., NeurIPS 2022).

`Local`: every client trains a model of its own with its own budget and nobody hears of it: where it wins, federation is
not worth its noise. `Fine-tuned`: DP-FedAvg first, and in the last `share` of the rounds each client goes on alone from
the model it receives then. Both are judged by `utility_personal`; the shared model of Local stays where it began.

Differs: a client trains in the rounds in which it is selected, as in every other row, so that all have as many private
steps; a client that fine-tuning never reached has the shared model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Finished, Journey, Plain, Setup, State, Visit, moved
from dpflbench_algorithms.dp_fedavg import GAUSSIAN
from dpflbench_algorithms.parts import Mean, UniformSelection


@dataclass(frozen=True, slots=True)
class OwnModel(Plain):
    """A model w_n for every client, kept and gone on from: what rules of personal models share."""

    def init(self, setup: Setup, theta: Tensor) -> tuple[State, Mapping[str, Tensor]]:
        """Return w_n = the first model."""
        return None, {"model": theta.repeat(setup.n_clients, 1)}

    def start(self, visit: Visit) -> Tensor:
        """Return w_n."""
        return visit.own["model"]

    def personal(self, theta: Tensor, own: Mapping[str, Tensor]) -> Tensor | None:
        """Return the clients' own models."""
        return own["model"]


@dataclass(frozen=True, slots=True)
class LocalOnly(OwnModel):
    """A model of one's own and no message."""

    def finish(self, journeys: Sequence[Journey], visit: Visit) -> Finished:
        """Return zeros, and keep the model."""
        model = journeys[0].model
        return Finished(torch.zeros_like(model), {"model": model})


@dataclass(frozen=True, slots=True)
class FineTune(Plain):
    """Plain steps, and in the last `share` of the rounds each client alone from the model it finds then."""

    share: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise DpflbenchError(f"share: {self.share}; allowed: between 0 and 1")

    def init(self, setup: Setup, theta: Tensor) -> tuple[State, Mapping[str, Tensor]]:
        """Return models that nobody has begun."""
        n = setup.n_clients
        return None, {"model": theta.new_zeros(n, theta.numel()), "begun": theta.new_zeros(n)}

    def start(self, visit: Visit) -> Tensor:
        """Return the received model, or one's own if it is begun."""
        return torch.where(visit.own["begun"][:, None] > 0, visit.own["model"], visit.theta)

    def finish(self, journeys: Sequence[Journey], visit: Visit) -> Finished:
        """Return where the clients went; at the end nothing, and keep it instead."""
        model = journeys[0].model
        if visit.round < (1 - self.share) * visit.rounds:
            return Finished(moved(journeys[0], visit), visit.own)
        return Finished(torch.zeros_like(model), {"model": model, "begun": torch.ones_like(visit.own["begun"])})

    def personal(self, theta: Tensor, own: Mapping[str, Tensor]) -> Tensor | None:
        """Return the clients' own models, or the shared one where there is none."""
        return torch.where(own["begun"][:, None] > 0, own["model"], theta)


def local() -> Algorithm:
    """Local: every client alone, with its own budget."""
    return Algorithm("Local", UniformSelection(), Mean(), rule=LocalOnly(), mechanisms=GAUSSIAN)


def fine_tuned(share: float = 0.2) -> Algorithm:
    """Fine-tuned: DP-FedAvg, and each client alone at the end."""
    return Algorithm("Fine-tuned", UniformSelection(), Mean(), rule=FineTune(share), mechanisms=GAUSSIAN)


@hookimpl
def dpflbench_local_rules() -> Factories:
    """Alone from the beginning, and alone at the end."""
    return {"local_only": LocalOnly, "fine_tune": FineTune}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """Local and Fine-tuned."""
    return {"Local": local, "Fine-tuned": fine_tuned}
