"""DP-SCAFFOLD: Noble, Bellet, Dieuleveut, "Differentially Private Federated Learning on Heterogeneous Data", AISTATS
2022 (arXiv 2111.09278).

| paper | here |
|---|---|
| c_i, control variate of user i | `own["control"]`, kept at its client |
| c, of the server | `shared` |
| y - eta_l (H̃ - c_i + c) | `direction`: g - c_n + c, outside the clip |
| option II: c_i ← mean noisy gradient of the participation | `finish` |
| c ← c + (l) mean (c_i⁺ - c_i) | the same with K / N |

A control variate is a mean of gradients that were clipped, noised and paid for: it costs nothing, and carries as much
noise as they do. `warm_start` leaves that many first rounds at g and only collects control variates, as the paper's
warm-start version does before it trains.

Differs:
* Warm start takes part in the rounds of the table instead of coming before them: everybody has the same number of
  participations to spend its budget on.
* Epsilon is each client's own, towards a server that sees every message; no amplification by user sampling.
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
class Scaffold(Plain):
    """Control variates against drift."""

    warm_start: int = 0

    def __post_init__(self) -> None:
        if self.warm_start < 0:
            raise DpflbenchError(f"warm_start: {self.warm_start}; allowed: 0 or more rounds")

    def init(self, setup: Setup, theta: Tensor) -> tuple[State, Mapping[str, Tensor]]:
        """Return c = 0 and c_n = 0."""
        return torch.zeros_like(theta), {"control": theta.new_zeros(setup.n_clients, theta.numel())}

    def direction(self, noisy: Tensor, model: Tensor, visit: Visit) -> Tensor:
        """Return g - c_n + c, and g while it is warming up."""
        return noisy if visit.round < self.warm_start else noisy - visit.own["control"] + visit.shared

    def finish(self, journeys: Sequence[Journey], visit: Visit) -> Finished:
        """Return where the clients went, c_n = their mean noisy gradient, and c moved by the mean change times K/N."""
        journey, before = journeys[0], visit.own["control"]
        change = (journey.mean - before).sum(0) / visit.n_clients
        return Finished(moved(journey, visit), {"control": journey.mean}, visit.shared + change)


def dp_scaffold(warm_start: int = 0) -> Algorithm:
    """DP-SCAFFOLD: local steps corrected by control variates."""
    return Algorithm("DP-SCAFFOLD", UniformSelection(), Mean(), rule=Scaffold(warm_start), mechanisms=GAUSSIAN)


@hookimpl
def dpflbench_local_rules() -> Factories:
    """Control variates."""
    return {"scaffold": Scaffold}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """DP-SCAFFOLD."""
    return {"DP-SCAFFOLD": dp_scaffold}
