"""The loop: plan → cohort → ledger → noisy messages → aggregate → step → evaluate.

A round reads a State and returns the next one, and every generator belongs to one round: a run can stop after any round
and go on.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.errors import Diverged, PluginError
from dpflbench.federation.evaluate import Point, evaluate_global
from dpflbench.federation.gradients import Engine
from dpflbench.federation.messages import Calibration, Messages, calibrate, charge, release
from dpflbench.federation.redaction import discreet
from dpflbench.federation.schedule import check_plan, draw_cohort
from dpflbench.interfaces import Algorithm, Ints, Losses, Plan, PlanView, Setup, Updates
from dpflbench.privacy.ledger import Ledger
from dpflbench.randomness import Streams
from dpflbench.tasks.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """What does not change during a run."""

    algorithm: Algorithm
    setup: Setup
    task: Task
    engine: Engine
    streams: Streams
    weight_decay: float
    momentum: float
    evaluate_every: int


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What changes: all a checkpoint has to hold, together with the ledger."""

    round: int
    theta: Tensor  # [D]
    velocity: Tensor  # [D], of server momentum
    phi: Tensor  # [N, P]
    aggregator: Any
    plan: Plan | None
    plan_end: int  # the round at which the selector is asked again
    calibration: Calibration | None  # of the current plan; None without privacy
    uses_left: Ints  # [N], of the current plan
    used: Ints  # [N], over the run
    losses: Losses
    points: tuple[tuple[int, Point], ...] = ()
    notes: tuple[dict[str, Any], ...] = ()


@dataclass(slots=True)
class Clock:
    """Where the time of a run goes; part of no result."""

    gradient: float = 0.0
    samples: int = 0
    started: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)  # set anew when the rounds begin


def initial_state(world: World, theta: Tensor, phi: Tensor) -> State:
    """The state before the first round, evaluated once."""
    n, none = world.setup.n_clients, np.zeros(0)
    losses = Losses(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), none, none, none)
    state = State(
        0,
        theta,
        torch.zeros_like(theta),
        phi,
        world.algorithm.aggregator.init(world.setup),
        None,
        0,
        None,
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        losses,
    )
    return _evaluated(world, state)


def rounds(world: World, state: State, ledger: Ledger | None, clock: Clock | None = None) -> Iterator[State]:
    """The states after each round still to play, in order. The ledger belongs to the run and is charged as rounds are
    played.
    """
    clock = clock or Clock()
    while state.round < world.setup.rounds:
        if state.round == state.plan_end:
            state = _planned(world, state, ledger)
        state = play(world, state, ledger, clock)
        yield state


def _planned(world: World, state: State, ledger: Ledger | None) -> State:
    """The state with a new plan, checked, and the noise it implies."""
    setup = world.setup
    left = ledger.left if ledger is not None else setup.budget
    view = PlanView(setup, state.round, state.used.copy(), left.copy(), state.losses)
    plan = world.algorithm.selector.plan(view, world.streams.numpy("select", -1 - state.round))
    check_plan(
        plan,
        n_clients=setup.n_clients,
        cohort_size=setup.cohort_size,
        rounds_left=view.rounds_left,
        who=world.algorithm.name,
    )
    note = {**plan.notes, "round": state.round, "horizon": int(plan.horizon), **_terms(plan)}
    calibration = calibrate(plan, left, setup) if ledger is not None else None
    return replace(
        state,
        plan=plan,
        plan_end=state.round + int(plan.horizon),
        calibration=calibration,
        uses_left=plan.uses.astype(np.int64),
        notes=(*state.notes, note),
    )


def _terms(plan: Plan) -> dict[str, Any]:
    """What of a plan changes sensitivities: kept in the record, so that `dpflbench verify` can recompute them."""
    terms: dict[str, Any] = {}
    if plan.clip_factor is not None:
        terms["clip_factor"] = np.asarray(plan.clip_factor, dtype=np.float64)
    if plan.probe is not None:
        terms["probe"] = asdict(plan.probe)
    return terms


