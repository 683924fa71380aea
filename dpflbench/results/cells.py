"""What a results folder is made for and what it holds: cells, the manifest that lists them, both with their records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    tuning: Sequence[Cell] = ()  # of the runs it is tuned by, with what is tuned among their coordinates

    @property
    def runs(self) -> list[str]:
        """The ids of all runs its cells need, each once."""
        return list(dict.fromkeys(cell.run for cell in self.cells if cell.run))

    @property
    def tuning_runs(self) -> list[str]:
        """The ids of all runs it is tuned by, each once."""
        return list(dict.fromkeys(cell.run for cell in self.tuning if cell.run))

    @property
    def titles(self) -> dict[str, str]:
        """What each run is called: by the first of its cells."""
        tuning = {cell.run: f"tuning {cell.title}" for cell in reversed(self.tuning) if cell.run}
        return tuning | {cell.run: cell.title for cell in reversed(self.cells) if cell.run}


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the record of a run, in one line."""

    run: str
    text: str
    what: str = "unreadable record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A results folder in memory."""

    manifest: Manifest = field(kw_only=False)
    records: Mapping[str, Record] = field(kw_only=False)
    problems: Sequence[Problem] = field(default=(), kw_only=False)  # mostly records that could not be read
    marks: Mapping[str, str] = field(default_factory=dict)  # run → what somebody found wrong with its record, in a word
    counterfactuals: Mapping[str, Mapping[str, Record]] = field(default_factory=dict)  # run → what is left out → record
    tuning: Mapping[str, Record] = field(default_factory=dict)  # by run; never ranked
    folders: Mapping[str, str] = field(default_factory=dict)  # run → whose record it is, of several that were merged
