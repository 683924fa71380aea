"""The kit: every part of a plugin, of a distribution or of all that is installed, one outcome each."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpflbench.catalogue import Catalogue, Part, load
from dpflbench.errors import DpflbenchError
from dpflbench.schema import suggest
from dpflbench.testing.aggregators import check_aggregator
from dpflbench.testing.algorithms import check_algorithm
from dpflbench.testing.factories import check_factory, required
from dpflbench.testing.mechanisms import check_mechanism
from dpflbench.testing.rules import ConformanceError, refuse
from dpflbench.testing.sections import check_section
from dpflbench.testing.selectors import check_selector
from dpflbench.testing.sources import check_dataset, check_model
from dpflbench.testing.transforms import check_transform

CHECKS: dict[str, Callable[..., Any]] = {
    "mechanisms": check_mechanism,
    "selectors": check_selector,
    "aggregators": check_aggregator,
    "transforms": check_transform,
    "algorithms": check_algorithm,
    "datasets": check_dataset,
    "models": check_model,
    "sections": check_section,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the kit says about one part."""

    part: Part
    status: Literal["ok", "failed", "partly"]  # partly: something could not be looked at here
    message: str
    seconds: float


def check_part(part: Part, root: Path | None = None) -> str:
    """Raise ConformanceError at the first broken rule of a part; empty, or what could not be looked at and why."""
    who = f"plugin '{part.plugin}' of {part.distribution} {part.version}: {part.kind[:-1]} '{part.name}'"
    missing = required(part.factory)
    if missing:
        check_factory(part.factory, who)
        kind = part.kind[:-1]
        return f"needs {', '.join(missing)}: check it in its own tests by dpflbench.testing.check_{kind}({kind})"
    if part.kind == "datasets":
        return check_dataset(part.factory, who, root)
    CHECKS[part.kind](part.factory, who)
    if part.kind == "mechanisms" and part.factory().name != part.name:
        refuse(
            who,
            f"its name is '{part.factory().name}'",
            f"'{part.name}', as registered: algorithms and records name it so",
            "use one name in the class and in the hook",
        )
    return ""


def examine(name: str, catalogue: Catalogue | None = None, root: Path | None = None) -> list[Outcome]:
    """The outcomes for all parts of a plugin or distribution, or of everything installed (`all`)."""
    catalogue = catalogue or load()
    parts = [part for kind in catalogue.parts.values() for part in kind.values()]
    chosen = parts if name == "all" else [p for p in parts if name in (p.plugin, p.distribution)]
    if not chosen:
        known = {p.plugin for p in parts} | {p.distribution for p in parts} | {"all"}
        raise DpflbenchError(f"check {name}: no such plugin; {suggest(name, known)}")
    return [_outcome(part, root) for part in chosen]


def _outcome(part: Part, root: Path | None) -> Outcome:
    began = time.perf_counter()
    try:
        left_out = check_part(part, root)
    except ConformanceError as e:
        return Outcome(part, "failed", str(e), time.perf_counter() - began)
    return Outcome(part, "partly" if left_out else "ok", left_out, time.perf_counter() - began)


def check_plugin(name: str) -> None:
    """Raise ConformanceError with one line for each part of an installed plugin that breaks a rule."""
    failed = [outcome.message for outcome in examine(name) if outcome.status == "failed"]
    if failed:
        raise ConformanceError("\n".join(failed))
