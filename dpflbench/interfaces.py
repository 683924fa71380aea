"""What plugins implement and what is handed to them.

A part is a frozen dataclass of hyper-parameters; what changes is returned as state, and nothing that comes in is
changed in place. Arrays about clients are NumPy float64/int64 on the host (planning and privacy); updates are torch
tensors on the run's device. Only public or already noisy values pass through here: budgets, client sizes, noisy updates
and noisy losses.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
State = Any  # None, a tensor, a number, or dicts, lists and tuples of those: what a checkpoint can hold


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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Setup:
    """What everybody may know before the first round: sizes and budgets are public, data is not."""

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

    @property
    def dim(self) -> int:
        """D + P: all coordinates that are noised together."""
        return self.layout.dim + self.phi_dim

    def message(self, clip_factor: float | Floats = 1.0, loss_bound: float = 0.0) -> "Event":
        """One message of every client [N], its noise not yet chosen; with `loss_bound` losses travel in it too."""
        clip = np.broadcast_to(np.asarray(self.clip_norm * clip_factor, dtype=np.float64), (self.n_clients,))
        return self.local.event(self.mechanism, clip, self.n_examples, loss_bound)


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

    def of(self, clients: Ints) -> "Event":
        """The rows of some clients."""
        columns = {name: getattr(self, name)[clients] for name in ("sensitivity", "scale", "rate", "steps")}
        return replace(self, **columns)

    def at(self, scale: Floats) -> "Event":
        """The same releases with noise of that scale."""
        return replace(self, scale=scale)


class Mechanism(ABC):
    """Noise: what is drawn, in which norm a message must be clipped for it, and the event a release is.

    Chosen by the suite, the same for every algorithm of a table. What a release costs is not decided here.
    """

    name: ClassVar[str]
    law: ClassVar[str]  # the distribution by the name accountants know it by
    clip_order: ClassVar[Literal[1, 2]]  # p of the norm that bounds sensitivity
    accountant: ClassVar[str]  # the one that prices its releases unless a suite names another

    @abstractmethod
    def sample(self, scale: Tensor, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        """Noise of `shape`, with the device and dtype of `scale`, which broadcasts against it; drawn in one call."""

    @abstractmethod
    def variance(self, scale: Floats) -> Floats:
        """Variance of one coordinate of the noise (a Laplace scale is not a standard deviation)."""

    def release(self, value: Tensor, scale: Tensor, rng: torch.Generator) -> Tensor:
        """The value as it leaves a client; scale broadcasts against it."""
        return value + self.sample(scale, tuple(value.shape), rng)

    def event(self, kind: str, sensitivity: Floats, rate: float | Floats = 1.0, steps: int | Ints = 1) -> Event:
        """Releases of that kind under this noise, one row a client, their scale not yet chosen."""
        shape = np.shape(sensitivity)
        return Event(
            kind=kind,
            law=self.law,
            sensitivity=np.asarray(sensitivity, dtype=np.float64),
            scale=np.full(shape, np.nan),
            rate=np.broadcast_to(np.asarray(rate, dtype=np.float64), shape),
            steps=np.broadcast_to(np.asarray(steps, dtype=np.int64), shape),
        )


class Accountant(ABC):
    """What releases cost, in a currency that adds up over them; float64 on the host, vectorised over clients.

    A cost has a last axis [..., A]: one number, or a curve over orders, of which the ledger freezes one a client.
    """

    name: ClassVar[str]
    pure: ClassVar[bool] = False  # True: epsilon alone, delta is 0 whatever a suite says
    exponent: int  # z: the variance of the noise a budget needs grows with uses**z (class attribute or field)

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

    def event(self, mechanism: Mechanism, clip_norm: Floats, n_examples: Ints, loss_bound: float = 0.0) -> Event:
        """The message of one participation of each client [N] under that noise, scale not chosen."""
        ...

    def compute(self, work: "ClientWork", protect: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor | None]:
        """Messages [K, D + P] in gradient units, each release through `protect`; exact mean losses [K] if asked for."""
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


@dataclass(frozen=True, slots=True, eq=False)
class PlanView:
    """What a selector may look at when it plans: public facts, the ledger, noisy history."""

    setup: Setup
    round: int  # rounds already done
    used: Ints  # [N], participations so far
    left: Floats  # [N, A], budget left in the accountant's currency
    losses: Losses

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
    mechanisms: frozenset[str] | None = None  # names it is defined for; None: any
    private: bool = True  # False: no clip, no noise, reported as epsilon = infinity
    clip: bool = True  # False only together with private=False


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
    references: Mapping[str, float] = field(default_factory=dict)  # e.g. predict_the_mean: utility of trivial models
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
