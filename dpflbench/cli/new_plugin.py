"""`dpflbench new-plugin`: a skeleton to start from."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.catalogue import load
from dpflbench.cli.output import say
from dpflbench.errors import DpflbenchError
from dpflbench.results.store import writing
from dpflbench.scaffold import DEFAULT, Names, names_of, template_of, write_skeleton
from dpflbench.scaffold_kinds import TEMPLATES, Template


def new_plugin(
    name: Annotated[str, typer.Argument(help="What it is called, e.g. my-idea.", show_default=False)],
    kind: Annotated[
        str, typer.Option("--kind", "-k", metavar="KIND", help=f"What it brings: {', '.join(TEMPLATES)}.")
    ] = DEFAULT,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="New folder.  [default: dpflbench-NAME]")
    ] = None,
) -> None:
    """Write a complete plugin distribution that passes `dpflbench check` as it is."""
    names = names_of(name)
    _free(names, template_of(kind))
    with writing(out or Path(names.distribution), "; give another folder by --out"):
        root, files = write_skeleton(name, out, kind)
    for file in files:
        say(root / file)
    say()
    say(f'Next: pip install -e "{root}[dev]" && dpflbench check {names.plugin}')


def _free(names: Names, template: Template) -> None:
    """Refuse a name that an installed plugin already uses: the skeleton could not be installed beside it."""
    parts = load().parts
    taken = [p for p in (parts[template.hook].get(names.plugin), parts["algorithms"].get(names.label)) if p]
    plugins = {p.plugin: p for kind in parts.values() for p in kind.values()}
    taken += [plugins[names.plugin]] if names.plugin in plugins else []
    if taken:
        found = f"plugin '{taken[0].plugin}' of {taken[0].distribution}"
        raise DpflbenchError(f"new-plugin {names.plugin}: {found} has that name; take another")
