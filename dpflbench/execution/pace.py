"""How long runs will take: as long as like runs took that have a record, else as a few timed rounds say.

Like is: the same task, federation, algorithm and kernels. Timing has a budget; what is not timed within it takes as
long a round as the same algorithm elsewhere, or as all others on average.
"""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.execution.attempt import Interrupted, Nobody, Place, execute
from dpflbench.federation.simulate import State
from dpflbench.planning import Run
from dpflbench.results.record import Record

BUDGET = 3.0  # seconds that may be spent on timed rounds
ENOUGH = 0.5  # seconds of rounds after which a run is no longer timed


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the runs that are still to do take, one after the other."""

    seconds: float | None  # None: nothing is to do, or nobody knows
    recorded: int  # runs whose like has a record
    timed: int  # runs whose like was timed
    guessed: int  # the others


def pace(runs: Iterable[Run], records: Iterable[Record], catalogue: Catalogue, place: Place) -> Pace:
    """The time that runs without a record will take."""
    known: dict[str, list[float]] = {}  # what is like → seconds a round
    for record in records:
        seconds = record.measured.get("seconds")
        same = str(record.measured.get("kernels", "torch")).startswith(place.kernels)
        if same and record.status == "done" and isinstance(seconds, float | int):
            known.setdefault(_like(record.config), []).append(float(seconds) / _rounds(record.config))
    recorded, timed = set(known), set[str]()
    todo = [(run, _like(run.config)) for run in runs]
    unknown = [run for run, like in todo if like not in known]
    if unknown and BUDGET > 0:
        _timed(unknown[0], catalogue, place)  # not counted: imports, caches and processes that only the first waits for
    until = time.monotonic() + BUDGET
    for run, like in todo:
        if like not in known and time.monotonic() < until:
            seconds = _timed(run, catalogue, place)
            if seconds is not None:
                known[like] = [seconds / _rounds(run.config)]
                timed.add(like)
    if not todo or not known:
        return Pace(None, 0, 0, len(todo))
    means = {like: fmean(values) for like, values in known.items()}
    by_algorithm: dict[Any, list[float]] = {}
    for run, like in todo:
        if like in means:
            by_algorithm.setdefault(run.config["algorithm"]["name"], []).append(means[like])
    usual = {name: fmean(values) for name, values in by_algorithm.items()}
    total, average = 0.0, fmean(means.values())
    for run, like in todo:
        total += _rounds(run.config) * means.get(like, usual.get(run.config["algorithm"]["name"], average))
    by_record, by_clock = (sum(like in kind for _, like in todo) for kind in (recorded, timed))
    return Pace(total, by_record, by_clock, len(todo) - by_record - by_clock)


def _like(config: Mapping[str, Any]) -> str:
    federation = {k: v for k, v in config["federation"].items() if k in ("clients", "cohort", "local")}
    return content_digest([config["task"], federation, config["algorithm"]])


def _rounds(config: Mapping[str, Any]) -> int:
    return int(config["federation"]["rounds"])


@dataclass(frozen=True, slots=True)
class Stopwatch(Nobody):
    """The watch over a run that is timed for a few rounds, and then stopped."""

    most: int  # rounds
    stamps: list[float] = field(default_factory=list)  # before the first round and after each

    def after(self, state: State) -> bool:
        """Enough?"""
        self.stamps.append(time.perf_counter())
        return state.round >= self.most or self.stamps[-1] - self.stamps[0] > ENOUGH


def _timed(run: Run, catalogue: Catalogue, place: Place) -> float | None:
    """The seconds of a whole run after a few of its rounds, evaluations among them; None if it does not come that
    far.
    """
    began, watch = time.perf_counter(), Stopwatch(int(run.config["evaluate"]["every"]))
    with suppress(Interrupted):
        execute(run, catalogue, place, watch)
    if len(watch.stamps) < 2:
        return None
    start, end = watch.stamps[0], watch.stamps[-1]
    return (start - began) + _rounds(run.config) * (end - start) / (len(watch.stamps) - 1)
