"""`minibatch`: several private steps a participation, as most of the field trains (DP-FedAvg and its kin).

Client n draws each of its records by a secret coin of rate q_n = batch / D_n, anew for every step; adds up clipped
gradients at its own model; divides by the EXPECTED batch q_n D_n, for the realised size is private; adds noise, to an
empty batch too; and asks its local rule for a direction. The message is post-processing of these releases.

One row of the ledger is one participation: rate, steps, scale and sensitivity of a step. Batches of a fixed size or
from a shuffled order leak more than Poisson samples and have no accountant here, so there is no key for them; nor is
the rate at which clients take part ever multiplied in, for the server sees who does.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from dpflbench.errors import DpflbenchError, PluginError, RunEnded
from dpflbench.federation.gradients import bounded
from dpflbench.interfaces import (
    ClientWork,
    Computed,
    Event,
    Finished,
    Floats,
    Ints,
    Journey,
    Mechanism,
    Neighbours,
    Protect,
    Visit,
)
from dpflbench.privacy.sensitivity import gradient_sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class Minibatch:
    """`steps` steps, or as many as `epochs` take, on Poisson batches of `batch` records on average.

    With `calibrate: rate` everybody has noise of `noise` sensitivities, and a budget decides how many records are drawn
    (Boenisch et al., "Have it your way: individualized privacy assignment for DP-SGD", 2023, its variant Sample).
    """

    lr: float
    batch: int = 64
    steps: int | None = None
    epochs: float | None = None
    calibrate: Literal["noise", "rate"] = "noise"
    noise: float | None = None

    neighbours: ClassVar[Neighbours] = "zero_out"
    accountant: ClassVar[str] = "rdp"
    ruled: ClassVar[bool] = True
    examples: ClassVar[tuple[dict[str, float], ...]] = ({"lr": 0.1, "steps": 3, "batch": 4},)

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise DpflbenchError(f"steps: {self.steps} and epochs: {self.epochs}; allowed: one of the two")
        for name in ("lr", "batch", "steps", "epochs", "noise"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise DpflbenchError(f"{name}: {value}; allowed: above 0 and finite")
        if (self.calibrate == "rate") != (self.noise is not None):
            raise DpflbenchError(
                f"noise: {self.noise}; calibrate: rate needs one for all, calibrate: noise finds its own"
            )
        if self.calibrate == "rate" and self.steps is None:
            raise DpflbenchError("epochs: their steps depend on the rate; calibrate: rate needs steps")

    @property
    def noise_for_all(self) -> float | None:
        """Return the noise of everybody where rates meet the budgets."""
        return self.noise

    def event(
        self,
        mechanism: Mechanism,
        clip_norm: Floats,
        n_examples: Ints,
        loss_bound: float = 0.0,
        neighbours: Neighbours = "zero_out",
        rate: Floats | None = None,
    ) -> Event:
        """Return the steps of one participation: each a mean over the expected batch."""
        if loss_bound:
            raise RunEnded("losses that travel in one message with a gradient have no place among several steps; "
                           "allowed: a probe of its own (probe: received)")  # fmt: skip
        rate = np.minimum(1.0, self.batch / n_examples) if rate is None else rate
        steps = np.full(np.shape(n_examples), self.steps or 1)
        if self.epochs is not None:
            steps = np.maximum(1, np.ceil(self.epochs * n_examples / self.batch)).astype(np.int64)
        if np.isinf(clip_norm).any():  # not clipped: without privacy
            return mechanism.event("gradient", np.full(np.shape(clip_norm), np.inf), rate, steps, neighbours)
        drawn = np.where(rate > 0, rate, 1.0) * n_examples
        return mechanism.event("gradient", gradient_sensitivity(clip_norm, drawn, neighbours), rate, steps, neighbours)

    def compute(self, work: ClientWork, protect: Protect) -> Computed:
        """Return where the clients went by their rule, and mean losses at the received model if asked for."""
        losses = None
        if work.loss_bound is not None:
            here = work.theta.expand(len(work.cohort), -1)
            losses = mean_losses(work, here, work.phi, work.loss_bound)
        visit, coins, phi = replace(work.visit, lr=self.lr), Coins(work), work.phi
        journeys = []
        for number in range(work.rule.passes):
            journey, phi = _travel(work, replace(visit, number=number), coins, phi, protect)
            journeys.append(journey)
        finished = work.rule.finish(journeys, replace(visit, number=work.rule.passes - 1))
        _check(finished, journeys[0].model)
        total = self.lr * visit.steps[:, None] * work.rule.passes
        messages = torch.cat([finished.messages, (work.phi - phi) / total], 1)
        return Computed(messages=messages, losses=losses, own=finished.own, shared=finished.shared)


class Coins:
    """Which records each client draws, step by step."""

    def __init__(self, work: ClientWork) -> None:
        self.work, shards = work, work.shards
        self.sizes = shards.sizes[work.cohort]
        spans = [np.arange(shards.offsets[n], shards.offsets[n + 1]) for n in work.cohort]
        self.position = np.concatenate(spans)
        self.owner = np.repeat(np.arange(len(work.cohort)), self.sizes)
        self.rate = np.repeat(work.event.rate, self.sizes)

    def batch(self, rows: Ints) -> tuple[Tensor, Ints]:
        """Positions in the shards [M], by client, and how many of each client [J]; a coin for every record."""
        tossed = self.work.batches.coins(self.rate)
        if len(rows) < len(self.sizes):
            tossed &= np.isin(self.owner, rows)
        counts = np.bincount(self.owner[tossed], minlength=len(self.sizes))[rows]
        return torch.as_tensor(self.position[tossed], device=self.work.theta.device), counts


def _travel(work: ClientWork, visit: Visit, coins: Coins, phi: Tensor, protect: Protect) -> tuple[Journey, Tensor]:
    """One pass of everybody, clients with fewer steps standing still at the end, and their phi after it."""
    dim, steps = work.theta.numel(), work.event.steps // work.rule.passes
    model, size = work.rule.start(visit), torch.as_tensor(coins.sizes * work.event.rate, device=work.theta.device)
    if model.shape != (len(steps), dim):
        raise PluginError(f"local rule: starts at {tuple(model.shape)}; expected {(len(steps), dim)}")
    both = torch.cat([model, phi], 1)
    total = torch.zeros_like(model)
    for step in range(int(steps.max())):
        rows = np.flatnonzero(steps > step)
        at = torch.as_tensor(rows, device=both.device)
        here = both if len(rows) == len(steps) else both[at]
        chosen, counts = coins.batch(rows)
        clip = None if work.clip_norm is None else work.clip_norm[at]
        sums = work.engine.batch_sums(here[:, :dim], here[:, dim:], work.shards, chosen, counts, clip)
        mean = torch.cat([sums.theta, sums.phi], 1) / size[at, None]  # float64 up to the noise, as in a full step
        noisy = protect(mean, rows).to(work.theta.dtype)
        whole = len(rows) == len(steps)
        towards = work.rule.direction(noisy[:, :dim], here[:, :dim], visit if whole else visit.of(at))
        if towards.shape != (len(rows), dim):
            raise PluginError(f"local rule: a direction of {tuple(towards.shape)}; expected {(len(rows), dim)}")
        after = here - visit.lr * torch.cat([towards, noisy[:, dim:]], 1)
        both, total = (after, total + noisy[:, :dim]) if whole else _copied(both, total, at, after, noisy[:, :dim])
    return Journey(both[:, :dim], total / visit.steps[:, None]), both[:, dim:]


def _copied(both: Tensor, total: Tensor, at: Tensor, after: Tensor, noisy: Tensor) -> tuple[Tensor, Tensor]:
    return both.index_copy(0, at, after), total.index_add(0, at, noisy)


def _check(finished: Finished, like: Tensor) -> None:
    if finished.messages.shape != like.shape or finished.messages.dtype != like.dtype:
        found = f"{finished.messages.dtype} {tuple(finished.messages.shape)}"
        raise PluginError(f"local rule: messages are {found}; expected {like.dtype} {tuple(like.shape)}")


def mean_losses(work: ClientWork, theta: Tensor, phi: Tensor, bound: float) -> Tensor:
    """Mean clipped loss [K] of each client at its model [K, D] with its phi [K, P]."""
    means = []
    for k, n in enumerate(work.cohort):
        start, stop = int(work.shards.offsets[n]), int(work.shards.offsets[n + 1])
        losses = work.engine.losses(theta[k], phi[k], work.shards.x[start:stop], work.shards.y[start:stop])
        means.append(bounded(losses, bound).mean())
    return torch.stack(means)
