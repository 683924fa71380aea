"""`dpflbench report`: results to tables, figures and one HTML page. Never trains."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dpflbench.catalogue import Catalogue, load
from dpflbench.cli.options import Without
from dpflbench.cli.output import say
from dpflbench.report.merge import Folder, merge
from dpflbench.report.write import FORMATS, check_formats, summary_table, write_report
from dpflbench.results.cells import Results
from dpflbench.results.store import Store, writing

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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the table.")] = False,
) -> None:
    """Turn records into tables, figures and one HTML page."""
    chosen = formats or FORMATS
    check_formats(chosen)
    merged = merge([Folder(str(path), Store(path).results()) for path in results])
    target = out or (results[0] / "report" if len(results) == 1 else Path("report"))
    if not quiet:
        typer.echo(summary_table(merged))
    paths = write(merged, target, chosen, load(without) if without else None)
    say(f"Report: {paths[0] if paths else target}")


def write(
    results: Results, target: Path, formats: Sequence[str] = FORMATS, catalogue: Catalogue | None = None
) -> list[Path]:
    """Write a report; DpflbenchError where the disk does not take it."""
    with writing(target, "; the records are whole, `dpflbench report` makes the report anew"):
        return write_report(results, target, formats, catalogue)
