"""How far a suite is: counts, running runs, time left; and the same as a small file that other terminals can read.

Time left is what the rounds still to play take at the pace so far. The file in RESULTS/work/running is a sign of life:
it is written anew every second or so and goes when the process ends in good order.
"""

import contextlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from dpflbench.errors import DpflbenchError
from dpflbench.results.cells import Manifest
from dpflbench.results.owners import UNKNOWN, is_there, start_of
from dpflbench.results.record import Record
from dpflbench.results.store import Store, is_abandoned, write_atomically

SILENT = 60.0  # seconds without a sign of life after which a process on another machine counts as gone
PERIOD = 1.0  # between signs of life


@dataclass(frozen=True, slots=True)
class Tick:
    """What a run says of itself after a round."""

    run: str
    round: int
    utility: float | None


@dataclass(slots=True, kw_only=True)
class Running:
    """A run under way."""

    run: str
    label: str
    rounds: int
    where: str
    since: float
    first: int = -1  # the round it started from; -1: not heard of yet
    round: int = 0
    utility: float | None = None
    heard: float = 0.0

    @property
    def speed(self) -> float:
        """Rounds a second since it started."""
        return (self.round - self.first) / max(self.heard - self.since, 1e-9) if self.first >= 0 else 0.0


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """How far one process is, as numbers and texts."""

    name: str
    host: str
    pid: int
    start: str = UNKNOWN
    total: int = 0
    reused: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # status → runs that ended here
    running: list[dict[str, Any]] = field(default_factory=list)  # of Running, and its speed
    seconds_left: float | None = None
    updated: float = 0.0

    @property
    def finished(self) -> int:
        """Runs that need nothing more."""
        return self.reused + sum(self.counts.values())


class Display(Protocol):
    """Where it is shown."""

    def say(self, line: str) -> None:
        """Something to know."""
        ...

    def finished(self, now: Snapshot, record: Record, label: str, reused: bool) -> None:
        """A run has its record."""
        ...

    def poll(self, snapshot: Callable[[], Snapshot]) -> None:
        """Time passes."""
        ...


class Progress:
    """The books of one `dpflbench run`: executors tell it what happens, a display shows it."""

    def __init__(
        self, manifest: Manifest, rounds: Mapping[str, int], display: Display, store: Store | None = None
    ) -> None:
        self.display = display
        self.titles = manifest.titles
        self.rounds = rounds
        start = start_of(os.getpid()) or UNKNOWN
        self.snapshot = Snapshot(
            name=manifest.name, host=platform.node(), pid=os.getpid(), start=start, total=len(rounds)
        )
        self.running: dict[str, Running] = {}
        self.clock = time.time
        self._left = dict(rounds)  # rounds still to play, by run
        self._played = 0
        self._began: float | None = None
        self._path = None if store is None else store.work("running") / f"{platform.node()}-{os.getpid()}.json"
        self._written = -PERIOD
        self.poll()  # alive from now on

    def started(self, run: str, where: str = "") -> None:
        """A run is under way."""
        now = self.clock()
        self._began = self._began or now
        label, rounds = self.titles.get(run, run), self.rounds.get(run, 0)
        self.running[run] = Running(run=run, label=label, rounds=rounds, where=where, since=now)
        self.poll()

    def tick(self, tick: Tick, where: str = "") -> None:
        """A run has played a round."""
        running = self.running.get(tick.run)
        if running is None:
            return
        running.where = where or running.where
        if running.first < 0:
            running.first, running.since = tick.round, self.clock()
        self._played += max(tick.round - max(running.round, running.first), 0)
        running.round, running.heard = tick.round, self.clock()
        running.utility = tick.utility if tick.utility is not None else running.utility
        self._left[tick.run] = running.rounds - tick.round
        self.poll()

    def stopped(self, run: str) -> None:
        """A run is no longer under way, without a record."""
        self.running.pop(run, None)

    def finished(self, record: Record, reused: bool = False) -> None:
        """A run has its record."""
        self.running.pop(record.id, None)
        left = self._left.pop(record.id, 0)
        if reused:
            self.snapshot.reused += 1
        else:
            self._played += left  # a run that ends early spares its rounds
            self.snapshot.counts[record.status] = self.snapshot.counts.get(record.status, 0) + 1
        self.display.finished(self.snapshot, record, self.titles.get(record.id, record.algorithm), reused)

    def say(self, line: str) -> None:
        """Something to know."""
        self.display.say(line)

    def poll(self) -> None:
        """Time passes: called after rounds and several times a second. Other terminals are told every second."""
        self.display.poll(self.now)
        if self._path is not None and time.monotonic() - self._written >= PERIOD:
            self._written = time.monotonic()
            with contextlib.suppress(OSError):  # what cannot be shown is not worth a run
                write_atomically(self._path, json.dumps(asdict(self.now())), durable=False)

    def now(self) -> Snapshot:
        """How far it is."""
        self.snapshot.running = [{**asdict(r), "speed": r.speed} for r in list(self.running.values())]
        self.snapshot.seconds_left = self._seconds_left()
        self.snapshot.updated = self.clock()
        return self.snapshot

    def close(self) -> None:
        """Nothing is running here any more."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _seconds_left(self) -> float | None:
        if self._began is None or not self._played:
            return None
        return sum(list(self._left.values())) * (self.clock() - self._began) / self._played


def alive(store: Store) -> list[Snapshot]:
    """The processes that work in a results folder at this moment."""
    found = []
    for path in sorted(store.work("running").glob("*.json")):
        try:
            snapshot = Snapshot(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue  # just removed, or not ours
        if is_alive(snapshot.host, snapshot.pid, snapshot.updated, snapshot.start):
            found.append(snapshot)
    return found


def is_alive(host: str, pid: int, updated: float, start: str = UNKNOWN) -> bool:
    """Whether a process is there: asked of the system on this machine, judged by its last sign of life on another."""
    if host != platform.node() or os.name != "posix":
        return time.time() - updated < SILENT
    return is_there(pid, start)


def refuse_if_alive(store: Store, what: str) -> None:
    """DpflbenchError if somebody works in the folder."""
    for snapshot in alive(store):
        raise DpflbenchError(
            f"{store.root}: process {snapshot.pid} on {snapshot.host} works here; {what} when it has ended"
        )


def bury(store: Store) -> None:
    """Remove what processes that are gone have left behind: their signs of life, the data their workers shared, files
    they did not finish.
    """
    busy = {f"{s.host}-{s.pid}" for s in alive(store)}
    for path in [*store.work("running").glob("*.json"), *store.work("tasks").glob("*")]:
        if path.name.removesuffix(".json") not in busy:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in store.unfinished():
        with contextlib.suppress(OSError):
            if is_abandoned(path):
                path.unlink()


def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
