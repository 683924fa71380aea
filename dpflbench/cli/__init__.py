"""The command line: one module a command, imported when that command is asked for; exit 0 well, 1 a run
that did not end well or a regression, 2 something to fix, 3 not wrong and not verified.

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
from dpflbench.cli.output import refused, say, say_what_the_terminal_can
from dpflbench.errors import DpflbenchError
from dpflbench.schema import suggest

# name: module and what it does; the command is its function of that name, or its group `app`
COMMANDS = {
    "run": ("run", "Run what a suite asks for and is not there yet; print its table, write its report."),
    "status": ("status", "Show what is done, what failed and why, and what is running at this moment."),
    "clean": ("clean", "Remove what a results folder can do without."),
    "plan": ("plan", "Show the runs of a suite, their noise and their privacy cost; train nothing."),
    "suites": ("suites", "List the suites that come with dpflbench, copy one, or write their schema for an editor."),
    "list": ("list_parts", "List installed parts, their parameters and who supplied them."),
    "report": ("report", "Turn records into tables, figures and one HTML page."),
    "figure": ("figure", "Draw one figure for a paper: its width, font and algorithms."),
    "verify": ("verify", "Recompute every epsilon from the records alone; exit 1 if anything differs."),
    "bundle": ("bundle", "Make one archive of results for others, or check somebody's."),
    "board": ("board", "Build a static site of many bundles: rows with source, proof level and date."),
    "audit": ("audit", "Attack an algorithm's releases; exit 1 if they give away more than was charged."),
    "account": ("account", "Claimed against true epsilon: what noise is really worth."),
    "check": ("check", "Check every part of a plugin; exit 1 if one breaks a rule."),
    "compare": ("compare", "Compare results with a baseline; exit 1 on a regression."),
    "new-plugin": ("new_plugin", "Write a plugin distribution that passes `check` as it is."),
    "data": ("data", "List data sets, or get one."),
}
# shown below the help of a command
EXAMPLES = {
    "run": (
        "dpflbench run smoke",
        "dpflbench run heterogeneity --jobs auto -o results/main",
        "dpflbench run my-suite.yaml --set federation.rounds=50 --set seeds=3",
        "dpflbench run smoke --set 'axes.privacy.epsilon.high=[1, 6]'",
    ),
    "status": ("dpflbench status results/heterogeneity",),
    "clean": ("dpflbench clean results/heterogeneity --dry-run",),
    "plan": ("dpflbench plan heterogeneity", "dpflbench plan my-suite.yaml --set federation.rounds=50"),
    "suites": (
        "dpflbench suites",
        "dpflbench suites copy heterogeneity mine.yaml",
        "dpflbench suites schema suite.schema.json",
    ),
    "list": ("dpflbench list", "dpflbench list algorithms"),
    "report": (
        "dpflbench report results/heterogeneity",
        "dpflbench report results/one results/two -o both -f html -f latex",
    ),
    "figure": (
        "dpflbench figure results/heterogeneity rounds --width column",
        "dpflbench figure results/heterogeneity rounds --only MY-IDEA",
    ),
    "verify": ("dpflbench verify results/heterogeneity",),
    "bundle": (
        "dpflbench bundle results/heterogeneity --source 'A. Author, Some University'",
        "dpflbench bundle check theirs.dpflbench.tar.xz --replay 5",
    ),
    "board": ("dpflbench board board/*.tar.xz reports/heterogeneity -o site",),
    "audit": ("dpflbench audit all", "dpflbench audit MY-IDEA --with rank=3 --mechanism laplace"),
    "account": ("dpflbench account gaussian --sigma 2 --uses 40 --delta 1e-5 --claimed 3",),
    "check": ("dpflbench check my_plugin", "dpflbench check all --quiet"),
    "compare": (
        "dpflbench compare results/regression --baseline reports/baseline.json",
        "dpflbench compare results/mine --baseline mine.json --update-baseline",
    ),
    "new-plugin": ("dpflbench new-plugin my-idea",),
    "data": ("dpflbench data", "dpflbench data --data ~/data get fashion_mnist"),
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
        command = get_command(found)
        # \b: lines stay as they are
        command.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in EXAMPLES.get(cmd_name, ()))])
        return command

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Names of commands with what they do, without a look at the modules; options as everywhere."""
        options = super().shell_complete(ctx, "-")
        item = type(options[0])  # where typer keeps this class differs from version to version
        commands = [item(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return commands if incomplete[:1] != "-" else super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list in `--help`, without a look at the modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
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
            say(f"dpflbench: {line}", err=True)
        sys.exit(2)
    except OSError:
        reason = refused(sys.stdout)
        if not reason:
            raise
        print(f"dpflbench: standard output: cannot be written ({reason})", file=sys.stderr)  # noqa: T201
        sys.exit(2)
