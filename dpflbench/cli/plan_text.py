"""What `dpflbench plan` prints."""

import shutil
from pathlib import Path

import typer

from dpflbench.api.plan_table import SuitePlan
from dpflbench.cli.output import say
from dpflbench.report.tables.table import as_text


def show_plan(plan: SuitePlan, population: Path | None) -> None:
    """Print a table for each column of the first seed, and how long it all takes; draw populations into a folder, if
    one is given.
    """
    width = max(80, shutil.get_terminal_size((132, 24)).columns)
    for table in plan.tables:
        typer.echo(as_text(table, width).lstrip("\n"))
        typer.echo("")
    for line in plan.lines:
        say(line)
    for what, path in plan.draw_populations(population) if population is not None else ():
        say(f"{what}: {path}")
