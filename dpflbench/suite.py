"""YAML to Suite: read, merged with what it extends and with --set, and checked as far as that needs no plugin.

A suite is data, never code (suite_file.py), and reads no file but the one it extends. All problems are listed at once,
each with its path into the file. What a section may say stands in suite_schema.py; parts are made in assembly.py.
"""

import copy
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpflbench.canonical import content_digest
from dpflbench.errors import SuiteError
from dpflbench.schema import INVALID, build, join, show, suggest
from dpflbench.suite_file import parse_file, strange
from dpflbench.suite_file import parse_value as parse_value  # for --set of other commands
from dpflbench.suite_schema import (
    SECTIONS,
    SHORTHANDS,
    VARIED,
    AlgorithmEntry,
    Evaluate,
    Normalised,
    Raw,
    Report,
    Resources,
    Suite,
)

MAX_SEEDS, MAX_CELLS = 10_000, 1_000_000


def load(path: Path, overrides: Sequence[str] = ()) -> Suite:
    """The suite in a file, with `key=value` overrides; SuiteError lists every problem found without plugins."""
    raw = read(path)
    problems: list[str] = []
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            problems.append(f"--set {override}: expected key=value")
            continue
        set_path(raw, key.strip(), parse_value(text), f"--set {key:.100}", problems)
    suite = check(normalise(raw), str(path), problems)
    if problems or suite is None:
        raise SuiteError([p if p.startswith("--set") else f"{path}: {p}" for p in problems])
    return suite


def read(path: Path, seen: tuple[Path, ...] = ()) -> Raw:
    """What a suite file says on top of the one it extends."""
    if path.resolve() in seen:
        raise SuiteError([f"{path}: extends itself through {' → '.join(str(p.name) for p in seen)}"])
    raw = normalise(parse_file(path))
    parent = raw.pop("extends", None)
    if parent is None:
        return raw
    if not isinstance(parent, str) or not parent.isprintable():
        raise SuiteError([f"{path}: extends: expected the path of a suite file, found {show(parent)}"])
    return Raw(merge(read(path.parent / parent, (*seen, path.resolve())), raw))


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
    """Mappings merged key by key; lists, axes, and parts of another name or kind are replaced whole."""
    out = dict(base)
    for key, value in top.items():
        old, here = out.get(key), join(path, key)
        same = (
            isinstance(old, dict)
            and isinstance(value, dict)
            and here != "axes"
            and all(tag not in value or value[tag] == old.get(tag) for tag in ("name", "kind"))
        )
        out[key] = merge(old, value, here) if same and isinstance(old, dict) else copy.deepcopy(value)
    return out


def set_path(raw: dict[str, Any], path: str, value: Any, who: str, problems: list[str]) -> None:
    """Put a value at a dotted path (list items by [index] or .index), creating mappings on the way."""
    keys = ["axes", path[5:]] if path.startswith("axes.") else [k for k in re.split(r"[.\[\]]+", path) if k]
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
            f"name: found {name!r}; letters, digits, space, '.', '_' and '-' are allowed (it names a folder)"
        )
    if not isinstance(description, str):
        problems.append(f"description: expected a text, found {description!r}")
    base = {key: raw.get(key) or {} for key in VARIED}
    problems += [f"{k}: expected a mapping, found {v!r}" for k, v in base.items() if not isinstance(v, Mapping)]
    axes = _axes(raw.get("axes") or {}, problems)
    report = report_section(raw.get("report") or {}, problems)
    evaluate, resources = (
        build(section, raw.get(key) or {}, key, problems)
        for key, section in (("evaluate", Evaluate), ("resources", Resources))
    )
    columns = report.columns or () if report is not INVALID else ()
    problems += [f"report.columns: '{c}' is not an axis; {suggest(c, axes)}" for c in columns if c not in axes]
    entries = _entries(raw["algorithms"], problems) if "algorithms" in raw else []
    seeds = _seeds(raw.get("seeds", 1), problems)
    cells = math.prod(map(len, axes.values())) * len(entries) * len(seeds)
    if cells > MAX_CELLS:
        problems.append(f"axes, algorithms and seeds make {cells:,} cells; allowed: {MAX_CELLS:,}")
    if problems:
        return None
    return Suite(
        name=name,
        description=description,
        base=Normalised(Raw(base)),
        axes=axes,
        seeds=seeds,
        entries=entries,
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


def _axes(raw: Any, problems: list[str]) -> dict[str, list[Any]]:
    if not isinstance(raw, Mapping):
        problems.append(f"axes: expected a mapping from path to values, found {raw!r}")
        return {}
    axes: dict[str, list[Any]] = {}
    for path, values in raw.items():
        head = str(path).split(".")[0]
        if head not in VARIED:
            problems.append(f"axes.{path}: an axis varies task, federation or privacy; {suggest(head, VARIED)}")
        elif not isinstance(values, list) or not values:
            problems.append(f"axes.{path}: empty; expected a list of at least one value")
        elif len({content_digest(v) for v in values}) < len(values):
            problems.append(f"axes.{path}: a value stands there twice")
        else:
            axes[str(path)] = values
    return axes


def _seeds(raw: Any, problems: list[str]) -> list[int]:
    count = len(raw) if isinstance(raw, list) else raw
    if isinstance(count, int) and count > MAX_SEEDS:
        problems.append(f"seeds: more than {MAX_SEEDS:,}; allowed: up to that many")
        return []
    if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 1:
        return list(range(raw))
    if (
        isinstance(raw, list)
        and raw
        and all(isinstance(s, int) and not isinstance(s, bool) for s in raw)
        and len(set(raw)) == len(raw)
    ):
        return list(raw)
    problems.append(f"seeds: found {raw!r:.60}; expected how many (1 or more) or a list of different integers")
    return []


def _entries(raw: Any, problems: list[str]) -> list[AlgorithmEntry]:
    if not isinstance(raw, list) or not raw:
        problems.append("algorithms: empty; expected a list of names or of {use, as, with}")
        return []
    entries: list[AlgorithmEntry] = []
    for i, item in enumerate(raw):
        path = f"algorithms[{i}]"
        if isinstance(item, str):
            item = {"use": item}
        if not isinstance(item, Mapping) or not isinstance(item.get("use"), str):
            problems.append(f"{path}: expected a name or a mapping with 'use', found {item!r:.60}")
            continue
        problems += [
            f"{path}.{k}: unknown; {suggest(k, ('use', 'as', 'with'))}" for k in item if k not in ("use", "as", "with")
        ]
        given, label = item.get("with") or {}, item.get("as")
        if not isinstance(given, Mapping):
            problems.append(f"{path}.with: expected a mapping, found {given!r:.60}")
            continue
        if label is not None and (not isinstance(label, str) or not label.strip()):
            problems.append(f"{path}.as: expected a text, found {label!r}")
            continue
        options = ", ".join(f"{k}={_short(v)}" for k, v in sorted(given.items()))
        default = item["use"] + (f"({options})" if options else "")
        entries.append(AlgorithmEntry(item["use"], given, label or default, i))
    labels = [e.label for e in entries]
    problems += [
        f"algorithms[{e.index}]: '{e.label}' stands there twice; tell them apart by 'as'"
        for e in entries
        if labels.index(e.label) < entries.index(e)
    ]
    return entries


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name", "{…}"))
    return str(value)
