"""What a suite would run, how long that takes, and whether its cells can learn at all, without training them."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue, load
from dpflbench.execution.attempt import assembly_of
from dpflbench.execution.pace import Pace, pace
from dpflbench.execution.prepare import Place, prepare
from dpflbench.execution.progress import duration
from dpflbench.federation.gradients import Kernels
from dpflbench.forecast import HOPELESS, Forecast, Spread, forecast
from dpflbench.planning import Planned, plan_suite
from dpflbench.report import labels
from dpflbench.report.population_figure import write_population
from dpflbench.report.tables.table import Item, Table, as_markdown, as_text
from dpflbench.results.cells import Cell
from dpflbench.results.record import Record, RecordError
from dpflbench.results.store import REUSABLE, Store, writing
from dpflbench.results.titles import coordinates
from dpflbench.suite_schema import Suite

if TYPE_CHECKING:
    import pandas as pd

HEADER = ("algorithm", "uses", "scale", "ε spent", "share", "efficiency", "coverage", "noise")
LEGEND = (
    "Figures are min/median/max over clients, one where they agree. scale: of the noise in a message; share: of the "
    "epsilon a client allows; noise: norm of the noise in a round's mean over the clip bound, both in the clip's norm; "
    "efficiency: the least variance of noise there could be at these budgets over what is injected; coverage: "
    "effective share of examples behind the steps."
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SuitePlan:
    """The runs of a suite, and of the first seed's what they will cost and hide."""

    planned: Planned
    catalogue: Catalogue
    place: Place
    seed: int  # the first
    possible: int  # cells of that seed that have a run
    cells: tuple[Cell, ...]  # those of them that were forecast
    forecasts: tuple[Forecast, ...]
    pace: Pace  # of what is still to do
    todo: int
    done: int
    folder: Path  # where records were looked for
    runs: int  # of all seeds, that tables show
    tuning: int = 0  # runs before them, which no table shows
    waits: bool = False  # for tuning runs: figures are those of the suite's own values

    @property
    def seconds(self) -> float | None:
        """How long what is still to do takes, one run after the other; None: nothing is, or nobody knows."""
        return self.pace.seconds

    @property
    def tables(self) -> list[Table]:
        """A table for each column."""
        columns: dict[str, list[tuple[Item, ...]]] = {}
        for cell, found in zip(self.cells, self.forecasts, strict=True):
            row = (Item(cell.algorithm), *map(Item, _figures(found)))
            columns.setdefault(coordinates(cell.coordinates), []).append(row)
        return [Table(key="plan", title=where, header=HEADER, rows=tuple(rows)) for where, rows in columns.items()]

    @property
    def lines(self) -> Iterator[str]:
        """What there is to say below the tables."""
        yield LEGEND
        if any(f.stages > 1 and f.planned_rounds == f.rounds for f in self.forecasts):
            yield "~ plans in stages: the later ones as if all clients reported the same loss."
        if any("mean" in f.weights for f in self.forecasts):
            yield "≈ weights depend on what is released: the noise and the data of a plain mean."
        hopeless = sum(f.hopeless for f in self.forecasts)
        if hopeless:
            yield (
                f"! {hopeless} of {len(self.cells)} cells can hardly learn: over all rounds noise adds up to more than "
                f"{HOPELESS:g} times what gradients at the clip bound do; more rounds, clients or epsilon help."
            )
        if len(self.cells) < self.possible:
            yield f"The first {len(self.cells)} of {self.possible} cells; --rows 0 shows all, --rows N the first N."
        for reason, count in self._empty.items():
            yield f"{count} cell{'s' * (count != 1)} empty: {reason}"
        yield ""
        cells = len(self.planned.manifest.cells)
        yield f"{self.runs} runs for {cells} cells, seeds counted; figures of seed {self.seed}."
        if self.tuning:
            until = "; until they are there, the figures are those of the suite's own values" if self.waits else ""
            yield f"{self.tuning} tuning runs before them, which no table shows{until}."
        yield _time(self.pace, self.todo, self.done, self.folder)

    @property
    def _empty(self) -> Counter[str]:
        return Counter(c.reason for c in self.planned.manifest.cells if c.run is None and c.seed == self.seed)

    def frame(self) -> "pd.DataFrame":
        """A row a forecast cell: coordinates, algorithm, run, and min, median and max over clients of uses, noise
        scale, epsilon spent and its share.
        """
        import pandas as pd

        return pd.DataFrame([_flat(row) for row in self.json()["cells"]])

    def json(self) -> dict[str, Any]:
        """As `plan --json` prints it: dpflbench/api/README.md has the keys."""
        return {
            "suite": self.planned.manifest.name,
            "runs": self.runs,
            "tuning_runs": self.tuning,
            "cells_total": len(self.planned.manifest.cells),
            "todo": self.todo,
            "done": self.done,
            "seconds": self.seconds,
            "seed": self.seed,
            "empty": [{"reason": reason, "cells": count} for reason, count in self._empty.items()],
            "cells": [_forecast(*pair) for pair in zip(self.cells, self.forecasts, strict=True)],
        }

    def draw_populations(self, folder: Path) -> Iterator[tuple[str, Path]]:
        """Draw each different population of the first seed into a folder, with a CSV; what each file shows."""
        seen: set[str] = set()
        for cell in self.planned.manifest.cells:
            if cell.run is None or cell.seed != self.seed:
                continue
            assembly = assembly_of(self.planned.runs[cell.run], self.catalogue)
            config = assembly.config
            key = content_digest([config["task"], config["federation"]["clients"], config.get("privacy")])
            if key in seen or not assembly.algorithm.private:
                continue
            seen.add(key)
            world, name = prepare(assembly, self.place).world, f"{len(seen):02d}"
            with writing(folder):
                paths = write_population(world.task, world.setup.epsilon, world.setup.delta, folder / name)
            for path in paths:
                yield coordinates(cell.coordinates) or "population", path

    def __str__(self) -> str:
        return "\n\n".join([*(as_text(table) for table in self.tables), "\n".join(self.lines)])

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        tables = [as_markdown(replace(table, title=table.title or "all"), 4) for table in self.tables]
        return "\n".join([*tables, *(f"{labels.markdown(line)}\n" for line in self.lines)])


