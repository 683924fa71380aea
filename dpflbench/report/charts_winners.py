"""Figures about winning: the winner map over privacy and data skew, and mean ranks with their critical difference."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dpflbench.report import labels
from dpflbench.report.chart import Chart, Grid, Mark, Rows, Square
from dpflbench.report.comparison import rank_matrix, ranked, to_best
from dpflbench.report.panels import MAX_PANELS, by_other_axes, panel_title
from dpflbench.report.statistics import LEVEL, critical_difference, friedman_p, mean_ranks
from dpflbench.report.view import Setting, View, coordinate_key


def skew_axes(view: View) -> tuple[str, str] | None:
    """The axes of privacy skew and data skew, if the suite has both."""
    privacy = next((a for a in view.axes if a.startswith("privacy.epsilon")), None)
    data = next((a for a in view.axes if a.startswith("task.partition")), None)
    return (privacy, data) if privacy and data else None


def _square(view: View, setting: Setting, row: int, column: int) -> Square:
    order = ranked(view, setting)
    if not order:
        return Square(
            row, column, "", ("no result",), f"{panel_title(setting, view)}: no private algorithm has a full result"
        )
    first = order[0]
    if len(order) == 1:
        return Square(
            row,
            column,
            first.algorithm,
            (labels.clean(first.algorithm, 24), labels.number(first.mean)),
            f"{panel_title(setting, view)}: {labels.short(first.algorithm)} alone",
        )
    against = {d.algorithm: d for d in to_best(view, setting)}[order[1].algorithm]
    lead = abs(first.mean - order[1].mean)
    hint = (
        f"{panel_title(setting, view)}: {labels.short(first.algorithm)} {labels.mean_std(first.mean, first.std)}, next "
        f"{labels.short(order[1].algorithm)} {labels.mean_std(order[1].mean, order[1].std)}; "
        f"p {labels.p_value(against.paired.p)}, Holm-corrected {labels.p_value(against.p_holm)}"
    )
    sign = "" if against.significant else " (n.s.)"
    return Square(
        row,
        column,
        first.algorithm,
        (labels.clean(first.algorithm, 24), labels.number(first.mean), f"lead {labels.number(lead)}{sign}"),
        hint,
    )


def winner_chart(view: View) -> Chart | None:
    """Who is best where privacy is skewed this much and data that much."""
    axes = skew_axes(view)
    if axes is None:
        return None
    across, down = axes

    def distinct(axis: str) -> dict[str, str]:
        found = {coordinate_key({"": s.coordinates[axis]}): s.coordinates[axis] for s in view.settings}
        number: Callable[[Any], float] = lambda v: float(v) if isinstance(v, int | float) else 0.0  # noqa: E731
        return {key: labels.axis_value(v) for key, v in sorted(found.items(), key=lambda item: number(item[1]))}

    columns, rows = distinct(across), distinct(down)
    panels = []
    for title, settings in by_other_axes(view, axes):
        squares = tuple(
            _square(
                view,
                s,
                list(rows).index(coordinate_key({"": s.coordinates[down]})),
                list(columns).index(coordinate_key({"": s.coordinates[across]})),
            )
            for s in settings
        )
        metric = labels.metric_label(view.metrics[settings[0].key])
        panels.append(
            Grid(
                f"{title}: {metric}" if title else metric,
                labels.axis(across),
                labels.axis(down),
                tuple(columns.values()),
                tuple(rows.values()),
                squares,
            )
        )
    caption = (
        f"Best private algorithm, its mean and its lead over the next; n.s.: not significant at {LEVEL} after Holm's "
        "correction."
    )
    return Chart(
        "winners", "Winner map: privacy skew × data skew", caption, tuple(panels[:MAX_PANELS]), view.algorithms
    )


def rank_chart(view: View) -> Chart | None:
    """Mean ranks over settings with Nemenyi's critical difference."""
    names, values, up = rank_matrix(view)
    if len(names) < 3 or len(values) < 2:
        return None
    ranks = mean_ranks(values, up)
    cd = critical_difference(len(names), len(values))
    order = np.argsort(ranks, kind="stable")
    marks = tuple(
        Mark(
            row,
            float(ranks[i]),
            "circle",
            f"{labels.short(names[i])}: mean rank {ranks[i]:.2f}",
            float(ranks[i]) - cd / 2,
            float(ranks[i]) + cd / 2,
        )
        for row, i in enumerate(order)
    )
    p = friedman_p(np.where(up[:, None], -values, values))
    missing = [
        a
        for a in view.algorithms
        if any(g.private for g in view.groups.values() if g.algorithm == a)
        and not any(a in name.split("/") for name in names)
    ]
    caption = (
        f"Rank 1 is best; {len(values)} settings. Bars are as wide as Nemenyi's critical difference ({cd:.2f}): "
        "algorithms "
        f"whose bars do not overlap differ at {LEVEL}. Friedman's test: p = {labels.p_value(p)}. Settings are the "
        "blocks, "
        "seeds are averaged."
    )
    if missing:
        caption += (
            f" Left out, for want of a full result somewhere: {labels.listing([labels.short(m) for m in missing])}."
        )
    panel = Rows("", "mean rank ↓", tuple(names[i] for i in order), marks)
    return Chart("ranks", "Critical differences: mean rank over settings", caption, (panel,))
