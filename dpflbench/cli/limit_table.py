"""What any algorithm could reach at a suite's budgets, and what its algorithms do: before training, or by a measured
curve of utility against noise.
"""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import typer

from dpflbench.catalogue import Catalogue, load
from dpflbench.cli.output import say
from dpflbench.cli.waiting import Waiting
from dpflbench.execution.attempt import assembly_of
from dpflbench.execution.prepare import Place
from dpflbench.forecast import Forecast, forecast
from dpflbench.planning import Run, plan_suite
from dpflbench.report.labels import decimals, number, share, signed
from dpflbench.report.tables.table import Item, Table, as_text
from dpflbench.results.cells import Cell
from dpflbench.results.titles import coordinates
from dpflbench.suite_schema import Suite
from dpflbench.what_if import Curve, levels, measure

LEGEND = (
    "noise: root mean square of one coordinate of a step; limit: the least that any selector and linear weighting can "
    "reach at these budgets. efficiency compares variances, so 0.25 is twice the noise."
)
MEASURED = (
    "Utility is read off a curve measured here with uniform selection and a plain mean, one run a point, so it stands "
    "for noise alone: the data an algorithm leaves out, and whatever else it does, is not in it."
)


def show_limit(
    suite: Suite, root: Path | None, without: tuple[str, ...], *, points: int, rows: int, waiting: Waiting
) -> None:
    """Print a table for each column of the first seed; with points, measure a curve for each as well."""
    catalogue, first, place = load(without), suite.seeds[0], Place(root=root, suite=suite.folder)
    planned = plan_suite(replace(suite, tune=None), catalogue, root)
    columns: dict[str, list[tuple[Cell, Run]]] = {}
    for cell in planned.manifest.cells:
        if cell.seed == first and cell.run is not None:
            run = planned.runs[cell.run]
            if assembly_of(run, catalogue).algorithm.private:
                columns.setdefault(coordinates(cell.coordinates), []).append((cell, run))
    shown = list(columns.items())[: rows or None]
    width = max(80, shutil.get_terminal_size((132, 24)).columns)
    for where, cells in shown:
        table = _table(where, cells, catalogue, place, points)
        waiting.over()
        typer.echo(as_text(table, width).lstrip("\n"))
        typer.echo("")
    waiting.over()
    say(LEGEND)
    if points:
        say(MEASURED)


def _table(where: str, cells: list[tuple[Cell, Run]], catalogue: Catalogue, place: Place, points: int) -> Table:
    """One column: the limit, what a plain mean can do where that is less, and the algorithms."""
    found = [(cell.algorithm, forecast(assembly_of(run, catalogue), place)) for cell, run in cells]
    forecasts = [f for _, f in found]
    curve = None
    if points and any(f.variance > 0 for f in forecasts):
        like = assembly_of(cells[0][1], catalogue)
        curve = measure(like, levels(forecasts, points), catalogue, place)
    first = forecasts[0]
    lines = [("limit", replace(first, variance=first.limit, weights="linear", coverage=math.nan))]
    if first.mean_limit > first.limit * (1 + 1e-9):
        lines.append(("limit of a plain mean", replace(lines[0][1], variance=first.mean_limit)))
    header = ["", "noise", "efficiency", "coverage"]
    header += ["utility at this noise", "at the limit it would gain"] if curve else []
    notes = () if curve is None else (_points(curve),)
    noises = [math.sqrt(f.variance) for _, f in [*lines, *found]]
    digits = max(4, decimals(noises))
    rows = [
        tuple(map(Item, _row(name, f, number(noise, digits), curve)))
        for (name, f), noise in zip([*lines, *found], noises, strict=True)
    ]
    return Table(key="limit", title=where or "all", header=tuple(header), rows=tuple(rows), notes=notes)


def _row(name: str, f: Forecast, noise: str, curve: Curve | None) -> list[str]:
    about = "≈" if "mean" in f.weights else ""
    row = [name, *(f"{about * (text != '–')}{text}" for text in (noise, share(f.efficiency), share(f.coverage)))]
    if curve is None:
        return row
    own, best = curve.at(f.variance), curve.at(f.limit)
    gain = best - own if curve.metric.higher_is_better else own - best
    return [*row, number(own, 2), "" if f.variance == f.limit else signed(gain, 2)]


def _points(curve: Curve) -> str:
    """What was measured, in one line."""
    points = zip(curve.variances, curve.utilities, strict=True)
    pairs = ", ".join(f"{math.sqrt(v):.2g}: {number(u, 2)}" for v, u in points)
    return f"Measured {curve.metric.name} by noise: {pairs}."
