"""What a run will look like, before it is paid for: planned uses, noise scales, privacy cost, and noise against signal.

Nothing is trained. A selector that plans in stages is asked stage after stage, as in a run, with losses that are all
alike: what it will be told then, nobody knows yet. So its figures are those of the whole run, like everybody's.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dpflbench.assembly import Assembly
from dpflbench.execution.prepare import Place, Prepared, prepare
from dpflbench.federation.calibration import Calibration
from dpflbench.federation.pull import Pull, facts_of, foreseen, weights_known
from dpflbench.federation.simulate import next_cohort, round_shown, settled_plan
from dpflbench.federation.trust import Shown
from dpflbench.interfaces import Floats, Ints, Losses, Plan, PlanView, Setup
from dpflbench.privacy.information import data_coverage, mean_limit, noise_efficiency, variance_limit

Spread = tuple[float, float, float]  # min, median, max over clients that are used
# Noise of that many times the gradients at the clip bound, both added up over all rounds: hardly anything is learnt.
# In reports/heterogeneity all cells above it, and only few others, stay below 18 % accuracy. A rule of thumb: weights
# of an aggregator can lower the noise, and a cell below it can fail for other reasons.
HOPELESS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One run's plan in figures."""

    dim: int  # coordinates that are noised together
    rounds: int
    stages: int  # how often the selector plans; more than 1: later plans assume that all losses are alike
    planned_rounds: int  # fewer than rounds where a selector could not plan without real losses
    uses: Spread
    unused: int  # clients the plan never asks
    scale: Spread | None = None  # of a coordinate of one message, root mean square over a client's uses; None: no noise
    epsilon: Spread | None = None  # spent by the planned uses
    share: Spread | None = None  # of the allowed epsilon
    noise_norm: float = 0.0  # expected norm of the noise in the plain mean of a round, in the norm of the clip
    clip_norm: float  # bound on the norm of the clipped mean it hides
    weights: str  # how they are known: federation/pull.py
    coverage: float  # effective share of examples behind the steps
    variance: float = 0.0  # of one coordinate of the noise in a direction, mean over the planned rounds
    limit: float = math.nan  # the least there can be at these budgets; NaN: not known
    mean_limit: float = math.nan  # the least for a plain mean

    @property
    def noise_to_clip(self) -> float:
        """Noise norm over clip bound: far above 1, a round's mean says next to nothing about the gradient."""
        return self.noise_norm / self.clip_norm if math.isfinite(self.clip_norm) else 0.0

    @property
    def efficiency(self) -> float:
        """Noise efficiency of the planned rounds; NaN where no limit is known."""
        return noise_efficiency(self.limit, self.variance)

    @property
    def hopeless(self) -> bool:
        """Whether noise drowns it all: T gradients add up to T clip bounds at most, their noise to sqrt(T) times one
        round's.
        """
        return self.noise_to_clip > HOPELESS * math.sqrt(self.rounds)


def forecast(assembly: Assembly, place: Place) -> Forecast:
    """The forecast of one run."""
    prepared = prepare(assembly, place)
    setup, ledger = prepared.world.setup, prepared.ledger
    uses, hidden, squares = (np.zeros(setup.n_clients) for _ in range(3))  # hidden: rounds whose noise squares adds up
    rounds, stages, variance, pull = 0, 0, 0.0, Pull(weight=np.zeros(setup.n_clients))
    for plan, calibration, cohorts, shown in _stages(prepared):
        rounds, stages = rounds + int(plan.horizon), stages + 1
        pull = foreseen(pull, cohorts, calibration, setup, assembly.algorithm.aggregator, shown)
        if any(s.weights is not None for s in shown):  # one noise for all of a round
            for cohort, sum_ in zip(cohorts, shown, strict=True):
                uses[cohort] += 1
                hidden[sum_.clients] += 1
                squares[sum_.clients] += sum_.scale**2
                variance += sum_.variance(setup.mechanism) or 0.0
            continue
        uses, hidden = uses + plan.uses, hidden + plan.uses
        scale = np.where(plan.uses > 0, calibration.message.scale, 0.0) / np.sqrt(calibration.message.steps)
        squares += plan.uses * scale**2
        variance += float(np.sum(plan.uses * setup.mechanism.variance(scale))) / setup.cohort_size**2
    free = Forecast(
        dim=setup.dim,
        rounds=setup.rounds,
        stages=stages,
        planned_rounds=rounds,
        uses=_spread(uses),
        unused=int(np.sum(uses <= 0)),
        clip_norm=setup.clip_norm,
        weights=weights_known(assembly.algorithm.aggregator, pull),
        coverage=data_coverage(pull.weight, setup.n_examples),
    )
    if not assembly.algorithm.private:
        return free
    spent = ledger.epsilon_spent()
    paid = np.flatnonzero(spent > 0)  # by coins also who is never drawn
    return replace(
        free,
        scale=_spread(np.sqrt(squares[paid] / hidden[paid])),
        epsilon=_spread(spent[paid]),
        share=_spread(spent[paid] / setup.epsilon[paid]),
        noise_norm=_norm(math.sqrt(variance / rounds), setup),
        variance=pull.variance / pull.rounds,
        limit=variance_limit(setup),
        mean_limit=mean_limit(setup),
    )


