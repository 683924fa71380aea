"""The utility tables of a report: mean ± std over paired seeds, the best in bold, what is missing and why.

Rows are algorithms, columns follow the suite's `report` part; each value of an axis that is not among them has a table
of its own.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dpflbench.report import labels
from dpflbench.report.chance import RULE
from dpflbench.report.comparison import indistinguishable, ranked, seed_warnings
from dpflbench.report.noise import noise_notes
from dpflbench.report.statistics import LEVEL
from dpflbench.report.tables.gaps import gap_lines, gap_text
from dpflbench.report.tables.table import Item, Table
from dpflbench.report.tables.tuned import tuning_note
from dpflbench.report.view import AT_CHANCE, INCOMPLETE, MEASURED, Column, View, coordinate_key, descend
from dpflbench.results.record import Metric


class Notes:
    """Numbered footnotes: the same words get the same number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, text: str) -> str:
        """The mark of a note, kept for the list."""
        return f"[{self._numbers.setdefault(text, len(self._numbers) + 1)}]"

    def lines(self) -> list[str]:
        """All notes, in the order of their numbers."""
        return [f"[{n}] {text}" for text, n in self._numbers.items()]


def utility_tables(view: View) -> list[Table]:
    """Mean ± std of final utility, one table for each value of the axes that are not its columns."""
    tables: dict[str, list[Column]] = {}
    rest = [axis for axis in view.axes if axis not in view.across]
    for column in view.columns:
        tables.setdefault(coordinate_key({a: column.coordinates.get(a) for a in rest}), []).append(column)
    return [
        _table(view, _ordered(columns, view.across), rest, "utility" if number == 1 else f"utility-{number}")
        for number, columns in enumerate(tables.values(), 1)
    ]


def _ordered(columns: Sequence[Column], axes: Sequence[str]) -> list[Column]:
    """The first axis goes slowest, values in the manifest's order."""
    texts = {a: [coordinate_key({a: c.coordinates.get(a)}) for c in columns] for a in axes}
    return sorted(columns, key=lambda c: [texts[a].index(coordinate_key({a: c.coordinates.get(a)})) for a in axes])


def _table(view: View, columns: Sequence[Column], rest: Sequence[str], key: str) -> Table:
    notes, metric = Notes(), _metric_of(view, columns)
    signs = [_signs(view, column) for column in columns]
    rows = []
    for name in view.algorithms:
        private = all(g.private for g in view.groups.values() if g.algorithm == name)
        items = [_utility(view, c, name, notes, *s) for c, s in zip(columns, signs, strict=True)]
        rows.append((Item(name, mark="" if private else "(not private)"), *items))
    where = labels.coordinates(columns[0].coordinates, rest)
    return Table(
        key=key,
        title=f"Utility{f' ({where})' if where else ''}: {labels.metric_label(metric) if metric else 'utility'}",
        header=("algorithm", *(_head(view, column, metric) for column in columns)),
        rows=(*rows, *_trivial_models(view, columns)),
        caption=caption(view, metric),
        notes=(*legend(view), *notes.lines()),
    )


def _signs(view: View, column: Column) -> tuple[set[str], set[str]]:
    """The best of a column, and who cannot be told apart from it."""
    order = ranked(view, column)
    best = {g.algorithm for g in order if g.mean == order[0].mean}
    return best, indistinguishable(view, column) - best


def _utility(view: View, column: Column, name: str, notes: Notes, best: set[str], close: set[str]) -> Item:
    """Mean ± std with its signs, or the reason why there is none."""
    group = view.group(column, name)
    if group is None:
        return Item("–", hint="not part of the suite")
    why = "; ".join(gap_lines(group.gaps))
    grey = view.left_out.get(column.key) == AT_CHANCE
    if not group.values:
        return Item(gap_text(group.gaps), mark=notes.mark(why), hint=why, grey=grey)
    digits = view.digits(column)
    text, marks = labels.mean_std(group.mean, group.std, digits), ["≈"] if name in close else []
    hint = ", ".join(f"seed {seed}: {labels.number(value, digits)}" for seed, value in group.values.items())
    if group.gaps:
        text += f" ({len(group.values)}/{len(group.endings)})"
        marks.append(notes.mark(why))
    if view.mark(group):
        marks.append(f"({view.mark(group)})")
    return Item(text, group.mean, bold=name in best, mark=" ".join(marks), hint=hint, grey=grey)


