"""`dpflbench audit`: an algorithm's real client path, attacked with canaries.

The adversary is the server: it knows the whole data set but one example, sends any model it likes, and sees all that a
server sees: the noisy updates and noisy losses of every round. It wants to know which of two examples a client holds.
To try that many times at once, a federation of many clients is made, half of them holding the one canary and half the
other, all taking part in every round of the unchanged loop (`federation.simulate`): selector, transform, clipping,
noise and ledger are the algorithm's own, and only the aggregator, which is the server's anyway, is replaced by a
listener. What is told apart is held against what the ledger charged.

`audit_noise` needs no attack: it holds what left clients against what they computed (`privacy.residuals`), under the
algorithm's own aggregator.
"""

import math
from collections.abc import Container, Iterator
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients import Engine
from dpflbench.federation.local import FullStep
from dpflbench.federation.simulate import State, World, initial_state, rounds
from dpflbench.federation.trust import LocalTrust
from dpflbench.interfaces import (
    PLAIN,
    Accountant,
    Algorithm,
    Floats,
    LearningRate,
    LocalUpdate,
    Mechanism,
    Server,
    Setup,
    Updates,
)
from dpflbench.judges.bounds import Bound, Law, Promise, audit
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.residuals import Examined, Tape, examine, is_normal, shadowed
from dpflbench.randomness import Streams
from dpflbench.tasks.task import Shards, Task

FEATURES, OTHERS = 16, 12  # of an example; examples of a client beside the canary
LARGE = 400  # examples of one client in sixteen, where noise is examined
HUGE = 1000.0  # an input this large makes a gradient far longer than the clip bound of 1
AUDIT_KEY = bytes(16)  # the attack does not know that, and a verdict can be had again
FULL_STEP = FullStep()
STEEP = 10.0  # difference of the two logits' weights along the second feature, where the model is not zero


@dataclass(frozen=True, slots=True, eq=False)
class Canary:
    """Two neighbouring data sets of a client, the model they are shown, and for how long."""

    name: str
    theta: Tensor  # [2 (FEATURES + 1)]: weights of two logits, then biases
    others: tuple[Tensor, Tensor]  # x [OTHERS, FEATURES], y [OTHERS], the same in both worlds
    pair: tuple[tuple[Tensor, int], tuple[Tensor, int]]
    rounds: int
    lr: float = 1.0


