"""What a participation computes: the local updates of `federation.local`, each with its own sensitivity.

`full_step` is the paper's: one gradient over all of a client's examples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpflbench.interfaces import ClientWork, Event, Floats, Ints, Mechanism
from dpflbench.privacy.sensitivity import gradient_sensitivity, joint_sensitivity


@dataclass(frozen=True, slots=True)
class FullStep:
    """The mean clipped gradient over all of a client's examples, released once."""

    def event(self, mechanism: Mechanism, clip_norm: Floats, n_examples: Ints, loss_bound: float = 0.0) -> Event:
        """Return one release of every client: the gradient alone, or jointly with its losses."""
        if np.isinf(clip_norm).any():  # not clipped, so nothing is bounded: no accountant lets it through
            return mechanism.event("gradient", np.full(np.shape(clip_norm), np.inf))
        if not loss_bound:
            return mechanism.event("gradient", gradient_sensitivity(clip_norm, n_examples))
        return mechanism.event("joint", joint_sensitivity(clip_norm, loss_bound, n_examples))

    def compute(self, work: ClientWork, protect: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return the protected means, and mean losses at the received model if a bound for them is given."""
        theta, shards = work.theta, work.shards
        sums = work.engine.clipped_sums(theta, work.phi, shards, work.cohort, work.clip_norm, work.loss_bound)
        # float64 up to the noise: a mean rounded to float32 before it would move by more than its sensitivity
        sizes = torch.as_tensor(shards.sizes[work.cohort], dtype=torch.float64, device=theta.device)[:, None]
        losses = None if sums.losses is None else sums.losses / sizes[:, 0]
        return protect(torch.cat([sums.theta, sums.phi], 1) / sizes).to(theta.dtype), losses


LOCAL_UPDATES = {"full_step": FullStep}
