"""`dpflbench audit` of sums and whole clients: what can be told of one of them by whoever hears what that trust shows.

The adversary hears all that is handed to the server's side in a round, which must be one noisy sum and no row, knows
everything but what one client, or one example of it, contributes, and under a secure sum also the shares of noise of
those who are not counted on: of the noise in the sum it can subtract all but the honest part. Two small federations are
played many times over with fresh noise by the unchanged loop, selector, weights, clip and ledger the algorithm's own;
in one of them the canary contributes as much as its clip allows, in the other nothing (`zero_out`) or the opposite
(`replace`). What is told apart is held against the whole curve of (epsilon, delta) that the ledger charged the client.

Two white-box tests come first and accuse nobody falsely:

rows       what the server is handed in a round is one row, and does not change when two clients exchange their data
shares     the honest part of the noise that was drawn has the scale the ledger charged

With them `residuals` of all draws, as everywhere.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.errors import DpflbenchError
from dpflbench.federation.local import FullStep, protecting
from dpflbench.federation.simulate import State, World, initial_state, rounds
from dpflbench.federation.trust import Shown, Trusted, trust_of
from dpflbench.frame import PrivacyFrame
from dpflbench.interfaces import Accountant, Aggregator, Algorithm, Floats, LocalUpdate, Mechanism, Neighbours, Updates
from dpflbench.judges.audit import (
    AUDIT_KEY,
    FEATURES,
    HUGE,
    OTHERS,
    Federated,
    check_defined,
    muted,
    standard,
    world_of,
)
from dpflbench.judges.bounds import Crossed, audit_curve
from dpflbench.judges.coherence import EXACT
from dpflbench.privacy import pld
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.residuals import Examined, Tape, Tested, examine, is_normal, shadowed
from dpflbench.randomness import Streams
from dpflbench.tasks.task import Shards, Task

EPSILONS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)  # where the curve is looked at
COHORT, SURE = 4, 30.0  # clients a round; bias that makes every example but the canary predicted rightly
FULL_STEP = FullStep()


@dataclass(frozen=True, slots=True)
class Overheard:
    """A trust, doing what it ever does, and all that is handed to the server's side."""

    trust: Trusted
    heard: list[Tensor]

    def __getattr__(self, name: str) -> Any:
        """Return the trust's own."""
        return getattr(self.trust, name)

    def combine(
        self, aggregator: Aggregator, updates: Updates, state: Any, shown: Shown | None = None
    ) -> tuple[Any, Any, Tensor | None]:
        """Return the trust's own, and keep what it was made of."""
        self.heard.append(updates.values.detach().clone())
        return self.trust.combine(aggregator, updates, state, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlooked:
    """What an audit of a sum found."""

    noise: Examined  # white-box tests and residuals
    crossed: Crossed


def audit_sum(
    algorithm: Algorithm,
    mechanism: Mechanism,
    accountant: Accountant,
    frame: PrivacyFrame,
    *,
    neighbours: Neighbours | None = None,
    epsilon: float | None = None,
    delta: float = 1e-5,
    trials: int = 512,
    confidence: float = 0.999,
    seed: int = 0,
    trust: Trusted | None = None,
) -> Overlooked:
    """What sums of an algorithm give away in a frame; `trust` in place of the frame's own is for tests of this."""
    check_defined(algorithm, mechanism)
    if not is_normal(mechanism.law) or frame.gap(algorithm) or frame.refusal(mechanism):
        why = f" {frame.gap(algorithm)}" if frame.gap(algorithm) else f": {frame.refusal(mechanism) or mechanism.name}"
        raise DpflbenchError(f"{algorithm.name}{why}; allowed: frames it has a place in, under normal noise")
    stage = _Stage(
        algorithm, accountant, frame, neighbours or frame.neighbours, epsilon or standard(mechanism), delta, trust
    )
    tape, (present, absent, swapped) = Tape(), stage.tasks()
    seen, ledger = stage.play(shadowed(mechanism, tape), present, seed)
    again, _ = stage.play(mechanism, swapped, seed)
    tests = (_rows(stage, seen, again), _shares(stage, tape, ledger))
    charged = ledger.events()
    mine = charged["client"] == 0
    releases = zip(charged["scale"], charged["sensitivity"], charged["rate"], charged["steps"], mine, strict=True)
    paid = tuple((float(z / s), float(q), int(t)) for z, s, q, t, own in releases if own)
    curve = tuple(zip(EPSILONS, pld.deltas(paid, EPSILONS, stage.neighbours), strict=True))
    silent = muted(mechanism)
    quiet = [stage.heard(silent, task, seed) for task in (present, absent)]

    def release(stream: int) -> tuple[Floats, Floats]:
        one, other = (
            np.stack([stage.heard(mechanism, task, stream * trials + i) for i in range(trials)])
            for task in (present, absent)
        )
        if one.shape != other.shape or one.shape[1] != len(quiet[0]):
            return one, other  # rows of whoever was drawn: `rows` says so
        share = math.sqrt(frame.trust.counted(stage.among))
        if frame.cohorts == "poisson":  # who was drawn is secret, so there is no quiet sum to come back to
            return one, other
        return quiet[0] + share * (one - quiet[0]), quiet[1] + share * (other - quiet[1])

    shift = quiet[1] - quiet[0] if frame.cohorts == "exact" and quiet[0].shape == quiet[1].shape else None
    crossed = audit_curve(release, curve, confidence, seed, shift)
    return Overlooked(noise=examine(tape, mechanism.law, tests), crossed=crossed)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A small federation in which everybody has the same budget, so that the canary's client sets the noise."""

    algorithm: Algorithm
    accountant: Accountant
    frame: PrivacyFrame
    neighbours: Neighbours
    epsilon: float
    delta: float
    trust: Trusted | None
    made: dict[tuple[int, int], tuple[World, State]] = field(default_factory=dict)  # worlds differ in noise alone

    @property
    def clients(self) -> int:
        """All that may take part: twice a cohort where coins decide."""
        return COHORT if self.frame.cohorts == "exact" else 2 * COHORT

    @property
    def among(self) -> int:
        """Who adds shares of noise."""
        return self.clients

    def tasks(self) -> Iterator[Task]:
        """With the canary, without it (or with its opposite), and with the data of clients 0 and 1 exchanged."""
        size = OTHERS + 1
        x, y = torch.zeros(self.clients, size, FEATURES), torch.zeros(self.clients, size, dtype=torch.int64)
        changed = slice(None) if self.frame.unit == "client" else slice(0, 1)
        here = x.clone()
        here[0, changed, 0], labels = HUGE, y.clone()
        labels[0, changed] = 1  # predicted wrongly: a gradient far above the clip bound
        other, others = (x, y) if self.neighbours == "zero_out" else (-here, labels)
        order = torch.tensor([1, 0, *range(2, self.clients)])
        for inputs, classes in ((here, labels), (other, others), (here[order], labels[order])):
            yield _task(inputs, classes)

    def world(self, mechanism: Mechanism, task: Task) -> tuple[World, State]:
        """The loop's world and its first state, made once."""
        if (found := self.made.get((id(mechanism), id(task)))) is not None:
            return found
        local: LocalUpdate = protecting(self.frame.local, self.frame.unit)
        asked = Federated(COHORT, 1 if self.frame.cohorts == "exact" else 2, 1e-6, self.epsilon, self.delta, local)
        noise, streams = (mechanism, self.accountant), Streams(0, AUDIT_KEY)
        world, theta, phi = world_of(self.algorithm, noise, task, asked, streams)
        setup = replace(
            world.setup,
            neighbours=self.neighbours,
            trust=self.frame.trust,
            unit=self.frame.unit,
            cohorts=self.frame.cohorts,
        )
        world = replace(world, setup=setup)
        theta = theta.clone()
        theta[-2] = SURE  # the bias of the right class
        self.made[id(mechanism), id(task)] = world, initial_state(world, theta, phi)
        return self.made[id(mechanism), id(task)]

    def play(self, mechanism: Mechanism, task: Task, stream: int) -> tuple[list[Tensor], Ledger]:
        """What the server is handed, round by round, and the ledger."""
        world, state = self.world(mechanism, task)
        heard: list[Tensor] = []
        trust = Overheard(self.trust or trust_of(self.frame.trust), heard)
        world = replace(world, trust=trust, streams=Streams(stream, AUDIT_KEY, "summed"))
        ledger = Ledger(self.accountant, world.setup.epsilon, world.setup.delta)
        *_, last = rounds(world, state, ledger)
        if len(last.bounds) > 1:  # an adapted clip tells of the second sum
            heard.append(torch.tensor([[math.log(last.bounds[-1])]]))
        return heard, ledger

    def heard(self, mechanism: Mechanism, task: Task, stream: int) -> Floats:
        """The same as one vector."""
        return np.concatenate([each.double().numpy().ravel() for each in self.play(mechanism, task, stream)[0]])


def _rows(stage: _Stage, seen: list[Tensor], again: list[Tensor]) -> Tested:
    if stage.frame.trust.rows:
        return Tested("rows", 1.0, "a row a client, as promised")
    most = max(len(each) for each in seen)
    if most > 1:
        return Tested("rows", 0.0, f"the server is handed {most} rows where it should see one sum")
    if stage.frame.cohorts == "exact":  # coins are the clients' own
        apart = max(float((a - b).norm() / a.norm().clamp(min=1e-30)) for a, b in zip(seen, again, strict=True))
        if not apart <= 1e-3:
            text = f"what the server sees moves by {apart:.2g} of itself when two clients exchange their data"
            return Tested("rows", 0.0, text)
    return Tested("rows", 1.0, "one sum a round")


def _shares(stage: _Stage, tape: Tape, ledger: Ledger) -> Tested:
    drawn = np.concatenate([scale for *_, scale in tape.kept]) if tape.kept else np.zeros(1)
    honest, charged = drawn * math.sqrt(stage.frame.trust.counted(stage.among)), np.unique(ledger.events()["scale"])
    enough = np.isclose(honest[:, None], charged[None, :], rtol=2 * EXACT).any(1)
    if enough.all():
        return Tested("shares", 1.0, "the honest share of the noise is what was charged")
    worst = float(honest[~enough].min())
    return Tested("shares", 0.0, f"the honest share of the noise has scale {worst:.6g}, {charged[0]:.6g} was charged")


def _task(x: Tensor, y: Tensor) -> Task:
    clients, size = y.shape
    train = Shards(x.reshape(-1, FEATURES), y.reshape(-1), np.arange(clients + 1) * size)
    none = Shards(train.x[:0], train.y[:0], np.zeros(clients + 1, dtype=np.int64))
    return Task(train, none, torch.zeros(2, FEATURES), torch.tensor([0, 1]), 2, {})
