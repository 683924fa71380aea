"""The noise of a plan: every client's releases for one participation, with the scale its share of the budget needs."""

from dataclasses import dataclass

import numpy as np

from dpflbench.interfaces import Event, Floats, Ints, Plan, Probe, Setup
from dpflbench.privacy.sensitivity import loss_sensitivity


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What each client releases when it takes part, [N] rows; computed once a plan. Scales are inf for clients not
    used.
    """

    clip_norm: Floats  # [N]
    message: Event
    loss: Event | None  # each of the probe's losses, where they are noised apart from the message

    def releases(self, cohort: Ints, probe: Probe | None) -> list[Event]:
        """The events of one participation of a cohort, in the order they happen."""
        losses = [] if self.loss is None or probe is None else [self.loss.of(cohort)] * probe.count
        return [self.message.of(cohort), *losses]

    def loss_scale(self) -> Floats:
        """The scale of each loss [N]: its own, or the message's where they travel together."""
        return self.message.scale if self.loss is None else self.loss.scale


def calibrate(plan: Plan, left: Floats, setup: Setup) -> Calibration:
    """Noise scales at which each use of the plan spends its share of what is left, and no more."""
    accountant, probe = setup.accountant, plan.probe
    cost = plan.cost
    if cost is None:
        cost = accountant.per_use(left, plan.uses.astype(float), setup.epsilon, setup.delta)
    cost = np.where(plan.uses[:, None] > 0, cost, 0.0)
    factor = np.ones(setup.n_clients) if plan.clip_factor is None else np.asarray(plan.clip_factor, dtype=float)
    apart = probe is not None and not probe.joint
    message = setup.message(factor, probe.loss_bound if probe is not None and probe.joint else 0.0)
    share = 1 - probe.share if probe is not None and apart else 1.0
    message = message.at(accountant.scale(cost * share, message))
    if probe is None or not apart:
        return Calibration(setup.clip_norm * factor, message, None)
    loss = setup.mechanism.event("loss", loss_sensitivity(probe.loss_bound, setup.n_examples))
    loss = loss.at(accountant.scale(cost * probe.share / probe.count, loss))
    return Calibration(setup.clip_norm * factor, message, loss)
