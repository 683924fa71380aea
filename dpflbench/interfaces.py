"""What plugins implement and what is handed to them.

A part is a frozen dataclass of hyper-parameters; what changes is returned as state, and nothing that comes in is
changed in place. Arrays about clients are NumPy float64/int64 on the host (planning and privacy); updates are torch
tensors on the run's device. Only public or already noisy values pass through here: budgets, client sizes, noisy updates
and noisy losses.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpflbench.draws import Draws, Law
from dpflbench.draws import Floats as Floats
from dpflbench.errors import DpflbenchError

Ints = NDArray[np.int64]
Neighbours = Literal["replace", "zero_out"]  # privacy/sensitivity.py says what they are
LEAST_DRAWN = 0.01  # records a step on average: below it a client is as good as absent
State = Any  # None, a tensor, a number, or dicts, lists and tuples of those: what a checkpoint can hold


def _read_only(value: Any) -> None:
    """Put copies in place of a dataclass's arrays that nobody can write to: their memory is a byte string."""
    for item in fields(value):
        array = getattr(value, item.name)
        if isinstance(array, np.ndarray):
            frozen = np.ndarray(array.shape, array.dtype, np.ascontiguousarray(array).tobytes())
            object.__setattr__(value, item.name, frozen)


# ---------------------------------------------------------------- what everybody may know


@dataclass(frozen=True, slots=True)
class ParameterTensor:
    """Where one tensor of the model lies inside the flat parameter vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    norm: bool = False  # the affine part of a normalisation layer


@dataclass(frozen=True, slots=True)
class Layout:
    """The parameter tensors inside the flat vector theta [D], in order."""

    tensors: tuple[ParameterTensor, ...]

    @property
    def dim(self) -> int:
        """D, the length of theta."""
        return self.tensors[-1].stop if self.tensors else 0


@dataclass(frozen=True, slots=True)
class LearningRate:
    """lr(t) = initial / (1 + t / decay); `decay: inf` keeps it constant."""

    initial: float
    decay: float = float("inf")

    def __call__(self, round: int) -> float:
        """The learning rate of a round, counted from 0."""
        return self.initial / (1.0 + round / self.decay)


@dataclass(frozen=True, slots=True)
class Server:
    """How the server makes a step of a noisy direction (federation/server.py)."""

    kind: Literal["sgd", "momentum", "adam", "yogi"] = "sgd"
    beta: float = 0.9  # of the first moment
    beta_2: float = 0.99  # of the second
    tau: float = 1e-3  # added to its root

    def __post_init__(self) -> None:
        for name in ("beta", "beta_2"):
            if not 0 <= getattr(self, name) < 1:
                raise DpflbenchError(f"{name}: {getattr(self, name)}; allowed: 0 to below 1")
        if not 0 < self.tau < float("inf"):
            raise DpflbenchError(f"tau: {self.tau}; allowed: above 0 and finite")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Setup:
    """What everybody may know before the first round: sizes and budgets are public, data is not. Read-only."""

    n_clients: int
    cohort_size: int
    rounds: int
    n_examples: Ints  # [N], training examples of each client
    epsilon: Floats  # [N], inf for a run without privacy
    delta: Floats  # [N], 0 where the accountant is pure
    budget: Floats  # [N, A], (epsilon, delta) as a total of the accountant's currency
    mechanism: "Mechanism"
    accountant: "Accountant"
    local: "LocalUpdate"
    clip_norm: float  # inf: not clipped
    lr: LearningRate
    layout: Layout
    phi_dim: int = 0  # P, numbers a transform adds to each client's message
    n_classes: int = 0  # 0 for regression
    neighbours: Neighbours = "replace"
    passes: int = 1  # of an algorithm's local rule

    def __post_init__(self) -> None:
        """Nobody changes what others see."""
        _read_only(self)

    @property
    def dim(self) -> int:
        """D + P: all coordinates that are noised together."""
        return self.layout.dim + self.phi_dim

    def message(
        self, clip_factor: float | Floats = 1.0, loss_bound: float = 0.0, rate: Floats | None = None
    ) -> "Event":
        """One message of every client [N], its noise not yet chosen; with `loss_bound` losses travel in it too."""
        clip = np.broadcast_to(np.asarray(self.clip_norm * clip_factor, dtype=np.float64), (self.n_clients,))
        event = self.local.event(self.mechanism, clip, self.n_examples, loss_bound, self.neighbours, rate)
        return event if self.passes == 1 else replace(event, steps=event.steps * self.passes)

    def message_for(self, cost: Floats, clip_factor: float | Floats = 1.0, loss_bound: float = 0.0) -> "Event":
        """One message of every client that may cost so much [N, A]: by its noise or, where all have the same, by how
        many records it draws. Scales are infinite where nothing may be spent, or hardly a record drawn.
        """
        message, noise = self.message(clip_factor, loss_bound), self.local.noise_for_all
        if noise is None:
            return message.at(self.accountant.scale(cost, message))
        used, rate = (cost > 0).any(1), self.accountant.rate(cost, message, noise)
        sampled = self.message(clip_factor, rate=np.where(used, rate, 1.0))
        enough = used & (rate * self.n_examples >= LEAST_DRAWN)
        return sampled.at(np.where(enough, sampled.sensitivity * noise * (1 + 2.0**-50), np.inf))


# ---------------------------------------------------------------- noise, events, accountants


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Event:
    """Releases of several clients as plain data, one row a client. What they cost is an accountant's business."""

    kind: str  # gradient, loss, joint (gradient and losses at one scale)
    law: str  # of the noise: gaussian, laplace, or a stranger's
    sensitivity: Floats  # [K], how far one protected record moves the released value, in the norm of the clip
    scale: Floats  # [K], of the noise; NaN while it is not chosen
    rate: Floats  # [K], share of a client's records each release uses, drawn in secret; 1: all of them
    steps: Ints  # [K], releases of this kind in one participation
    neighbours: Neighbours = "replace"  # the relation the sensitivity belongs to

    def of(self, clients: Ints) -> "Event":
        """The rows of some clients."""
        columns = {name: getattr(self, name)[clients] for name in ("sensitivity", "scale", "rate", "steps")}
        return replace(self, **columns)

    def at(self, scale: Floats) -> "Event":
        """The same releases with noise of that scale."""
        return replace(self, scale=scale)


