"""`dpflbench clean`: a results folder without what it can do without."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.cli.output import say
from dpflbench.execution.cleaning import leftovers, remove
from dpflbench.results.store import Store

Folder = Annotated[Path, typer.Argument(metavar="RESULTS", help="Results folder.", show_default=False)]
Stale = Annotated[
    bool, typer.Option("--stale", help="Also records and checkpoints that the suite of the folder does not ask for.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would go.")]


def clean(results: Folder, stale: Stale = False, dry_run: DryRun = False) -> None:
    """Remove records that were set aside, files that were never finished and checkpoints of finished runs; say what
    went.
    """
    found, size = list(leftovers(Store(results), stale)), 0
    for leftover in found:
        size += 0 if dry_run else remove(leftover)
        say(f"{'would remove' if dry_run else 'removed'} {leftover.path}: {leftover.reason}")
    if not found:
        say("Nothing to remove.")
    elif not dry_run:
        say(f"{len(found)} removed, {size / 1e6:.2f} MB.")
