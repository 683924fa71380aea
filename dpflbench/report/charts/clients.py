"""Charts about clients: who is chosen how often, what was estimated about them, who pays."""

import math
from collections.abc import Mapping

import numpy as np

from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart, Lanes, Mark, Plane, Series
from dpflbench.report.charts.choice import MAX_PANELS, needs_log, panel_title, representatives, shown_columns
from dpflbench.report.statistics import Floats
from dpflbench.report.tables.who_pays import TIERS, payments
from dpflbench.report.view import Column, View
from dpflbench.results.record import Record

TIER_SIGNS = ("down", "diamond", "up")
WHICH = "first seed, first column of each mechanism and data set"


def _cloud(name: str, x: Floats, y: Floats, hints: list[str]) -> tuple[Series]:
    return (Series(name=name, x=x, y=y, line=False, markers=True, hints=tuple(hints)),)


def _alike(view: View, column: Column) -> list[tuple[list[str], Record]]:
    """Private algorithms with the record of their first seed; those that use every client equally often stand
    together.
    """
    found: dict[bytes, tuple[list[str], Record]] = {}
    for group in view.in_column(column):
        record = next((r for r in group.records if "uses" in r.clients), None)
        if group.private and record is not None:
            found.setdefault(np.asarray(record.clients["uses"]).tobytes(), ([], record))[0].append(group.algorithm)
    return list(found.values())


def participation_chart(view: View) -> Chart:
    """Budget against participations, one point a client, one panel for each private algorithm."""
    panels = []
    for column in representatives(view):
        for names, record in _alike(view, column):
            x, y = (np.asarray(record.clients[k], dtype=np.float64) for k in ("epsilon", "uses"))
            pairs = enumerate(zip(x, y, strict=True))
            hints = [f"client {n}: ε {labels.number(a)}, {b:.0f} participations" for n, (a, b) in pairs]
            title = f"{labels.listing([labels.short(n) for n in names])}: {panel_title(column, view)}"
            series = _cloud(names[0], x, y, hints)
            panels.append(Plane(title=title, x_label="ε allowed", y_label="participations", series=series))
    return Chart(
        key="participations",
        title="Budget against participations",
        caption=f"One point a client, {WHICH}. Algorithms that choose alike share a panel.",
        panels=tuple(panels[:MAX_PANELS]),
        legend=False,
    )


def selection_chart(view: View) -> Chart:
    """Estimated heterogeneity and chosen uses of each client, for algorithms that record an estimate."""
    panels = []
    for column in representatives(view):
        for group in view.in_column(column):
            for record in group.records[:1]:
                estimates = [n["heterogeneity"] for n in record.notes if isinstance(n.get("heterogeneity"), np.ndarray)]
                if not estimates or "uses" not in record.clients:
                    continue
                title = f"{labels.short(group.algorithm)}: {panel_title(column, view)}"
                for label, values in (("estimated Γ", estimates[-1]), ("participations", record.clients["uses"])):
                    y = np.asarray(values, dtype=np.float64)
                    hints = [f"client {n}: {labels.number(v)}" for n, v in enumerate(y)]
                    series = _cloud(group.algorithm, np.arange(y.size, dtype=np.float64), y, hints)
                    panels.append(Plane(title=title, x_label="client", y_label=label, series=series))
    return Chart(
        key="selection",
        title="Estimated heterogeneity and chosen participations",
        caption=f"One point a client, {WHICH}; estimated from noisy losses.",
        panels=tuple(panels[:MAX_PANELS]),
        legend=False,
        same_y=False,
    )


def who_pays_charts(view: View) -> list[Chart]:
    """Utility of the thirds of clients, and the share of participations each third gets."""
    found, first = payments(view), representatives(view)
    columns, rest = shown_columns(view)
    utility, shares = [], []
    for column in columns:
        here = [p for p in found if p.group.column is column]
        if here:
            metric, title = view.metrics[column.key], panel_title(column, view)
            log = needs_log(metric, np.array([p.utility for p in here]))
            utility.append(
                _thirds(title, labels.metric_label(metric), {p.group.algorithm: p.utility for p in here}, log)
            )
            if column in first:
                by_name = {p.group.algorithm: p.share for p in here}
                shares.append(_thirds(title, "share of participations (%)", by_name))
    signs = tuple(zip(TIER_SIGNS, TIERS, strict=True))
    return [
        Chart(
            key="who-pays",
            title="Who pays: utility by strictness of budget",
            caption="Held-out examples of each third of the clients, by epsilon; mean over seeds." + rest,
            panels=tuple(utility),
            signs=signs,
        ),
        Chart(
            key="who-takes-part",
            title="Who takes part: share of participations by strictness of budget",
            caption="Each third of the clients, by epsilon; an even share is 33 %. Mean over seeds; first column of "
            "each mechanism and data set.",
            panels=tuple(shares),
            signs=signs,
        ),
    ]


def _thirds(title: str, x_label: str, values: Mapping[str, tuple[float, float, float]], log: bool = False) -> Lanes:
    """A lane for each algorithm with a sign for each third of the clients."""
    marks = tuple(
        Mark(lane=lane, x=x, marker=sign, hint=f"{labels.short(name)}, {tier}: {labels.number(x)}")
        for lane, (name, three) in enumerate(values.items())
        for x, sign, tier in zip(three, TIER_SIGNS, TIERS, strict=True)
        if math.isfinite(x)
    )
    return Lanes(title=title, x_label=x_label, names=tuple(values), marks=marks, joined=True, x_log=log)
