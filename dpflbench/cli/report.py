"""`dpflbench report`: results to tables, figures and one HTML page. Never trains."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.cli.options import Without

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
    from dpflbench.catalogue import load
    from dpflbench.cli.output import printable
    from dpflbench.report.merge import Folder, merge
    from dpflbench.report.write import FORMATS, check_formats, summary_table, write_report
    from dpflbench.results.store import Store

    chosen = formats or FORMATS
    check_formats(chosen)
    merged = merge([Folder(str(path), Store(path).results()) for path in results])
    target = out or (results[0] / "report" if len(results) == 1 else Path("report"))
    if not quiet:
        typer.echo(summary_table(merged))
    paths = write_report(merged, target, chosen, load(without) if without else None)
    typer.echo(f"Report: {printable(paths[0] if paths else target)}")
