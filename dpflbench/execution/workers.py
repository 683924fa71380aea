"""Local workers: one process each, told what to run through a pipe. A worker that dies costs its run, not the suite.

The results folder belongs to the parent: it claims runs and writes records; workers write checkpoints only. A worker
whose parent is gone finds its pipe closed after the round and ends. Signals are the parent's business: it tells the
workers when to stop.
"""

import contextlib
import multiprocessing as mp
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from dpflbench.catalogue import Catalogue, load
from dpflbench.errors import DpflbenchError
from dpflbench.execution import processes
from dpflbench.execution.apart import adopt, open_nursery, possible
from dpflbench.execution.attempt import Interrupted, Place, assembled, assembly_of, execute
from dpflbench.execution.executors import WAIT, Executor, tick_of
from dpflbench.execution.outcome import bare_record, measured
from dpflbench.execution.progress import Progress
from dpflbench.execution.stopping import SIGNALS, Stop
from dpflbench.execution.worklist import Worklist
from dpflbench.federation.simulate import Clock, State
from dpflbench.planning import Run
from dpflbench.provenance.runs import sources_of
from dpflbench.results.record import Record
from dpflbench.results.store import Store, why, write_atomically

ATTEMPTS = 2  # of a run whose worker dies
STILLBORN = 3  # workers in a row that die before they are ready
REPORT = 0.2  # seconds between reports of a run
STOP, END = "stop", "end"  # what a parent says beside runs


@dataclass(frozen=True, slots=True)
class Briefing:
    """What a worker needs to know before its first run."""

    place: Place
    results: Path
    without: tuple[str, ...] = ()


class ParentGone(BaseException):
    """Nobody waits for this run any more; not an Exception, for no run shall take it for a failure of its own."""


def work(pipe: "connection.Connection[Any, Any]", briefing: Briefing, nursery: Any) -> None:
    """A worker: runs come in, reports and records go out, until the pipe closes."""
    if nursery is not None:
        adopt(nursery)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    try:
        catalogue = load(briefing.without)
        pipe.send(("ready", os.getpid()))
        while isinstance(run := pipe.recv(), Run):
            pipe.send(_outcome(run, catalogue, briefing, pipe))
    except (ParentGone, EOFError, OSError):  # what it shared has no use any more
        if briefing.place.tasks is not None:
            shutil.rmtree(briefing.place.tasks, ignore_errors=True)


def _outcome(
    run: Run, catalogue: Catalogue, briefing: Briefing, pipe: "connection.Connection[Any, Any]"
) -> tuple[str, Any]:
    try:
        run = assembled(run, catalogue)
        check_sources(run, catalogue)
        return "record", execute(run, catalogue, briefing.place, Piped(run, Store(briefing.results), pipe))
    except Interrupted:
        return "stopped", None
    except DpflbenchError as e:
        return "refused", str(e)


def check_sources(run: Run, catalogue: Catalogue) -> None:
    """DpflbenchError if this process has loaded other sources than those the run was planned for: its id would lie."""
    here = sources_of(assembly_of(run, catalogue))
    for name, source in run.plugins.items():
        if here.get(name) != source:
            raise DpflbenchError(
                f"run {run.id}: planned for {name} {source}, but here it is {here.get(name)}; sources must stay "
                "as they "
                "are while a suite runs and be the same on every machine; run again"
            )


@dataclass(slots=True)
class Piped:
    """The watch over a run in a worker."""

    run: Run
    store: Store
    pipe: "connection.Connection[Any, Any]"
    reported: float = 0.0
    stopping: bool = False

    def load(self) -> bytes | None:
        """The checkpoint in the results folder."""
        try:
            return self.store.checkpoint(self.run.id).read_bytes()
        except OSError:
            return None

    def save(self, checkpoint: bytes) -> None:
        """Into the results folder; where the disk refuses, the run goes on without."""
        try:
            write_atomically(self.store.checkpoint(self.run.id), checkpoint)
        except OSError as e:
            self.say(f"{self.run.id}: no checkpoint ({why(e)}); if it is stopped it starts over")

    def after(self, state: State) -> bool:
        """Reported now and then, and stopped when the parent says so."""
        if time.monotonic() - self.reported >= REPORT:
            self.reported = time.monotonic()
            self._send("tick", tick_of(self.run, state))
        try:
            while self.pipe.poll():
                self.stopping |= self.pipe.recv() == STOP
        except (EOFError, OSError):
            raise ParentGone from None
        return self.stopping

    def say(self, line: str) -> None:
        """To the parent."""
        self._send("say", line)

    def _send(self, kind: str, content: object) -> None:
        try:
            self.pipe.send((kind, content))
        except OSError:
            raise ParentGone from None


@dataclass(slots=True)
class Worker:
    """A worker as its parent sees it."""

    process: Any
    pipe: "connection.Connection[Any, Any]"
    device: str
    run: Run | None = None
    ready: bool = False

    def tell(self, what: Any) -> None:
        """Send something; a worker that has just died is noticed when it is listened to."""
        with contextlib.suppress(OSError):
            self.pipe.send(what)

    def end(self, patience: float) -> str:
        """Make sure it is gone, by force after `patience` seconds; how it ended."""
        self.process.join(patience)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.pipe.close()
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:  # most real-time signals have none
            name = f"signal {-code}"
        return f"killed by {name}{' (out of memory?)' if -code == signal.SIGKILL else ''}"


