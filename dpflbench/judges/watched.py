"""The white-box test of sampled training: which records were drawn, what was released, and what became of it.

A `Watched` local update hands its clients an engine and a way out that both keep notes. Whoever holds these needs no
attack to see four things that residuals of the noise do not show:

batch      every release is the clipped sum over the EXPECTED batch; the realised one moves with a record
path       models and messages are what the local rule makes of the NOISY releases, and of nothing else
rate       records are drawn as often as was charged: all of them together, and those of each client
coins      a record that was drawn is not likelier to be drawn at the next step

`batch` and `path` are exact and accuse nobody falsely. The other two are sums of independent centred coins (for `coins`
given the steps before; even and odd ones apart), whose tails Bernstein's inequality bounds without any limit theorem.

It empties canaries, too: `zero_out` neighbours are one data set with and without what one record contributes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.draws import Draws
from dpflbench.federation.gradients import Sums
from dpflbench.federation.minibatch import Minibatch
from dpflbench.interfaces import ClientWork, Computed, Event, Floats, Ints, Neighbours, Protect
from dpflbench.privacy.residuals import ALARM, Tested

NEAR = 1e-6  # of a sensitivity, or of the longest coordinate: float32 rounds by less
FEW = 8  # coordinates that show no scale
NO_RECORDS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Step:
    """One release of some clients of a cohort."""

    theta: Tensor  # [J, D], where gradients were taken
    phi: Tensor  # [J, P]
    drawn: Ints  # positions in the shards, emptied ones too
    clip_norm: Tensor | None  # [J]
    sums: Tensor  # [J, D + P]


@dataclass(slots=True, eq=False)
class Logbook:
    """What was seen of all participations so far."""

    emptied: Ints = field(default_factory=lambda: NO_RECORDS)  # positions whose records contribute nothing
    canaries: "Canaries | None" = None  # whose presence is to be guessed
    wrong: dict[str, str] = field(default_factory=dict)  # test → the first thing it saw
    drawn: Floats = field(default_factory=lambda: np.zeros(0))  # [N], records, over all steps
    expected: Floats = field(default_factory=lambda: np.zeros(0))  # [N]
    variance: Floats = field(default_factory=lambda: np.zeros(0))  # [N]
    before: Floats = field(default_factory=lambda: np.zeros(0))  # [M], coin minus rate at the client's step before
    steps: Ints = field(default_factory=lambda: NO_RECORDS)  # [N], of each client so far
    repeated: Floats = field(default_factory=lambda: np.zeros((2, 2)))  # even and odd steps: sum and variance

    def accuse(self, test: str, about: str) -> None:
        """Note that an exact test failed."""
        self.wrong.setdefault(test, about)

    def count(self, work: ClientWork, clients: Ints, drawn: Ints) -> None:
        """Take the coins of one step of some clients."""
        shards, rate = work.shards, np.zeros(work.shards.offsets.size - 1)
        if not len(self.drawn):
            self.drawn, self.expected, self.variance = (np.zeros(len(rate)) for _ in range(3))
            self.steps, self.before = np.zeros(len(rate), dtype=np.int64), np.zeros(int(shards.offsets[-1]))
        rate[work.cohort] = work.event.rate
        times = np.bincount(drawn, minlength=len(self.before))
        if times.max(initial=0) > 1:
            self.accuse("batch", f"record {int(times.argmax())} is {int(times.max())} times in one batch")
        sizes = shards.sizes[clients]
        at = np.concatenate([np.arange(shards.offsets[n], shards.offsets[n + 1]) for n in clients])
        owner = np.repeat(clients, sizes)
        self.drawn += np.bincount(owner, times[at], len(rate))
        self.expected[clients] += sizes * rate[clients]
        self.variance[clients] += sizes * (rate * (1 - rate))[clients]
        off, last = times[at] - rate[owner], self.before[at]
        odd = self.steps[owner] % 2
        self.repeated[:, 0] += np.bincount(odd, off * last, 2)
        self.repeated[:, 1] += np.bincount(odd, last**2 * (rate * (1 - rate))[owner], 2)
        self.before[at] = off
        self.steps[clients] += 1

    def tests(self) -> tuple[Tested, ...]:
        """What all of it shows."""
        exact = [
            Tested(name, 0.0 if name in self.wrong else 1.0, self.wrong.get(name, "as it should be"))
            for name in ("batch", "path")
        ]
        if not len(self.drawn):
            return tuple(exact)
        off = np.append(self.drawn - self.expected, (self.drawn - self.expected).sum())
        tails = bernstein(off, np.append(self.variance, self.variance.sum()))
        share = float(self.drawn.sum() / self.expected.sum())
        rate = Tested("rate", min(1.0, 2 * len(off) * float(tails.min())), f"drawn {share:.4f} times as often as paid")
        again = bernstein(self.repeated[:, 0], self.repeated[:, 1])
        z = self.repeated[:, 0] / np.sqrt(np.maximum(self.repeated[:, 1], 1e-300))
        far = float(z[np.abs(z).argmax()])
        text = f"a record drawn at one step is drawn at the next, by {far:.1f} standard errors more than it should be"
        return (*exact, rate, Tested("coins", min(1.0, 4 * float(again.min())), text))

    def rate_seen(self, tests: int) -> float:
        """How many times too high a rate of all clients must be to be seen nine times in ten."""
        if not self.expected.sum():
            return math.inf
        variance, count = float(self.variance.sum()), len(self.drawn) + 1
        need = math.log(2 * count * tests / ALARM)
        far = need / 3 + math.sqrt(need**2 / 9 + 2 * need * variance)
        return 1 + (far + 1.2816 * math.sqrt(variance)) / float(self.expected.sum())


@dataclass(slots=True, eq=False)
class Canaries:
    """Log-likelihood ratios of one record's presence, for whoever sees every release and knows all but its coins.

    The rest of a batch may be known: the theorem of amplification by sampling conditions on it. With g what the canary
    would add and r a release minus the rest, a step adds log(1 - q + q exp((r g - |g|^2 / 2) / scale^2)). The scale is
    the one that r shows across g, not the one that was charged: where noise is missing, more can be told.
    """

    first: Ints  # [N], their positions
    score: Floats  # [N]
    steps: list[tuple[Ints, Floats, Floats, Floats]] = field(default_factory=list)  # client, |g| / scale, rate, reach

    def listen(self, work: ClientWork, at: Ints, step: Step, out: Tensor, present: Ints) -> None:
        """Take one release; `present` are the positions that were drawn and not emptied."""
        paid, clients = work.event.of(at), work.cohort[at]
        where, ones = torch.as_tensor(self.first[clients], device=out.device), np.ones(len(at), dtype=np.int64)
        sums = work.engine.batch_sums(step.theta, step.phi, work.shards, where, ones, step.clip_norm)
        mine = torch.cat([sums.theta, sums.phi], 1).cpu().numpy()
        size = (paid.rate * work.shards.sizes[clients])[:, None]
        inside = np.isin(self.first[clients], present)[:, None]
        rest = (step.sums.cpu().numpy() - inside * mine) / size
        g, r = mine / size / paid.scale[:, None], (out.cpu().numpy() - rest) / paid.scale[:, None]
        length = np.linalg.norm(g, axis=1)
        along = (r * g).sum(1) / np.maximum(length, 1e-300)
        spread = np.ones(len(at))
        if r.shape[1] >= FEW:
            spread = np.sqrt(np.maximum((r * r).sum(1) - along**2, 1e-12) / (r.shape[1] - 1))
        self.score[clients] += mixed((along - length / 2) * length / spread**2, paid.rate)
        self.steps.append((clients, length, paid.rate, length * paid.scale / paid.sensitivity))


def mixed(exponent: Floats, rate: Floats) -> Floats:
    """log(1 - q + q exp(x))."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(np.log1p(-rate), np.log(rate) + exponent))


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """A local update under watch; else as it ever was."""

    local: Minibatch
    log: Logbook

    @property
    def neighbours(self) -> Neighbours:
        """Return its own."""
        return self.local.neighbours

    @property
    def accountant(self) -> str:
        """Return its own."""
        return self.local.accountant

    @property
    def ruled(self) -> bool:
        """Return its own."""
        return self.local.ruled

    @property
    def noise_for_all(self) -> float | None:
        """Return its own."""
        return self.local.noise_for_all

    def event(self, *given: Any) -> Event:
        """Return its own."""
        return self.local.event(*given)

    def compute(self, work: ClientWork, protect: Protect) -> Computed:
        """Return what it computes, once it was looked at."""
        engine, releases = Noting(work.engine, self.log.emptied), list[tuple[Ints, Tensor, Tensor]]()

        def listened(value: Tensor, rows: Ints | None = None) -> Tensor:
            out = protect(value, rows)
            at = np.arange(len(work.cohort)) if rows is None else np.array(rows)
            releases.append((at, value.clone(), out.clone()))
            return out

        computed = self.local.compute(replace(work, engine=engine), listened)
        if len(engine.steps) != len(releases):
            self.log.accuse("batch", f"{len(releases)} releases of {len(engine.steps)} sums")
        for step, (at, value, out) in zip(engine.steps, releases, strict=False):
            self._look(work, step, at, value, out)
        self._follow(work, engine.steps, [out for _, _, out in releases], computed)
        return computed

    def _look(self, work: ClientWork, step: Step, at: Ints, value: Tensor, out: Tensor) -> None:
        """One release against its sums, and its coins."""
        clients, paid = work.cohort[at], work.event.of(at)
        size = torch.as_tensor(paid.rate * work.shards.sizes[clients], device=value.device)[:, None]
        off = (value - step.sums / size).norm(dim=1).cpu().numpy() / paid.sensitivity
        if not (off <= NEAR).all():
            worst = int(np.nanargmax(off))
            self.log.accuse(
                "batch",
                f"a release of client {clients[worst]} is {off[worst]:.3g} sensitivities away from the sum over the "
                "expected batch",
            )
        self.log.count(work, clients, step.drawn)
        if self.log.canaries is not None:
            self.log.canaries.listen(work, at, step, out, np.setdiff1d(step.drawn, self.log.emptied))

    def _follow(self, work: ClientWork, steps: Sequence[Step], noisy: Sequence[Tensor], computed: Computed) -> None:
        """The way by the rule again, from the noisy releases alone."""
        engine, left = Following(), iter(noisy)
        quiet = replace(work, engine=engine, loss_bound=None, batches=Draws(bytes(32)))
        try:
            again = Minibatch.compute(self.local, quiet, lambda value, rows=None: next(left))
        except StopIteration:
            self.log.accuse("path", f"{len(noisy)} releases are too few for the steps that were paid for")
            return
        pairs: list[tuple[str, Tensor, Tensor]] = [("messages", computed.messages, again.messages)]
        pairs += [
            (f"models of step {i}", s.theta, t) for i, (s, t) in enumerate(zip(steps, engine.models, strict=False))
        ]
        pairs += _rows(computed.own, again.own)
        for name, found, expected in pairs:
            if found.shape != expected.shape or not _near(found, expected):
                self.log.accuse("path", f"{name} are not what the local rule makes of the noisy releases")
                return


