"""What a suite would run, and whether its cells can learn at all, without training."""

from pathlib import Path

import typer
from tabulate import tabulate

from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue, load
from dpflbench.cli.output import printable, say
from dpflbench.execution.attempt import assembly_of
from dpflbench.execution.prepare import Place, prepare
from dpflbench.forecast import Forecast, forecast
from dpflbench.plan import Planned, plan_suite
from dpflbench.report.population_figure import write_population
from dpflbench.results.store import writing
from dpflbench.results.titles import coordinates, title
from dpflbench.suite_schema import Suite


def show_plan(suite: Suite, root: Path | None, without: tuple[str, ...], population: Path | None) -> None:
    """Print a line a cell of the first seed; draw its populations into a folder, if one is given."""
    catalogue, first = load(without), suite.seeds[0]
    planned = plan_suite(suite, catalogue, root)
    rows: list[list[str]] = []
    impossible: dict[str, str] = {}
    for cell in planned.manifest.cells:
        if cell.seed != first:
            continue
        if cell.run is None:
            impossible[title(cell.algorithm, cell.coordinates)] = cell.reason
            continue
        where = [printable(text) for text in (cell.algorithm, *cell.coordinates.values())]
        assembly = assembly_of(planned.runs[cell.run], catalogue)
        rows.append([*where, *_figures(forecast(assembly, Place(root)))])
    headers = ["algorithm", *suite.axes, "uses", "noise scale", "ε spent", "share of ε", "noise / clip"]
    typer.echo(tabulate(rows, headers, tablefmt="simple", disable_numparse=True))
    say()
    say(
        f"{len(planned.runs)} runs for {len(planned.manifest.cells)} cells; figures are min / median / max over "
        f"clients, seed {first}; noise / clip: norm of the noise in a round's mean against the clip bound."
    )
    for what, reason in impossible.items():
        say(f"empty: {what}: {reason}")
    if population is not None:
        _draw(planned, first, catalogue, root, population)


def _figures(f: Forecast) -> list[str]:
    """The figures of one forecast as text."""
    uses = "/".join(f"{v:g}" for v in f.uses) + (
        f" in {f.planned_rounds} of {f.rounds} rounds" if f.planned_rounds < f.rounds else ""
    )
    if f.scale is None or f.epsilon is None or f.share is None:
        return [uses, "none", "∞", "–", "0"]
    share = "/".join(f"{100 * v:.1f}" for v in f.share) + " %"
    return [
        uses,
        "/".join(f"{v:.3g}" for v in f.scale),
        "/".join(f"{v:.3g}" for v in f.epsilon),
        share,
        f"{f.noise_to_clip:.2f}",
    ]


def _draw(planned: Planned, seed: int, catalogue: Catalogue, root: Path | None, folder: Path) -> None:
    """One picture and one CSV for each different population of a seed."""
    seen: set[str] = set()
    for cell in planned.manifest.cells:
        if cell.run is None or cell.seed != seed:
            continue
        assembly = assembly_of(planned.runs[cell.run], catalogue)
        config = assembly.config
        key = content_digest([config["task"], config["federation"]["clients"], config.get("privacy")])
        if key in seen or not assembly.algorithm.private:
            continue
        seen.add(key)
        world = prepare(assembly, Place(root)).world
        with writing(folder):
            paths = write_population(world.task, world.setup.epsilon, world.setup.delta, folder / f"{len(seen):02d}")
        for path in paths:
            say(f"{coordinates(cell.coordinates) or 'population'}: {path}")
