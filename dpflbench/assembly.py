"""A configuration to typed parts, in one place.

The canonical configuration of an assembly has every default filled in and is valid input again, so a worker needs
nothing but that and the installed plugins.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpflbench.catalogue import Catalogue, Part
from dpflbench.federation.local import protecting
from dpflbench.frame import PrivacyFrame
from dpflbench.hookspecs import KINDS, kind_of, noun
from dpflbench.interfaces import (
    Accountant,
    Aggregator,
    Algorithm,
    Distribution,
    Features,
    LocalRule,
    LocalTransform,
    Mechanism,
    Neighbours,
    Selector,
    Trust,
    Unit,
)
from dpflbench.privacy.unprotected import NoNoise, NoNoiseL1, NoPrice
from dpflbench.replay import Counterfactual
from dpflbench.replay import read as read_counterfactual
from dpflbench.schema import INVALID, Made, Reader, show, suggest
from dpflbench.suite_schema import Canonical, Evaluate, Federation, Normalised, PrivacySection, Raw, TaskSection

Known = dict[str, tuple[Any, tuple[Part, ...]]]  # sections made before, and the parts they took
UNPROTECTED: Unit = "example"
# what `compose` takes by default
COMPOSED = {"selector": "uniform", "aggregator": "mean", "transform": "identity", "rule": "plain"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The typed parts of one run, and the configuration they were made of."""

    config: Canonical
    task: TaskSection
    features: Features | None
    federation: Federation
    privacy: PrivacySection | None  # None without privacy and clip
    algorithm: Algorithm
    evaluate: Evaluate
    parts: tuple[Part, ...]
    counterfactual: Counterfactual | None = None  # what of a private run is left out

    @property
    def seed(self) -> int:
        """What all randomness of the run starts from."""
        return int(self.config["seed"])

    @property
    def noise(self) -> tuple[Mechanism, Accountant]:
        """What is drawn and what it costs; nothing and nothing for an algorithm without privacy."""
        if self.counterfactual is not None and self.privacy is not None:
            return self.counterfactual.noise(self.privacy.mechanism)
        if self.privacy is None or not self.algorithm.private:
            l1 = self.privacy is not None and self.privacy.mechanism.clip_order == 1
            return (NoNoiseL1() if l1 else NoNoise()), NoPrice()
        return self.privacy.mechanism, self.privacy.accountant

    @property
    def neighbours(self) -> Neighbours:
        """Which data sets of a client must look alike."""
        named = self.privacy.neighbours if self.privacy else None
        return named or self.frame.neighbours

    @property
    def frame(self) -> PrivacyFrame:
        """Who is trusted and protected, how cohorts come about, and what a participation computes."""
        return frame_of(self.federation, self.privacy)

    def with_seed(self, seed: int) -> "Assembly":
        """The same parts under another seed."""
        return replace(self, config=Canonical(Normalised(Raw({**self.config, "seed": seed}))))


def frame_of(federation: Federation, privacy: PrivacySection | None) -> PrivacyFrame:
    """The frame of a run; without privacy nobody minds rows, but Poisson cohorts are divided by what is expected."""
    usual = Trust() if federation.cohorts == "exact" or privacy is not None else Trust("central")
    trust, unit = ((privacy.trust or usual), privacy.unit) if privacy else (usual, UNPROTECTED)
    return PrivacyFrame(trust, unit, federation.cohorts, federation.local)


def compose(selector: Selector, aggregator: Aggregator, transform: LocalTransform, rule: LocalRule) -> Algorithm:
    """An algorithm of parts that a suite names."""
    return Algorithm("compose", selector, aggregator, transform, rule)