def _stages(prepared: Prepared) -> Iterator[tuple[Plan, Calibration, list[Ints], list[Shown]]]:
    """The plans of a run, their noise, their cohorts and what these show, charged to the ledger round by round as a run
    would.
    """
    world, ledger = prepared.world, prepared.ledger
    setup, selector, streams = world.setup, world.algorithm.selector, world.streams
    round, used, none = 0, np.zeros(setup.n_clients, dtype=np.int64), np.zeros(0)
    losses = Losses(none.astype(np.int64), none.astype(np.int64), none, none, none)
    while round < setup.rounds:
        left = ledger.left
        try:
            view = PlanView(setup, round, used.copy(), left.copy(), losses)
            plan = selector.plan(view, streams.numpy("select", -1 - round))
            calibration = settled_plan(world, plan, left, view)
        except Exception:
            if round == 0:
                raise
            return  # a stranger's selector that losses which are all alike do not suit: the table says how far it came
        cohorts, found, uses_left = list[Ints](), list[Shown](), plan.uses.astype(np.int64)
        variance, end = calibration.variance(setup.mechanism), round + int(plan.horizon)
        for t in range(round, end):
            cohort = next_cohort(world, plan, uses_left, end, t)
            facts = facts_of(cohort, setup, variance, t)
            found.append(round_shown(world, plan, calibration, cohort, facts, first=t == round))
            if found[-1].events:
                ledger.charge(t, found[-1].clients, found[-1].events)
            uses_left[cohort] -= 1
            cohorts.append(cohort)
        yield plan, calibration, cohorts, found
        losses = _alike(losses, plan, calibration, cohorts, round, setup)
        round, used = end, used + plan.uses.astype(np.int64)


def _alike(
    losses: Losses, plan: Plan, calibration: Calibration, cohorts: list[Ints], round: int, setup: Setup
) -> Losses:
    """What a stage tells of losses if they are all half their bound; nothing without a probe."""
    if plan.probe is None:
        return losses
    clients = np.concatenate(cohorts)
    level = np.full(len(clients), plan.probe.loss_bound / 2)
    rounds = np.repeat(np.arange(round, round + len(cohorts)), [len(c) for c in cohorts])
    return Losses(
        np.append(losses.round, rounds),
        np.append(losses.client, clients),
        np.append(losses.received, level),
        np.append(losses.stepped, level if plan.probe.after_step else level * np.nan),
        np.append(losses.variance, setup.mechanism.variance(calibration.loss_scale()[clients])),
    )


def _norm(deviation: float, setup: Setup) -> float:
    """The expected norm of noise with that standard deviation in each coordinate, in the norm of the clip: a mean of
    many is nearly normal, so E|z| is sqrt(2 / pi) of the deviation.
    """
    if setup.mechanism.clip_order == 1:
        return setup.dim * deviation * math.sqrt(2 / math.pi)
    return math.sqrt(setup.dim) * deviation


def _spread(values: Floats) -> Spread:
    return float(values.min()), float(np.median(values)), float(values.max())
