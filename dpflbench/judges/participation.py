"""Who took part, and what each released: schedule, kinds, sensitivities and scales, from configuration, plans and seed.

The cohorts of a plan follow from its uses and the seed, so they are drawn again. A plan is what the harness noted of
it: where it starts, for how long, its probe and its clip factors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpflbench.federation.pull import cohort_facts
from dpflbench.federation.schedule import draw_cohort
from dpflbench.federation.trust import sum_sensitivity, weights_of
from dpflbench.interfaces import (
    Accountant,
    AdaptiveClip,
    Aggregator,
    Cohorts,
    Event,
    Floats,
    Ints,
    LocalUpdate,
    Mechanism,
    Neighbours,
    Probe,
    Trust,
)
from dpflbench.judges.coherence import EXACT, rounds_done
from dpflbench.privacy.ledger import KINDS
from dpflbench.privacy.sensitivity import HALF, loss_sensitivity, quantile_sensitivity
from dpflbench.randomness import Streams
from dpflbench.results.record import Record

Array = NDArray[Any]
GRADIENT, LOSS, JOINT, QUANTILE = (KINDS.index(kind) for kind in ("gradient", "loss", "joint", "quantile"))


WEIGHED = 1e-6  # relative: weights are float32


@dataclass(frozen=True, slots=True)
class Rules:
    """The parts of a record's own configuration that say what a release is and costs."""

    mechanism: Mechanism
    accountant: Accountant
    local: LocalUpdate
    neighbours: Neighbours
    passes: int  # of the algorithm's local rule
    aggregator: Aggregator
    trust: Trust
    cohorts: Cohorts


@dataclass(frozen=True, slots=True)
class Noted:
    """One plan as the harness noted it, and the releases made under it."""

    start: int
    stop: int
    rounds: int  # charged under it
    probe: Probe | None
    clip_factor: Array  # [N]
    cohorts: Array | None  # [rounds, K], where it names them
    adaptive: AdaptiveClip | None
    rows: Array  # of its releases, in order

    @property
    def kinds(self) -> list[int]:
        """What a participation releases under it, in order."""
        if self.probe is not None and self.probe.joint:
            return [JOINT]
        if self.adaptive is not None:
            return [GRADIENT, QUANTILE]
        return [GRADIENT, *[LOSS] * (self.probe.count if self.probe else 0)]


def check_participation(record: Record, rules: Rules) -> list[str]:
    """What of the releases does not follow from configuration, plans and seed."""
    if rules.cohorts == "poisson":
        problems = list(_by_coins(record, rules))
        return problems if (record.events["scale"] > 0).all() else ["a release without noise", *problems]
    problems = [*_extent(record), *_schedule(record)]
    for plan in _noted(record):
        problems += _kinds(record, plan) or [
            *_cohorts(record, plan),
            *(_sensitivities(record, plan, rules) if rules.trust.rows else _sums(record, plan, rules)),
            *_scales(record, plan, rules.trust),
            *_shares(record, plan, rules.accountant),
        ]
    return problems if (record.events["scale"] > 0).all() else ["a release without noise", *problems]


def _noted(record: Record) -> Iterator[Noted]:
    """The plans with their releases. A plan made in a round that was charged and not finished is in no note."""
    n, rounds = int(record.config["federation"]["clients"]), record.events["round"]
    for note in record.notes:
        start, stop = int(note["round"]), int(note["round"]) + int(note["horizon"])
        probe = Probe(**note["probe"]) if note.get("probe") is not None else None
        factor = np.asarray(note.get("clip_factor", np.ones(n)), dtype=np.float64)
        if factor.shape != (n,) or not (np.isfinite(factor) & (factor > 0)).all():
            raise ValueError(f"clip factors of the plan of round {start} are none")
        rows = np.flatnonzero((rounds >= start) & (rounds < stop))
        named = None if note.get("cohorts") is None else np.sort(np.asarray(note["cohorts"], dtype=np.int64), axis=1)
        adaptive = AdaptiveClip(**note["adaptive"]) if note.get("adaptive") is not None else None
        yield Noted(start, stop, len(np.unique(rounds[rows])), probe, factor, named, adaptive, rows)


