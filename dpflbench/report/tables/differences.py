"""Tables that back the utility tables: paired differences to the baseline, best against final round."""

import math

import numpy as np

from dpflbench.report import labels
from dpflbench.report.comparison import seed_warnings, to_baseline
from dpflbench.report.statistics import LEVEL
from dpflbench.report.tables.table import Item, Table, change, figure
from dpflbench.report.view import AT_CHANCE, Group, View


def titled(title: str, view: View) -> str:
    """A title with the metric and its arrow, where all columns share one."""
    return f"{title}: {labels.metric_label(view.common_metric)}" if view.common_metric else title


def place(view: View, group: Group) -> tuple[Item, Item]:
    """The names of a row: column and algorithm, grey where nobody is compared, with what is wrong with its records."""
    left, mark = view.left_out.get(group.column.key), view.mark(group)
    grey = left == AT_CHANCE
    words = "(not private)" if not group.private else f"({mark})" if mark else ""
    column = Item(group.column.title, mark=f"({left})" if grey else "", grey=grey)
    return column, Item(group.algorithm, mark=words, grey=grey)


def difference_table(view: View) -> Table | None:
    """Paired difference of each private algorithm to the baseline of its column; None without a baseline."""
    rows = []
    for column in view.columns:
        up, digits = view.metrics[column.key].higher_is_better, view.digits(column)
        for d in to_baseline(view, column):
            p = d.paired
            gained = p.mean > 0 if up else p.mean < 0
            better = p.above if up else p.below
            hint = "better" if gained else "not better"
            group = view.groups[column.key, d.algorithm]
            sure = gained and d.significant and view.left_out.get(column.key) != AT_CHANCE and not view.mark(group)
            rows.append(
                (
                    *place(view, group),
                    Item(d.reference),
                    Item(labels.signed(p.mean, digits), p.mean, bold=sure, hint=hint),
                    Item(labels.span(p.low, p.high, digits), p.low),
                    Item(labels.p_value(p.p), p.p),
                    Item(labels.p_value(d.p_holm), d.p_holm),
                    change(p.effect, 2),
                    Item(f"{better}/{p.n}", better / p.n),
                )
            )
    if not rows:
        return None
    common = view.common_metric
    unit = "points" if common and common.unit == "%" else "in the metric's unit"
    way = f"; {'positive' if common.higher_is_better else 'negative'} is better" if common else ""
    figures = ("difference", "95 % interval", "p", "p (Holm)", "effect size d_z", "seeds better")
    return Table(
        key="differences",
        title=titled("Difference to the baseline", view),
        header=("column", "algorithm", "baseline", *figures),
        rows=tuple(rows),
        notes=tuple(seed_warnings(view)),
        labels=3,
        caption=f"Algorithm minus baseline on the same seeds, {unit}{way}. Bold: better and significant at {LEVEL} "
        "after Holm's correction over the comparisons of its column. p: exact two-sided paired permutation test (above "
        "16 seeds Wilcoxon's). d_z: mean difference over its standard deviation.",
    )


def best_round_table(view: View) -> Table | None:
    """Best over rounds beside the final round: flagged, for it is picked by looking at the test set. None if not
    recorded.
    """
    rows = []
    for group in view.filled:
        found = [r.final for r in group.records if {"utility_global", "best_utility_global"} <= r.final.keys()]
        if found:
            final, peak, when = (
                float(np.mean([float(f.get(key, math.nan)) for f in found]))
                for key in ("utility_global", "best_utility_global", "best_round")
            )
            digits = view.digits(group.column)
            flagged = Item(labels.number(peak, digits), peak, mark="†")
            shown = (figure(final, digits), flagged, change(peak - final, digits), figure(when, 0))
            rows.append((*place(view, group), *shown))
    if not rows:
        return None
    return Table(
        key="best-round",
        title=titled("Final round and best round", view),
        header=("column", "algorithm", "final round", "best over rounds †", "difference", "mean best round"),
        rows=tuple(rows),
        labels=2,
        caption="utility_global. † picked by looking at the test set after the fact: nobody can stop there in earnest, "
        "so it never ranks an algorithm.",
    )
