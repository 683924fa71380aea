"""The noise of a plan: every client's releases for one participation, with the scale its share of the budget needs."""

from dataclasses import dataclass

import numpy as np

from dpflbench.errors import PluginError, RunEnded
from dpflbench.interfaces import LEAST_DRAWN, Event, Floats, Ints, Mechanism, Plan, Probe, Setup
from dpflbench.privacy.sensitivity import loss_sensitivity

DUST = 1e-3  # of an even share: what a use must be able to get at least; `check_affordable` says why


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

    def variance(self, mechanism: Mechanism) -> Floats:
        """Of one coordinate of a message [N]: the mean of its releases."""
        return mechanism.variance(self.message.scale) / self.message.steps

    def loss_scale(self) -> Floats:
        """The scale of each loss [N]: its own, or the message's where they travel together."""
        return self.message.scale if self.loss is None else self.loss.scale


def check_affordable(plan: Plan, left: Floats, used: Ints, setup: Setup, who: str) -> None:
    """Raise PluginError unless what is `left` [N, A] pays for the uses of a plan, `used` [N] of which were made before.

    Rounding noise up (to float32: 2^-22 of a Gaussian cost) leaves a remainder of every budget that was spent to the
    end. A later plan could use it, as honest as useless: at 1e-7 of a budget noise is thousands of times the signal.
    So what each use can get of `left` is compared with an even share of the whole budget over all uses of the client,
    past and planned, in the words of the accountant, so that neither a million uses nor `linear` composition are dust.
    Gaussian noise at DUST of an even share is 32 times that of an even share, Laplace noise a thousand times; what is
    kept back on purpose is far above, remainders of up to 4000 uses are below. `plan.cost` is the selector's own
    choice, as small as it likes as long as there is more (Uniform-minimum takes what the strictest client has), but
    not 0, which no finite noise costs.
    """
    uses = plan.uses.astype(float)
    per_use, whole = setup.accountant.per_use, (setup.epsilon, setup.delta)
    with np.errstate(divide="ignore", invalid="ignore"):  # inf / inf in a run without privacy: NaN is no dust
        even = per_use(setup.budget, uses + used, *whole)
        share = np.where(even > 0, per_use(left, uses, *whole) / even, 0.0).max(axis=-1)
    if plan.cost is not None:
        share = np.where((np.asarray(plan.cost) > 0).any(axis=-1), share, 0.0)
    poor = np.flatnonzero((plan.uses > 0) & (share < DUST))
    if len(poor):
        n = poor[0]
        raise PluginError(
            f"selector of {who}: client {n} has {share[n]:.2g} of an even share of its budget for a planned use; "
            f"allowed: {DUST:g} or more; fix: leave out clients that are spent, or keep something back by Plan.cost"
        )


def calibrate(plan: Plan, left: Floats, setup: Setup) -> Calibration:
    """Noise scales at which each use of the plan spends its share of what is left, and no more."""
    accountant, probe = setup.accountant, plan.probe
    cost = plan.cost
    if cost is None:
        cost = accountant.per_use(left, plan.uses.astype(float), setup.epsilon, setup.delta)
    cost = np.where(plan.uses[:, None] > 0, cost, 0.0)
    factor = np.ones(setup.n_clients) if plan.clip_factor is None else np.asarray(plan.clip_factor, dtype=float)
    apart = probe is not None and not probe.joint
    bound = probe.loss_bound if probe is not None and probe.joint else 0.0
    sampled = setup.local.noise_for_all is not None
    if not sampled:
        cost = accountant.settled(cost, setup.message(factor, bound))
    share = cost * (1 - probe.share) if probe is not None and apart else cost
    message = setup.message_for(share, factor, bound)
    if sampled:
        _check_rates(cost, message, setup)
        cost = accountant.settled(cost, message)
    if probe is None or not apart:
        return Calibration(setup.clip_norm * factor, message, None)
    once = loss_sensitivity(probe.loss_bound, setup.n_examples)
    loss = setup.mechanism.event("loss", once, neighbours=setup.neighbours)
    loss = loss.at(accountant.scale(cost * probe.share / probe.count, loss))
    return Calibration(setup.clip_norm * factor, message, loss)


def _check_rates(cost: Floats, message: Event, setup: Setup) -> None:
    """Raise RunEnded for a client that may spend something and would hardly ever draw a record."""
    none = np.flatnonzero((cost > 0).any(1) & (message.rate * setup.n_examples < LEAST_DRAWN))
    if len(none):
        raise RunEnded(
            f"client {none[0]}: noise of {setup.local.noise_for_all:g} sensitivities leaves its budget less than "
            f"{LEAST_DRAWN} records a step; allowed: more noise, fewer steps or calibrate: noise"
        )
