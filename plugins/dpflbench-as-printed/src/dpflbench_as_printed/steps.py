"""What clients compute in a reading: half the sensitivity, momentum that clients keep, an epoch of small batches.

Each claims the sensitivity the paper prints, 2 B / D a participation (`half_step`: B / D), which is why they live here
and are priced by accountants that say so. Clients keep a momentum in rows of their own that no server sees; it holds
gradients without noise, and that is what is wrong with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dpflbench.errors import DpflbenchError, RunEnded
from dpflbench.federation.local import FullStep
from dpflbench.federation.minibatch import mean_losses
from dpflbench.interfaces import ClientWork, Computed, Event, Floats, Ints, Mechanism, Neighbours, Plain, Protect, Setup

MEMORY = "momentum"


@dataclass(frozen=True, slots=True)
class Remembers(Plain):
    """A rule under which clients have a row to keep a momentum in."""

    def init(self, setup: Setup, theta: Tensor) -> tuple[None, Mapping[str, Tensor]]:
        """Return rows of zeros, a number for every coordinate of a message."""
        return None, {MEMORY: theta.new_zeros(setup.n_clients, setup.dim)}


@dataclass(frozen=True, slots=True)
class HalfStep(FullStep):
    """The full step at half its sensitivity, B / D for 2 B / D."""

    ruled: ClassVar[bool] = True  # so that one row of a table serves all readings

    def compute(self, work: ClientWork, protect: Protect) -> Computed:
        """Return what a full step does, and what clients keep as it was."""
        made = FullStep.compute(self, work, protect)
        return replace(made, own=work.visit.own, shared=work.visit.shared)

    def event(
        self,
        mechanism: Mechanism,
        clip_norm: Floats,
        n_examples: Ints,
        loss_bound: float = 0.0,
        neighbours: Neighbours = "replace",
        rate: Floats | None = None,
    ) -> Event:
        """Return the event of a full step with half the sensitivity."""
        whole = FullStep.event(self, mechanism, clip_norm, n_examples, loss_bound, neighbours, rate)
        return replace(whole, sensitivity=whole.sensitivity / 2)


@dataclass(frozen=True, slots=True)
class KeptMomentum(FullStep):
    """The full step along a momentum that each client keeps of its own gradients, before noise."""

    beta: float = 0.9
    ruled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise DpflbenchError(f"beta: {self.beta}; allowed: 0 to below 1")

    def compute(self, work: ClientWork, protect: Protect) -> Computed:
        """Return the protected momenta, and keep them as they were before."""
        memory = work.visit.own.get(MEMORY)
        if memory is None:
            raise RunEnded("kept_momentum: clients have nowhere to keep it; needs rule: remembers")
        kept: list[Tensor] = []

        def remembered(value: Tensor, rows: Ints | None = None) -> Tensor:
            kept.append(self.beta * memory.to(value.dtype) + value)
            return protect(kept[0], rows)

        made = FullStep.compute(self, work, remembered)
        return replace(made, own={**work.visit.own, MEMORY: kept[0].to(memory.dtype)}, shared=work.visit.shared)


@dataclass(frozen=True, slots=True)
class Epoch(FullStep):
    """An epoch of steps with momentum on batches in a shuffled order, at the round's learning rate, and noise once."""

    batch: int = 32
    momentum: float = 0.9
    ruled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.batch < 1 or not 0 <= self.momentum < 1:
            raise DpflbenchError(f"batch: {self.batch}, momentum: {self.momentum}; allowed: 1 or more, 0 to below 1")

    def compute(self, work: ClientWork, protect: Protect) -> Computed:
        """Return how far each client went, over the learning rate, protected once."""
        losses = None
        if work.loss_bound is not None:
            losses = mean_losses(work, work.theta.expand(len(work.cohort), -1), work.phi, work.loss_bound)
        dim, offsets = work.theta.numel(), work.shards.offsets
        orders = [
            offsets[n] + np.argsort(work.batches.uniform((int(offsets[n + 1] - offsets[n]),))) for n in work.cohort
        ]
        start = torch.cat([work.theta.expand(len(work.cohort), -1), work.phi], 1).double()
        model, velocity = start.clone(), torch.zeros_like(start)
        for first in range(0, max(map(len, orders)), self.batch):
            rows = np.array([k for k, order in enumerate(orders) if first < len(order)])
            chosen = [orders[k][first : first + self.batch] for k in rows]
            at = torch.as_tensor(rows, device=start.device)
            counts = np.array([len(part) for part in chosen])
            here = model[at].to(work.theta.dtype)
            clip = None if work.clip_norm is None else work.clip_norm[at]
            positions = torch.as_tensor(np.concatenate(chosen), device=start.device)
            sums = work.engine.batch_sums(here[:, :dim], here[:, dim:], work.shards, positions, counts, clip)
            mean = torch.cat([sums.theta, sums.phi], 1) / torch.as_tensor(counts, device=start.device)[:, None]
            velocity = velocity.index_copy(0, at, self.momentum * velocity[at] + mean)
            model = model.index_copy(0, at, model[at] - work.visit.lr * velocity[at])
        messages = protect((start - model) / work.visit.lr).to(work.theta.dtype)
        return Computed(messages=messages, losses=losses, own=work.visit.own, shared=work.visit.shared)
