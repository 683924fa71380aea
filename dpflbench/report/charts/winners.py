"""Charts about winning: the winner map over privacy and data skew, and mean ranks with their critical difference."""

from collections.abc import Sequence

import numpy as np

from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart, Grid, Ranks, Square
from dpflbench.report.charts.choice import MAX_PANELS, by_other_axes
from dpflbench.report.comparison import rank_matrix, ranked, to_best
from dpflbench.report.statistics import LEVEL, critical_difference, friedman_p, mean_ranks
from dpflbench.report.tables.table import Table
from dpflbench.report.view import AT_CHANCE, Column, View, coordinate_key


def skew_axes(view: View) -> tuple[str, str] | None:
    """The axes of privacy skew and data skew, if the suite has both."""
    privacy = next((a for a in view.axes if a.startswith("privacy.epsilon")), None)
    data = next((a for a in view.axes if a.startswith("task.partition")), None)
    return (privacy, data) if privacy and data else None


def _square(view: View, at: Column, row: int, column: int) -> Square:
    order, where = ranked(view, at), at.title
    if not order:
        why = view.left_out.get(at.key, "no private algorithm has a full result")
        return Square(row, column, "", ("at chance" if why == AT_CHANCE else "no result",), f"{where}: {why}")
    first, digits = order[0], view.digits(at)
    text = (labels.clean(first.algorithm, 24), labels.number(first.mean, digits))
    if len(order) == 1:
        return Square(row, column, first.algorithm, text, f"{where}: {labels.short(first.algorithm)} alone")
    against = {d.algorithm: d for d in to_best(view, at)}[order[1].algorithm]
    one, two = (f"{labels.short(g.algorithm)} {labels.mean_std(g.mean, g.std, digits)}" for g in order[:2])
    sure = f"{labels.p_equals(against.paired.p)}, Holm-corrected {labels.p_value(against.p_holm)}"
    ahead = labels.number(abs(first.mean - order[1].mean), digits)
    lead = f"lead {ahead}{'' if against.significant else ' (n.s.)'}"
    return Square(row, column, first.algorithm, (*text, lead), f"{where}: {one}, next {two}; {sure}")


def winner_chart(view: View) -> Chart | None:
    """Who is best where privacy is skewed this much and data that much."""
    axes = skew_axes(view)
    if axes is None:
        return None

    def key(column: Column, axis: str) -> str:
        return coordinate_key({"": column.coordinates[axis]})

    def distinct(axis: str) -> dict[str, str]:
        found = {key(c, axis): c.coordinates[axis] for c in view.columns}
        size = {k: float(v) if isinstance(v, int | float) else 0.0 for k, v in found.items()}
        return {k: labels.axis_value(found[k]) for k in sorted(found, key=lambda k: size[k])}

    across, down = (distinct(axis) for axis in axes)
    panels = []
    for title, columns in by_other_axes(view, axes):
        places = [(c, list(down).index(key(c, axes[1])), list(across).index(key(c, axes[0]))) for c in columns]
        metric = labels.metric_label(view.metrics[columns[0].key])
        panels.append(
            Grid(
                title=f"{title}: {metric}" if title else metric,
                x_label=labels.axis(axes[0]),
                y_label=labels.axis(axes[1]),
                columns=tuple(across.values()),
                rows=tuple(down.values()),
                squares=tuple(_square(view, *place) for place in places),
            )
        )
    return Chart(
        key="winners",
        title="Winner map: privacy skew × data skew",
        caption=f"Best private algorithm, its mean and its lead over the next; n.s.: not significant at {LEVEL} after "
        "Holm's correction.",
        panels=tuple(panels[:MAX_PANELS]),
        legend=False,
    )


def settings_needed(k: int) -> int:
    """Settings from which on k competitors can be told apart at all: fewer, and even one that is always first and one
    that is always last (mean ranks k - 1 apart) are closer than the critical difference.
    """
    n = 2
    while critical_difference(k, n) >= k - 1:
        n += 1
    return n


def cliques(ranks: Sequence[float], difference: float) -> tuple[tuple[int, int], ...]:
    """First and last place of every largest group of sorted mean ranks that lie within the critical difference."""
    ends = [max(j for j in range(i, len(ranks)) if ranks[j] - ranks[i] < difference) for i in range(len(ranks))]
    return tuple((i, j) for i, j in enumerate(ends) if j > i and (i == 0 or ends[i - 1] < j))


def rank_table(view: View) -> Table | None:
    """A sentence in place of the ranks where those cannot show anything; None if they can, or nothing is to be
    ranked.
    """
    names, values, _ = rank_matrix(view)
    k, settings = len(names), len(values)
    if k < 3 or settings < 2 or settings >= settings_needed(k):
        return None
    note = (
        f"Not drawn: over {settings} settings the mean ranks of {k} algorithms would have to differ by "
        f"{critical_difference(k, settings):.2f} and cannot differ by more than {k - 1}; {settings_needed(k)} settings "
        "are needed."
    )
    return Table(key="ranks", title="Critical differences", header=(), rows=(), notes=(note,))


def rank_chart(view: View) -> Chart | None:
    """Mean ranks over columns with Nemenyi's critical difference; None where that cannot show anything."""
    names, values, up = rank_matrix(view)
    if len(names) < 3 or len(values) < settings_needed(len(names)):
        return None
    ranks = mean_ranks(values, up)
    cd = critical_difference(len(names), len(values))
    order = np.argsort(ranks, kind="stable")
    private = {g.algorithm for g in view.groups.values() if g.private}
    followed = {part for name in names for part in (name, *name.split("/"))}
    missing = [labels.short(a) for a in view.algorithms if a in private and a not in followed]
    p = friedman_p(np.where(up[:, None], -values, values))
    caption = (
        f"Rank 1 is best; mean over {len(values)} settings, seeds averaged. Those that a bar joins are closer than "
        f"Nemenyi's critical difference ({cd:.2f} at {LEVEL}) and cannot be told apart (Demšar 2006). Friedman's test: "
        f"{labels.p_equals(p)}."
    )
    if missing:
        caption += f" Left out, for want of a full result somewhere: {labels.listing(missing)}."
    sorted_ranks = tuple(float(ranks[i]) for i in order)
    panel = Ranks(
        title="",
        x_label="mean rank",
        names=tuple(names[i] for i in order),
        ranks=sorted_ranks,
        cliques=cliques(sorted_ranks, cd),
        difference=cd,
    )
    title = "Critical differences: mean rank over settings"
    return Chart(key="ranks", title=title, caption=caption, panels=(panel,), legend=False)