def _metric_of(view: View, columns: Sequence[Column]) -> Metric | None:
    found = {view.metrics[c.key] for c in columns}
    return next(iter(found)) if len(found) == 1 else None


def _head(view: View, column: Column, metric: Metric | None) -> str:
    head = labels.coordinates(column.coordinates, view.across, "\n") or "utility"
    if metric is None:
        head += f"\n{labels.metric_label(view.metrics[column.key])}"
    left = view.left_out.get(column.key)
    return f"{head}\n({left})" if left else head


def _trivial_models(view: View, columns: Sequence[Column]) -> list[tuple[Item, ...]]:
    """What predicting the mean, least squares and the like reach, where the data set says so."""
    found: list[Mapping[str, list[float]]] = []
    for column in columns:
        here: dict[str, list[float]] = {}
        records = [r for g in view.in_column(column) for r in g.records]
        for record in {r.config.get("seed"): r for r in records}.values():  # all of a seed have the same data
            for name, value in (record.facts.get("references") or {}).items():
                here.setdefault(str(name), []).append(float(value))
        found.append(here)

    def item(values: Sequence[float], column: Column) -> Item:
        mean = float(np.mean(values)) if values else math.nan
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        grey = view.left_out.get(column.key) == AT_CHANCE
        return Item(labels.mean_std(mean, spread, view.digits(column)), mean, grey=grey)

    return [
        (
            Item(name.replace("_", " "), mark="(trivial model)"),
            *(item(here.get(name, ()), c) for c, here in zip(columns, found, strict=True)),
        )
        for name in dict.fromkeys(name for here in found for name in here)
    ]


def caption(view: View, metric: Metric | None) -> str:
    """What the figures are."""
    way = f", {labels.metric_direction(metric)}" if metric else ""
    seeds = len(view.seeds)
    spread = (
        f"Mean ± standard deviation over {seeds} paired seeds." if seeds > 1 else "One seed, so there is no spread."
    )
    return f"{view.value}: {MEASURED[view.value]}, after the last round{way}. {spread}"


def legend(view: View) -> list[str]:
    """What the signs mean."""
    lines = [
        "Bold (or *): best private algorithm of its column; ≈: not told apart from it by an exact paired test "
        f"(Holm-corrected, {LEVEL})."
    ]
    if any(g.values and g.gaps for g in view.groups.values()):
        lines.append(
            "(4/6): four of six seeds ended well; such a mean leaves out the seeds that went wrong, so it is not "
            "ranked."
        )
    if AT_CHANCE in view.left_out.values():
        lines.append(RULE)
    if INCOMPLETE in view.left_out.values():
        lines.append("Not complete: a run is missing or failed, so nobody is the best of the column yet.")
    if view.marks:
        lines.append("In brackets behind a figure: what is wrong with its records; such an algorithm is not ranked.")
    return [*lines, *noise_notes(view), *_public_features(view), *tuning_note(view), *seed_warnings(view)]


def _public_features(view: View) -> list[str]:
    """That features were learnt from training data and nobody paid for it."""
    records = [record for group in view.groups.values() for record in group.records]
    fitted = [record.config for record in records if record.facts.get("features_fitted", True)]
    kinds = {str(descend(config, "task.dataset.features.kind")) for config in fitted} - {"None", "flatten"}
    if not kinds:
        return []
    return [
        f"Features ({', '.join(sorted(kinds))}) are fitted on training data as public preprocessing; epsilon does "
        "not cover that."
    ]
