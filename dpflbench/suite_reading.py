"""YAML to Suite: read, merged with what it extends and with --set, and checked as far as that needs no plugin.

A suite is data, never code (suite_file.py), and reads no file but the one it extends. All problems are listed at once,
each with its path into the file. What a section may say stands in suite_schema.py; parts are made in assembly.py.
"""

import copy
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpflbench.errors import SuiteError
from dpflbench.schema import INVALID, build, join, show, suggest
from dpflbench.shipped import by_name, suite_file
from dpflbench.suite_file import moved, parse_file, strange
from dpflbench.suite_file import parse_value as parse_value  # for --set of other commands
from dpflbench.suite_schema import (
    CASE,
    SECTIONS,
    SHORTHANDS,
    VARIED,
    Evaluate,
    Normalised,
    Raw,
    Report,
    Resources,
    Suite,
)
from dpflbench.suite_varied import algorithms_section, axes_section, cases_section, seeds_section, tune_section

MAX_CELLS = 1_000_000
LISTED = ("axes", "tune", "cases")  # their keys are dotted paths, or names above such


def load(path: Path, overrides: Sequence[str] = ()) -> Suite:
    """The suite in a file or of a name, with `key=value` overrides; SuiteError lists every problem found without
    plugins.
    """
    return overridden(path, overrides)[1]


def overridden(path: Path, overrides: Sequence[str]) -> tuple[Raw, Suite]:
    """The same, as it is said and as it is checked."""
    raw, where = source(path)
    problems: list[str] = []
    changes: list[tuple[str, Any]] = []
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            problems.append(f"--set {override}: expected key=value")
            continue
        changes.append((key.strip(), parse_value(text)))
    return changed(raw, where, changes, problems)


def source(path: Path) -> tuple[Raw, str]:
    """What a suite file says, or the suite of that name that comes with the package; and what messages call it. Paths
    in the latter start at the current folder.
    """
    file = suite_file(path)
    return read(file), str(path) if file == path else path.name


def changed(
    raw: Raw, where: str, changes: Iterable[tuple[str, Any]], problems: Sequence[str] = (), who: str = "--set "
) -> tuple[Raw, Suite]:
    """The suite with some keys changed, as it is said and as it is checked; SuiteError lists every problem."""
    out, found = Raw(copy.deepcopy(dict(raw))), list(problems)
    for key, value in changes:
        placed = moved(key.removeprefix("axes."), value, Path.cwd(), Path(where).parent)
        set_path(out, key, placed, f"{who}{key:.100}", found)
    suite = check(normalise(out), where, found)
    if found or suite is None:
        raise SuiteError([p if p.startswith(who) else f"{where}: {p}" for p in found])
    return out, suite


def read(path: Path, seen: tuple[Path, ...] = ()) -> Raw:
    """What a suite file says on top of the one it extends."""
    if path.resolve() in seen:
        raise SuiteError([f"{path}: extends itself through {' → '.join(str(p.name) for p in seen)}"])
    return extended(parse_file(path), path, (*seen, path.resolve()))


def extended(said: Mapping[str, Any], path: Path, seen: tuple[Path, ...] = ()) -> Raw:
    """What the suite at a path says, on top of the one it extends."""
    raw = normalise(said)
    parent = raw.pop("extends", None)
    if parent is None:
        return raw
    if not isinstance(parent, str) or not parent.isprintable():
        raise SuiteError([f"{path}: extends: expected the path of a suite file, found {show(parent)}"])
    named = by_name(parent)
    above = path.parent / parent if named is None or (path.parent / parent).exists() else named
    base = read(above, seen)
    return Raw(merge({key: moved(key, value, above.parent, path.parent) for key, value in base.items()}, raw))


def normalise(raw: Mapping[str, Any]) -> Normalised:
    """A deep copy with shorthands written out: `model: softmax` is `model: {name: softmax}`."""
    out: dict[str, Any] = copy.deepcopy(dict(raw))
    for path, tag in SHORTHANDS.items():
        *parents, last = path.split(".")
        spot: Any = out
        for name in parents:
            spot = spot.get(name) if isinstance(spot, dict) else None
        if isinstance(spot, dict) and last in spot:
            value = spot[last]
            if isinstance(value, str):
                spot[last] = {tag: value}
            elif isinstance(value, int | float) and tag == "kind" and not isinstance(value, bool):
                spot[last] = {"kind": "constant", "value": value}
    return Normalised(Raw(out))


def at(base: Normalised, coordinates: Mapping[str, Any], problems: list[str]) -> Normalised:
    """The configuration at one point of the axes."""
    point = copy.deepcopy(base)
    for path, value in coordinates.items():
        set_path(point, path, value, f"axes.{path}", problems)
    return normalise(point)


