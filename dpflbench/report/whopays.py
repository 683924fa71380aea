"""Who pays: what each third of the clients, by strictness of budget, gets out of an algorithm and puts into it.

Selection that favours loose budgets may raise the average and still leave the data of strict clients behind: utility
and participations are shown for the strictest, middle and loosest third, and for the worst decile of clients.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpflbench.report import labels
from dpflbench.report.evidence import titled
from dpflbench.report.statistics import Floats
from dpflbench.report.table import Table, entry
from dpflbench.report.view import Group, Outcome, Setting, View
from dpflbench.results.record import Record

TIERS = ("strictest third", "middle third", "loosest third")
SHARED = {"utility_global": "utility_shared"}  # the shared model, unless the report is about personal ones


@dataclass(frozen=True, slots=True)
class Payment:
    """One algorithm in one setting, means over seeds; NaN where not measured."""

    setting: Setting
    algorithm: str
    private: bool
    utility: tuple[float, float, float]  # strictest, middle, loosest third
    worst_decile: float
    share: tuple[float, float, float]  # of all participations, in %
    seeds: int
    spread: tuple[float, float, float]  # standard deviation of the thirds' utility over seeds; NaN below two


def tiers(epsilon: Floats, delta: Floats) -> list[NDArray[np.int64]]:
    """Clients of the strictest, middle and loosest third: by epsilon, then delta, then number."""
    order = np.lexsort((np.arange(epsilon.size), delta, epsilon))
    return [np.asarray(part, dtype=np.int64) for part in np.array_split(order, 3)]


def budgets(view: View, setting: Setting, outcome: Outcome) -> tuple[Floats, Floats] | None:
    """Budgets of a run's clients; for a run without privacy those of a private run of the same column and seed."""
    own = [outcome.record] if outcome.record is not None and outcome.record.private else []
    others = [
        o.record
        for g in view.in_setting(setting)
        for o in g.outcomes
        if g.private and o.seed == outcome.seed and o.record
    ]
    for record in own + others:
        epsilon = record.clients.get("epsilon")
        if epsilon is not None and np.all(np.isfinite(epsilon)):
            delta = record.clients.get("delta")
            return np.asarray(epsilon, np.float64), np.zeros(len(epsilon)) if delta is None else np.asarray(
                delta, np.float64
            )
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


def _one(view: View, group: Group, outcome: Outcome) -> tuple[list[float], float, list[float]] | None:
    record, known = outcome.record, budgets(view, group.setting, outcome)
    utility = client_utility(record, view.options.value) if record is not None else None
    if record is None or known is None or utility is None or len(known[0]) != utility.size:
        return None
    weight = np.asarray(record.clients.get("n_holdout", np.ones(utility.size)), dtype=np.float64)
    uses = np.asarray(record.clients.get("uses", np.full(utility.size, np.nan)), dtype=np.float64)
    parts = tiers(*known)
    share = [float(uses[part].sum() / uses.sum() * 100) if uses.sum() > 0 else math.nan for part in parts]
    worst = worst_decile(utility, record.metric.higher_is_better)
    return [_pooled(utility[part], weight[part]) for part in parts], worst, share


def _three(values: Floats) -> tuple[float, float, float]:
    return float(values[0]), float(values[1]), float(values[2])


def payments(view: View) -> list[Payment]:
    """Every group whose clients were measured."""
    out = []
    for setting in view.settings:
        for group in view.in_setting(setting):
            found = [one for o in group.outcomes if o.status == "done" and (one := _one(view, group, o)) is not None]
            if found:
                by_seed = np.array([utility for utility, _, _ in found])  # [seeds, 3]
                share = np.array([share for _, _, share in found]).mean(axis=0)
                spread = by_seed.std(axis=0, ddof=1) if len(found) > 1 else np.full(3, math.nan)
                worst = float(np.mean([w for _, w, _ in found]))
                out.append(
                    Payment(
                        setting,
                        group.algorithm,
                        group.private,
                        _three(by_seed.mean(axis=0)),
                        worst,
                        _three(share),
                        len(found),
                        _three(spread),
                    )
                )
    return out


def who_pays_table(view: View) -> Table | None:
    """Utility of the thirds, the worst decile, and the share of participations; None if no client was measured."""
    found = payments(view)
    if not found:
        return None
    rows = []
    for p in found:
        gap = p.utility[2] - p.utility[0]
        rows.append(
            (
                entry(labels.coordinates(p.setting.coordinates) or "all"),
                entry(p.algorithm, mark="" if p.private else "(not private)"),
                *(
                    entry(labels.number(u), u, hint=f"± {labels.number(s)} over {p.seeds} seeds" if p.seeds > 1 else "")
                    for u, s in zip(p.utility, p.spread, strict=True)
                ),
                entry(labels.signed(gap), gap),
                entry(labels.number(p.worst_decile), p.worst_decile),
                *(entry(f"{labels.number(x, 0)} %", x) for x in p.share),
            )
        )
    which = "shared model" if view.options.value in SHARED else "own model"
    arrow = f" {labels.arrow(view.common_metric)}" if view.common_metric else ""
    header = (
        "setting",
        "algorithm",
        f"strictest third{arrow}",
        f"middle{arrow}",
        f"loosest{arrow}",
        "loosest − strictest",
        f"worst decile{arrow}",
        "share strictest",
        "share middle",
        "share loosest",
    )
    return Table(
        "who-pays",
        titled("Who pays: utility and participations by strictness of budget", view),
        header,
        tuple(rows),
        labels=2,
        caption=f"The {which} on the held-out examples of each third of the clients (by epsilon), pooled over its "
        "examples; mean "
        "over seeds. Worst decile: mean over the tenth of clients that are worst off. Share: of all "
        "participations. Where "
        "an algorithm has no budgets, the thirds are those of the private runs with the same seed.",
    )
