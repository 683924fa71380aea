"""The command line: one module a command, imported when that command is asked for; exit 0 well, 1 a failed run or a
regression, 2 something to fix.

So command modules import what they need at the top, and `--help` answers at once. `run` and `plan` look at the suite
before they import the rest of themselves (`run_suite`, `plan_table`): a misspelt file name answers at once too.
"""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dpflbench import __version__
from dpflbench.cli.output import printable, say_what_the_terminal_can
from dpflbench.errors import DpflbenchError
from dpflbench.schema import suggest

# name: module and what it does; the command is its function of that name, or its group `app`
COMMANDS = {
    "run": ("run", "Run what a suite asks for and is not there yet; print its table, write its report."),
    "status": ("status", "Show what is done, what failed and why, and what is running at this moment."),
    "clean": ("clean", "Remove what a results folder can do without."),
    "plan": ("plan", "Show the runs of a suite, their noise and their privacy cost; train nothing."),
    "list": ("list_parts", "List installed parts, their parameters and who supplied them."),
    "report": ("report", "Turn records into tables, figures and one HTML page."),
    "verify": ("verify", "Recompute every epsilon from the records alone; exit 1 if anything differs."),
    "audit": ("audit", "Attack an algorithm's releases; exit 1 if they give away more than was charged."),
    "account": ("account", "Claimed against true epsilon: what noise is really worth."),
    "check": ("check", "Check every part of a plugin; exit 1 if one breaks a rule."),
    "compare": ("compare", "Compare results with a baseline; exit 1 on a regression."),
    "new-plugin": ("new_plugin", "Write a plugin distribution that passes `check` as it is."),
    "data": ("data", "List data sets, or get one."),
}


class Commands(TyperGroup):
    """The commands of the table above, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every name."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; a usage error if there is none."""
        if cmd_name not in COMMANDS:
            ctx.fail(f"no such command '{cmd_name}'; {suggest(cmd_name, COMMANDS)}")
        name = COMMANDS[cmd_name][0]
        module = import_module(f"dpflbench.cli.{name}")
        found = getattr(module, "app", None)
        if found is None:
            found = typer.Typer(rich_markup_mode=None, add_completion=False)
            found.command(cmd_name)(getattr(module, name))
        return get_command(found)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list in `--help`, without a look at the modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text needs no fonts and no 200 ms of imports
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"dpflbench {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Which differentially private federated learning algorithm learns best at the same, verified privacy budget?"""


def main() -> None:
    """Run a command; what the user can fix is printed as it is, without a traceback."""
    say_what_the_terminal_can()
    try:
        app()
    except DpflbenchError as e:
        for line in str(e).splitlines():
            print(f"dpflbench: {printable(line)}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
