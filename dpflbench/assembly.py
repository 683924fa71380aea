"""A plain configuration to typed parts, in one place.

What `assemble` returns as canonical configuration has every default filled in and is valid input again, so a worker
needs nothing but that and the installed plugins.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpflbench.catalogue import Catalogue, Part
from dpflbench.interfaces import (
    Accountant,
    Algorithm,
    Dataset,
    LearningRate,
    LinearAggregator,
    LocalTransform,
    LocalUpdate,
    Mechanism,
    Model,
    RowAggregator,
    Selector,
)
from dpflbench.privacy.unprotected import NoNoise, NoNoiseL1, NoPrice
from dpflbench.schema import INVALID, bind, build, call, join, plain, suggest
from dpflbench.suite import Evaluate, normalise

if TYPE_CHECKING:
    from dpflbench.tasks.features import Features
    from dpflbench.tasks.partition import Partition
    from dpflbench.tasks.population import Distribution

PROTOCOLS: dict[str, Any] = {
    "mechanisms": Mechanism,
    "accountants": Accountant,
    "local_updates": LocalUpdate,
    "selectors": Selector,
    "aggregators": (LinearAggregator, RowAggregator),
    "transforms": LocalTransform,
    "algorithms": Algorithm,
    "datasets": Dataset,
    "models": Model,
}


@dataclass(frozen=True, slots=True)
class Federation:
    """How many take part how long, and how the server steps."""

    clients: int
    cohort: int
    rounds: int
    lr: LearningRate
    weight_decay: float = 0.0  # added to the direction after the clip: it depends on no data
    momentum: float = 0.0  # of the server, on noisy directions
    local: Mapping[str, Any] = field(default_factory=lambda: {"kind": "full_step"})  # what a participation computes

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ValueError(f"clients: {self.clients}; allowed: 1 or more")
        if not 1 <= self.cohort <= self.clients:
            raise ValueError(f"cohort: {self.cohort} of {self.clients} clients; allowed: 1 to {self.clients}")
        if self.rounds < 1:
            raise ValueError(f"rounds: {self.rounds}; allowed: 1 or more")
        if not self.lr.initial > 0 or not self.lr.decay > 0:
            raise ValueError(f"lr: initial {self.lr.initial}, decay {self.lr.decay}; both must be positive")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum: {self.momentum}; allowed: 0 to below 1")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay: {self.weight_decay}; allowed: 0 or more")


@dataclass(frozen=True, slots=True)
class TaskSection:
    """What is learnt from what, and who owns it."""

    dataset: Mapping[str, Any]
    model: Mapping[str, Any]
    partition: Mapping[str, Any]
    holdout: float = 0.1
    split: Literal["official", "paper"] = "official"
    limit: int | None = None  # keep that many examples, drawn by seed

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise ValueError(f"holdout: {self.holdout}; allowed: 0 to below 1")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit: {self.limit}; allowed: 1 or more examples")


@dataclass(frozen=True, slots=True)
class PrivacySection:
    """The budgets, the same for every algorithm of a column."""

    mechanism: Mapping[str, Any]
    clip: float | Mapping[str, float]
    epsilon: Mapping[str, Any]
    delta: Mapping[str, Any] | None = None
    trust: Literal["local"] = "local"  # where noise is added: at each client


@dataclass(frozen=True, slots=True)
class Assembly:
    """The typed parts of one run."""

    dataset: Dataset
    features: "Features | None"
    partition: "Partition"
    holdout: float
    split: Literal["official", "paper"]
    limit: int | None
    model: Model
    federation: Federation
    algorithm: Algorithm
    mechanism: Mechanism  # `NoNoise` without privacy
    accountant: Accountant
    local: LocalUpdate
    trust: str
    clip_norm: float | None
    epsilon: "Distribution | None"
    delta: "Distribution | None"
    evaluate: Evaluate
    seed: int
    parts: tuple[Part, ...]


class _Assembler:
    """Turns one plain configuration into parts, noting problems and the plugins in use."""

    def __init__(self, catalogue: Catalogue, problems: list[str]) -> None:
        self.catalogue, self.problems, self.used = catalogue, problems, list[Part]()

    def part(self, kind: str, given: Any, path: str) -> tuple[Any, dict[str, Any]]:
        """A plugin's part from {name, parameters…} and the same mapping with every default."""
        given = {"name": given} if isinstance(given, str) else given
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
            self.problems.append(
                f"{path}: expected the name of one of the {kind} or a mapping with 'name', found {given!r:.60}"
            )
            return INVALID, {}
        name = given["name"]
        part = self.catalogue.parts[kind].get(name)
        if part is None:
            self.problems.append(f"{path}: unknown {kind[:-1]} '{name}'; {suggest(name, self.catalogue.parts[kind])}")
            return INVALID, {}
        self.used.append(part)
        made, canonical = self.make(part.factory, {k: v for k, v in given.items() if k != "name"}, path)
        if made is not INVALID and not isinstance(made, PROTOCOLS[kind]):
            self.problems.append(
                f"{path}: plugin '{part.plugin}' of {part.distribution}: {kind[:-1]} '{name}' made "
                f"{type(made).__name__}, which has not the methods of one"
            )
            return INVALID, {}
        return made, {"name": name, **canonical}

    def tagged(self, registry: Mapping[str, Any], given: Any, path: str) -> tuple[Any, dict[str, Any]]:
        """One of dpflbench's own kinds from {kind, parameters…}."""
        if not isinstance(given, Mapping) or not isinstance(given.get("kind"), str) or given["kind"] not in registry:
            found = given.get("kind") if isinstance(given, Mapping) else given
            self.problems.append(f"{path}.kind: found {found!r}; {suggest(str(found), registry)}")
            return INVALID, {}
        made, canonical = self.make(registry[given["kind"]], {k: v for k, v in given.items() if k != "kind"}, path)
        return made, {"kind": given["kind"], **canonical}

    def make(self, factory: Any, given: Mapping[str, Any], path: str) -> tuple[Any, dict[str, Any]]:
        """What a factory makes, and its arguments with defaults."""
        bound = bind(factory, given, path, self.problems)
        return (INVALID, {}) if bound is None else (call(factory, bound, path, self.problems), plain(bound))

    def algorithm(self, given: Mapping[str, Any], path: str) -> tuple[Any, dict[str, Any]]:
        """An algorithm of a plugin, or one composed here of selector, aggregator and transform."""
        if given.get("name") != "compose":
            if given.get("name") not in self.catalogue.parts["algorithms"]:
                known = {*self.catalogue.parts["algorithms"], "compose"}
                self.problems.append(
                    f"{path.removesuffix('.with')}.use: unknown algorithm '{given.get('name')}'; "
                    f"{suggest(str(given.get('name')), known)}"
                )
                return INVALID, {}
            return self.part("algorithms", given, path)
        slots = {"selector": "uniform", "aggregator": "mean", "transform": "identity"}
        self.problems += [f"{join(path, k)}: unknown; {suggest(k, slots)}" for k in given if k not in (*slots, "name")]
        made: dict[str, Any] = {}
        canonical: dict[str, Any] = {"name": "compose"}
        for slot, default in slots.items():
            made[slot], canonical[slot] = self.part(f"{slot}s", given.get(slot, default), join(path, slot))
        if INVALID in made.values():
            return INVALID, {}
        return Algorithm("compose", **made), canonical


