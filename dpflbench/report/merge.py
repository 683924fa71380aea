"""Several results folders as one: refused, with what differs, where their setups differ in anything but declared axes.

An axis that only one folder declares is a fixed value in the others, and becomes their coordinate. Configurations in
records have all defaults filled in, so a default written out is no difference; a value that follows from an axis (a
clip bound by mechanism) is none either, as long as the suites say the same about it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpflbench.canonical import encode
from dpflbench.errors import DpflbenchError
from dpflbench.report.labels import clean
from dpflbench.report.view import coordinate_key, descend
from dpflbench.results.cells import Cell, Manifest, Problem, Results
from dpflbench.results.record import Record
from dpflbench.suite_schema import CASE

SETUP = ("task", "federation", "privacy", "evaluate")
HARNESS = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Folder:
    """A results folder under the name it was given by."""

    name: str
    results: Results


def flatten(value: Any, path: str = "") -> dict[str, str]:
    """Dotted path → canonical text of every leaf."""
    if isinstance(value, Mapping) and value:
        out: dict[str, str] = {}
        for key, below in value.items():
            out |= flatten(below, f"{path}.{key}" if path else str(key))
        return out
    return {path: coordinate_key({"": encode(value)})}


def _covered(path: str, axes: Sequence[str]) -> bool:
    return any(path == axis or path.startswith(f"{axis}.") or axis.startswith(f"{path}.") for axis in axes)


def _said(suite: Mapping[str, Any], path: str, axes: Sequence[str]) -> dict[str, str]:
    """What a suite says at a path or, where it goes less deep, above it; without what axes set."""
    parts = path.split(".")
    for depth in range(len(parts), 0, -1):
        prefix = ".".join(parts[:depth])
        found = descend(suite, prefix)
        if found is not None:
            return {p: v for p, v in flatten(found, prefix).items() if not _covered(p, axes)}
    return {}


def _setups(folder: Folder) -> dict[str, set[str]]:
    """Path → every value it has in the folder's records."""
    found: dict[str, set[str]] = {}
    for record in folder.results.records.values():
        for path, value in flatten({k: record.config[k] for k in SETUP if k in record.config}).items():
            found.setdefault(path, set()).add(value)
    return found


def _suite_setup(folder: Folder) -> dict[str, set[str]]:
    suite = folder.results.manifest.suite
    return {path: {value} for path, value in flatten({k: suite[k] for k in SETUP if k in suite}).items()}


def _show(values: set[str]) -> str:
    return clean(" or ".join(sorted(json.dumps(json.loads(v)[""]) for v in values)) or "nothing", 80)


def setup_differences(first: Folder, other: Folder, axes: Sequence[str]) -> list[str]:
    """Paths in which two folders' setups differ without being an axis, with both values."""
    mine, theirs = _setups(first), _setups(other)
    if not mine or not theirs:  # nothing has run yet: the suites have to do
        mine, theirs = _suite_setup(first), _suite_setup(other)
    lines = []
    for path in sorted(mine.keys() | theirs.keys()):
        a, b = mine.get(path, set()), theirs.get(path, set())
        suites = [_said(f.results.manifest.suite, path, axes) for f in (first, other)]
        if a != b and not _covered(path, axes) and suites[0] != suites[1]:
            lines.append(f"{path}: {_show(a)} in {first.name}, {_show(b)} in {other.name}")
    return lines


def _by_label(folder: Folder) -> dict[str, Record]:
    records = folder.results.records
    return {
        c.algorithm: records[c.run] for c in folder.results.manifest.cells if c.run is not None and c.run in records
    }


def algorithm_differences(first: Folder, other: Folder) -> list[str]:
    """Labels that mean different algorithms or parameters in two folders."""
    mine, theirs = _by_label(first), _by_label(other)
    lines = []
    for label in sorted(mine.keys() & theirs.keys()):
        a, b = (flatten(r.config.get("algorithm", {})) for r in (mine[label], theirs[label]))
        for path in sorted(p for p in a.keys() | b.keys() if a.get(p) != b.get(p)):
            values = [_show({v[path]} if path in v else set()) for v in (a, b)]
            lines.append(
                f"algorithm {clean(label, 60)}, {path}: {values[0]} in {first.name}, {values[1]} in {other.name}"
            )
    return lines


def source_differences(first: Folder, other: Folder) -> list[str]:
    """Sources and data that are not the same in two folders."""

    def sources(folder: Folder) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for record in folder.results.records.values():
            for part, source in record.plugins.items():
                piece = part != HARNESS and " " not in part  # a selector, say, of whatever algorithm
                whose = f" of {clean(record.algorithm, 60)}" if piece else ""
                found.setdefault(f"source of {part}{whose}", set()).add(str(source))
            digest = record.facts.get("data_digest")
            if digest:
                data = coordinate_key({"": encode(descend(record.config, "task.dataset"))})
                found.setdefault(f"data of {_show({data})}", set()).add(str(digest))
        return found

    mine, theirs = sources(first), sources(other)
    return [
        f"{what}: {clean(', '.join(sorted(mine[what])), 80)} in {first.name}, "
        f"{clean(', '.join(sorted(theirs[what])), 80)} in "
        f"{other.name}"
        for what in sorted(mine.keys() & theirs.keys())
        if mine[what] != theirs[what]
    ]


