"""Parts that break one rule each. `Median` breaks none: it is what the others are variations of."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from dpflbench.errors import DpflbenchError
from dpflbench.federation.local import FullStep
from dpflbench.federation.schedule import even_uses
from dpflbench.interfaces import Algorithm, Availability, Examples, Identity, Plan, Probe
from dpflbench_algorithms.accountants import GaussianDP
from dpflbench_algorithms.mechanisms import Gaussian
from dpflbench_algorithms.parts import Mean, UniformSelection

# ---------------------------------------------------------------- aggregators


@dataclass(frozen=True)
class Median:
    """The median of each coordinate: an aggregator that keeps every rule."""

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        return updates.values.median(0).values, state


@dataclass(frozen=True)
class WrongShape(Median):
    """Returns a row a client."""

    def aggregate(self, updates, state):
        return updates.values, state


@dataclass(frozen=True)
class NotATensor(Median):
    """Returns a NumPy array."""

    def aggregate(self, updates, state):
        return updates.values.mean(0).numpy(), state


@dataclass(frozen=True)
class NoPair(Median):
    """Forgets the state."""

    def aggregate(self, updates, state):
        return updates.values.mean(0)


@dataclass(frozen=True)
class MakesNaN(Median):
    """Divides nothing by nothing."""

    def aggregate(self, updates, state):
        zero = updates.values.mean(0) * 0
        return zero / zero, state


@dataclass(frozen=True)
class ChangesUpdates(Median):
    """Scales the updates where they lie."""

    def aggregate(self, updates, state):
        return updates.values.mul_(0.5).mean(0), state


@dataclass(frozen=True)
class ChangesWeights(Median):
    """Normalises epsilon where it lies."""

    def aggregate(self, updates, state):
        updates.epsilon.div_(updates.epsilon.sum())
        return updates.epsilon @ updates.values, state


@dataclass(frozen=True)
class ChangesState(Median):
    """Counts in the state it was given."""

    def init(self, setup):
        return {"rounds": 0}

    def aggregate(self, updates, state):
        state["rounds"] += 1
        return updates.values.mean(0) / state["rounds"], state


@dataclass(frozen=True)
class ChangesSetup(Median):
    """Gives everybody a larger budget."""

    def init(self, setup):
        setup.epsilon[:] *= 2


CALLS = []


@dataclass(frozen=True)
class KeepsGlobalState(Median):
    """Remembers in a global list how often it was called."""

    def aggregate(self, updates, state):
        CALLS.append(1)
        return updates.values.mean(0) / len(CALLS), state


class KeepsAttributes:
    """Remembers in itself."""

    def __init__(self):
        self.momentum = 0.0

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        self.momentum = 0.9 * self.momentum + updates.values.mean(0)
        return self.momentum, state


@dataclass(frozen=True)
class DrawsGlobally(Median):
    """Drops updates by torch's global generator."""

    def aggregate(self, updates, state):
        return updates.values[torch.randperm(len(updates.values))[:2]].mean(0), state


@dataclass(frozen=True)
class FirstRow(Median):
    """Believes the first client."""

    def aggregate(self, updates, state):
        return updates.values[0].clone(), state


@dataclass(frozen=True)
class OnlyFloat32(Median):
    """Makes its own zeros."""

    def aggregate(self, updates, state):
        direction = torch.zeros(updates.values.shape[1])
        direction += updates.values.mean(0)
        return direction, state


@dataclass(frozen=True)
class NeedsTwo(Median):
    """Divides by the number of rows less one."""

    def aggregate(self, updates, state):
        return updates.values.sum(0) / (len(updates.values) - 1), state


@dataclass(frozen=True)
class HidesNaN(Median):
    """Puts zeros where NaN was."""

    def aggregate(self, updates, state):
        return updates.values.nan_to_num().mean(0), state


@dataclass(frozen=True)
class Inventor(Median):
    """Adds a step of its own."""

    def aggregate(self, updates, state):
        return updates.values.sum(0) / max(1, len(updates.values)) + 1.0, state


