"""One module as statements: what each binds, what it mentions, and what it does when the module is loaded.

Comments, docstrings, positions and layout are not looked at. A statement that acts belongs to everybody who loads the
module; one that is opaque can reach everything in its package (effects.py).
"""

import ast
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dpflbench.provenance import effects
from dpflbench.provenance.effects import Definition, Import, Scope, dotted

SKIPPED = frozenset({"ctx", "kind", "type_comment"})


class Statement(NamedTuple):
    """One statement at the top of a module."""

    binds: Sequence[str]
    digest: str
    mentions: Sequence[str]  # names with their attributes, `a.b.c`, whose first part the module knows
    imports: Sequence[Import]  # inside it
    acts: bool  # does more than define what it binds
    opaque: bool


class Module(NamedTuple):
    """All statements of a module, and its imports at the top."""

    statements: Sequence[Statement]
    imports: Sequence[Import]
    stars: Sequence[str]  # modules whose every name is imported
    loads: Sequence[str]  # modules that are loaded with this one


def read(content: bytes, name: str, package: bool) -> Module:
    """The module of that name and source; by its bytes alone if nobody can parse it."""
    try:
        return _parsed(content, name, package)
    except (SyntaxError, ValueError, RecursionError):
        return read_binary(content)


def _parsed(content: bytes, name: str, package: bool) -> Module:
    tree = ast.parse(content)
    here = name if package else name.rpartition(".")[0]
    documented = b"__doc__" in content and _reads_docstrings(tree)  # then they are values like any other
    body = [s for s in tree.body if not _never_runs(s) and (documented or not _is_text(s))]
    imports: list[Import] = []
    stars: list[str] = []
    loads: list[str] = []
    for node in _top_imports(body):
        loads += _loaded(node, here)
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            stars.append(_source(node, here))
        else:
            imports += _bound(node, here)
    body = [s for s in body if not isinstance(s, ast.Import | ast.ImportFrom)]
    binds = [sorted(set(_binds(s))) for s in body]
    scope = Scope(imports, body, {n for names in binds for n in names}, bool(stars))
    statements = [_statement(s, names, scope, here, documented) for s, names in zip(body, binds, strict=True)]
    used = {mention.partition(".")[0] for s in statements for mention in s.mentions}
    for node in _top_imports(tree.body):  # an import that nobody mentions is there for what it does
        unused = [a.name for a in node.names if (a.asname or a.name.partition(".")[0]) not in used]
        statements += [
            Statement([], f"import {n}", [], [], True, False) for n in unused if isinstance(node, ast.Import)
        ]
    return Module(statements, imports, stars, loads)


def _reads_docstrings(tree: ast.Module) -> bool:
    """Whether `__doc__` is used in any way but to set that of something else."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "__doc__" and not isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.Name) and node.id == "__doc__")
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and "__doc__" in node.value)
        for node in ast.walk(tree)
    )


def read_binary(content: bytes) -> Module:
    """A compiled module: one opaque piece, by its bytes."""
    return Module([Statement([], hashlib.sha256(content).hexdigest()[:32], [], [], True, False)], [], [], [])


def _statement(node: ast.stmt, binds: list[str], scope: Scope, here: str, documented: bool) -> Statement:
    text: list[str] = []
    mentions: set[str] = set()
    _write(node, text, mentions, documented)
    inside = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
    imports = [i for n in inside for i in _bound(n, here)]
    imports += [("", a.name, "") for n in inside if isinstance(n, ast.Import) for a in n.names]  # loaded, used or not
    local = {name: f"{module}.{attribute}".rstrip(".") for name, module, attribute in imports}
    registers = effects.registers_classes(node)
    opaque = registers or any(effects.opaque(m, scope, local) for m in mentions)
    known = sorted(m for m in mentions if scope.knows(first := m.partition(".")[0]) or first in local)
    digest = hashlib.sha256("\n".join(text).encode()).hexdigest()[:32]
    return Statement(binds, digest, known, imports, registers or effects.acts(node, scope), opaque)


def _write(node: Any, text: list[str], mentions: set[str], documented: bool) -> None:
    """The content of a node as lines that are equal where the code is, and all names it mentions."""
    mention = dotted(node)
    if mention is not None:
        mentions.add(mention)
        text.append(mention)
        return
    if isinstance(node, ast.Constant):
        text.append(repr(node.value))
        return
    text.append(type(node).__name__ + "(")
    for field in node._fields:
        value = getattr(node, field, None)
        if value is None or value == [] or field in SKIPPED:
            continue  # what a newer Python adds to a node is empty in older code: the same digest
        text.append(field)
        if field in ("annotation", "returns"):
            _mention_texts(value, mentions)
        if isinstance(value, ast.AST):
            _write(value, text, mentions, documented)
        elif isinstance(value, list):
            if field == "body" and isinstance(node, Definition) and not documented and _is_text(value[0]):
                value = value[1:]
            for item in value:
                if isinstance(item, ast.AST):
                    _write(item, text, mentions, documented)
                else:
                    text.append(repr(item))
        else:
            text.append(repr(value))
    text.append(")")


def _mention_texts(annotation: ast.AST, mentions: set[str]) -> None:
    """Names inside annotations that are written as texts: whoever reads them looks those names up."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                _write(ast.parse(node.value, mode="eval").body, [], mentions, True)
            except (SyntaxError, ValueError):
                continue


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _never_runs(node: ast.stmt) -> bool:
    """`if TYPE_CHECKING:` and `if __name__ == "__main__":`, without another branch."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    test = node.test
    return (dotted(test) or "").rpartition(".")[2] == "TYPE_CHECKING" or (
        isinstance(test, ast.Compare) and dotted(test.left) == "__name__" and isinstance(test.ops[0], ast.Eq)
    )


def _binds(node: ast.stmt) -> Iterator[str]:
    """Names a statement gives a value at the top of its module."""
    if isinstance(node, Definition):
        yield node.name
        return
    for n in ast.walk(node):
        if isinstance(n, Definition):
            yield n.name
        elif isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
            yield n.id


def _top_imports(body: Sequence[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run with the module: not those inside functions and classes."""
    for statement in body:
        if not isinstance(statement, Definition):
            yield from (n for n in ast.walk(statement) if isinstance(n, ast.Import | ast.ImportFrom))


def _source(node: ast.ImportFrom, here: str) -> str:
    """The module a `from … import` names, spelt out."""
    base = here.split(".")[: len(here.split(".")) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def _bound(node: ast.Import | ast.ImportFrom, here: str) -> list[Import]:
    if isinstance(node, ast.ImportFrom):
        return [(a.asname or a.name, _source(node, here), a.name) for a in node.names]
    return [(a.asname, a.name, "") if a.asname else (top := a.name.partition(".")[0], top, "") for a in node.names]


def _loaded(node: ast.Import | ast.ImportFrom, here: str) -> list[str]:
    """Modules an import loads; what it takes from a package may be a module too."""
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    source = _source(node, here)
    return [source, *(f"{source}.{a.name}" for a in node.names if a.name != "*")]
