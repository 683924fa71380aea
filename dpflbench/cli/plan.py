"""`dpflbench plan`: what a suite would run, and whether its cells can learn at all, without training."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dpflbench.cli.options import DataRoot, Overrides, SuiteFile, Without, data_root


def plan(
    suite: SuiteFile,
    overrides: Overrides = None,
    data: DataRoot = None,
    without: Without = None,
    population: Annotated[
        bool, typer.Option("--population", help="Also draw the federation: sizes, labels and budgets.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Where --population writes.  [default: results/<suite name>/population]"
        ),
    ] = None,
) -> None:
    """Show the runs of a suite, planned uses, noise scales, privacy cost and noise against the clip bound; nothing is
    trained.
    """
    from dpflbench import suite as suites

    checked = suites.load(suite, overrides or ())
    from tabulate import tabulate

    from dpflbench.catalogue import load
    from dpflbench.cli.output import printable
    from dpflbench.execution.attempt import Place, assembly_of
    from dpflbench.forecast import forecast
    from dpflbench.plan import plan_suite

    catalogue, root = load(without or ()), data_root(data)
    planned = plan_suite(checked, catalogue, root)
    first = checked.seeds[0]
    rows: list[list[str]] = []
    impossible: dict[str, str] = {}
    for cell in planned.manifest.cells:
        if cell.seed != first:
            continue
        where = [printable(cell.algorithm), *(printable(v) for v in cell.coordinates.values())]
        if cell.run is None:
            impossible[", ".join(where)] = printable(cell.reason)
            continue
        assembly = assembly_of(planned.runs[cell.run], catalogue)
        rows.append([*where, *_figures(forecast(assembly, Place(root)))])
    headers = ["algorithm", *checked.axes, "uses", "noise scale", "ε spent", "share of ε", "noise / clip"]
    typer.echo(tabulate(rows, headers, tablefmt="simple", disable_numparse=True))
    typer.echo(
        f"\n{len(planned.runs)} runs for {len(planned.manifest.cells)} cells; figures are min / median / max over "
        "clients, "
        f"seed {first}; noise / clip: norm of the noise in a round's mean against the clip bound."
    )
    for where_, reason in impossible.items():
        typer.echo(f"empty: {where_}: {reason}")
    if population:
        _draw(checked, planned, catalogue, root, out or Path("results") / checked.name / "population")


def _figures(f: Any) -> list[str]:
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


def _draw(checked: Any, planned: Any, catalogue: Any, root: Path | None, folder: Path) -> None:
    """One picture and one CSV for each different population of the suite's first seed."""
    from dpflbench.canonical import content_digest
    from dpflbench.cli.output import printable
    from dpflbench.execution.attempt import Place, assembly_of, prepare
    from dpflbench.report.population_figure import write_population

    seen: set[str] = set()
    for cell in planned.manifest.cells:
        if cell.run is None or cell.seed != checked.seeds[0]:
            continue
        assembly = assembly_of(planned.runs[cell.run], catalogue)
        config = assembly.config
        key = content_digest([config["task"], config["federation"]["clients"], config.get("privacy")])
        if key in seen or not assembly.algorithm.private:
            continue
        seen.add(key)
        world = prepare(assembly, Place(root)).world
        for path in write_population(world.task, world.setup.epsilon, world.setup.delta, folder / f"{len(seen):02d}"):
            typer.echo(
                f"{', '.join(f'{k}={v}' for k, v in cell.coordinates.items()) or 'population'}: {printable(path)}"
            )
