"""Tables that back the utility tables: differences to the baseline, cells without a result, best against final
round.
"""

import math
from collections.abc import Sequence
from itertools import groupby

from dpflbench.report import labels
from dpflbench.report.comparison import seed_warnings, to_baseline
from dpflbench.report.statistics import LEVEL
from dpflbench.report.table import Table, entry
from dpflbench.report.view import Group, View


def titled(title: str, view: View) -> str:
    """A title with the metric and its arrow, where all settings share one."""
    return f"{title}: {labels.metric_label(view.common_metric)}" if view.common_metric else title


def difference_table(view: View) -> Table | None:
    """Paired difference of each private algorithm to the baseline of its setting; None without a baseline."""
    rows = []
    for setting in view.settings:
        metric = view.metrics[setting.key]
        for d in to_baseline(view, setting):
            p = d.paired
            gained = p.mean > 0 if metric.higher_is_better else p.mean < 0
            span = "–" if p.low != p.low else f"{labels.signed(p.low)} to {labels.signed(p.high)}"
            better = p.above if metric.higher_is_better else p.below
            rows.append(
                (
                    entry(labels.coordinates(setting.coordinates) or "all"),
                    entry(d.algorithm),
                    entry(d.reference),
                    entry(
                        labels.signed(p.mean),
                        p.mean,
                        bold=gained and d.significant,
                        hint="better" if gained else "not better",
                    ),
                    entry(span, p.low),
                    entry(labels.p_value(p.p), p.p),
                    entry(labels.p_value(d.p_holm), d.p_holm),
                    entry(labels.signed(p.effect), p.effect),
                    entry(f"{better}/{p.n}", better / p.n),
                )
            )
    if not rows:
        return None
    common = view.common_metric
    unit = "points" if common and common.unit == "%" else "in the metric's unit"
    way = f"; {'positive' if common.higher_is_better else 'negative'} is better" if common else ""
    header = (
        "setting",
        "algorithm",
        "baseline",
        "difference",
        "95 % interval",
        "p",
        "p (Holm)",
        "effect size d_z",
        "seeds better",
    )
    return Table(
        "differences",
        titled("Difference to the baseline", view),
        header,
        tuple(rows),
        notes=tuple(seed_warnings(view)),
        labels=3,
        caption=f"Algorithm minus baseline on the same seeds, {unit}{way}. Bold: better and significant at {LEVEL} "
        "after Holm's "
        "correction over the comparisons of its setting. p: exact two-sided paired permutation test (above 16 seeds "
        "Wilcoxon's). d_z: mean difference over its standard deviation.",
    )


def gap_table(view: View) -> Table | None:
    """Every cell without a value and why; None if there is none."""
    found: dict[tuple[str, str, str], list[Group]] = {}
    seeds: dict[tuple[str, str, str], list[int]] = {}
    for group in view.groups.values():
        for (status, reason), items in groupby(group.gaps, key=lambda o: (o.status, o.reason)):
            where = (group.algorithm, status, reason)
            if group not in found.setdefault(where, []):
                found[where].append(group)
            seeds.setdefault(where, []).extend(o.seed for o in items)
    rows = []
    for (algorithm, status, reason), groups in found.items():
        where_text = "; ".join(dict.fromkeys(labels.coordinates(g.setting.coordinates) or "all" for g in groups))
        which = sorted(set(seeds[algorithm, status, reason]))
        all_seeds = status == "impossible" or len(which) == len(view.seeds)
        rows.append(
            (
                entry(algorithm),
                entry(where_text),
                entry("all" if all_seeds else ", ".join(map(str, which))),
                entry(status),
                entry(reason),
            )
        )
    problems = tuple(f"unreadable record: {p}" for p in view.problems)
    if not rows and not problems:
        return None
    return Table(
        "gaps",
        "Cells without a result, and why",
        ("algorithm", "where", "seeds", "what", "why"),
        tuple(rows),
        notes=problems,
        labels=5,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def best_round_table(view: View) -> Table | None:
    """Best over rounds beside the final round: flagged, for it is picked by looking at the test set. None if not
    recorded.
    """
    rows = []
    for setting in view.settings:
        for group in view.in_setting(setting):
            records = [r for r in group.records if "best_utility_global" in r.final and "utility_global" in r.final]
            if not records:
                continue
            final, peak, when = (
                _mean([float(r.final.get(key, math.nan)) for r in records])
                for key in ("utility_global", "best_utility_global", "best_round")
            )
            rows.append(
                (
                    entry(labels.coordinates(setting.coordinates) or "all"),
                    entry(group.algorithm),
                    entry(labels.number(final), final),
                    entry(labels.number(peak), peak, mark="†"),
                    entry(labels.signed(peak - final), peak - final),
                    entry(labels.number(when, 0), when),
                )
            )
    if not rows:
        return None
    return Table(
        "best-round",
        titled("Final round and best round", view),
        ("setting", "algorithm", "final round", "best over rounds †", "difference", "mean best round"),
        tuple(rows),
        labels=2,
        caption="utility_global. † picked by looking at the test set after the fact: nobody can stop there in earnest, "
        "so it never ranks an algorithm.",
    )
