"""View: the cells of a results folder, grouped by setting and algorithm, as every table and figure reads them.

A setting is one choice of all axes; a group is one algorithm in one setting, with an outcome for each seed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.results.cells import Cell, Results
from dpflbench.results.record import Metric, Record

VALUES = {
    "utility": "utility_global",
    "utility_global": "utility_global",
    "utility_personal": "utility_personal",
    "utility_mean_phi": "utility_mean_phi",
}
MEASURED = {
    "utility_global": "the shared model on the common test set",
    "utility_personal": "every client's own model on its own held-out examples",
    "utility_mean_phi": "mean over clients of their own models on the common test set",
}
UNKNOWN = Metric("utility", "", True)


@dataclass(frozen=True, slots=True)
class Options:
    """The `report` part of a suite, with its defaults filled in."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    panels: tuple[str, ...]  # axes that are neither: one table for each of their values
    value: str
    baselines: tuple[str, ...]
    paper: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """One choice of all axes."""

    key: str  # canonical text of the coordinates
    coordinates: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of one cell."""

    seed: int
    status: str  # done, diverged, disqualified, failed, impossible, not run, not measured, unreadable
    reason: str
    run: str | None
    record: Record | None
    value: float  # NaN unless done


@dataclass(frozen=True, eq=False)
class Group:
    """One algorithm in one setting."""

    setting: Setting
    algorithm: str
    outcomes: tuple[Outcome, ...]
    private: bool

    @cached_property
    def values(self) -> dict[int, float]:
        """Seed → value, of the runs that ended well."""
        return {o.seed: o.value for o in self.outcomes if o.status == "done"}

    @cached_property
    def records(self) -> list[Record]:
        """Records of the runs that ended well."""
        return [o.record for o in self.outcomes if o.status == "done" and o.record is not None]

    @cached_property
    def gaps(self) -> tuple[Outcome, ...]:
        """Outcomes without a value."""
        return tuple(o for o in self.outcomes if o.status != "done")

    @property
    def mean(self) -> float:
        """Mean over seeds; NaN if there is none."""
        return float(np.mean(list(self.values.values()))) if self.values else math.nan

    @property
    def std(self) -> float:
        """Sample standard deviation over seeds; NaN below two."""
        return float(np.std(list(self.values.values()), ddof=1)) if len(self.values) > 1 else math.nan


@dataclass(frozen=True, eq=False)
class View:
    """All groups of a results folder, in the order of its manifest."""

    name: str
    suite: Mapping[str, Any]
    options: Options
    axes: tuple[str, ...]
    settings: tuple[Setting, ...]
    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]
    groups: Mapping[tuple[str, str], Group]
    problems: tuple[str, ...] = ()
    records: Mapping[str, Record] = field(default_factory=dict)

    def group(self, setting: Setting, algorithm: str) -> Group | None:
        """The group at a place; None where the suite has no such cell."""
        return self.groups.get((setting.key, algorithm))

    def in_setting(self, setting: Setting) -> list[Group]:
        """Groups of a setting, in the order of the algorithms."""
        return [g for a in self.algorithms if (g := self.group(setting, a)) is not None]

    def metric(self, setting: Setting) -> Metric:
        """What utility means in a setting."""
        found = [
            o.record for g in self.in_setting(setting) for o in g.outcomes if o.record is not None and o.record.rounds
        ]
        return next((r.metric for r in found if r.status == "done"), found[0].metric if found else UNKNOWN)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """Setting key → metric."""
        return {s.key: self.metric(s) for s in self.settings}

    @cached_property
    def common_metric(self) -> Metric | None:
        """The metric of all settings; None when they differ."""
        found = {m for m in self.metrics.values() if m != UNKNOWN} or {UNKNOWN}
        return next(iter(found)) if len(found) == 1 else None

    def baseline(self, setting: Setting) -> str | None:
        """The baseline of a setting: the first of the suite's baselines that has a value there."""
        for name in self.options.baselines:
            group = self.group(setting, name)
            if group is not None and group.values:
                return name
        return None

    def lookup(self, setting: Setting, path: str) -> Any:
        """What the suite says at a dotted path in a setting: axes first, then the resolved suite; None if nothing."""
        for prefix in _prefixes(path):
            if prefix in setting.coordinates:
                return descend(setting.coordinates[prefix], path[len(prefix) :].lstrip("."))
        return descend(self.suite, path)


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


