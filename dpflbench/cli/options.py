"""Options that several commands share, each with one name and one help text."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dpflbench.errors import DataError

SuiteFile = Annotated[Path, typer.Argument(help="Suite file (YAML).", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key of the suite, e.g. federation.rounds=50. May be repeated."
    ),
]
DataRoot = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Folder with data sets.  [default: $DPFLBENCH_DATA]")
]
Without = Annotated[
    list[str] | None, typer.Option("--without", metavar="PLUGIN", help="Go on without a plugin. May be repeated.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]


def data_root(given: Path | None) -> Path | None:
    """The folder with data sets: the option, else the environment, else none."""
    named = given or (Path(os.environ["DPFLBENCH_DATA"]) if os.environ.get("DPFLBENCH_DATA") else None)
    if named is not None and not named.is_dir():
        source = "--data" if given else "$DPFLBENCH_DATA"
        raise DataError(f"{source}: {named} is not a folder")
    return named
