"""`dpflbench audit` of local training: is a canary in a client's data, when batches are drawn in secret?

Neighbours are `zero_out`: of two halves of a federation, one client each, the one holds a canary that contributes its
whole clipped gradient whenever it is drawn, the other the same data with that contribution emptied. The adversary is
the server, which sees the message of each participation but no batch; what it tells apart is held against the whole
curve of (epsilon, delta) that the ledger's rows amount to by privacy loss distributions, for an epsilon at one small
delta by Rényi orders has more slack than many a mistake. The white-box part (`judges.watched`, `privacy.residuals`)
comes first and sees far more: division by a realised batch can hardly be seen in messages, for on average it moves them
by less than was paid for.

`audit_sampled_run` does the same to a run of a suite: one canary in every client, there or emptied by a coin, guessed
by whoever sees every step.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, ndtr
from scipy.stats import binom

from dpflbench.assembly import Assembly
from dpflbench.errors import DpflbenchError
from dpflbench.execution.prepare import Place, Prepared, prepare
from dpflbench.execution.prepare import task_of as task_of_run
from dpflbench.federation.minibatch import Minibatch
from dpflbench.federation.simulate import State, initial_state, rounds
from dpflbench.interfaces import Accountant, Algorithm, Floats, Ints, Mechanism
from dpflbench.judges.audit import (
    AUDIT_KEY,
    Canary,
    Federated,
    Listener,
    canaries,
    check_defined,
    muted,
    standard,
    taped,
    task_of,
    transcript,
    world_of,
)
from dpflbench.judges.bounds import Crossed, audit_curve, deltas_of, upper_rate
from dpflbench.judges.planted import Guessed, at_least, opposites, planted
from dpflbench.judges.watched import Canaries, Logbook, Watched, mixed
from dpflbench.privacy import pld
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.residuals import Examined, Tape, examine, shadowed
from dpflbench.randomness import Streams

ATTACKED = Minibatch(lr=1e-6, steps=8, batch=4)  # so short a way that a canary's gradient stays as it is on it
EPSILONS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)  # where the curve is looked at
DRAWS = 400  # of a client's coin, where power is computed
Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What an attack on messages found, and what it would have found: nine times in ten."""

    crossed: Crossed
    noise_seen: float  # noise below this share of its scale; 0: never
    rate_seen: float  # a rate above this many times what was charged; infinite: never


def watch_sampled(
    algorithm: Algorithm,
    mechanism: Mechanism,
    accountant: Accountant,
    *,
    local: Minibatch = ATTACKED,
    epsilon: float | None = None,
    delta: float = 1e-5,
    clients: int = 512,
    many: int = 3,
    seed: int = 0,
) -> tuple[Examined, float]:
    """Residuals, batches and paths of clients of two sizes, and how many times too high a rate must be to be seen."""
    check_defined(algorithm, mechanism)
    log = Logbook()
    watched = Watched(replace(local, lr=0.1), log)
    asked = Federated(clients, many, 0.1, epsilon or standard(mechanism), delta, watched)
    found = examine(taped(algorithm, mechanism, accountant, asked, seed), mechanism.law, log.tests())
    return found, log.rate_seen(len(found.tests))