def play(world: World, state: State, ledger: Ledger | None, clock: Clock) -> State:
    """The state after one round of a plan."""
    setup = world.setup
    cohort = draw_cohort(state.uses_left, state.plan_end - state.round, world.streams.numpy("select", state.round))
    lr = setup.lr(state.round)
    messages = _messages(world, state, ledger, cohort, lr, clock)
    direction, aggregator = _aggregated(world, state, cohort, messages)
    velocity, theta = _stepped(state.theta, state.velocity, direction, world, lr)
    phi = state.phi
    if phi.shape[1]:
        rows = torch.as_tensor(cohort, device=phi.device)
        phi = phi.index_copy(0, rows, phi[rows] - lr * messages.phi)
    used, uses_left = state.used.copy(), state.uses_left.copy()
    used[cohort] += 1
    uses_left[cohort] -= 1
    after = replace(
        state,
        round=state.round + 1,
        theta=theta,
        velocity=velocity,
        phi=phi,
        aggregator=aggregator,
        used=used,
        uses_left=uses_left,
        losses=_remembered(state.losses, messages, cohort, state.round),
    )
    if not bool(torch.isfinite(theta).all()):
        raise Diverged(f"the model is no longer finite after round {after.round}")
    due = after.round % world.evaluate_every == 0 or after.round == setup.rounds
    return _evaluated(world, after) if due else after


@discreet
def _messages(world: World, state: State, ledger: Ledger | None, cohort: Ints, lr: float, clock: Clock) -> Messages:
    """The cohort's messages: charged and noised, or exact for an algorithm without privacy."""
    began = time.perf_counter()
    shards, engine, theta = world.task.train, world.engine, state.theta
    phi = state.phi[torch.as_tensor(cohort, device=state.phi.device)]
    if ledger is not None and state.calibration is not None and state.plan is not None:
        charge(ledger, state.calibration, cohort, state.round, state.plan.probe)
        messages = release(
            engine,
            theta,
            phi,
            shards,
            cohort,
            state.calibration,
            world.setup.mechanism,
            state.plan.probe,
            lr,
            world.streams,
            state.round,
        )
    else:
        clip = theta.new_full((len(cohort),), world.setup.clip_norm) if world.algorithm.clip else None
        sums = engine.clipped_sums(theta, phi, shards, cohort, clip)
        sizes = torch.as_tensor(shards.sizes[cohort], dtype=theta.dtype, device=theta.device)[:, None]
        none = np.zeros(0)
        means = (sums.theta / sizes).to(theta.dtype), (sums.phi / sizes).to(theta.dtype)
        messages = Messages(*means, none, none, none)
    clock.gradient += time.perf_counter() - began
    clock.samples += int(shards.sizes[cohort].sum())
    return messages


def _aggregated(world: World, state: State, cohort: Ints, messages: Messages) -> tuple[Tensor, Any]:
    """The aggregator's direction, refused if it is not one."""
    setup, values, calibration = world.setup, messages.theta.contiguous(), state.calibration
    variance = setup.mechanism.variance(calibration.scale[cohort]) if calibration else np.zeros(len(cohort))

    def row(array: Any) -> Tensor:
        return torch.as_tensor(array, dtype=values.dtype, device=values.device)

    updates = Updates(
        values,
        torch.as_tensor(cohort, device=values.device),
        row(setup.epsilon[cohort]),
        row(setup.delta[cohort]),
        row(setup.n_examples[cohort]),
        row(variance),
        state.round,
    )
    if not bool(torch.isfinite(values).all()):
        raise Diverged(f"a gradient is no longer finite in round {state.round}")
    versions = values._version
    direction, aggregator = world.algorithm.aggregator.aggregate(updates, state.aggregator)
    who = f"aggregator of {world.algorithm.name}"
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
    return direction, aggregator


def _stepped(theta: Tensor, velocity: Tensor, direction: Tensor, world: World, lr: float) -> tuple[Tensor, Tensor]:
    """Server step: weight decay outside the clip and momentum on noisy directions are post-processing."""
    if world.weight_decay:
        direction = direction + world.weight_decay * theta
    if world.momentum:
        direction = velocity = world.momentum * velocity + direction
    return velocity, theta - lr * direction


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
