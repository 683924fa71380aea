"""One run from its configuration to its record, in this process.

A run is a pure function of configuration, data and device: an executor anywhere calls `execute` and keeps what comes
back. Whoever watches a run is told of every round, keeps its checkpoints and can ask it to stop.
"""

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dpflbench.assembly import Assembly, assemble
from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError, RunEnded, SuiteError
from dpflbench.execution.apart import apart, place_of, possible
from dpflbench.execution.checkpoint import CheckpointError, pack, unpack
from dpflbench.execution.outcome import bare_record, measured, record_of
from dpflbench.execution.prepare import Place, Prepared, dataset_of, overheard, prepare, threads
from dpflbench.federation.gradients import kernels
from dpflbench.federation.simulate import Clock, State, initial_state, rounds
from dpflbench.planning import Run
from dpflbench.privacy.residuals import Tape, examine
from dpflbench.results.record import Record, Status
from dpflbench.tasks.task import Task

__all__ = ["Interrupted", "Nobody", "Place", "Prepared", "Watch", "assembled", "assembly_of", "execute", "prepare"]


class Interrupted(Exception):
    """A run was asked to stop: it did after a whole round, and left a checkpoint if it could."""


class Watch(Protocol):
    """Who looks after a run while it is under way."""

    def load(self) -> bytes | None:
        """The checkpoint an earlier attempt left, None if there is none."""
        ...

    def save(self, checkpoint: bytes) -> None:
        """Keep a checkpoint in place of an earlier one."""
        ...

    def after(self, state: State) -> bool:
        """Told after every round, and once before the first; True asks the run to stop."""
        ...

    def say(self, line: str) -> None:
        """Something the user should know."""
        ...


@dataclass(frozen=True, slots=True)
class Nobody:
    """No watch: nothing is kept, nothing asked."""

    def load(self) -> bytes | None:
        """No checkpoint."""
        return None

    def save(self, checkpoint: bytes) -> None:
        """Not kept."""

    def after(self, state: State) -> bool:
        """Go on."""
        return False

    def say(self, line: str) -> None:
        """Nobody listens."""


def assembly_of(run: Run, catalogue: Catalogue) -> Assembly:
    """The parts of a run: those it was planned with, or made here; SuiteError if this installation cannot make them."""
    if run.assembly is not None:
        return run.assembly
    problems: list[str] = []
    made = assemble(run.config, catalogue, problems)
    if made is None:
        raise SuiteError([f"run {run.id}: {p}" for p in problems])
    return made


def assembled(run: Run, catalogue: Catalogue) -> Run:
    """The run with its parts, for a process that was sent it."""
    return replace(run, assembly=assembly_of(run, catalogue))


