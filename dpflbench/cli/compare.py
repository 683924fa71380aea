"""`dpflbench compare`: the gate of a CI build."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.api.folders import read
from dpflbench.cli.options import AsJson
from dpflbench.cli.output import say, say_json
from dpflbench.regression.output import as_junit, as_markdown, as_plain
from dpflbench.results.store import write_atomically, writing


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
    strict: Annotated[
        bool, typer.Option("--strict-numerics", help="Other final models fail, even where utility passes.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the summary there instead of here.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
    update: Annotated[
        bool, typer.Option("--update-baseline", help="Make these results the baseline; they must be verified.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare results with a baseline: coverage, utility at equal epsilon, numerics, privacy, run time; exit 1 on a
    regression.
    """
    folder = read(results)
    if update:
        made = folder.write_baseline(baseline)
        say(f"Baseline: {made}, {made.stat().st_size:,} bytes")
        return
    comparison = folder.compare(baseline, tolerance=tolerance, slowdown=slowdown, strict_numerics=strict)
    text = as_markdown(comparison)
    for path, content in ((junit, as_junit(comparison)), (markdown, text)):
        if path:
            with writing(path):
                write_atomically(path, content)
    if as_json:
        say_json(as_plain(comparison))
    elif markdown:
        for check in comparison.failed:
            say(f"failed  {check.tier}: {check.name}: {check.message}")
        say(f"{len(comparison.checks)} checks, {len(comparison.failed)} failed: {markdown}")
    else:
        typer.echo(text)
    if comparison.failed:
        raise typer.Exit(1)
