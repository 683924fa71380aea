"""The noise of a plan: every client's releases for one participation, with the scale its share of the budget needs."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpflbench.errors import PluginError, RunEnded
from dpflbench.interfaces import LEAST_DRAWN, AdaptiveClip, Event, Floats, Ints, Mechanism, Plan, Probe, Setup
from dpflbench.privacy.sensitivity import loss_sensitivity, quantile_sensitivity

DUST = 1e-3  # of an even share: what a use must be able to get at least; `check_affordable` says why
MANY = 1 << 10  # clients that are calibrated one by one where coins decide who takes part
SLIGHT = 2.0**-30  # more than rounding, and than the ledger keeps back for it


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What each client releases when it takes part, [N] rows; computed once a plan. Scales are inf for clients not
    used.
    """

    clip_norm: Floats  # [N]
    message: Event
    loss: Event | None  # each of the probe's losses, where they are noised apart from the message
    quantile: Event | None = None  # whether the message is within an adaptive clip, as a summand of weight 1
    by_coins: bool = False  # steps of a message are the rounds of a plan, each with a coin that decides who takes part
    weights: Floats | None = None  # [N], of messages in the sums of Poisson cohorts, whoever takes part
    counted: float = 0.0  # scale of the noise that protects those sums

    def releases(self, cohort: Ints, probe: Probe | None) -> list[Event]:
        """The events of one participation of a cohort, in the order they happen."""
        losses = [] if self.loss is None or probe is None else [self.loss.of(cohort)] * probe.count
        return [self.message.of(cohort), *losses]

    def variance(self, mechanism: Mechanism) -> Floats:
        """Of one coordinate of a message [N]: the mean of its releases."""
        return mechanism.variance(self.message.scale) / (1 if self.by_coins else self.message.steps)

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
    if setup.cohorts == "poisson":
        return _by_coins(plan, left, setup)
    accountant, probe = setup.accountant, plan.probe
    cost = plan.cost
    if cost is None:
        cost = accountant.per_use(left, plan.uses.astype(float), setup.epsilon, setup.delta)
    cost = np.where(plan.uses[:, None] > 0, cost, 0.0)
    factor = np.ones(setup.n_clients) if plan.clip_factor is None else np.asarray(plan.clip_factor, dtype=float)
    apart = probe is not None and not probe.joint
    bound = probe.loss_bound if probe is not None and probe.joint else 0.0
    if plan.adaptive is not None:
        return _with_quantile(cost, setup.message(factor, bound), factor, setup, plan.adaptive)
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


def _with_quantile(cost: Floats, message: Event, factor: Floats, setup: Setup, asked: AdaptiveClip) -> Calibration:
    """A message, and beside it, for `share` of the cost, whether it is within the clip."""
    accountant = setup.accountant
    bound = np.full(setup.n_clients, quantile_sensitivity(setup.neighbours))
    within = setup.mechanism.event("quantile", bound, neighbours=setup.neighbours)
    within = within.at(accountant.scale(cost * asked.share, within))
    message = message.at(accountant.scale(cost * (1 - asked.share), message))
    return Calibration(setup.clip_norm * factor, message, None, within)


def _by_coins(plan: Plan, left: Floats, setup: Setup) -> Calibration:
    """Noise at which all rounds together, each with the client in it at the rate of its coin, spend what is left."""
    used, horizon = plan.uses > 0, int(plan.horizon)
    factor = np.ones(setup.n_clients) if plan.clip_factor is None else np.asarray(plan.clip_factor, dtype=float)
    message = setup.message(factor)
    rate = np.where(used, np.minimum(1.0, plan.uses / horizon), 1.0)
    message = replace(message, rate=rate, steps=np.full(setup.n_clients, horizon, dtype=np.int64))
    if int(used.sum()) > MANY:
        scale = message.sensitivity * _coarse_noise(used, rate, horizon, setup) * (1 + 2.0**-50)
    else:
        scale = setup.accountant.scale(np.where(used[:, None], left, 0.0), message)
    scale = np.where(used, scale, np.inf)
    return Calibration(setup.clip_norm * factor, message.at(scale), None, by_coins=True)


def _coarse_noise(used: NDArray[np.bool_], rate: Floats, steps: int, setup: Setup) -> Floats:
    """Noise in sensitivities [N] for so many clients that each cannot be calibrated: budgets are rounded down and rates
    up to a grid, which asks for more noise and never less, and one of each cell is; the ledger charges what is true.
    """
    who = np.flatnonzero(used)
    logs = np.log2(np.stack([setup.epsilon[who], setup.delta[who], rate[who]]))
    for bits in range(7, -1, -1):  # to 2^-7 of a number, or coarser until there are few
        spots = np.floor(logs * 2.0**bits)
        spots[2] = np.ceil(logs[2] * 2.0**bits)
        low = spots.min(1, keepdims=True)
        span = (spots - low).max(1).astype(np.int64) + 1
        keys = np.ravel_multi_index(tuple((spots - low).astype(np.int64)), tuple(span))
        cells, of = np.unique(keys, return_inverse=True)
        if len(cells) <= MANY:
            break
    places = np.stack(np.unravel_index(cells, tuple(span))) + low
    epsilon, delta, often = 2.0 ** (places / 2.0**bits) * np.array([[1 - SLIGHT], [1 - SLIGHT], [1 + SLIGHT]])
    event = setup.mechanism.event("gradient", np.ones(len(cells)), np.minimum(1.0, often), steps, setup.neighbours)
    accountant = setup.accountant.of(epsilon, delta)
    noise = np.full(setup.n_clients, np.inf)
    noise[who] = accountant.scale(accountant.budget(epsilon, delta) * (1 - SLIGHT), event)[of]
    return noise


def _check_rates(cost: Floats, message: Event, setup: Setup) -> None:
    """Raise RunEnded for a client that may spend something and would hardly ever draw a record."""
    none = np.flatnonzero((cost > 0).any(1) & (message.rate * setup.n_examples < LEAST_DRAWN))
    if len(none):
        raise RunEnded(
            f"client {none[0]}: noise of {setup.local.noise_for_all:g} sensitivities leaves its budget less than "
            f"{LEAST_DRAWN} records a step; allowed: more noise, fewer steps or calibrate: noise"
        )
