"""What a results folder can do without: leftovers of processes that were killed, and records its suite no longer asks
for.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpflbench.errors import DpflbenchError
from dpflbench.execution.progress import refuse_if_alive
from dpflbench.results.record import RecordError
from dpflbench.results.store import REUSABLE, Store, why


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that can go."""

    path: Path
    reason: str


def leftovers(store: Store, stale: bool) -> Iterator[Leftover]:
    """What can go, with its reason; `stale`: records and checkpoints the manifest does not name too."""
    manifest = store.manifest()
    wanted = {*manifest.runs, *manifest.tuning_runs}
    wanted |= {run for of, runs in store.counterfactuals().items() if of in wanted for run in runs.values()}
    refuse_if_alive(store, "clean")
    records = store.path("x").parent
    for path in sorted(records.glob("set-aside/*")):
        yield Leftover(path, "a damaged record that was set aside")
    for path in store.unfinished():
        yield Leftover(path, "a file that was never finished")
    for path in sorted(store.work("checkpoints").glob("*.pt")):
        if _finished(store, path.stem):
            yield Leftover(path, "the checkpoint of a finished run")
        elif stale and path.stem not in wanted:
            yield Leftover(path, "the checkpoint of a run that the suite does not ask for")
    for kind, reason in (
        ("locks", "a lock that nobody holds"),
        ("running", "a process that is gone"),
        ("tasks", "data shared by workers"),
    ):
        for path in sorted(store.work(kind).glob("[!.]*")):
            yield Leftover(path, reason)
    if stale:
        for run in store.ids():
            if run not in wanted:
                yield Leftover(store.path(run), "a record that the suite does not ask for")


def remove(leftover: Leftover) -> int:
    """Take it away; the bytes it took."""
    path = leftover.path
    try:
        size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    except FileNotFoundError:
        return 0
    except OSError as e:
        raise DpflbenchError(f"{path}: cannot be removed ({why(e)})") from None
    return size


def _finished(store: Store, run: str) -> bool:
    try:
        record = store.read(run)
    except RecordError:
        return False
    return record is not None and record.status in REUSABLE
