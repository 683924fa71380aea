"""How a check speaks and what all checks share: one refusal, copies that compare, generators nobody may touch,
pickling.

A check stops at the first broken rule, so a fault is one line: who, what was found, what is expected, how to fix it.
Rules come in the order in which one fault would break several.
"""

import copy
import dataclasses
import inspect
import pickle
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor

from dpflbench.errors import PluginError
from dpflbench.federation.leftovers import ClientCode, inventory, remembered, survivors

R = TypeVar("R")


class ConformanceError(PluginError):
    """A part that breaks a rule of its interface."""


def refuse(who: str, found: str, expected: str, fix: str) -> NoReturn:
    """Raise the one line that says all about a broken rule."""
    raise ConformanceError(" ".join(f"{who}: {found}; expected {expected}; fix: {fix}".split()))


def attempt(who: str, what: str, expected: str, call: Callable[[], R]) -> R:
    """What `call()` returns; whatever it raises is a refusal."""
    try:
        return call()
    except ConformanceError:
        raise
    except Exception as e:  # a stranger's code may raise anything
        return refuse(
            who,
            f"{what} raises {type(e).__name__}: {e}"[:300],
            expected,
            f"make {what} work for what the check hands over",
        )


def keep(value: Any) -> Any:
    """A deep copy to compare with later."""
    return copy.deepcopy(value)


def difference(a: Any, b: Any, path: str = "") -> str:
    """Where two nested values differ first, to the last bit; empty if nowhere. NaN equals NaN."""
    if type(a) is not type(b):
        return path or "the whole"
    if isinstance(a, Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
        return "" if same and bool(((a == b) | ((a != a) & (b != b))).all()) else path or "the tensor"
    if isinstance(a, np.ndarray):
        return (
            "" if a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") else path or "the array"
        )
    if dataclasses.is_dataclass(a) and not isinstance(a, type):
        fields = [f.name for f in dataclasses.fields(a) if hasattr(a, f.name)]
        return _first((f"{path}.{name}" if path else name, getattr(a, name), getattr(b, name)) for name in fields)
    if isinstance(a, Mapping):
        if set(a) != set(b):
            return path or "the keys"
        return _first((f"{path}[{k!r}]", a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return path or "the length"
        return _first((f"{path}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)))
    if isinstance(a, float):
        return "" if a == b or (a != a and b != b) else path or "the number"
    return "" if a is b or _equal(a, b) else path or "the whole"


def _first(triples: Iterator[tuple[str, Any, Any]]) -> str:
    return next((found for path, x, y in triples if (found := difference(x, y, path))), "")


def _equal(a: Any, b: Any) -> bool:
    """Equality; by attributes for objects that do not define it."""
    if any("__eq__" in vars(base) for base in type(a).__mro__[:-1]):
        return bool(a == b)
    return not difference(a.__getstate__(), b.__getstate__())


@contextmanager
def no_global_draws(who: str, what: str) -> Iterator[None]:
    """Refuse a part that draws from a global generator: a run would not be a function of its seed."""
    before = _generators()
    yield
    for name, old, new in zip(("torch's", "NumPy's", "Python's"), before, _generators(), strict=True):
        if difference(old, new):
            refuse(
                who,
                f"{what} draws from {name} global generator",
                "no draw but from the generator handed over",
                "use the rng argument, or do without chance",
            )


def _generators() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(legacy=True), random.getstate()  # noqa: NPY002  # only looked at


def frozen(who: str, part: Any) -> None:
    """Refuse a part whose attributes can be set: a run must be a function of its parameters, in every worker."""
    slots = [f.name for f in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else []
    for name in dict.fromkeys([*getattr(part, "__dict__", {}), *slots]):
        try:
            setattr(copy.copy(part), name, getattr(part, name))
        except (AttributeError, TypeError):
            continue
        refuse(
            who,
            f"{type(part).__name__}.{name} can be set",
            "a part that nobody can change",
            "write @dataclass(frozen=True), and return what must be remembered as state",
        )


def pickled(who: str, part: R) -> R:
    """The part after a round trip through pickle: what a worker process receives."""
    try:
        again: R = pickle.loads(pickle.dumps(part))
    except Exception as e:  # pickle raises whatever the object does
        return refuse(
            who,
            f"cannot be pickled ({type(e).__name__}: {e})"[:300],
            "a part that can be sent to a worker process",
            "define its class at the top of a module and keep only plain values in its fields",
        )
    frozen(who, part)
    found = difference(part, again)
    if found:
        refuse(
            who,
            f"comes back from pickle with another '{found}'",
            "an equal part",
            "make it a frozen dataclass of plain values",
        )
    return again


def needs_methods(who: str, part: Any, interface: type, methods: Mapping[str, int]) -> None:
    """Refuse a part that lacks a method of its interface or whose method takes another number of arguments."""
    for name, count in methods.items():
        method = getattr(part, name, None)
        if not callable(method):
            refuse(
                who,
                f"has no {name}()",
                f"the interface {interface.__name__} of {interface.__module__}",
                f"add {name}()",
            )
        try:
            inspect.signature(method).bind(*range(count))
        except TypeError as e:
            takes = ", ".join(inspect.signature(getattr(interface, name)).parameters).removeprefix("self, ")
            refuse(
                who,
                f"{name}{inspect.signature(method)} does not take {count} arguments ({e})",
                f"{name}({takes})",
                "use the signature of the interface",
            )
        except ValueError:
            continue  # a built-in without a readable signature: the calls below tell


def unchanged(who: str, what: str, before: Any, after: Any, name: str) -> None:
    """Refuse a change in place."""
    found = difference(before, after)
    if found:
        refuse(
            who,
            f"{what} changes {name}{'.' if found[:1].isalpha() and name else ''}{found} in place",
            "inputs left as they were",
            "work on a copy (x.clone(), x.copy()) and return new values",
        )


def leaves_nothing(who: str, code: ClientCode, call: Callable[[int], Tensor], kept: tuple[Any, ...] = ()) -> None:
    """Refuse client code that keeps something of what it is handed; `call(seed)` makes inputs, hands them over and
    returns no more than their values. A first call may fill caches, but with no input.
    """
    values = call(0)
    before = inventory(code)
    call(1)
    if found := survivors(before, code, kept) or remembered(code, values):
        refuse(
            who,
            f"keeps something of its inputs: {found}",
            "client code that leaves nothing behind",
            "keep no reference to inputs, nor copies or numbers made of them, after a call",
        )


def holds_plain_state(value: Any) -> str:
    """What in a state a checkpoint could not hold; empty if nothing: numbers, None, tensors, dicts, lists and tuples of
    those.
    """
    if value is None or isinstance(value, bool | int | float | str | Tensor):
        return ""
    if isinstance(value, Mapping):
        odd = next((k for k in value if not isinstance(k, str | int)), None)
        return f"a key of type {type(odd).__name__}" if odd is not None else _odd(value.values())
    if isinstance(value, list | tuple):
        return _odd(value)
    return f"a {type(value).__name__}"


def _odd(values: Any) -> str:
    return next((found for v in values if (found := holds_plain_state(v))), "")