def merge(base: Mapping[str, Any], top: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Mappings merged key by key; lists, axes, tuning, and parts of another name or kind are replaced whole."""
    out = dict(base)
    for key, value in top.items():
        old, here = out.get(key), join(path, key)
        same = (
            isinstance(old, dict)
            and isinstance(value, dict)
            and here not in LISTED
            and all(tag not in value or value[tag] == old.get(tag) for tag in ("name", "kind"))
        )
        out[key] = merge(old, value, here) if same and isinstance(old, dict) else copy.deepcopy(value)
    return out


def set_path(raw: dict[str, Any], path: str, value: Any, who: str, problems: list[str]) -> None:
    """Put a value at a dotted path (list items by [index] or .index), creating mappings on the way."""
    head, _, rest = path.partition(".")
    keys = [head, rest] if head in LISTED and rest else [k for k in re.split(r"[.\[\]]+", path) if k]
    if not keys:
        problems.append(f"{who}: expected a dotted path such as federation.rounds")
    spot: Any = raw
    for i, key in enumerate(keys):
        last = i == len(keys) - 1
        if isinstance(spot, list):
            if not key.isdecimal() or len(key) > 9 or int(key) >= len(spot):  # '²' is a digit and no number
                problems.append(f"{who}: '{key:.60}' is no index of a list of {len(spot)}")
                return
            if last:
                spot[int(key)] = value
            else:
                spot = spot[int(key)]
        elif isinstance(spot, dict):
            if last:
                spot[key] = value
            else:
                spot = spot.setdefault(key, {})
        else:
            problems.append(f"{who}: '{'.'.join(keys[:i])}' is {spot!r}, nothing can be set below it")
            return


def check(raw: Normalised, where: str, problems: list[str]) -> Suite | None:
    """The suite a plain mapping describes, None if there are problems."""
    odd = strange(raw)
    if odd:
        problems += odd
        return None
    problems += [f"{key}: unknown; {suggest(key, SECTIONS)}" for key in raw if key not in SECTIONS]
    problems += [f"{key}: missing" for key in ("name", "task", "federation", "algorithms") if key not in raw]
    name, description = raw.get("name", "x"), raw.get("description", "")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}", name):
        problems.append(
            f"name: found {show(name)}; allowed: up to 100 of the letters a to z and A to Z, digits, space, '.', '_' "
            "and '-', a letter or digit first (it names a folder)"
        )
    if not isinstance(description, str):
        problems.append(f"description: expected a text, found {description!r}")
    base = {key: raw.get(key) or {} for key in VARIED}
    problems += [f"{k}: expected a mapping, found {v!r}" for k, v in base.items() if not isinstance(v, Mapping)]
    axes = axes_section(raw.get("axes") or {}, problems)
    cases = cases_section(raw.get("cases") or {}, axes, problems)
    varied = [*axes, *dict.fromkeys(path for case in cases.values() for path in case)]
    axes = {**({CASE: list(cases)} if cases else {}), **axes}
    report = report_section(raw.get("report") or {}, problems)
    evaluate, resources = (
        build(section, raw.get(key) or {}, key, problems)
        for key, section in (("evaluate", Evaluate), ("resources", Resources))
    )
    columns = report.columns or () if report is not INVALID else ()
    problems += [f"report.columns: '{c}' is not an axis; {suggest(c, axes)}" for c in columns if c not in axes]
    entries = algorithms_section(raw["algorithms"], problems) if "algorithms" in raw else []
    seeds = seeds_section(raw.get("seeds", 1), problems)
    tune = tune_section(raw.get("tune"), varied, seeds, report, problems)
    trials = tune.seeds * math.prod(map(len, tune.grid.values())) if tune else 0
    cells = math.prod(map(len, axes.values())) * len(entries) * (len(seeds) + trials)
    if cells > MAX_CELLS:
        problems.append(f"axes, algorithms, seeds and tuning make {cells:,} cells; allowed: {MAX_CELLS:,}")
    if problems:
        return None
    return Suite(
        name=name,
        description=description,
        base=Normalised(Raw(base)),
        axes=axes,
        cases=cases,
        seeds=seeds,
        entries=entries,
        tune=tune,
        evaluate=evaluate,
        resources=resources,
        report=report,
        where=where,
    )


def report_section(raw: Any, problems: list[str]) -> Any:
    """The `report` section of a suite or of a results folder; INVALID if there are problems.

    Version 0.1 had a key `paper` for the one section there was.
    """
    if isinstance(raw, Mapping) and "paper" in raw:
        rest = {k: v for k, v in raw.items() if k != "paper"}
        asked = [] if raw["paper"] is None else [{"name": "ma2024", "show": raw["paper"]}]
        raw = {**rest, "sections": [*(rest.get("sections") or []), *asked]}
    return build(Report, raw, "report", problems)
