"""Hand-built setups, views and rounds for testing selectors and aggregators without a federation."""

import numpy as np
import torch

from dpflbench.federation.local import FullStep
from dpflbench.federation.trust import LocalTrust
from dpflbench.interfaces import Layout, LearningRate, Losses, ParameterTensor, PlanView, Setup, Updates
from dpflbench_algorithms.accountants import GaussianDP, PureDP
from dpflbench_algorithms.mechanisms import Gaussian, Laplace


def layout(*sizes, norm=()):
    """A layout of flat tensors of the given sizes; those whose index is in `norm` belong to normalisation layers."""
    ends = np.cumsum(sizes)
    return Layout(
        tuple(
            ParameterTensor(f"t{i}", (size,), int(end - size), int(end), i in norm)
            for i, (size, end) in enumerate(zip(sizes, ends, strict=True))
        )
    )


def setup(
    budget,
    *,
    mechanism="gaussian",
    cohort=1,
    rounds=10,
    n_examples=100,
    clip=1.0,
    lr=(0.05, 200.0),
    sizes=(4,),
    classes=10,
    epsilon=None,
    delta=None,
    phi_dim=0,
    local=None,
    accountant=None,
):
    """A setup whose clients have the given budgets: mu² for Gaussian noise, epsilon for Laplace noise."""
    budget = np.asarray(budget, dtype=np.float64)
    n = len(budget)
    noise, known = {
        "gaussian": (Gaussian(), GaussianDP()),
        "linear": (Gaussian(), GaussianDP("linear")),
        "laplace": (Laplace(), PureDP()),
    }[mechanism]
    accountant = accountant or known
    examples = np.broadcast_to(np.asarray(n_examples), (n,)).astype(np.int64)
    return Setup(
        n_clients=n,
        cohort_size=cohort,
        rounds=rounds,
        n_examples=examples,
        epsilon=budget.copy() if epsilon is None else np.asarray(epsilon, dtype=np.float64),
        delta=np.zeros(n) if delta is None else np.asarray(delta, dtype=np.float64),
        budget=budget[:, None] if accountant is known else accountant.budget(epsilon, delta),
        mechanism=noise,
        accountant=accountant,
        local=local or FullStep(),
        clip_norm=clip,
        lr=LearningRate(*lr),
        layout=layout(*sizes),
        n_classes=classes,
        phi_dim=phi_dim,
        neighbours=(local or FullStep()).neighbours,
    )


def losses(rows=(), variance=1.0):
    """Losses from rows (round, client, received[, stepped])."""
    table = np.array([(*row, np.nan)[:4] for row in rows], dtype=np.float64).reshape(-1, 4)
    return Losses(
        table[:, 0].astype(np.int64),
        table[:, 1].astype(np.int64),
        table[:, 2],
        table[:, 3],
        np.broadcast_to(np.asarray(variance, dtype=np.float64), (len(table),)).copy(),
    )


def view(facts, *, round=0, used=None, left=None, seen=None):
    """What a selector sees; by default before the first round."""
    used = np.zeros(facts.n_clients, dtype=np.int64) if used is None else np.asarray(used)
    left = facts.budget if left is None else np.asarray(left, dtype=np.float64)[:, None]
    return PlanView(facts, round, used, left, losses() if seen is None else seen)


def updates(rows, *, clients=None, epsilon=None, variance=None, n_examples=None, round=0, dtype=torch.float64):
    """A round of updates from rows of numbers."""
    values = torch.as_tensor(rows, dtype=dtype)
    k = len(values)

    def column(given, default):
        return torch.full((k,), default, dtype=dtype) if given is None else torch.as_tensor(given, dtype=dtype)

    who = torch.arange(k) if clients is None else torch.as_tensor(clients)
    return Updates(
        values=values,
        clients=who,
        epsilon=column(epsilon, 1.0),
        delta=column(None, 0.0),
        n_examples=column(n_examples, 100.0),
        variance=column(variance, 1.0),
        round=round,
    )


def direction(aggregator, rows):
    """What the server makes of a round of updates, by the same way as in a run."""
    return LocalTrust().combine(aggregator, rows, None)[0]
