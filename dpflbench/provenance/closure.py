"""Everything a definition can reach: names followed through modules and imports, inside the code of one author.

Libraries (torch, numpy) are named, not read: their versions are measured facts of a record. A module counts as loaded
if anything in it is reached or a loaded module imports it at its top; then its statements that act count too.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpflbench.provenance.kept import shelf
from dpflbench.provenance.places import followed, is_package, locate, ours, package_modules
from dpflbench.provenance.reading import Module, Statement, read, read_binary

Node = tuple[str, int]  # module and number of a statement in it
Name = tuple[str, str]  # module and name at its top; '' for all of it


@dataclass(slots=True)
class Found:
    """What one statement leads to."""

    nodes: set[Node] = field(default_factory=set)
    names: set[tuple[str, str]] = field(default_factory=set)  # module, and what an import at its top means there
    loads: set[str] = field(default_factory=set)
    seen: set[Name] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Closure:
    """What was reached, module by module, and a digest of it."""

    digest: str
    modules: Mapping[str, str]  # digest of what was reached in each
    nodes: frozenset[Node]


class Sources:
    """The sources as they are on disk, each read once; `changed` gives modules another text."""

    def __init__(self, changed: Mapping[str, str] | None = None, like: "Sources | None" = None) -> None:
        self.changed = changed or {}
        self.modules: dict[str, Module | None] = {}
        self.bound: dict[str, dict[str, list[int]]] = {}
        self.imported: dict[str, dict[str, list[Name]]] = {}
        self.edges: dict[Node, Found] = {}
        if like is not None:
            self.modules = {n: m for n, m in like.modules.items() if n not in self.changed}

    def closure(self, roots: Iterable[Name], loads: Iterable[str] = (), without: Iterable[str] = ()) -> Closure:
        """All that can be reached from these names; names in `without` ('module.name') are not followed."""
        start, cut = Found(loads=set(loads)), {node for name in without for node in self._bound_to(name)}
        for module, name in roots:
            start.names.add((module, name))
            if ours(module.partition(".")[0]):
                self._take(module, module, name, (), start)
        nodes: set[Node] = set()
        names: set[tuple[str, str]] = set()
        loaded: set[str] = set()
        todo = [start]
        while todo:
            found = todo.pop()
            names |= found.names
            for module in found.loads - loaded:
                todo += self._load(module, loaded)
            for node in found.nodes - nodes:
                if node not in cut:
                    nodes.add(node)
                    todo.append(self._follow(node))
        shelf().keep()
        return self._closed(nodes, names)

    def version(self, module: str) -> str:
        """A digest of a whole module; '' for one that is not there."""
        found = self.module(module)
        return _digest(json.dumps([found.imports, [s.digest for s in found.statements]]))[:12] if found else ""

    def module(self, name: str) -> Module | None:
        """A module of that name, read; None if there is no source of it."""
        if name not in self.modules:
            file = locate(name)
            self.modules[name] = _read(name, file, self.changed.get(name)) if file is not None else None
        found = self.modules[name]
        if found is not None and name not in self.bound:
            bound: dict[str, list[int]] = {}
            for number, statement in enumerate(found.statements):
                for at in statement.binds:
                    bound.setdefault(at, []).append(number)
            imported: dict[str, list[Name]] = {}
            for at, module, attribute in found.imports:
                imported.setdefault(at, []).append((module, attribute))
            self.bound[name], self.imported[name] = bound, imported
        return found

    def statement(self, node: Node) -> Statement:
        """The statement of a module that was read."""
        module = self.modules[node[0]]
        if module is None:
            raise LookupError(f"{node[0]}: no such module")
        return module.statements[node[1]]

    def _bound_to(self, dotted: str) -> list[Node]:
        module, _, name = dotted.rpartition(".")
        numbers = self.bound[module].get(name) if self.module(module) else None
        if not numbers:
            raise LookupError(f"{dotted}: no such definition to leave out")
        return [(module, number) for number in numbers]

    def _load(self, module: str, loaded: set[str]) -> list[Found]:
        """What loading a module runs: its packages, what it imports, and its own statements that act."""
        out: list[Found] = []
        todo = [module]
        while todo:
            name = todo.pop()
            if name in loaded:
                continue
            loaded.add(name)
            if parent := name.rpartition(".")[0]:
                todo.append(parent)
            found = self.module(name)
            if found is not None:
                todo += [m for m in found.loads if followed(name, m)]
                acting = {(name, i) for i, s in enumerate(found.statements) if s.acts}
                out.append(Found(nodes=acting))
        return out

    def _follow(self, node: Node) -> Found:
        """What one statement leads to."""
        if node not in self.edges:
            module, statement = node[0], self.statement(node)
            out = Found(loads={module})
            local: dict[str, list[Name]] = {}
            for name, source, attribute in statement.imports:
                local.setdefault(name, []).append((source, attribute))
                if followed(module, source):
                    out.loads.add(source)
                    if attribute:
                        self._take(module, source, attribute, ("",), out)
            for mention in statement.mentions:
                first, *rest = mention.split(".")
                self._mean(module, first, tuple(rest), out)
                for source, attribute in local.get(first, ()):
                    self._take(module, source, attribute, tuple(rest), out)
            if statement.opaque:
                for name in package_modules(module.partition(".")[0]):
                    self._whole(name, out)
            self.edges[node] = out
        return self.edges[node]

    def _mean(self, module: str, name: str, rest: tuple[str, ...], out: Found) -> None:
        """Follow `name.rest` as the top of a module understands it; a name it does not know may be anything there."""
        found = self.module(module)
        if found is None or (module, ".".join((name, *rest))) in out.seen:
            return
        out.seen.add((module, ".".join((name, *rest))))
        out.nodes |= {(module, number) for number in self.bound[module].get(name, ())}
        for source, attribute in self.imported[module].get(name, ()):
            out.names.add((module, f"{name} is {source} {attribute}"))
            self._take(module, source, attribute, rest, out)
        if name not in self.bound[module] and name not in self.imported[module]:
            for star in found.stars:
                if followed(module, star):
                    self._mean(star, name, rest, out)
                out.names.add((module, f"* is {star}"))

    def _take(self, importer: str, source: str, attribute: str, rest: tuple[str, ...], out: Found) -> None:
        """Follow `from source import attribute`, and the attributes used of it."""
        if not followed(importer, source):
            return
        out.loads.add(source)
        if not attribute:
            self._use(source, rest, out)
        elif self._knows(source, attribute):
            self._mean(source, attribute, rest, out)
        elif locate(f"{source}.{attribute}") is not None:
            self._use(f"{source}.{attribute}", rest, out)
        else:
            self._whole(source, out)

    def _use(self, module: str, rest: tuple[str, ...], out: Found) -> None:
        """Follow a module that is used as a value: by one attribute, or as a whole."""
        out.loads.add(module)
        if rest == ("",):  # imported, and not used yet
            return
        if rest and self._knows(module, rest[0]):
            self._mean(module, rest[0], rest[1:], out)
        elif rest and locate(f"{module}.{rest[0]}") is not None:
            self._use(f"{module}.{rest[0]}", rest[1:], out)
        else:
            self._whole(module, out)

    def _knows(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> bool:
        found = self.module(module)
        if found is None or module in seen:
            return False
        return (
            name in self.bound[module]
            or name in self.imported[module]
            or any(self._knows(star, name, seen | {module}) for star in found.stars if followed(module, star))
        )

    def _whole(self, module: str, out: Found) -> None:
        """Follow everything in a module."""
        found = self.module(module)
        if found is None or (module, "") in out.seen:
            return
        out.seen.add((module, ""))
        out.loads.add(module)
        out.nodes |= {(module, number) for number in range(len(found.statements))}
        for name in self.imported[module]:
            self._mean(module, name, (), out)
        for star in found.stars:
            if followed(module, star):
                self._whole(star, out)

    def _closed(self, nodes: set[Node], names: set[tuple[str, str]]) -> Closure:
        pieces: dict[str, list[str]] = {}
        for node in sorted(nodes):
            statement = self.statement(node)
            pieces.setdefault(node[0], []).append(f"{' '.join(statement.binds)} {statement.digest}")
        for module, name in sorted(names):
            pieces.setdefault(module, []).append(name)
        modules = {module: _digest("\n".join(pieces[module])) for module in sorted(pieces)}
        return Closure(_digest(repr(modules)), modules, frozenset(nodes))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(name: str, file: Path, changed: str | None) -> Module | None:
    if not file.suffix:
        return Module([], [], [], [])  # a package without __init__
    content = file.read_bytes() if changed is None else changed.encode()
    if file.suffix != ".py":
        return read_binary(content)

    def make() -> Module:
        return read(content, name, is_package(file))

    return make() if changed is not None else shelf().module(name, file, content, make)
