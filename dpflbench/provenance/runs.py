"""The sources of a run, part by part: what its id covers, so that nothing but a change of behaviour makes a new run.

The harness is one root: everything between a configuration and its record. Every part is another, from the factory a
plugin names. How a part is found (a plugin's hook, a table of kinds) is not followed: the part that was found is. A
stranger's distribution has its version in here too, for compiled code and files that no reader of Python sees.
"""

import functools
import inspect
import sys
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from dpflbench.provenance.closure import Closure, Name, Sources
from dpflbench.provenance.places import HARNESS, know_distribution

if TYPE_CHECKING:
    from dpflbench.assembly import Assembly
    from dpflbench.catalogue import Part

ENTRY = ("dpflbench.execution.attempt", "execute")
# Times, machine, what client code left behind and how noise looked: in a record, but no part of its result
MEASURES = (
    "dpflbench.execution.outcome.measured",
    "dpflbench.federation.leftovers.inventory",
    "dpflbench.federation.leftovers.survivors",
    "dpflbench.privacy.residuals.examine",
)
# How another process finds the parts it is told of
FINDERS = ("dpflbench.catalogue.load_built_in", "dpflbench.catalogue.part_of")
PIECES = ("selector", "aggregator", "transform")  # of an algorithm


@functools.cache
def on_disk() -> Sources:
    """The sources of this process, read once: a definition that is loaded does not change with its file."""
    return Sources()


def sources_of(assembly: "Assembly", sources: Sources | None = None) -> dict[str, str]:
    """A digest for the harness and for each part of a run."""
    sources = sources or on_disk()
    found = {HARNESS: harness(sources).digest[:16]}
    for part in assembly.parts:
        found[f"{part.kind[:-1]} {part.name}"] = part_source(part, sources)
    for name, made in _made(assembly):
        found[name] = class_closure(made, sources).digest[:16]
    return found


def modules_of(assembly: "Assembly") -> dict[str, str]:
    """Every module a run depends on, with a digest of the whole module: where to look when a record is stale."""
    return {module: on_disk().version(module) for module in sorted({m for c in closures(assembly) for m in c.modules})}


def closures(assembly: "Assembly", sources: Sources | None = None) -> list[Closure]:
    """What the harness and each part of a run reach."""
    sources = sources or on_disk()
    parts = [part_closure(part, sources) for part in assembly.parts]
    return [harness(sources), *parts, *(class_closure(made, sources) for _, made in _made(assembly))]


@functools.cache
def harness(sources: Sources) -> Closure:
    """All code between a configuration and its record, whatever the parts are."""
    return sources.closure([ENTRY], without=(*MEASURES, *FINDERS))


@functools.cache
def part_source(part: "Part", sources: Sources) -> str:
    """Who supplied a part, and the digest of what it reaches."""
    version = "" if part.distribution == HARNESS else f" {part.version}"
    return f"{part.distribution}{version} {part_closure(part, sources).digest[:16]}"


@functools.cache
def part_closure(part: "Part", sources: Sources) -> Closure:
    """What a plugin's factory reaches, and what its plugin does when it is loaded."""
    know_distribution(part.distribution, part.module.partition(".")[0])
    roots = [_root(part.factory)]
    if not _is_named(part.factory):  # made by the hook, which may have put something into it
        roots.append((part.module, f"dpflbench_{part.kind}"))
    return sources.closure(roots, [part.module])


@functools.cache
def class_closure(made: Hashable, sources: Sources) -> Closure:
    """What a class reaches."""
    return sources.closure([_root(made)])


def _made(assembly: "Assembly") -> Iterator[tuple[str, Any]]:
    """The classes of an algorithm's pieces, which its factory may have taken from anywhere, by name."""
    for name in PIECES:
        yield name, type(getattr(assembly.algorithm, name))


def _root(thing: Any) -> Name:
    """Where a function or class is defined; the class of any other object."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        thing = type(thing)
    name = str(thing.__qualname__).partition(".")[0]
    return str(thing.__module__), name if hasattr(sys.modules.get(thing.__module__), name) else ""


def _is_named(thing: Any) -> bool:
    """Whether a factory is a class or function at the top of a module, so that its definition says everything."""
    module, name = _root(thing)
    return bool(name) and getattr(sys.modules[module], name, None) is thing
