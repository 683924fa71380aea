"""`dpflbench compare`: the gate of a CI build."""

import math
from pathlib import Path
from typing import Annotated

import typer

from dpflbench.cli.output import say
from dpflbench.errors import DpflbenchError
from dpflbench.regression import Limits, baseline_of, dump_baseline, load_baseline
from dpflbench.regression import compare as compared
from dpflbench.regression.output import as_junit, as_markdown
from dpflbench.results.store import Store, write_atomically, writing


def compare(
    results: Annotated[Path, typer.Argument(help="Results folder.", show_default=False)],
    baseline: Annotated[
        Path, typer.Option(metavar="FILE|DIR", show_default=False, help="Baseline file, or another results folder.")
    ],
    tolerance: Annotated[
        float,
        typer.Option(
            help="Loss of utility that passes: points of accuracy; of other metrics per cent of the baseline's mean."
        ),
    ] = 0.5,
    slowdown: Annotated[
        float, typer.Option(help="Run time that passes, as a multiple of the baseline's; 0: any.")
    ] = 2.0,
    ignore_numerics: Annotated[bool, typer.Option("--ignore-numerics", help="Other final models do not fail.")] = False,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the summary there instead of here.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
    update: Annotated[bool, typer.Option("--update-baseline", help="Make these results the baseline.")] = False,
) -> None:
    """Compare results with a baseline: coverage, utility at equal epsilon, numerics, privacy, run time; exit 1 on a
    regression.
    """
    if not tolerance >= 0 or not slowdown >= 0:
        raise DpflbenchError(f"compare: --tolerance {tolerance:g}, --slowdown {slowdown:g}; allowed: 0 or more")
    found = Store(results).results()
    if update:
        if baseline.is_dir():
            raise DpflbenchError(f"--baseline {baseline}: a folder; --update-baseline writes a file")
        text = dump_baseline(baseline_of(found))
        with writing(baseline):
            write_atomically(baseline, text)
        say(f"Baseline: {baseline}, {baseline.stat().st_size:,} bytes")
        return
    comparison = compared(found, load_baseline(baseline), Limits(tolerance, slowdown or math.inf, not ignore_numerics))
    text = as_markdown(comparison)
    for path, content in ((junit, as_junit(comparison)), (markdown, text)):
        if path:
            with writing(path):
                write_atomically(path, content)
    if markdown:
        for check in comparison.failed:
            say(f"failed  {check.tier}: {check.name}: {check.message}")
        say(f"{len(comparison.checks)} checks, {len(comparison.failed)} failed: {markdown}")
    else:
        typer.echo(text)
    if comparison.failed:
        raise typer.Exit(1)
