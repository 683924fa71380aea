"""Plain mappings to typed objects: a factory's keyword parameters are its schema. Collects problems instead of stopping
at the first.

Used for every section of a suite and for every part of every plugin: a frozen dataclass is its own factory.
"""

import dataclasses
import difflib
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Union

INVALID: Any = object()  # stands for a value whose problem has been noted
MAX_INTEGER = 2**63 - 1  # what arrays, tables and other people's readers of a record can hold
NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a text", type(None): "null", Path: "a path"}


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """What a factory made, and the arguments it made it of: every default filled in, valid input again."""

    value: Any
    canonical: dict[str, Any]


def suggest(word: str, allowed: Iterable[str]) -> str:
    """The tail of a message about an unknown word: a near miss, or all that is allowed."""
    known = sorted(map(str, allowed))
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    if not near:  # as it is spelt it is like nothing: perhaps in other letters, `dpsgd` for `DPSGD`
        folded = {name.casefold(): name for name in reversed(known)}
        near = [folded[name] for name in difflib.get_close_matches(str(word).casefold(), folded, n=1, cutoff=0.6)]
    return f"did you mean '{near[0]}'?" if near else f"allowed: {', '.join(known) or 'nothing'}"


def parameters(factory: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Name → (annotation, default) of a factory's parameters; the default is `inspect.Parameter.empty` where there is
    none.
    """
    fresh = {f.name: f.default_factory for f in getattr(factory, "__dataclass_fields__", {}).values()}
    return {
        name: (annotation, fresh[name]() if callable(fresh.get(name)) else default)
        for name, annotation, default in _signature(factory)
    }


@lru_cache(maxsize=1000)
def _signature(factory: Callable[..., Any]) -> tuple[tuple[str, Any, Any], ...]:
    """Name, annotation and default of each parameter; looked up once, for a suite asks hundreds of times."""
    target = factory.__init__ if inspect.isclass(factory) else factory
    try:
        hints = typing.get_type_hints(target)
    except NameError:  # interfaces imported for the type checker alone, for torch takes its time
        from dpflbench import interfaces

        hints = typing.get_type_hints(target, localns=vars(interfaces))
    return tuple(
        (name, hints.get(name, Any), p.default)
        for name, p in inspect.signature(factory).parameters.items()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    )


def build(factory: Callable[..., Any], given: Any, path: str, problems: list[str]) -> Any:
    """What the factory makes of a mapping; INVALID (and a problem for each reason) where it cannot."""
    made = Reader(problems).build(factory, given, path)
    return made if made is INVALID else made.value


def convert(value: Any, annotation: Any, path: str, problems: list[str]) -> Any:
    """The value as the annotated type, or INVALID with a problem noted."""
    return _value(Reader(problems).convert(value, annotation, path))


class Reader:
    """Reads plain values as the types they are annotated with, and notes every problem with its path."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems

    def refuse(self, path: str, text: str) -> Any:
        """INVALID, and the problem is noted."""
        self.problems.append(f"{path}: {text}" if path else text)
        return INVALID

    def build(self, factory: Callable[..., Any], given: Any, path: str) -> Any:
        """What the factory makes of a mapping as `Made`; INVALID where it cannot."""
        bound = self.bind(factory, given, path)
        return INVALID if bound is None else self.call(factory, bound, path)

    def bind(self, factory: Callable[..., Any], given: Any, path: str) -> dict[str, Any] | None:
        """All keyword arguments of a factory, defaults filled in; None if anything is wrong with what was given."""
        if not isinstance(given, Mapping):
            self.refuse(path, f"expected a mapping, found {show(given)}")
            return None
        before, schema, bound = len(self.problems), parameters(factory), {}
        for name in given:
            if name not in schema:
                self.refuse(join(path, name), f"unknown; {suggest(name, schema)}")
        for name, (annotation, default) in schema.items():
            if name in given:
                bound[name] = self.convert(given[name], annotation, join(path, name))
            elif default is inspect.Parameter.empty:
                self.refuse(join(path, name), "missing")
            else:
                bound[name] = self.default(default, annotation, join(path, name))
        return bound if len(self.problems) == before else None

    def default(self, value: Any, annotation: Any, path: str) -> Any:
        """What stands for a parameter that is not given."""
        return value

    def call(self, factory: Callable[..., Any], bound: Mapping[str, Any], path: str) -> Any:
        """factory(**bound) as `Made`; a ValueError or DpflbenchError of its own becomes a problem with the path."""
        from dpflbench.errors import DpflbenchError, SuiteError

        try:
            return Made(factory(**{name: _value(v) for name, v in bound.items()}), plain(bound))
        except (ValueError, DpflbenchError) as e:
            for text in e.problems if isinstance(e, SuiteError) else [str(e)]:
                head = re.match(r"(\w+): ", text)  # "high: must be above low" belongs to that parameter's path
                dotted = path and head and head[1] in bound
                self.problems.append(f"{path}.{text}" if dotted else f"{path}: {text}" if path else text)
            return INVALID

    def convert(self, value: Any, annotation: Any, path: str) -> Any:
        """The value as the annotated type, or INVALID with a problem noted. Never guesses: '3' is no integer."""
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if annotation is Any or isinstance(annotation, typing.TypeVar):
            return value
        if origin in (Union, types.UnionType):
            return self._union(value, args, path)
        if origin is Literal:
            if value in args and type(value) in {type(a) for a in args}:
                return value
            return self.refuse(path, f"found {show(value)}; {suggest(value, args)}")
        if origin in (list, tuple, Sequence):
            return self._sequence(value, origin, args, path)
        if origin in (dict, Mapping) or annotation in (dict, Mapping):
            if not isinstance(value, Mapping):
                return self.refuse(path, f"expected a mapping, found {show(value)}")
            item = args[1] if len(args) == 2 else Any
            return {str(k): self.convert(v, item, join(path, k)) for k, v in value.items()}
        if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
            return self.build(annotation, value, path)
        return self._scalar(value, annotation, path)

    def _scalar(self, value: Any, annotation: Any, path: str) -> Any:
        if annotation in (int, float) and isinstance(value, int) and not isinstance(value, bool):
            return annotation(value) if abs(value) <= MAX_INTEGER else self.refuse(path, too_large(value))
        if annotation is float and isinstance(value, float):
            return self.refuse(path, "found NaN; expected a number") if math.isnan(value) else value
        if annotation in (bool, str) and isinstance(value, annotation):
            return value
        if annotation is Path and isinstance(value, str | Path):
            return Path(value)
        if annotation is type(None) and value is None:
            return None
        return self.refuse(path, f"expected {_name(annotation)}, found {show(value)}")

    def _union(self, value: Any, options: tuple[Any, ...], path: str) -> Any:
        """The first option that fits; the problems of an object stay its own where nothing else but null could be."""
        others = [option for option in options if option is not type(None)]
        if len(others) == 1 and others[0] not in NAMES and value is not None:
            return self.convert(value, others[0], path)
        before = len(self.problems)
        for option in options:
            converted = self.convert(value, option, path)
            if len(self.problems) == before:
                return converted
            del self.problems[before:]
        return self.refuse(path, f"expected {' or '.join(map(_name, options))}, found {show(value)}")

    def _sequence(self, value: Any, origin: Any, args: tuple[Any, ...], path: str) -> Any:
        if not isinstance(value, list | tuple):
            return self.refuse(path, f"expected a list, found {show(value)}")
        fixed = origin is tuple and args and args[-1] is not Ellipsis
        if fixed and len(value) != len(args):
            return self.refuse(path, f"expected {len(args)} values, found {len(value)}")
        kinds = args if fixed else (args[:1] or (Any,)) * len(value)
        items = [self.convert(v, k, f"{path}[{i}]") for i, (v, k) in enumerate(zip(value, kinds, strict=True))]
        return tuple(items) if origin is tuple else items


def too_large(value: int) -> str:
    """The text of a problem with an integer that no array can hold."""
    return f"found an integer of {value.bit_length()} bits; allowed: 63, so up to {MAX_INTEGER:,}"


def join(path: str, name: Any) -> str:
    """The path of a key below a path."""
    return f"{path}.{name}" if path else str(name)


def plain(value: Any) -> Any:
    """A typed value as plain mappings, lists and scalars: what is hashed and recorded."""
    if isinstance(value, Made):
        return value.canonical
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def _value(bound: Any) -> Any:
    """A bound argument as its factory wants it: the objects instead of how they were made."""
    if isinstance(bound, Made):
        return bound.value
    if isinstance(bound, list | tuple):
        return type(bound)(map(_value, bound))
    return {k: _value(v) for k, v in bound.items()} if isinstance(bound, dict) else bound


def _name(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return " or ".join(map(repr, typing.get_args(annotation)))
    if typing.get_origin(annotation) in (list, tuple, Sequence):
        return "a list"
    if typing.get_origin(annotation) in (dict, Mapping) or dataclasses.is_dataclass(annotation):
        return "a mapping"
    return NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def show(value: Any) -> str:
    """A value in a message: what it is, in one short text."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out integers of thousands of digits
        text = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "integers beyond all bounds"
    return text if len(text) <= 60 else f"{text[:57]}..."