class Mechanism(ABC):
    """Noise: its law, in which norm a message must be clipped for it, and the event a release is.

    Chosen by the suite, the same for every algorithm of a table. What a release costs is not decided here.
    """

    name: ClassVar[str]
    law: ClassVar[Law]  # what is drawn, at scale 1
    clip_order: ClassVar[Literal[1, 2]]  # p of the norm that bounds sensitivity
    accountant: ClassVar[str]  # the one that prices its releases unless a suite names another

    @abstractmethod
    def variance(self, scale: Floats) -> Floats:
        """Variance of one coordinate of the noise (a Laplace scale is not a standard deviation)."""

    def noised(self, value: Floats, scale: Floats, draws: Draws) -> Floats:
        """The values [K, M] as they leave their clients, with noise of scale [K]; all of it from `draws`.

        The ideal sum, rounded to a grid without error. A law that has no quantile function overrides this.
        """
        return draws.noised(value, scale, self.law)

    def release(self, value: Tensor, scale: Floats, draws: Draws) -> Tensor:
        """The same for float64 tensors on any device: noise is drawn on the host, so it is equal to the bit on all."""
        return torch.from_numpy(self.noised(value.cpu().numpy(), scale, draws)).to(value.device)

    def event(
        self,
        kind: str,
        sensitivity: Floats,
        rate: float | Floats = 1.0,
        steps: int | Ints = 1,
        neighbours: Neighbours = "replace",
    ) -> Event:
        """Releases of that kind under this noise, one row a client, their scale not yet chosen."""
        shape = np.shape(sensitivity)
        return Event(
            kind=kind,
            law=self.law.name,
            sensitivity=np.asarray(sensitivity, dtype=np.float64),
            scale=np.full(shape, np.nan),
            rate=np.broadcast_to(np.asarray(rate, dtype=np.float64), shape),
            steps=np.broadcast_to(np.asarray(steps, dtype=np.int64), shape),
            neighbours=neighbours,
        )