def assemble(
    config: Mapping[str, Any], catalogue: Catalogue, problems: list[str], algorithm_path: str = "algorithm"
) -> tuple[Assembly, dict[str, Any]] | None:
    """The parts of a run and its canonical configuration; None if there are problems."""
    from dpflbench.tasks.features import FEATURES
    from dpflbench.tasks.partition import PARTITIONS

    before, a = len(problems), _Assembler(catalogue, problems)
    config = normalise(config)
    task = build(TaskSection, config.get("task", {}), "task", problems)
    federation = build(Federation, config.get("federation", {}), "federation", problems)
    evaluate = build(Evaluate, config.get("evaluate", {}), "evaluate", problems)
    algorithm, algorithm_config = a.algorithm(config["algorithm"], algorithm_path)
    out: dict[str, Any] = {
        "task": {},
        "federation": plain(federation) if federation is not INVALID else {},
        "evaluate": plain(evaluate) if evaluate is not INVALID else {},
        "algorithm": algorithm_config,
        "seed": config["seed"],
    }
    local: Any = INVALID
    if federation is not INVALID:
        local, out["federation"]["local"] = a.tagged(
            _factories(catalogue, "local_updates"), federation.local, "federation.local"
        )
    features = None
    if task is not INVALID:
        dataset_given = {k: v for k, v in task.dataset.items() if k != "features"}
        dataset, dataset_config = a.part("datasets", dataset_given, "task.dataset")
        if task.dataset.get("features") is not None:
            features, dataset_config["features"] = a.tagged(FEATURES, task.dataset["features"], "task.dataset.features")
        model, model_config = a.part("models", task.model, "task.model")
        partition, partition_config = a.tagged(PARTITIONS, task.partition, "task.partition")
        out["task"] = {
            "dataset": dataset_config,
            "model": model_config,
            "partition": partition_config,
            "holdout": task.holdout,
            "split": task.split,
            "limit": task.limit,
        }
    if algorithm is INVALID or algorithm.private or algorithm.clip:
        noise, clip_norm, epsilon, delta, out["privacy"] = _privacy(a, config.get("privacy", {}), algorithm, local)
    else:
        noise, clip_norm, epsilon, delta = (NoNoise(), NoPrice()), None, None, None
    if len(problems) > before:
        return None
    assembly = Assembly(
        dataset,
        features,
        partition,
        task.holdout,
        task.split,
        task.limit,
        model,
        federation,
        algorithm,
        noise[0],
        noise[1],
        local,
        out.get("privacy", {}).get("trust", "local"),
        clip_norm,
        epsilon,
        delta,
        evaluate,
        config["seed"],
        tuple(a.used),
    )
    return assembly, out


