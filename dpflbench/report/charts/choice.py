"""What all charts share: which columns they show, and when an axis is logarithmic."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpflbench.report import labels
from dpflbench.report.statistics import Floats
from dpflbench.report.view import Column, View, coordinate_key
from dpflbench.results.record import Metric

MAX_PANELS = 16


def name_of(value: Any) -> str:
    """The name in a part's configuration, which may be the name alone."""
    return str(value.get("name") or value.get("kind") or "") if isinstance(value, dict) else str(value)


def representatives(view: View, most: Callable[[Column], float] = lambda _: 0.0) -> list[Column]:
    """One column with a result of each mechanism and data set: that with most of something, of equals the first."""
    filled = {g.column.key for g in view.filled}
    found: dict[tuple[str, ...], list[Column]] = {}
    for column in view.columns:
        if column.key in filled:
            kind = tuple(name_of(view.lookup(column, path)) for path in ("privacy.mechanism", "task.dataset"))
            found.setdefault(kind, []).append(column)
    return [max(columns, key=most) for columns in found.values()]


def panel_title(column: Column, view: View) -> str:
    """What stands above the panel of a column: the axes that tell columns apart."""
    return labels.coordinates(column.coordinates, varying(view.columns))


def varying(columns: Sequence[Column]) -> list[str]:
    """Axes on which columns differ."""
    axes = list(dict.fromkeys(axis for c in columns for axis in c.coordinates))
    return [a for a in axes if len({coordinate_key({a: c.coordinates.get(a)}) for c in columns}) > 1]


def titled(names: Sequence[str], column: Column, view: View) -> str:
    """What stands above the panel of some algorithms in a column."""
    return ": ".join(filter(None, [labels.listing([labels.short(n) for n in names]), panel_title(column, view)]))


def with_results(view: View) -> tuple[str, ...]:
    """Algorithms with a result in some column, in the order of the suite."""
    return tuple(a for a in view.algorithms if any(g.algorithm == a for g in view.filled))


def needs_log(metric: Metric, values: Floats) -> bool:
    """Errors that differ by more than an order of magnitude need a logarithmic axis."""
    known = values[np.isfinite(values)]
    return bool(not metric.higher_is_better and known.size and known.min() > 0 and known.max() > 10 * np.median(known))


def shown_columns(view: View) -> tuple[Sequence[Column], str]:
    """The columns a chart has room for, and a sentence if those are not all."""
    if len(view.columns) <= MAX_PANELS:
        return view.columns, ""
    return view.columns[:MAX_PANELS], f" The first {MAX_PANELS} of {len(view.columns)} columns; the tables have all."


def by_other_axes(view: View, axes: Sequence[str]) -> list[tuple[str, list[Column]]]:
    """Columns grouped by all axes but the given ones, each group with its label."""
    found: dict[str, tuple[str, list[Column]]] = {}
    shown = varying(view.columns)
    for column in view.columns:
        rest = {a: v for a, v in column.coordinates.items() if a not in axes}
        found.setdefault(coordinate_key(rest), (labels.coordinates(rest, shown), []))[1].append(column)
    return list(found.values())
