"""The price of trust: utility against epsilon, a line for each way to trust and one without privacy.

Drawn for every algorithm where `privacy.trust` and one axis of epsilon vary; series go by how trust is called.
"""

import math
from collections.abc import Sequence

import numpy as np

from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart, Plane, Series
from dpflbench.report.charts.choice import MAX_PANELS, by_other_axes, needs_log
from dpflbench.report.charts.looks import NOT_PRIVATE, Look, nth
from dpflbench.report.view import Column, Group, View

TRUST, EPSILON = "privacy.trust", "privacy.epsilon"
FREE = "not private"


def trust_names(view: View) -> dict[str, Look]:
    """How the ways to trust are called and look; none where there is one way alone."""
    found = list(dict.fromkeys(labels.axis_value(c.coordinates[TRUST]) for c in view.columns if TRUST in c.coordinates))
    return {**{name: nth(i) for i, name in enumerate(found)}, FREE: NOT_PRIVATE} if len(found) > 1 else {}


def trust_chart(view: View) -> Chart | None:
    """One panel for each private algorithm and each value of the other axes; None where nothing can be compared."""
    axes = [axis for axis in view.axes if axis.startswith(EPSILON)]
    if len(axes) != 1 or not trust_names(view):
        return None
    epsilon, panels = axes[0], list[Plane]()
    free = [name for name in view.algorithms if any(g.algorithm == name and not g.private for g in view.filled)]
    private = [name for name in view.algorithms if any(g.algorithm == name and g.private for g in view.filled)]
    for title, columns in by_other_axes(view, [TRUST, epsilon]):
        bare = _line(view, epsilon, FREE, columns[:1] * 2, free[0]) if free else None
        for name in private:
            lines = [
                line
                for trust in trust_names(view)
                if (line := _line(view, epsilon, trust, _trusting(columns, trust), name)) is not None
            ]
            if len(lines) > 1:
                ends = np.array([min(s.x[0] for s in lines), max(s.x[-1] for s in lines)])
                level = [] if bare is None else [Series(name=FREE, x=ends, y=np.full(2, bare.y[0]))]
                panels.append(
                    _plane(
                        view, columns[0], " · ".join(filter(None, [labels.short(name), title])), epsilon, lines + level
                    )
                )
    caption = (
        "After the last round; mean over seeds, bars: one standard deviation. In a sum one noise protects a whole "
        "cohort, and its most demanding member sets it."
    )
    return Chart(key="trust", title="The price of trust", caption=caption, panels=tuple(panels[:MAX_PANELS]))


def _trusting(columns: Sequence[Column], trust: str) -> list[Column]:
    return [c for c in columns if labels.axis_value(c.coordinates.get(TRUST)) == trust]


def _line(view: View, epsilon: str, name: str, columns: Sequence[Column], algorithm: str) -> Series | None:
    """Utility of an algorithm over columns that differ in epsilon alone."""
    found = [(float(c.coordinates[epsilon]), g) for c in columns if _done(g := view.group(c, algorithm))]
    if len(found) < 2:
        return None
    found.sort(key=lambda point: point[0])
    groups: list[Group] = [g for _, g in found if g is not None]
    y = np.array([g.mean for g in groups])
    spread = np.array([0.0 if math.isnan(g.std) else g.std for g in groups])
    x = np.array([at for at, _ in found])
    hints = tuple(f"{name}, ε up to {at:g}: {labels.mean_std(m, s)}" for at, m, s in zip(x, y, spread, strict=True))
    return Series(name=name, x=x, y=y, low=y - spread, high=y + spread, markers=True, hints=hints)


def _done(group: Group | None) -> bool:
    return group is not None and bool(group.values) and math.isfinite(group.mean)


def _plane(view: View, column: Column, title: str, epsilon: str, series: list[Series]) -> Plane:
    metric, x = view.metrics[column.key], np.concatenate([s.x for s in series])
    return Plane(
        title=title,
        x_label=labels.axis(epsilon),
        y_label=labels.metric_label(metric),
        series=tuple(series),
        y_log=needs_log(metric, np.concatenate([s.y for s in series])),
        x_log=bool(x.min() > 0),
        x_ticks=tuple(map(float, np.unique(x))),
    )
