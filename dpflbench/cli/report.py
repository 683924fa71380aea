"""`dpflbench report`: results to tables, figures and one HTML page. Never trains."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.api.folders import read
from dpflbench.cli.options import Without
from dpflbench.cli.output import say
from dpflbench.report.write import FORMATS, check_formats

Folders = Annotated[
    list[Path],
    typer.Argument(
        metavar="RESULTS...",
        show_default=False,
        help="Results folders; several are merged if only declared axes differ.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Where the report goes.  [default: RESULTS/report, for several folders ./report]",
    ),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="html, markdown, csv, latex, parquet, svg, png or pdf; may be repeated.  [default: all]",
    ),
]


def report(
    results: Folders,
    out: Out = None,
    formats: Formats = None,
    without: Without = None,
    why: Annotated[bool, typer.Option("--why", help="Also print what explains the table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the table.")] = False,
) -> None:
    """Turn records into tables, figures and one HTML page."""
    check_formats(formats or FORMATS)
    folder = read(*results, without=without or ())
    if not quiet:
        typer.echo(folder.summary(why))
    paths = folder.report(out, formats or FORMATS)
    say(f"Report: {paths[0] if paths else out or folder.target}")
