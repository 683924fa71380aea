"""Similar-budgets: cohorts of like clients. No paper's: the first rival in the frame of sums.

One noise protects a whole cohort of a secure sum or of a trusted server, and its most demanding member sets it
(`dpflbench.federation.trust`). Who meets whom therefore decides how much noise there is: with everybody equally often,
clients that ask for about as much are put together, so that a strict budget costs only those who have one as well.

| idea | here |
|---|---|
| what client n asks for | `scale` of its message at an even share of its budget |
| cohorts | K neighbours in the order of that, cut from a circle, rounds shuffled |

Differs from uniform selection in nothing but who meets: uses differ by one at most. Where K does not divide N, a cohort
a lap has both ends of the order in it. Under `privacy.trust: local` everybody has noise of its own: it changes nothing.
"""

from dataclasses import dataclass

import numpy as np

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Ints, Plan, PlanView
from dpflbench_algorithms.parts import Mean


@dataclass(frozen=True, slots=True)
class SimilarBudgets:
    """Equal uses, in cohorts of clients whose budgets ask for about the same noise."""

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return cohorts for all rounds left."""
        setup, horizon = view.setup, view.rounds_left
        even = np.full(setup.n_clients, horizon * setup.cohort_size / setup.n_clients)
        cost = setup.accountant.per_use(view.left, np.maximum(even, 1.0), setup.epsilon, setup.delta)
        asked = setup.accountant.scale(cost, setup.message())
        cohorts = along(np.argsort(asked, kind="stable"), horizon, setup.cohort_size, rng)
        return Plan(np.bincount(cohorts.ravel(), minlength=setup.n_clients), horizon, cohorts=cohorts)


def along(order: Ints, rounds: int, size: int, rng: np.random.Generator) -> Ints:
    """Cohorts [rounds, size] of neighbours, cut one after the other from the circle of `order`, in shuffled rounds."""
    start = int(rng.integers(len(order) // size)) * size  # whom a remainder of a lap leaves out is drawn
    places = (start + np.arange(rounds * size)) % len(order)
    return np.asarray(rng.permutation(order[places].reshape(rounds, size)), dtype=np.int64)


def similar_budgets() -> Algorithm:
    """Similar-budgets: cohorts of like clients, plain mean."""
    return Algorithm("Similar-budgets", SimilarBudgets(), Mean(), frame={"cohorts": "exact"})


@hookimpl
def dpflbench_selectors() -> Factories:
    """Cohorts of like clients."""
    return {"similar_budgets": SimilarBudgets}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """Similar-budgets."""
    return {"Similar-budgets": similar_budgets}
