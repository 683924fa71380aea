"""What is still to do in a results folder: runs are claimed one by one, each under its lock, and kept as records.

Several `dpflbench run` may share a folder: a run whose lock another process holds is left to it and looked at again
later, when either its record is there or its process is gone.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping

from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError
from dpflbench.execution.attempt import assembly_of
from dpflbench.execution.prepare import task_key
from dpflbench.planning import Run
from dpflbench.results.locks import Lock
from dpflbench.results.record import Record, RecordError
from dpflbench.results.store import REUSABLE, Store, why, write_atomically

Say = Callable[[str], None]
Reused = Callable[[Record], None]


class Worklist:
    """The runs of a suite that have no record yet."""

    def __init__(self, runs: Mapping[str, Run], store: Store, say: Say, reused: Reused) -> None:
        self.store, self.say, self.reused = store, say, reused
        self.began = time.time()
        self.waiting: deque[Run] = deque()
        self._locks: dict[str, Lock] = {}  # of runs that are done here, or by somebody else
        self._held: set[str] = set()
        self._said = False
        for run in runs.values():
            record = self._found(run.id)
            if record is None:
                self.waiting.append(run)
            else:
                reused(record)

    @property
    def open(self) -> bool:
        """True while something is to be done, here or by another process."""
        return bool(self.waiting or self._held)

    def claim(self) -> Run | None:
        """A run that nobody else is doing, locked; None if there is none at the moment."""
        for _ in range(len(self.waiting)):
            run = self.waiting.popleft()
            if not self._locked(run.id):
                self.waiting.append(run)
                continue
            record = self._found(run.id, ours=True)
            if record is None:
                self._held.add(run.id)
                return run
            self._locks.pop(run.id).release()
            self.reused(record)
        if self.waiting and not self._held and not self._said:
            self._said = True
            count = len(self.waiting)
            self.say(f"waiting for {count} run{'s' * (count != 1)} that another process is doing")
        return None

    def keep(self, record: Record) -> None:
        """Write the record of a claimed run and let go of it; its checkpoint has served."""
        self.store.write(record)
        self._held.remove(record.id)
        lock = self._locks.pop(record.id)
        if record.status not in REUSABLE:
            lock.release()
            return
        with contextlib.suppress(OSError):
            self.store.checkpoint(record.id).unlink(missing_ok=True)
        lock.remove()  # whoever gets it now looks for the record first

    def give_back(self, run: Run) -> None:
        """Let go of a claimed run that was not finished; it is next in line."""
        self.waiting.appendleft(run)
        self._held.remove(run.id)
        self._locks[run.id].release()

    def load(self, run: str) -> bytes | None:
        """The checkpoint of a run, None if there is none."""
        try:
            return self.store.checkpoint(run).read_bytes()
        except OSError:
            return None

    def save(self, run: str, checkpoint: bytes) -> None:
        """Keep the checkpoint of a run; where the disk refuses, the run goes on without."""
        try:
            write_atomically(self.store.checkpoint(run), checkpoint)
        except OSError as e:
            self.say(f"{run}: no checkpoint ({why(e)}); if it is stopped it starts over")

    def _locked(self, run: str) -> bool:
        """Whether the lock of a run is ours now."""
        lock = self._locks.get(run) or self._locks.setdefault(run, self.store.lock(run))
        try:
            return lock.acquire()
        except OSError as e:
            raise DpflbenchError(f"{lock.path}: cannot be locked ({why(e)})") from None

    def _found(self, run: str, ours: bool = False) -> Record | None:
        """The record of a run if it need not be repeated. A damaged one is set aside by whoever holds the lock."""
        try:
            record = self.store.read(run)
        except RecordError as e:
            if ours:
                with contextlib.suppress(FileNotFoundError):
                    self.say(f"{e}; set aside as {self.store.set_aside(run)}, the run is repeated")
            return None
        if record is None or record.status in REUSABLE:
            return record
        # a failure is tried again, but not one that another process has just met
        return record if ours and self.store.path(run).stat().st_mtime > self.began else None


def by_task(runs: Mapping[str, Run], catalogue: Catalogue) -> dict[str, Run]:
    """The runs with those that learn from the same tensors side by side, otherwise in the order they came."""
    order: dict[str, list[Run]] = {}
    for run in runs.values():
        order.setdefault(task_key(assembly_of(run, catalogue)), []).append(run)
    return {run.id: run for group in order.values() for run in group}
