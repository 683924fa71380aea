"""Options that several commands share, each with one name and one help text."""

import glob
from pathlib import Path
from typing import Annotated, Literal

import typer

from dpflbench.api.options import data_root as data_root  # what DataRoot means
from dpflbench.shipped import names


def _suites(incomplete: str) -> list[str]:
    """Names of suites and paths of files that begin like this, for a shell."""
    files = [f"{path}/" if path.is_dir() else str(path) for path in Path().glob(f"{glob.escape(incomplete)}*")]
    return [name for name in names() if name.startswith(incomplete)] + [
        file for file in sorted(files) if file.endswith(("/", ".yaml", ".yml"))
    ]


SuiteFile = Annotated[
    Path,
    typer.Argument(
        metavar="SUITE",
        help="Suite file (YAML), or the name of one that `dpflbench suites` lists.",
        show_default=False,
        autocompletion=_suites,
    ),
]
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
KernelsOf = Annotated[
    Literal["torch", "native"],
    typer.Option(
        "--kernels",
        help="What computes convolutions on a CPU. native: compiled at the start by the machine's C compiler; small "
        "models are two to five times faster with eight samples a step or more. Part of the result: other last bits.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead, for scripts.")]
