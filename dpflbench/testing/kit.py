"""The kit: every part of a plugin, of a distribution or of all that is installed, one outcome each."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpflbench.catalogue import Catalogue, Part, load
from dpflbench.errors import DpflbenchError
from dpflbench.schema import build, suggest
from dpflbench.testing.factories import check_factory, required
from dpflbench.testing.rules import ConformanceError, refuse


@dataclass(frozen=True, slots=True)
class Examination:
    """What the kit says about one part."""

    part: Part
    status: Literal["ok", "failed", "partly"]  # partly: something could not be looked at here
    message: str
    seconds: float


def check_part(part: Part, root: Path | None = None) -> str:
    """Raise ConformanceError at the first broken rule of a part, with its defaults and with every example that its
    factory declares; empty, or what could not be looked at and why.
    """
    from dpflbench import testing  # a kind is checked by the `check_` of its name

    who = f"plugin '{part.plugin}' of {part.distribution} {part.version}: {part.kind[:-1]} '{part.name}'"
    singular = part.kind[:-1]
    check = getattr(testing, f"check_{singular}")
    needed, examples = required(part.factory), getattr(part.factory, "examples", ())
    if needed or examples:
        check_factory(part.factory, who)
    for example in examples:
        problems: list[str] = []
        made = build(part.factory, example, "examples", problems)
        if problems:
            refuse(who, problems[0], "parameters it takes", "correct `examples` of the factory")
        check(made, f"{who} with {example}")
    if needed and not examples:
        return (
            f"needs {', '.join(needed)}: give its factory `examples` of parameters to try, or check it in its own "
            f"tests by dpflbench.testing.check_{singular}({singular})"
        )
    if needed:
        return ""
    if part.kind == "datasets":
        return str(check(part.factory, who, root))
    check(part.factory, who)
    if part.kind == "mechanisms" and part.factory().name != part.name:
        refuse(
            who,
            f"its name is '{part.factory().name}'",
            f"'{part.name}', as registered: algorithms and records name it so",
            "use one name in the class and in the hook",
        )
    return ""


def examine(name: str, catalogue: Catalogue | None = None, root: Path | None = None) -> list[Examination]:
    """The outcomes for all parts of a plugin or distribution, or of everything installed (`all`)."""
    catalogue = catalogue or load()
    parts = [part for kind in catalogue.parts.values() for part in kind.values()]
    chosen = parts if name == "all" else [p for p in parts if name in (p.plugin, p.distribution)]
    if not chosen:
        known = {p.plugin for p in parts} | {p.distribution for p in parts} | {"all"}
        raise DpflbenchError(f"check {name}: no such plugin; {suggest(name, known)}")
    return [_outcome(part, root) for part in chosen]


def _outcome(part: Part, root: Path | None) -> Examination:
    began = time.perf_counter()
    try:
        left_out = check_part(part, root)
    except ConformanceError as e:
        return Examination(part, "failed", str(e), time.perf_counter() - began)
    return Examination(part, "partly" if left_out else "ok", left_out, time.perf_counter() - began)


def check_plugin(name: str) -> None:
    """Raise ConformanceError with one line for each part of an installed plugin that breaks a rule."""
    failed = [outcome.message for outcome in examine(name) if outcome.status == "failed"]
    if failed:
        raise ConformanceError("\n".join(failed))