def _texts(value: Any, default: Sequence[str]) -> tuple[str, ...]:
    if value is None:
        return tuple(default)
    return (value,) if isinstance(value, str) else tuple(str(v) for v in value)


def options(suite: Mapping[str, Any], axes: Sequence[str]) -> Options:
    """The report options of a suite; DpflbenchError names an axis or value that does not exist."""
    asked = suite.get("report") or {}
    known = {"algorithm", *axes}
    rows = _texts(asked.get("rows"), ["algorithm"])
    columns = _texts(asked.get("columns"), [a for a in axes if a not in rows])
    for name, dims in (("rows", rows), ("columns", columns)):
        for dim in dims:
            if dim not in known:
                raise DpflbenchError(f"report.{name}: {dim!r} is no axis; allowed: {', '.join(sorted(known))}")
    columns = tuple(c for c in columns if c not in rows)
    if "algorithm" not in (*rows, *columns):
        rows = (*rows, "algorithm")
    value = asked.get("value") or "utility"
    if value not in VALUES:
        raise DpflbenchError(f"report.value: {value!r}; allowed: {', '.join(VALUES)}")
    panels = tuple(a for a in axes if a not in rows and a not in columns)
    return Options(
        rows, columns, panels, VALUES[value], _texts(asked.get("baseline"), ["DPSGD", "DMLDP"]), asked.get("paper")
    )


def _outcome(cell: Cell, results: Results, value: str) -> Outcome:
    if cell.run is None:
        return Outcome(cell.seed, "impossible", cell.reason or "no reason given", None, None, math.nan)
    record = results.records.get(cell.run)
    if record is None:
        complaint = next((p.text for p in results.problems if p.run == cell.run), None)
        if complaint is not None:
            return Outcome(cell.seed, "unreadable", complaint, cell.run, None, math.nan)
        return Outcome(cell.seed, "not run", "there is no record yet", cell.run, None, math.nan)
    if record.status != "done":
        return Outcome(cell.seed, record.status, record.reason or "no reason given", cell.run, record, math.nan)
    number = float(record.final.get(value, math.nan))
    if not math.isfinite(number):
        return Outcome(cell.seed, "not measured", f"its record has no {value}", cell.run, record, math.nan)
    return Outcome(cell.seed, "done", "", cell.run, record, number)


def _axes(cells: Sequence[Cell]) -> tuple[str, ...]:
    """All axes, the one that changes most slowly from cell to cell first: that is the order the suite names them in."""
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell.coordinates))
    texts = {a: [coordinate_key({a: c.coordinates.get(a)}) for c in cells] for a in axes}
    return tuple(sorted(axes, key=lambda a: sum(x != y for x, y in pairwise(texts[a]))))


def view(results: Results) -> View:
    """Group the cells of a results folder."""
    manifest = results.manifest
    axes = _axes(manifest.cells)
    opts = options(manifest.suite, axes)
    settings: dict[str, Setting] = {}
    outcomes: dict[tuple[str, str], dict[int, Outcome]] = {}
    for cell in manifest.cells:
        key = coordinate_key(cell.coordinates)
        settings.setdefault(key, Setting(key, {a: cell.coordinates[a] for a in axes if a in cell.coordinates}))
        outcomes.setdefault((key, cell.algorithm), {})[cell.seed] = _outcome(cell, results, opts.value)
    public = {
        name
        for (_, name), by_seed in outcomes.items()
        for o in by_seed.values()
        if o.record is not None and not o.record.private
    }
    groups = {
        place: Group(settings[place[0]], place[1], tuple(by_seed[s] for s in sorted(by_seed)), place[1] not in public)
        for place, by_seed in outcomes.items()
    }
    return View(
        name=manifest.name,
        suite=manifest.suite,
        options=opts,
        axes=axes,
        settings=tuple(settings.values()),
        algorithms=tuple(dict.fromkeys(cell.algorithm for cell in manifest.cells)),
        seeds=tuple(sorted({cell.seed for cell in manifest.cells})),
        groups=groups,
        problems=tuple(p.text for p in results.problems),
        records=results.records,
    )
