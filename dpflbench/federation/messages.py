"""What leaves a client: computed by its local update, protected as trust demands, charged before anybody can look at
it.

The order is fixed here and nowhere else: the ledger is charged first and refuses what a budget does not cover; then the
local update runs, with noise on every release; only noisy rows and noisy losses are returned.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpflbench.federation.calibration import Calibration
from dpflbench.federation.gradients import Engine, bounded
from dpflbench.federation.redaction import discreet
from dpflbench.federation.trust import LocalTrust
from dpflbench.interfaces import ClientWork, Floats, Ints, Probe, Setup
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.unprotected import Unlimited
from dpflbench.randomness import Streams
from dpflbench.tasks.task import Shards


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Messages:
    """The noisy messages of one cohort."""

    theta: Tensor  # [K, D], uploaded
    phi: Tensor  # [K, P], kept by the clients
    received: Floats  # [K], noisy losses; empty without a probe
    stepped: Floats  # [K], NaN where not asked for
    loss_variance: Floats  # [K]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Participation:
    """One round of one cohort: who takes part, at which model, under which noise."""

    round: int
    cohort: Ints  # [K]
    theta: Tensor  # [D]
    phi: Tensor  # [K, P], the cohort's own rows
    calibration: Calibration
    probe: Probe | None
    lr: float


@discreet
def participate(
    part: Participation,
    setup: Setup,
    trust: LocalTrust,
    engine: Engine,
    shards: Shards,
    ledger: Ledger | Unlimited,
    streams: Streams,
) -> Messages:
    """The cohort's messages; BudgetExceeded before anything has happened."""
    cohort, theta, probe, calibration = part.cohort, part.theta, part.probe, part.calibration
    ledger.charge(part.round, cohort, calibration.releases(cohort, probe))
    clipped = np.isfinite(setup.clip_norm)
    clip = torch.as_tensor(calibration.clip_norm[cohort], device=theta.device) if clipped else None
    work = ClientWork(
        engine=engine,
        theta=theta,
        phi=part.phi,
        shards=shards,
        cohort=cohort,
        clip_norm=clip,
        loss_bound=probe.loss_bound if probe else None,
    )
    rng = streams.torch("noise", part.round, theta.device)
    protect = trust.protect(setup.mechanism, calibration.message.scale[cohort], rng)
    noisy, losses = setup.local.compute(work, protect)
    row, own, none = noisy[:, : theta.numel()], noisy[:, theta.numel() :], np.zeros(0)
    if probe is None or losses is None:
        return Messages(theta=row, phi=own, received=none, stepped=none, loss_variance=none)
    means = [losses]
    if probe.after_step:
        means.append(_stepped_losses(engine, part, row, own, shards, probe.loss_bound))
    scale = calibration.loss_scale()[cohort]
    noised = _probed(torch.stack(means), scale, setup, streams, part.round)
    return Messages(
        theta=row,
        phi=own,
        received=noised[0],
        stepped=noised[1] if probe.after_step else np.full(len(cohort), np.nan),
        loss_variance=setup.mechanism.variance(scale),
    )


def _probed(clean: Tensor, scale: Floats, setup: Setup, streams: Streams, round: int) -> Floats:
    """Noisy losses [1 or 2, K] on the host."""
    spread = torch.as_tensor(scale, dtype=torch.float32, device=clean.device).expand_as(clean).contiguous()
    noisy = setup.mechanism.release(clean, spread, streams.torch("probe", round, clean.device))
    return noisy.double().cpu().numpy()


def _stepped_losses(
    engine: Engine, part: Participation, row: Tensor, own: Tensor, shards: Shards, bound: float
) -> Tensor:
    """Mean clipped loss of each client after its own noisy step: post-processing of a release, so the loss bound alone
    matters.
    """
    means = []
    for k, n in enumerate(part.cohort):
        start, stop = int(shards.offsets[n]), int(shards.offsets[n + 1])
        theta, phi = part.theta - part.lr * row[k], part.phi[k] - part.lr * own[k]
        losses = engine.losses(theta, phi, shards.x[start:stop], shards.y[start:stop])
        means.append(bounded(losses, bound).mean())
    return torch.stack(means)