def tuning_differences(first: Folder, other: Folder) -> list[str]:
    """That two folders were not tuned over the same grid."""
    grids = [flatten(f.results.manifest.suite.get("tune") or {}) for f in (first, other)]
    return [] if grids[0] == grids[1] else [f"tune: not the same in {first.name} and {other.name}"]


def _cases(folder: Folder) -> Mapping[str, Any]:
    return folder.results.manifest.suite.get("cases") or {}


def case_differences(first: Folder, other: Folder) -> list[str]:
    """Cases of one name that are not the same in two folders."""
    mine, theirs = _cases(first), _cases(other)
    return [
        f"case {clean(name, 60)}: not the same in {first.name} and {other.name}"
        for name in mine.keys() & theirs.keys()
        if flatten(mine[name]) != flatten(theirs[name])
    ]


def _with_coordinates(folder: Folder, cells: Sequence[Cell], axes: Sequence[str]) -> list[Cell]:
    """A folder's cells with a value for every axis; an axis it does not declare has its suite's fixed value."""
    fixed = {axis: descend(folder.results.manifest.suite, axis) for axis in axes}
    return [replace(c, coordinates={**fixed, **c.coordinates}) for c in cells]


def _rank(record: Record | None) -> int:
    return 0 if record is None else 1 if record.status != "done" else 2


def merge(folders: Sequence[Folder]) -> Results:
    """All folders as one; DpflbenchError lists what differs where they cannot be."""
    first = folders[0]
    if len(folders) == 1:
        return first.results
    axes = list(dict.fromkeys(a for f in folders for c in f.results.manifest.cells for a in c.coordinates))
    cases = {name: said for f in folders for name, said in _cases(f).items()}
    varied = [*axes, *(path for said in cases.values() for path in said)]
    lines = [
        line
        for other in folders[1:]
        for line in setup_differences(first, other, varied)
        + algorithm_differences(first, other)
        + tuning_differences(first, other)
        + case_differences(first, other)
        + source_differences(first, other)
    ]
    if lines:
        raise DpflbenchError(
            "\n".join(
                [
                    f"these results cannot be mixed: {len(lines)} difference{'s' * (len(lines) != 1)} that no "
                    "axis declares",
                    *lines,
                ]
            )
        )
    records: dict[str, Record] = {}
    whose: dict[str, str] = {}  # run → the folder whose record is kept
    problems = [p for f in folders for p in f.results.problems]
    cells: dict[tuple[str, str, int], Cell] = {}
    for folder in folders:
        for run, record in folder.results.records.items():
            held = records.get(run)
            if held is not None and held.status == record.status == "done" and held.digest != record.digest:
                text = "done in several folders with different outcomes; the one of the first folder is shown"
                problems.append(Problem(run, f"run {run}: {text}", "several outcomes"))
            if _rank(record) > _rank(held):
                records[run], whose[run] = record, folder.name
        for cell in _with_coordinates(folder, folder.results.manifest.cells, axes):
            place = (coordinate_key(cell.coordinates), cell.algorithm, cell.seed)
            held_cell = cells.get(place)
            if held_cell is None or _rank(records.get(cell.run or "")) > _rank(records.get(held_cell.run or "")):
                cells[place] = cell
    explained = {run: found for folder in folders for run, found in folder.results.counterfactuals.items()}
    marks = {
        run: text
        for folder in folders
        for run, text in folder.results.marks.items()
        if whose.get(run, folder.name) == folder.name  # what is wrong with a record that is not shown marks nobody
    }
    tuning = {run: record for folder in folders for run, record in folder.results.tuning.items()}
    manifest = _manifest(folders, axes, cases, list(cells.values()))
    return Results(
        manifest, records, tuple(problems), marks=marks, counterfactuals=explained, tuning=tuning, folders=whose
    )


def _manifest(folders: Sequence[Folder], axes: Sequence[str], cases: Mapping[str, Any], cells: list[Cell]) -> Manifest:
    suites = [f.results.manifest.suite for f in folders]
    merged = {**suites[0], "merged": [{"folder": f.name, "suite": f.results.manifest.name} for f in folders]}
    values = {a: list({coordinate_key({a: c.coordinates[a]}): c.coordinates[a] for c in cells}.values()) for a in axes}
    report = dict(merged.get("report") or {})
    if len(axes) > len(suites[0].get("axes") or {}) + bool(suites[0].get("cases")):
        report.pop("columns", None)  # made for fewer axes: all of them are columns now
    name = " + ".join(dict.fromkeys(f.results.manifest.name for f in folders))
    values.pop(CASE, None)
    suite = {
        **merged,
        "axes": values,
        **({"cases": cases} if cases else {}),
        "report": report,
        "seeds": sorted({c.seed for c in cells}),
    }
    tuning = [c for f in folders for c in _with_coordinates(f, f.results.manifest.tuning, axes)]
    return Manifest(name, suite, cells, tuning)
