"""`dpflbench status`: how far a suite is, from any terminal that sees its results folder."""

import shutil
from pathlib import Path
from typing import Annotated

import typer
from tabulate import tabulate

from dpflbench.api.status import heard_of, status_of
from dpflbench.cli.options import AsJson
from dpflbench.cli.output import printable, say, say_json
from dpflbench.execution.display import running_table
from dpflbench.results.store import Store

Folder = Annotated[Path, typer.Argument(metavar="RESULTS", help="Results folder.", show_default=False)]


def status(results: Folder, as_json: AsJson = False) -> None:
    """Show what is done, what failed and why, and what is running at this moment."""
    found = status_of(Store(results))
    if as_json:
        say_json(found.json())
        return
    for line in found.lines:
        say(line)
    for process in found.processes:
        say()
        say(heard_of(process))
        width = shutil.get_terminal_size((132, 24)).columns
        headers, rows = running_table(process.running, printable, width, padding=4)  # of which tabulate adds two
        typer.echo(tabulate(rows, headers, tablefmt="simple", disable_numparse=True))
    if found.idle:
        say("nothing is running here; `dpflbench run` does what is missing")
