"""`dpflbench audit --suite`: a suite's own run, with one planted example in every client's data.

Model, data sizes, budgets, clip, local update and aggregator are the run's own, and the model moves as they make it
move. Each client holds one of two canaries, chosen by a coin; whoever has seen all messages, and knows everything but
the coins, guesses them. A client's coin cannot be guessed rightly more often than Phi(mu / 2) under mu-GDP, or
(e^epsilon + delta) / (1 + e^epsilon) under (epsilon, delta)-DP (Kairouz, Oh, Viswanath, 2015; Dong, Roth, Su, 2019);
coins and noise of different clients are independent, so right guesses beyond a sum of such coins refute the claim.

One-run bounds (Steinke, Nasr, Jagielski, 2023; Mahloujifar, Melis, Chaudhuri, 2024) serve several canaries in ONE
mechanism's data, whose guesses depend on each other. Here every client is a mechanism of its own: with one canary a
client both come down to the sum of coins above, and k canaries a client add at most what k repeats add, which need no
theorem. They would not add strength where it is lacking. Computed for the main job (100 clients, epsilon up to 6,
Gaussian, confidence 0.999, nine times in ten; canaries reach 0.82 of the sensitivity): half the noise is seen in 6
repeats, 0.7 of it in 71, 0.82 and more never; the residuals of one run see 0.997 of it. So these bounds are not used.
Laplace noise, whose epsilons add up over uses, gives such guesses far less to see than that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from scipy.special import expit, ndtr
from torch import Tensor

from dpflbench.assembly import Assembly
from dpflbench.draws import Law
from dpflbench.errors import DpflbenchError
from dpflbench.execution.prepare import Place, Prepared, prepare, task_of
from dpflbench.federation.local import FullStep
from dpflbench.federation.simulate import State, initial_state, rounds
from dpflbench.interfaces import Floats, Ints
from dpflbench.privacy.residuals import Examined, Tape, examine, excess, excess_table, is_normal, shadowed
from dpflbench.tasks.task import Shards, Task

FAR = 30.0  # a canary's inputs, in standard deviations of the data: its gradient is clipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Guessed:
    """How many coins were guessed, and how likely that is if the ledger is right."""

    coins: int
    right: int
    allowed: float  # the most the ledger's claims let one expect
    p: float  # that so many or more are right
    reach: float  # how far canaries move a message, over its sensitivity: mean over clients
    visible: float  # noise below this share of its scale is seen nine times in ten at confidence 0.999; 0: none is

    def violated(self, confidence: float) -> bool:
        """Whether the claim is refuted."""
        return self.p < 1 - confidence


def audit_run(assembly: Assembly, place: Place, repeats: int = 1, seed: int = 0) -> tuple[Examined, Guessed]:
    """Residuals of a run, and the coins of all clients guessed from its messages, over repeats with fresh noise."""
    if not assembly.algorithm.private or assembly.privacy is None:
        raise DpflbenchError(f"{assembly.algorithm.name}: promises no privacy, there is nothing to audit")
    if not isinstance(assembly.federation.local, FullStep):
        raise DpflbenchError("audit_run: its canaries are made for one full step; local training has audit_sampled_run")
    tape, right = Tape(), 0
    chances, reach, distance = list[Floats](), list[Floats](), list[Floats]()
    for repeat in range(repeats):
        rng = np.random.default_rng([seed, repeat])
        known = len(tape.kept)
        listening = replace(
            assembly, privacy=replace(assembly.privacy, mechanism=shadowed(assembly.privacy.mechanism, tape))
        )
        there = replace(place, noise_key=rng.bytes(16), noise_origin="given", save_every=math.inf)
        task = task_of(assembly, place)
        pair = opposites(task, rng)
        coins = rng.integers(0, 2, len(task.train.sizes))
        prepared = prepare(listening, there, planted(task, pair, coins), f"audit {repeat}")
        score, moved, apart = _listened(prepared, tape, pair, coins)
        used = prepared.ledger.used > 0
        chances.append(_chances(prepared)[used])
        reach.append(moved[used])
        distance.append(np.sqrt(information(assembly.privacy.mechanism.law) * apart[used]))
        right += int(((score > 0) == coins)[used].sum())
        if repeat:  # residuals of one run are enough
            del tape.kept[known:]
    chance = np.concatenate(chances)
    found = Guessed(
        coins=len(chance),
        right=right,
        allowed=float(chance.sum()),
        p=at_least(chance, right),
        reach=float(np.concatenate(reach).mean()),
        visible=_visible(chance, np.concatenate(distance)),
    )
    return examine(tape, assembly.privacy.mechanism.law), found


def at_least(chances: Sequence[float] | Floats, right: int) -> float:
    """The probability that so many of independent coins, each with its own chance, are guessed rightly."""
    weights = np.ones(1)
    for chance in chances:
        weights = np.convolve(weights, [1 - chance, chance])
    return float(min(1.0, weights[right:].sum()))


def _visible(chances: Floats, distance: Floats) -> float:
    """The share of its scale at which noise lets so many coins be guessed that a claim is refuted nine times in ten.

    `distance` is how far the two worlds of each client lie apart, in standard deviations of the best test.
    """
    low, high = 0.0, 1.0
    for _ in range(12):
        share = (low + high) / 2
        better = ndtr(distance / (2 * share))
        need = 3.0902 * math.sqrt(float((chances * (1 - chances)).sum()))
        need += 1.2816 * math.sqrt(float((better * (1 - better)).sum()))
        low, high = (share, high) if float((better - chances).sum()) > need else (low, share)
    return low


@cache
def information(law: Law) -> float:
    """Fisher's information about a shift, at scale 1: what the best test of many small shifts has to go by."""
    edges, heights = excess_table(law)
    z = np.linspace(0.0, float(np.interp(30.0, heights, edges)), 4000)
    slope = np.diff(_log_density(law, z)) / np.diff(z)
    return float(np.sum(np.square(slope) * -np.diff(np.exp(-excess(law, z)))))


