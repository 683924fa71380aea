"""Numbers for machines: long-form tables of cells, clients and rounds, as CSV and Parquet."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np

from dpflbench.report.comparison import indistinguishable, ranked, to_baseline
from dpflbench.report.tables.costs import spent_ratios
from dpflbench.report.tables.gap_parts import splits
from dpflbench.report.tables.gaps import gap_lines
from dpflbench.report.tables.table import as_csv
from dpflbench.report.tables.tuned import words
from dpflbench.report.tables.why import known, mean_of
from dpflbench.report.view import View
from dpflbench.results.record import Record
from dpflbench.results.store import write_atomically

GAP = ("gap_selection", "gap_clipping", "gap_noise")
WHY = ("noise_efficiency", "data_coverage")
SUMMARY = (
    "private",
    "metric",
    "higher_is_better",
    "value",
    "n_seeds",
    "n_done",
    "mean",
    "std",
    "best",
    "indistinguishable_from_best",
    "baseline",
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "p_holm",
    "effect_size",
    *WHY,
    *GAP,
    "tuned",
    "gaps",
    "left_out",
    "mark",
)


def summary_rows(view: View) -> list[dict[str, object]]:
    """One row for each algorithm in each column."""
    rows: list[dict[str, object]] = []
    parts = {(s.group.column.key, s.group.algorithm): s.parts.mean(axis=1).tolist() for s in splits(view)}
    for column in view.columns:
        order = ranked(view, column)
        close = indistinguishable(view, column)
        against = {d.algorithm: d for d in to_baseline(view, column)}
        metric = view.metrics[column.key]
        for group in view.in_column(column):
            d = against.get(group.algorithm)
            p = d.paired if d else None
            rows.append(
                {
                    **{axis: _plain(value) for axis, value in column.coordinates.items()},
                    "algorithm": group.algorithm,
                    "private": group.private,
                    "metric": metric.name,
                    "higher_is_better": metric.higher_is_better,
                    "value": view.value,
                    "n_seeds": len(group.endings),
                    "n_done": len(group.values),
                    "mean": group.mean,
                    "std": group.std,
                    "best": bool(order) and group.algorithm == order[0].algorithm,
                    "indistinguishable_from_best": group.algorithm in close,
                    "baseline": d.reference if d else "",
                    "difference": p.mean if p else math.nan,
                    "difference_low": p.low if p else math.nan,
                    "difference_high": p.high if p else math.nan,
                    "p": p.p if p else math.nan,
                    "p_holm": d.p_holm if d else math.nan,
                    "effect_size": p.effect if p else math.nan,
                    **{key: mean_of(group.records, key) for key in WHY},
                    **dict(zip(GAP, parts.get((column.key, group.algorithm), ()), strict=False)),
                    "tuned": words(view.tuned.get((column.key, group.algorithm))),
                    "gaps": "; ".join(gap_lines(group.gaps)),
                    "left_out": view.left_out.get(column.key, ""),
                    "mark": view.mark(group),
                }
            )
    return rows


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str) or value is None else str(value)


def summary_csv(view: View) -> str:
    """The summary as CSV, one row for each algorithm in each column."""
    header = [*view.axes, "algorithm", *SUMMARY]
    return as_csv(header, [[row.get(name) for name in header] for row in summary_rows(view)])


FINAL = ("utility_global", "utility_personal", "utility_mean_phi", "loss", "best_utility_global", "best_round")
MEASURED = ("seconds", "gradient_seconds", "round_seconds", "samples_per_second", "device")
CELLS = (
    "algorithm",
    "seed",
    "run",
    "status",
    "reason",
    "private",
    "metric",
    *FINAL,
    "epsilon_ratio_min",
    "epsilon_ratio_median",
    "epsilon_ratio_max",
    *WHY,
    "noise_variance",
    "noise_limit",
    "weights",
    *MEASURED,
)
CLIENTS = (
    "n_examples",
    "epsilon",
    "delta",
    "uses",
    "weight",
    "epsilon_spent",
    "utility_shared",
    "utility_personal",
    "n_holdout",
)
ROUNDS = ("round", "utility_global", "loss")
FRAMES = ("cells", "rounds", "clients", "events", "summary")
FILES = ("cells", "clients", "rounds")  # that a report has


def cell_rows(view: View) -> list[dict[str, Any]]:
    """One row a cell: coordinates, algorithm, seed, ending, utility, privacy spent and time."""
    rows: list[dict[str, Any]] = []
    for column in view.columns:
        where = {axis: _plain(value) for axis, value in column.coordinates.items()}
        for group in view.in_column(column):
            for ending in group.endings:
                record = ending.record
                row = {
                    **where,
                    "algorithm": group.algorithm,
                    "seed": ending.seed,
                    "run": ending.run or "",
                    "status": ending.status,
                    "reason": ending.reason,
                    "private": group.private,
                }
                rows.append(row | _record_columns(record) if record is not None else row)
    return rows


def _record_columns(record: Record) -> dict[str, Any]:
    ratios = spent_ratios(record)
    spent = (
        {
            "epsilon_ratio_min": float(ratios.min()),
            "epsilon_ratio_median": float(np.median(ratios)),
            "epsilon_ratio_max": float(ratios.max()),
        }
        if ratios.size
        else {}
    )
    measured = {key: record.measured.get(key) for key in MEASURED}
    return {
        "metric": record.metric.name,
        **{key: float(record.final.get(key, math.nan)) for key in FINAL},
        **spent,
        **{key: known(record, key) for key in WHY},
        "noise_variance": known(record, "variance"),
        "noise_limit": known(record, "limit"),
        "weights": (record.facts.get("why") or {}).get("weights", ""),
        **measured,
    }


def cells_csv(view: View) -> str:
    """One row a cell, as CSV."""
    header = [*view.axes, *CELLS]
    return as_csv(header, [[row.get(name) for name in header] for row in cell_rows(view)])


def _column(values: list[Any]) -> list[Any]:
    """Values of one type: numbers if all are, else texts; None stays."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} or kinds <= {bool}:
        return values if kinds != {int, float} else [None if v is None else float(v) for v in values]
    return [None if v is None else str(v) for v in values]