class Accountant(ABC):
    """What releases cost, in a currency that adds up over them; float64 on the host, vectorised over clients.

    A cost has a last axis [..., A]: one number, or a curve over orders, of which the ledger freezes one a client.
    """

    name: ClassVar[str]
    pure: ClassVar[bool] = False  # True: epsilon alone, delta is 0 whatever a suite says
    adaptive: ClassVar[bool] = True  # False: a proof for plans fixed before the first release, of equal releases, alone
    comparable: ClassVar[bool] = True  # False: costs are shares of a client's own budget
    # z: the variance of the noise a budget needs grows with uses**z (class attribute or field); 0: with no power of it
    exponent: int

    @abstractmethod
    def supports(self, event: Event) -> str:
        """Empty if there is a proof for such releases, else what there is one for."""

    @abstractmethod
    def cost(self, event: Event) -> Floats:
        """What each row spends: [K] → [K, A]; infinite where there is no noise."""

    @abstractmethod
    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """(epsilon, delta) as a total of the currency: [...] → [..., A]; never more than they allow."""

    @abstractmethod
    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """The epsilon a total cost amounts to at delta: [..., A] and [...] → [...]; never less than it is."""

    @abstractmethod
    def scale(self, cost: Floats, event: Event) -> Floats:
        """The noise scale at which each row costs at most `cost` [K, A], at one order of a curve at least."""

    def of(self, epsilon: Floats, delta: Floats) -> "Accountant":
        """The accountant of clients with these budgets [K], a row each; itself where prices do not depend on them."""
        return self

    def settled(self, cost: Floats, event: Event) -> Floats:
        """The cost [N, A] at one order a client, the one that needs least noise for `event`; 0 at the others.

        Releases of one participation are calibrated at one and the same order; a currency of one number has no choice.
        """
        return cost

    def rate(self, cost: Floats, event: Event, noise: float) -> Floats:
        """The largest rate at which each row costs at most `cost` [K, A] with noise of that many sensitivities.

        Where noise is the same for all and samples meet the budgets; 0 where nothing fits. DpflbenchError by default.
        """
        raise DpflbenchError(
            f"accountant {self.name}: noise can be calibrated, rates cannot; allowed: calibrate: noise"
        )

    def per_use(self, left: Floats, uses: Floats, epsilon: Floats, delta: Floats) -> Floats:
        """What each of `uses` releases may spend when `left` [N, A] is left; 0 where uses is 0. Even shares by default.

        `epsilon` and `delta` [N] are the client's whole budget, for accountants that split those and not the currency.
        """
        return np.where(uses[:, None] > 0, left / np.maximum(uses, 1.0)[:, None], 0.0)

    def second_opinion(self, events: Event, client: Ints, delta: Floats) -> tuple[str, Floats] | None:
        """Who else was asked, and the epsilon of each client [N] by it; None: nobody.

        `events` has a row a release, `client` [R] says whose, `delta` is [N]. It must share nothing with this
        accountant: an opinion that repeats its formulas is none.
        """
        return None


@runtime_checkable
class LocalUpdate(Protocol):
    """What a participation computes from a client's data, and how far one record can move it: nobody else knows."""

    @property
    def neighbours(self) -> Neighbours:
        """The relation it is accounted under unless a suite names another."""
        ...

    @property
    def accountant(self) -> str:
        """Who prices its releases unless a suite names another; empty: the mechanism's own."""
        ...

    @property
    def ruled(self) -> bool:
        """Whether clients step by a local rule; False: a participation has one gradient and nothing to rule."""
        ...

    @property
    def noise_for_all(self) -> float | None:
        """Scale over sensitivity that all clients share while rates meet their budgets; None: noise meets them."""
        ...

    def event(
        self,
        mechanism: Mechanism,
        clip_norm: Floats,
        n_examples: Ints,
        loss_bound: float = 0.0,
        neighbours: Neighbours = "replace",
        rate: Floats | None = None,
    ) -> Event:
        """The message of one participation of each client [N] under that noise and relation, scale not chosen; at rates
        of its own, or at those that were calibrated.
        """
        ...

    def compute(self, work: "ClientWork", protect: "Protect") -> "Computed":
        """What the clients have to show, each release through `protect`, as often as the event says."""
        ...