def _extent(record: Record) -> Iterator[str]:
    """Rounds are charged one after the other, and as far as the run came: one more if its last was not finished."""
    rounds, done = record.events["round"], rounds_done(record)
    charged = int(rounds.max(initial=-1)) + 1
    if (np.diff(rounds) < 0).any() or len(np.unique(rounds)) != charged:
        yield "releases are not in the order of rounds, or a round has none"
    allowed = {"done": (done,), "disqualified": (done,)}.get(record.status, (done, done + 1))
    if charged not in allowed:
        yield f"{record.status} after {done} rounds by its uses, and {charged} were charged"


def _schedule(record: Record) -> Iterator[str]:
    """Each round has exactly the configured number of distinct clients, losses come from them alone, and uses are as
    recorded.
    """
    federation, events = record.config["federation"], record.events
    n, size = int(federation["clients"]), int(federation["cohort"])
    taking_part = np.isin(events["kind"], (GRADIENT, JOINT))
    pairs = events["round"].astype(np.int64) * n + events["client"]
    cohort, times = np.unique(pairs[taking_part], return_counts=True)
    if (times > 1).any():
        yield f"round {cohort[times > 1][0] // n}: client {cohort[times > 1][0] % n} takes part twice"
    per_round = np.bincount(cohort // n)
    odd = np.flatnonzero(per_round != size)
    if len(odd):
        yield f"round {odd[0]}: {per_round[odd[0]]} clients take part, the cohort is {size}"
    stray = ~np.isin(pairs[~taking_part], cohort)
    if stray.any():
        yield f"round {events['round'][~taking_part][stray][0]}: a loss from a client that does not take part"
    finished = cohort[cohort // n < rounds_done(record)] % n
    if "uses" in record.clients and not np.array_equal(np.bincount(finished, minlength=n), record.clients["uses"]):
        yield "the recorded uses are not those of the ledger"


def _kinds(record: Record, plan: Noted) -> list[str]:
    """Under a plan everybody releases what its probe asks for, and in one order."""
    size, kinds = int(record.config["federation"]["cohort"]), record.events["kind"][plan.rows]
    expected = np.tile(np.repeat(plan.kinds, size), plan.rounds)
    if np.array_equal(kinds, expected):
        return []
    if plan.probe is None and (kinds != GRADIENT).any():
        return [f"a {KINDS[kinds[kinds != GRADIENT][0]]} release in a plan without a probe"]
    found, asked = (f"{(k == LOSS).sum()} loss and {(k == JOINT).sum()} joint releases" for k in (kinds, expected))
    return [
        f"plan of round {plan.start}: {found} of {len(kinds)}, its probe and cohort ask for {asked} of {len(expected)}"
    ]


def _cohorts(record: Record, plan: Noted) -> list[str]:
    """The cohorts that uses and seed draw; a plan that was not carried out to its end does not tell its uses."""
    n, size = int(record.config["federation"]["clients"]), int(record.config["federation"]["cohort"])
    if plan.rounds != plan.stop - plan.start:
        return []
    client = record.events["client"][plan.rows].reshape(plan.rounds, len(plan.kinds), size)
    if plan.cohorts is not None:
        same = plan.cohorts.shape == (plan.rounds, size) and (client == plan.cohorts[:, None, :]).all()
        return [] if same else [f"plan of round {plan.start}: not the cohorts it names"]
    uses = np.bincount(client[:, 0].ravel(), minlength=n)
    drawn = _drawn(int(record.config["seed"]), plan.start, plan.rounds, uses.tobytes())
    wrong = (client != drawn[:, None, :]).any((1, 2)) if drawn.shape == (plan.rounds, size) else np.ones(1, bool)
    return [f"round {plan.start + wrong.argmax()}: not the cohort that uses and seed draw"] if wrong.any() else []


@lru_cache(maxsize=1 << 10)
def _drawn(seed: int, start: int, rounds: int, uses: bytes) -> Array:
    """The cohorts of a plan [rounds, K]; runs of one seed mostly share them."""
    left, streams = np.frombuffer(uses, dtype=np.int64).copy(), Streams(seed)
    cohorts = []
    for t in range(rounds):
        cohorts.append(draw_cohort(left, rounds - t, streams.numpy("select", start + t)))
        left[cohorts[-1]] -= 1
    return np.stack(cohorts)


def _sensitivities(record: Record, plan: Noted, rules: Rules) -> Iterator[str]:
    """Every release has the sensitivity, rate and steps that clip bound, loss bound and client size imply."""
    events, size = record.events, record.clients["n_examples"].astype(np.int64)
    clip = float(record.config["privacy"]["clip"]) * plan.clip_factor
    bound = plan.probe.loss_bound if plan.probe else 0.0
    for kind in sorted(set(plan.kinds)):
        rows = plan.rows[events["kind"][plan.rows] == kind]
        whose = events["client"][rows]
        if kind == LOSS:
            expected = rules.mechanism.event("loss", loss_sensitivity(bound, size)).of(whose)
        else:
            chosen, noise = None, rules.local.noise_for_all
            if noise is not None:  # rates are calibrated: sensitivity and noise must be those of the rate
                chosen = np.ones(len(size))
                chosen[whose] = events["rate"][rows]
            joint = bound if kind == JOINT else 0.0
            event = rules.local.event(rules.mechanism, clip, size, joint, rules.neighbours, chosen)
            expected = replace(event, steps=event.steps * rules.passes).of(whose)
            expected = expected if noise is None else expected.at(expected.sensitivity * noise)
        for name in ("sensitivity", "rate", "steps", "scale")[: 3 if np.isnan(expected.scale).all() else 4]:
            found, wanted = events[name][rows], getattr(expected, name)
            wrong = np.flatnonzero(~np.isclose(found, wanted, rtol=EXACT, atol=0))
            if len(wrong):
                at = wrong[0]
                yield (
                    f"client {whose[at]}: {KINDS[kind]} {name} {found[at]:.9g}, clip, loss bound and size give "
                    f"{wanted[at]:.9g}"
                )
                break


def _sums(record: Record, plan: Noted, rules: Rules) -> Iterator[str]:
    """Every sum moves by what its weights, clip bound and client sizes imply, and tells who is within the clip by
    halves.
    """
    events, clients = record.events, record.clients
    clip = float(record.config["privacy"]["clip"]) * plan.clip_factor
    message = rules.local.event(rules.mechanism, clip, clients["n_examples"].astype(np.int64), 0.0, rules.neighbours)
    bounds = np.asarray(record.facts.get("clip_bounds", ()), dtype=np.float64)
    for kind, rows in _rounds_of(record, plan):
        whose, round = events["client"][rows].astype(np.int64), int(events["round"][rows[0]])
        if kind == QUANTILE:
            half, each = np.full(len(whose), HALF), np.full(len(whose), 1.0 / len(whose))
            moves = np.full(len(whose), quantile_sensitivity(rules.neighbours))
            found: Floats | None = sum_sensitivity(each, moves, half, len(rows))
        else:
            found = sums_of(record, rules, message, clip, whose, round, len(whose))
            if found is not None and plan.adaptive is not None:
                found = found * (bounds[round] if round < len(bounds) else np.nan)
        wrong = np.zeros(0, int) if found is None else _unlike(events["sensitivity"][rows], found)
        if len(wrong) or (events["rate"][rows] != 1).any() or (events["steps"][rows] != 1).any():
            at = wrong[0] if len(wrong) else 0
            yield (
                f"round {round}, client {whose[at]}: {KINDS[kind]} sensitivity {events['sensitivity'][rows[at]]:.9g}, "
                f"weight, clip and size give {found[at] if found is not None else np.nan:.9g} in one sum of everybody"
            )
            return


def sums_of(
    record: Record, rules: Rules, message: Event, clip: Array, whose: Ints, round: int, terms: int, rate: Any = None
) -> Floats | None:
    """How far a sum moves for each of its clients; None where weights hang on noise and cannot be had again."""
    clients = record.clients
    epsilon, delta, size = (np.asarray(clients[name], dtype=np.float64) for name in ("epsilon", "delta", "n_examples"))
    guesses = np.ones(len(size)), np.linspace(1.0, 2.0, len(size))
    asked = [weights_of(rules.aggregator, cohort_facts(whose, epsilon, delta, size, v, round)) for v in guesses]
    if not np.allclose(asked[0], asked[1], rtol=EXACT, atol=0):
        return None
    weights = asked[0] if rate is None else asked[0] / float(np.asarray(rate) @ asked[0])
    return sum_sensitivity(weights, message.sensitivity[whose], clip[whose], terms)


def _unlike(found: Array, wanted: Array) -> Array:
    return np.flatnonzero(~np.isclose(found, wanted, rtol=WEIGHED, atol=0))


def _rounds_of(record: Record, plan: Noted) -> Iterator[tuple[int, Array]]:
    """The releases of a plan, round by round and kind by kind."""
    size = int(record.config["federation"]["cohort"])
    for i, rows in enumerate(np.split(plan.rows, range(size, len(plan.rows), size))):
        yield plan.kinds[i % len(plan.kinds)], rows


def _by_coins(record: Record, rules: Rules) -> Iterator[str]:
    """Poisson cohorts: everybody that may be drawn is charged once, before the first round and for all of them; who was
    drawn follows from rates and key.
    """
    events, federation = record.events, record.config["federation"]
    n, size, rounds = (int(federation[name]) for name in ("clients", "cohort", "rounds"))
    whose, rate = events["client"].astype(np.int64), events["rate"]
    if len(np.unique(whose)) != len(whose) or events["round"].any() or (events["kind"] != GRADIENT).any():
        yield "a Poisson plan is charged once a client, before its first round"
        return
    if len(record.notes) != 1 or (events["steps"] != rounds).any() or abs(rate.sum() - size) > 1e-5 * size:
        yield f"rates of {rate.sum():.6g} clients a round over {events['steps'].max(initial=0)} rounds; not its cohorts"
    if len(np.unique(events["scale"])) > 1:
        yield "noise of several scales in the sums of one plan"
    plan = next(_noted(record))
    clip = float(record.config["privacy"]["clip"]) * plan.clip_factor
    sizes = record.clients["n_examples"].astype(np.int64)
    message = rules.local.event(rules.mechanism, clip, sizes, 0.0, rules.neighbours)
    found = sums_of(record, rules, message, clip, whose, 0, 4 * size + 64, rate)
    if found is not None and len(wrong := _unlike(events["sensitivity"], found)):
        at = wrong[0]
        yield (
            f"client {whose[at]}: sensitivity {events['sensitivity'][at]:.9g}, weight, clip and size give "
            f"{found[at]:.9g}"
        )
    noise, every = record.facts["noise"], np.zeros(n)
    every[whose] = rate
    streams, uses = Streams(int(record.config["seed"]), bytes.fromhex(noise["key"]), noise["run"]), np.zeros(n, int)
    for t in range(rounds_done(record)):
        uses += streams.draws("cohort", t).coins(every)
    if "uses" in record.clients and not np.array_equal(uses, record.clients["uses"]):
        yield "the recorded uses are not those that rates and key draw"


def _scales(record: Record, plan: Noted, trust: Trust) -> Iterator[str]:
    """Noise is chosen once a plan: a client's releases of one kind have one scale. Of a sum there is one a round."""
    events = record.events
    if not trust.rows:
        for kind, rows in _rounds_of(record, plan):
            if len(np.unique(events["scale"][rows])) > 1:
                yield f"round {events['round'][rows[0]]}: {KINDS[kind]} noise of several scales in one sum"
                return
        return
    for kind in sorted(set(plan.kinds)):
        rows = plan.rows[events["kind"][plan.rows] == kind]
        first: Mapping[int, float] = dict(zip(events["client"][rows][::-1], events["scale"][rows][::-1], strict=True))
        wrong = np.flatnonzero(events["scale"][rows] != [first[c] for c in events["client"][rows]])
        if len(wrong):
            row = rows[wrong[0]]
            yield (
                f"round {events['round'][row]}, client {events['client'][row]}: {KINDS[kind]} noise of another scale "
                "than before under one plan"
            )


def _shares(record: Record, plan: Noted, accountant: Accountant) -> Iterator[str]:
    """Losses noised apart cost the share of a participation that their probe says; cost curves do not tell."""
    cost, probe = record.events["cost"][plan.rows], plan.probe
    if probe is None or probe.joint or not accountant.exponent:
        return
    paid = cost.reshape(plan.rounds, len(plan.kinds), -1)
    if not np.allclose(paid[:, 1:] * probe.count * (1 - probe.share), paid[:, :1] * probe.share, rtol=1e-3, atol=0):
        yield f"plan of round {plan.start}: losses do not cost the share {probe.share:g} of its probe"
