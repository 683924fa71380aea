"""What runs cost: privacy spent against allowed, client by client, and time."""

import math
from collections.abc import Sequence

import numpy as np

from dpflbench.report import labels
from dpflbench.report.statistics import Floats
from dpflbench.report.tables.differences import place
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
    """Epsilon spent over allowed, by each run's own ledger: minimum, median and maximum over clients and seeds; above 1
    never happens in a listed run.
    """
    rows = []
    for group in view.filled:
        name = place(view, group)
        if not group.private:
            rows.append((*name, Item("∞", math.inf), *[NONE] * 5))
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
        caption="Over all clients and seeds, as a run's own ledger has it. A client that never takes part spends "
        "nothing; in a sum the most demanding member of a cohort sets the noise, and the others keep what they cannot "
        "spend. A run in whose ledger any client overspends is disqualified and not listed here."
        + " In brackets: what is wrong with the records; the figures of such a row are claims."
        * bool(view.marks),
    )


def middle(values: Sequence[float]) -> float:
    """The median of what is known; NaN if nothing is."""
    known = [v for v in values if math.isfinite(v)]
    return float(np.median(known)) if known else math.nan


def _measured(record: Record, key: str) -> float:
    value = record.measured.get(key)
    return float(value) if isinstance(value, int | float) else math.nan


def run_seconds(record: Record) -> float:
    """What all rounds of a run take: its rounds after the first, which pays for imports and first calls, times their
    number; NaN if that was not measured.
    """
    rounds = np.asarray(record.rounds.get("round", []), dtype=np.float64)
    return _measured(record, "round_seconds") * float(rounds[-1]) if rounds.size else math.nan


def cost_table(view: View) -> Table:
    """Time of a run without and with its set-up, and how fast clients compute: medians over seeds."""
    rows = []
    for group in view.filled:
        records = group.records
        seconds, whole = [run_seconds(r) for r in records], middle([_measured(r, "seconds") for r in records])
        known = [s for s in seconds if math.isfinite(s)]
        spread = f" ({labels.number(min(known))} to {labels.number(max(known))})" if len(known) > 1 else ""
        speed = middle([_measured(r, "samples_per_second") for r in records])
        share = middle([_measured(r, "round_gradient_seconds") / _measured(r, "round_seconds") for r in records]) * 100
        devices = sorted({labels.clean(r.measured.get("device", "?"), 40) for r in records})
        rows.append(
            (
                Item(group.column.title),
                Item(group.algorithm),
                Item(f"{labels.number(middle(seconds))}{spread}", middle(seconds)),
                figure(whole),
                Item("–" if math.isnan(speed) else f"{speed:,.0f}".replace(",", " "), speed),
                Item("–" if math.isnan(share) else f"{share:.0f} %", share),
                Item(", ".join(devices)),
            )
        )
    return Table(
        key="cost",
        title="Time",
        header=(
            "column",
            "algorithm",
            "seconds, all rounds ↓",
            "with set-up",
            "samples per second ↑",
            "in gradients",
            "device",
        ),
        rows=tuple(rows),
        labels=2,
        caption="Median (least to most) over seeds, wall time. All rounds: without set-up, and with the first round, "
        "which pays for imports and first calls, taken to be as long as the others; samples per second and the share "
        "of gradients leave it out. Machines and loads differ, so compare within one machine only.",
    )
