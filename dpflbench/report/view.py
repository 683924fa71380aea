"""View: the cells of a results folder, grouped by column and algorithm, as every table and chart reads them.

A column is one choice of all axes; a group is one algorithm in one column, with an ending for each seed. What is to be
shown is the suite's `report` section as suite_reading.py checked and recorded it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.report import labels
from dpflbench.report.chance import chance, learnt
from dpflbench.results.cells import Cell, Results
from dpflbench.results.record import Metric, Record
from dpflbench.suite_reading import report_section
from dpflbench.suite_schema import Report, settings
from dpflbench.tuning import WAITING, Tuned, tuned

MEASURED = {
    "utility_global": "the shared model on the common test set",
    "utility_personal": "every client's own model on its own held-out examples",
    "utility_mean_phi": "mean over clients of their own models on the common test set",
}
UNKNOWN = Metric("utility", "", True)
UNFINISHED = ("not run", "failed", "unreadable", "not measured")  # may still turn out otherwise
INCOMPLETE, AT_CHANCE = "not complete", "at chance"  # why a column is left out, as its heading says


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One choice of all axes."""

    key: str  # canonical text of the coordinates
    coordinates: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Its coordinates in words."""
        return labels.coordinates(self.coordinates) or "all"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ending:
    """What became of one cell."""

    seed: int
    status: str  # done, diverged, disqualified, failed, impossible, not run, not measured, unreadable
    reason: str = ""
    run: str | None = None
    record: Record | None = None
    value: float = math.nan  # of what the report shows, if done


@dataclass(frozen=True, eq=False)
class Group:
    """One algorithm in one column."""

    column: Column
    algorithm: str
    endings: tuple[Ending, ...]
    private: bool

    @cached_property
    def values(self) -> dict[int, float]:
        """Seed → value, of the runs that ended well."""
        return {o.seed: o.value for o in self.endings if o.status == "done"}

    @cached_property
    def records(self) -> list[Record]:
        """Records of the runs that ended well."""
        return [o.record for o in self.endings if o.status == "done" and o.record is not None]

    @cached_property
    def gaps(self) -> tuple[Ending, ...]:
        """Endings without a value."""
        return tuple(o for o in self.endings if o.status != "done")

    @property
    def mean(self) -> float:
        """Mean over seeds; NaN if there is none."""
        return float(np.mean(list(self.values.values()))) if self.values else math.nan

    @property
    def std(self) -> float:
        """Sample standard deviation over seeds; NaN below two."""
        return float(np.std(list(self.values.values()), ddof=1)) if len(self.values) > 1 else math.nan


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """All groups of a results folder, in the order of its manifest."""

    name: str
    suite: Mapping[str, Any]
    report: Report
    axes: tuple[str, ...]
    columns: tuple[Column, ...]
    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]
    groups: Mapping[tuple[str, str], Group]
    problems: tuple[str, ...] = ()
    records: Mapping[str, Record] = field(default_factory=dict)
    counterfactuals: Mapping[str, Mapping[str, Record]] = field(default_factory=dict)  # run → what is left out → record
    tuned: Mapping[tuple[str, str], Tuned] = field(default_factory=dict)  # column key and algorithm → what was tried
    marks: Mapping[tuple[str, str], str] = field(
        default_factory=dict
    )  # column key and algorithm → what is wrong with it

    def group(self, column: Column, algorithm: str) -> Group | None:
        """The group at a place; None where the suite has no such cell."""
        return self.groups.get((column.key, algorithm))

    def in_column(self, column: Column) -> list[Group]:
        """Groups of a column, in the order of the algorithms."""
        return [g for a in self.algorithms if (g := self.group(column, a)) is not None]

    @cached_property
    def filled(self) -> tuple[Group, ...]:
        """Groups with a record of a run that ended well, by column and algorithm."""
        return tuple(g for column in self.columns for g in self.in_column(column) if g.records)

    def mark(self, group: Group) -> str:
        """What is wrong with a group's records, in a word or two; a marked group is shown and never ranked."""
        return self.marks.get((group.column.key, group.algorithm), "")

    def contestants(self, column: Column) -> list[Group]:
        """Private algorithms of a column with nothing wrong about them, whatever became of their runs."""
        return [g for g in self.in_column(column) if g.private and not self.mark(g)]

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Column key → why nobody is ranked there: some runs are still to come, or nobody has learnt anything."""
        found = {}
        for column in self.columns:
            groups = self.contestants(column)
            if any(e.status in UNFINISHED for g in groups for e in g.endings):
                found[column.key] = INCOMPLETE
                continue
            records = [r for g in self.in_column(column) for r in g.records]
            values = [g.values for g in groups if g.values]
            if values and not learnt(values, chance(records), self.metrics[column.key]):
                found[column.key] = AT_CHANCE
        return found

    @property
    def value(self) -> str:
        """Which of a record's final values is shown."""
        return shown_value(self.report)

    @property
    def across(self) -> tuple[str, ...]:
        """The axes that make the columns of one table; each value of the others has a table of its own."""
        return self.axes if self.report.columns is None else tuple(self.report.columns)

    def metric(self, column: Column) -> Metric:
        """What utility means in a column."""
        found = [
            o.record for g in self.in_column(column) for o in g.endings if o.record is not None and o.record.rounds
        ]
        return next((r.metric for r in found if r.status == "done"), found[0].metric if found else UNKNOWN)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """Column key → metric."""
        return {c.key: self.metric(c) for c in self.columns}

    @cached_property
    def common_metric(self) -> Metric | None:
        """The metric of all columns; None when they differ."""
        found = {m for m in self.metrics.values() if m != UNKNOWN} or {UNKNOWN}
        return next(iter(found)) if len(found) == 1 else None

    def digits(self, column: Column) -> int:
        """Decimals of utility in a column: the same wherever the metric is the same."""
        return self._digits.get(self.metrics[column.key], 2)

    @cached_property
    def _digits(self) -> dict[Metric, int]:
        sizes: dict[Metric, list[float]] = {}
        for group in self.groups.values():
            if group.values and group.column.key in self.metrics:  # a figure may show some columns only
                sizes.setdefault(self.metrics[group.column.key], []).append(abs(group.mean))
        return {metric: labels.decimals([float(np.median(found))]) for metric, found in sizes.items()}

    @cached_property
    def baselines(self) -> tuple[str, ...]:
        """Whom others are compared with: the suite's choice, else the first private algorithm it lists."""
        chosen = self.report.baseline
        if chosen is None:
            public = {g.algorithm for g in self.groups.values() if not g.private}
            return tuple(a for a in self.algorithms if a not in public)[:1]
        return (chosen,) if isinstance(chosen, str) else tuple(chosen)

    def baseline(self, column: Column) -> str | None:
        """The first of the baselines that has a value in a column."""
        return next((b for b in self.baselines if (g := self.group(column, b)) is not None and g.values), None)

    def lookup(self, column: Column, path: str) -> Any:
        """What the suite says at a dotted path in a column: axes first, then the resolved suite; None if nothing."""
        here = settings(self.suite.get("cases") or {}, column.coordinates)
        for prefix in _prefixes(path):
            if prefix in here:
                return descend(here[prefix], path[len(prefix) :].lstrip("."))
        return descend(self.suite, path)


