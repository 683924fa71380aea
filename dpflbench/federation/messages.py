"""What leaves a client: computed by its local update, protected as trust demands, charged before anybody can look at
it.

The order is fixed here and nowhere else: the ledger is charged first and refuses what a budget does not cover; then the
local update runs, with noise on every release; only noisy rows, or one noisy sum, and noisy losses are returned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.federation.calibration import Calibration
from dpflbench.federation.gradients import Engine
from dpflbench.federation.minibatch import mean_losses
from dpflbench.federation.redaction import discreet
from dpflbench.federation.trust import Shown, Trusted, rows_shown
from dpflbench.interfaces import PLAIN, ClientWork, Event, Floats, Ints, LocalRule, Probe, Setup, State, Visit
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.unprotected import Unlimited
from dpflbench.randomness import Streams
from dpflbench.tasks.task import Shards


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Messages:
    """The noisy messages of one cohort."""

    theta: Tensor  # [K, D], uploaded; of a sum [1, D]
    phi: Tensor  # [K, P], kept by the clients
    received: Floats  # [K], noisy losses; empty without a probe
    stepped: Floats  # [K], NaN where not asked for
    loss_variance: Floats  # [K]
    own: Mapping[str, Tensor]  # [K, ...], what the local rule keeps at these clients
    shared: State  # of the local rule
    within: float | None = None  # noisy share of messages within an adaptive clip


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
    rule: LocalRule = PLAIN
    own: Mapping[str, Tensor] = field(default_factory=dict)  # the rule's rows of the cohort
    shared: State = None
    shown: Shown | None = None  # what the server will see; None: a row a client
    bound: float = 1.0  # an adaptive clip, in clip bounds


@discreet
def participate(
    part: Participation,
    setup: Setup,
    trust: Trusted,
    engine: Engine,
    shards: Shards,
    ledger: Ledger | Unlimited,
    streams: Streams,
) -> Messages:
    """The cohort's messages; BudgetExceeded before anything has happened."""
    cohort, theta, probe, calibration = part.cohort, part.theta, part.probe, part.calibration
    shown = rows_shown(calibration, cohort, probe) if part.shown is None else part.shown
    if shown.events:
        ledger.charge(part.round, shown.clients, shown.events)
    clipped, paid = np.isfinite(setup.clip_norm), shown.paid
    protect = trust.protect(setup.mechanism, shown, streams.draws("noise", part.round))
    if not len(cohort):  # nobody was drawn: the noise of nothing
        nothing, none = protect(theta.new_zeros(0, setup.dim, dtype=torch.float64)), np.zeros(0)
        return Messages(
            theta=nothing.to(theta.dtype), phi=part.phi, received=none, stepped=none, loss_variance=none,
            own=part.own, shared=part.shared,
        )  # fmt: skip
    work = ClientWork(
        engine=engine,
        theta=theta,
        phi=part.phi,
        shards=shards,
        cohort=cohort,
        clip_norm=torch.as_tensor(part.bound * calibration.clip_norm[cohort], device=theta.device) if clipped else None,
        loss_bound=probe.loss_bound if probe else None,
        event=paid,
        batches=streams.draws("batch", part.round),
        rule=part.rule,
        visit=_visit(part, setup, paid),
        adaptive=shown.quantile is not None,
    )
    computed = setup.local.compute(work, protect)
    message, losses = computed.messages if shown.weights is None else computed.messages[:1], computed.losses
    row, own, none = message[:, : theta.numel()], message[:, theta.numel() :], np.zeros(0)
    kept: dict[str, Any] = {"own": computed.own, "shared": computed.shared, "within": computed.within}
    if probe is None or losses is None:
        return Messages(theta=row, phi=own, received=none, stepped=none, loss_variance=none, **kept)
    means = [losses]
    if probe.after_step:
        # after its own noisy step: post-processing of a release, so the loss bound alone matters
        means.append(mean_losses(work, theta - part.lr * row, part.phi - part.lr * own, probe.loss_bound))
    scale = calibration.loss_scale()[cohort]
    exact = torch.stack(means, 1).cpu()  # wanted on the host, and noised there: one copy
    noisy = setup.mechanism.release(exact, scale, streams.draws("probe", part.round)).numpy()
    return Messages(
        theta=row,
        phi=own,
        received=noisy[:, 0],
        stepped=noisy[:, 1] if probe.after_step else np.full(len(cohort), np.nan),
        loss_variance=setup.mechanism.variance(scale),
        **kept,
    )


def _visit(part: Participation, setup: Setup, paid: Event) -> Visit:
    """What the cohort's local rule begins with."""
    steps = torch.as_tensor(paid.steps // setup.passes, dtype=part.theta.dtype, device=part.theta.device)
    return Visit(
        round=part.round,
        rounds=setup.rounds,
        theta=part.theta,
        n_clients=setup.n_clients,
        lr=part.lr,
        server_lr=part.lr,
        steps=steps,
        shared=part.shared,
        own=part.own,
    )
