"""The rows of a board: one a table's algorithm and source, from a bundle that was proved here or from a report whose
records are not there.

Rows stand on one page only if the versions of their suites are the same. A report without records has no version to
compare, so it has a page of its own.
"""

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpflbench.bundles.bundle import Bundle
from dpflbench.bundles.prove import Proved
from dpflbench.bundles.version import DIGITS, federations_apart
from dpflbench.canonical import content_digest
from dpflbench.errors import DpflbenchError
from dpflbench.judges.exposed import exposed
from dpflbench.report import labels
from dpflbench.report.noise import strangers
from dpflbench.report.page import suite_text
from dpflbench.report.tables.gaps import gap_lines
from dpflbench.report.view import Group, View, view
from dpflbench.results.proofs import Proof
from dpflbench.results.record import ACCURACY, MSE, Metric

ABOUT = "board.json"  # beside a report: what its page cannot know without records
SAID = ("name", "source", "commit", "date", "dpflbench", "command")


@dataclass(frozen=True, slots=True)
class Scored:
    """One algorithm in one column."""

    values: Mapping[int, float]  # seed → value of the runs that ended well
    seeds: int
    gaps: str = ""  # what became of the others

    @property
    def mean(self) -> float:
        """Over seeds; NaN if there is none."""
        return float(np.mean(list(self.values.values()))) if self.values else math.nan

    @property
    def std(self) -> float:
        """Sample standard deviation; NaN below two."""
        return float(np.std(list(self.values.values()), ddof=1)) if len(self.values) > 1 else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """One algorithm from one source."""

    id: str  # its anchor
    algorithm: str
    supplier: str  # whose code it is: distribution and version
    private: bool
    scores: Mapping[str, Scored]  # by column
    source: str
    commit: str
    date: str
    dpflbench: str
    proof: Proof
    replayed: str = ""  # how many of its runs were
    mark: str = ""  # what could have spoilt it although nothing is wrong
    file: str = ""  # the bundle, as the site has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All rows of one version of a suite."""

    slug: str
    name: str
    description: str
    version: str  # empty: nobody can tell without records
    columns: Mapping[str, str]  # key → title
    metric: Metric
    rows: tuple[BoardRow, ...]
    suite: str = ""  # as YAML
    command: str = ""
    bundles: tuple[Path, ...] = ()


def page_of(bundle: Bundle, proved: Proved) -> Page:
    """The page of one bundle alone."""
    seen = view(bundle.results)
    columns = {c.key: c.title for c in seen.columns}
    return Page(
        slug=f"{_slug(seen.name)}-{bundle.version[:DIGITS]}",
        name=seen.name,
        description=str(seen.suite.get("description") or ""),
        version=bundle.version,
        columns=columns,
        metric=seen.common_metric or next(iter(seen.metrics.values())),
        rows=tuple(_row(bundle, proved, seen, name) for name in seen.algorithms),
        suite=suite_text(seen),
        bundles=(bundle.path,),
    )


def joined(pages: Iterable[tuple[Page, Bundle]]) -> list[Page]:
    """A page a version, with the rows of all its bundles; DpflbenchError where two of a version are not of one
    federation.
    """
    found: dict[str, tuple[Page, Bundle]] = {}
    for page, bundle in pages:
        if page.version not in found:
            found[page.version] = page, bundle
            continue
        held, first = found[page.version]
        apart = federations_apart(first.results, bundle.results)
        if apart:
            raise DpflbenchError(f"{bundle.path}: {apart} is not that of {first.path}: they cannot be on one page")
        known = {row.id for row in held.rows}
        rows = (*held.rows, *(row for row in page.rows if row.id not in known))
        found[page.version] = replace(held, rows=rows, bundles=(*held.bundles, bundle.path)), first
    return [page for page, _ in found.values()]


def reported(folder: Path) -> Page:
    """The page of a report of which there are no records; DpflbenchError if it lacks cells.csv or board.json."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        cells = list(csv.DictReader((folder / "cells.csv").read_text(encoding="utf-8").splitlines()))
        said = {name: str(about[name]) for name in SAID}
        axes = list(cells[0])[: list(cells[0]).index("algorithm")]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as e:
        raise DpflbenchError(
            f"{folder}: neither a bundle nor a report with cells.csv and {ABOUT} ({type(e).__name__}: {str(e)[:80]}); "
            f"{ABOUT} has {', '.join(SAID)}"
        ) from None
    columns, scores = dict[str, str](), dict[str, dict[str, list[dict[str, str]]]]()
    for cell in cells:
        where = labels.coordinates({a: _number(cell[a]) for a in axes}) or "all"
        columns[where] = where
        scores.setdefault(cell["algorithm"], {}).setdefault(where, []).append(cell)
    rows = tuple(_reported_row(name, by_column, said) for name, by_column in scores.items())
    version = content_digest([said, cells])
    suite = folder / "suite.yaml"
    return Page(
        slug=f"{_slug(said['name'])}-report-{version[:DIGITS]}",
        name=said["name"],
        description=str(about.get("description", "")),
        version="",
        columns=columns,
        metric=ACCURACY if any(cell["metric"] == "accuracy" for cell in cells) else MSE,
        rows=rows,
        suite=suite.read_text(encoding="utf-8") if suite.is_file() else "",
        command=said["command"],
    )


def _row(bundle: Bundle, proved: Proved, seen: View, name: str) -> BoardRow:
    groups = {key: group for (key, algorithm), group in seen.groups.items() if algorithm == name}
    records = [r for g in groups.values() for e in g.endings if (r := e.record) is not None]
    runs = {e.run for g in groups.values() for e in g.endings if e.run is not None}
    foreign = sorted({who for record in records for who in strangers(record)})
    played = len(runs & proved.played)
    return BoardRow(
        id=f"row-{content_digest([bundle.digest, name])[:10]}",
        algorithm=name,
        supplier=", ".join(foreign) or f"dpflbench {bundle.versions.get('dpflbench', '')}",
        private=all(g.private for g in groups.values()),
        scores={key: _score(group) for key, group in groups.items()},
        source=bundle.source or bundle.path.name,
        commit=", ".join(bundle.commits),
        date=bundle.date,
        dpflbench=bundle.versions.get("dpflbench", ""),
        proof=proved.level_of(runs),
        replayed=f"{played} of {len(runs)}" if played else "",
        mark=", ".join(sorted({why for record in records if (why := exposed(record))})),
        file=bundle.path.name,
    )


def _score(group: Group) -> Scored:
    return Scored(group.values, len(group.endings), "; ".join(gap_lines(group.gaps)))


def _reported_row(name: str, by_column: Mapping[str, Sequence[dict[str, str]]], said: Mapping[str, str]) -> BoardRow:
    scores = {
        where: Scored(
            {int(c["seed"]): float(c["utility_global"]) for c in cells if c["status"] == "done"},
            len(cells),
            "; ".join(dict.fromkeys(f"{c['status']}: {c['reason']}" for c in cells if c["status"] != "done")),
        )
        for where, cells in by_column.items()
    }
    facts = {key: said[key] for key in ("source", "commit", "date", "dpflbench")}
    return BoardRow(
        id=f"row-{content_digest([said, name])[:10]}",
        algorithm=name,
        supplier=f"dpflbench {said['dpflbench']}",
        private=all(c["private"] == "True" for cells in by_column.values() for c in cells),
        scores=scores,
        proof="reported",
        **facts,
    )


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in name.lower()).split()) or "suite"


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
