"""Where the gap to learning without privacy comes from: selection and weighting, clipping, noise.

Three differences between four runs of one seed, so they add up to the gap: without privacy at all; with the algorithm's
plan and weights, but neither noise nor clip; with its clip too; as it is.
"""

import math
from dataclasses import dataclass

import numpy as np

from dpflbench.report import labels
from dpflbench.report.statistics import Floats, paired
from dpflbench.report.tables.differences import place
from dpflbench.report.tables.table import Item, Table
from dpflbench.report.view import Column, Group, View

PARTS = ("selection and weighting", "clipping", "noise")
STEPS = ("noise_and_clip", "noise")  # what is left out, most first


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The gap of one algorithm in one column, by seed."""

    group: Group
    reference: str  # the algorithm without privacy
    parts: Floats  # [3, seeds], what each costs; negative: it gains

    @property
    def gap(self) -> Floats:
        """What all of it costs [seeds]."""
        return np.asarray(self.parts.sum(axis=0))


def reference(view: View, column: Column) -> Group | None:
    """The first algorithm without privacy that has a value in a column."""
    return next((g for g in view.in_column(column) if not g.private and g.values), None)


def splits(view: View) -> list[Split]:
    """Every private algorithm with a seed of which all four runs are done."""
    found = []
    for column in view.columns:
        best, up = reference(view, column), view.metrics[column.key].higher_is_better
        for group in view.in_column(column) if best is not None else ():
            rows = [row for row in _by_seed(view, group, best) if all(map(math.isfinite, row))] if best else []
            if group.private and rows and best is not None:
                steps = -np.diff(np.array(rows), axis=1) * (1 if up else -1)
                found.append(Split(group, best.algorithm, steps.T))
    return found


def _by_seed(view: View, group: Group, best: Group) -> list[list[float]]:
    """Utility without privacy, without noise and clip, without noise, and as it is; a row a seed, NaN: not known."""
    rows = []
    for ending in group.endings:
        less = view.counterfactuals.get(ending.run or "", {})
        done = {k: r for k, r in less.items() if r.status == "done" and not r.private}
        steps = [float(done[k].final.get(view.value, math.nan)) if k in done else math.nan for k in STEPS]
        rows.append([best.values.get(ending.seed, math.nan), *steps, ending.value])
    return rows


def gap_parts_table(view: View) -> Table | None:
    """What each part costs every private algorithm, with paired intervals; None if nobody asked."""
    found = splits(view)
    if not found and not _failures(view):
        return None
    rows = []
    for split in found:
        shown = [_item(values, view.digits(split.group.column)) for values in (split.gap, *split.parts)]
        rows.append((*place(view, split.group), *shown, Item(str(len(split.gap)))))
    names = labels.listing([labels.short(n) for n in dict.fromkeys(s.reference for s in found)])
    common = view.common_metric
    unit = "in points" if common and common.unit == "%" else "in the metric's unit"
    return Table(
        key="gap-parts",
        title="Where the gap comes from",
        header=("column", "algorithm", f"gap to {names}", *PARTS, "seeds"),
        rows=tuple(rows),
        notes=tuple(_failures(view)),
        labels=2,
        caption=f"What is lost to {names}, {unit}, on the same seeds (95 % interval); negative: gained. Of the "
        "same run, with the plan and the weights it had, once without noise and clip and once without noise: the "
        "first difference is selection and weighting (and a personal transform, if it has one), the second clipping, "
        "the third noise. An aggregator of rows weighs the rows it gets. Those runs are not private, and stand in no "
        "other table.",
    )


def _failures(view: View) -> list[str]:
    """Runs that should explain others and did not end well."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for group in view.filled:
        for ending in group.endings:
            for what, record in view.counterfactuals.get(ending.run or "", {}).items():
                if record.status != "done":
                    key = (group.algorithm, group.column.title, what.replace("_", " "), record.status)
                    found.setdefault(key, []).append(str(ending.seed))
    return [
        f"{name} ({where}) without {what}: {status} in seed{'s' * (len(seeds) != 1)} {labels.listing(seeds)}"
        for (name, where, what, status), seeds in found.items()
    ]


def _item(values: Floats, digits: int) -> Item:
    """A cost with its interval; no plus signs, which made four columns too wide for a page."""
    p = paired(values)
    mean, low, high = (labels.number(v, digits) for v in (p.mean, p.low, p.high))
    return Item(mean if math.isnan(p.low) else f"{mean} ({low} to {high})", p.mean)
