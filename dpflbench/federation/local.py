"""What a participation computes: the local updates of `federation.local`, each with its own sensitivity.

`full_step` is the paper's: one gradient over all of a client's examples. `minibatch` has a file of its own.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from dpflbench.federation.minibatch import Minibatch
from dpflbench.interfaces import ClientWork, Computed, Event, Floats, Ints, Mechanism, Neighbours, Protect
from dpflbench.privacy.sensitivity import gradient_sensitivity, joint_sensitivity


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


LOCAL_UPDATES = {"full_step": FullStep, "minibatch": Minibatch}
