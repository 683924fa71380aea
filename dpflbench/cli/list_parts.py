"""`dpflbench list`: every part of every plugin, its parameters and who supplied it."""

import inspect
from typing import Annotated, Any

import typer
from tabulate import tabulate

from dpflbench.catalogue import load
from dpflbench.cli.options import Without
from dpflbench.cli.output import printable
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import KINDS
from dpflbench.schema import parameters, suggest


def list_parts(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="A kind of part, such as algorithms, models or partitions; all if not given.", show_default=False
        ),
    ] = None,
    without: Without = None,
) -> None:
    """List installed parts with their parameters, defaults and the distribution that supplied them."""
    if kind is not None and kind not in KINDS:
        raise DpflbenchError(f"list {kind}: unknown; {suggest(kind, KINDS)}")
    catalogue = load(without or ())
    for each in [kind] if kind else KINDS:
        rows = []
        for _, part in sorted(catalogue.parts[each].items(), key=lambda item: item[0].lower()):
            supplier = f"{part.distribution} {part.version}", part.plugin
            texts = part.name, _parameters(part.factory), *_extra(each, part.factory), *supplier
            rows.append([printable(text) for text in texts])
        extra = ["trainable"] if each == "models" else []
        headers = [each[:-1], "parameters (defaults)", *extra, "supplied by", "plugin"]
        typer.echo(tabulate(rows, headers, tablefmt="simple", maxcolwidths=[None, 60] + [None] * (len(headers) - 2)))
        typer.echo("")


def _parameters(factory: Any) -> str:
    shown = []
    for name, (_, default) in parameters(factory).items():
        shown.append(name if default is inspect.Parameter.empty else f"{name}={default!r}")
    return ", ".join(shown) or "–"


def _extra(kind: str, factory: Any) -> list[str]:
    """For a model: its parameter count on its default input, where it names one."""
    if kind != "models":
        return []
    shape, outputs = getattr(factory, "default_input", None), getattr(factory, "default_outputs", None)
    if shape is None or outputs is None:
        return ["?"]
    count = sum(p.numel() for p in factory().build(tuple(shape), outputs).parameters())
    return [f"{count:,} on {'×'.join(map(str, shape))}"]
