"""Figures about clients: who is chosen how often, what was estimated about them, who pays."""

import math

import numpy as np

from dpflbench.report import labels
from dpflbench.report.chart import Chart, Mark, Plane, Rows, Series
from dpflbench.report.panels import MAX_PANELS, needs_log, panel_title, representatives, shown_settings
from dpflbench.report.view import Setting, View
from dpflbench.report.whopays import TIERS, payments
from dpflbench.results.record import Record

TIER_SIGNS = ("down", "diamond", "up")


def _alike(view: View, setting: Setting) -> list[tuple[list[str], Record]]:
    """Private algorithms with the record of their first seed; those that use every client equally often stand
    together.
    """
    found: dict[bytes, tuple[list[str], Record]] = {}
    for group in view.in_setting(setting):
        record = next((r for r in group.records if "uses" in r.clients), None)
        if group.private and record is not None:
            found.setdefault(np.asarray(record.clients["uses"]).tobytes(), ([], record))[0].append(group.algorithm)
    return list(found.values())


def participation_chart(view: View) -> Chart | None:
    """Budget against participations, one point a client, one panel for each private algorithm."""
    panels = []
    for setting in representatives(view):
        for names, record in _alike(view, setting):
            x, y = (np.asarray(record.clients[k], dtype=np.float64) for k in ("epsilon", "uses"))
            hints = tuple(
                f"client {n}: ε {labels.number(a)}, {b:.0f} participations"
                for n, (a, b) in enumerate(zip(x, y, strict=True))
            )
            panels.append(
                Plane(
                    f"{labels.listing([labels.short(n) for n in names])}: {panel_title(setting, view)}",
                    "ε allowed",
                    "participations",
                    (Series(names[0], x, y, line=False, markers=True, hints=hints),),
                )
            )
    caption = (
        "One point a client, first seed, first setting of each mechanism and data set. Algorithms that choose "
        "alike share a "
        "panel."
    )
    return (
        Chart("participations", "Budget against participations", caption, tuple(panels[:MAX_PANELS]))
        if panels
        else None
    )


def selection_chart(view: View) -> Chart | None:
    """Estimated heterogeneity and chosen uses of each client, for algorithms that record an estimate."""
    panels = []
    for setting in representatives(view):
        for group in view.in_setting(setting):
            for record in group.records[:1]:
                estimates = [n["heterogeneity"] for n in record.notes if isinstance(n.get("heterogeneity"), np.ndarray)]
                if not estimates or "uses" not in record.clients:
                    continue
                title = f"{labels.short(group.algorithm)}: {panel_title(setting, view)}"
                for label, values in (("estimated Γ", estimates[-1]), ("participations", record.clients["uses"])):
                    y = np.asarray(values, dtype=np.float64)
                    hints = tuple(f"client {n}: {labels.number(v)}" for n, v in enumerate(y))
                    points = Series(
                        group.algorithm, np.arange(y.size, dtype=np.float64), y, line=False, markers=True, hints=hints
                    )
                    panels.append(Plane(title, "client", label, (points,)))
    caption = (
        "One point a client, first seed, first setting of each mechanism and data set; estimated from noisy losses."
    )
    return (
        Chart(
            "selection",
            "Estimated heterogeneity and chosen participations",
            caption,
            tuple(panels[:MAX_PANELS]),
            same_y=False,
        )
        if panels
        else None
    )


def who_pays_charts(view: View) -> list[Chart]:
    """Utility of the thirds of clients, and the share of participations each third gets."""
    found = payments(view)
    wanted, rest = shown_settings(view)
    utility, shares, first = [], [], representatives(view)
    for setting in wanted:
        here = [p for p in found if p.setting.key == setting.key]
        if not here:
            continue
        names = tuple(p.algorithm for p in here)
        metric = view.metrics[setting.key]
        marks = [
            Mark(
                row,
                p.utility[t],
                TIER_SIGNS[t],
                f"{labels.short(p.algorithm)}, {TIERS[t]}: {labels.number(p.utility[t])}",
            )
            for row, p in enumerate(here)
            for t in range(3)
            if math.isfinite(p.utility[t])
        ]
        log = needs_log(metric, np.array([m.x for m in marks]))
        utility.append(
            Rows(panel_title(setting, view), labels.metric_label(metric), names, tuple(marks), joined=True, x_log=log)
        )
        if setting not in first:
            continue
        parts = [
            Mark(
                row,
                p.share[t],
                TIER_SIGNS[t],
                f"{labels.short(p.algorithm)}, {TIERS[t]}: {labels.number(p.share[t], 1)} %",
            )
            for row, p in enumerate(here)
            for t in range(3)
            if math.isfinite(p.share[t])
        ]
        shares.append(Rows(panel_title(setting, view), "share of participations (%)", names, tuple(parts), joined=True))
    signs = tuple(zip(TIER_SIGNS, TIERS, strict=True))
    charts = []
    if utility:
        caption = "Held-out examples of each third of the clients, by epsilon; mean over seeds."
        charts.append(
            Chart("who-pays", "Who pays: utility by strictness of budget", caption + rest, tuple(utility), signs=signs)
        )
        caption = (
            "Each third of the clients, by epsilon; an even share is 33 %. Mean over seeds; first setting of "
            "each mechanism "
            "and data set."
        )
        charts.append(
            Chart(
                "who-takes-part",
                "Who takes part: share of participations by strictness of budget",
                caption,
                tuple(shares),
                signs=signs,
            )
        )
    return charts
