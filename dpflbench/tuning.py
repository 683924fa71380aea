"""Equal tuning: every algorithm gets the same grid, and its reported runs have what does best on validation data.

The tuning runs of a suite are the runs of another suite: the grid as axes, seeds that are never reported, and
`task.split: validation`, under which the test part is dropped as soon as it is loaded. What is chosen is a function of
their records alone: the planner asks for it when it plans the reported runs, `verify` when it plans them again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from dpflbench.canonical import content_digest
from dpflbench.results.cells import Cell
from dpflbench.results.record import Record
from dpflbench.results.store import REUSABLE
from dpflbench.suite_schema import TUNING_SEEDS, Normalised, Raw, Suite, TaskSection, Tune

Read = Callable[[str], Record | None]  # the record of a run, if there is one
WAITING = "its tuning runs are not all there yet"
HOPELESS_GRID = "none of the tuned values ended well on all tuning seeds"


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One point of the grid, with what became of its runs."""

    values: Mapping[str, Any]  # tuned path → value
    utilities: Mapping[int, float]  # on validation data, by tuning seed; NaN for a run without one
    there: bool  # whether all of its runs have ended; one that failed is tried again
    higher_is_better: bool

    @property
    def mean(self) -> float:
        """Mean utility; NaN unless all of its runs ended well."""
        return fmean(self.utilities.values())


@dataclass(frozen=True, slots=True)
class Tuned:
    """One algorithm in one column: what was tried, and what it was tuned to."""

    coordinates: Mapping[str, Any]
    algorithm: str
    trials: Sequence[GridPoint]  # in the order of the grid

    @property
    def chosen(self) -> GridPoint | None:
        """The trial with the best mean, of equals the first; None if some are still to come or none ended well."""
        well = [trial for trial in self.trials if math.isfinite(trial.mean)]
        if not well or not all(trial.there for trial in self.trials):
            return None
        return max(well, key=lambda trial: trial.mean if trial.higher_is_better else -trial.mean)

    @property
    def reason(self) -> str:
        """Why nothing is chosen; empty if something is."""
        if self.chosen is not None:
            return ""
        return HOPELESS_GRID if all(trial.there for trial in self.trials) else WAITING


Choices = Mapping[tuple[str, str], Tuned]  # digest of a column's coordinates, label → what was tuned there


def trial_suite(suite: Suite, tune: Tune) -> Suite:
    """The suite whose runs are the tuning runs of another."""
    task = {**suite.base["task"], "split": "validation"}
    seeds = range(TUNING_SEEDS, TUNING_SEEDS + tune.seeds)
    base = Normalised(Raw({**suite.base, "task": task}))
    return replace(suite, base=base, axes={**suite.axes, **tune.grid}, seeds=seeds, tune=None)


def refusal(task: TaskSection) -> str:
    """Why a task cannot be tuned; empty if it can."""
    if task.split != "official":
        return f"task.split: {task.split} beside tune: what is a test example in one seed is tuned on in another"
    return (
        "" if task.holdout > 0 else "task.holdout: 0 beside tune, which chooses by held-out examples; allowed: above 0"
    )


def tuned(cells: Sequence[Cell], paths: Sequence[str], read: Read, value: str) -> dict[tuple[str, str], Tuned]:
    """What the cells of the tuning runs say of each algorithm in each column of the suite they tune."""
    found: dict[tuple[str, str], dict[str, dict[int, Cell]]] = {}
    for cell in cells:
        if cell.run is not None:
            trials = found.setdefault(column_of(cell, paths), {})
            trials.setdefault(content_digest(cell.coordinates), {})[cell.seed] = cell
    out = {}
    for key, trials in found.items():
        made = [_trial(list(by_seed.values()), paths, read, value) for by_seed in trials.values()]
        first = next(iter(next(iter(trials.values())).values()))
        rest = {path: at for path, at in first.coordinates.items() if path not in paths}
        out[key] = Tuned(rest, first.algorithm, made)
    return out


def column_of(cell: Cell, paths: Sequence[str]) -> tuple[str, str]:
    """The column and the algorithm that a tuning run belongs to."""
    rest = {path: value for path, value in cell.coordinates.items() if path not in paths}
    return content_digest(rest), cell.algorithm


def _trial(cells: Sequence[Cell], paths: Sequence[str], read: Read, value: str) -> GridPoint:
    values = {path: cells[0].coordinates[path] for path in paths}
    utilities, there, up = dict[int, float](), True, True
    for cell in cells:
        record = read(cell.run or "")
        there = there and record is not None and record.status in REUSABLE
        well = record is not None and record.status == "done"
        utilities[cell.seed] = float(record.final.get(value, math.nan)) if record is not None and well else math.nan
        up = up and (record is None or record.status != "done" or record.metric.higher_is_better)
    return GridPoint(values, utilities, there, up)
