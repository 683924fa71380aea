"""The schema of a suite as JSON Schema (draft 2020-12), for editors: they complete keys and names of parts, show what
each means, and underline what no suite may say.

Nothing is said twice: keys, types and defaults come from suite_schema.py, parts with their parameters from installed
plugins, meanings from suites/README.md. It never refuses what `dpflbench plan` takes; `plan` refuses more, for it sees
values together. A suite that extends another may leave out whatever that one says.
"""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from dpflbench import shipped
from dpflbench.assembly import COMPOSED, compose
from dpflbench.catalogue import Catalogue
from dpflbench.described import description
from dpflbench.hookspecs import KINDS, kind_of
from dpflbench.interfaces import Accountant, Features, Section
from dpflbench.schema import MAX_INTEGER, parameters
from dpflbench.suite_schema import (
    SHORTHANDS,
    TUNABLE,
    Evaluate,
    Federation,
    PrivacySection,
    Report,
    Resources,
    TaskSection,
)

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCALARS: Mapping[Any, Schema] = {
    int: {"type": "integer", "minimum": -MAX_INTEGER, "maximum": MAX_INTEGER},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    Path: {"type": "string"},
    type(None): {"type": "null"},
}
CHECKED = {"task": TaskSection, "federation": Federation, "privacy": PrivacySection}
PLAIN = {"evaluate": Evaluate, "resources": Resources, "report": Report}
# named among the parameters of a part, and no parameter of it
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "datasets": {"features": Features | None},
    "mechanisms": {"accountant": Accountant},
}
NEEDED = ("name", "task", "federation", "algorithms")
# what the checks of suite_schema.py say of one value by itself
BOUNDS: Mapping[str, Schema] = {
    "task.holdout": {"minimum": 0, "exclusiveMaximum": 1},
    "task.limit": {"minimum": 1},
    "federation.clients": {"minimum": 1},
    "federation.cohort": {"minimum": 1},
    "federation.rounds": {"minimum": 1},
    "federation.weight_decay": {"minimum": 0},
    "federation.momentum": {"minimum": 0, "exclusiveMaximum": 1},
    "evaluate.every": {"minimum": 1},
    "resources.cpu": {"minimum": 0},
    "resources.gpu": {"minimum": 0},
}


def json_schema(catalogue: Catalogue) -> Schema:
    """The schema of every suite that the installed parts can run."""
    whole, partly = Describer(catalogue, whole=True), Describer(catalogue, whole=False)
    definitions = {**whole.definitions(), **partly.definitions()}
    common: Schema = {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$"},
        "description": {"type": "string"},
        "extends": {"type": "string"},
        "seeds": {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "integer"}},
            ]
        },
        "axes": whole.grid(CHECKED, lambda path: True),
        "cases": {"type": "object", "additionalProperties": whole.settings(CHECKED, lambda path: True)},
        "tune": _with_seeds(whole.grid(CHECKED, lambda path: any(f"{path}.".startswith(f"{t}.") for t in TUNABLE))),
        "algorithms": {"type": "array", "minItems": 1, "items": whole.algorithm()},
    }
    common |= {name: whole.section(name, shape) for name, shape in PLAIN.items()}
    return {
        "$schema": DIALECT,
        "title": "dpflbench suite",
        "type": "object",
        "properties": {
            name: whole.told(name, schema) for name, schema in {**common, **{key: {} for key in CHECKED}}.items()
        },
        "additionalProperties": False,
        "if": {"required": ["extends"]},
        "then": {"properties": {name: partly.section(name, shape) for name, shape in CHECKED.items()}},
        "else": {
            "properties": {name: whole.section(name, shape) for name, shape in CHECKED.items()},
            "required": list(NEEDED),
        },
        "$defs": definitions,
    }


def _with_seeds(grid: Schema) -> Schema:
    seeds = {"type": "integer", "minimum": 1}
    return {**grid, "properties": {"seeds": seeds, **grid["properties"]}, "minProperties": 1}


