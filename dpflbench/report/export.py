"""Numbers for machines: long-form tables of cells, clients and rounds, as CSV and Parquet."""

import math

from dpflbench.report.comparison import indistinguishable, ranked, to_baseline
from dpflbench.report.table import as_csv
from dpflbench.report.tables import gap_lines
from dpflbench.report.view import View

SUMMARY = ("private", "metric", "higher_is_better", "value", "n_seeds", "n_done", "mean", "std", "best",
           "indistinguishable_from_best", "baseline", "difference", "difference_low", "difference_high", "p", "p_holm",
           "effect_size", "gaps")


def summary_rows(view: View) -> list[dict[str, object]]:
    """One row for each algorithm in each setting."""
    rows: list[dict[str, object]] = []
    for setting in view.settings:
        order = ranked(view, setting)
        close = indistinguishable(view, setting)
        against = {d.algorithm: d for d in to_baseline(view, setting)}
        metric = view.metrics[setting.key]
        for group in view.in_setting(setting):
            d = against.get(group.algorithm)
            p = d.paired if d else None
            rows.append({
                **{axis: _plain(value) for axis, value in setting.coordinates.items()}, "algorithm": group.algorithm,
                "private": group.private, "metric": metric.name, "higher_is_better": metric.higher_is_better,
                "value": view.options.value, "n_seeds": len(group.outcomes), "n_done": len(group.values), "mean": group.mean,
                "std": group.std, "best": bool(order) and group.algorithm == order[0].algorithm,
                "indistinguishable_from_best": group.algorithm in close, "baseline": d.reference if d else "",
                "difference": p.mean if p else math.nan, "difference_low": p.low if p else math.nan,
                "difference_high": p.high if p else math.nan, "p": p.p if p else math.nan, "p_holm": d.p_holm if d else math.nan,
                "effect_size": p.effect if p else math.nan, "gaps": "; ".join(gap_lines(group.gaps))})
    return rows


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str) or value is None else str(value)


def summary_csv(view: View) -> str:
    """The summary as CSV, one row for each algorithm in each setting."""
    header = [*view.axes, "algorithm", *SUMMARY]
    return as_csv(header, [[row.get(name) for name in header] for row in summary_rows(view)])
