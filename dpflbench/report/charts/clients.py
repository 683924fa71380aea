"""Charts about clients: who is chosen how often, what was estimated about them, who pays."""

import math
from collections.abc import Mapping

import numpy as np

from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart, Lanes, Mark, Plane, Series
from dpflbench.report.charts.choice import MAX_PANELS, panel_title, representatives, shown_columns, titled, with_results
from dpflbench.report.statistics import Floats, paired
from dpflbench.report.tables.who_pays import TIERS, Payment, payments, tiers
from dpflbench.report.view import Column, View
from dpflbench.results.record import Record

TIER_SIGNS = ("down", "diamond", "up")
SIGNS = tuple(zip(TIER_SIGNS, (f"{tier} of budgets" for tier in TIERS), strict=True))
WHICH = "first seed, first column of each mechanism and data set"
BETWEEN = "loosest third minus strictest"
EVEN = 1.0  # shares of participations closer than these per cent are even


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
            hints = tuple(f"client {n}: ε {labels.number(a)}, {b:.0f} participations" for n, (a, b) in pairs)
            series = Series(name=names[0], x=x, y=y, line=False, markers=True, hints=hints)
            panels.append(
                Plane(
                    title=titled(names, column, view), x_label="ε allowed", y_label="participations", series=(series,)
                )
            )
    return Chart(
        key="participations",
        title="Budget against participations",
        caption=f"One point a client, {WHICH}. Algorithms that choose alike share a panel.",
        panels=tuple(panels[:MAX_PANELS]),
        legend=False,
    )


def selection_chart(view: View) -> Chart:
    """Estimated heterogeneity of each client against its participations, for algorithms that record an estimate; where
    all estimates are 0 there is nothing to be seen but budgets.
    """
    panels, nothing = [], []

    def told(column: Column) -> float:
        return float(sum(np.count_nonzero(gamma) for _, _, gamma in _estimated(view, column)))

    for column in representatives(view, told):
        for name, record, gamma in _estimated(view, column):
            title = titled([name], column, view)
            if not gamma.any():
                nothing.append(title)
                continue
            series = _thirds_of_clients(name, record, gamma)
            panels.append(
                Plane(title=title, x_label="estimated Γ (largest = 1)", y_label="participations", series=series)
            )
    rest = f" Every estimate is 0, so that budgets alone decide: {'; '.join(nothing)}." if nothing else ""
    return Chart(
        key="selection",
        title="Estimated heterogeneity against participations",
        caption="One point a client, first seed; of each mechanism and data set, where most estimates are above 0. "
        "Γ is estimated from noisy losses. Signs: the thirds of clients by budget, for a client is chosen by both."
        + rest,
        panels=tuple(panels[:MAX_PANELS]),
        legend=False,
        signs=SIGNS,
    )


def _estimated(view: View, column: Column) -> list[tuple[str, Record, Floats]]:
    """Algorithms of a column with the record of their first seed and what they estimated last of every client."""
    found = []
    for group in view.in_column(column):
        for record in group.records[:1]:
            estimates = [n["heterogeneity"] for n in record.notes if isinstance(n.get("heterogeneity"), np.ndarray)]
            if estimates and {"uses", "epsilon"} <= record.clients.keys():
                found.append((group.algorithm, record, np.asarray(estimates[-1], dtype=np.float64)))
    return found


def _thirds_of_clients(name: str, record: Record, gamma: Floats) -> tuple[Series, ...]:
    uses, epsilon = (np.asarray(record.clients[k], dtype=np.float64) for k in ("uses", "epsilon"))
    largest = float(gamma.max(initial=0.0)) or 1.0
    delta = np.asarray(record.clients.get("delta", np.zeros(uses.size)), dtype=np.float64)
    out = []
    for part, marker in zip(tiers(epsilon, delta), TIER_SIGNS, strict=True):
        hints = tuple(
            f"client {n}: Γ {labels.number(gamma[n])}, ε {labels.number(epsilon[n])}, {uses[n]:.0f} participations"
            for n in part
        )
        out.append(
            Series(
                name=name, x=gamma[part] / largest, y=uses[part], line=False, markers=True, marker=marker, hints=hints
            )
        )
    return tuple(out)


def who_pays_charts(view: View) -> list[Chart]:
    """What strict budgets cost their clients, and the share of participations each third gets."""
    found, first = payments(view), representatives(view)
    columns, rest = shown_columns(view)
    gaps, shares, even = [], [], dict[str, None]()
    for column in columns:
        here = [p for p in found if p.group.column is column]
        if here:
            title = panel_title(column, view)
            gaps.append(_differences(title, view, column, here))
            biased = {p.group.algorithm: p.share for p in here if max(p.share) - min(p.share) > EVEN}
            even |= {p.group.algorithm: None for p in here if p.group.algorithm not in biased}
            if column in first and biased:
                shares.append(_thirds(title, "share of participations (%)", biased))
    alike = f" {labels.listing([labels.short(n) for n in even])} share evenly." if even else ""
    return [
        Chart(
            key="who-pays",
            title="Who pays: utility of the loosest third of budgets minus that of the strictest",
            caption="Each third of the clients on its own held-out examples; mean over seeds, bars: 95 % confidence "
            "interval." + rest,
            panels=tuple(gaps),
        ),
        Chart(
            key="who-takes-part",
            title="Who takes part: share of participations by strictness of budget",
            caption="Each third of the clients, by epsilon; an even share is 33 %. Mean over seeds; first column of "
            "each mechanism and data set." + alike,
            panels=tuple(shares),
            signs=SIGNS,
        ),
    ]


def _differences(title: str, view: View, column: Column, here: list[Payment]) -> Lanes:
    """A lane for each algorithm with what the loosest third has more than the strictest."""
    marks, names, metric, digits = [], with_results(view), view.metrics[column.key], view.digits(column)
    for payment in here:
        lane = names.index(payment.group.algorithm)
        p = paired(payment.gaps)
        if math.isfinite(p.mean):
            low, high = (None, None) if math.isnan(p.low) else (p.low, p.high)
            interval = "" if low is None else f" ({labels.span(p.low, p.high, digits)})"
            hint = f"{labels.short(payment.group.algorithm)}, {BETWEEN}: {labels.signed(p.mean, digits)}{interval}"
            marks.append(Mark(lane=lane, x=p.mean, marker="diamond", hint=hint, low=low, high=high))
    x_label = f"Δ {labels.metric_label(metric).removesuffix(labels.arrow(metric)).strip()}"
    return Lanes(title=title, x_label=x_label, names=names, marks=tuple(marks), zero=True)


def _thirds(title: str, x_label: str, values: Mapping[str, tuple[float, float, float]]) -> Lanes:
    """A lane for each algorithm with a sign for each third of the clients."""
    marks = tuple(
        Mark(lane=lane, x=x, marker=sign, hint=f"{labels.short(name)}, {tier}: {labels.number(x, 2)} %")
        for lane, (name, three) in enumerate(values.items())
        for x, sign, tier in zip(three, TIER_SIGNS, TIERS, strict=True)
        if math.isfinite(x)
    )
    return Lanes(title=title, x_label=x_label, names=tuple(values), marks=marks, joined=True)