def opposites(task: Task, rng: np.random.Generator) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Two examples for each client: inputs of opposite sign far out, or an image and its negative; targets likewise."""
    n, shape, x = len(task.train.sizes), task.input_shape, task.train.x
    coin = torch.from_numpy(rng.integers(0, 2, (n, *shape))).to(x.device)
    if x.dtype == torch.uint8:
        ones = (255 * coin).to(torch.uint8)
        inputs = ones, 255 - ones
    else:
        far = FAR * float(x.std()) * (2.0 * coin - 1.0)
        inputs = far.to(x.dtype), -far.to(x.dtype)
    if task.n_classes:
        label = torch.from_numpy(rng.integers(0, task.n_classes, n)).to(task.train.y)
        return (inputs[0], label), (inputs[1], label)
    spread = FAR * (float(task.train.y.std()) + 1e-6)
    high = torch.full((n,), spread).to(task.train.y)
    return (inputs[0], high), (inputs[0], -high)


def planted(task: Task, pair: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]], coins: Ints) -> Task:
    """The task with every client's first example exchanged for the canary its coin says."""
    train, first = task.train, torch.from_numpy(task.train.offsets[:-1].astype(np.int64))
    side = torch.from_numpy(coins.astype(bool)).to(train.x.device)
    x, y = train.x.clone(), train.y.clone()
    wide = side.reshape(-1, *[1] * (x.ndim - 1))
    x[first], y[first] = torch.where(wide, pair[1][0], pair[0][0]), torch.where(side, pair[1][1], pair[0][1])
    return replace(task, train=Shards(x, y, train.offsets))


def _listened(
    prepared: Prepared, tape: Tape, pair: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]], coins: Ints
) -> tuple[Floats, Floats, Floats]:
    """Each client's log-likelihood ratio of its two canaries over all its messages [N], how far they moved one, and all
    they moved in scales, squared.
    """
    world = prepared.world
    score, moved, apart = (np.zeros(world.setup.n_clients) for _ in range(3))
    before = initial_state(world, prepared.theta, prepared.phi)
    for state in rounds(world, before, prepared.ledger):
        cohort = np.flatnonzero(state.used - before.used)
        shift, sensitivity = _shift(prepared, before, state, pair, cohort)
        call = next((c for c in reversed(tape.kept) if c[1].shape[1] > 2 and len(c[1]) == len(cohort)), None)
        if call is None:
            raise DpflbenchError("audit --suite: a round's messages did not pass the mechanism")
        noise, scale = call[2][:, : shift.shape[1]], call[3][:, None]
        step = shift / scale
        to_first = noise + step * coins[cohort, None]  # residual if the first canary were there; else the second
        score[cohort] += (
            _log_density(world.setup.mechanism.law, to_first - step) - _log_density(world.setup.mechanism.law, to_first)
        ).sum(1)
        moved[cohort] = np.linalg.norm(shift, world.setup.mechanism.clip_order, axis=1) / sensitivity
        apart[cohort] += np.square(step).sum(1)
        before = state
    return score, moved, apart


def _shift(
    prepared: Prepared,
    before: State,
    state: State,
    pair: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]],
    cohort: Ints,
) -> tuple[Floats, Floats]:
    """What exchanging the first canary for the second adds to each message [K, D], and how much it may [K]."""
    world, (_, calibration) = prepared.world, state.planned
    rows = torch.from_numpy(cohort)
    x, y = (torch.cat([pair[0][i][rows], pair[1][i][rows]]) for i in (0, 1))
    clip = torch.as_tensor(np.tile(calibration.clip_norm[cohort], 2))
    phi = before.phi[rows].repeat(2, 1)
    singles = Shards(x, y, np.arange(len(x) + 1))
    sums = world.engine.clipped_sums(before.theta, phi, singles, np.arange(len(x)), clip).theta.numpy()
    sizes = world.setup.n_examples[cohort][:, None]
    return (sums[len(cohort) :] - sums[: len(cohort)]) / sizes, calibration.message.sensitivity[cohort]


def _chances(prepared: Prepared) -> Floats:
    """The most anybody may be right about each client's coin [N], by what the ledger charged."""
    setup, ledger = prepared.world.setup, prepared.ledger
    if is_normal(setup.mechanism.law):
        events = ledger.events()
        squares = np.square(events["sensitivity"] / events["scale"])
        return np.asarray(ndtr(np.sqrt(np.bincount(events["client"], squares, setup.n_clients)) / 2))
    epsilon = ledger.epsilon_spent()
    return np.asarray(expit(epsilon) + setup.delta * expit(-epsilon))


@cache
def _density_table(law: Law) -> tuple[Floats, Floats]:
    edges, heights = excess_table(law)
    return edges, np.log(np.gradient(heights, edges)) - heights


def _log_density(law: Law, z: Floats) -> Floats:
    """The logarithm of the density at each point, but for a constant."""
    return np.interp(np.abs(z), *_density_table(law))