def plan_table(
    suite: Suite, root: Path | None, without: tuple[str, ...], *, results: Path, rows: int, kernels: Kernels
) -> SuitePlan:
    """The plan of a suite, with forecasts of so many cells of the first seed (0: all); nothing is trained but a few
    timed rounds.
    """
    catalogue, first, place = load(without), suite.seeds[0], Place(root=root, suite=suite.folder, kernels=kernels)
    planned = plan_suite(suite, catalogue, root, Store(results).known)
    tuning = {run: planned.runs[run] for run in planned.manifest.tuning_runs}
    if waits := planned.waits:  # until its tuning runs are there: as the suite has it
        planned = plan_suite(replace(suite, tune=None), catalogue, root)
    runs = {**tuning, **planned.runs}
    possible = [cell for cell in planned.manifest.cells if cell.seed == first and cell.run is not None]
    shown = tuple(possible[: rows or None])
    records = _records(Store(results))
    done = {run for run in runs if run in records and records[run].status in REUSABLE}
    todo = [run for run in runs.values() if run.id not in done]
    return SuitePlan(
        planned=planned,
        catalogue=catalogue,
        place=place,
        seed=first,
        possible=len(possible),
        cells=shown,
        forecasts=tuple(forecast(assembly_of(planned.runs[cell.run or ""], catalogue), place) for cell in shown),
        pace=pace(todo, records.values(), catalogue, replace(place, isolated=True)),
        todo=len(todo),
        done=len(done),
        folder=results,
        runs=len(runs) - len(tuning),
        tuning=len(tuning),
        waits=bool(waits),
    )


def _forecast(cell: Cell, f: Forecast) -> dict[str, Any]:
    """A cell and its forecast; no noise, no figures of it."""
    about = {
        "efficiency": None if math.isnan(f.efficiency) else f.efficiency,
        "noise_to_clip": f.noise_to_clip,
        "hopeless": f.hopeless,
    }
    return {
        "coordinates": dict(cell.coordinates),
        "algorithm": cell.algorithm,
        "run": cell.run,
        "rounds": f.rounds,
        "uses": _three(f.uses),
        "scale": _three(f.scale),
        "epsilon": _three(f.epsilon),
        "share": _three(f.share),
        "coverage": f.coverage,
        **(about if f.scale is not None else dict.fromkeys(about)),
    }


def _three(values: Spread | None) -> dict[str, float] | None:
    return None if values is None else dict(zip(("min", "median", "max"), map(float, values), strict=True))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row without mappings in it: `uses_min`; coordinates under their own names."""
    flat = {**row.pop("coordinates")}
    for key, value in row.items():
        flat |= {f"{key}_{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _figures(f: Forecast) -> list[str]:
    """The figures of one forecast as text."""
    uses = _spread(f.uses, 4) + ("~" if f.stages > 1 else "")
    if f.planned_rounds < f.rounds:
        uses += f" in {f.planned_rounds} of {f.rounds} rounds"
    about = "≈" if "mean" in f.weights else ""
    coverage = f"{about}{f.coverage:.2f}"
    if f.scale is None or f.epsilon is None or f.share is None:
        return [uses, "none", "∞", "–", "–", coverage, "0"]
    low, high = (f"{100 * share:.0f}" for share in (f.share[0], f.share[2]))
    return [
        uses,
        _spread(f.scale),
        _spread(f.epsilon),
        f"{low} %" if low == high else f"{low}–{high} %",
        "–" if math.isnan(f.efficiency) else f"{about}{labels.share(f.efficiency)}",
        coverage,
        f"{f.noise_to_clip:.2g}" if f.noise_to_clip < 10 else f"{f.noise_to_clip:.0f}{' !' * f.hopeless}",
    ]


def _spread(values: Spread, digits: int = 2) -> str:
    texts = [f"{value:.{digits}g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else "/".join(texts)


def _records(store: Store) -> dict[str, Record]:
    """Every readable record of a results folder, whatever it was made for."""
    found = {}
    for run in store.ids():
        try:
            record = store.read(run)
        except RecordError:
            continue
        if record is not None:
            found[run] = record
    return found


def _time(found: Pace, todo: int, done: int, results: Path) -> str:
    """How long, and how that is known."""
    there = f"{done} have their record in {results}. " if done else ""
    if not todo:
        return f"{there}Nothing is left to do."
    if found.seconds is None:
        return f"{there}How long the other {todo} take could not be timed."
    ways = [
        f"{count} {way}"
        for count, way in (
            (found.recorded, "by earlier records"),
            (found.timed, "by a few timed rounds"),
            (found.guessed, "by the others' pace"),
        )
        if count
    ]
    return f"{there}{todo} to do take about {duration(found.seconds)}, one after the other ({', '.join(ways)})."
