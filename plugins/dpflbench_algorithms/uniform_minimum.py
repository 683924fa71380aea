"""Uniform-minimum: everybody at the smallest budget of the federation, the `Minimum` baseline of Liu et al. (PFA), VLDB
2022.

What practice without heterogeneous budgets pays: one privacy level for all must be the strictest. Uniform selection,
plain mean. Differs: the level is the smallest budget in the accountant's currency, the strictest client's, so that
clients with another delta keep theirs too; everybody else leaves the rest of its budget unspent on purpose.
"""

from dataclasses import dataclass, replace

import numpy as np

from dpflbench import hookimpl
from dpflbench.errors import RunEnded
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Plan, PlanView
from dpflbench_algorithms.parts import Mean, UniformSelection


@dataclass(frozen=True, slots=True)
class UniformMinimum:
    """Equal uses, each at the price the strictest client can pay."""

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return equal uses and one cost for all: what the smallest budget allows the most used client."""
        setup, plan = view.setup, UniformSelection().plan(view, rng)
        if not setup.accountant.comparable:
            raise RunEnded(
                f"Uniform-minimum: accountant {setup.accountant.name} counts shares of a client's own budget, which "
                "cannot be compared; allowed: any other"
            )
        strictest = np.broadcast_to(view.left.min(axis=0), view.left.shape)
        most = np.full(setup.n_clients, float(plan.uses.max()))
        epsilon, delta = np.full(setup.n_clients, setup.epsilon.min()), np.full(setup.n_clients, setup.delta.min())
        return replace(plan, cost=setup.accountant.per_use(strictest, most, epsilon, delta))


def uniform_minimum() -> Algorithm:
    """Uniform-minimum: uniform selection, everybody at the strictest client's price, plain mean."""
    return Algorithm("Uniform-minimum", UniformMinimum(), Mean(), frame={"cohorts": "exact"})


@hookimpl
def dpflbench_selectors() -> Factories:
    """Uniform selection at the smallest budget."""
    return {"uniform_minimum": UniformMinimum}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """Uniform-minimum."""
    return {"Uniform-minimum": uniform_minimum}
