"""What runs cost: privacy spent against allowed, client by client, and time."""

import math

import numpy as np

from dpflbench.report import labels
from dpflbench.report.statistics import Floats
from dpflbench.report.tables.table import Item, Table, figure
from dpflbench.report.view import View
from dpflbench.results.record import Record

NONE = Item("–")


def spent_ratios(record: Record) -> Floats:
    """Epsilon spent over epsilon allowed, one number a client [N]; empty for a run without privacy."""
    spent, allowed = record.clients.get("epsilon_spent"), record.clients.get("epsilon")
    if not record.private or spent is None or allowed is None:
        return np.zeros(0)
    return np.asarray(spent, dtype=np.float64) / np.asarray(allowed, dtype=np.float64)


def _pooled(records: list[Record], key: str) -> Floats:
    return np.concatenate([np.asarray(r.clients.get(key, []), dtype=np.float64) for r in records])


def epsilon_table(view: View) -> Table:
    """Epsilon spent over allowed: minimum, median and maximum over clients and seeds; above 1 never happens in a listed
    run.
    """
    rows = []
    for group in view.filled:
        name = (Item(group.column.title), Item(group.algorithm))
        if not group.private:
            rows.append((*name, Item("∞ (not private)", math.inf), *[NONE] * 5))
            continue
        allowed, uses = _pooled(group.records, "epsilon"), _pooled(group.records, "uses")
        ratios = np.concatenate([spent_ratios(r) for r in group.records])
        least, most = (float(f(allowed)) if allowed.size else math.nan for f in (np.min, np.max))
        span = f"{labels.number(least)} to {labels.number(most)}" if allowed.size else "–"
        spread = [figure(float(f(ratios)), 3) if ratios.size else NONE for f in (np.min, np.median, np.max)]
        unused = float(np.mean(uses == 0)) * 100 if uses.size else math.nan
        full = float(np.mean(ratios > 0.99)) * 100 if ratios.size else math.nan
        rows.append((*name, Item(span, most), *spread, figure(full, 0, " %"), figure(unused, 0, " %")))
    return Table(
        key="epsilon",
        title="Privacy spent: epsilon spent / epsilon allowed",
        header=("column", "algorithm", "ε allowed", "min", "median", "max", "clients above 99 %", "clients never used"),
        rows=tuple(rows),
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
    for group in view.filled:
        seconds, (speed, _) = _measured(group.records, "seconds"), _measured(group.records, "samples_per_second")
        share = _measured(group.records, "gradient_seconds")[0] / seconds[0] * 100 if seconds[0] else math.nan
        devices = sorted({labels.clean(r.measured.get("device", "?"), 40) for r in group.records})
        rows.append(
            (
                Item(group.column.title),
                Item(group.algorithm),
                Item(labels.mean_std(*seconds), seconds[0]),
                Item("–" if math.isnan(speed) else f"{speed:,.0f}".replace(",", " "), speed),
                Item("–" if math.isnan(share) else f"{share:.0f} %", share),
                Item(", ".join(devices)),
            )
        )
    return Table(
        key="cost",
        title="Time",
        header=("column", "algorithm", "seconds a run ↓", "samples per second ↑", "in gradients", "device"),
        rows=tuple(rows),
        labels=2,
        caption="Wall time as measured; machines and loads differ, so compare within one machine only.",
    )
