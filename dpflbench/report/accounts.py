"""What runs cost: privacy spent against allowed, client by client, and time."""

import math

import numpy as np

from dpflbench.report import labels
from dpflbench.report.statistics import Floats
from dpflbench.report.table import Entry, Table, entry
from dpflbench.report.view import View
from dpflbench.results.record import Record


def spent_ratios(record: Record) -> Floats:
    """Epsilon spent over epsilon allowed, one number a client [N]; empty for a run without privacy."""
    spent, allowed = record.clients.get("epsilon_spent"), record.clients.get("epsilon")
    if not record.private or spent is None or allowed is None:
        return np.zeros(0)
    return np.asarray(spent, dtype=np.float64) / np.asarray(allowed, dtype=np.float64)


def _spread(values: Floats) -> list[Entry]:
    if values.size == 0:
        return [entry("–")] * 3
    return [entry(labels.number(float(f(values)), 3), float(f(values))) for f in (np.min, np.median, np.max)]


def epsilon_table(view: View) -> Table:
    """Epsilon spent over allowed: minimum, median and maximum over clients and seeds; above 1 never happens in a listed
    run.
    """
    rows = []
    for setting in view.settings:
        for group in view.in_setting(setting):
            if not group.records:
                continue
            name = (entry(labels.coordinates(setting.coordinates) or "all"), entry(group.algorithm))
            if not group.private:
                rows.append((*name, entry("∞ (not private)", math.inf), *[entry("–")] * 5))
                continue
            allowed = np.concatenate(
                [np.asarray(r.clients.get("epsilon", []), dtype=np.float64) for r in group.records]
            )
            ratios = np.concatenate([spent_ratios(r) for r in group.records])
            uses = np.concatenate([np.asarray(r.clients.get("uses", []), dtype=np.float64) for r in group.records])
            span = (
                f"{labels.number(float(allowed.min()))} to {labels.number(float(allowed.max()))}"
                if allowed.size
                else "–"
            )
            unused = float(np.mean(uses == 0)) * 100 if uses.size else math.nan
            full = float(np.mean(ratios > 0.99)) * 100 if ratios.size else math.nan
            rows.append(
                (
                    *name,
                    entry(span, float(allowed.max()) if allowed.size else None),
                    *_spread(ratios),
                    entry(f"{labels.number(full, 0)} %", full),
                    entry(f"{labels.number(unused, 0)} %", unused),
                )
            )
    header = ("setting", "algorithm", "ε allowed", "min", "median", "max", "clients above 99 %", "clients never used")
    return Table(
        "epsilon",
        "Privacy spent: epsilon spent / epsilon allowed",
        header,
        tuple(rows),
        labels=2,
        caption="Over all clients and seeds, as the ledger has it. A client that never takes part spends nothing; a "
        "run in which any client overspends is disqualified and not listed here.",
    )


def _measured(records: list[Record], key: str) -> tuple[float, float]:
    values = [float(r.measured[key]) for r in records if isinstance(r.measured.get(key), int | float)]
    mean = float(np.mean(values)) if values else math.nan
    return mean, float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def cost_table(view: View) -> Table:
    """Wall time of a run and samples per second, mean ± std over seeds."""
    rows = []
    for setting in view.settings:
        for group in view.in_setting(setting):
            if not group.records:
                continue
            seconds, speed = _measured(group.records, "seconds"), _measured(group.records, "samples_per_second")
            share = _measured(group.records, "gradient_seconds")[0] / seconds[0] * 100 if seconds[0] else math.nan
            devices = sorted({labels.clean(r.measured.get("device", "?"), 40) for r in group.records})
            rows.append(
                (
                    entry(labels.coordinates(setting.coordinates) or "all"),
                    entry(group.algorithm),
                    entry(labels.mean_std(*seconds), seconds[0]),
                    entry("–" if math.isnan(speed[0]) else f"{speed[0]:,.0f}".replace(",", " "), speed[0]),
                    entry("–" if math.isnan(share) else f"{share:.0f} %", share),
                    entry(", ".join(devices)),
                )
            )
    header = ("setting", "algorithm", "seconds a run ↓", "samples per second ↑", "in gradients", "device")
    return Table(
        "cost",
        "Time",
        header,
        tuple(rows),
        labels=2,
        caption="Wall time as measured; machines and loads differ, so compare within one machine only.",
    )
