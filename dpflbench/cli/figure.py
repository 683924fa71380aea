"""`dpflbench figure`: one figure of a report at the size, in the font and with the algorithms a paper wants."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.api.folders import read
from dpflbench.cli.output import say
from dpflbench.report.charts.files import PAPER

Results = Annotated[Path, typer.Argument(metavar="RESULTS", show_default=False, help="Results folder.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        show_default=False,
        help="Which figure, as its file in a report is called: rounds, who-pays, ...",
    ),
]
Width = Annotated[
    str, typer.Option(metavar="WIDTH", help="column (3.4 inches), text (7 inches) or a number of inches.")
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="ALGORITHM", help="Show this algorithm; may be repeated.  [default: all]")
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="AXIS=VALUE", help="Show settings with this value, e.g. privacy.mechanism=gaussian; may be repeated."
    ),
]


def figure(
    results: Results,
    name: Name,
    width: Width = "column",
    only: Only = None,
    where: Where = None,
    font: Annotated[str, typer.Option(metavar="FAMILY", help="Any font of this machine.")] = PAPER.font,
    size: Annotated[float, typer.Option(metavar="POINTS", min=4, max=24, help="Size of letters.")] = PAPER.letters,
    across: Annotated[int, typer.Option(min=0, help="Panels in a row; 0: as many as fit.")] = 0,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", "-f", metavar="FORMAT", help="svg, png or pdf; may be repeated.  [default: pdf]"),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where the files go.")] = Path(),
) -> None:
    """Draw one figure for a paper."""
    drawn = read(results).figure(
        name, width=width, only=only or (), where=where or (), font=font, size=size, across=across
    )
    for path in drawn.save(out, formats or ["pdf"]):
        say(path)
    say(drawn.caption)
