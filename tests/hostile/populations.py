"""Partitions, features and budgets that break one rule each. `Deal`, `Centred` and `Level` break none."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpflbench.errors import DpflbenchError

# ---------------------------------------------------------------- partitions


@dataclass(frozen=True)
class Deal:
    """Examples in random order, one client after the other: a partition that keeps every rule."""

    min_size: int = 1

    def assign(self, classes, groups, n_clients, rng):
        if len(classes) < n_clients * self.min_size:
            raise DpflbenchError("deal.min_size: too few examples; allowed: fewer clients")
        return rng.permutation(np.arange(len(classes)) % n_clients)


@dataclass(frozen=True)
class OneTooMany(Deal):
    """Counts clients from 1."""

    def assign(self, classes, groups, n_clients, rng):
        return super().assign(classes, groups, n_clients, rng) + 1


@dataclass(frozen=True)
class HalfOwners(Deal):
    """Owners as floating-point numbers."""

    def assign(self, classes, groups, n_clients, rng):
        return super().assign(classes, groups, n_clients, rng) / 1.0


@dataclass(frozen=True)
class ListOfOwners(Deal):
    """Clients with their examples instead of examples with their owners."""

    def assign(self, classes, groups, n_clients, rng):
        owner = super().assign(classes, groups, n_clients, rng)
        return [np.flatnonzero(owner == n) for n in range(n_clients)]


@dataclass(frozen=True)
class ForgetsTheLast(Deal):
    """Gives the last client's examples to nobody."""

    def assign(self, classes, groups, n_clients, rng):
        owner = super().assign(classes, groups, n_clients, rng)
        return np.where(owner == n_clients - 1, -1, owner)


@dataclass(frozen=True)
class OwnChance(Deal):
    """Draws from a generator of its own."""

    def assign(self, classes, groups, n_clients, rng):
        return super().assign(classes, groups, n_clients, np.random.default_rng())


@dataclass(frozen=True)
class GlobalChance(Deal):
    """Draws from NumPy's global generator."""

    def assign(self, classes, groups, n_clients, rng):
        np.random.random()  # noqa: NPY002
        return super().assign(classes, groups, n_clients, rng)


@dataclass(frozen=True)
class SortsLabels(Deal):
    """Sorts the labels where they lie."""

    def assign(self, classes, groups, n_clients, rng):
        classes.sort()
        return super().assign(classes, groups, n_clients, rng)


@dataclass(frozen=True)
class NeverEnough(Deal):
    """Declines everything."""

    def assign(self, classes, groups, n_clients, rng):
        raise DpflbenchError("only a million clients are interesting")


@dataclass(frozen=True)
class NoFloor:
    """Deals out less than there is, and somebody gets nothing."""

    def assign(self, classes, groups, n_clients, rng):
        return rng.permutation(np.arange(len(classes)) % n_clients)


@dataclass(frozen=True)
class IgnoresItsFloor(Deal):
    """Has a floor and does not keep to it."""

    def assign(self, classes, groups, n_clients, rng):
        return Deal().assign(classes, groups, n_clients, rng)


@dataclass(frozen=True)
class Trips(Deal):
    """Fails by an error of its own where it should decline."""

    def assign(self, classes, groups, n_clients, rng):
        return rng.permutation(groups.copy()) % n_clients


# ---------------------------------------------------------------- features


@dataclass(frozen=True)
class Centred:
    """Rows of numbers less their training mean: features that keep every rule."""

    costly: ClassVar[bool] = False

    def fit_apply(self, train, test):
        train, test = train.float().flatten(1), test.float().flatten(1)
        mean = self.mean(train, test)
        return train - mean, test - mean

    def mean(self, train, test):
        return train.mean(0)


@dataclass(frozen=True)
class PeeksAtTheTest(Centred):
    """Takes the mean of all examples."""

    def mean(self, train, test):
        return (train.sum(0) + test.sum(0)) / (len(train) + len(test))


@dataclass(frozen=True)
class CentresEach(Centred):
    """Centres the test part on its own mean."""

    def fit_apply(self, train, test):
        train, test = train.float().flatten(1), test.float().flatten(1)
        return train - train.mean(0), test - test.mean(0)


@dataclass(frozen=True)
class InPlace(Centred):
    """Centres the examples where they lie."""

    def fit_apply(self, train, test):
        if train.dtype.is_floating_point:
            train -= train.mean(0)
        return train.float().flatten(1), test.float().flatten(1)


@dataclass(frozen=True)
class DropsRows(Centred):
    """Leaves the last example out."""

    def fit_apply(self, train, test):
        train, test = super().fit_apply(train, test)
        return train[:-1], test


@dataclass(frozen=True)
class Doubles(Centred):
    """Computes in double precision and leaves it at that."""

    def fit_apply(self, train, test):
        train, test = super().fit_apply(train, test)
        return train.double(), test.double()


@dataclass(frozen=True)
class TrainOnly(Centred):
    """Forgets the test part."""

    def fit_apply(self, train, test):
        return super().fit_apply(train, test)[0]


@dataclass(frozen=True)
class FittedInSecret(Centred):
    """Says that it depends on no data, and takes the training mean."""

    fitted: ClassVar[bool] = False


class Priceless(Centred):
    """Does not say whether it is costly."""

    costly = None


# ---------------------------------------------------------------- budgets


@dataclass(frozen=True)
class Level:
    """Between 1 and 2: budgets that keep every rule."""

    def draw(self, n, rng):
        return 1.0 + rng.random(n)

    def bounds(self):
        return 1.0, 2.0


@dataclass(frozen=True)
class UnboundedBudget(Level):
    """Says nothing of what it draws."""

    def bounds(self):
        return 0.0, float("inf")


@dataclass(frozen=True)
class Understates(Level):
    """Draws beyond what it says."""

    def bounds(self):
        return 1.0, 1.5


@dataclass(frozen=True)
class OneForAll(Level):
    """Draws one value."""

    def draw(self, n, rng):
        return super().draw(1, rng)


@dataclass(frozen=True)
class OtherBudgets(Level):
    """Draws from a generator of its own."""

    def draw(self, n, rng):
        return super().draw(n, np.random.default_rng())


@dataclass(frozen=True)
class Undefined(Level):
    """Draws what is no number."""

    def draw(self, n, rng):
        return np.where(super().draw(n, rng) > 1.0, np.nan, 1.0)