class Assembler(Reader):
    """Reads a configuration, taking parts from a catalogue wherever an interface is asked for."""

    def __init__(self, catalogue: Catalogue, problems: list[str], known: Known | None = None) -> None:
        super().__init__(problems)
        self.catalogue, self.used = catalogue, list[Part]()
        self.known: Known = {} if known is None else known

    def once(self, make: Callable[..., Any], *given: Any) -> Any:
        """What `make` makes of plain data: the same as before if it was asked for before, for a large grid has few
        different sections. What is wrong is made, and said, again.
        """
        key, before, first = f"{make.__name__} {given!r}", len(self.problems), len(self.used)
        if key in self.known:
            made, used = self.known[key]
            self.used += used
            return made
        made = make(*given)
        if len(self.problems) == before:
            self.known[key] = made, tuple(self.used[first:])
        return made

    def convert(self, value: Any, annotation: Any, path: str) -> Any:
        """A part for an interface, anything else as its type says; what is made already stays."""
        if isinstance(value, Made):
            return value
        kind = kind_of(annotation)
        return super().convert(value, annotation, path) if kind is None else self.part(kind, value, path)

    def default(self, value: Any, annotation: Any, path: str) -> Any:
        """A part has to be named: a default would have no name to be recorded by."""
        named = value is None or kind_of(annotation) is None
        return value if named else self.refuse(path, f"missing; one of the {kind_of(annotation)} has to be named")

    def part(self, kind: str, given: Any, path: str) -> Any:
        """A plugin's part from its name or from {name, parameters…}; some kinds write `kind` for `name`."""
        tag, known = KINDS[kind].tag, self.catalogue.parts[kind]
        given = {tag: given} if isinstance(given, str) else given
        if not isinstance(given, Mapping) or not isinstance(given.get(tag), str):
            text = f"expected one of the {kind} by name or as a mapping with '{tag}', found {show(given)}"
            return self.refuse(path, text)
        name = given[tag]
        if name not in known:
            return self.refuse(path, f"unknown {noun(kind)} '{name}'; {suggest(name, known)}")
        part = known[name]
        self.used.append(part)
        made = self.build(part.factory, {k: v for k, v in given.items() if k != tag}, path)
        if made is INVALID:
            return INVALID
        if not isinstance(made.value, KINDS[kind].interface):
            return self.refuse(
                path,
                f"plugin '{part.plugin}' of {part.distribution}: {noun(kind)} '{name}' made "
                f"{type(made.value).__name__}, which is no {KINDS[kind].title}",
            )
        return Made(made.value, {tag: name, **made.canonical})

    def algorithm(self, given: Mapping[str, Any], path: str) -> Any:
        """An algorithm of a plugin, or one composed here of selector, aggregator and transform."""
        name, known = given["name"], self.catalogue.parts["algorithms"]
        if name in known:
            return self.part("algorithms", given, path)
        if name != "compose":
            path = f"{path.removesuffix('.with')}.use"
            return self.refuse(path, f"unknown algorithm '{name}'; {suggest(name, (*known, 'compose'))}")
        made = self.build(compose, {**COMPOSED, **{k: v for k, v in given.items() if k != "name"}}, path)
        if made is INVALID:
            return INVALID
        rest = {k: v for k, v in made.canonical.items() if (k, v) != ("rule", {"name": "plain"})}
        return Made(made.value, {"name": name, **rest})

    def task(self, given: Any) -> tuple[Any, Any]:
        """The task section, and the features that a suite names beside the parameters of its data set."""
        dataset = given.get("dataset") if isinstance(given, Mapping) else None
        if not isinstance(dataset, Mapping) or "features" not in dataset:
            return self.build(TaskSection, given, "task"), Made(None, {})
        given = {**given, "dataset": {k: v for k, v in dataset.items() if k != "features"}}
        features = self.convert(dataset["features"], Features | None, "task.dataset.features")
        return self.build(TaskSection, given, "task"), features or Made(None, {})

    def federation(self, given: Any) -> Any:
        """The federation section."""
        if isinstance(given, Mapping):
            given = {"local": {"kind": "full_step"}, **given}
        made = self.build(Federation, given, "federation")
        if made is INVALID:
            return INVALID
        unsaid = {("cohorts", "exact")}  # what goes without saying has one spelling
        canonical = {k: v for k, v in made.canonical.items() if v is not None and (k, str(v)) not in unsaid}
        return Made(made.value, canonical)

    def evaluate(self, given: Any) -> Any:
        """How often it is evaluated."""
        return self.build(Evaluate, given, "evaluate")

    def privacy(self, given: Any, private: bool, clip: bool, usual: str, relation: str) -> Any:
        """What of the privacy section matters under its mechanism to an algorithm that is private, or clips at least;
        accountant and relation are the `usual` ones of its local update unless they are named.
        """
        if not private and not clip:
            return Made(None, {})
        if isinstance(given, Mapping) and isinstance(given.get("trust"), str):
            given = {**given, "trust": {"kind": given["trust"]}}
        if isinstance(given, Mapping) and not private:
            given = {k: v for k, v in given.items() if k not in ("epsilon", "delta", "noise_key", "paired_noise")}
        elif isinstance(given, Mapping) and given.get("epsilon") is None:
            self.refuse("privacy.epsilon", "missing")
        if isinstance(given, Mapping) and "accountant" in given:
            self.refuse("privacy.accountant", "unknown; an accountant is named inside privacy.mechanism")
        named = isinstance(given, Mapping) and "mechanism" in given
        noise = self.noise(given["mechanism"], usual) if named else {}
        if INVALID in noise.values():
            for name in ("epsilon", "delta"):  # what else is wrong is said all the same
                self.convert(given.get(name), Distribution | None, f"privacy.{name}")
            return INVALID
        if noise and noise["accountant"].value.pure:
            given = {k: v for k, v in given.items() if k != "delta"}  # nobody spends it
        if isinstance(given, Mapping):
            given = {"accountant": Made(None, {}), **given, **noise}
        made = self.build(PrivacySection, given, "privacy")
        if made is INVALID:
            return INVALID
        canonical = {k: v for k, v in made.canonical.items() if v not in (None, False) and k != "accountant"}
        canonical["mechanism"] = {**canonical["mechanism"], "accountant": made.canonical["accountant"]}
        if canonical.get("neighbours") == relation:
            del canonical["neighbours"]  # what goes without saying has one spelling
        if canonical.get("unit") == "example":
            del canonical["unit"]
        trust, bound = made.value.trust or Trust(), made.value.clip_norm
        canonical["trust"] = canonical["trust"] if trust.kind == "secure_sum" else trust.kind
        return Made(replace(made.value, clip=bound, trust=trust), {**canonical, "clip": bound})

    def noise(self, given: Any, usual: str) -> dict[str, Any]:
        """Mechanism and accountant; a suite names the latter among the parameters of the former, if at all: else it is
        the local update's `usual` one or the mechanism's own.
        """
        named = given.get("accountant") if isinstance(given, Mapping) else None
        if isinstance(given, Mapping):
            given = {k: v for k, v in given.items() if k != "accountant"}
        mechanism = self.part("mechanisms", given, "privacy.mechanism")
        if mechanism is INVALID:
            return {"mechanism": INVALID}
        named = (usual or mechanism.value.accountant) if named is None else named
        return {"mechanism": mechanism, "accountant": self.part("accountants", named, "privacy.mechanism.accountant")}

    def proved(self, federation: Federation, privacy: PrivacySection) -> None:
        """Refuse a frame that has no proof, and an accountant that has none for what it releases."""
        frame = frame_of(federation, privacy)
        if why := frame.refusal(privacy.mechanism):
            self.refuse("", why)
            return
        relation = privacy.neighbours or frame.neighbours
        local = protecting(federation.local, privacy.unit)
        event = local.event(privacy.mechanism, np.ones(1), np.full(1, 2**20), 0.0, relation)
        if federation.cohorts == "poisson":
            event = replace(event, rate=np.full(1, 0.5), steps=np.full(1, federation.rounds))
        why = privacy.accountant.supports(event)
        if why:
            self.refuse("privacy.mechanism.accountant", f"'{privacy.accountant.name}' has no proof for this: {why}")


