"""What every algorithm was tuned to, and what was tried: all from the tuning runs, which no other table shows."""

import math
from collections.abc import Mapping
from statistics import stdev
from typing import Any

from dpflbench.report import labels
from dpflbench.report.tables.table import Item, Table, as_csv, change
from dpflbench.report.view import Column, View
from dpflbench.suite_schema import TUNING_SEEDS
from dpflbench.tuning import GridPoint, Tuned

UNPAID = (
    "What tuning costs in privacy is not accounted: each tuning run is one more at the budgets of the same clients."
)
EDGE = "⊣"  # the best value is the first or last of the grid


def grid_of(view: View) -> dict[str, list[Any]]:
    """Tuned path → values; empty for a suite that tunes nothing."""
    asked = view.suite.get("tune")
    return {str(k): list(v) for k, v in asked.items() if k != "seeds"} if isinstance(asked, Mapping) else {}


def tuned_in_order(view: View) -> list[tuple[Column, Tuned]]:
    """What was tuned in each column, by algorithm."""
    found = ((column, view.tuned.get((column.key, name))) for column in view.columns for name in view.algorithms)
    return [(column, here) for column, here in found if here is not None]


def tuned_table(view: View) -> Table | None:
    """The chosen values with their utility on validation data; None for a suite that tunes nothing."""
    grid, rows = grid_of(view), []
    for column, here in tuned_in_order(view):
        best, own, where = here.chosen, _own(view, column, here), column.title
        if best is None:
            rows.append(
                (Item(where), Item(here.algorithm), *(Item("–", hint=here.reason) for _ in range(len(grid) + 2)))
            )
            continue
        gain = math.nan if own is None else best.mean - own.mean
        chosen = [Item(labels.axis_value(best.values[path]), mark=_edge(best, path, grid)) for path in grid]
        digits = view.digits(column)
        shown = Item(labels.mean_std(best.mean, _spread(best), digits), best.mean)
        rows.append((Item(where), Item(here.algorithm), *chosen, shown, change(gain, digits)))
    if not rows:
        return None
    seeds = len(next(iter(view.tuned.values())).trials[0].utilities)
    tried = "; ".join(f"{path}: {', '.join(map(labels.axis_value, values))}" for path, values in grid.items())
    edge = f"{EDGE} the first or last value that was tried: a wider grid might do better."
    return Table(
        key="tuned",
        title="Chosen parameters",
        header=("column", "algorithm", *map(labels.axis, grid), "on validation data", "against the suite's own"),
        rows=tuple(rows),
        notes=(UNPAID, *([edge] if any(item.mark for row in rows for item in row) else [])),
        labels=2,
        caption=f"Every algorithm had the same grid ({tried}) in every column, and has what was best by mean utility "
        f"over {seeds} tuning seed{'s' * (seeds != 1)} from {TUNING_SEEDS} on, which no table shows, on examples that "
        "clients hold out of training; the test set had no part in it.",
    )


def tuning_note(view: View) -> list[str]:
    """What the main table has to say of it."""
    if not grid_of(view):
        return []
    paths = labels.listing(list(grid_of(view)))
    return [f"Tuned: {paths} chosen for each algorithm and column from one grid, on validation data. {UNPAID}"]


def words(here: Tuned | None) -> str:
    """What was chosen, in a word or two; empty if nothing was."""
    if here is None or here.chosen is None:
        return ""
    return ", ".join(f"{path}={labels.axis_value(value)}" for path, value in here.chosen.values.items())


def tuning_csv(view: View) -> str:
    """Every tuning run: where it stands, what it tried and what came of it."""
    grid = grid_of(view)
    rows = [
        [
            *(labels.axis_value(here.coordinates.get(axis)) for axis in view.axes),
            here.algorithm,
            *(labels.axis_value(trial.values[path]) for path in grid),
            seed,
            utility,
            trial is here.chosen,
        ]
        for _, here in tuned_in_order(view)
        for trial in here.trials
        for seed, utility in trial.utilities.items()
    ]
    return as_csv([*view.axes, "algorithm", *grid, "seed", "validation_utility", "chosen"], rows)


def _own(view: View, column: Column, here: Tuned) -> GridPoint | None:
    """The trial of the suite's own values; None if they are not in the grid."""
    own = {path: _number(view.lookup(column, path)) for path in grid_of(view)}
    same = (t for t in here.trials if {path: _number(value) for path, value in t.values.items()} == own)
    return next(same, None)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _spread(trial: GridPoint) -> float:
    return stdev(trial.utilities.values()) if len(trial.utilities) > 1 else math.nan


def _edge(best: GridPoint, path: str, grid: Mapping[str, list[Any]]) -> str:
    values = grid[path]
    numbers = len(values) > 2 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return EDGE if numbers and best.values[path] in (min(values), max(values)) else ""
