"""What a statement does when its module is loaded, beside defining names: told from its syntax, and feared where that
does not tell.

A statement *acts* if it calls what is not known to be harmless or assigns into something else: a registry may be filled
by it. It is *opaque* if it can find definitions in a way nobody can read: `eval`, `sys.modules`, subclasses that
register themselves.
"""

import ast
import builtins
from collections.abc import Sequence

# Calls and decorators that change nothing but what they return: whole modules, and single names.
HARMLESS = frozenset(
    {"abc", "collections", "contextlib", "dataclasses", "enum", "logging", "math", "numpy", "pathlib"}
    | {"re", "typing"}
)
BUILTINS = frozenset(
    {"abs", "bool", "bytes", "classmethod", "complex", "dict", "enumerate", "float", "frozenset"}
    | {"int", "len", "list", "object", "property", "range", "round", "set", "slice"}
    | {"staticmethod", "str", "super", "tuple", "type", "zip"}
)
FUNCTOOLS = frozenset({"cache", "cached_property", "lru_cache", "partial", "singledispatch", "total_ordering", "wraps"})
MARKERS = frozenset({"pluggy.HookspecMarker", "pluggy.HookimplMarker"})
NAMES = (
    MARKERS
    | {"dpflbench.hookimpl", "torch.no_grad", "torch.inference_mode"}
    | {f"builtins.{name}" for name in BUILTINS}
    | {f"functools.{name}" for name in FUNCTOOLS}
)
CODE = frozenset({"eval", "exec", "globals", "compile", "__import__"})  # builtins that find definitions by text
FINDERS = frozenset(
    {"importlib.import_module", "importlib.reload", "importlib.util", "importlib.metadata.entry_points", "sys.modules"}
    | {"inspect.getmodule", "inspect.getmembers", "inspect.currentframe", "inspect.stack", "pkgutil", "runpy", "gc"}
)
HIDDEN = frozenset({"__subclasses__", "__globals__", "f_globals", "__init_subclass__"})
MAKERS = frozenset({"__init__", "__new__", "__post_init__", "__set_name__"})
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Import = tuple[str, str, str]  # name bound here, module, name in that module ('' for the module itself)


class Scope:
    """What names mean at the top of a module."""

    def __init__(self, imports: Sequence[Import], body: Sequence[ast.stmt], bound: set[str], stars: bool) -> None:
        self.imported = {name: f"{module}.{attribute}".rstrip(".") for name, module, attribute in imports}
        self.bound, self.stars = bound, stars
        self.own = {s.name for s in body if isinstance(s, ast.ClassDef) and self._is_record(s)}
        self.own |= {name for s in body if isinstance(s, ast.Assign) and self._is_marker(s) for name in _names(s)}

    def knows(self, name: str) -> bool:
        """Whether a name may be this module's."""
        return self.stars or name in self.bound or name in self.imported

    def full(self, mention: str) -> str:
        """A mention with its import spelt out; a builtin as it is, '' for what is defined here."""
        first, dot, rest = mention.partition(".")
        if first in self.bound:
            return ""
        return self.imported.get(first, "builtins." + first if hasattr(builtins, first) else "") + dot + rest

    def harmless(self, called: ast.expr) -> bool:
        """Whether calling this changes nothing but what it returns."""
        mention = dotted(called)
        if mention is None:  # a method of a text that stands here
            return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Constant)
        name = self.full(mention)
        return name.partition(".")[0] in HARMLESS or name in NAMES or mention in self.own

    def _is_record(self, made: ast.ClassDef) -> bool:
        """A dataclass that runs nothing of its own when it is made."""
        decorated = [dotted(d.func if isinstance(d, ast.Call) else d) for d in made.decorator_list]
        own = {s.name for s in made.body if isinstance(s, Definition)}
        return [self.full(d or "") for d in decorated] == ["dataclasses.dataclass"] and not (own & MAKERS or made.bases)

    def _is_marker(self, made: ast.Assign) -> bool:
        """A name for one of pluggy's decorators."""
        called = dotted(made.value.func) if isinstance(made.value, ast.Call) else None
        return self.full(called or "") in MARKERS


def opaque(mention: str, scope: Scope, local: dict[str, str]) -> bool:
    """Whether a mention can find definitions that are not named; `local` are the imports inside its statement."""
    first, _, rest = mention.partition(".")
    if not HIDDEN.isdisjoint(mention.split(".")):
        return True
    name = f"{local[first]}.{rest}".rstrip(".") if first in local else scope.full(mention)
    return name.removeprefix("builtins.") in CODE or any(name == f or name.startswith(f + ".") for f in FINDERS)


def registers_classes(node: ast.stmt) -> bool:
    """Whether classes made elsewhere could register themselves here: `__init_subclass__` or a metaclass."""
    for n in ast.walk(node):
        if isinstance(n, ast.FunctionDef) and n.name in HIDDEN:
            return True
        if isinstance(n, ast.ClassDef) and any((dotted(b) or "").endswith(("type", "Meta")) for b in n.bases):
            return True
    return False


def acts(node: ast.stmt, scope: Scope) -> bool:
    """Whether a statement may do more, when it is run, than give its names their values."""
    if isinstance(node, Definition):
        runs: list[ast.expr | None] = []
        for decorator in node.decorator_list:
            if not scope.harmless(decorator.func if isinstance(decorator, ast.Call) else decorator):
                return True
            if isinstance(decorator, ast.Call):
                runs += [*decorator.args, *(k.value for k in decorator.keywords)]
        if isinstance(node, ast.ClassDef):
            runs += [*node.bases, *(k.value for k in node.keywords)]
            return any(acts(s, scope) for s in node.body) or _calls(runs, scope)
        runs += [*node.args.defaults, *node.args.kw_defaults]
        return _calls(runs, scope)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        inside = any(isinstance(t, ast.Attribute | ast.Subscript) for at in targets for t in ast.walk(at))
        return inside or _calls([node.value], scope)
    return not isinstance(node, ast.Pass) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _calls(runs: Sequence[ast.expr | None], scope: Scope) -> bool:
    """Whether any of these expressions calls what is not known to be harmless, or binds or awaits something."""
    for expression in runs:
        for n in ast.walk(expression) if expression is not None else ():
            if isinstance(n, ast.NamedExpr | ast.Await) or (isinstance(n, ast.Call) and not scope.harmless(n.func)):
                return True
    return False


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` for a name with attributes; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None
