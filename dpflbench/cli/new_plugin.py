"""`dpflbench new-plugin`: a skeleton to start from."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.catalogue import load
from dpflbench.cli.output import say
from dpflbench.errors import DpflbenchError
from dpflbench.results.store import writing
from dpflbench.scaffold import names_of, write_skeleton


def new_plugin(
    name: Annotated[str, typer.Argument(help="What it is called, e.g. my-idea.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="New folder.  [default: dpflbench-NAME]")
    ] = None,
) -> None:
    """Write a complete plugin distribution that passes `dpflbench check` as it is."""
    names = names_of(name)
    _free(names.plugin, names.label)
    with writing(out or Path(names.distribution), "; give another folder by --out"):
        root, files = write_skeleton(name, out)
    for file in files:
        say(root / file)
    say()
    say(f'Next: pip install -e "{root}[dev]" && dpflbench check {names.plugin}')


def _free(plugin: str, label: str) -> None:
    """Refuse a name that an installed plugin already uses: the skeleton could not be installed beside it."""
    parts = load().parts
    taken = [p for p in (parts["aggregators"].get(plugin), parts["algorithms"].get(label)) if p]
    plugins = {p.plugin: p for kind in parts.values() for p in kind.values()}
    taken += [plugins[plugin]] if plugin in plugins else []
    if taken:
        raise DpflbenchError(
            f"new-plugin {plugin}: plugin '{taken[0].plugin}' of {taken[0].distribution} has that name; take another"
        )
