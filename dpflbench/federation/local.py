"""What a participation computes: the local updates of `federation.local`, each with its own sensitivity.

`full_step` is the paper's: one gradient over all of a client's examples. `minibatch` has a file of its own. Where whole
clients are protected, either runs plain and only its message is clipped.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dpflbench.federation.gradients.summation import MARGIN, row_norm
from dpflbench.federation.minibatch import Minibatch
from dpflbench.interfaces import (
    ClientWork,
    Computed,
    Event,
    Floats,
    Ints,
    LocalUpdate,
    Mechanism,
    Neighbours,
    Protect,
    Unit,
)
from dpflbench.privacy.sensitivity import HALF, client_sensitivity, gradient_sensitivity, joint_sensitivity
from dpflbench.privacy.unprotected import NoNoise


@dataclass(frozen=True, slots=True)
class FullStep:
    """The mean clipped gradient over all of a client's examples, released once."""

    neighbours: ClassVar[Neighbours] = "replace"
    accountant: ClassVar[str] = ""
    ruled: ClassVar[bool] = False
    noise_for_all: ClassVar[float | None] = None

    def event(
        self,
        mechanism: Mechanism,
        clip_norm: Floats,
        n_examples: Ints,
        loss_bound: float = 0.0,
        neighbours: Neighbours = "replace",
        rate: Floats | None = None,
    ) -> Event:
        """Return one release of every client: the gradient alone, or jointly with its losses."""
        if np.isinf(clip_norm).any():  # not clipped, so nothing is bounded: no accountant lets it through
            return mechanism.event("gradient", np.full(np.shape(clip_norm), np.inf))
        if not loss_bound:
            bound = gradient_sensitivity(clip_norm, n_examples, neighbours)
            return mechanism.event("gradient", bound, neighbours=neighbours)
        bound = joint_sensitivity(clip_norm, loss_bound, n_examples, neighbours)
        return mechanism.event("joint", bound, neighbours=neighbours)

    def compute(self, work: ClientWork, protect: Protect) -> Computed:
        """Return the protected means, and mean losses at the received model if a bound for them is given."""
        theta, shards = work.theta, work.shards
        sums = work.engine.clipped_sums(theta, work.phi, shards, work.cohort, work.clip_norm, work.loss_bound)
        # float64 up to the noise: a mean rounded to float32 before it would move by more than its sensitivity
        sizes = torch.as_tensor(shards.sizes[work.cohort], dtype=torch.float64, device=theta.device)[:, None]
        losses = None if sums.losses is None else sums.losses / sizes[:, 0]
        return Computed(messages=protect(torch.cat([sums.theta, sums.phi], 1) / sizes).to(theta.dtype), losses=losses)


@dataclass(frozen=True, slots=True)
class WholeClient:
    """Any local update, without clip and noise on the way, its message clipped as a whole (`privacy.unit: client`).

    Nothing between the received model and the message is protected, so nothing of it may be kept or shown: there is one
    release, and local rules that remember gradients are refused where a run is planned.
    """

    local: LocalUpdate
    noise_for_all: ClassVar[float | None] = None
    accountant: ClassVar[str] = ""

    @property
    def neighbours(self) -> Neighbours:
        """Return those of what it computes."""
        return self.local.neighbours

    @property
    def ruled(self) -> bool:
        """Return whether clients step."""
        return self.local.ruled

    def event(
        self,
        mechanism: Mechanism,
        clip_norm: Floats,
        n_examples: Ints,
        loss_bound: float = 0.0,
        neighbours: Neighbours = "replace",
        rate: Floats | None = None,
    ) -> Event:
        """Return one release of every client, as long as its clip bound."""
        if np.isinf(clip_norm).any():
            return mechanism.event("gradient", np.full(np.shape(clip_norm), np.inf), neighbours=neighbours)
        bound = np.broadcast_to(client_sensitivity(clip_norm, neighbours), np.shape(n_examples))
        return mechanism.event("gradient", bound, neighbours=neighbours)

    def compute(self, work: ClientWork, protect: Protect) -> Computed:
        """Return the protected messages of whole clients."""
        sizes = work.shards.sizes[work.cohort]
        inside = self.local.event(NoNoise(), np.full(len(sizes), np.inf), sizes)
        steps = torch.as_tensor(inside.steps.copy(), dtype=work.theta.dtype, device=work.theta.device)
        plain = replace(work, clip_norm=None, loss_bound=None, event=inside, visit=replace(work.visit, steps=steps))
        messages = self.local.compute(plain, unprotected).messages.double()
        within = None
        if work.clip_norm is not None:
            messages, within = clipped(messages, work.clip_norm, work.engine.clip_order)
        if not work.adaptive or within is None:
            return Computed(messages=protect(messages).to(work.theta.dtype))
        both = protect(torch.cat([messages, within[:, None].double() - HALF], 1))
        return Computed(messages=both[:, :-1].to(work.theta.dtype), within=float(both[0, -1]) + HALF)


def unprotected(value: Tensor, rows: Ints | None = None) -> Tensor:
    """The value as it is: for what does not leave a client yet."""
    return value


def clipped(messages: Tensor, bound: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """Messages [K, M] of norm at most `bound` [K], a margin below it, and which of them were; one that is not finite
    becomes 0, for no noise would hide it. Float64, so that rounding is far below the margin.
    """
    sums = row_norm(messages, order)
    norm = sums if order == 1 else sums.sqrt()
    shorter = bound.double() * (1.0 - MARGIN)
    factor = torch.where(norm > shorter, shorter / norm, torch.ones_like(norm))
    sound = torch.isfinite(norm)
    return torch.where(sound[:, None], messages * factor[:, None], torch.zeros_like(messages)), sound & (norm <= bound)


def protecting(local: LocalUpdate, unit: Unit) -> LocalUpdate:
    """The local update as it is where that unit is protected."""
    return WholeClient(local) if unit == "client" else local


LOCAL_UPDATES = {"full_step": FullStep, "minibatch": Minibatch}
