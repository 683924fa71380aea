"""How far a results folder is."""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from dpflbench.execution.display import ENDED
from dpflbench.execution.progress import Snapshot, alive, duration
from dpflbench.report import labels
from dpflbench.results.cells import Results
from dpflbench.results.record import Record
from dpflbench.results.store import Store
from dpflbench.tuning import WAITING


@dataclass(frozen=True, slots=True)
class FolderStatus:
    """What is done, what failed and why, and what is running at this moment."""

    results: Results
    set_aside: int  # damaged records of earlier
    processes: tuple[Snapshot, ...]

    @property
    def total(self) -> int:
        """Runs the suite asks for."""
        return len(self.results.manifest.runs)

    @property
    def counts(self) -> dict[str, int]:
        """Runs by how they ended."""
        found = Counter(str(record.status) for record in self.results.records.values())
        return {kind: found[kind] for kind in ENDED if found[kind]}

    @property
    def tuning(self) -> int:
        """Tuning runs the suite asks for."""
        return len(self.results.manifest.tuning_runs)

    @property
    def waiting(self) -> int:
        """Cells that wait for tuning runs."""
        return sum(cell.reason == WAITING for cell in self.results.manifest.cells)

    @property
    def unwell(self) -> list[Record]:
        """Runs that did not end well; a tuning run may diverge, for that decides."""
        failed = [record for record in self.results.tuning.values() if record.status == "failed"]
        return [*failed, *(record for record in self.results.records.values() if record.status != "done")]

    @property
    def lines(self) -> list[str]:
        """All but the running processes, in words."""
        records, titles, counts = self.results.records, self.results.manifest.titles, self.counts
        parts = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        have = f"{len(records)} of {self.total} runs have a record"
        after = f"; {self.waiting} cells wait for them" if self.waiting else ""
        tuned = f"tuning: {len(self.results.tuning)} of {self.tuning} runs have a record{after}"
        return [
            f"{self.results.manifest.name}: {have}{': ' if parts else ''}{parts}",
            *([tuned] if self.tuning else []),
            *(f"{r.status}: {r.id} {titles[r.id]}: {r.reason}" for r in self.unwell),
            *(f"damaged, to be repeated: {problem.text}" for problem in self.results.problems),
            *(
                [f"{self.set_aside} damaged records were set aside earlier; `dpflbench clean` removes them"]
                if self.set_aside
                else []
            ),
        ]

    @property
    def idle(self) -> bool:
        """Whether runs are missing and nobody does them."""
        missing = len(self.results.records) < self.total or len(self.results.tuning) < self.tuning
        return not self.processes and (missing or self.waiting > 0)

    def json(self) -> dict[str, Any]:
        """As `status --json` prints it: dpflbench/api/README.md has the keys."""
        titles = self.results.manifest.titles
        return {
            "suite": self.results.manifest.name,
            "runs": self.total,
            "recorded": len(self.results.records),
            "counts": {kind: self.counts.get(kind, 0) for kind in ENDED},
            "unwell": [
                {"run": r.id, "title": titles[r.id], "status": r.status, "reason": r.reason} for r in self.unwell
            ],
            "tuning": {"runs": self.tuning, "recorded": len(self.results.tuning), "cells_waiting": self.waiting},
            "damaged": [problem.text for problem in self.results.problems],
            "set_aside": self.set_aside,
            "processes": [_process(p) for p in self.processes],
        }

    def __str__(self) -> str:
        return "\n".join([*self.lines, *(heard_of(p) for p in self.processes)])

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return "\n".join(f"* {labels.markdown(line)}" for line in str(self).splitlines())


def status_of(store: Store) -> FolderStatus:
    """The status of a results folder."""
    aside = len(list((store.root / "records" / "set-aside").glob("*.json")))
    return FolderStatus(store.results(), aside, tuple(alive(store)))


def heard_of(process: Snapshot) -> str:
    """A process that works there, in a line."""
    ago, left = max(0.0, time.time() - process.updated), process.seconds_left
    soon = "" if left is None else f", about {duration(left)} left"
    return f"process {process.pid} on {process.host}, heard of {duration(ago)} ago{soon}:"


def _process(process: Snapshot) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "host": process.host,
        "updated": process.updated,
        "seconds_left": process.seconds_left,
        "running": [
            {key: row.get(key) for key in ("run", "label", "round", "rounds", "utility")} for row in process.running
        ],
    }
