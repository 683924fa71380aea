"""Charts of why: what an algorithm makes of budgets and of data, and where its gap comes from."""

import math
from dataclasses import replace

import numpy as np

from dpflbench.report import labels
from dpflbench.report.charts.chart import Bar, Chart, Lanes, Mark, Plane, Series
from dpflbench.report.charts.choice import name_of, panel_title, shown_columns
from dpflbench.report.statistics import paired
from dpflbench.report.tables.gap_parts import PARTS, Split, splits
from dpflbench.report.tables.why import explained, mean_of, plain_mean_share, stands_in
from dpflbench.report.view import Column, Group, View

SHADES = (1.0, 0.55, 0.2)  # of the parts of a gap
NEAR = 0.02  # points of logarithmic efficiency and of coverage: signs this close stand below one another
SMALL, LARGE = 2.6, 7.0  # signs of the least and of the most useful algorithm


def why_chart(view: View) -> Chart:
    """Noise efficiency against data coverage, one panel for each column, larger signs for better utility."""
    columns, rest = shown_columns(view)
    found, panels = explained(view), []
    for column in columns:
        here = [g for g in found if g.column is column and math.isfinite(mean_of(g.records, "noise_efficiency"))]
        if here:
            panels.append(_plane(view, column, here))
    return Chart(
        key="why",
        title="Noise efficiency against data coverage",
        caption="Means over seeds; the larger a sign, the better its utility in that panel; of signs of one place the "
        "largest stands there and the others below it. Line: the information "
        "limit, which no selector and linear weighting exceeds; dashed, where it is another: that of a plain mean."
        + _stand_ins(found)
        + rest,
        panels=tuple(panels),
    )


def _stand_ins(groups: list[Group]) -> str:
    """A sentence about algorithms whose weights nobody knows; empty if there is none."""
    names = list(dict.fromkeys(labels.short(g.algorithm) for g in groups if stands_in(g)))
    if not names:
        return ""
    return f" {labels.listing(names)}: weights are not known, so what is shown is the noise and data of a plain mean."


def _plane(view: View, column: Column, groups: list[Group]) -> Plane:
    up = view.metrics[column.key].higher_is_better
    means = np.array([g.mean if up else -g.mean for g in groups])
    low, wide = float(means.min()), float(means.max() - means.min()) or 1.0
    series = []
    for group, mean in zip(groups, means, strict=True):
        x, y = (mean_of(group.records, key) for key in ("noise_efficiency", "data_coverage"))
        hint = (
            f"{labels.short(group.algorithm)}: efficiency {labels.number(x, 3)}, coverage {labels.number(y)}, "
            f"utility {labels.mean_std(group.mean, group.std, view.digits(column))}"
        )
        size = SMALL + (LARGE - SMALL) * (float(mean) - low) / wide
        series.append(
            Series(
                name=group.algorithm,
                x=np.array([x]),
                y=np.array([y]),
                line=False,
                markers=True,
                hints=(hint,),
                size=size,
            )
        )
    share = plain_mean_share([r for g in groups for r in g.records])
    lines = ((1.0, False), (share, True)) if share < 0.999 else ((1.0, False),)
    return Plane(
        title=panel_title(column, view),
        x_label="noise efficiency",
        y_label="data coverage",
        series=tuple(_stacked(sorted(series, key=lambda s: -s.size))),  # small signs lie on top
        x_log=True,
        limits=lines,
    )


def _stacked(series: list[Series]) -> list[Series]:
    """Signs that would cover one another, the largest at its place and the others hanging from it: no efficiency is
    moved, least of all across the limit, and nothing leaves its panel at the top.
    """

    def near(one: Series, other: Series) -> bool:
        far = max(one.x[0], other.x[0]) > math.exp(NEAR) * min(one.x[0], other.x[0])
        return not far and abs(one.y[0] - other.y[0]) < NEAR

    out: list[Series] = []
    for here in series:
        pile = [s for s in series if near(s, here)]
        above = 2 * sum(s.size for s in pile[: pile.index(here)])
        out.append(replace(here, below=above + here.size - pile[0].size))
    return out


def gap_charts(view: View) -> list[Chart]:
    """What selection and weighting, clipping and noise cost each algorithm, stacked; one panel for each column, one
    chart for each mechanism: what Laplace noise costs would hide all else.
    """
    kinds = {c.key: name_of(view.lookup(c, "privacy.mechanism")) for c in view.columns}
    found, names = splits(view), list(dict.fromkeys(kinds.values()))
    return [
        _gap_chart(view, [s for s in found if kinds[s.group.column.key] == name], name if len(names) > 1 else "")
        for name in names
    ]


def _gap_chart(view: View, found: list[Split], mechanism: str) -> Chart:
    columns, rest = shown_columns(view)
    panels = []
    names = tuple(a for a in view.algorithms if any(s.group.algorithm == a for s in found))
    for column in columns:
        here = [s for s in found if s.group.column is column]
        if here:
            panels.append(_lanes(view, column, here, names))
    return Chart(
        key="gap-parts" + f"-{mechanism}" * bool(mechanism),
        title="Where the gap comes from" + f": {mechanism}" * bool(mechanism),
        caption="What each part costs against the algorithm without privacy, mean over seeds; what gains lies left of "
        "zero. Diamond: the whole gap, with its 95 % confidence interval." + rest,
        panels=tuple(panels),
        shades=tuple(zip(SHADES, PARTS, strict=True)),
    )


def _lanes(view: View, column: Column, here: list[Split], names: tuple[str, ...]) -> Lanes:
    bars, marks, digits = [], [], view.digits(column)
    for split in here:
        lane, ends = names.index(split.group.algorithm), {True: 0.0, False: 0.0}
        for part, shade, values in zip(PARTS, SHADES, split.parts, strict=True):
            mean = float(values.mean())
            start = ends[mean > 0]
            ends[mean > 0] = end = start + mean
            hint = f"{labels.short(split.group.algorithm)}, {part}: {labels.number(mean, digits)}"
            bars.append(Bar(lane=lane, low=min(start, end), high=max(start, end), shade=shade, hint=hint))
        p = paired(split.gap)
        low, high = (None, None) if math.isnan(p.low) else (p.low, p.high)
        hint = f"{labels.short(split.group.algorithm)}, gap: {labels.number(p.mean, digits)}"
        marks.append(Mark(lane=lane, x=p.mean, marker="diamond", hint=hint, low=low, high=high))
    metric = view.metrics[column.key]
    x_label = f"{labels.metric_label(metric).removesuffix(labels.arrow(metric)).strip()} lost"
    return Lanes(
        title=panel_title(column, view), x_label=x_label, names=names, marks=tuple(marks), bars=tuple(bars), zero=True
    )
