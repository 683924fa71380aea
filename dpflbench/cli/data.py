"""`dpflbench data`: every data set, where it was found, whether it is whole, and how to get it; `data get NAME`
downloads one.
"""

import inspect
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dpflbench.catalogue import load
from dpflbench.cli.options import DataRoot, Without, data_root
from dpflbench.cli.output import printable, say
from dpflbench.errors import DataError
from dpflbench.schema import parameters
from dpflbench.tasks.cache import cache_folder

app = typer.Typer(
    help="List data sets, or get one.", invoke_without_command=True, rich_markup_mode=None, add_completion=False
)


@app.callback()
def list_data(context: typer.Context, data: DataRoot = None, without: Without = None) -> None:
    """List every data set: found where, complete or not, digest, licence, and what gets it."""
    if context.invoked_subcommand is not None:
        context.obj = (data, without)
        return
    root = data_root(data)
    say(f"data folder: {root if root is not None else 'none (set $DPFLBENCH_DATA or --data)'}")
    say()
    for name, part in sorted(load(without or ()).parts["datasets"].items()):
        _show(name, part.factory, root)
    _show_cache()


@app.command("get")
def get(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a data set.", show_default=False)],
    data: DataRoot = None,
) -> None:
    """Download a data set into the data folder, through torchvision where it has a download."""
    outer, without = context.obj or (None, None)
    part = load(without or ()).get("datasets", name)
    needed = _needed(part.factory)
    if needed:
        raise DataError(f"data get {name}: it is your own file ({', '.join(needed)}); there is nothing to download")
    dataset = part.factory()
    # Unlike everywhere else the folder may be a new one: writing into it is what was asked for.
    named = data or outer or (Path(os.environ["DPFLBENCH_DATA"]) if os.environ.get("DPFLBENCH_DATA") else None)
    known = dataset.availability(data_root(named) if named is not None and named.exists() else None)
    if known.found:
        say(f"{name}: already there ({known.where})")
    elif not known.downloadable or not hasattr(dataset, "download"):
        raise DataError(f"data get {name}: no download; get it: {known.get}")
    elif named is None:
        raise DataError(f"data get {name}: no data folder given; set $DPFLBENCH_DATA or --data")
    else:
        _fetch(dataset, name, named)
    _show(name, part.factory, named)


def _fetch(dataset: Any, name: str, root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"data get {name}: {root} cannot be made ({error})") from error
    dataset.download(root)
    dataset.digest(root)  # refuses a download that is not what it should be


def _show_cache() -> None:
    kept = [path.stat().st_size for path in cache_folder().glob("*.pt")]
    say()
    say(f"cache: {cache_folder()}, {len(kept)} files, {sum(kept) / 1e6:.0f} MB; may be deleted at any time")


def _needed(factory: Any) -> list[str]:
    """Parameters without a default: such a data set is the user's own."""
    return [name for name, (_, default) in parameters(factory).items() if default is inspect.Parameter.empty]


def _show(name: str, factory: Any, root: Path | None) -> None:
    """One data set on a few lines."""
    needed = _needed(factory)
    head, lines = (f"your own file: give {', '.join(needed)} in the suite", {}) if needed else _state(factory(), root)
    say(f"{printable(name):<14} {head}")
    for key, value in lines.items():
        say(f"    {key:<10} {value}")


def _state(dataset: Any, root: Path | None) -> tuple[str, dict[str, str]]:
    """Complete, missing or damaged, and the facts below it; how to get it only where that is needed."""
    known = dataset.availability(root)
    facts = {"where": known.where, "licence": known.licence}
    if not known.found:
        return known.detail, {**facts, "get": known.get}
    try:
        return known.detail, {**facts, "digest": f"sha256 {dataset.digest(root)}"}
    except DataError as error:
        return f"damaged: {error}", {**facts, "get": known.get}
