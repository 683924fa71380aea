"""InvVar: a_n ∝ 1 / (variance of client n's noise), the weights with the least noise in a round's mean (Gauss-Markov).

The one-line rival of WeiAvg (weights by epsilon) and of DPFL-BCS (selection by noise): uniform selection, and each
update counts by how clear it is. Under Gaussian noise a_n ∝ (D_n μ_n)², under Laplace noise (D_n ε_n)².
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpflbench import hookimpl
from dpflbench.federation.schedule import even_uses
from dpflbench.interfaces import Algorithm, Cohort, Plan, PlanView


@dataclass(frozen=True)
class EvenlyOften:
    """Everybody takes part equally often."""

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return equal uses for all rounds left."""
        return Plan(even_uses(view.setup.n_clients, view.rounds_left * view.setup.cohort_size, rng), view.rounds_left)


@dataclass(frozen=True)
class InverseVariance:
    """The mean of the updates weighted by 1 / variance**power."""

    power: float = 1.0  # 0: the plain mean

    def weights(self, cohort: Cohort) -> Tensor:
        """Return a_n; by logarithms, so that no power of a variance overflows. Without noise all rows count alike."""
        smallest = torch.finfo(cohort.variance.dtype).tiny
        return torch.softmax(-self.power * cohort.variance.clamp_min(smallest).log(), 0)


def inv_var(power: float = 1.0) -> Algorithm:
    """InvVar; its parameters are what a suite may write under `with:`."""
    return Algorithm("InvVar", EvenlyOften(), InverseVariance(power))


@hookimpl
def dpflbench_aggregators() -> dict[str, type[InverseVariance]]:
    """The part, for `compose`."""
    return {"inverse_variance": InverseVariance}


@hookimpl
def dpflbench_algorithms() -> dict[str, object]:
    """The algorithm, for the `algorithms:` list of a suite."""
    return {"InvVar": inv_var}
