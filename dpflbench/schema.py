"""Plain mappings to typed objects: a factory's keyword parameters are its schema. Collects problems instead of stopping
at the first.

Used for every section of a suite and for every part of every plugin: a frozen dataclass is its own factory.
"""

import dataclasses
import difflib
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

INVALID = object()  # stands for a value whose problem has been noted


def suggest(word: str, allowed: Iterable[str]) -> str:
    """The tail of a message about an unknown word: a near miss, or all that is allowed."""
    known = sorted(map(str, allowed))
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"allowed: {', '.join(known) or 'nothing'}"


def parameters(factory: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Name → (annotation, default) of a factory's parameters; the default is `inspect.Parameter.empty` where there is
    none.
    """
    return _remembered(factory) if isinstance(factory, Hashable) else _parameters(factory)


def _parameters(factory: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    target = factory.__init__ if inspect.isclass(factory) else factory
    hints = typing.get_type_hints(target)
    return {
        name: (hints.get(name, Any), p.default)
        for name, p in inspect.signature(factory).parameters.items()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


_remembered = functools.cache(_parameters)  # a plan asks hundreds of times for the same few


def bind(factory: Callable[..., Any], given: Any, path: str, problems: list[str]) -> dict[str, Any] | None:
    """All keyword arguments of a factory, defaults filled in; None if anything is wrong with what was given."""
    if not isinstance(given, Mapping):
        problems.append(f"{path}: expected a mapping, found {_show(given)}")
        return None
    before, schema, bound = len(problems), parameters(factory), {}
    for name in given:
        if name not in schema:
            problems.append(f"{join(path, name)}: unknown; {suggest(name, schema)}")
    for name, (annotation, default) in schema.items():
        if name in given:
            bound[name] = convert(given[name], annotation, join(path, name), problems)
        elif default is inspect.Parameter.empty:
            problems.append(f"{join(path, name)}: missing")
        else:
            bound[name] = default
    return bound if len(problems) == before else None


def build(factory: Callable[..., Any], given: Any, path: str, problems: list[str]) -> Any:
    """What the factory makes of a mapping; INVALID (and a problem for each reason) where it cannot."""
    bound = bind(factory, given, path, problems)
    return INVALID if bound is None else call(factory, bound, path, problems)


def call(factory: Callable[..., Any], bound: Mapping[str, Any], path: str, problems: list[str]) -> Any:
    """factory(**bound), a ValueError or DpflbenchError of its own turned into a problem with the path."""
    from dpflbench.errors import DpflbenchError

    try:
        return factory(**bound)
    except (ValueError, DpflbenchError) as e:
        text = str(e)
        head = re.match(r"(\w+): ", text)  # "high: must be above low" belongs to that parameter's path
        problems.append(f"{path}.{text}" if path and head and head[1] in bound else f"{path}: {text}" if path else text)
        return INVALID


def convert(value: Any, annotation: Any, path: str, problems: list[str]) -> Any:
    """The value as the annotated type, or INVALID with a problem noted. Never guesses: '3' is no integer."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or isinstance(annotation, typing.TypeVar):
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, args, path, problems)
    if origin is Literal:
        if value in args and type(value) in {type(a) for a in args}:
            return value
        problems.append(f"{path}: found {_show(value)}; {suggest(value, args)}")
        return INVALID
    if origin in (list, tuple, Sequence):
        return _convert_sequence(value, origin, args, path, problems)
    if origin in (dict, Mapping) or annotation in (dict, Mapping):
        return _convert_mapping(value, args, path, problems)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return build(annotation, value, path, problems)
    return _convert_scalar(value, annotation, path, problems)


def _convert_scalar(value: Any, annotation: Any, path: str, problems: list[str]) -> Any:
    if annotation is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isnan(value):
            problems.append(f"{path}: found NaN; expected a number")
            return INVALID
        return float(value)
    if annotation is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if annotation in (bool, str) and isinstance(value, annotation):
        return value
    if annotation is Path and isinstance(value, str | Path):
        return Path(value)
    if annotation is type(None) and value is None:
        return None
    problems.append(f"{path}: expected {_name(annotation)}, found {_show(value)}")
    return INVALID


def _convert_union(value: Any, options: tuple[Any, ...], path: str, problems: list[str]) -> Any:
    for option in options:
        attempt: list[str] = []
        converted = convert(value, option, path, attempt)
        if not attempt:
            return converted
    problems.append(f"{path}: expected {' or '.join(map(_name, options))}, found {_show(value)}")
    return INVALID


def _convert_sequence(value: Any, origin: Any, args: tuple[Any, ...], path: str, problems: list[str]) -> Any:
    if not isinstance(value, list | tuple):
        problems.append(f"{path}: expected a list, found {_show(value)}")
        return INVALID
    fixed = origin is tuple and args and args[-1] is not Ellipsis
    if fixed and len(value) != len(args):
        problems.append(f"{path}: expected {len(args)} values, found {len(value)}")
        return INVALID
    kinds = args if fixed else (args[:1] or (Any,)) * len(value)
    items = [convert(v, k, f"{path}[{i}]", problems) for i, (v, k) in enumerate(zip(value, kinds, strict=True))]
    return tuple(items) if origin is tuple else items


def _convert_mapping(value: Any, args: tuple[Any, ...], path: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(f"{path}: expected a mapping, found {_show(value)}")
        return INVALID
    item = args[1] if len(args) == 2 else Any
    return {str(k): convert(v, item, join(path, k), problems) for k, v in value.items()}


def join(path: str, name: Any) -> str:
    """The path of a key below a path."""
    return f"{path}.{name}" if path else str(name)


def plain(value: Any) -> Any:
    """A typed value as plain mappings, lists and scalars: what is hashed and recorded."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def _name(annotation: Any) -> str:
    names = {
        int: "an integer",
        float: "a number",
        bool: "true or false",
        str: "a text",
        type(None): "null",
        Path: "a path",
    }
    if typing.get_origin(annotation) is Literal:
        return " or ".join(map(repr, typing.get_args(annotation)))
    if typing.get_origin(annotation) in (list, tuple, Sequence):
        return "a list"
    if typing.get_origin(annotation) in (dict, Mapping) or dataclasses.is_dataclass(annotation):
        return "a mapping"
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
