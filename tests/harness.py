"""From a plain suite mapping to assemblies, runs and records, for tests of the whole path."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from places import place

from dpflbench.assembly import Assembly, assemble
from dpflbench.draws import NORMAL, Draws, Law
from dpflbench.execution.attempt import execute, prepare
from dpflbench.interfaces import Accountant, Event, Floats, Mechanism
from dpflbench.planning import Run, make_run
from dpflbench.results.record import Record
from dpflbench.suite_reading import normalise


def run_of(body: dict[str, Any], catalogue: Any, use: str, seed: int = 0, **given: Any) -> Run:
    """The run of one algorithm under a suite mapping."""
    made = assembly_of(body, catalogue, use, seed, **given)
    return make_run(made.config, made, made.task.dataset.digest(None))


def assembly_of(body: dict[str, Any], catalogue: Any, use: str, seed: int = 0, **given: Any) -> Assembly:
    """The parts of one algorithm under a suite mapping."""
    problems: list[str] = []
    made = assemble(normalise(body | {"algorithm": {"name": use, **given}, "seed": seed}), catalogue, problems)
    assert made is not None, problems
    return made


def record_of(body: dict[str, Any], catalogue: Any, use: str, seed: int = 0, **given: Any) -> Record:
    """The record of one algorithm under a suite mapping."""
    return execute(run_of(body, catalogue, use, seed, **given), catalogue, place())


def world_of(
    body: dict[str, Any],
    catalogue: Any,
    use: str,
    seed: int = 0,
    algorithm: dict[str, Any] | None = None,
    **changes: Any,
):
    """A prepared run whose assembly was changed: parts of the algorithm by `algorithm`, of privacy by keyword."""
    assembly = assembly_of(body, catalogue, use, seed)
    if changes:
        assembly = replace(assembly, privacy=replace(assembly.privacy, **changes))
    if algorithm:
        assembly = replace(assembly, algorithm=replace(assembly.algorithm, **algorithm))
    return prepare(assembly, place())


@dataclass(frozen=True)
class Silent(Mechanism):
    """No noise: what is left of a private algorithm then is its arithmetic."""

    name: ClassVar[str] = "gaussian"
    law: ClassVar[Law] = NORMAL
    clip_order: ClassVar[Literal[1, 2]] = 2
    accountant: ClassVar[str] = "free"

    def noised(self, value: Floats, scale: Floats, draws: Draws) -> Floats:
        return value

    def variance(self, scale: Floats) -> Floats:
        return np.zeros_like(scale)


@dataclass(frozen=True)
class Free(Accountant):
    """Releases at no cost."""

    name: ClassVar[str] = "free"
    exponent: int = field(init=False, default=1)

    def supports(self, event: Event) -> str:
        return ""

    def cost(self, event: Event) -> Floats:
        return np.zeros((*np.shape(event.scale), 1))

    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        return np.ones((len(epsilon), 1))

    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        return cost[..., 0]

    def scale(self, cost: Floats, event: Event) -> Floats:
        return np.ones_like(event.sensitivity)
