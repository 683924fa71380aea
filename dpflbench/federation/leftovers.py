"""What client code leaves behind. Transforms, models and local updates run beside raw data: after a call nothing of it
may survive, for whatever survives can reach a server, a record or the next client.

Two nets. What is the code's *own* (attributes of a part, of its class, globals of its modules, closures, default
arguments, and all that hangs on those) must be after a call what it was before, number by number. And nowhere in the
process may there be a *new* tensor, array, storage, autograd node, byte string or collection of numbers, but for what
the caller was handed. Both use the garbage collector's view of Python objects, so they do not find what lies outside of
it: memory of C extensions and torch's own containers in C++, files, other processes; nor less than 8 numbers that
foreign code keeps, nor what code does only where nobody looks.
"""

import functools
import gc
import sys
import types
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

R = TypeVar("R")
COLLECTIONS = (list, tuple, set, frozenset, dict, deque)
RAW = (bytes, bytearray, array)
FEW, SHORT = 8, 64  # numbers in a collection, bytes in a string: below that the second net lets it pass
PLAIN = (int, float, complex, str, bool)
MOST = 200_000  # objects of its own that are looked at
NOT_CODE = ("__warningregistry__", "__builtins__")  # globals that Python writes


@dataclass(frozen=True, slots=True, eq=False)
class ClientCode:
    """Parts that see raw data, and the packages or modules they come from."""

    parts: tuple[Any, ...]
    packages: frozenset[str]

    @classmethod
    def of(cls, *parts: Any, built: Iterable[Any] = (), packages: Iterable[str] = ()) -> "ClientCode":
        """The code of some parts and of what they built: the packages the parts are defined in, or the one module if
        that is the harness. What they built may be of a library's class.
        """
        return cls((*parts, *built), frozenset(packages) | {home(part) for part in parts})

    def own(self, module: str) -> bool:
        """Whether a module belongs to it."""
        return module in self.packages or module.partition(".")[0] in self.packages


def home(part: Any) -> str:
    """The top-level package a part is defined in; its module inside the harness."""
    module = str(type(part).__module__)
    top = module.partition(".")[0]
    return module if top == __name__.partition(".")[0] else top


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """What was there at one moment."""

    own: Mapping[str, Counter[Any]]  # place → prints of what hangs there
    holders: Mapping[int, Any]  # whatever can hold data, kept alive: no other object gets its id


def inventory(code: ClientCode) -> Inventory:
    """All that client code has of its own, and all in this process that can hold data; garbage too, which is kept."""
    gc.unfreeze()  # what is frozen is not listed
    found = Inventory(_prints(code), {id(thing): thing for thing in _holders()})
    gc.freeze()  # until survivors are looked for: the collector then goes through what is new alone
    return found


def _prints(code: ClientCode) -> dict[str, Counter[Any]]:
    learnt = {id(p) for part in code.parts if isinstance(part, nn.Module) for p in part.parameters()}
    own: dict[str, Counter[Any]] = {}
    for place, thing in _hanging(code):
        own.setdefault(place, Counter())[_print(thing, id(thing) not in learnt)] += 1
    return own


def survivors(before: Inventory, code: ClientCode, kept: Iterable[Any] = ()) -> str:
    """What came into being since, where, in one line; empty if nothing but what hangs on `kept`."""
    gc.collect()
    gc.unfreeze()
    if not _since(before, code, kept):
        return ""
    gc.collect()  # it may hang on old garbage, which was frozen until now
    return _since(before, code, kept)


def _since(before: Inventory, code: ClientCode, kept: Iterable[Any]) -> str:
    for place, found in _prints(code).items():
        if fresh := found - before.own.get(place, Counter()):
            return f"{place} holds {_told(fresh)}"
    spared = {id(thing) for thing in _reachable([*kept, *_caches()], code.parts)}
    new = [thing for thing in _holders() if id(thing) not in before.holders and id(thing) not in spared]
    return f"{_described(new[0])} is left in {_holder(new)}" if new else ""


def remembered(code: ClientCode, values: Tensor) -> str:
    """Where its own holds one of some values that nobody would make up, in one line; empty if nowhere."""
    known = values.detach().cpu().numpy().ravel().copy()
    for place, thing in _hanging(code):
        if _has(thing, known):
            return f"{place} holds values of the inputs"
    return ""