WEIGHTS = {"epsilon": lambda updates: updates.epsilon}


@dataclass(frozen=True)
class HoldsALambda(Median):
    """Cannot be sent anywhere."""

    weigh: Callable = field(default_factory=lambda: WEIGHTS["epsilon"], init=False)


@dataclass(frozen=True)
class OddState(Median):
    """Keeps an open object as state."""

    def init(self, setup):
        return object()


@dataclass(frozen=True)
class TwoArguments(Median):
    """Has an aggregate of its own."""

    def aggregate(self, updates):
        return updates.values.mean(0), None


@dataclass(frozen=True)
class Undocumented(Median):
    strength: float = 1.0


class Unannotated(Median):
    """Has a parameter of no type."""

    def __init__(self, strength=1.0):
        pass


@dataclass(frozen=True)
class WrongDefault(Median):
    """Says integer and means a text."""

    rank: int = "one"


# ---------------------------------------------------------------- selectors


@dataclass(frozen=True)
class Raises:
    """Fails when asked."""

    def plan(self, view, rng):
        raise ZeroDivisionError("division by zero")


@dataclass(frozen=True)
class Declines:
    """Plans for nobody."""

    def plan(self, view, rng):
        raise DpflbenchError("only federations of a million clients are interesting")


@dataclass(frozen=True)
class ArrayOfTexts:
    """Leaves for the record what could not be read back."""

    def plan(self, view, rng):
        return dataclasses.replace(UniformSelection().plan(view, rng), notes={"names": np.array(["a", "b"])})


@dataclass(frozen=True)
class TooManyUses:
    """Asks one client more often than there are rounds."""

    def plan(self, view, rng):
        uses = np.zeros(view.setup.n_clients, dtype=np.int64)
        uses[0] = view.rounds_left * view.setup.cohort_size
        return Plan(uses, view.rounds_left)


@dataclass(frozen=True)
class FractionalUses:
    """Plans halves of participations."""

    def plan(self, view, rng):
        n = view.setup.n_clients
        return Plan(np.full(n, view.rounds_left * view.setup.cohort_size / n), view.rounds_left)


@dataclass(frozen=True)
class WrongSum:
    """Forgets some participations."""

    def plan(self, view, rng):
        return Plan(np.zeros(view.setup.n_clients, dtype=np.int64), view.rounds_left)


@dataclass(frozen=True)
class TooLong:
    """Plans beyond the end."""

    def plan(self, view, rng):
        horizon = view.setup.rounds + 1
        return Plan(even_uses(view.setup.n_clients, horizon * view.setup.cohort_size, rng), horizon)


@dataclass(frozen=True)
class Overspends:
    """Spends a whole budget on every use."""

    def plan(self, view, rng):
        horizon = view.rounds_left
        return Plan(even_uses(view.setup.n_clients, horizon * view.setup.cohort_size, rng), horizon, cost=view.left)


@dataclass(frozen=True)
class SpendsAllAtOnce:
    """Plans round by round and leaves nothing for the next."""

    def plan(self, view, rng):
        uses = np.zeros(view.setup.n_clients, dtype=np.int64)
        uses[: view.setup.cohort_size] = 1
        return Plan(uses, 1)


@dataclass(frozen=True)
class CostOfOneAxis:
    """Gives costs [N] where [N, A] belong."""

    def plan(self, view, rng):
        horizon = view.rounds_left
        uses = even_uses(view.setup.n_clients, horizon * view.setup.cohort_size, rng)
        return Plan(uses, horizon, cost=(view.left / np.maximum(uses, 1)[:, None])[:, 0])


@dataclass(frozen=True)
class IgnoresTheSeed:
    """Draws from a generator of its own."""

    def plan(self, view, rng):
        horizon = view.rounds_left
        own = np.random.default_rng()
        return Plan(even_uses(view.setup.n_clients, horizon * view.setup.cohort_size, own), horizon)


@dataclass(frozen=True)
class DrawsFromNumPy:
    """Draws from NumPy's global generator."""

    def plan(self, view, rng):
        horizon = view.rounds_left
        np.random.random()  # noqa: NPY002
        return Plan(even_uses(view.setup.n_clients, horizon * view.setup.cohort_size, rng), horizon)


