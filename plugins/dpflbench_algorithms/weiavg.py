"""WeiAvg: Liu et al., "Projected Federated Averaging with Heterogeneous Differential Privacy", VLDB 2022, its weighted
baseline.

| paper | here |
|---|---|
| a_n = ε_n / Σ_{m in S_t} ε_m | `weights` over the round's rows |

The server weighs each update by its client's epsilon; selection is uniform and clients do what DPSGD or DMLDP does.
Budgets are public. Differs: one full-batch step instead of 100 local steps a round; under Laplace noise the weights are
the same.
"""

from dataclasses import dataclass

from torch import Tensor

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Cohort
from dpflbench_algorithms.parts import UniformSelection


@dataclass(frozen=True, slots=True)
class EpsilonWeighted:
    """The mean of the updates weighted by epsilon."""

    def weights(self, cohort: Cohort) -> Tensor:
        """Return ε_n / Σ ε_m."""
        return cohort.epsilon / cohort.epsilon.sum()


def weiavg() -> Algorithm:
    """WeiAvg: uniform selection, mean weighted by epsilon."""
    return Algorithm("WeiAvg", UniformSelection(), EpsilonWeighted())


@hookimpl
def dpflbench_aggregators() -> Factories:
    """The ε-weighted mean."""
    return {"epsilon_weighted": EpsilonWeighted}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """WeiAvg."""
    return {"WeiAvg": weiavg}
