"""The figures of a report as data: utility by round, against axes and against time."""

import math

import numpy as np

from dpflbench.report import labels
from dpflbench.report.chart import Chart, Plane, Series
from dpflbench.report.charts_clients import participation_chart, selection_chart, who_pays_charts
from dpflbench.report.charts_winners import rank_chart, winner_chart
from dpflbench.report.panels import MAX_PANELS, by_other_axes, needs_log, panel_title, representatives, shown_settings
from dpflbench.report.view import Group, View

MAX_POINTS = 80  # of a line; more cannot be seen


def _curve(group: Group) -> Series | None:
    curves = [r.rounds for r in group.records if len(r.rounds.get("round", ())) > 0]
    if not curves:
        return None
    rounds = curves[0]["round"]
    same = [c["utility_global"] for c in curves if np.array_equal(c["round"], rounds)]
    keep = np.unique(np.linspace(0, len(rounds) - 1, min(MAX_POINTS, len(rounds))).round().astype(int))
    y = np.array(same, dtype=np.float64)[:, keep]
    spread = y.std(axis=0, ddof=1) if len(y) > 1 else np.zeros(y.shape[1])
    mean = y.mean(axis=0)
    return Series(group.algorithm, np.asarray(rounds, np.float64)[keep], mean, mean - spread, mean + spread)


def rounds_chart(view: View) -> Chart | None:
    """Test utility of the shared model by round, one panel for each setting."""
    settings, rest = shown_settings(view)
    panels = []
    for setting in settings:
        series = tuple(s for g in view.in_setting(setting) if (s := _curve(g)) is not None)
        if series:
            metric = view.metrics[setting.key]
            log = needs_log(metric, np.concatenate([s.y for s in series]))
            panels.append(Plane(panel_title(setting, view), "round", labels.metric_label(metric), series, y_log=log))
    if not panels:
        return None
    caption = "Shared model on the test set; line: mean over seeds, band: one standard deviation."
    return Chart("rounds", "Utility by round", caption + rest, tuple(panels), view.algorithms)


def _final(group: Group | None) -> tuple[float, float]:
    if group is None or not group.values:
        return math.nan, math.nan
    return group.mean, 0.0 if math.isnan(group.std) else group.std


def sweep_charts(view: View) -> list[Chart]:
    """Final utility against each axis of numbers, the other axes as panels."""
    charts = []
    for axis in view.axes:
        values = [s.coordinates.get(axis) for s in view.settings]
        if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values) or len(set(values)) < 2:
            continue
        panels = []
        for title, settings in by_other_axes(view, [axis])[:MAX_PANELS]:
            order = sorted(settings, key=lambda s: float(s.coordinates[axis]))
            x = np.array([float(s.coordinates[axis]) for s in order])
            series = []
            for name in view.algorithms:
                points = np.array([_final(view.group(s, name)) for s in order])
                if np.any(np.isfinite(points[:, 0])):
                    y, spread = points[:, 0], points[:, 1]
                    hints = tuple(
                        f"{labels.axis(axis)} {a:g}: {labels.short(name)} {labels.mean_std(m, d)}"
                        for a, m, d in zip(x, y, spread, strict=True)
                    )
                    series.append(Series(name, x, y, y - spread, y + spread, markers=True, hints=hints))
            metric = view.metrics[order[0].key]
            if series:
                log = needs_log(metric, np.concatenate([s.y for s in series]))
                panels.append(
                    Plane(
                        title,
                        labels.axis(axis),
                        labels.metric_label(metric),
                        tuple(series),
                        y_log=log,
                        x_ticks=tuple(dict.fromkeys(float(v) for v in x)),
                    )
                )
        if panels:
            caption = "After the last round; mean over seeds, bars: one standard deviation."
            charts.append(
                Chart(f"by-{axis}", f"Utility against {labels.axis(axis)}", caption, tuple(panels), view.algorithms)
            )
    return charts


def time_chart(view: View) -> Chart | None:
    """Final utility against the wall time of a run."""
    panels = []
    for setting in representatives(view):
        series = []
        for group in view.in_setting(setting):
            seconds = [
                float(r.measured["seconds"])
                for r in group.records
                if isinstance(r.measured.get("seconds"), int | float)
            ]
            if seconds and group.values:
                mean, std = _final(group)
                took = labels.number(float(np.mean(seconds)))
                hint = f"{labels.short(group.algorithm)}: {labels.mean_std(mean, std)} in {took} s"
                series.append(
                    Series(
                        group.algorithm,
                        np.array([np.mean(seconds)]),
                        np.array([mean]),
                        np.array([mean - std]),
                        np.array([mean + std]),
                        line=False,
                        markers=True,
                        hints=(hint,),
                    )
                )
        if series:
            metric = view.metrics[setting.key]
            panels.append(
                Plane(
                    panel_title(setting, view),
                    "seconds a run",
                    labels.metric_label(metric),
                    tuple(series),
                    y_log=needs_log(metric, np.array([s.y[0] for s in series])),
                )
            )
    caption = "Mean over seeds; bars: one standard deviation of utility. First setting of each mechanism and data set."
    return (
        Chart("time", "Utility against wall time", caption, tuple(panels[:MAX_PANELS]), view.algorithms)
        if panels
        else None
    )


def all_charts(view: View) -> list[Chart]:
    """Every figure the results allow, in reading order."""
    found = [
        rounds_chart(view),
        *sweep_charts(view),
        winner_chart(view),
        rank_chart(view),
        *who_pays_charts(view),
        participation_chart(view),
        selection_chart(view),
        time_chart(view),
    ]
    return [chart for chart in found if chart is not None]
