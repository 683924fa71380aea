"""`dpflbench list`: every part of every plugin, what it is, its parameters with their values, and who supplied it."""

import inspect
import shutil
import textwrap
import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from dpflbench.catalogue import Part, load
from dpflbench.cli.options import Without
from dpflbench.cli.output import printable
from dpflbench.described import description
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import KINDS
from dpflbench.schema import NAMES, parameters, suggest


def list_parts(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="A kind of part, such as algorithms, models or partitions; all if not given.",
            show_default=False,
            autocompletion=lambda: list(KINDS),
        ),
    ] = None,
    without: Without = None,
) -> None:
    """List installed parts: what each is, its parameters with default and allowed values, and the distribution that
    supplied it.
    """
    if kind is not None and kind not in KINDS:
        raise DpflbenchError(f"list {kind}: unknown; {suggest(kind, KINDS)}")
    catalogue = load(without or ())
    width = max(60, shutil.get_terminal_size((100, 24)).columns)
    for each in [kind] if kind else KINDS:
        typer.echo(textwrap.fill(f"{each}: {KINDS[each].decides}", width))
        for _, part in sorted(catalogue.parts[each].items(), key=lambda item: item[0].lower()):
            typer.echo("\n".join(_lines(part, width)))
        typer.echo("")


def _lines(part: Part, width: int) -> list[str]:
    """A part in a few lines: name and who supplied it, what it is, its parameters."""
    supplier = f"{part.distribution} {part.version}, plugin {part.plugin}"
    head = f"  {printable(part.name)}"
    gap = max(2, width - len(head) - len(supplier) - 1)
    texts = [description(part.factory), *_size(part), _parameters(part.factory)]
    lines = [f"{head}{' ' * gap}{printable(supplier)}"]
    for text in filter(None, texts):
        lines += textwrap.wrap(printable(text), width, initial_indent="      ", subsequent_indent="      ")
    return lines


def _parameters(factory: Any) -> str:
    return ", ".join(_parameter(name, *given) for name, given in parameters(factory).items())


def _parameter(name: str, annotation: Any, default: Any) -> str:
    """`probe=received (or literal)`, `path (a text)`, `file=null (or a text)`: as a suite would write it."""
    others = [text for text in allowed(annotation) if text != _written(default)]
    if default is inspect.Parameter.empty:
        return f"{name} ({' or '.join(others)})" if others else name
    # a number says itself what else may stand there; a word, a null or a switch does not
    telling = others if default is None or not isinstance(default, int | float) else []
    return f"{name}={_written(default)}" + (f" (or {', '.join(telling)})" if telling else "")


def allowed(annotation: Any) -> list[str]:
    """What may be written for a parameter: its values where they can be counted, else what kind of value."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return [_written(value) for value in arguments]
    if origin in (typing.Union, types.UnionType):
        return list(dict.fromkeys(text for option in arguments for text in allowed(option)))
    if origin in (list, tuple, Sequence):
        return ["a list"]
    return [NAMES[annotation]] if annotation in NAMES else []


def _written(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _size(part: Part) -> list[str]:
    """For a model: its parameter count on its default input, where it names one."""
    shape, outputs = (getattr(part.factory, name, None) for name in ("default_input", "default_outputs"))
    if part.kind != "models" or shape is None or outputs is None:
        return []
    count = sum(p.numel() for p in part.factory().build(tuple(shape), outputs).parameters())
    return [f"{count:,} trainable on {'×'.join(map(str, shape))}"]
