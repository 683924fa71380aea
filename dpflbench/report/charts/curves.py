"""Charts of utility: by round, against the axes and against time."""

import math

import numpy as np

from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart, Lanes, Mark, Plane, Series
from dpflbench.report.charts.choice import (
    MAX_PANELS,
    by_other_axes,
    needs_log,
    panel_title,
    shown_columns,
    with_results,
)
from dpflbench.report.statistics import Floats
from dpflbench.report.tables.costs import middle, run_seconds
from dpflbench.report.view import Column, Group, View

MAX_POINTS = 80  # of a line; more cannot be seen
PAIR = ("ring", "circle")  # the signs of an axis with two values
DECADE = 10.0  # an axis whose values span this factor is logarithmic


def _plane(view: View, column: Column, title: str, x_label: str, series: list[Series], x_log: bool = False) -> Plane:
    metric = view.metrics[column.key]
    log = needs_log(metric, np.concatenate([s.y for s in series]))
    ticks = tuple(map(float, series[0].x)) if x_log else ()
    y_label = labels.metric_label(metric)
    return Plane(
        title=title, x_label=x_label, y_label=y_label, series=tuple(series), y_log=log, x_log=x_log, x_ticks=ticks
    )


def _curve(group: Group) -> Series | None:
    curves = [r.rounds for r in group.records if len(r.rounds.get("round", ())) > 0]
    if not curves:
        return None
    rounds = curves[0]["round"]
    same = [c["utility_global"] for c in curves if np.array_equal(c["round"], rounds)]
    keep = np.unique(np.linspace(0, len(rounds) - 1, min(MAX_POINTS, len(rounds))).round().astype(int))
    y = np.array(same, dtype=np.float64)[:, keep]
    mean, spread = y.mean(axis=0), y.std(axis=0, ddof=1) if len(y) > 1 else np.zeros(y.shape[1])
    x = np.asarray(rounds, np.float64)[keep]
    return Series(name=group.algorithm, x=x, y=mean, low=mean - spread, high=mean + spread)


def rounds_chart(view: View) -> Chart:
    """Test utility of the shared model by round, one panel for each column."""
    columns, rest = shown_columns(view)
    panels = []
    for column in columns:
        series = [s for g in view.in_column(column) if (s := _curve(g)) is not None]
        if series:
            panels.append(_plane(view, column, panel_title(column, view), "round", series))
    caption = "Shared model on the test set; line: mean over seeds, band: one standard deviation."
    return Chart(key="rounds", title="Utility by round", caption=caption + rest, panels=tuple(panels))


def _final(group: Group | None) -> tuple[float, float]:
    if group is None or not group.values:
        return math.nan, math.nan
    return group.mean, 0.0 if math.isnan(group.std) else group.std


def sweep_charts(view: View) -> list[Chart]:
    """Final utility against each axis of numbers, the other axes as panels: a curve, or for two values a pair of
    signs.
    """
    charts = []
    for axis in view.axes:
        found = [c.coordinates.get(axis) for c in view.columns]
        values = sorted({float(v) for v in found if isinstance(v, int | float) and not isinstance(v, bool)})
        if len(values) < 2 or any(v not in values for v in found):
            continue
        groups = by_other_axes(view, [axis])[:MAX_PANELS]
        pair = len(values) == 2  # two values are no curve: two signs in the lane of each algorithm
        make = _pairs if pair else _sweep
        panels = [panel for title, columns in groups if (panel := make(view, axis, title, columns)) is not None]
        words = [f"{labels.axis(axis)} {labels.axis_value(v)}" for v in values]
        charts.append(
            Chart(
                key=f"by-{axis}",
                title=f"Utility against {labels.axis(axis)}",
                caption="After the last round; mean over seeds, bars: one standard deviation.",
                panels=tuple(panels),
                signs=tuple(zip(PAIR, words, strict=True)) if pair else (),
            )
        )
    return charts


def _ends(view: View, axis: str, columns: list[Column]) -> tuple[list[Column], Floats, dict[str, Floats]]:
    """Columns by their value of an axis, those values, and of each algorithm mean and spread there [columns, 2]."""
    order = sorted(columns, key=lambda c: float(c.coordinates[axis]))
    found = {name: np.array([_final(view.group(c, name)) for c in order]) for name in view.algorithms}
    x = np.array([float(c.coordinates[axis]) for c in order])
    return order, x, {name: ends for name, ends in found.items() if np.any(np.isfinite(ends[:, 0]))}


def _hint(axis: str, name: str, x: float, mean: float, std: float, digits: int) -> str:
    return f"{labels.axis(axis)} {labels.axis_value(x)}: {labels.short(name)} {labels.mean_std(mean, std, digits)}"


def _sweep(view: View, axis: str, title: str, columns: list[Column]) -> Plane | None:
    order, x, found = _ends(view, axis, columns)
    series = []
    for name, ends in found.items():
        y, spread = ends.T
        hints = tuple(_hint(axis, name, *point, view.digits(order[0])) for point in zip(x, y, spread, strict=True))
        series.append(Series(name=name, x=x, y=y, low=y - spread, high=y + spread, markers=True, hints=hints))
    log = bool(x.min() > 0 and x.max() >= DECADE * x.min())
    return _plane(view, order[0], title, labels.axis(axis), series, log) if series else None


def _pairs(view: View, axis: str, title: str, columns: list[Column]) -> Lanes | None:
    order, x, found = _ends(view, axis, columns)
    if not found:
        return None
    metric, names = view.metrics[order[0].key], with_results(view)
    log = needs_log(metric, np.concatenate([ends[:, 0] for ends in found.values()]))
    every = sorted({float(c.coordinates[axis]) for c in view.columns})
    marks = [
        Mark(
            lane=names.index(name),
            x=mean,
            marker=PAIR[every.index(at)],
            hint=_hint(axis, name, at, mean, std, view.digits(order[0])),
            low=mean - std,
            high=mean + std,
        )
        for name, ends in found.items()
        for at, (mean, std) in zip(x, ends, strict=True)
        if math.isfinite(mean)
    ]
    return Lanes(title=title, x_label=labels.metric_label(metric), names=names, marks=tuple(marks), x_log=log)


def time_chart(view: View) -> Chart:
    """Final utility against what the rounds of a run take, one panel for each column."""
    panels, (columns, rest) = [], shown_columns(view)
    for column in columns:
        series = []
        for group in view.in_column(column):
            took = middle([run_seconds(r) for r in group.records])
            mean, std = _final(group)
            if math.isfinite(took) and math.isfinite(mean):
                end = labels.mean_std(mean, std, view.digits(column))
                words = f"{labels.short(group.algorithm)}: {end} in {labels.number(took)} s"
                x, y, low, high = (np.array([v]) for v in (took, mean, mean - std, mean + std))
                series.append(
                    Series(name=group.algorithm, x=x, y=y, low=low, high=high, line=False, markers=True, hints=(words,))
                )
        if series:
            panels.append(_plane(view, column, panel_title(column, view), "seconds a run", series))
    caption = (
        "All rounds of a run without its set-up and without the first one, which pays for first calls: median over "
        "seeds. Bars: one standard deviation of utility."
    )
    return Chart(key="time", title="Utility against time", caption=caption + rest, panels=tuple(panels))
