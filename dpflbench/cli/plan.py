"""`dpflbench plan`: options and suite, before anything heavy is imported (plan_table.py)."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.cli.options import DataRoot, Overrides, SuiteFile, Without, data_root
from dpflbench.suite import load


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
    checked = load(suite, overrides or ())  # a typo answers at once
    from dpflbench.cli.plan_table import show_plan

    folder = out or Path("results") / checked.name / "population"
    show_plan(checked, data_root(data), tuple(without or ()), folder if population else None)
