"""Everything the paper prints (printed.json) beside ours, and where our settings are not its own."""

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from dpflbench.report import labels
from dpflbench.report.charts.choice import name_of
from dpflbench.report.tables.table import Item, Table, change, figure
from dpflbench.report.view import Column, Group, View

CONSTANTS = {"rho_min": "ρ min", "gamma": "γ", "smoothness": "L", "strong_convexity": "μ"}


@lru_cache(maxsize=1)
def printed() -> dict[str, Any]:
    """Everything the paper prints, and its settings."""
    found: dict[str, Any] = json.loads((files("dpflbench_ma2024") / "printed.json").read_text(encoding="utf-8"))
    return found


def dataset_of(view: View, column: Column) -> str:
    """The data set of a column, by the name it has in a suite."""
    return name_of(view.lookup(column, "task.dataset"))


def mechanism_of(view: View, column: Column) -> str:
    """The mechanism of a column."""
    return name_of(view.lookup(column, "privacy.mechanism"))


def deviations(view: View, column: Column) -> dict[str, tuple[str, str]]:
    """Where a column is not the paper's: path → our value and theirs."""
    dataset = dataset_of(view, column)
    known = printed()["settings"]
    found: dict[str, tuple[str, str]] = {}
    for path, theirs in ({**known["common"], **known[dataset]} if dataset in known else {}).items():
        ours = view.lookup(column, path)
        if path == "privacy.clip" and isinstance(ours, dict):
            ours = ours.get(mechanism_of(view, column))
        ours = name_of(ours) if isinstance(ours, dict) else ours
        same = (
            math.isclose(ours, theirs)
            if isinstance(ours, int | float) and isinstance(theirs, int | float)
            else ours == theirs
        )
        if not same:
            found[path] = ("not set" if ours is None else labels.axis_value(ours), labels.axis_value(theirs))
    return found


def as_printed(view: View) -> list[Column]:
    """Columns at the heterogeneity the printed tables are for; others cannot be put beside them."""
    return [
        c for c in view.columns if not {"privacy.epsilon.high", "task.partition.alpha"} & deviations(view, c).keys()
    ]


def deviation_notes(view: View, columns: Sequence[Column]) -> tuple[str, ...]:
    """Where those columns are not the paper's, a line for each setting."""
    found: dict[str, tuple[list[str], str]] = {}
    for column in columns:
        for path, (ours, theirs) in deviations(view, column).items():
            found.setdefault(path, ([], theirs))[0].append(ours)
    lines = [
        f"{path}: {labels.listing(list(dict.fromkeys(ours)))}, the paper has {theirs}"
        for path, (ours, theirs) in found.items()
    ]
    return tuple(f"Differs from the paper: {line}." for line in lines) or (
        "All settings the paper gives are as printed.",
    )


def _name(view: View, group: Group) -> Item:
    """An algorithm, with what is wrong with its records."""
    return Item(group.algorithm, mark=f"({mark})" if (mark := view.mark(group)) else "")


def table_1(view: View) -> Table | None:
    """The paper's table 1 beside ours: PRIVATEFL with and without biased selection."""
    rows, used = [], []
    for column in as_printed(view):
        theirs = printed()["table1"].get(mechanism_of(view, column), {})
        for algorithm, by_dataset in theirs.items():
            pair, group = by_dataset.get(dataset_of(view, column)), view.group(column, algorithm)
            if pair is None or group is None:
                continue
            used.append(column)
            gap, digits = group.mean - pair[0], view.digits(column)
            ours = (
                labels.mean_std(group.mean, group.std, digits)
                if group.values
                else "; ".join({e.status for e in group.gaps})
            )
            rows.append(
                (
                    Item(column.title),
                    _name(view, group),
                    Item(labels.metric_label(view.metrics[column.key])),
                    Item(labels.mean_std(pair[0], pair[1], digits), pair[0]),
                    Item(ours, group.mean),
                    change(gap, digits),
                )
            )
    if not rows:
        return None
    notes = (
        f"Ours is {view.value}; the paper does not say which personal transform its test uses.",
        *deviation_notes(view, list(dict.fromkeys(used))),
    )
    return Table(
        key="table1",
        title="The paper's table 1: final utility, printed and ours",
        header=("column", "algorithm", "metric", "printed", "ours", "ours − printed"),
        rows=tuple(rows),
        caption=printed()["source"],
        notes=notes,
        labels=3,
    )


def table_2(view: View) -> Table | None:
    """The paper's table 2 beside ours: constants estimated by biased client selection."""
    rows, used = [], []
    for column in as_printed(view):
        theirs = printed()["table2"].get(dataset_of(view, column), {}).get(mechanism_of(view, column))
        for group in view.in_column(column):
            notes = [n for r in group.records for n in r.notes]
            ours = {c: [float(n[c]) for n in notes if isinstance(n.get(c), int | float)] for c in CONSTANTS}
            if theirs is None or not any(ours.values()):
                continue
            used.append(column)
            items = []
            for constant in CONSTANTS:
                mean = float(np.mean(ours[constant])) if ours[constant] else math.nan
                items += [figure(theirs[constant], 3), figure(mean, 3)]
            rows.append((Item(column.title), _name(view, group), *items))
    if not rows:
        return None
    header = [f"{CONSTANTS[c]}\n{which}" for c in CONSTANTS for which in ("printed", "ours")]
    note = (
        "By default the constants follow from the learning-rate schedule and are not fitted: one equation cannot "
        "determine five unknowns, and the printed ones break the theorem's γ = 8 L / μ."
    )
    return Table(
        key="table2",
        title="The paper's table 2: constants, printed and ours",
        header=("column", "algorithm", *header),
        rows=tuple(rows),
        caption=printed()["source"],
        notes=(note, *deviation_notes(view, list(dict.fromkeys(used)))),
        labels=2,
    )
