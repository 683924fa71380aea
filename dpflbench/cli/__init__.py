"""The command line: one file a command, registered here; exit 0 well, 1 a failed run or a regression, 2 something to
fix.

Command modules import nothing heavy at the top: `--help` and a misspelt file name answer at once.
"""

import sys
from typing import Annotated

import typer

from dpflbench import __version__
from dpflbench.cli import (
    account,
    audit,
    check,
    clean,
    compare,
    data,
    list_parts,
    new_plugin,
    plan,
    report,
    run,
    status,
    verify,
)
from dpflbench.cli.output import printable
from dpflbench.errors import DpflbenchError

app = typer.Typer(
    help="Which differentially private federated learning algorithm learns best at the same, verified privacy budget?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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


app.command("run")(run.run)
app.command("status")(status.status)
app.command("clean")(clean.clean)
app.command("plan")(plan.plan)
app.command("list")(list_parts.list_parts)
app.command("report")(report.report)
app.command("verify")(verify.verify)
app.command("audit")(audit.audit)
app.add_typer(account.app, name="account")
app.command("check")(check.check)
app.command("compare")(compare.compare)
app.command("new-plugin")(new_plugin.new_plugin)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run a command; what the user can fix is printed as it is, without a traceback."""
    try:
        app()
    except DpflbenchError as e:
        for line in str(e).splitlines():
            print(f"dpflbench: {printable(line)}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
