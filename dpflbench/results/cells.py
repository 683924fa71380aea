"""What a results folder is made for and what it holds: cells, the manifest that lists them, both with their records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpflbench.results.record import Record


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of a suite's table: coordinates, algorithm and seed, and the run that fills it."""

    coordinates: Mapping[str, Any]  # axis path → value, e.g. {"privacy.mechanism": "gaussian"}
    algorithm: str  # label in the table
    seed: int
    run: str | None  # id of its record; None: impossible, see reason
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a results folder was made for: enough to draw the table without the suite file."""

    name: str
    suite: Mapping[str, Any]  # the resolved suite, as a plain mapping
    cells: Sequence[Cell]

    @property
    def runs(self) -> list[str]:
        """The ids of all runs it needs, each once."""
        return list(dict.fromkeys(cell.run for cell in self.cells if cell.run))


@dataclass(frozen=True, slots=True)
class Results:
    """A results folder in memory."""

    manifest: Manifest
    records: Mapping[str, Record]
    problems: Sequence[str] = field(default_factory=tuple)  # records that could not be read, one line each
