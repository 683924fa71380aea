"""What a results folder is made for and what it holds: cells, the manifest that lists them, both with their records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpflbench.results.record import Record
from dpflbench.results.titles import title


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of a suite's table: coordinates, algorithm and seed, and the run that fills it."""

    coordinates: Mapping[str, Any]  # axis path → value, e.g. {"privacy.mechanism": "gaussian"}
    algorithm: str  # label in the table
    seed: int
    run: str | None  # id of its record; None: impossible, see reason
    reason: str = ""

    @property
    def title(self) -> str:
        """What it is called."""
        return title(self.algorithm, self.coordinates, self.seed)


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

    @property
    def titles(self) -> dict[str, str]:
        """What each run is called: by the first of its cells."""
        return {cell.run: cell.title for cell in reversed(self.cells) if cell.run}


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the record of a run, in one line."""

    run: str
    text: str


@dataclass(frozen=True, slots=True)
class Results:
    """A results folder in memory."""

    manifest: Manifest
    records: Mapping[str, Record]
    problems: Sequence[Problem] = ()  # mostly records that could not be read