@dataclass(frozen=True)
class ChangesTheView:
    """Gives clients back what they spent."""

    def plan(self, view, rng):
        view.left[:] = view.setup.budget * 2
        return UniformSelection().plan(view, rng)


@dataclass(frozen=True)
class UnrecordableNotes:
    """Leaves an object for the record."""

    def plan(self, view, rng):
        return dataclasses.replace(UniformSelection().plan(view, rng), notes={"solver": object()})


@dataclass(frozen=True)
class NoPlan:
    """Returns uses alone."""

    def plan(self, view, rng):
        return UniformSelection().plan(view, rng).uses


@dataclass(frozen=True)
class BoundlessProbe:
    """Asks for losses that nothing bounds."""

    def plan(self, view, rng):
        return dataclasses.replace(UniformSelection().plan(view, rng), probe=Probe(loss_bound=float("inf")))


# ---------------------------------------------------------------- transforms


@dataclass(frozen=True)
class Affine:
    """x times (1 + phi): a transform that keeps every rule."""

    norm_local: bool = False

    def init(self, n_clients, input_shape, layout, rng):
        return torch.zeros(n_clients, 1)

    def apply(self, phi, x):
        return x * (1 + phi[:, :1].view(-1, *[1] * (x.ndim - 1)))


@dataclass(frozen=True)
class NotIdentity(Affine):
    """Starts elsewhere."""

    def init(self, n_clients, input_shape, layout, rng):
        return torch.full((n_clients, 1), 0.5)


@dataclass(frozen=True)
class CouplesRows(Affine):
    """Looks at the whole batch."""

    def apply(self, phi, x):
        return x + phi[:, :1].mean() * x.mean(0)


@dataclass(frozen=True)
class Detaches(Affine):
    """Cannot be trained."""

    def apply(self, phi, x):
        return super().apply(phi.detach(), x)


@dataclass(frozen=True)
class ChangesShape(Affine):
    """Flattens images."""

    def apply(self, phi, x):
        return x.flatten(1)


@dataclass(frozen=True)
class DrawsPhi(Identity):
    """Starts from an unseeded draw."""

    def init(self, n_clients, input_shape, layout, rng):
        return torch.rand(n_clients, 2)


# ---------------------------------------------------------------- mechanisms


@dataclass(frozen=True)
class HalfTheNoise(Gaussian):
    """Draws half of what it names as variance."""

    name: ClassVar[str] = "half"

    def noised(self, value, scale, draws):
        return super().noised(value, scale / 2, draws)


@dataclass(frozen=True)
class UnseededNoise(Gaussian):
    """Does not use its draws."""

    name: ClassVar[str] = "unseeded"

    def noised(self, value, scale, draws):
        return value + scale[:, None] * torch.randn(value.shape).double().numpy()


@dataclass(frozen=True)
class ThirdNorm(Gaussian):
    """Clips in a norm there is no engine for."""

    name: ClassVar[str] = "third"
    clip_order: ClassVar[Literal[1, 2]] = 3


# ---------------------------------------------------------------- accountants


@dataclass(frozen=True)
class UnderCharges(GaussianDP):
    """Needs less noise than a cost pays for."""

    name: ClassVar[str] = "cheap"

    def scale(self, cost, event):
        return super().scale(cost, event) / 2


@dataclass(frozen=True)
class Generous(GaussianDP):
    """Turns (epsilon, delta) into too much."""

    name: ClassVar[str] = "generous"

    def budget(self, epsilon, delta):
        return super().budget(epsilon, delta) * 4


@dataclass(frozen=True)
class FreeSilence(GaussianDP):
    """Says that no noise costs nothing."""

    name: ClassVar[str] = "free"

    def cost(self, event):
        return np.where(np.asarray(event.scale)[..., None] == 0, 0.0, super().cost(event))