class Protect(Protocol):
    """Noise on a release, the only way out of a client; more often than was paid for it refuses."""

    def __call__(self, value: Tensor, rows: Ints | None = None) -> Tensor:
        """The value [K, M] as it leaves the clients of the cohort, or those at `rows` [J] of it with [J, M]."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClientWork:
    """What the clients of a cohort have before them. Runs beside raw data: nothing of it may outlive the call."""

    engine: Any  # federation.gradients.Engine
    theta: Tensor  # [D], received
    phi: Tensor  # [K, P], their own
    shards: Any  # tasks.task.Shards
    cohort: Ints  # [K]
    clip_norm: Tensor | None  # [K]; None: not clipped
    loss_bound: float | None  # of the probe
    event: Event  # [K], what was paid for: rates and steps
    batches: Draws  # secret coins: who knows which records were drawn needs more noise
    rule: "LocalRule"
    visit: "Visit"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Computed:
    """What a participation leaves: what goes to the server, and what its clients keep."""

    messages: Tensor  # [K, D + P] in gradient units, noised
    losses: Tensor | None = None  # [K], exact means at the received model, if asked for
    own: Mapping[str, Tensor] = field(default_factory=dict)  # the rule's rows of these clients, as they are now
    shared: State = None  # of the rule


# ---------------------------------------------------------------- local rules


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Visit:
    """What the clients of a cohort begin a participation with; nothing of it has seen an example without noise."""

    round: int
    rounds: int
    theta: Tensor  # [D], received
    n_clients: int  # N, of the federation
    lr: float  # of local steps
    steps: Tensor  # [K], of one pass, in the type of theta
    server_lr: float = 1.0  # of this round
    number: int = 0  # of the pass
    shared: State = None  # the rule's own, sent along with theta
    own: Mapping[str, Tensor] = field(default_factory=dict)  # [K, ...], of these clients, never sent

    def of(self, rows: Tensor) -> "Visit":
        """The same for some of the cohort."""
        return replace(self, steps=self.steps[rows], own={name: value[rows] for name, value in self.own.items()})


@dataclass(frozen=True, slots=True, eq=False)
class Journey:
    """What the clients have after one pass."""

    model: Tensor  # [K, D], where they arrived
    mean: Tensor  # [K, D], of their noisy gradients on the way


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """What a rule makes of the journeys."""

    messages: Tensor  # [K, D], in gradient units: the server steps theta ← theta - lr * aggregate
    own: Mapping[str, Tensor]  # [K, ...], the clients' rows as they are now
    shared: State = None


@runtime_checkable
class LocalRule(Protocol):
    """How a client turns noisy gradients into steps. It sees no example, so it needs no proof of its own."""

    @property
    def passes(self) -> int:
        """Passes over the steps a participation makes; each of them is paid for."""
        ...

    def init(self, setup: Setup, theta: Tensor) -> tuple[State, Mapping[str, Tensor]]:
        """What all share, and rows [N, ...] that clients keep, before the first round; theta [D] is the first model."""
        ...

    def start(self, visit: Visit) -> Tensor:
        """The models [K, D] a pass begins with."""
        ...

    def direction(self, noisy: Tensor, model: Tensor, visit: Visit) -> Tensor:
        """The step [K, D] at models [K, D] with noisy gradients [K, D] there; the harness takes it times visit.lr."""
        ...

    def finish(self, journeys: Sequence[Journey], visit: Visit) -> Finished:
        """Messages and what is kept, from the journey of each pass."""
        ...

    def personal(self, theta: Tensor, own: Mapping[str, Tensor]) -> Tensor | None:
        """The model of each client [N, D] at the end; None: the shared one."""
        ...


def moved(journey: Journey, visit: Visit) -> Tensor:
    """(theta - y) / (lr steps) [K, D]: where a client went, in gradient units. Of plain steps, their mean."""
    return (visit.theta - journey.model) / (visit.lr * visit.steps[:, None])


@dataclass(frozen=True, slots=True)
class Plain:
    """Steps along the noisy gradient from the received model: federated averaging."""

    passes: ClassVar[int] = 1

    def init(self, setup: Setup, theta: Tensor) -> tuple[State, Mapping[str, Tensor]]:
        """Return nothing to keep."""
        return None, {}

    def start(self, visit: Visit) -> Tensor:
        """Return the received model for everybody."""
        return visit.theta.expand(len(visit.steps), -1)

    def direction(self, noisy: Tensor, model: Tensor, visit: Visit) -> Tensor:
        """Return the gradient."""
        return noisy

    def finish(self, journeys: Sequence[Journey], visit: Visit) -> Finished:
        """Return where the clients went."""
        return Finished(moved(journeys[0], visit), visit.own, visit.shared)

    def personal(self, theta: Tensor, own: Mapping[str, Tensor]) -> Tensor | None:
        """Return None: everybody has the shared model."""
        return None


PLAIN = Plain()


# ---------------------------------------------------------------- selectors


@dataclass(frozen=True, slots=True)
class Probe:
    """A request for each participant's mean loss, noised and charged by the harness.

    The loss of every sample is clipped to [0, loss_bound] before the mean, so that replacing one sample moves it by at
    most loss_bound / n_examples. `share` of a participation's cost pays for the losses, the rest for the gradient. With
    `joint` the message (gradient, losses) is noised as a whole at one scale with sensitivity 2 (clip_norm + loss_bound)
    / n_examples.
    """

    loss_bound: float
    share: float = 0.05
    after_step: bool = False  # also the loss at theta - lr * (the client's own noisy update)
    joint: bool = False

    @property
    def count(self) -> int:
        """Losses a participation releases."""
        return 2 if self.after_step else 1


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Noisy losses released so far, one row a release."""

    round: Ints  # [R]
    client: Ints  # [R]
    received: Floats  # [R], at the model the client received
    stepped: Floats  # [R], after the client's own noisy step; NaN where not asked for
    variance: Floats  # [R], of the noise in each of the two

    def __post_init__(self) -> None:
        """Nobody changes what others see."""
        _read_only(self)


