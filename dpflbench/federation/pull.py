"""Pull: how much each client moved the model, and the noise that came with it, added up over rounds.

All that noise efficiency and data coverage need of a run (privacy/information.py). Weights of rows that an aggregator
combines in a way of its own are not known; unless it reports them, the plain mean stands in for it and is counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from dpflbench.federation.calibration import Calibration
from dpflbench.federation.trust import Shown
from dpflbench.interfaces import Aggregator, Cohort, Floats, Ints, LinearAggregator, Setup


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pull:
    """What some rounds have added up to."""

    weight: Floats  # [N], of each client's messages
    variance: float = 0.0  # of one coordinate of the noise in a direction, per unit of weight
    rounds: int = 0
    guessed: int = 0  # rounds in which the plain mean stood in for unknown weights

    def after(self, cohort: Cohort, weights: Tensor | None, noise: float | None = None) -> "Pull":
        """The pull after one more round; None: weights are not known. `noise` is the variance of a coordinate of a sum
        per unit of weight, None: every row has its own.
        """
        k = len(cohort.clients)
        facts = [cohort.clients, cohort.variance, *([] if weights is None else [weights.detach()])]
        known = torch.stack([fact.double() for fact in facts]).cpu().numpy()  # one transfer from the device
        a = np.full(k, 1.0 / k) if weights is None else known[2]
        total, variance = self.weight.copy(), known[1]
        total[known[0].astype(np.int64)] += a
        if noise is None:
            whole, noise = float(a.sum()) ** 2, float(np.sum(np.square(a) * variance))
            noise = noise / whole if whole else np.inf if noise else 0.0
        return Pull(
            weight=total,
            variance=self.variance + noise,
            rounds=self.rounds + 1,
            guessed=self.guessed + (weights is None),
        )


def foreseen(
    pull: Pull,
    cohorts: Sequence[Ints],
    calibration: Calibration,
    setup: Setup,
    by: Aggregator,
    shown: Sequence[Shown] = (),
) -> Pull:
    """The pull after some more rounds that are not played: their cohorts, the weights these would have, and what was
    found out of their sums.
    """
    noise, sums = calibration.variance(setup.mechanism), [s for s in shown if s.weights is not None]
    for i, clients in enumerate(cohorts):
        cohort = facts_of(clients, setup, noise, pull.rounds)
        if sums:
            weights = torch.as_tensor(sums[i].weights, dtype=cohort.epsilon.dtype)
            pull = pull.after(cohort, weights, sums[i].variance(setup.mechanism))
        else:
            pull = pull.after(cohort, known_weights(by, cohort))
    return pull


def weights_known(aggregator: Aggregator, pull: Pull) -> str:
    """How the weights of a run were had: linear, reported, or the plain mean's in place of unknown ones."""
    if pull.guessed:
        return "plain mean" if pull.guessed == pull.rounds else "reported, else plain mean"
    return "linear" if isinstance(aggregator, LinearAggregator) else "reported"


def facts_of(clients: Ints, setup: Setup, variance: Floats, round: int, like: Tensor | None = None) -> Cohort:
    """What everybody knows of a cohort whose messages ask for noise of that variance [N], where `like` is and of its
    type.
    """
    return cohort_facts(clients, setup.epsilon, setup.delta, setup.n_examples, variance, round, like)


def cohort_facts(
    clients: Ints,
    epsilon: Floats,
    delta: Floats,
    n_examples: Floats | Ints,
    variance: Floats,
    round: int,
    like: Tensor | None = None,
) -> Cohort:
    """The same from columns [N]."""
    like = torch.zeros(0, dtype=torch.float32) if like is None else like

    def row(array: Floats | Ints) -> Tensor:
        return torch.as_tensor(array[clients], dtype=like.dtype, device=like.device)

    return Cohort(
        clients=torch.as_tensor(clients, device=like.device),
        epsilon=row(epsilon),
        delta=row(delta),
        n_examples=row(n_examples),
        variance=row(variance),
        round=round,
    )


def known_weights(aggregator: Aggregator, cohort: Cohort) -> Tensor | None:
    """The weights of a linear aggregator, written out; None for one of rows."""
    if not isinstance(aggregator, LinearAggregator):
        return None
    weights = aggregator.weights(Cohort(**{f.name: getattr(cohort, f.name) for f in fields(Cohort)}))
    return torch.full_like(cohort.epsilon, 1.0 / len(cohort.clients)) if weights is None else weights
