"""`dpflbench suites`: the suites that come with the package; `suites copy NAME` makes a file of one, to be edited, and
`suites schema` what an editor needs for that.
"""

import json
import shutil
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from dpflbench import shipped
from dpflbench.catalogue import load
from dpflbench.cli.options import Without
from dpflbench.cli.output import say
from dpflbench.errors import DpflbenchError
from dpflbench.planning import count_runs
from dpflbench.results.store import write_atomically, writing
from dpflbench.suite_json_schema import json_schema
from dpflbench.suite_reading import load as load_suite

app = typer.Typer(
    help="List the suites that come with dpflbench, copy one, or write their schema for an editor.",
    invoke_without_command=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def list_suites(context: typer.Context, without: Without = None) -> None:
    """List every suite that comes with dpflbench: its name for `run` and `plan`, how many runs it has, what it is."""
    if context.invoked_subcommand is not None:
        return
    catalogue, names = load(without or ()), shipped.names()
    wide = max(map(len, names))
    width = max(60, shutil.get_terminal_size((132, 24)).columns)
    typer.echo(f"{'name':{wide}}  {'runs':>5}  what it is")
    for name in names:
        suite = load_suite(Path(name))
        start = f"{name:{wide}}  {count_runs(suite, catalogue):5}  "
        lines = textwrap.wrap(suite.description, max(30, width - len(start))) or [""]
        typer.echo("\n".join([start + lines[0], *(" " * len(start) + line for line in lines[1:])]))


@app.command("copy")
def copy(
    name: Annotated[str, typer.Argument(help="Its name.", show_default=False, autocompletion=lambda: shipped.names())],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Where to write it.  [default: NAME.yaml here]", show_default=False),
    ] = None,
) -> None:
    """Write a suite to a file of your own; never over one that is there."""
    text = shipped.copy_of(name)
    target = file or Path(f"{name.rpartition('/')[2]}.yaml")
    if target.exists():
        raise DpflbenchError(f"{target}: is there already; give another file: dpflbench suites copy {name} FILE")
    with writing(target):
        write_atomically(target, text)
    say(f"{target}: edit it, then `dpflbench plan {target}` and `dpflbench run {target}`")


@app.command("schema")
def schema(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to write it.  [default: to standard output]")
    ] = None,
    without: Without = None,
) -> None:
    """Write the JSON Schema of suites, with every installed part: editors complete and check suites by it. A suite
    names it in its first line: # yaml-language-server: $schema=suite.schema.json
    """
    text = json.dumps(json_schema(load(without or ())), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if file is None:
        typer.echo(text, nl=False)
        return
    with writing(file):
        write_atomically(file, text)
    say(f"{file}: name it in the first line of a suite: # yaml-language-server: $schema={file}")