def execute(
    run: Run, catalogue: Catalogue, place: Place, watch: Watch | None = None, task: Task | None = None
) -> Record:
    """The record of a run: done, diverged, disqualified or failed, each with its reason; Interrupted if it was asked to
    stop.
    """
    attempt = Attempt(run=run, assembly=assembly_of(run, catalogue), place=place, watch=watch or Nobody())
    with threads(place.threads), kernels(place.kernels):
        try:
            attempt.play(task)
            return attempt.record("done", "")
        except RunEnded as e:
            status, reason = e.status, str(e)
        except Interrupted:
            raise
        except DpflbenchError as e:
            status, reason = "failed", str(e)
        except (
            Exception,
            SystemExit,
        ) as e:  # whatever a plugin or we do wrong costs its run, not the suite; the record says what it was
            status, reason = "failed", f"{type(e).__name__}: {e} ({place_of(e)})"
            attempt.extra["traceback"] = traceback.format_exc(limit=-8)
        return attempt.ended(status, reason)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A run under way: what is known of it at any moment."""

    run: Run
    assembly: Assembly
    place: Place
    watch: Watch
    clock: Clock = field(default_factory=Clock)
    prepared: Prepared | None = None
    state: State | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    tape: Tape = field(default_factory=Tape)

    def play(self, task: Task | None) -> None:
        """All rounds that are still to play, with a checkpoint now and then."""
        if task is None and dataset_of(self.assembly, self.place).digest(self.place.root) != self.run.data_digest:
            raise DpflbenchError("the data set has changed since this run was planned; start the suite again")
        prepared = prepare(self.assembly, self.place, task, self.run.id)
        self.prepared, self.tape = overheard(prepared, self.assembly)
        with self._server():
            self._rounds()

    @contextmanager
    def _server(self) -> Iterator[None]:
        """Server code where it belongs: in a process of its own, if that is asked for and can be had."""
        self.extra["isolation"] = "none"
        if self.prepared is None or not (self.place.isolated and possible()):
            yield
            return
        world = self.prepared.world
        with apart(self.assembly, world.setup) as (algorithm, how):
            self.prepared = replace(self.prepared, world=replace(world, algorithm=algorithm))
            self.extra["isolation"] = how
            yield

    def _rounds(self) -> None:
        if self.prepared is None:
            return
        self._resume()
        if self.state is None:
            self.state = initial_state(self.prepared.world, self.prepared.theta, self.prepared.phi)
            self.clock.cpu = time.process_time()
        if self.watch.after(self.state):
            raise Interrupted
        every, saved = self.place.save_every, time.monotonic()
        for state in rounds(self.prepared.world, self.state, self.prepared.ledger, self.clock):
            self.state = state
            stop = self.watch.after(state)
            if state.round == self.prepared.world.setup.rounds:
                break
            if stop or time.monotonic() - saved >= every:
                if not self._save(state):
                    every = float("inf")
                saved = time.monotonic()
            if stop:
                raise Interrupted

    def record(self, status: Status, reason: str) -> Record:
        """The record of this attempt; an exception of any kind if a plugin spoils even that."""
        facts = {**measured(self.clock, self.place.device, self.assembly), **self.extra}
        if self.prepared is None:
            return bare_record(self.run, self.assembly, status, reason, facts)
        if left := self.prepared.world.inspection.found:
            facts["leftovers"] = left
        if self.tape.kept and (odd := examine(self.tape, self.prepared.world.setup.mechanism.law).alarms):
            facts["odd_noise"] = f"{odd[0].name}: {odd[0].about}"
        record = record_of(self.run, self.assembly, self.prepared, self.state, status, reason, facts)
        content_digest(record.notes)  # TypeError for what no record can hold: here it costs one run
        return record

    def ended(self, status: Any, reason: str) -> Record:
        """The record of an attempt that did not end well."""
        try:
            return self.record(status, reason)
        except Exception as e:  # what was wrong with the run may be wrong with its record too
            return bare_record(
                self.run,
                self.assembly,
                "failed",
                f"{reason}; its record: {type(e).__name__}: {e}",
                {**measured(self.clock, self.place.device, self.assembly), **self.extra},
            )

    def _resume(self) -> None:
        """Go on where an earlier attempt stopped, if its checkpoint can be used."""
        data = self.watch.load()
        if data is None or self.prepared is None:
            return
        try:
            state, ledger, clock = unpack(
                data, self.run.id, self.place.device, self.prepared.world, self.prepared.ledger
            )
        except CheckpointError as e:
            self.watch.say(f"{self.run.id}: its checkpoint {e}; it starts over")
            return
        self.state, self.clock, self.prepared = state, clock, replace(self.prepared, ledger=ledger)
        self.extra["resumed_at"] = state.round

    def _save(self, state: State) -> bool:
        """Keep a checkpoint; False if this run has none."""
        if self.prepared is None:
            return False
        try:
            streams, ledger = self.prepared.world.streams, self.prepared.ledger
            self.watch.save(pack(self.run.id, self.place.device, streams, state, ledger, self.clock))
        except CheckpointError as e:
            self.watch.say(f"{self.run.id}: no checkpoint: {e}; if it is stopped it starts over")
            return False
        return True
