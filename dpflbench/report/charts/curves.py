"""Charts of utility: by round, against the axes and against time."""

import math

import numpy as np

from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart, Plane, Series
from dpflbench.report.charts.choice import (
    MAX_PANELS,
    by_other_axes,
    needs_log,
    panel_title,
    representatives,
    shown_columns,
)
from dpflbench.report.view import Column, Group, View

MAX_POINTS = 80  # of a line; more cannot be seen


def _plane(
    view: View, column: Column, title: str, x_label: str, series: list[Series], **rest: tuple[float, ...]
) -> Plane:
    metric = view.metrics[column.key]
    log = needs_log(metric, np.concatenate([s.y for s in series]))
    y_label = labels.metric_label(metric)
    return Plane(title=title, x_label=x_label, y_label=y_label, series=tuple(series), y_log=log, **rest)


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
    """Final utility against each axis of numbers, the other axes as panels."""
    charts = []
    for axis in view.axes:
        values = [c.coordinates.get(axis) for c in view.columns]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values) and len(set(values)) > 1:
            name = labels.axis(axis)
            panels = [_sweep(view, axis, title, columns) for title, columns in by_other_axes(view, [axis])]
            charts.append(
                Chart(
                    key=f"by-{axis}",
                    title=f"Utility against {name}",
                    caption="After the last round; mean over seeds, bars: one standard deviation.",
                    panels=tuple([p for p in panels if p is not None][:MAX_PANELS]),
                )
            )
    return charts


def _sweep(view: View, axis: str, title: str, columns: list[Column]) -> Plane | None:
    order = sorted(columns, key=lambda c: float(c.coordinates[axis]))
    x = np.array([float(c.coordinates[axis]) for c in order])
    series = []
    for name in view.algorithms:
        y, spread = np.array([_final(view.group(c, name)) for c in order]).T
        if np.any(np.isfinite(y)):
            hints = tuple(
                f"{labels.axis(axis)} {a:g}: {labels.short(name)} {labels.mean_std(m, d)}"
                for a, m, d in zip(x, y, spread, strict=True)
            )
            series.append(Series(name=name, x=x, y=y, low=y - spread, high=y + spread, markers=True, hints=hints))
    if not series:
        return None
    ticks = tuple(dict.fromkeys(float(v) for v in x))
    return _plane(view, order[0], title, labels.axis(axis), series, x_ticks=ticks)


def time_chart(view: View) -> Chart:
    """Final utility against the wall time of a run."""
    panels = []
    for column in representatives(view):
        series = []
        for group in view.in_column(column):
            seconds = [r.measured.get("seconds") for r in group.records]
            known = [float(s) for s in seconds if isinstance(s, int | float)]
            if known and group.values:
                mean, std = _final(group)
                took = float(np.mean(known))
                words = f"{labels.short(group.algorithm)}: {labels.mean_std(mean, std)} in {labels.number(took)} s"
                x, y, low, high = (np.array([v]) for v in (took, mean, mean - std, mean + std))
                series.append(
                    Series(name=group.algorithm, x=x, y=y, low=low, high=high, line=False, markers=True, hints=(words,))
                )
        if series:
            panels.append(_plane(view, column, panel_title(column, view), "seconds a run", series))
    caption = "Mean over seeds; bars: one standard deviation of utility. First column of each mechanism and data set."
    return Chart(key="time", title="Utility against wall time", caption=caption, panels=tuple(panels[:MAX_PANELS]))
