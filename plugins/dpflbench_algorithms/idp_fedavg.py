"""IDP-FedAvg: the variant Sample of Boenisch, Mühl, Dziedzic, Rinberg, Papernot, "Have it your way: Individualized
Privacy Assignment for DP-SGD", NeurIPS 2023, carried over from records to clients of DP-FedAvg (McMahan et al., ICLR
2018): everybody has the same noise, and a budget decides how often a client is drawn.

| paper | here |
|---|---|
| σ_sample, one noise for all groups | `noise` z, found so that cohorts have K clients on average |
| q_p, sampling rate of group p | p_n, the largest rate at which `rounds` rounds at z stay within (ε_n, δ_n) |
| Σ |G_p| q_p / N = q | Σ p_n = K |

Selection by budget as DPFL-BCS does it, asked where nobody sees who takes part (`federation.cohorts: poisson`).

Differs: a group is one client, the protected record is a client (`privacy.unit: client`); rates are bisected to the
private side by the run's own accountant, where published code inverts a fit. Under exact cohorts no rate amplifies
anything, and the selector deals out uses evenly.
"""

from dataclasses import dataclass, replace

import numpy as np

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Floats, Plan, PlanView
from dpflbench_algorithms.parts import Mean, UniformSelection

STEPS = 40  # of a bisection over factors of two: to 2^-30 of the noise
CLOSE = 1e-4  # of a cohort: near enough, the rest is given to all alike


@dataclass(frozen=True, slots=True)
class RatesByBudget:
    """One noise for all; each client's rate is the largest its budget allows at it."""

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return expected uses for all rounds."""
        setup, rounds = view.setup, view.rounds_left
        if setup.cohorts == "exact" or not np.isfinite(setup.epsilon).all():
            return UniformSelection().plan(view, rng)
        steps = np.full(setup.n_clients, rounds, dtype=np.int64)
        event, size = replace(setup.message(), steps=steps), float(setup.cohort_size)

        def rates(noise: float) -> Floats:
            return np.minimum(1.0, setup.accountant.rate(view.left, event, noise))

        low, high = 0.0, 1.0
        while float((found := rates(high)).sum()) < size:
            low, high = high, 2 * high
        for _ in range(STEPS):  # the least noise at which everybody together fills the cohorts
            if float(found.sum()) <= size * (1 + CLOSE):
                break
            middle = (low + high) / 2
            tried = rates(middle)
            low, high, found = (low, middle, tried) if float(tried.sum()) >= size else (middle, high, found)
        uses = rounds * found * (size / float(found.sum()))
        return Plan(uses, rounds, notes={"noise": high, "rates": found})


def idp_fedavg() -> Algorithm:
    """IDP-FedAvg: whole clients, drawn as often as their budgets allow at one noise, plain mean."""
    frame = {"unit": "client", "cohorts": "poisson"}
    return Algorithm("IDP-FedAvg", RatesByBudget(), Mean(), mechanisms=frozenset({"gaussian"}), frame=frame)


@hookimpl
def dpflbench_selectors() -> Factories:
    """Rates by budget."""
    return {"rates_by_budget": RatesByBudget}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """IDP-FedAvg."""
    return {"IDP-FedAvg": idp_fedavg}