@dataclass(frozen=True, slots=True, eq=False)
class PlanView:
    """What a selector may look at when it plans: public facts, the ledger, noisy history. Arrays are read-only."""

    setup: Setup
    round: int  # rounds already done
    used: Ints  # [N], participations so far
    left: Floats  # [N, A], budget left in the accountant's currency
    losses: Losses

    def __post_init__(self) -> None:
        """Nobody changes what others see."""
        _read_only(self)

    @property
    def rounds_left(self) -> int:
        """Rounds not done yet."""
        return self.setup.rounds - self.round


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Participation for the next `horizon` rounds; the selector is asked again after them.

    `uses` sums to horizon * cohort_size, each between 0 and horizon. `cost` [N, A] is what one use may spend and
    defaults to even shares of what is left over `uses`; a selector that will plan again sets it lower. `clip_factor`
    [N] scales the clip bound.
    """

    uses: Ints  # [N]
    horizon: int
    cost: Floats | None = None
    clip_factor: Floats | None = None
    probe: Probe | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)  # numbers and arrays for the record


@runtime_checkable
class Selector(Protocol):
    """Decides how often each client takes part."""

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return integer uses for the next rounds."""
        ...


# ---------------------------------------------------------------- aggregators


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Cohort:
    """What everybody knows of the clients of one round before anything is released; all tensors on one device."""

    clients: Tensor  # [K] int64
    epsilon: Tensor  # [K]
    delta: Tensor  # [K]
    n_examples: Tensor  # [K]
    variance: Tensor  # [K], of one coordinate of a row's noise
    round: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Updates(Cohort):
    """The noisy updates of one round, a row a client, with the device and dtype of all that is known of them."""

    values: Tensor  # [K, D], mean clipped gradient plus noise


@runtime_checkable
class LinearAggregator(Protocol):
    """Weights that do not depend on what is released: works wherever a sum can be had, rows or not."""

    def weights(self, cohort: Cohort) -> Tensor | None:
        """Return the weight of each client [K]; None: all alike, the plain mean."""
        ...