class Noting:
    """An engine that keeps what it was asked for and what it answered, and leaves out what emptied records add."""

    def __init__(self, engine: Any, emptied: Ints) -> None:
        self.engine, self.emptied, self.steps = engine, emptied, list[Step]()

    def __getattr__(self, name: str) -> Any:
        """Return the engine's own."""
        return getattr(self.engine, name)

    def batch_sums(
        self, theta: Tensor, phi: Tensor, shards: Any, rows: Tensor, counts: Ints, clip_norm: Tensor | None
    ) -> Sums:
        """Return the sums without emptied records."""
        drawn = rows.cpu().numpy()
        stays = ~np.isin(drawn, self.emptied)
        fewer = np.bincount(np.repeat(np.arange(len(counts)), counts)[stays], minlength=len(counts))
        left = torch.as_tensor(drawn[stays], device=rows.device)
        sums: Sums = self.engine.batch_sums(theta, phi, shards, left, fewer, clip_norm)
        both = torch.cat([sums.theta, sums.phi], 1)
        self.steps.append(Step(theta=theta.clone(), phi=phi.clone(), drawn=drawn, clip_norm=clip_norm, sums=both))
        return sums


class Following:
    """An engine that only notes the models it is shown."""

    def __init__(self) -> None:
        self.models = list[Tensor]()

    def batch_sums(
        self, theta: Tensor, phi: Tensor, shards: Any, rows: Tensor, counts: Ints, clip_norm: Tensor | None
    ) -> Sums:
        """Return zeros; what matters is the noise that replaces them."""
        self.models.append(theta.clone())
        return Sums(torch.zeros_like(theta).double(), torch.zeros_like(phi).double(), None)


def bernstein(off: Floats, variance: Floats) -> Floats:
    """The most likely it is that a sum of independent centred coins of that variance is so far off, on its side."""
    off = np.maximum(np.abs(off) - 1e-9, 0.0)  # sums round
    return np.asarray(np.where(off > 0, np.exp(-(off**2) / np.maximum(2 * (variance + off / 3), 1e-300)), 1.0))


def _rows(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[tuple[str, Tensor, Tensor]]:
    return [(f"kept rows '{name}'", one[name], other[name]) for name in other if name in one]


def _near(one: Tensor, other: Tensor) -> bool:
    return bool(torch.allclose(one, other, rtol=1e-5, atol=NEAR * float(other.abs().max()), equal_nan=True))
