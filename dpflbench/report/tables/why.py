"""Why an algorithm did as it did: what it made of the budgets, and how much data stood behind its steps."""

import math
from collections.abc import Sequence

import numpy as np

from dpflbench.report import labels
from dpflbench.report.tables.differences import place
from dpflbench.report.tables.table import Item, Table, figure
from dpflbench.report.view import Group, View
from dpflbench.results.record import Record

STANDS_IN = "≈"  # the plain mean's noise in place of that of unknown weights
EFFICIENCY = "noise efficiency ↑"
COVERAGE = "data coverage ↑"


def known(record: Record, key: str) -> float:
    """A number of a record's facts, or of how they were had; NaN if it is not there."""
    how = record.facts.get("why")
    value = record.facts.get(key, how.get(key) if isinstance(how, dict) else None)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def mean_of(records: Sequence[Record], key: str) -> float:
    """The mean over runs in which it is known; NaN if it is in none."""
    found = [v for r in records if math.isfinite(v := known(r, key))]
    return float(np.mean(found)) if found else math.nan


def plain_mean_share(records: Sequence[Record]) -> float:
    """The noise efficiency no plain mean of the cohort exceeds: 1 but for Laplace noise; NaN if it is not known."""
    found = [share for r in records if math.isfinite(share := known(r, "limit") / known(r, "mean_limit"))]
    return float(np.mean(found)) if found else math.nan


def stands_in(group: Group) -> bool:
    """Whether weights were not known, so that the plain mean's noise is shown."""
    return any("mean" in str((r.facts.get("why") or {}).get("weights", "")) for r in group.records)


def explained(view: View) -> list[Group]:
    """Private groups with at least one of the two numbers."""
    keys = ("noise_efficiency", "data_coverage")
    return [g for g in view.filled if g.private and any(math.isfinite(mean_of(g.records, k)) for k in keys)]


def why_table(view: View) -> Table | None:
    """Noise efficiency and data coverage of every private algorithm beside its utility; None if no record has them."""
    rows, shares = [], dict[str, float]()
    noises = [math.sqrt(mean_of(g.records, "variance")) for g in explained(view)]
    digits = max(4, labels.decimals(noises))
    for group in explained(view):
        records = group.records
        share = plain_mean_share(records)
        if share < 0.999:
            shares[group.column.title] = share
        mark = STANDS_IN if stands_in(group) else ""
        efficiency = mean_of(records, "noise_efficiency")
        rows.append(
            (
                *place(view, group),
                Item(labels.share(efficiency), efficiency, mark=mark),
                Item(labels.share(mean_of(records, "data_coverage")), mean_of(records, "data_coverage"), mark=mark),
                figure(math.sqrt(mean_of(records, "variance")), digits),
                figure(math.sqrt(mean_of(records, "limit")), digits),
                Item(labels.mean_std(group.mean, group.std, view.digits(group.column)), group.mean),
            )
        )
    if not rows:
        return None
    notes = [f"{STANDS_IN} weights are not linear and not reported: the noise and the data of a plain mean are shown."]
    notes = notes if any(map(stands_in, explained(view))) else []
    for share in dict.fromkeys(round(s, 4) for s in shares.values()):
        where = "; ".join(title for title, s in shares.items() if round(s, 4) == share)
        notes.append(f"Under Laplace noise no plain mean exceeds {labels.share(share)} of the limit ({where}).")
    return Table(
        key="why",
        title="Why: noise efficiency and data coverage",
        header=("column", "algorithm", EFFICIENCY, COVERAGE, "noise in a step", "at the limit", "utility"),
        rows=tuple(rows),
        notes=tuple(notes),
        labels=2,
        caption="Noise efficiency: the least variance of noise that any selector and linear weighting could have "
        "injected at these budgets, over what was injected (1: none does better). Data coverage: effective share of "
        "training examples behind the steps. Noise in a step: root mean square of one coordinate, gradient units. "
        "Means over seeds; both follow from participations, weights and noise scales, not from training.",
    )
