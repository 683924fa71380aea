"""`dpflbench status`: how far a suite is, from any terminal that sees its results folder."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from tabulate import tabulate

from dpflbench.cli.output import printable, say
from dpflbench.execution.display import ENDED, running_row
from dpflbench.execution.progress import alive, duration
from dpflbench.results.store import Store

Folder = Annotated[Path, typer.Argument(metavar="RESULTS", help="Results folder.", show_default=False)]


def status(results: Folder) -> None:
    """Show what is done, what failed and why, and what is running at this moment."""
    store = Store(results)
    found = store.results()
    total, named = len(found.manifest.runs), found.manifest.titles
    counts = Counter(str(record.status) for record in found.records.values())
    parts = ", ".join(f"{counts[kind]} {kind}" for kind in ENDED if counts[kind])
    say(f"{found.manifest.name}: {len(found.records)} of {total} runs have a record{': ' if parts else ''}{parts}")
    for record in found.records.values():
        if record.status != "done":
            say(f"{record.status}: {record.id} {named[record.id]}: {record.reason}")
    for problem in found.problems:
        say(f"damaged, to be repeated: {problem.text}")
    aside = len(list((results / "records" / "set-aside").glob("*.json")))
    if aside:
        say(f"{aside} damaged records were set aside earlier; `dpflbench clean` removes them")
    processes = alive(store)
    for process in processes:
        ago, left = max(0.0, time.time() - process.updated), process.seconds_left
        soon = "" if left is None else f", about {duration(left)} left"
        say()
        say(f"process {process.pid} on {process.host}, heard of {duration(ago)} ago{soon}:")
        rows = [[printable(text) for text in running_row(row)] for row in process.running]
        headers = ["run", "round", "utility", "rounds/s", "where"]
        typer.echo(tabulate(rows, headers, tablefmt="simple", disable_numparse=True))
    if not processes and len(found.records) < total:
        say("nothing is running here; `dpflbench run` does what is missing")
