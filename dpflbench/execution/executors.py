"""Where runs happen: in this process, in local workers, on a Ray cluster. Each executor claims runs and yields their
records.

An executor is a function of a worklist and what it needs beside it. When it is asked to stop it lets its runs finish
their round and keep a checkpoint, and ends.
"""

import contextlib
import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError
from dpflbench.execution.attempt import Interrupted, Place, execute
from dpflbench.execution.progress import Progress, Tick
from dpflbench.execution.stopping import Stop
from dpflbench.execution.worklist import Worklist
from dpflbench.federation.simulate import State
from dpflbench.planning import Run
from dpflbench.results.record import Record

Executor = Callable[[Worklist, Progress, Stop], Generator[Record, None, None]]
WAIT = 0.3  # seconds between looks at runs that another process is doing


@dataclass(frozen=True, slots=True)
class InProcess:
    """The watch over a run in this process."""

    run: Run
    work: Worklist
    progress: Progress
    stop: Stop

    def load(self) -> bytes | None:
        """The checkpoint in the results folder."""
        return self.work.load(self.run.id)

    def save(self, checkpoint: bytes) -> None:
        """Into the results folder."""
        self.work.save(self.run.id, checkpoint)

    def after(self, state: State) -> bool:
        """Shown, and stopped by Ctrl-C."""
        self.progress.tick(tick_of(self.run, state))
        return self.stop.requested

    def say(self, line: str) -> None:
        """Shown."""
        self.progress.say(line)


def tick_of(run: Run, state: State) -> Tick:
    """What a run says of itself."""
    return Tick(run.id, state.round, state.points[-1][1].utility if state.points else None)


def carry_out(work: Worklist, executor: Executor, progress: Progress, stop: Stop) -> None:
    """Keep every record as it comes, until nothing is left or somebody asked to stop."""
    with stop, contextlib.closing(executor(work, progress, stop)) as records:
        for record in records:
            work.keep(record)
            progress.finished(record)


def in_this_process(catalogue: Catalogue, place: Place) -> Executor:
    """One run after the other, here."""

    def executor(work: Worklist, progress: Progress, stop: Stop) -> Generator[Record, None, None]:
        while work.open and not stop.requested:
            run = work.claim()
            if run is None:
                progress.poll()
                time.sleep(WAIT)
                continue
            progress.started(run.id)
            try:
                yield execute(run, catalogue, place, InProcess(run, work, progress, stop))
            except Interrupted:
                progress.stopped(run.id)
                work.give_back(run)

    return executor


def cores() -> int:
    """Cores this process may use: affinity and container limits count."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(count, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or no limit
        return count


def jobs_of(text: str, device: str, per_gpu: int, threads: int, gpus: int) -> int:
    """How many runs at a time: a number, or `auto` for as many as cores or accelerators serve without waiting for each
    other.
    """
    if text == "auto":
        if device == "cuda":
            return max(1, gpus) * per_gpu
        return per_gpu if device.startswith(("cuda", "mps")) else max(1, cores() // threads)
    if not text.isdigit() or int(text) < 1:
        raise DpflbenchError(f"--jobs {text}: allowed: auto, or a number from 1")
    return int(text)


def devices_of(jobs: int, device: str, gpus: int) -> list[str]:
    """The device of each worker: `cuda` is dealt out over all there are, in turn."""
    return [f"cuda:{i % gpus}" if device == "cuda" and gpus else device for i in range(jobs)]
