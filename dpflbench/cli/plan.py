"""`dpflbench plan`: options and suite, before anything heavy is imported (plan_text.py)."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.api.calls import folder_of
from dpflbench.api.calls import plan as plan_suite
from dpflbench.api.drafts import SuiteDraft
from dpflbench.cli.options import AsJson, DataRoot, KernelsOf, Overrides, SuiteFile, Without, data_root
from dpflbench.cli.output import say_json
from dpflbench.cli.waiting import Waiting
from dpflbench.execution.processes import warm_up
from dpflbench.suite_reading import overridden


def plan(
    suite: SuiteFile,
    overrides: Overrides = None,
    data: DataRoot = None,
    without: Without = None,
    rows: Annotated[int, typer.Option(help="Cells to show; 0: all.", min=0)] = 200,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Results folder, whose records say how long runs take.  [default: results/<suite name>]"
        ),
    ] = None,
    population: Annotated[
        bool, typer.Option("--population", help="Also draw the federation: sizes, labels and budgets.")
    ] = False,
    limit: Annotated[
        bool, typer.Option("--limit", help="Show instead how low noise could be at these budgets, and how low it is.")
    ] = False,
    measure: Annotated[
        int,
        typer.Option(
            metavar="POINTS",
            min=0,
            help="With --limit: also what that would buy, by so many runs with chosen noise for each column.",
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Where --population writes.  [default: results/<suite name>/population]"
        ),
    ] = None,
    kernels: KernelsOf = "torch",
    as_json: AsJson = False,
) -> None:
    """Show the runs of a suite, planned uses, noise scales, privacy cost, noise against the clip bound, and how long it
    takes; nothing is trained but a few timed rounds.
    """
    draft = SuiteDraft(*overridden(suite, overrides or ()))  # a typo answers at once
    warm_up()
    folder, plugins = results or folder_of(draft), tuple(without or ())
    with Waiting(f"{draft.name}: planning", not as_json) as waiting:
        if limit:
            from dpflbench.cli.limit_table import show_limit

            show_limit(draft.checked, data_root(data), plugins, points=measure, rows=rows, waiting=waiting)
            return
        found = plan_suite(draft, data=data, without=plugins, results=folder, rows=rows, kernels=kernels)
    if as_json:
        say_json(found.json())
        return
    from dpflbench.cli.plan_text import show_plan

    show_plan(found, (out or folder / "population") if population else None)
