"""Who pays: what each third of the clients, by strictness of budget, gets out of an algorithm and puts into it.

Selection that favours loose budgets may raise the average and still leave the data of strict clients behind: utility
and participations are shown for the strictest, middle and loosest third, and for the worst decile of clients.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpflbench.report import labels
from dpflbench.report.statistics import Floats
from dpflbench.report.tables.differences import place, titled
from dpflbench.report.tables.table import Item, Table, change, figure
from dpflbench.report.view import Column, Ending, Group, View
from dpflbench.results.record import Record

TIERS = ("strictest third", "middle third", "loosest third")
SHARED = {"utility_global": "utility_shared"}  # the shared model, unless the report is about personal ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """One algorithm in one column, means over seeds; NaN where not measured."""

    group: Group
    utility: tuple[float, float, float]  # strictest, middle, loosest third
    worst_decile: float
    share: tuple[float, float, float]  # of all participations, in %
    seeds: int
    spread: tuple[float, float, float]  # standard deviation of the thirds' utility over seeds; NaN below two
    gaps: tuple[float, ...]  # one a seed: utility of the loosest third minus that of the strictest


def tiers(epsilon: Floats, delta: Floats) -> list[NDArray[np.int64]]:
    """Clients of the strictest, middle and loosest third: by epsilon, then delta, then number."""
    order = np.lexsort((np.arange(epsilon.size), delta, epsilon))
    return [np.asarray(part, dtype=np.int64) for part in np.array_split(order, 3)]


def budgets(view: View, column: Column, ending: Ending) -> tuple[Floats, Floats] | None:
    """Budgets of a run's clients; for a run without privacy those of a private run of the same column and seed."""
    own = [ending.record] if ending.record is not None and ending.record.private else []
    others = [e.record for g in view.in_column(column) if g.private for e in g.endings if e.seed == ending.seed]
    for record in own + others:
        epsilon = record.clients.get("epsilon") if record is not None else None
        if record is not None and epsilon is not None and np.all(np.isfinite(epsilon)):
            delta = record.clients.get("delta", np.zeros(len(epsilon)))
            return np.asarray(epsilon, np.float64), np.asarray(delta, np.float64)
    return None


def client_utility(record: Record, value: str) -> Floats | None:
    """Utility on each client's own held-out examples [N], NaN for clients without any; None if not recorded."""
    found = record.clients.get(SHARED.get(value, "utility_personal"))
    return None if found is None else np.asarray(found, dtype=np.float64)


def _pooled(utility: Floats, weight: Floats) -> float:
    ok = np.isfinite(utility) & (weight > 0)
    return float(np.average(utility[ok], weights=weight[ok])) if np.any(ok) else math.nan


def worst_decile(utility: Floats, higher_is_better: bool) -> float:
    """Mean utility of the tenth of clients that are worst off, at least one client."""
    known = np.sort(utility[np.isfinite(utility)])
    if not higher_is_better:
        known = known[::-1]
    return float(known[: max(1, known.size // 10)].mean()) if known.size else math.nan


def _one(view: View, group: Group, ending: Ending) -> tuple[list[float], list[float], float] | None:
    """Utility of the thirds, their share of participations, and the worst decile of one run."""
    record, known = ending.record, budgets(view, group.column, ending)
    utility = client_utility(record, view.value) if record is not None else None
    if record is None or known is None or utility is None or len(known[0]) != utility.size:
        return None
    weight = np.asarray(record.clients.get("n_holdout", np.ones(utility.size)), dtype=np.float64)
    uses = np.asarray(record.clients.get("uses", np.full(utility.size, np.nan)), dtype=np.float64)
    parts = tiers(*known)
    share = [float(uses[part].sum() / uses.sum() * 100) if uses.sum() > 0 else math.nan for part in parts]
    worst = worst_decile(utility, record.metric.higher_is_better)
    return [_pooled(utility[part], weight[part]) for part in parts], share, worst


def _three(values: Floats) -> tuple[float, float, float]:
    return float(values[0]), float(values[1]), float(values[2])


def payment(view: View, group: Group) -> Payment | None:
    """Who pays for one algorithm in one column; None if its clients were not measured."""
    found = [one for e in group.endings if e.status == "done" and (one := _one(view, group, e)) is not None]
    if not found:
        return None
    utility, share = (np.array([one[i] for one in found]) for i in (0, 1))  # [seeds, 3]
    return Payment(
        group=group,
        utility=_three(utility.mean(axis=0)),
        spread=_three(utility.std(axis=0, ddof=1) if len(found) > 1 else np.full(3, math.nan)),
        share=_three(share.mean(axis=0)),
        worst_decile=float(np.mean([worst for _, _, worst in found])),
        seeds=len(found),
        gaps=tuple(map(float, utility[:, 2] - utility[:, 0])),
    )


def payments(view: View) -> list[Payment]:
    """Every group whose clients were measured."""
    return [found for group in view.filled if (found := payment(view, group)) is not None]


def who_pays_table(view: View) -> Table | None:
    """Utility of the thirds, the worst decile, and the share of participations; None if no client was measured."""
    rows = []
    for p in payments(view):
        digits = view.digits(p.group.column)
        over = [f"± {labels.number(s, digits)} over {p.seeds} seeds" if p.seeds > 1 else "" for s in p.spread]
        rows.append(
            (
                *place(view, p.group),
                *(Item(labels.number(u, digits), u, hint=hint) for u, hint in zip(p.utility, over, strict=True)),
                change(p.utility[2] - p.utility[0], digits),
                figure(p.worst_decile, digits),
                *(figure(x, 0, " %") for x in p.share),
            )
        )
    if not rows:
        return None
    which = "shared model" if view.value in SHARED else "own model"
    arrow = f" {labels.arrow(view.common_metric)}" if view.common_metric else ""
    utility = (f"strictest third{arrow}", f"middle{arrow}", f"loosest{arrow}", "loosest − strictest")
    share = ("share strictest", "share middle", "share loosest")
    return Table(
        key="who-pays",
        title=titled("Who pays: utility and participations by strictness of budget", view),
        header=("column", "algorithm", *utility, f"worst decile{arrow}", *share),
        rows=tuple(rows),
        labels=2,
        caption=f"The {which} on the held-out examples of each third of the clients (by epsilon), pooled over its "
        "examples; mean over seeds. Worst decile: mean over the tenth of clients that are worst off. Share: of all "
        "participations. Where an algorithm has no budgets, the thirds are those of the private runs with the same "
        "seed.",
    )
