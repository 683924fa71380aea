"""Power-of-choice: Cho, Wang, Joshi, "Towards Understanding Biased Client Selection in Federated Learning", AISTATS
2022 (arXiv 2010.01243), its variant rpow-d under differential privacy.

| paper | here |
|---|---|
| d candidates, drawn by data size without replacement | `candidates` |
| m clients with the largest loss | `cohort_size` |
| rpow-d: the loss last reported | the last noisy loss of the probe; clients never seen come first, as in rpow-d |

Every participant reports its loss through the ledgered probe, at a share of its cost; no further queries are made.
Differs: budgets must last whatever the losses say, so a client may take part at most `cap` times its fair share K T /
N, and each use costs an even share of that many. What a client is not asked for stays unspent: the price of adaptive
selection. Near the end clients that are needed to fill the remaining rounds go first. Losses are clipped to [0,
loss_bound].
"""

import math
from dataclasses import dataclass

import numpy as np

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Floats, Ints, Plan, PlanView, Probe, Setup
from dpflbench_algorithms.parts import Mean


@dataclass(frozen=True, slots=True)
class PowerOfChoice:
    """The cohort of the next round: of d random candidates those with the largest noisy loss."""

    candidates: int | None = None  # None: twice the cohort
    cap: float = 2.0  # uses a client may have, in units of the fair share
    probe_share: float = 0.05
    loss_bound: float | None = None  # None: ln(classes)

    def __post_init__(self) -> None:
        if self.candidates is not None and self.candidates < 1:
            raise DpflbenchError(f"candidates: found {self.candidates}; allowed: at least the cohort")
        if not self.cap >= 1:
            raise DpflbenchError(f"cap: found {self.cap}; allowed: 1 (uniform selection) or more")
        if not 0 < self.probe_share < 1:
            raise DpflbenchError(f"probe_share: found {self.probe_share}; allowed: between 0 and 1")
        if self.loss_bound is not None and not 0 < self.loss_bound < math.inf:
            raise DpflbenchError(f"loss_bound: found {self.loss_bound}; allowed: positive numbers")

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return one use for each client of the next cohort; the selector is asked again after it."""
        setup = view.setup
        most = min(setup.rounds, math.ceil(self.cap * setup.cohort_size * setup.rounds / setup.n_clients))
        remaining = most - view.used
        first = must(remaining, view.rounds_left, setup.cohort_size, rng)
        wanted = setup.cohort_size - len(first)
        rest = np.setdiff1d(np.flatnonzero(remaining > 0), first)
        drawn = self._draw(rest, wanted, setup, rng)
        score = last_known(view, setup.n_clients)[drawn]
        chosen = drawn[np.lexsort((rng.random(len(drawn)), -score))[:wanted]]  # unseen clients tie at infinity: by lot
        uses = np.zeros(setup.n_clients, dtype=np.int64)
        uses[first], uses[chosen] = 1, 1
        cost = setup.accountant.per_use(view.left, remaining.astype(np.float64), setup.epsilon, setup.delta)
        return Plan(uses, 1, cost=cost, probe=Probe(self._bound(setup), self.probe_share))

    def _draw(self, rest: Ints, wanted: int, setup: Setup, rng: np.random.Generator) -> Ints:
        if not wanted:
            return rest[:0]
        count = 2 * setup.cohort_size if self.candidates is None else self.candidates
        size = setup.n_examples[rest].astype(np.float64)
        return rng.choice(rest, min(len(rest), max(count, wanted)), replace=False, p=size / size.sum())

    def _bound(self, setup: Setup) -> float:
        if self.loss_bound is not None:
            return self.loss_bound
        if setup.n_classes < 2:
            raise DpflbenchError(
                "Power-of-choice: loss_bound is missing; the loss of a regression has no natural bound, so give "
                "one (`with: {loss_bound: 150}`)"
            )
        return math.log(setup.n_classes)


def must(remaining: Ints, rounds_left: int, cohort_size: int, rng: np.random.Generator) -> Ints:
    """Clients the next round cannot do without.

    K distinct clients a round can be had for L more rounds if and only if Σ min(remaining, L) >= K L. A client with at
    least L uses left loses one of them by not being asked; the slack Σ min(remaining, L) - K L says how many of those
    may be passed over.
    """
    slack = int(np.minimum(remaining, rounds_left).sum()) - cohort_size * rounds_left
    full = np.flatnonzero(remaining >= rounds_left)
    return rng.permutation(full)[: min(max(0, len(full) - slack), cohort_size)]


def last_known(view: PlanView, n_clients: int) -> Floats:
    """The last noisy loss of each client [N]; infinite where there is none yet."""
    score = np.full(n_clients, np.inf)
    score[view.losses.client] = view.losses.received  # rows come in order: the latest stays
    return score


def power_of_choice(
    candidates: int | None = None, cap: float = 2.0, probe_share: float = 0.05, loss_bound: float | None = None
) -> Algorithm:
    """Power-of-choice: loss-biased selection, plain mean."""
    selector = PowerOfChoice(candidates, cap, probe_share, loss_bound)
    return Algorithm("Power-of-choice", selector, Mean(), losses=True)


@hookimpl
def dpflbench_selectors() -> Factories:
    """Selection by noisy losses."""
    return {"power_of_choice": PowerOfChoice}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """Power-of-choice."""
    return {"Power-of-choice": power_of_choice}
