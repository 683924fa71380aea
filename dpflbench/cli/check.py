"""`dpflbench check`: does a plugin keep the rules of its interfaces?"""

from typing import Annotated

import typer

from dpflbench.catalogue import load
from dpflbench.cli.options import DataRoot, Without, data_root
from dpflbench.cli.output import say
from dpflbench.testing import examine


def check(
    plugin: Annotated[
        str,
        typer.Argument(
            metavar="PLUGIN|all", show_default=False, help="Name of a plugin or distribution, or all that is installed."
        ),
    ],
    data: DataRoot = None,
    without: Without = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only failures and the verdict.")] = False,
) -> None:
    """Check every part of a plugin: interface, shapes, determinism, plans, budgets, pickling; exit 1 if one breaks a
    rule.
    """
    outcomes = examine(plugin, load(without or ()), data_root(data))
    for outcome in outcomes:
        what = f"{outcome.part.kind[:-1]} {outcome.part.name}"
        if outcome.status == "failed":
            say(f"failed  {outcome.message}")
        elif not quiet:
            why = f": {outcome.message}" if outcome.message else ""
            say(f"{outcome.status:<6}  {what} ({outcome.part.plugin}, {outcome.seconds:.1f} s){why}")
    count = {status: sum(o.status == status for o in outcomes) for status in ("ok", "partly", "failed")}
    say(f"{len(outcomes)} parts: {count['ok']} ok, {count['partly']} not wholly checked, {count['failed']} failed")
    if count["failed"]:
        raise typer.Exit(1)