def _has(thing: Any, known: Any) -> bool:
    """Whether a number, or a tenth of the numbers directly in a thing, are among those known."""
    kind = type(thing)
    if issubclass(kind, Tensor):
        thing, kind = _readable(thing), np.ndarray
    if kind in COLLECTIONS:
        values = dict.values(thing) if kind is dict else list(thing)
        thing = np.array([v for v in values if issubclass(type(v), float | np.floating)])
    elif issubclass(kind, float | np.floating):
        thing = np.array([thing])
    elif kind in RAW:
        raw = bytes(thing)
        thing = np.frombuffer(raw[: len(raw) // 4 * 4], dtype=np.float32)
    elif not issubclass(kind, np.ndarray):
        return False
    if thing.dtype.kind != "f" or not thing.size:
        return False
    with np.errstate(over="ignore"):
        hits = int(np.isin(thing.astype(np.float32), known).sum())
    return bool(10 * hits >= min(thing.size, len(known)))  # among many numbers a few are equal by chance


# ---------------------------------------------------------------- the first net: its own


def _hanging(code: ClientCode) -> Iterator[tuple[str, Any]]:
    """Everything that is its own, with the place it hangs on."""
    modules = [(name, module) for name, module in list(sys.modules.items()) if code.own(name)]
    stack: list[tuple[str, Any]] = [
        (f"global {name} of {module}", thing)
        for module, found in modules
        for name, thing in list(getattr(found, "__dict__", {}).items())
        if name not in NOT_CODE
    ]
    stack += [("", part) for part in code.parts]
    seen: dict[int, Any] = {}
    while stack and len(seen) < MOST:
        place, thing = stack.pop()
        if type(thing) in PLAIN:
            yield place, thing
        elif id(thing) not in seen:
            seen[id(thing)] = thing
            yield place, thing
            stack += _parts_of(place, thing, code)


def _parts_of(place: str, thing: Any, code: ClientCode) -> Iterator[tuple[str, Any]]:
    """What hangs on a thing, and where that is; nothing for code of others."""
    kind = type(thing)
    if issubclass(kind, types.ModuleType):
        return
    if issubclass(kind, type):
        if code.own(str(thing.__module__)):
            for name, value in list(type.__dict__["__dict__"].__get__(thing).items()):
                yield f"attribute {name} of class {thing.__name__}", value
    elif issubclass(kind, types.FunctionType):
        if code.own(str(thing.__module__)):
            yield f"closure of {thing.__qualname__}", thing.__closure__
            yield f"default argument of {thing.__qualname__}", (thing.__defaults__, thing.__kwdefaults__)
            yield f"attribute of function {thing.__qualname__}", thing.__dict__
    elif place:
        for value in gc.get_referents(thing):
            yield place, value
    else:  # a part
        yield f"class of {kind.__name__}", kind
        attributes = _attributes(thing)
        for name, value in attributes.items():
            yield f"attribute {name} of {kind.__name__}", value
        for value in gc.get_referents(thing):
            if value is not attributes:
                yield f"attribute of {kind.__name__}", value


def _attributes(thing: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def _print(thing: Any, content: bool) -> Any:
    """What tells a thing from another of its kind: sizes and numbers, where it has any."""
    kind = type(thing)
    if kind in PLAIN:
        return repr(thing)
    if issubclass(kind, Tensor):
        return "tensor", _shape(thing), hash(_readable(thing).tobytes()) if content else 0
    if issubclass(kind, np.ndarray):
        return "array", thing.shape, hash(thing.tobytes()) if thing.dtype != object else 0
    if kind in (bytes, bytearray):
        return kind.__name__, len(thing), hash(bytes(thing))
    return kind.__name__, (len(thing),) if kind in COLLECTIONS else (), 0


def _readable(tensor: Tensor) -> Any:
    """A tensor as an array on the host; empty if it cannot be read: a wrapper that outlived its transformation."""
    try:
        return tensor.detach().cpu().numpy()
    except (RuntimeError, TypeError):
        return np.zeros(0)


def _shape(tensor: Tensor) -> tuple[int, ...]:
    try:
        return tuple(tensor.shape)
    except RuntimeError:
        return ()


def _told(fresh: Counter[Any]) -> str:
    """The largest of what is new."""
    for kind in ("tensor", "array", "bytes", "bytearray"):
        for found in fresh:
            if found[0] == kind:
                return f"a {kind} {found[1]} that was not there before the call"
    count = sum(times for found, times in fresh.items() if isinstance(found, str))
    return f"{count} values that were not there before the call" if count else "more than before the call"


# ---------------------------------------------------------------- the second net: anywhere


def _everything() -> list[Any]:
    """What the collector knows, and what hangs on that unknown to it."""
    found = gc.get_objects()
    level = gc.get_referents(*found)
    found += level
    while level := [thing for thing in level if type(thing) in (dict, tuple) and not gc.is_tracked(thing)]:
        level = gc.get_referents(*{id(thing): thing for thing in level}.values())
        found += level
    return found


def _holders() -> Iterator[Any]:
    """What of everything can hold data."""
    found = _everything()
    data = (Tensor, np.ndarray, torch.UntypedStorage, torch.TypedStorage)
    kinds = set(map(type, found))
    numbers = {kind for kind in kinds if issubclass(kind, float | np.floating)}
    kinds = {kind for kind in kinds if issubclass(kind, data) or "next_functions" in kind.__dict__}
    some = kinds.union(COLLECTIONS, RAW)
    for thing in {id(thing): thing for thing in found if type(thing) in some}.values():
        if type(thing) in kinds:  # an autograd node has next_functions
            yield thing
        elif type(thing) in RAW:
            if len(thing) * getattr(thing, "itemsize", 1) >= SHORT:
                yield thing
        elif len(thing) >= FEW and _numbers(thing, numbers) >= FEW:
            yield thing


def _numbers(thing: Any, numbers: set[type]) -> int:
    """How many values of a collection are floating-point numbers, Python's or NumPy's."""
    values = dict.values(thing) if type(thing) is dict else thing
    if numbers.isdisjoint(map(type, list(values))):  # nearly all there are
        return 0
    held = list(map(type, list(values)))
    return sum(held.count(kind) for kind in numbers)


def _reachable(roots: Iterable[Any], without: Iterable[Any]) -> list[Any]:
    """What hangs on some objects, code and the parts of strangers aside."""
    seen = {id(thing): thing for thing in without}
    stack, found = list(roots), []
    while stack:
        thing = stack.pop()
        if id(thing) in seen or issubclass(type(thing), type | types.ModuleType):
            continue
        seen[id(thing)] = thing
        found.append(thing)
        stack += [thing.__closure__] if issubclass(type(thing), types.FunctionType) else gc.get_referents(thing)
        if issubclass(type(thing), Tensor | np.ndarray):  # a view keeps what it shows, unknown to the collector
            stack.append(thing._base if issubclass(type(thing), Tensor) else thing.base)
    return found


def _caches() -> list[Any]:
    """What the harness remembers by `functools.cache`: functions of sizes and names."""
    top = __name__.partition(".")[0]
    modules = [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == top]
    return [v for m in modules for v in vars(m).values() if isinstance(v, functools._lru_cache_wrapper)]


def _described(thing: Any) -> str:
    kind = type(thing)
    if issubclass(kind, Tensor | np.ndarray):
        return f"{'a tensor' if issubclass(kind, Tensor) else 'an array'} {_shape(thing)}"
    return f"a {kind.__name__} of {len(thing)}" if kind in (*COLLECTIONS, *RAW) else f"a {kind.__name__}"


def _holder(things: list[Any]) -> str:
    """The global that holds one of them, directly or in collections."""
    ids = {id(thing) for thing in things}
    for name, module in list(sys.modules.items()):
        for key, value in list(getattr(module, "__dict__", {}).items()):
            stack, seen = [value] if key not in NOT_CODE else [], set[int]()
            while stack:
                thing = stack.pop()
                if id(thing) in ids:
                    return f"global {key} of {name}"
                if type(thing) in COLLECTIONS and id(thing) not in seen:
                    seen.add(id(thing))
                    stack += gc.get_referents(thing)
    return "this process"


# ---------------------------------------------------------------- a sample of a run's rounds


@dataclass(slots=True)
class Inspection:
    """A look at a few rounds of a run."""

    code: ClientCode = ClientCode((), frozenset())
    rounds: frozenset[int] = frozenset()
    beside: tuple[Any, ...] = ()  # where the harness itself keeps something of a call
    found: str = ""

    def of(self, round: int, act: Callable[[], R], kept: Iterable[Any]) -> R:
        """What `act()` returns; in a round of the sample what survives is noted, but for that and what is `kept`."""
        if round not in self.rounds:
            return act()
        before = inventory(self.code)
        result = act()
        left = survivors(before, self.code, [result, *self.beside, *kept])
        self.found = self.found or (left and f"round {round}: {left}")
        return result