def shown_value(report: Report) -> str:
    """Which of a record's final values a report shows."""
    return "utility_global" if report.value == "utility" else report.value


def descend(value: Any, path: str) -> Any:
    """The value at a dotted path; None where it leads nowhere."""
    for part in path.split(".") if path else []:
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:i]) for i in range(len(parts), 0, -1)]


def coordinate_key(coordinates: Mapping[str, Any]) -> str:
    """Canonical text of coordinates: the order of axes does not matter; 3 and 3.0 are one value, `x` and `{name: x}` as
    well.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            if len(value) == 1 and set(value) <= {"name", "kind"}:
                return plain(next(iter(value.values())))
            return {str(k): plain(v) for k, v in sorted(value.items(), key=lambda item: str(item[0]))}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    return json.dumps(plain(coordinates), sort_keys=True)


def _ending(cell: Cell, results: Results, value: str) -> Ending:
    if cell.run is None:
        status = "not run" if cell.reason == WAITING else "impossible"
        return Ending(seed=cell.seed, status=status, reason=cell.reason or "no reason given")
    here = partial(Ending, seed=cell.seed, run=cell.run)
    record = results.records.get(cell.run)
    if record is None:
        complaint = next((p.text for p in results.problems if p.run == cell.run), None)
        if complaint is not None:
            return here(status="unreadable", reason=complaint)
        return here(status="not run", reason="there is no record yet")
    if record.status != "done":
        return here(status=record.status, reason=record.reason or "no reason given", record=record)
    number = float(record.final.get(value, math.nan))
    if not math.isfinite(number):
        return here(status="not measured", reason=f"its record has no {value}", record=record)
    return here(status="done", record=record, value=number)


def _axes(cells: Sequence[Cell]) -> tuple[str, ...]:
    """All axes, the one that changes most slowly from cell to cell first: that is the order the suite names them in."""
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell.coordinates))
    texts = {a: [coordinate_key({a: c.coordinates.get(a)}) for c in cells] for a in axes}
    return tuple(sorted(axes, key=lambda a: sum(x != y for x, y in pairwise(texts[a]))))


def view(results: Results) -> View:
    """Group the cells of a results folder; DpflbenchError if what it should show is not a report section."""
    manifest, problems = results.manifest, list[str]()
    report = report_section(manifest.suite.get("report") or {}, problems)
    if problems:
        raise DpflbenchError(f"the suite recorded with the results: {problems[0]}")
    axes = _axes(manifest.cells)
    value = shown_value(report)
    columns: dict[str, Column] = {}
    endings: dict[tuple[str, str], dict[int, Ending]] = {}
    for cell in manifest.cells:
        key = coordinate_key(cell.coordinates)
        columns.setdefault(key, Column(key, {a: cell.coordinates[a] for a in axes if a in cell.coordinates}))
        endings.setdefault((key, cell.algorithm), {})[cell.seed] = _ending(cell, results, value)
    public = {
        name
        for (_, name), by_seed in endings.items()
        for e in by_seed.values()
        if e.record is not None and not e.record.private
    }
    groups = {
        (key, name): Group(columns[key], name, tuple(by_seed[s] for s in sorted(by_seed)), name not in public)
        for (key, name), by_seed in endings.items()
    }
    marks = {
        (key, name): labels.listing(list(dict.fromkeys(found)))
        for (key, name), by_seed in endings.items()
        if (found := [results.marks[e.run] for e in by_seed.values() if e.run is not None and e.run in results.marks])
    }
    return View(
        name=manifest.name,
        suite=manifest.suite,
        report=report,
        axes=axes,
        columns=tuple(columns.values()),
        algorithms=tuple(dict.fromkeys(cell.algorithm for cell in manifest.cells)),
        seeds=tuple(sorted({cell.seed for cell in manifest.cells})),
        groups=groups,
        problems=tuple(f"{p.what}: {p.text}" for p in results.problems),
        records=results.records,
        counterfactuals=results.counterfactuals,
        tuned=_tuned(results, value),
        marks=marks,
    )


def _tuned(results: Results, value: str) -> dict[tuple[str, str], Tuned]:
    """What was tried and chosen for each algorithm in each column."""
    asked = results.manifest.suite.get("tune")
    paths = [path for path in asked if path != "seeds"] if isinstance(asked, Mapping) else []
    found = tuned(results.manifest.tuning, paths, results.tuning.get, value).values()
    return {(coordinate_key(each.coordinates), each.algorithm): each for each in found}
