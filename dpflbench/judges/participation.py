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

from dpflbench.federation.schedule import draw_cohort
from dpflbench.interfaces import Accountant, LocalUpdate, Mechanism, Neighbours, Probe
from dpflbench.judges.coherence import EXACT, rounds_done
from dpflbench.privacy.ledger import KINDS
from dpflbench.privacy.sensitivity import loss_sensitivity
from dpflbench.randomness import Streams
from dpflbench.results.record import Record

Array = NDArray[Any]
GRADIENT, LOSS, JOINT = (KINDS.index(kind) for kind in ("gradient", "loss", "joint"))


@dataclass(frozen=True, slots=True)
class Rules:
    """The parts of a record's own configuration that say what a release is and costs."""

    mechanism: Mechanism
    accountant: Accountant
    local: LocalUpdate
    neighbours: Neighbours
    passes: int  # of the algorithm's local rule


@dataclass(frozen=True, slots=True)
class Noted:
    """One plan as the harness noted it, and the releases made under it."""

    start: int
    stop: int
    rounds: int  # charged under it
    probe: Probe | None
    clip_factor: Array  # [N]
    rows: Array  # of its releases, in order

    @property
    def kinds(self) -> list[int]:
        """What a participation releases under it, in order."""
        if self.probe is not None and self.probe.joint:
            return [JOINT]
        return [GRADIENT, *[LOSS] * (self.probe.count if self.probe else 0)]


def check_participation(record: Record, rules: Rules) -> list[str]:
    """What of the releases does not follow from configuration, plans and seed."""
    problems = [*_extent(record), *_schedule(record)]
    for plan in _noted(record):
        problems += _kinds(record, plan) or [
            *_cohorts(record, plan),
            *_sensitivities(record, plan, rules),
            *_scales(record, plan),
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
        yield Noted(start, stop, len(np.unique(rounds[rows])), probe, factor, rows)


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
    taking_part = events["kind"] != LOSS
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


def _scales(record: Record, plan: Noted) -> Iterator[str]:
    """Noise is chosen once a plan: a client's releases of one kind have one scale."""
    events = record.events
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