def assemble(
    config: Normalised,
    catalogue: Catalogue,
    problems: list[str],
    algorithm_path: str = "algorithm",
    known: Known | None = None,
) -> Assembly | None:
    """The parts of a run; None if there are problems. Sections that are `known` already are not made again."""
    before, read = len(problems), Assembler(catalogue, problems, known)
    task, features = read.once(read.task, config.get("task", {}))
    federation = read.once(read.federation, config.get("federation", {}))
    evaluate = read.once(read.evaluate, config.get("evaluate", {}))
    algorithm = read.algorithm(config["algorithm"], algorithm_path)
    private, clip = (True, True) if algorithm is INVALID else (algorithm.value.private, algorithm.value.clip)
    usual, relation = "", ""
    if federation is not INVALID:
        said = config.get("privacy")
        unit: Unit = "client" if isinstance(said, Mapping) and said.get("unit") == "client" else "example"
        frame = PrivacyFrame(Trust(), unit, federation.value.cohorts, federation.value.local)
        usual, relation = frame.accountant, frame.neighbours
    privacy = read.once(read.privacy, config.get("privacy", {}), private, clip, usual, relation)
    counterfactual = read_counterfactual(config.get("counterfactual"), problems)
    if INVALID not in (federation, privacy) and privacy.value is not None:
        read.proved(federation.value, privacy.value)
    if len(problems) > before:
        return None
    section = task.canonical
    if features.value is not None:
        section = {**section, "dataset": {**section["dataset"], "features": features.canonical}}
    canonical = {
        "task": section,
        "federation": federation.canonical,
        "evaluate": evaluate.canonical,
        "algorithm": algorithm.canonical,
        "seed": config["seed"],
    }
    if privacy.value is not None:
        canonical["privacy"] = privacy.canonical
    if counterfactual is not None:
        canonical["counterfactual"] = config["counterfactual"]
    return Assembly(
        config=Canonical(Normalised(Raw(canonical))),
        task=task.value,
        features=features.value,
        federation=federation.value,
        privacy=privacy.value,
        algorithm=counterfactual.algorithm(algorithm.value) if counterfactual else algorithm.value,
        evaluate=evaluate.value,
        parts=tuple(read.used),
        counterfactual=counterfactual,
    )
