"""Who is best, by how much and how surely: rankings within a column and over all of them.

Only private algorithms are ranked, and only those that ended well on every seed on which any of them did: an average
over the seeds an algorithm survived would flatter it. Nobody is ranked in a column that is not complete or in which
nobody has learnt anything (view.left_out), nor with a mark that says something is wrong with its records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpflbench.report.labels import p_value
from dpflbench.report.statistics import LEVEL, Paired, holm, paired, seeds_needed, smallest_p
from dpflbench.report.view import Column, Group, View


@dataclass(frozen=True, slots=True)
class Difference:
    """One algorithm against another in one place."""

    algorithm: str
    reference: str
    paired: Paired
    p_holm: float

    @property
    def significant(self) -> bool:
        """Whether the corrected test tells the two apart."""
        return self.p_holm < LEVEL


def differences(values: dict[str, dict[int, float]], reference: str) -> list[Difference]:
    """Every other algorithm minus the reference on their common seeds, one Holm family; values: name → seed → value."""
    base = values[reference]
    found = []
    for name, mine in values.items():
        seeds = sorted(mine.keys() & base.keys())
        if name != reference and seeds:
            found.append((name, paired([mine[s] - base[s] for s in seeds])))
    corrected = holm([p.p for _, p in found])
    return [Difference(name, reference, p, q) for (name, p), q in zip(found, corrected, strict=True)]


def ranked(view: View, column: Column) -> list[Group]:
    """Private algorithms that can be ranked in a column, best first; none in a column that is left out."""
    if column.key in view.left_out:
        return []
    private = view.contestants(column)
    seeds = {s for g in private for s in g.values}
    complete = [g for g in private if seeds and g.values.keys() == seeds]
    sign = -1.0 if view.metrics[column.key].higher_is_better else 1.0
    return sorted(complete, key=lambda g: sign * g.mean)


def best(view: View, column: Column) -> Group | None:
    """The private algorithm with the best mean in a column."""
    order = ranked(view, column)
    return order[0] if order else None


def to_baseline(view: View, column: Column) -> list[Difference]:
    """Every private algorithm against the column's baseline, one Holm family."""
    reference = view.baseline(column)
    if reference is None:
        return []
    return differences(
        {g.algorithm: g.values for g in view.in_column(column) if (g.private or g.algorithm == reference) and g.values},
        reference,
    )


def to_best(view: View, column: Column) -> list[Difference]:
    """Every ranked algorithm against the best one, one Holm family."""
    order = ranked(view, column)
    return differences({g.algorithm: g.values for g in order}, order[0].algorithm) if order else []


def indistinguishable(view: View, column: Column) -> set[str]:
    """Ranked algorithms that the corrected test does not tell apart from the best; none where the seeds are too few to
    tell any.
    """
    found = to_best(view, column)
    able = found and smallest_p(found[0].paired.n, len(found)) <= LEVEL
    return {d.algorithm for d in found if not d.significant} if able else set()


def role(view: View, algorithm: str, columns: Sequence[Column] | None = None) -> str:
    """The name under which an algorithm is followed across columns: baselines that stand in for one another share
    one.
    """
    played = baseline_role(view, view.columns if columns is None else columns)
    return "/".join(played) if algorithm in played else algorithm


def baseline_role(view: View, columns: Sequence[Column]) -> tuple[str, ...]:
    """Baselines that never meet in a column (one for each kind of noise) and so are one competitor."""
    found = [[n for n in view.baselines if (g := view.group(c, n)) is not None and g.values] for c in columns]
    names = [n for n in view.baselines if any(n in here for here in found)]
    return tuple(names) if len(names) > 1 and not any(len(here) > 1 for here in found) else ()


def across(view: View, columns: Sequence[Column] | None = None) -> dict[str, dict[int, float]]:
    """Role → seed → mean over those columns that are not left out, of competitors with a value in each of them on every
    common seed.

    Empty when the columns do not share a metric: accuracies and errors have no mean.
    """
    compared = [c for c in (view.columns if columns is None else columns) if ranked(view, c)]
    if len({view.metrics[c.key] for c in compared}) != 1:
        return {}
    table: dict[str, list[dict[int, float]]] = {}
    for column in compared:
        for group in ranked(view, column):
            table.setdefault(role(view, group.algorithm, compared), []).append(group.values)
    full = {name: rows for name, rows in table.items() if len(rows) == len(compared)}
    seeds = set.intersection(*(set(row) for rows in full.values() for row in rows)) if full else set()
    return {
        name: {s: float(np.mean([row[s] for row in rows])) for s in sorted(seeds)}
        for name, rows in full.items()
        if seeds
    }


def rank_matrix(view: View) -> tuple[list[str], NDArray[np.float64], NDArray[np.bool_]]:
    """Roles ranked in every column, their means [columns, roles] and whether higher is better [columns]."""
    rows = [{role(view, g.algorithm): g.mean for g in ranked(view, c)} for c in view.columns]
    rows = [row for row in rows if row]
    names = [n for n in dict.fromkeys(role(view, a) for a in view.algorithms) if rows and all(n in row for row in rows)]
    up = np.array([view.metrics[c.key].higher_is_better for c in view.columns if ranked(view, c)], dtype=bool)
    means = np.array([[row[n] for n in names] for row in rows], dtype=np.float64)
    return names, means.reshape(len(rows), len(names)), up


def seed_warnings(view: View) -> list[str]:
    """What the number of seeds allows to say; empty when every Holm family can reach significance."""
    if not view.columns:
        return []
    counts = [len(order[0].values) for c in view.columns if (order := ranked(view, c))]
    families = [len(order) - 1 for c in view.columns if (order := ranked(view, c))]
    seeds, comparisons = (min(counts), max(families)) if counts else (0, 0)
    if comparisons < 1 or smallest_p(seeds, comparisons) <= LEVEL:
        return []
    single = smallest_p(seeds)
    reach = "cannot be significant" if single > LEVEL else "can be significant only uncorrected"
    family = f"{comparisons} comparison{'s' * (comparisons != 1)}"
    needed = f"one comparison needs {seeds_needed()} seeds"
    if comparisons > 1:
        needed += f", {comparisons} need {seeds_needed(comparisons)}"
    return [
        f"{seeds} seed{'s' * (seeds != 1)}: a two-sided exact paired test cannot go below p = {p_value(single)}, or "
        f"{p_value(smallest_p(seeds, comparisons))} after Holm's correction for {family}: differences {reach} at "
        f"{LEVEL}, and none is marked ≈; {needed}."
    ]
