"""A private run played again without what makes it private: the same plan, cohorts and weights, no noise, no clip.

What would have been without noise cannot be asked of a selector that looks at noisy losses: it would plan otherwise. So
its plans are not made again but read from the private run's record, with the noise scales that came with them, for some
aggregators weigh by those. A configuration says all of it under `counterfactual`; such a run claims no privacy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dpflbench.interfaces import Algorithm, Event, Floats, Ints, Mechanism, Plan, PlanView
from dpflbench.privacy.unprotected import NoNoise, NoPrice
from dpflbench.results.record import Record

Without = Literal["noise", "noise_and_clip", "budget"]  # budget: noise of the scales that are given, whoever allows it
EXPLAINING: tuple[Without, ...] = ("noise", "noise_and_clip")
MESSAGES = (0, 2)  # kinds of events that carry a gradient


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """A selector that repeats recorded plans; what a use `cost` is its noise scale (see AsRecorded)."""

    stages: Sequence[Mapping[str, Any]]

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return the plan that began at this round."""
        stage = next(s for s in self.stages if int(s["round"]) == view.round)
        uses, scale, factor = (stage.get(name) for name in ("uses", "scale", "clip_factor"))
        factor = None if factor is None else np.asarray(factor, dtype=np.float64)
        cost = np.asarray(scale, dtype=np.float64)[:, None]
        return Plan(np.asarray(uses, dtype=np.int64), int(stage["horizon"]), cost=cost, clip_factor=factor)


@dataclass(frozen=True)
class Silent(NoNoise):
    """Nothing is drawn; aggregators are told the variance that noise would have had."""

    of: Mechanism

    def variance(self, scale: Floats) -> Floats:
        """Return that of the noise that is left out."""
        return self.of.variance(scale)


@dataclass(frozen=True)
class SilentL1(Silent):
    """The same under a clip in L1."""

    clip_order: ClassVar[Literal[1, 2]] = 1


@dataclass(frozen=True)
class AsRecorded(NoPrice):
    """Its currency is the scale itself: what a plan names is what it gets."""

    def scale(self, cost: Floats, event: Event) -> Floats:
        """Return the scale that was recorded."""
        return np.asarray(cost[..., 0])


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """What of a private run is left out, and the plans it had."""

    of: str  # id of the private run
    without: Without
    stages: Sequence[Mapping[str, Any]]

    def algorithm(self, private: Algorithm) -> Algorithm:
        """The algorithm that replays it."""
        clip = self.without != "noise_and_clip"
        return replace(private, selector=Replay(self.stages), mechanisms=None, private=False, clip=clip)

    def noise(self, mechanism: Mechanism) -> tuple[Mechanism, AsRecorded]:
        """What stands in for its mechanism and accountant."""
        if self.without == "budget":
            return mechanism, AsRecorded()
        return (SilentL1 if mechanism.clip_order == 1 else Silent)(mechanism), AsRecorded()


def read(given: Any, problems: list[str]) -> Counterfactual | None:
    """The `counterfactual` of a configuration; None if it has none or is refused."""
    if given is None:
        return None
    try:
        found = Counterfactual(str(given["of"]), given["without"], list(given["stages"]))
    except (KeyError, TypeError) as e:
        problems.append(f"counterfactual: expected of, without and stages ({type(e).__name__}: {e})")
        return None
    if found.without not in get_args(Without):
        problems.append(f"counterfactual.without: found {found.without!r:.40}; allowed: {', '.join(get_args(Without))}")
    return found


def stages_of(record: Record) -> list[dict[str, Any]]:
    """The plans of a finished private run as it kept them: from its ledger who took part at which scale, from its notes
    where a plan began and what it changed of the clip.
    """
    events, n = record.events, len(record.clients["uses"])
    message = np.isin(events["kind"], MESSAGES)
    clients, rounds, scales = (np.asarray(events[name])[message] for name in ("client", "round", "scale"))
    out = []
    for note in record.notes:
        start, horizon = int(note["round"]), int(note["horizon"])
        here = (rounds >= start) & (rounds < start + horizon)
        stage = {"round": start, "horizon": horizon, **_uses(clients[here], rounds[here], scales[here], n)}
        if "clip_factor" in note:
            stage["clip_factor"] = np.asarray(note["clip_factor"], dtype=np.float64)
        out.append(stage)
    return out


def _uses(clients: Ints, rounds: Ints, scales: Floats, n: int) -> dict[str, Any]:
    """Participations and scale of each client [N]; several releases in one round are one participation."""
    uses, scale = np.zeros(n, dtype=np.int64), np.zeros(n)
    taken = np.unique(np.stack([clients, rounds]), axis=1)
    np.add.at(uses, taken[0].astype(np.int64), 1)
    scale[clients.astype(np.int64)] = scales
    return {"uses": uses, "scale": scale}