@runtime_checkable
class RowAggregator(Protocol):
    """Turns noisy rows into one direction; the harness then steps theta ← theta - lr * direction."""

    def init(self, setup: Setup) -> State:
        """Return the state before the first round (None if there is none)."""
        ...

    def aggregate(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return the direction [D] and the next state."""
        ...


@runtime_checkable
class ReportsWeights(Protocol):
    """What an aggregator of rows may offer besides, so that reports know its noise and need no plain mean's instead."""

    def effective_weights(self, updates: Updates, state: State) -> Tensor | None:
        """Return the weight each row [K] had in the direction that came with this next state; None: it was no weighted
        sum of rows. Reports that do not give the direction fail the run.
        """
        ...


Aggregator = LinearAggregator | RowAggregator


# ---------------------------------------------------------------- local transforms


@runtime_checkable
class LocalTransform(Protocol):
    """A personal map in front of the shared model. phi is trained from the jointly clipped and noised message and stays
    local.
    """

    @property
    def norm_local(self) -> bool:
        """True: the affine parameters of normalisation layers are personal too, as the tail of phi."""
        ...

    def init(self, n_clients: int, input_shape: tuple[int, ...], layout: Layout, rng: torch.Generator) -> Tensor:
        """Return phi [N, P] at which `apply` is the identity; P = 0 means no transform.

        With `norm_local` the last columns of phi are added to theta's normalisation tensors, in layout order; they
        start at 0.
        """
        ...

    def apply(self, phi: Tensor, x: Tensor) -> Tensor:
        """Return the transformed inputs: phi [B, P] row by row on x [B, ...]."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """No transform."""

    norm_local: bool = False

    def init(self, n_clients: int, input_shape: tuple[int, ...], layout: Layout, rng: torch.Generator) -> Tensor:
        """Return phi with no columns."""
        return torch.zeros(n_clients, 0)

    def apply(self, phi: Tensor, x: Tensor) -> Tensor:
        """Return x."""
        return x


IDENTITY = Identity()


# ---------------------------------------------------------------- algorithms


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A named combination of parts: all that distinguishes one row of a table from another."""

    name: str
    selector: Selector
    aggregator: Aggregator
    transform: LocalTransform = IDENTITY
    rule: LocalRule = PLAIN
    mechanisms: frozenset[str] | None = None  # names it is defined for; None: any
    private: bool = True  # False: no clip, no noise, reported as epsilon = infinity
    clip: bool = True  # False only together with private=False
    trains: bool = False  # True: defined for local training alone, as is every algorithm with a rule of its own
    local_name: str = ""  # what it is called where clients train locally, if not the same


# ---------------------------------------------------------------- data and models


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """A data set in memory, before anybody owns a part of it."""

    x_train: Tensor  # [M, ...] float32, or uint8 images that are scaled when used
    y_train: Tensor  # [M] int64 labels, or float32 targets
    x_test: Tensor
    y_test: Tensor
    n_classes: int  # 0 for regression
    groups: Tensor | None = None  # [M] int64, the natural owner of each training example (a writer)
    references: Mapping[str, float] = field(
        default_factory=dict
    )  # utility of trivial models; predict_…: without features
    test_groups: Tensor | None = None  # the same for the test part, needed when a test part is drawn anew


@dataclass(frozen=True, slots=True)
class Availability:
    """What is known of a data set on this machine."""

    found: bool
    where: str  # folder or file looked at
    detail: str  # complete, or what is missing or wrong
    licence: str
    get: str  # one command or page that gets it
    downloadable: bool = False


@runtime_checkable
class Dataset(Protocol):
    """Where examples come from. Never writes into the folder it reads."""

    def availability(self, root: Path | None) -> Availability:
        """Say what is there, without loading it."""
        ...

    def digest(self, root: Path | None) -> str:
        """SHA-256 over the genuine content, the same wherever the files lie; DataError if it is missing."""
        ...

    def load(self, root: Path | None) -> Examples:
        """Return the examples; DataError names what is missing, damaged or out of range."""
        ...


@runtime_checkable
class Model(Protocol):
    """What is learnt."""

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Return a fresh module mapping [B, *input_shape] to [B, n_outputs]."""
        ...


# ---------------------------------------------------------------- clients: what they own, see and may spend


@runtime_checkable
class Partition(Protocol):
    """How examples are dealt out."""

    def assign(self, classes: Ints, groups: Ints | None, n_clients: int, rng: np.random.Generator) -> Ints:
        """The owner of each example [M]: 0 … n_clients - 1, or -1 for an example nobody gets.

        `classes` [M] are labels, or label quantiles for regression; `groups` [M] the natural owners where the data has
        them. DpflbenchError where a client would get less than it must.
        """
        ...


@runtime_checkable
class Features(Protocol):
    """What the model sees of an example: a map fitted on training examples, public and unpaid."""

    @property
    def costly(self) -> bool:
        """Whether the result is worth keeping on disk: smaller than what it is made of and slow to make."""
        ...

    def fit_apply(self, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        """The features of both parts, float32; fitted on `train` alone."""
        ...


@runtime_checkable
class Distribution(Protocol):
    """Where the clients' epsilons or deltas come from."""

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """One value for each of n clients [n], float64."""
        ...

    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value a draw can have: what a suite is checked against."""
        ...


# ---------------------------------------------------------------- reports


@runtime_checkable
class Section(Protocol):
    """A part of a report that a suite asks for."""

    def contents(self, view: Any) -> Sequence[Any]:
        """Tables and charts of `dpflbench.report` from a `report.view.View`; none where there is nothing to say."""
        ...