@dataclass(frozen=True)
class Contradicted(GaussianDP):
    """Charges half of what its own second opinion finds."""

    name: ClassVar[str] = "contradicted"

    def second_opinion(self, events, client, delta):
        who, spent = super().second_opinion(events, client, delta)
        return who, 2 * spent


@dataclass(frozen=True)
class KnowsNothing(GaussianDP):
    """Has a proof for no noise at all."""

    name: ClassVar[str] = "nothing"

    def supports(self, event):
        return "everything"


# ---------------------------------------------------------------- local updates


@dataclass(frozen=True)
class HalfTheSensitivity(FullStep):
    """Says that one example does half of what it does."""

    def event(self, mechanism, clip_norm, n_examples, loss_bound=0.0, neighbours="replace", rate=None):
        honest = super().event(mechanism, clip_norm, n_examples, loss_bound, neighbours)
        return dataclasses.replace(honest, sensitivity=honest.sensitivity / 2)


@dataclass(frozen=True)
class Unprotected(FullStep):
    """Hands over the exact mean."""

    def compute(self, work, protect):
        return super().compute(work, lambda value: value)


# ---------------------------------------------------------------- linear aggregators


@dataclass(frozen=True)
class TooManyWeights:
    """One weight more than there are clients."""

    def weights(self, cohort):
        return torch.cat([cohort.epsilon, cohort.epsilon[:1]])


@dataclass(frozen=True)
class LooksForRows:
    """Wants to see what it is weighing."""

    def weights(self, cohort):
        return cohort.values.norm(dim=1)


# ---------------------------------------------------------------- data sets and models


@dataclass(frozen=True)
class Dots:
    """Four points: a data set that keeps every rule."""

    labels: ClassVar[tuple[int, ...]] = (0, 1, 0, 1)

    def availability(self, root: Path | None):
        return Availability(True, "memory", "complete", "CC0", "nothing to get")

    def digest(self, root):
        return "0" * 64

    def load(self, root):
        x, y = torch.eye(4), torch.tensor(self.labels)
        return Examples(x, y, x, y, n_classes=2)


@dataclass(frozen=True)
class LabelsFromOne(Dots):
    """Counts classes from 1."""

    labels: ClassVar[tuple[int, ...]] = (1, 2, 1, 2)


@dataclass(frozen=True)
class WritesIntoRoot(Dots):
    """Leaves a file where it should only look."""

    def availability(self, root):
        if root is not None:
            (root / "cache").write_text("mine")
        return super().availability(root)


@dataclass(frozen=True)
class HoldsNaN(Dots):
    """Loads a damaged row."""

    def load(self, root):
        good = super().load(root)
        x = good.x_train.clone()
        x[2, 1] = torch.nan
        return dataclasses.replace(good, x_train=x)


@dataclass(frozen=True)
class RaisesWithoutData(Dots):
    """Lets the file system speak."""

    def availability(self, root):
        return dataclasses.replace(super().availability(root), found=False, detail="missing: dots.npz")

    def load(self, root):
        raise FileNotFoundError("dots.npz")


@dataclass(frozen=True)
class BatchNormModel:
    """A model with batch statistics."""

    def build(self, input_shape, n_outputs):
        return nn.Sequential(nn.Linear(input_shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, n_outputs))


@dataclass(frozen=True)
class OneOutput:
    """A model of one output, whatever is asked."""

    def build(self, input_shape, n_outputs):
        return nn.Linear(input_shape[0], 1)


# ---------------------------------------------------------------- algorithms


def good() -> Algorithm:
    """The median of everybody."""
    return Algorithm("Good", UniformSelection(), Median())


def not_an_algorithm() -> Median:
    """An aggregator alone."""
    return Median()


def overspending() -> Algorithm:
    """Spends what it does not have."""
    return Algorithm("Overspending", Overspends(), Mean())


def unclipped() -> Algorithm:
    """Wants privacy without a clip bound."""
    return Algorithm("Unclipped", UniformSelection(), Mean(), clip=False)


def nameless() -> Algorithm:
    """Has a name that clears the screen."""
    return Algorithm("\x1b[2J", UniformSelection(), Mean())
