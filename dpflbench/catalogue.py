"""Finds plugins through entry points, refuses clashes, and remembers who supplied what.

Walks the entry points itself: pluggy's bulk loader skips a second plugin of the same name without a word, and one
broken import stops everything.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from dpflbench.errors import DpflbenchError, PluginError
from dpflbench.hookspecs import HOOKS, KINDS
from dpflbench.schema import suggest

GROUP = "dpflbench"


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One named factory and who supplied it."""

    kind: str
    name: str
    factory: Callable[..., Any]
    plugin: str
    distribution: str
    version: str
    module: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All parts of all plugins, by kind and name."""

    parts: Mapping[str, Mapping[str, Part]] = field(default_factory=dict)

    def get(self, kind: str, name: str) -> Part:
        """The part of that name; DpflbenchError with a suggestion if there is none."""
        found = self.parts[kind].get(name)
        if found is None:
            raise DpflbenchError(f"unknown {kind[:-1]} '{name}'; {suggest(name, self.parts[kind])}")
        return found


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded plugin module and where it came from."""

    name: str
    distribution: str
    version: str
    module: Any


def load(without: Collection[str] = (), points: Iterable[EntryPoint] | None = None) -> Catalogue:
    """The catalogue of all installed plugins but those named in `without`; PluginError lists every problem at once."""
    points = sorted(entry_points(group=GROUP) if points is None else points, key=lambda p: (p.name, p.value))
    names = {p.name for p in points}
    for name in without:
        if name not in names:
            raise DpflbenchError(f"--without {name}: no such plugin; {suggest(name, names)}")
    problems: list[str] = []
    plugins = _import([p for p in points if p.name not in without], problems)
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(type("Hooks", (), dict(HOOKS)))
    parts: dict[str, dict[str, Part]] = {kind: {} for kind in KINDS}
    for plugin in plugins:
        _register(manager, plugin, parts, problems)
    if problems:
        hint = "; go on without a plugin by --without NAME"
        raise PluginError("\n".join(p + hint for p in problems))
    return Catalogue(parts)


def load_built_in() -> None:
    """Import the plugins that come with dpflbench, so that they are there when they are asked for."""
    for point in entry_points(group=GROUP):
        if point.dist is not None and point.dist.name == GROUP:
            point.load()


def part_of(kind: str, name: str, module: str) -> Part:
    """A part by its plugin's module, for a process that was told of it and looks for no others."""
    point = EntryPoint(name, module, GROUP)
    factory = getattr(point.load(), f"dpflbench_{kind}")()[name]
    return Part(kind, name, factory, "", "", "", module)


def _import(points: Iterable[EntryPoint], problems: list[str]) -> list[Plugin]:
    loaded: dict[str, Plugin] = {}
    for point in points:
        distribution, version = (point.dist.name, point.dist.version) if point.dist else ("unknown", "0")
        who = f"plugin '{point.name}' of {distribution} {version}"
        if point.name in loaded:
            if loaded[point.name].distribution != distribution or loaded[point.name].module.__name__ != point.module:
                problems.append(f"{who}: {loaded[point.name].distribution} has a plugin of that name too")
            continue  # an editable install can list one entry point twice
        try:
            module = point.load()
        except (
            Exception,
            SystemExit,
        ) as e:  # whatever a stranger's module raises on import is its problem, not a crash of ours
            problems.append(f"{who}: does not import ({type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''})")
            continue
        if not inspect.ismodule(module):
            problems.append(
                f"{who}: its entry point names {point.value}, a {type(module).__name__}; expected a module with hooks"
            )
            continue
        loaded[point.name] = Plugin(point.name, distribution, version, module)
    return list(loaded.values())


def _register(
    manager: pluggy.PluginManager, plugin: Plugin, parts: dict[str, dict[str, Part]], problems: list[str]
) -> None:
    """Ask one plugin for its parts; every deviation from the hooks is one problem."""
    who = f"plugin '{plugin.name}' of {plugin.distribution} {plugin.version}"
    try:
        manager.register(plugin.module, name=plugin.name)
    except pluggy.PluginValidationError as e:
        problems.append(f"{who}: a hook does not fit ({str(e).splitlines()[-1]})")
        return
    except ValueError:
        problems.append(f"{who}: module {plugin.module.__name__} is another plugin already; one entry point a module")
        return
    before = len(problems)
    for name, value in vars(plugin.module).items():
        if getattr(value, "dpflbench_impl", None) is not None and name not in HOOKS:
            problems.append(f"{who}: '{name}' is not a hook; {suggest(name, HOOKS)}")
    for kind in KINDS:
        implementation = getattr(plugin.module, f"dpflbench_{kind}", None)
        if implementation is None:
            continue
        if getattr(implementation, "dpflbench_impl", None) is None:
            problems.append(f"{who}: dpflbench_{kind} is not marked as a hook; put @hookimpl of dpflbench above it")
            continue
        try:
            factories = implementation()
        except Exception as e:  # as above
            problems.append(f"{who}: dpflbench_{kind} raises {type(e).__name__}: {e}")
            continue
        if not isinstance(factories, Mapping) or not all(
            isinstance(n, str) and callable(f) for n, f in factories.items()
        ):
            problems.append(
                f"{who}: dpflbench_{kind} must return a mapping from name to factory, found {factories!r:.80}"
            )
            continue
        for name, factory in factories.items():
            problem = _misfit(kind, name, factory)
            if problem:
                problems.append(f"{who}: {kind[:-1]} '{name}': {problem}")
            elif name in parts[kind]:
                other = parts[kind][name]
                problems.append(
                    f"{who}: {kind[:-1]} '{name}' is already supplied by plugin '{other.plugin}' of "
                    f"{other.distribution} {other.version}"
                )
            else:
                parts[kind][name] = Part(
                    kind, name, factory, plugin.name, plugin.distribution, plugin.version, plugin.module.__name__
                )
    if len(problems) == before and not any(
        part.plugin == plugin.name for known in parts.values() for part in known.values()
    ):
        problems.append(
            f"{who}: supplies nothing; expected a function marked @hookimpl, one of {', '.join(sorted(HOOKS))}"
        )


def _misfit(kind: str, name: str, factory: Callable[..., Any]) -> str:
    """What can be seen without running anything: a nameless part, parameters without keywords, a class without its
    methods.
    """
    if not name or not name.isprintable() or any(c in name for c in "/\\$\n"):
        return "a name must be printable, without '/', '\\' or '$'"
    try:
        kinds = {p.kind for p in inspect.signature(factory).parameters.values()}
    except (TypeError, ValueError):
        return "the factory has no readable signature"
    if kinds & {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return "a factory takes named keyword parameters only (no *args, **kwargs)"
    if inspect.isclass(factory):
        missing = KINDS[kind].missing(factory)
        if missing:
            return f"lacks {missing} of its interface"
        if inspect.isabstract(factory):
            return f"leaves {', '.join(sorted(getattr(factory, '__abstractmethods__', ())))} abstract"
    return ""
