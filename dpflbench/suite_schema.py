"""The schema of a suite: every section with its keys, defaults and checks, and the three stages of a configuration.

A field whose type is an interface takes a part: `model: Model` one of `dpflbench list models`, by its name or as a
mapping with parameters. Interfaces are imported for the type checker alone: a misspelt suite is answered before torch
is there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NewType

from dpflbench.errors import SuiteError
from dpflbench.keys import SMALLEST_DELTA, key_of

if TYPE_CHECKING:
    from dpflbench.interfaces import (
        Accountant,
        Dataset,
        Distribution,
        LearningRate,
        LocalUpdate,
        Mechanism,
        Model,
        Partition,
        Server,
        Trust,
    )

# A later stage serves wherever an earlier one does, never the other way round.
Raw = NewType("Raw", dict[str, Any])  # what files and --set say
Normalised = NewType("Normalised", Raw)  # shorthands written out: `model: softmax` is `model: {name: softmax}`
Canonical = NewType("Canonical", Normalised)  # every default filled in: hashed, recorded, all that a worker needs

VARIED = ("task", "federation", "privacy")  # what an axis can vary
VARYING = ("axes", "cases", "seeds", "tune", "algorithms")
CASE = "case"  # the axis that cases make
SECTIONS = ("name", "description", "extends", *VARIED, "evaluate", "resources", *VARYING, "report")
# What may be tuned: how steps are taken. Budgets, data, cohorts and rounds are the same for all.
TUNABLE = (
    "federation.lr",
    "federation.local.lr",
    "federation.momentum",
    "federation.server",
    "federation.weight_decay",
    "privacy.clip",
)
TUNING_SEEDS = 1000  # the first of the seeds that tuning runs have and no table shows
TUNING_RUNS = 3  # so many of them, if a suite does not say
# where a bare word or number stands for a mapping: `model: softmax`, `partition: iid`, `epsilon: 2.0`
SHORTHANDS = {
    "task.dataset": "name",
    "task.model": "name",
    "privacy.mechanism": "name",
    "privacy.mechanism.accountant": "name",
    "federation.local": "kind",
    "federation.server": "kind",
    "task.partition": "kind",
    "task.dataset.features": "kind",
    "privacy.trust": "kind",
    "privacy.epsilon": "kind",
    "privacy.delta": "kind",
}
# What no machine undercuts: a round, a client's part in it, the memory a client's size and budgets take
ROUND_SECONDS, CLIENT_SECONDS, CLIENT_BYTES = 1e-4, 1e-6, 64
MAX_DAYS, MAX_GIGABYTES = 30, 1000


def keep(*rules: tuple[bool, str]) -> None:
    """SuiteError with the texts of all rules that are broken; a text starts with the key it is about."""
    broken = [text for kept, text in rules if not kept]
    if broken:
        raise SuiteError(broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSection:
    """What is learnt from what, and who owns it."""

    dataset: "Dataset"  # and, in the same mapping, the features made of it
    model: "Model"
    partition: "Partition"
    holdout: float = 0.1
    split: Literal["official", "paper", "validation"] = "official"
    limit: int | None = None  # keep that many examples, drawn by seed

    def __post_init__(self) -> None:
        keep(
            (0 <= self.holdout < 1, f"holdout: {self.holdout}; allowed: 0 to below 1"),
            (self.limit is None or self.limit >= 1, f"limit: {self.limit}; allowed: 1 or more examples"),
            (
                self.split != "validation" or self.holdout > 0,
                f"holdout: {self.holdout} leaves no examples to validate on; allowed: above 0",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """How many take part how long, and how the server steps."""

    clients: int
    cohort: int
    rounds: int
    lr: "LearningRate"
    local: "LocalUpdate"  # what a participation computes; `full_step` if a suite does not say
    weight_decay: float = 0.0  # added to the direction after the clip: it depends on no data
    momentum: float = 0.0  # of the server, on noisy directions
    server: "Server | None" = None  # None: as `momentum` says
    cohorts: Literal["exact", "poisson"] = "exact"  # as often as planned, or by secret coins

    def __post_init__(self) -> None:
        lr, gigabytes = self.lr, self.clients * CLIENT_BYTES / 1e9
        days = self.rounds * (ROUND_SECONDS + self.cohort * CLIENT_SECONDS) / 86_400
        keep(
            (self.clients >= 1, f"clients: {self.clients}; allowed: 1 or more"),
            (
                gigabytes <= MAX_GIGABYTES,
                f"clients: {self.clients:,} take {gigabytes:,.0f} GB for their sizes and budgets alone; "
                f"allowed: up to {MAX_GIGABYTES:,} GB",
            ),
            (
                1 <= self.cohort <= max(1, self.clients),
                f"cohort: {self.cohort} of {self.clients} clients; allowed: 1 to {self.clients}",
            ),
            (self.rounds >= 1, f"rounds: {self.rounds}; allowed: 1 or more"),
            (
                days <= MAX_DAYS,
                f"rounds: {self.rounds:,} of {self.cohort:,} clients each take {days:,.0f} days at the very least; "
                f"allowed: up to {MAX_DAYS} days",
            ),
            (lr.initial > 0 < lr.decay, f"lr: initial {lr.initial}, decay {lr.decay}; both must be positive"),
            (
                not self.momentum or self.server is None,
                f"momentum: {self.momentum} beside a server; allowed: server: {{kind: momentum, beta: …}}",
            ),
            (0 <= self.momentum < 1, f"momentum: {self.momentum}; allowed: 0 to below 1"),
            (self.weight_decay >= 0, f"weight_decay: {self.weight_decay}; allowed: 0 or more"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacySection:
    """The budgets, the same for every algorithm of a column."""

    mechanism: "Mechanism"
    accountant: "Accountant"  # in the mapping of the mechanism; the mechanism's own if a suite does not say
    clip: float | Mapping[str, float]  # one bound, or one a mechanism
    epsilon: "Distribution | None" = None  # None only for an algorithm that clips without privacy
    delta: "Distribution | None" = None
    trust: "Trust | None" = None  # where noise is added, and what the server sees; None: at each client, rows
    unit: Literal["example", "client"] = "example"  # what is protected
    neighbours: Literal["replace", "zero_out"] | None = None  # None: the frame's own
    noise_key: str | None = None  # pinned, so predictable; without one a results folder draws its own
    paired_noise: bool = False  # one noise for all runs of a seed: epsilon then holds for one of them alone

    @property
    def clip_norm(self) -> float:
        """The clip bound under the mechanism; NaN if there is none."""
        return self.clip.get(self.mechanism.name, math.nan) if isinstance(self.clip, Mapping) else self.clip

    def __post_init__(self) -> None:
        name, clip = self.mechanism.name, self.clip_norm
        found = ", ".join(self.clip) if isinstance(self.clip, Mapping) else ""
        epsilon = self.epsilon.bounds() if self.epsilon is not None else (1.0, 1.0)
        asked = self.epsilon is not None and not self.accountant.pure
        delta = self.delta.bounds() if asked and self.delta is not None else (0.5, 0.5)
        if self.noise_key is not None:
            key_of(self.noise_key, "noise_key")
        keep(
            (not math.isnan(clip), f"clip: no bound for mechanism '{name}'; found {found or 'none'}"),
            (math.isnan(clip) or 0 < clip < math.inf, f"clip: {clip:g}; allowed: above 0 and finite"),
            (
                0 < epsilon[0] <= epsilon[1] < math.inf,
                f"epsilon: ranges over {_range(epsilon)}; allowed: above 0 and finite",
            ),
            (not asked or self.delta is not None, f"delta: missing; accountant '{self.accountant.name}' needs one"),
            (
                0 < delta[0] <= delta[1] < 1,
                f"delta: ranges over {_range(delta)}; allowed: [0, 1), and above 0 for {name} noise",
            ),
            (
                not 0 < delta[0] < SMALLEST_DELTA,
                f"delta: from {delta[0]:g} on; allowed: from 2^-64 = 5.4e-20 on, for noise hangs on a key of 128 bits",
            ),
        )


@dataclass(frozen=True, slots=True)
class Evaluate:
    """How often the test utility is taken; the last round always is."""

    every: int = 10

    def __post_init__(self) -> None:
        keep((self.every >= 1, f"every: {self.every}; allowed: 1 or more rounds"))


@dataclass(frozen=True, slots=True)
class Resources:
    """What one run asks of a cluster."""

    cpu: float = 1.0
    gpu: float = 0.0

    def __post_init__(self) -> None:
        keep(*((0 <= v < math.inf, f"{k}: {v}; allowed: 0 or more") for k, v in (("cpu", self.cpu), ("gpu", self.gpu))))


@dataclass(frozen=True, slots=True)
class Report:
    """What the table shows."""

    rows: Literal["algorithm"] = "algorithm"
    columns: list[str] | None = None  # axis paths; all of them if not given
    value: Literal["utility", "utility_global", "utility_personal", "utility_mean_phi"] = "utility"
    baseline: str | list[str] | None = None  # of a list, the first that has a value in a column
    sections: list[str | dict[str, Any]] = field(default_factory=list)  # parts that plugins add, as {name, parameters}
    why: bool = False  # also run what explains the table: every private run without noise, and without clip as well


@dataclass(frozen=True, slots=True)
class Tune:
    """What is chosen for every algorithm in every column, from the same grid."""

    grid: Mapping[str, Sequence[Any]]  # path → values
    seeds: int  # how many, from TUNING_SEEDS on


@dataclass(frozen=True, slots=True)
class AlgorithmEntry:
    """One line of `algorithms`: what to use, its parameters, its label in the table."""

    use: str
    given: Mapping[str, Any]
    label: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A checked suite: the base configuration and what varies over it."""

    name: str
    description: str
    base: Normalised  # task, federation, privacy
    axes: Mapping[str, Sequence[Any]]  # with one called CASE where there are cases
    cases: Mapping[str, Mapping[str, Any]]  # name → path → value: what differs together
    seeds: Sequence[int]
    entries: Sequence[AlgorithmEntry]
    tune: Tune | None
    evaluate: Evaluate
    resources: Resources
    report: Report
    where: str  # file, for messages

    @property
    def varied(self) -> list[str]:
        """Every path that an axis or a case sets."""
        paths = [path for case in self.cases.values() for path in case]
        return [*(path for path in self.axes if path != CASE), *dict.fromkeys(paths)]

    def settings(self, coordinates: Mapping[str, Any]) -> dict[str, Any]:
        """Path → value at a point of the axes: what its case says, then the other axes."""
        return settings(self.cases, coordinates)

    @property
    def folder(self) -> Path:
        """Where its file lies: relative paths in it start there."""
        return Path(self.where).absolute().parent


def settings(cases: Mapping[str, Mapping[str, Any]], coordinates: Mapping[str, Any]) -> dict[str, Any]:
    """Path → value at a point of the axes; nothing of a case that is not among them."""
    rest = {path: value for path, value in coordinates.items() if path != CASE}
    return {**cases.get(str(coordinates.get(CASE)), {}), **rest}


def _range(bounds: tuple[float, float]) -> str:
    low, high = bounds
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
