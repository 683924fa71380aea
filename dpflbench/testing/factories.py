"""Factories: a part's keyword parameters are its configuration schema, so they are annotated, documented and
buildable.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

from dpflbench.schema import INVALID, convert, parameters, plain
from dpflbench.testing.rules import attempt, difference, refuse


def is_factory(part: Any) -> bool:
    """True for a class or function that makes parts, False for a part."""
    return inspect.isclass(part) or inspect.isroutine(part) or isinstance(part, functools.partial)


def required(factory: Callable[..., Any]) -> list[str]:
    """Parameters without a default."""
    return [n for n, p in inspect.signature(factory).parameters.items() if p.default is p.empty]


def check_factory(factory: Callable[..., Any], who: str = "") -> None:
    """Documented, every parameter annotated and named, every default a value that a suite could write."""
    who = who or f"factory {getattr(factory, '__name__', factory)!s}"
    for name, p in inspect.signature(factory).parameters.items():
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD):
            refuse(
                who,
                f"takes '{p}'",
                "keyword parameters with names only",
                "name every parameter: they are its schema in a suite",
            )
        if p.annotation is p.empty:
            refuse(
                who,
                f"parameter '{name}' has no annotation",
                "a type for every parameter (suites are checked against it)",
                f"write '{name}: float = …' or whatever it is",
            )
    doc = (inspect.getdoc(factory) or "").strip()
    made_up = inspect.isclass(factory) and dataclasses.is_dataclass(factory) and doc.startswith(f"{factory.__name__}(")
    if not doc or made_up:
        refuse(
            who,
            "has no docstring",
            "one line that says what it is (`dpflbench list` and readers need it)",
            "add a docstring to the factory or class",
        )
    schema = attempt(who, "reading its annotations", "annotations that can be resolved", lambda: parameters(factory))
    for name, (annotation, default) in schema.items():
        if default is inspect.Parameter.empty:
            continue
        problems: list[str] = []
        back = convert(plain(default), annotation, name, problems)
        if problems or back is INVALID:
            refuse(
                who,
                f"the default of '{name}', {default!r:.60}, is not what its annotation says ({problems[0]})",
                "a default that can be written into a suite",
                "use numbers, texts, lists, mappings or null, and annotate them so",
            )


def obtain(part: Any, who: str) -> Any:
    """The part itself, or what a factory makes of its defaults after its own check."""
    if not is_factory(part):
        return part
    check_factory(part, who)
    missing = required(part)
    if missing:
        refuse(
            who,
            f"needs {', '.join(missing)}",
            "a part to check",
            f"hand over a part, e.g. {part.__name__}({missing[0]}=…)",
        )
    made = attempt(who, "building it with its defaults", "a part", part)
    again = attempt(who, "building it twice", "a part", part)
    if difference(made, again):
        refuse(
            who,
            "two builds with the same parameters differ",
            "a part that is a function of its parameters",
            "keep nothing but parameters in it: no counters, no random numbers, no globals",
        )
    return made


def named(part: Any, kind: str, who: str) -> str:
    """How messages call a part."""
    own = part.__name__ if is_factory(part) and hasattr(part, "__name__") else type(part).__name__
    return who or f"{kind} {own}"
