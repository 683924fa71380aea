"""The loop: plan → cohort → ledger → noisy messages → aggregate → step → evaluate.

A round reads a State and returns the next one, and every generator belongs to one round: a run can stop after any round
and go on.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.errors import Diverged, PluginError, RunEnded
from dpflbench.federation.calibration import Calibration, calibrate, check_affordable
from dpflbench.federation.evaluate import Point, evaluate_global
from dpflbench.federation.gradients import Engine
from dpflbench.federation.leftovers import Inspection
from dpflbench.federation.local import WholeClient
from dpflbench.federation.messages import Messages, Participation, participate
from dpflbench.federation.pull import Pull, facts_of
from dpflbench.federation.schedule import check_plan, cohort_of, drawn_by_coins
from dpflbench.federation.server import first_moments, stepped
from dpflbench.federation.trust import Shown, Trusted, initial
from dpflbench.interfaces import Algorithm, Cohort, Floats, Ints, Losses, Plan, PlanView, Server, Setup, Updates
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.unprotected import Unlimited
from dpflbench.randomness import Streams
from dpflbench.tasks.task import Task

LEAST_BOUND = 2.0**-20  # an adaptive clip is between this and its inverse, in clip bounds


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class World:
    """What does not change during a run."""

    algorithm: Algorithm
    setup: Setup
    task: Task
    engine: Engine
    trust: Trusted
    streams: Streams
    server: Server
    weight_decay: float
    evaluate_every: int
    inspection: Inspection = field(default_factory=Inspection)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class State:
    """What changes: all a checkpoint has to hold, together with the ledger."""

    round: int
    theta: Tensor  # [D]
    server: tuple[Tensor, ...]  # moments [D] of the server's step
    phi: Tensor  # [N, P]
    aggregator: Any
    shared: Any  # of the local rule
    own: Mapping[str, Tensor]  # [N, ...], what the rule keeps at clients: no server code sees it
    plan: Plan | None
    plan_end: int  # the round at which the selector is asked again
    calibration: Calibration | None  # of the current plan
    uses_left: Ints  # [N], of the current plan
    used: Ints  # [N], over the run
    losses: Losses
    pull: Pull
    bounds: tuple[float, ...] = (1.0,)  # an adaptive clip before each round, in clip bounds; the last is the present
    points: tuple[tuple[int, Point], ...] = ()
    notes: tuple[dict[str, Any], ...] = ()

    @property
    def planned(self) -> tuple[Plan, Calibration]:
        """The current plan and its noise; there is none before the first."""
        if self.plan is None or self.calibration is None:
            raise RuntimeError(f"round {self.round} has no plan")
        return self.plan, self.calibration


@dataclass(slots=True)
class Clock:
    """Where the time of a run goes; part of no result."""

    gradient: float = 0.0
    samples: int = 0
    started: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)  # set anew when the rounds begin
    laps: int = 0  # rounds this process has played
    warm: tuple[float, float, int] = (0.0, 0.0, 0)  # after the first of them: the time, gradient, samples

    @contextmanager
    def gradients(self, samples: int) -> Iterator[None]:
        """Count what happens inside as time in which clients compute."""
        began = time.perf_counter()
        yield
        self.gradient += time.perf_counter() - began
        self.samples += samples

    def lap(self) -> None:
        """A round has ended; the first of a process pays for imports and first calls, so what follows is told apart."""
        self.laps += 1
        if self.laps == 1:
            self.warm = (time.perf_counter(), self.gradient, self.samples)


def initial_state(world: World, theta: Tensor, phi: Tensor) -> State:
    """The state before the first round, evaluated once."""
    n, none = world.setup.n_clients, np.zeros(0)
    losses = Losses(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), none, none, none)
    shared, own = world.algorithm.rule.init(world.setup, theta)
    state = State(
        round=0,
        theta=theta,
        server=first_moments(world.server, theta),
        phi=phi,
        aggregator=initial(world.algorithm.aggregator, world.setup),
        shared=shared,
        own=own,
        plan=None,
        plan_end=0,
        calibration=None,
        uses_left=np.zeros(n, dtype=np.int64),
        used=np.zeros(n, dtype=np.int64),
        losses=losses,
        pull=Pull(weight=np.zeros(n)),
    )
    return _evaluated(world, state)


def rounds(world: World, state: State, ledger: Ledger | Unlimited, clock: Clock | None = None) -> Iterator[State]:
    """The states after each round still to play, in order. The ledger belongs to the run and is charged as rounds are
    played.
    """
    clock = clock or Clock()
    while state.round < world.setup.rounds:
        if state.round == state.plan_end:
            state = _planned(world, state, ledger)
        state = play(world, state, ledger, clock)
        clock.lap()
        yield state


def _planned(world: World, state: State, ledger: Ledger | Unlimited) -> State:
    """The state with a new plan, checked, and the noise it implies."""
    setup, left = world.setup, ledger.left
    view = PlanView(setup, state.round, state.used, left, state.losses)
    plan = world.algorithm.selector.plan(view, world.streams.numpy("select", -1 - state.round))
    calibration = settled_plan(world, plan, left, view)
    accountant = setup.accountant
    if not accountant.adaptive and (plan.horizon < setup.rounds or plan.probe is not None):
        raise RunEnded(
            f"accountant {accountant.name} has a proof for plans fixed before the first round and equal releases; "
            f"{world.algorithm.name} plans {'with losses' if plan.probe else 'in stages'}; allowed: accountant rdp"
        )
    note = {**plan.notes, "round": state.round, "horizon": int(plan.horizon), **_terms(plan)}
    return replace(
        state,
        plan=plan,
        plan_end=state.round + int(plan.horizon),
        calibration=calibration,
        uses_left=plan.uses.astype(np.int64),
        notes=(*state.notes, note),
    )


def settled_plan(world: World, plan: Plan, left: Floats, view: PlanView) -> Calibration:
    """The noise of a plan; PluginError or RunEnded if it is none that this frame can keep and pay for."""
    setup, who = world.setup, world.algorithm.name
    check_plan(
        plan,
        n_clients=setup.n_clients,
        cohort_size=setup.cohort_size,
        rounds_left=view.rounds_left,
        who=who,
        cohorts=setup.cohorts,
    )
    if plan.probe is not None and not setup.probes:
        raise RunEnded(
            f"{who} asks for clients' losses, which nobody sees in this frame; allowed: plans without a probe"
        )
    if plan.adaptive is not None and (setup.unit == "example" or setup.trust.rows or setup.cohorts == "poisson"):
        raise RunEnded(
            f"{who} adapts the clip of whole clients by a sum over exact cohorts; allowed: privacy.unit: client with "
            "privacy.trust: secure_sum or central and federation.cohorts: exact"
        )
    check_affordable(plan, left, view.used, setup, who)
    calibration = calibrate(plan, left, setup)
    used = np.flatnonzero(plan.uses > 0)
    everybody = facts_of(used, setup, calibration.variance(setup.mechanism), view.round)
    try:
        return world.trust.settled(calibration, everybody, world.algorithm.aggregator, setup)
    except PluginError as e:
        raise PluginError(f"aggregator of {who}: {e}") from None


def _terms(plan: Plan) -> dict[str, Any]:
    """What of a plan changes sensitivities: kept in the record, so that `dpflbench verify` can recompute them."""
    terms: dict[str, Any] = {}
    if plan.cohorts is not None:
        terms["cohorts"] = np.asarray(plan.cohorts, dtype=np.int64)
    if plan.adaptive is not None:
        terms["adaptive"] = asdict(plan.adaptive)
    if plan.clip_factor is not None:
        terms["clip_factor"] = np.asarray(plan.clip_factor, dtype=np.float64)
    if plan.probe is not None:
        terms["probe"] = asdict(plan.probe)
    return terms


def play(world: World, state: State, ledger: Ledger | Unlimited, clock: Clock) -> State:
    """The state after one round of a plan."""
    setup, (plan, calibration) = world.setup, state.planned
    cohort = next_cohort(world, plan, state.uses_left, state.plan_end, state.round)
    facts = facts_of(cohort, setup, calibration.variance(setup.mechanism), state.round, state.theta)
    first = state.round == state.plan_end - int(plan.horizon)
    rows, lr = torch.as_tensor(cohort, device=state.phi.device), setup.lr(state.round)
    part = Participation(
        round=state.round,
        cohort=cohort,
        theta=state.theta,
        phi=state.phi[rows],
        calibration=calibration,
        probe=plan.probe,
        lr=lr,
        rule=world.algorithm.rule,
        own={name: value[rows] for name, value in state.own.items()},
        shared=state.shared,
        shown=round_shown(world, plan, calibration, cohort, facts, first, state.bounds[-1]),
        bound=state.bounds[-1],
    )

    def computed() -> Messages:
        with clock.gradients(_samples(setup, calibration, cohort)):
            return participate(part, setup, world.trust, world.engine, world.task.train, ledger, world.streams)

    messages = world.inspection.of(state.round, computed, (ledger, world.engine))
    direction, aggregator, pull = _aggregated(world, state, facts, messages, part.shown)
    if world.weight_decay:  # outside the clip, where it depends on no data
        direction = direction + world.weight_decay * state.theta
    step, server = stepped(world.server, direction, state.server)
    theta = state.theta - lr * step
    phi = state.phi.index_copy(0, rows, part.phi - lr * messages.phi) if state.phi.shape[1] else state.phi
    used, uses_left = state.used.copy(), state.uses_left.copy()
    used[cohort] += 1
    uses_left[cohort] -= setup.cohorts == "exact"
    after = replace(
        state,
        round=state.round + 1,
        theta=theta,
        server=server,
        phi=phi,
        aggregator=aggregator,
        shared=messages.shared,
        own={name: value.index_copy(0, rows, messages.own[name]) for name, value in state.own.items()},
        used=used,
        uses_left=uses_left,
        losses=_remembered(state.losses, messages, cohort, state.round),
        pull=pull,
        bounds=_bounds(state.bounds, plan, messages),
    )
    if not bool(torch.isfinite(theta).all()):
        raise Diverged(f"the model is no longer finite after round {after.round}")
    due = after.round % world.evaluate_every == 0 or after.round == setup.rounds
    return _evaluated(world, after) if due else after


def next_cohort(world: World, plan: Plan, uses_left: Ints, plan_end: int, round: int) -> Ints:
    """Who takes part in a round of a plan."""
    if world.setup.cohorts == "poisson":
        return drawn_by_coins(plan, world.streams, round, world.algorithm.private)
    return cohort_of(plan, uses_left, int(plan.horizon) - (plan_end - round), world.streams.numpy("select", round))


def round_shown(
    world: World, plan: Plan, calibration: Calibration, cohort: Ints, facts: Cohort, first: bool, bound: float = 1.0
) -> Shown:
    """What a round shows and costs, from public facts; `first` of its plan."""
    by, probe = world.algorithm.aggregator, plan.probe
    try:
        return world.trust.shown(calibration, cohort, facts, by, probe, world.setup, first, bound)
    except PluginError as e:
        raise PluginError(f"aggregator of {world.algorithm.name}: {e}") from None


def _samples(setup: Setup, calibration: Calibration, cohort: Ints) -> int:
    """Examples that a cohort differentiates, on average."""
    event = calibration.message.of(cohort)
    if setup.unit == "client" or calibration.by_coins:  # what is paid for is not what is computed
        local = setup.local.local if isinstance(setup.local, WholeClient) else setup.local
        event = local.event(setup.mechanism, np.full(len(cohort), np.inf), setup.n_examples[cohort])
    return int((setup.n_examples[cohort] * event.rate * event.steps).sum())


def _bounds(bounds: tuple[float, ...], plan: Plan, messages: Messages) -> tuple[float, ...]:
    """The clip bound after a round, if it adapts."""
    if plan.adaptive is None or messages.within is None:
        return bounds
    step = np.exp(-plan.adaptive.rate * (min(1.0, max(0.0, messages.within)) - plan.adaptive.quantile))
    return (*bounds, float(np.clip(bounds[-1] * step, LEAST_BOUND, 1 / LEAST_BOUND)))


def _aggregated(
    world: World, state: State, facts: Cohort, messages: Messages, shown: Shown | None
) -> tuple[Tensor, Any, Pull]:
    """The aggregator's direction, refused if it is not one, its next state, and who has pulled so far."""
    values = messages.theta.contiguous()
    updates = Updates(**{f.name: getattr(facts, f.name) for f in fields(facts)}, values=values)
    if not bool(torch.isfinite(values).all()):
        raise Diverged(f"a gradient is no longer finite in round {state.round}")
    versions, who = values._version, f"aggregator of {world.algorithm.name}"
    try:
        direction, aggregator, weights = world.trust.combine(
            world.algorithm.aggregator, updates, state.aggregator, shown
        )
    except PluginError as e:
        raise PluginError(f"{who}: {e}") from None
    if values._version != versions:
        raise PluginError(f"{who}: changes updates.values in place; return a new tensor")
    if not isinstance(direction, Tensor) or direction.shape != state.theta.shape:
        found = tuple(direction.shape) if isinstance(direction, Tensor) else type(direction).__name__
        raise PluginError(f"{who}: returned {found}; expected a direction of shape {tuple(state.theta.shape)}")
    if direction.dtype != values.dtype or direction.device != values.device:
        raise PluginError(
            f"{who}: returned {direction.dtype} on {direction.device}; expected {values.dtype} on {values.device}"
        )
    if not bool(torch.isfinite(direction).all()):
        raise PluginError(f"{who}: made non-finite values of finite updates in round {state.round}")
    noise = None if shown is None else shown.variance(world.setup.mechanism)
    return direction, aggregator, state.pull.after(updates, weights, noise)


def _remembered(losses: Losses, messages: Messages, cohort: Ints, round: int) -> Losses:
    if not len(messages.received):
        return losses
    return Losses(
        np.append(losses.round, np.full(len(cohort), round)),
        np.append(losses.client, cohort),
        np.append(losses.received, messages.received),
        np.append(losses.stepped, messages.stepped),
        np.append(losses.variance, messages.loss_variance),
    )


def _evaluated(world: World, state: State) -> State:
    point = evaluate_global(world.engine, state.theta, world.task)
    if not np.isfinite(point.loss):
        raise Diverged(f"the test loss is {point.loss} after round {state.round}")
    return replace(state, points=(*state.points, (state.round, point)))