def _long(view: View, part: str, names: tuple[str, ...]) -> Any:
    """One row for each element of a record's arrays, with the cell's coordinates repeated; without names of all."""
    import pyarrow as pa

    cells: list[tuple[dict[str, Any], Record]] = []
    for column in view.columns:
        where = {axis: _plain(value) for axis, value in column.coordinates.items()}
        for group in view.in_column(column):
            cells += [
                ({**where, "algorithm": group.algorithm, "seed": o.seed, "run": o.run}, o.record)
                for o in group.endings
                if o.record is not None and getattr(o.record, part)
            ]
    lengths = [max(len(np.atleast_1d(a)) for a in getattr(record, part).values()) for _, record in cells]
    table: dict[str, Any] = {}
    for name in (*view.axes, "algorithm", "seed", "run"):
        column = pa.array(_column([labels.get(name) for labels, _ in cells]))
        table[name] = column.take(pa.array(np.repeat(np.arange(len(cells)), lengths)))
    if part == "clients":
        table["client"] = np.concatenate([np.arange(n) for n in lengths]) if cells else np.zeros(0, dtype=np.int64)
    for name in names or dict.fromkeys(name for _, record in cells for name in getattr(record, part)):
        arrays = [getattr(record, part).get(name) for _, record in cells]
        whole = not names and all(a is not None and np.issubdtype(a.dtype, np.integer) for a in arrays)
        parts = [
            np.full(n, np.nan) if a is None else np.asarray(a, dtype=np.int64 if whole else np.float64)
            for a, n in zip(arrays, lengths, strict=True)
        ]
        table[name] = np.concatenate(parts) if parts else np.zeros(0)
    return pa.table(table)


def long_table(view: View, kind: str) -> Any:
    """One of FRAMES as an Arrow table, a row a cell, evaluated round, client of a cell, release or algorithm in a
    column.
    """
    import pyarrow as pa

    if kind in ("cells", "summary"):
        rows = cell_rows(view) if kind == "cells" else summary_rows(view)
        names = (*view.axes, *CELLS) if kind == "cells" else (*view.axes, "algorithm", *SUMMARY)
        return pa.table({name: pa.array(_column([row.get(name) for row in rows])) for name in names})
    return _long(view, kind, {"clients": CLIENTS, "rounds": ROUNDS}.get(kind, ()))


def write_parquet(view: View, out: Path) -> list[Path]:
    """cells.parquet (one row a cell), clients.parquet (one a client of a cell) and rounds.parquet (one an evaluated
    round).
    """
    import pyarrow.parquet as pq

    paths = []
    for name in FILES:
        buffer = io.BytesIO()  # pyarrow takes no path that is not UTF-8
        pq.write_table(long_table(view, name), buffer, compression="zstd")
        write_atomically(out / f"{name}.parquet", buffer.getvalue())
        paths.append(out / f"{name}.parquet")
    return paths