def _factories(catalogue: Catalogue, kind: str) -> dict[str, Any]:
    return {name: part.factory for name, part in catalogue.parts[kind].items()}


def _privacy(a: _Assembler, given: Any, algorithm: Any, local: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Mechanism and accountant, clip bound, and budget distributions; an algorithm that clips without privacy needs the
    norm and the bound alone.
    """
    from dpflbench.tasks.population import DISTRIBUTIONS

    private = algorithm is INVALID or algorithm.private
    section = build(PrivacySection, given if private else {"epsilon": {}, **given}, "privacy", a.problems)
    if section is INVALID:
        return (None, None), None, None, None, {}
    asked = {k: v for k, v in section.mechanism.items() if k != "accountant"}
    mechanism, mechanism_config = a.part("mechanisms", asked, "privacy.mechanism")
    clip = _clip(a, section.clip, mechanism_config.get("name"))
    config = {"mechanism": mechanism_config, "clip": clip, "trust": section.trust}
    if mechanism is INVALID:
        return (None, None), clip, None, None, config
    if not private:
        return (NoNoiseL1() if mechanism.clip_order == 1 else NoNoise(), NoPrice()), clip, None, None, config
    named = section.mechanism.get("accountant", mechanism.accountant)
    accountant, mechanism_config["accountant"] = a.part("accountants", named, "privacy.mechanism.accountant")
    if accountant is INVALID or local is INVALID:
        return (None, None), clip, None, None, config
    why = accountant.supports(local.event(mechanism, np.ones(1), np.ones(1, dtype=np.int64)))
    if why:
        a.problems.append(f"privacy.mechanism.accountant: '{accountant.name}' has no proof for this: {why}")
    noise = mechanism, accountant
    epsilon, config["epsilon"] = a.tagged(DISTRIBUTIONS, section.epsilon, "privacy.epsilon")
    if epsilon is not INVALID and not 0 < epsilon.bounds()[0] <= epsilon.bounds()[1] < math.inf:
        a.problems.append(f"privacy.epsilon: ranges over {_range(epsilon)}; allowed: above 0 and finite")
    if accountant.pure:
        return noise, clip, epsilon, None, config
    if section.delta is None:
        a.problems.append(f"privacy.delta: missing; accountant '{accountant.name}' needs one")
        return noise, clip, epsilon, None, config
    delta, config["delta"] = a.tagged(DISTRIBUTIONS, section.delta, "privacy.delta")
    if delta is not INVALID and not 0 < delta.bounds()[0] <= delta.bounds()[1] < 1:
        a.problems.append(
            f"privacy.delta: ranges over {_range(delta)}; allowed: [0, 1), and above 0 for {mechanism.name} noise"
        )
    return noise, clip, epsilon, delta, config


def _range(distribution: "Distribution") -> str:
    low, high = distribution.bounds()
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _clip(a: _Assembler, clip: float | Mapping[str, float], mechanism: str | None) -> float:
    """The clip bound for a mechanism, from one number or one a mechanism."""
    if isinstance(clip, Mapping):
        if mechanism is not None and mechanism not in clip:
            a.problems.append(f"privacy.clip: no bound for mechanism '{mechanism}'; found {', '.join(clip) or 'none'}")
        clip = clip.get(str(mechanism), 1.0)
    if not 0 < clip < math.inf:
        a.problems.append(f"privacy.clip: {clip:g}; allowed: above 0 and finite")
    return clip
