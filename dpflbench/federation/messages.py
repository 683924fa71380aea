"""What leaves a client: clipped, noised and charged before anybody can look at it.

The order is fixed here and nowhere else: the ledger is charged first and refuses what a budget does not cover; then the
clipped mean of the client's own samples gets its noise; only the noisy rows are returned.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpflbench.federation.gradients import Engine, bounded
from dpflbench.interfaces import Floats, Ints, Mechanism, Plan, Probe, Setup
from dpflbench.privacy.ledger import GRADIENT, JOINT, LOSS, Ledger
from dpflbench.privacy.sensitivity import gradient_sensitivity, joint_sensitivity, loss_sensitivity
from dpflbench.randomness import Streams
from dpflbench.tasks.task import Shards


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The noise of every client for one plan: computed once a plan, [N] arrays."""

    clip_norm: Floats  # [N]
    scale: Floats  # [N], of each coordinate of the gradient; inf for clients the plan does not use
    sensitivity: Floats  # [N]
    loss_scale: Floats | None  # [N], of each loss, when the plan has a probe
    loss_sensitivity: Floats | None


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """The noisy messages of one cohort."""

    theta: Tensor  # [K, D], uploaded
    phi: Tensor  # [K, P], kept by the clients
    received: Floats  # [K], noisy losses; empty without a probe
    stepped: Floats  # [K], NaN where not asked for
    loss_variance: Floats  # [K]


def calibrate(plan: Plan, left: Floats, setup: Setup) -> Calibration:
    """Noise scales at which each use of the plan spends its share of what is left, and no more."""
    mechanism = setup.mechanism
    cost = (
        plan.cost
        if plan.cost is not None
        else mechanism.per_use(left, plan.uses.astype(float), setup.epsilon, setup.delta)
    )
    cost = np.where(plan.uses[:, None] > 0, cost, 0.0)
    factor = np.ones(setup.n_clients) if plan.clip_factor is None else np.asarray(plan.clip_factor, dtype=float)
    clip_norm = setup.clip_norm * factor
    gradient = gradient_sensitivity(clip_norm, setup.n_examples)
    if plan.probe is None:
        return Calibration(clip_norm, mechanism.scale(cost, gradient), gradient, None, None)
    bound = plan.probe.loss_bound
    if plan.probe.joint:
        joint = joint_sensitivity(clip_norm, bound, setup.n_examples)
        scale = mechanism.scale(cost, joint)
        return Calibration(clip_norm, scale, joint, scale, joint)
    loss = loss_sensitivity(bound, setup.n_examples)
    count = 2 if plan.probe.after_step else 1
    return Calibration(
        clip_norm,
        mechanism.scale(cost * (1 - plan.probe.share), gradient),
        gradient,
        mechanism.scale(cost * plan.probe.share / count, loss),
        loss,
    )


def charge(ledger: Ledger, calibration: Calibration, cohort: Ints, round: int, probe: Probe | None) -> None:
    """Put every release of a round into the ledger; BudgetExceeded before anything has happened."""
    c = calibration
    kind = JOINT if probe and probe.joint else GRADIENT
    ledger.charge(round, cohort, c.sensitivity[cohort], c.scale[cohort], kind)
    if probe and not probe.joint and c.loss_scale is not None and c.loss_sensitivity is not None:
        for _ in range(2 if probe.after_step else 1):
            ledger.charge(round, cohort, c.loss_sensitivity[cohort], c.loss_scale[cohort], LOSS)


def release(
    engine: Engine,
    theta: Tensor,
    phi: Tensor,
    shards: Shards,
    cohort: Ints,
    calibration: Calibration,
    mechanism: Mechanism,
    probe: Probe | None,
    lr: float,
    streams: Streams,
    round: int,
) -> Messages:
    """The noisy messages of a cohort whose releases have been charged. phi [K, P] are the cohort's own rows."""
    c, device = calibration, theta.device
    # float64 up to the noise: a mean rounded to float32 before it would move by more than its sensitivity
    sizes = torch.as_tensor(shards.sizes[cohort], dtype=torch.float64, device=device)[:, None]
    clip = torch.as_tensor(c.clip_norm[cohort], dtype=torch.float64, device=device)
    sums = engine.clipped_sums(theta, phi, shards, cohort, clip, probe.loss_bound if probe else None)
    exact = torch.cat([sums.theta, sums.phi], 1) / sizes
    scale = torch.as_tensor(c.scale[cohort], dtype=theta.dtype, device=device)[:, None]
    noisy = (exact + mechanism.sample(scale, tuple(exact.shape), streams.torch("noise", round, device))).to(theta.dtype)
    row, own = noisy[:, : theta.numel()], noisy[:, theta.numel() :]
    nothing = np.zeros(0)
    if probe is None or sums.losses is None or c.loss_scale is None:
        return Messages(row, own, nothing, nothing, nothing)
    means = [sums.losses / sizes[:, 0]]
    if probe.after_step:
        means.append(_stepped_losses(engine, theta, phi, row, own, shards, cohort, lr, probe.loss_bound))
    loss_scale = torch.as_tensor(c.loss_scale[cohort], dtype=theta.dtype, device=device)
    clean = torch.stack(means)  # [1 or 2, K]
    noise = mechanism.sample(
        loss_scale.expand_as(clean).contiguous(), tuple(clean.shape), streams.torch("probe", round, device)
    )
    losses = (clean + noise).double().cpu().numpy()
    missing = np.full(len(cohort), np.nan)
    return Messages(
        row, own, losses[0], losses[1] if probe.after_step else missing, mechanism.variance(c.loss_scale[cohort])
    )


def _stepped_losses(
    engine: Engine,
    theta: Tensor,
    phi: Tensor,
    row: Tensor,
    own: Tensor,
    shards: Shards,
    cohort: Ints,
    lr: float,
    bound: float,
) -> Tensor:
    """Mean clipped loss of each client after its own noisy step: post-processing of a release, so the loss bound alone
    matters.
    """
    means = []
    for k, n in enumerate(cohort):
        start, stop = int(shards.offsets[n]), int(shards.offsets[n + 1])
        losses = engine.losses(theta - lr * row[k], phi[k] - lr * own[k], shards.x[start:stop], shards.y[start:stop])
        means.append(bounded(losses, bound).mean())
    return torch.stack(means)