class Describer:
    """Annotations as schemas; `whole`: what is needed must be there."""

    def __init__(self, catalogue: Catalogue, whole: bool) -> None:
        self.catalogue, self.whole = catalogue, whole

    @cached_property
    def meanings(self) -> dict[str, str]:
        """Key → what the README of the suites says of it."""
        text = (shipped.home() / "README.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \| (.+) \|$", text, re.MULTILINE)
        return {key: meaning for keys, meaning in rows for key in re.findall(r"`([\w.]+)`", keys)}

    def told(self, path: str, schema: Schema) -> Schema:
        """The schema of a key with its meaning."""
        return {**schema, "description": self.meanings[path]} if path in self.meanings else schema

    def reference(self, kind: str) -> Schema:
        """Where the parts of a kind are described."""
        return {"$ref": f"#/$defs/{self._label(kind)}"}

    def _label(self, kind: str) -> str:
        return kind if self.whole else f"{kind}_in_part"

    def definitions(self) -> dict[str, Schema]:
        """Every kind of part."""
        return {self._label(kind): self.kind(kind) for kind in KINDS if kind not in ("algorithms", "trackers")}

    def kind(self, kind: str) -> Schema:
        """A part by its name, or as a mapping with parameters; a number is a constant budget."""
        tag, parts = KINDS[kind].tag, self.catalogue.parts[kind]
        also = BESIDE.get(kind, {})
        every: dict[str, Schema] = {name: self.value(annotation) for name, annotation in also.items()}
        for part in parts.values():
            every |= {name: {} for name in parameters(part.factory)}
        mapping: Schema = {
            "type": "object",
            "properties": {tag: {"enum": sorted(parts)}, **every},
            "additionalProperties": False,
            "allOf": [
                {
                    "if": {"properties": {tag: {"const": name}}, "required": [tag]},
                    "then": self.parameters(
                        part.factory, {tag: {}, **{k: every[k] for k in also}}, description(part.factory)
                    ),
                }
                for name, part in sorted(parts.items())
            ],
        }
        if self.whole:
            mapping["required"] = [tag]
        # a bare name would leave out what its part needs
        names = [name for name, part in sorted(parts.items()) if not self.whole or not _needs(part.factory)]
        numbers = [{"type": "number"}] if kind == "budgets" else []
        return {"anyOf": [{"enum": names}, mapping, *numbers], "description": KINDS[kind].decides}

    def parameters(self, factory: Callable[..., Any], also: Mapping[str, Schema], text: str = "") -> Schema:
        """What a factory takes, as a mapping."""
        own = {name: self.default(*given) for name, given in parameters(factory).items()}
        schema: Schema = {"type": "object", "properties": {**also, **own}, "additionalProperties": False}
        if self.whole and _needs(factory):
            schema["required"] = _needs(factory)
        return {**schema, "description": text} if text else schema

    def default(self, annotation: Any, default: Any) -> Schema:
        """A parameter with its default, where JSON has it."""
        plain = isinstance(default, str | int | float) and default == default and abs_finite(default)
        return {**self.value(annotation), **({"default": default} if plain else {})}

    def section(self, section: str, shape: type) -> Schema:
        """A section of a suite."""
        own = {f.name: f for f in dataclasses.fields(shape) if f.name != "accountant"}
        hints = {name: annotation for name, (annotation, _) in parameters(shape).items()}
        found = {name: self.key(f"{section}.{name}", hints[name]) for name in own}
        schema = self.told(section, {"type": "object", "properties": found, "additionalProperties": False})
        if section == "report":
            found["sections"]["items"] = self.value(Section)
            found["paper"] = {"description": "until version 0.1; now a section"}
        needed = [name for name in _needs(shape) if name in own and name != "local"]
        return {**schema, "required": needed} if self.whole and needed else schema

    def key(self, path: str, annotation: Any) -> Schema:
        """One key of a section."""
        schema = self.value(annotation)
        for option in typing.get_args(annotation) if path in SHORTHANDS else ():
            if kind_of(option) is None and dataclasses.is_dataclass(option) and isinstance(option, type):
                words = typing.get_args(parameters(option)[SHORTHANDS[path]][0])  # a bare word is its kind
                schema = {"anyOf": [{"enum": list(words)}, *schema["anyOf"]]}
        return self.told(path, {**schema, **BOUNDS.get(path, {})})

    def value(self, annotation: Any) -> Schema:
        """What may be written for an annotation."""
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        kind = kind_of(annotation)
        if kind is not None:
            return self.reference(kind)
        if annotation in SCALARS:
            return dict(SCALARS[annotation])
        if origin in (typing.Union, types.UnionType):
            options = [self.value(option) for option in arguments]
            simple = all(set(option) == {"type"} for option in options)
            return {"type": [option["type"] for option in options]} if simple else {"anyOf": options}
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (list, tuple, Sequence):
            return {"type": "array", "items": self.value(arguments[0]) if arguments else {}}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.value(arguments[1])}
        if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
            return self.parameters(annotation, {}, description(annotation))
        return {}

    def grid(self, sections: Mapping[str, type], wanted: Callable[[str], bool]) -> Schema:
        """Dotted paths to lists of values."""
        one = self.settings(sections, wanted)
        listed = {path: {"type": "array", "minItems": 1, "items": schema} for path, schema in one["properties"].items()}
        deeper = {pattern: {"type": "array", "minItems": 1} for pattern in one["patternProperties"]}
        return {**one, "properties": listed, "patternProperties": deeper}

    def settings(self, sections: Mapping[str, type], wanted: Callable[[str], bool]) -> Schema:
        """Dotted paths to values: those of sections and of parameters of parts are known, deeper ones not."""
        known: dict[str, list[Schema]] = {}
        for section, shape in sections.items():
            for name, (annotation, _) in parameters(shape).items():
                path = f"{section}.{name}"
                if path != "privacy.accountant":
                    known.setdefault(path, []).append(self.key(path, annotation))
                    for below, schema in self.below(annotation):
                        known.setdefault(f"{path}.{below}", []).append(schema)
        values = {p: s[0] if len(s) == 1 else {"anyOf": unique(s)} for p, s in sorted(known.items()) if wanted(p)}
        deeper = rf"^({'|'.join(sections)})\." if wanted("task") else rf"^({'|'.join(map(re.escape, TUNABLE))})(\.|$)"
        return {
            "type": "object",
            "properties": values,
            "patternProperties": {deeper: {}},
            "additionalProperties": False,
        }

    def below(self, annotation: Any) -> list[tuple[str, Schema]]:
        """Parameters below a key, of every part that may stand there."""
        options = [o for o in (typing.get_args(annotation) or (annotation,)) if o is not type(None)]
        found = []
        for option in options:
            kind = kind_of(option)
            factories = [part.factory for part in self.catalogue.parts[kind].values()] if kind else []
            if kind is None and dataclasses.is_dataclass(option) and isinstance(option, type):
                factories = [option]
            for factory in factories:
                found += [(name, self.value(given)) for name, (given, _) in parameters(factory).items()]
        return found

    def algorithm(self) -> Schema:
        """A line of `algorithms`: a name, or what to use with which parameters."""
        parts = self.catalogue.parts["algorithms"]
        names = sorted((*parts, "compose"))
        cases = {
            name: self.parameters(part.factory, {}, description(part.factory)) for name, part in sorted(parts.items())
        }
        composed = self.parameters(compose, {})
        cases["compose"] = {**composed, "required": [n for n in composed.get("required", ()) if n not in COMPOSED]}
        mapping = {
            "type": "object",
            "properties": {"use": {"enum": names}, "as": {"type": "string"}, "with": {"type": ["object", "null"]}},
            "required": ["use"],
            "additionalProperties": False,
            "allOf": [
                {
                    "if": {"properties": {"use": {"const": name}}},
                    "then": {"properties": {"with": {"anyOf": [schema, {"type": "null"}]}}},
                }
                for name, schema in cases.items()
            ],
        }
        return {"anyOf": [{"enum": names}, mapping]}


def _needs(factory: Callable[..., Any]) -> list[str]:
    """Parameters without a default."""
    return [name for name, (_, default) in parameters(factory).items() if default is inspect.Parameter.empty]


def abs_finite(value: object) -> bool:
    """Whether JSON can write a value: it has no infinity."""
    return not isinstance(value, float) or abs(value) != float("inf")


def unique(schemas: Sequence[Schema]) -> list[Schema]:
    """Each once."""
    return [schema for i, schema in enumerate(schemas) if schema not in schemas[:i]]