@dataclass(slots=True, kw_only=True)
class Crew:
    """All workers of a suite."""

    devices: Sequence[str]  # of each worker there may be
    briefing: Briefing
    catalogue: Catalogue
    work: Worklist
    progress: Progress
    stop: Stop
    workers: list[Worker] = field(default_factory=list)
    deaths: Counter[str] = field(default_factory=Counter)  # by run
    stillborn: int = 0
    told: bool = False

    def records(self) -> Iterator[Record]:
        """Records as they come, until nothing is left to do or somebody asked to stop."""
        while self._busy() or (self.work.open and not self.stop.requested):
            if self.stop.requested and not self.told:
                self.told = True
                for worker in self._busy():
                    worker.tell(STOP)
            if not self.stop.requested:
                self._hand_out()
            pipes = {worker.pipe: worker for worker in self.workers}
            if not pipes:
                time.sleep(WAIT)
            for pipe in connection.wait(list(pipes), WAIT) if pipes else ():
                yield from self._listen(pipes[pipe])  # type: ignore[index]
            self.progress.poll()

    def close(self) -> None:
        """End all workers: those without a run on their own, the others by force.

        All are told before the first is waited for: they do not mind TERM, so that one forgotten here, because we are
        interrupted while waiting, would keep this process from ending.
        """
        for worker in self.workers:
            worker.tell(END)
            if worker.run is not None:
                worker.process.kill()
        for worker in self.workers:
            worker.end(5.0)

    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.run is not None]

    def _hand_out(self) -> None:
        """A run for every worker that has none, and a new worker where one is missing."""
        while len(self._busy()) < len(self.devices):
            run = self.work.claim()
            if run is None:
                return
            idle = next((worker for worker in self.workers if worker.run is None), None) or self._spawn()
            idle.run = run
            idle.tell(run)
            self.progress.started(
                run.id, f"pid {idle.process.pid}" + ("" if idle.device == "cpu" else f" {idle.device}")
            )

    def _spawn(self) -> Worker:
        counts = Counter(worker.device for worker in self.workers)
        wanted = Counter(self.devices)
        device = next(d for d in self.devices if counts[d] < wanted[d])
        ours, theirs = mp.Pipe()
        briefing = replace(self.briefing, place=replace(self.briefing.place, device=device))
        nursery = open_nursery() if briefing.place.isolated and possible() else None  # a worker starts no processes
        process = processes.context().Process(
            target=work, args=(theirs, briefing, nursery and nursery.pipe), daemon=True, name=f"dpflbench on {device}"
        )
        processes.start(process)
        theirs.close()
        if nursery is not None:
            nursery.pipe.close()  # the worker's alone: it ends with the worker
        worker = Worker(process, ours, device)
        self.workers.append(worker)
        return worker

    def _listen(self, worker: Worker) -> Iterator[Record]:
        """What a worker has to say, or that it is gone."""
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._died(worker)
            return
        if kind == "tick":
            self.progress.tick(content)
        elif kind == "say":
            self.progress.say(content)
        elif kind == "ready":
            worker.ready, self.stillborn = True, 0
        elif kind == "refused":
            raise DpflbenchError(content)
        elif worker.run is not None:
            run, worker.run = worker.run, None
            if kind == "record":
                yield content
            else:
                self.progress.stopped(run.id)
                self.work.give_back(run)

    def _died(self, worker: Worker) -> Iterator[Record]:
        how, run = worker.end(5.0), worker.run
        self.workers.remove(worker)
        if not worker.ready:
            self.stillborn += 1
            if self.stillborn >= STILLBORN:
                raise DpflbenchError(
                    f"--jobs: {STILLBORN} workers in a row died before their first run ({how}); --jobs 1 shows why"
                )
        if run is None:
            return
        self.deaths[run.id] += worker.ready
        if self.deaths[run.id] < ATTEMPTS:
            self.progress.stopped(run.id)
            self.progress.say(
                f"{run.id}: its worker died ({how}); the run is tried once more{', next time' * self.stop.requested}"
            )
            self.work.give_back(run)
            return
        reason = f"its worker died {ATTEMPTS} times: {how}"
        assembly = assembly_of(run, self.catalogue)
        yield bare_record(run, assembly, "failed", reason, measured(Clock(), worker.device, assembly))


def in_workers(devices: Sequence[str], briefing: Briefing, catalogue: Catalogue) -> Executor:
    """As many runs at a time as there are devices named (`cpu` as often as there shall be workers)."""

    def executor(work: Worklist, progress: Progress, stop: Stop) -> Generator[Record, None, None]:
        crew = Crew(devices=devices, briefing=briefing, catalogue=catalogue, work=work, progress=progress, stop=stop)
        try:
            yield from crew.records()
        finally:
            crew.close()

    return executor
