"""Charts of sensitivity: utility on validation data over the grid that every algorithm was tuned over."""

import math
from typing import Any

import numpy as np

from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart, Plane, Series
from dpflbench.report.charts.choice import needs_log, panel_title, shown_columns
from dpflbench.report.tables.tuned import grid_of
from dpflbench.report.view import Column, View
from dpflbench.tuning import GridPoint, Tuned

CHOSEN = 6.0  # size of the sign of what was chosen
RATIO = 4.0  # values that span this factor stand on a logarithmic axis


def tuning_charts(view: View) -> list[Chart]:
    """Utility over the values of each tuned path that has numbers, one panel for each column."""
    return [
        _chart(view, path, sorted(map(float, values)))
        for path, values in grid_of(view).items()
        if len(values) > 1 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    ]


def _chart(view: View, path: str, values: list[float]) -> Chart:
    columns, rest = shown_columns(view)
    panels = [panel for column in columns if (panel := _plane(view, column, path, values)) is not None]
    others = " Of the other tuned values, at each point the best." if len(grid_of(view)) > 1 else ""
    return Chart(
        key=f"tuning-{path}",
        title=f"Sensitivity to {labels.axis(path)}",
        caption="Mean over tuning seeds on validation data, never on the test set; bars: one standard deviation; the "
        f"large sign is what was chosen. A point that is missing did not end well on every seed.{others}{rest}",
        panels=tuple(panels),
    )


def _plane(view: View, column: Column, path: str, values: list[float]) -> Plane | None:
    series: list[Series] = []
    for name in view.algorithms:
        here = view.tuned.get((column.key, name))
        if here is not None:
            series += _series(here, path, values, view.digits(column))
    if not series:
        return None
    metric = view.metrics[column.key]
    log = values[0] > 0 and values[-1] >= RATIO * values[0]
    return Plane(
        title=panel_title(column, view),
        x_label=labels.axis(path),
        y_label=labels.metric_label(metric),
        series=tuple(series),
        x_log=log,
        y_log=needs_log(metric, np.concatenate([s.y for s in series])),
        x_ticks=tuple(values) if log else (),
    )


def _series(here: Tuned, path: str, values: list[float], digits: int) -> list[Series]:
    """A line over the grid, and a sign at what was chosen; nothing if no point ended well."""
    points = [(v, best) for v in values if (best := _best(here, path, v)) is not None]
    if not points:
        return []
    line = _points(here, path, [trial for _, trial in points], 0.0, digits)
    return [line, _points(here, path, [here.chosen], CHOSEN, digits)] if here.chosen is not None else [line]


def _points(here: Tuned, path: str, trials: list[GridPoint], size: float, digits: int) -> Series:
    y = np.array([trial.mean for trial in trials])
    spread = np.array([np.std(list(t.utilities.values()), ddof=1) if len(t.utilities) > 1 else 0.0 for t in trials])
    hints = tuple(_hint(here, path, trial.values[path], labels.number(trial.mean, digits)) for trial in trials)
    x = np.array([float(trial.values[path]) for trial in trials])
    low, high = (None, None) if size else (y - spread, y + spread)
    name = here.algorithm
    return Series(name=name, x=x, y=y, low=low, high=high, line=not size, markers=True, hints=hints, size=size)


def _best(here: Tuned, path: str, value: float) -> GridPoint | None:
    """The best trial with that value of a path; None if none ended well."""
    found = [t for t in here.trials if float(t.values[path]) == value and math.isfinite(t.mean)]
    return max(found, key=lambda t: t.mean if t.higher_is_better else -t.mean, default=None)


def _hint(here: Tuned, path: str, value: Any, mean: str) -> str:
    return f"{labels.axis(path)} {labels.axis_value(value)}: {labels.short(here.algorithm)} {mean}"
