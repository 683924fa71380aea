"""What plugins implement and what is handed to them.

A part is a frozen dataclass of hyper-parameters; what changes is returned as state, and nothing that comes in is
changed in place. Arrays about clients are NumPy float64/int64 on the host (planning and privacy); updates are torch
tensors on the run's device. Only public or already noisy values pass through here: budgets, client sizes, noisy updates
and noisy losses.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
State = Any  # None, a tensor, a number, or dicts, lists and tuples of those: what a checkpoint can hold
S = TypeVar("S")


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


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """What everybody may know before the first round: sizes and budgets are public, data is not."""

    n_clients: int
    cohort_size: int
    rounds: int
    n_examples: Ints  # [N], training examples of each client
    epsilon: Floats  # [N], inf for a run without privacy
    delta: Floats  # [N], 0 where the mechanism is pure
    budget: Floats  # [N, A], (epsilon, delta) as a total of the mechanism's currency
    mechanism: "Mechanism"
    clip_norm: float
    lr: LearningRate
    layout: Layout
    phi_dim: int = 0  # P, numbers a transform adds to each client's message
    n_classes: int = 0  # 0 for regression

    @property
    def dim(self) -> int:
        """D + P: all coordinates that are noised together."""
        return self.layout.dim + self.phi_dim


# ---------------------------------------------------------------- mechanisms


class Mechanism(ABC):
    """What noise a release gets and what it costs, in a currency that adds up over releases.

    A cost has a last axis [..., A]: one number for Gaussian and Laplace, a curve for others. Everything here is float64
    on the host except `sample`. Chosen by the suite, the same for every algorithm of a table.
    """

    name: ClassVar[str]
    clip_order: ClassVar[Literal[1, 2]]  # p of the norm that bounds sensitivity
    pure: ClassVar[bool] = False  # True: epsilon alone, delta is 0 whatever a suite says
    exponent: int  # z: the variance of the noise grows with uses**z (class attribute or dataclass field)

    @abstractmethod
    def sample(self, scale: Tensor, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        """Noise of `shape` whose scale broadcasts against it, on the device and with the dtype of `scale`, in one
        call.
        """

    @abstractmethod
    def cost(self, scale: Floats, sensitivity: Floats) -> Floats:
        """What one release spends: [...] and [...] → [..., A]; infinite where scale is 0."""

    @abstractmethod
    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """(epsilon, delta) as a total of the currency: [...] → [..., A]; never more than they allow."""

    @abstractmethod
    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """The epsilon a total cost amounts to at delta: [..., A] and [...] → [...]; never less than it is."""

    @abstractmethod
    def scale(self, cost: Floats, sensitivity: Floats) -> Floats:
        """The noise scale at which one release costs at most `cost`: [..., A] and [...] → [...]."""

    @abstractmethod
    def variance(self, scale: Floats) -> Floats:
        """Variance of one coordinate of the noise (a Laplace scale is not a standard deviation)."""

    def per_use(self, left: Floats, uses: Floats, epsilon: Floats, delta: Floats) -> Floats:
        """What each of `uses` releases may spend when `left` [N, A] is left; 0 where uses is 0. Even shares unless
        overridden.

        `epsilon` and `delta` [N] are the client's whole budget, for mechanisms that split those instead of the
        currency.
        """
        return np.where(uses[:, None] > 0, left / np.maximum(uses, 1.0)[:, None], 0.0)


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
    left: Floats  # [N, A], budget left in the mechanism's currency
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


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """The noisy updates of one round, a row a client; all tensors share device and dtype of `values`."""

    values: Tensor  # [K, D], mean clipped gradient plus noise
    clients: Tensor  # [K] int64
    epsilon: Tensor  # [K]
    delta: Tensor  # [K]
    n_examples: Tensor  # [K]
    variance: Tensor  # [K], of one coordinate of a row's noise
    round: int


@runtime_checkable
class Aggregator(Protocol[S]):
    """Turns noisy updates into one direction; the harness then steps theta ← theta - lr * direction."""

    def init(self, setup: Setup) -> S:
        """Return the state before the first round (None if there is none)."""
        ...

    def aggregate(self, updates: Updates, state: S) -> tuple[Tensor, S]:
        """Return the direction [D] and the next state."""
        ...


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
    aggregator: Aggregator[Any]
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