@dataclass(frozen=True, slots=True)
class Listener:
    """The server as adversary: keeps every noisy row and never moves the model."""

    def init(self, setup: Setup) -> tuple[Tensor, ...]:
        """Return an empty memory."""
        return ()

    def aggregate(self, updates: Updates, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return a zero direction, and the memory with this round's rows."""
        return torch.zeros_like(updates.values[0]), (*state, updates.values.clone())


def canaries(many: int) -> Iterator[Canary]:
    """The canaries, from the plainest to the one for algorithms with a memory; `many` rounds where several are needed.

    opposite  gradients of opposite sign, both far above the clip bound, on few coordinates: reaches
              2 clip_norm / n_examples
    dense     the same spread evenly over all coordinates: reaches it in L2, while its L1 norm is sqrt(dim)
              times as long
    loss      a right and a wrong prediction: losses at both ends of [0, loss_bound]
    memory    one step of the input transform's shift, learnt from the canary alone, decides which half of the other
              examples is classified wrongly afterwards: harmless if the shift was learnt from a noisy gradient, an
              uproar if not
    """
    flat = torch.zeros(2, FEATURES)
    steep = flat.clone()
    steep[0, 1], steep[1, 1] = STEEP / 2, -STEEP / 2
    dot = torch.zeros(FEATURES)
    labels = torch.arange(OTHERS) % 2
    idle = (torch.zeros(OTHERS, FEATURES), labels)
    far = (_unit(2, HUGE).expand(OTHERS, -1).clone(), labels)
    big, wide, side = _unit(0, HUGE), torch.full((FEATURES,), HUGE), _unit(1, 2.0)
    yield Canary("opposite", _theta(flat), idle, ((big, 0), (big, 1)), 1)
    yield Canary("dense", _theta(flat), idle, ((wide, 0), (wide, 1)), 1)
    yield Canary("loss", _theta(steep), idle, ((side, 0), (side, 1)), many)
    yield Canary("memory", _theta(steep), far, ((dot, 0), (dot, 1)), many, lr=40.0)


def audit_algorithm(
    algorithm: Algorithm,
    mechanism: Mechanism,
    accountant: Accountant,
    *,
    epsilon: float | None = None,
    delta: float = 1e-5,
    clients: int = 4096,
    many: int = 12,
    confidence: float = 0.999,
    seed: int = 0,
    only: Container[str] | None = None,
) -> Iterator[tuple[str, Bound]]:
    """The outcome of every canary (or of those named in `only`) on one algorithm under one mechanism.

    Without an epsilon, the one at which so many clients see most: 8 where the whole Gaussian curve can be used, else 2.
    """
    check_full_step(algorithm)
    check_defined(algorithm, mechanism)
    law: Law = "gaussian" if is_normal(mechanism.law) else "laplace"  # the score of an attack, not a claim
    budget = epsilon or standard(mechanism), 0.0 if accountant.pure else delta
    for canary in (c for c in canaries(many) if only is None or c.name in only):
        quiet, claim = listen(algorithm, muted(mechanism), accountant, canary, 2, *budget, seed)

        def release(stream: int, canary: Canary = canary) -> tuple[Floats, Floats]:
            seen, _ = listen(algorithm, mechanism, accountant, canary, clients, *budget, stream)
            return seen[0::2], seen[1::2]

        yield canary.name, audit(release, claim, law, confidence, seed, quiet[1] - quiet[0])


def check_full_step(algorithm: Algorithm) -> None:
    """Raise DpflbenchError for algorithms that train at clients: `judges.sampled` attacks those."""
    if trains(algorithm):
        raise DpflbenchError(f"{algorithm.name}: trains at clients; what is attacked here is one full step")


def trains(algorithm: Algorithm) -> bool:
    """Whether an algorithm is defined for local training alone."""
    return algorithm.trains or algorithm.rule != PLAIN


def check_defined(algorithm: Algorithm, mechanism: Mechanism) -> None:
    """Raise DpflbenchError where there is nothing to audit."""
    if not algorithm.private:
        raise DpflbenchError(f"{algorithm.name}: promises no privacy, there is nothing to audit")
    if algorithm.mechanisms is not None and mechanism.name not in algorithm.mechanisms:
        raise DpflbenchError(
            f"{algorithm.name}: not defined for {mechanism.name}; allowed: {', '.join(sorted(algorithm.mechanisms))}"
        )


def standard(mechanism: Mechanism) -> float:
    """The epsilon at which attacks see most: 8 where the whole Gaussian curve can be used, else 2."""
    return 8.0 if is_normal(mechanism.law) else 2.0


def listen(
    algorithm: Algorithm,
    mechanism: Mechanism,
    accountant: Accountant,
    canary: Canary,
    clients: int,
    epsilon: float,
    delta: float,
    seed: int,
) -> tuple[Floats, Promise]:
    """All a server sees of each client [N, M], even ones in one world and odd ones in the other, and what the ledger
    charged.
    """
    world, _, phi = world_of(
        replace(algorithm, aggregator=Listener()),
        (mechanism, accountant),
        task_of(canary, clients),
        Federated(clients, canary.rounds, canary.lr, epsilon, delta),
        Streams(seed, AUDIT_KEY),
    )
    ledger = Ledger(accountant, world.setup.epsilon, world.setup.delta)
    *_, last = rounds(world, initial_state(world, canary.theta, phi), ledger)
    return transcript(last, clients), _claim(ledger, mechanism)


def audit_noise(
    algorithm: Algorithm,
    mechanism: Mechanism,
    accountant: Accountant,
    *,
    epsilon: float | None = None,
    delta: float = 1e-5,
    clients: int = 2048,
    many: int = 12,
    seed: int = 0,
) -> Examined:
    """Residuals of everything that leaves clients of two sizes while the algorithm's own aggregator moves the model."""
    check_full_step(algorithm)
    check_defined(algorithm, mechanism)
    asked = Federated(clients, many, 0.1, epsilon or standard(mechanism), 0.0 if accountant.pure else delta)
    return examine(taped(algorithm, mechanism, accountant, asked, seed), mechanism.law)


def taped(algorithm: Algorithm, mechanism: Mechanism, accountant: Accountant, asked: "Federated", seed: int) -> Tape:
    """All releases of a federation whose clients have two sizes, one in sixteen the large one."""
    tape, rng, clients = Tape(), np.random.default_rng(seed), asked.cohort
    sizes = np.where(np.arange(clients) % 16 == 0, LARGE, OTHERS + 1)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    x = torch.from_numpy(rng.normal(size=(offsets[-1], FEATURES)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 2, offsets[-1]))
    none = Shards(x[:0], y[:0], np.zeros(clients + 1, dtype=np.int64))
    task = Task(Shards(x, y, offsets), none, x[:2], y[:2], 2, {})
    noise = shadowed(mechanism, tape), accountant
    world, theta, phi = world_of(algorithm, noise, task, asked, Streams(seed, AUDIT_KEY))
    ledger = Ledger(accountant, world.setup.epsilon, world.setup.delta)
    for _ in rounds(world, initial_state(world, theta, phi), ledger):
        continue
    return tape


@dataclass(frozen=True, slots=True)
class Federated:
    """The federation of an audit: who takes part, how long, at which step and budget."""

    cohort: int
    rounds: int
    lr: float
    epsilon: float
    delta: float
    local: LocalUpdate = FULL_STEP


def world_of(
    algorithm: Algorithm, noise: tuple[Mechanism, Accountant], task: Task, asked: Federated, streams: Streams
) -> tuple[World, Tensor, Tensor]:
    """A world with a model of two logits, its first model and its transforms."""
    (mechanism, accountant), clients, module = noise, len(task.train.sizes), nn.Linear(FEATURES, 2)
    layout = Engine(module, 2, mechanism.clip_order).layout
    phi = algorithm.transform.init(clients, (FEATURES,), layout, streams.torch("transform"))
    allowed = np.full(clients, asked.epsilon), np.full(clients, asked.delta)
    setup = Setup(
        n_clients=clients,
        cohort_size=asked.cohort,
        rounds=asked.rounds,
        n_examples=task.train.sizes.astype(np.int64),
        epsilon=allowed[0],
        delta=allowed[1],
        budget=accountant.budget(*allowed),
        mechanism=mechanism,
        accountant=accountant,
        local=asked.local,
        clip_norm=1.0,
        lr=LearningRate(asked.lr),
        layout=layout,
        phi_dim=phi.shape[1],
        n_classes=2,
        neighbours=asked.local.neighbours,
        passes=algorithm.rule.passes,
    )
    world = World(
        algorithm=algorithm,
        setup=setup,
        task=task,
        engine=Engine(module, 2, mechanism.clip_order, algorithm.transform, phi.shape[1]),
        trust=LocalTrust(),
        streams=streams,
        server=Server(),
        weight_decay=0.0,
        evaluate_every=asked.rounds,
    )
    return world, _theta(torch.zeros(2, FEATURES)), phi


def muted(mechanism: Mechanism) -> Mechanism:
    """The mechanism, calibrating and charging as ever, that draws no noise: what the adversary computes in its head."""
    kind = type("Muted", (type(mechanism),), {"__slots__": (), "noised": lambda self, value, scale, draws: value})
    twin = copy(mechanism)
    object.__setattr__(twin, "__class__", kind)
    return twin


def _claim(ledger: Ledger, mechanism: Mechanism) -> Promise:
    spent = ledger.epsilon_spent()
    most = int(np.argmax(spent))
    mu = None
    if is_normal(mechanism.law):  # of all its releases together, whatever currency they were charged in
        events = ledger.events()
        mine = events["client"] == most
        mu = math.sqrt(float(np.sum((events["sensitivity"][mine] / events["scale"][mine]) ** 2)))
    return Promise(float(spent[most]), float(ledger.delta[most]), mu)


def transcript(state: State, clients: int) -> Floats:
    """All a listening server saw of each client [N, M]: its messages, then its losses."""
    losses = state.losses
    columns = [rows.double().numpy() for rows in state.aggregator]
    for t in np.unique(losses.round):
        order = np.argsort(losses.client[losses.round == t])
        columns += [losses.received[losses.round == t][order, None], losses.stepped[losses.round == t][order, None]]
    seen = np.concatenate(columns, 1)
    if seen.shape[0] != clients:
        raise DpflbenchError(
            f"{seen.shape[0]} of {clients} clients took part; an audit needs all of them in every round"
        )
    return seen[:, ~np.isnan(seen).any(0)]


def task_of(canary: Canary, clients: int) -> Task:
    """Half of the clients with the one canary, half with the other, in turn; it is the last example of each."""
    x = torch.stack([torch.cat([canary.others[0], example[None]]) for example, _ in canary.pair])  # [2, n, FEATURES]
    y = torch.stack([torch.cat([canary.others[1], torch.tensor([label])]) for _, label in canary.pair])
    half, size = clients // 2, OTHERS + 1
    offsets = np.arange(clients + 1) * size
    train = Shards(x.repeat(half, 1, 1).reshape(-1, FEATURES), y.repeat(half, 1).reshape(-1), offsets)
    none = Shards(train.x[:0], train.y[:0], np.zeros(clients + 1, dtype=np.int64))
    return Task(train, none, torch.zeros(2, FEATURES), torch.tensor([0, 1]), 2, {})


def _unit(at: int, size: float) -> Tensor:
    out = torch.zeros(FEATURES)
    out[at] = size
    return out


def _theta(weights: Tensor) -> Tensor:
    return torch.cat([weights.reshape(-1), torch.zeros(2)])