def attack_sampled(
    algorithm: Algorithm,
    mechanism: Mechanism,
    accountant: Accountant,
    *,
    local: Minibatch = ATTACKED,
    epsilon: float | None = None,
    delta: float = 1e-5,
    clients: int = 4096,
    confidence: float = 0.999,
    seed: int = 0,
) -> Seen:
    """What messages of one participation give away about a canary's presence, against what the ledger charged."""
    check_defined(algorithm, mechanism)
    opposite = next(iter(canaries(1)))
    canary = replace(opposite, name="presence", pair=(opposite.pair[0], opposite.pair[0]))
    asked = Federated(clients, 1, 1.0, epsilon or standard(mechanism), delta)

    def release(stream: int) -> tuple[Floats, Floats]:
        seen, _ = _listened(algorithm, (mechanism, accountant), canary, local, asked, stream)
        return seen[0::2], seen[1::2]

    quiet, rows = _listened(algorithm, (muted(mechanism), accountant), canary, local, asked, seed)
    shift = quiet[1::2].mean(0) - quiet[0::2].mean(0)
    curve = tuple(zip(EPSILONS, pld.deltas(rows, EPSILONS, local.neighbours), strict=True))
    crossed = audit_curve(release, curve, confidence, seed, shift)
    if not shift.any():  # a rule that sends nothing
        return Seen(crossed=crossed, noise_seen=0.0, rate_seen=math.inf)
    z, q, steps = max(rows, key=lambda row: row[2])
    alone = (z, q, steps // algorithm.rule.passes), curve, crossed.trials, confidence  # no message tells of more passes
    noise = _last(lambda share: _caught(*alone, noise=share), 0.05, 1.0)
    rate = _last(lambda share: _caught(*alone, rate=1 / share), 1 / 16, 1.0)
    return Seen(crossed=crossed, noise_seen=noise, rate_seen=1 / rate if rate else math.inf)


def _listened(
    algorithm: Algorithm,
    noise: tuple[Mechanism, Accountant],
    canary: Canary,
    local: Minibatch,
    asked: Federated,
    seed: int,
) -> tuple[Floats, pld.Releases]:
    """All a server sees of each client [N, M], the canaries of even ones emptied, and the rows of who paid most."""
    task = task_of(canary, asked.cohort)
    watched = Watched(local, Logbook(emptied=task.train.offsets[1::2] - 1))
    listening = replace(algorithm, aggregator=Listener())
    world, theta, phi = world_of(listening, noise, task, replace(asked, local=watched), Streams(seed, AUDIT_KEY))
    ledger = Ledger(noise[1], world.setup.epsilon, world.setup.delta)
    *_, last = rounds(world, initial_state(world, theta, phi), ledger)
    return transcript(last, asked.cohort), charged(ledger)[int(np.argmax(ledger.epsilon_spent()))]


def charged(ledger: Ledger) -> list[pld.Releases]:
    """The rows of each client [N], equal ones together: noise over sensitivity, rate, steps."""
    events, found = ledger.events(), [dict[tuple[float, float], int]() for _ in range(ledger.n_clients)]
    noise = events["scale"] / events["sensitivity"]
    for n, z, q, t in zip(events["client"], noise, events["rate"], events["steps"], strict=True):
        found[n][float(z), float(q)] = found[n].get((float(z), float(q)), 0) + int(t)
    return [tuple(sorted((z, q, t) for (z, q), t in rows.items())) for rows in found]


def _caught(
    row: tuple[float, float, int], curve: Curve, trials: int, confidence: float, noise: float = 1.0, rate: float = 1.0
) -> bool:
    """Whether so little noise, or so high a rate, is seen nine times in ten in the mean of a participation's steps."""
    z, q, steps = row
    times = np.arange(steps + 1)
    weights = binom.pmf(times, steps, min(1.0, q * rate))
    shifts = times / (math.sqrt(steps) * z * noise)
    levels = np.linspace(-3.0, float(shifts[-1]) + 3.0, 400)
    alarms, misses = ndtr(-levels), (weights * ndtr(levels[:, None] - shifts)).sum(1)
    alpha, often = (1 - confidence) / 2, math.sqrt(0.9)
    upper = [upper_rate(binom.ppf(often, trials, r), trials, alpha) for r in (alarms, misses)]
    return bool((deltas_of(upper[0], upper[1], curve) > [delta for _, delta in curve]).any())


def _last(caught: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number between two at which something is still caught; 0 if it is not at the lowest."""
    if not caught(low):
        return 0.0
    while high - low > 0.005 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if caught(middle) else (low, middle)
    return low


def audit_sampled_run(
    assembly: Assembly, place: Place, repeats: int = 1, seed: int = 0
) -> tuple[Examined, Guessed, float]:
    """A run's residuals, batches and paths; the presence of all canaries guessed from its steps, over repeats with
    fresh noise; and how many times too high a rate must be to be seen.
    """
    if not assembly.algorithm.private or assembly.privacy is None:
        raise DpflbenchError(f"{assembly.algorithm.name}: promises no privacy, there is nothing to audit")
    local = assembly.federation.local
    if not isinstance(local, Minibatch):
        raise DpflbenchError("audit_sampled_run: local training alone; one full step has audit_run")
    tape, log, right = Tape(), Logbook(), 0
    chances, reach, steps = list[Floats](), list[Floats](), list[tuple[Floats, Floats]]()
    noise = replace(assembly.privacy, mechanism=shadowed(assembly.privacy.mechanism, tape))
    federation = replace(assembly.federation, local=Watched(local, log))
    listening = replace(assembly, privacy=noise, federation=federation)
    for repeat in range(repeats):
        rng = np.random.default_rng([seed, repeat])
        known = len(tape.kept)
        there = replace(place, noise_key=rng.bytes(16), noise_origin="given", save_every=math.inf)
        task = task_of_run(assembly, place)
        coins = rng.integers(0, 2, len(task.train.sizes))
        pair = opposites(task, rng)
        first = task.train.offsets[:-1].astype(np.int64)
        log.emptied, log.canaries = first[coins == 0], Canaries(first, np.zeros(len(coins)))
        prepared = prepare(listening, there, planted(task, pair, np.zeros_like(coins)), f"audit {repeat}")
        *_, last = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
        used = np.flatnonzero(prepared.ledger.used > 0)
        chances.append(_chances(prepared, last)[used])
        right += int(((log.canaries.score > 0) == coins)[used].sum())
        steps += _by_client(log.canaries, used)
        reach += [row[3] for row in log.canaries.steps]
        if repeat:  # residuals of one run are enough
            del tape.kept[known:]
    chance = np.concatenate(chances)
    found = Guessed(
        coins=len(chance),
        right=right,
        allowed=float(chance.sum()),
        p=at_least(chance, right),
        reach=float(np.concatenate(reach).mean()),
        visible=_visible(chance, steps),
    )
    examined = examine(tape, assembly.privacy.mechanism.law, log.tests())
    return examined, found, log.rate_seen(len(examined.tests))


def _chances(prepared: Prepared, last: State) -> Floats:
    """The most anybody may be right about each client's coin [N], by what the ledger charged.

    (1 + delta(0)) / 2 by privacy loss distributions where one plan served the whole run, for they have no proof for
    plans that depend on releases; else what epsilon and delta of the ledger allow.
    """
    ledger, setup = prepared.ledger, prepared.world.setup
    if len(last.notes) == 1 and isinstance(ledger, Ledger):
        return np.array([(1 + pld.deltas(rows, (0.0,), setup.neighbours)[0]) / 2 for rows in charged(ledger)])
    epsilon = ledger.epsilon_spent()
    return np.asarray(expit(epsilon) + setup.delta * expit(-epsilon))


def _by_client(heard: Canaries, used: Ints) -> list[tuple[Floats, Floats]]:
    """Lengths in scales and rates of all steps of each client that took part."""
    client = np.concatenate([row[0] for row in heard.steps])
    length, rate = (np.concatenate([row[i] for row in heard.steps]) for i in (1, 2))
    return [(length[client == n], rate[client == n]) for n in used]


def _visible(chances: Floats, steps: list[tuple[Floats, Floats]]) -> float:
    """The share of its scale at which noise lets so many coins be guessed that a claim is refuted nine times in ten."""
    rng = np.random.default_rng(0)
    width = max(len(length) for length, _ in steps)
    length, rate = (np.zeros((len(steps), width)) for _ in range(2))
    for row, (lengths, rates) in enumerate(steps):
        length[row, : len(lengths)], rate[row, : len(rates)] = lengths, rates
    normal, coin = rng.normal(size=(DRAWS, *length.shape)), rng.random((DRAWS, *length.shape)) < rate

    def seen(share: float) -> bool:
        d = length / share
        out, into = (mixed(x * d - d**2 / 2, rate).sum(2) for x in (normal, normal + coin * d))
        better = ((out <= 0).mean(0) + (into > 0).mean(0)) / 2
        need = 3.0902 * math.sqrt(float((chances * (1 - chances)).sum()))
        need += 1.2816 * math.sqrt(float((better * (1 - better)).sum()))
        return float((better - chances).sum()) > need

    return _last(seen, 0.01, 1.0)
