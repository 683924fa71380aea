"""Who the clients are: distributions their privacy budgets are drawn from, one frozen dataclass a kind.

The fields are the keys a suite may give; `DISTRIBUTIONS` is what the plugin `parts` hands over.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Distribution, Floats

Given = tuple[Mapping[str, Any], ...]  # parameters that `dpflbench check` tries, for there are no defaults


@dataclass(frozen=True, slots=True)
class Constant:
    """Everybody has `value`."""

    value: float
    examples: ClassVar[Given] = ({"value": 2.0},)

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """The value n times."""
        return np.full(n, self.value, dtype=np.float64)

    def bounds(self) -> tuple[float, float]:
        """The value twice."""
        return self.value, self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform on [low, high]: the paper's choice."""

    low: float
    high: float
    examples: ClassVar[Given] = ({"low": 0.5, "high": 4.0},)

    def __post_init__(self) -> None:
        _ordered(self.low, self.high)
        if not math.isfinite(self.high):
            raise DpflbenchError(f"high: {self.high}; allowed: a finite number")

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Independent draws, low + (high - low) u: the same u for every low and high, so an axis over them is
        paired.
        """
        return self.low + (self.high - self.low) * rng.random(n)

    def bounds(self) -> tuple[float, float]:
        """low and high."""
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Mixture:
    """A few levels, `values` with probabilities proportional to `weights`: strict, middling and careless clients."""

    values: tuple[float, ...]
    weights: tuple[float, ...]
    examples: ClassVar[Given] = ({"values": [0.1, 1.0, 5.0], "weights": [0.7, 0.2, 0.1]},)

    def __post_init__(self) -> None:
        if not self.values or len(self.values) != len(self.weights):
            raise DpflbenchError(
                f"values: {len(self.values)} values and {len(self.weights)} weights; allowed: one weight a value, "
                "at least one"
            )
        if not (all(weight >= 0 for weight in self.weights) and 0 < math.fsum(self.weights) < math.inf):
            raise DpflbenchError(f"weights: {list(self.weights)}; allowed: finite numbers ≥ 0, not all 0")

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Independent draws of one of the values."""
        weights = np.array(self.weights, dtype=np.float64)
        return np.array(self.values, dtype=np.float64)[rng.choice(len(weights), size=n, p=weights / weights.sum())]

    def bounds(self) -> tuple[float, float]:
        """The extreme values."""
        return min(self.values), max(self.values)


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution truncated to [low, high]: drawn from inside, not moved to the border."""

    mean: float
    std: float
    low: float
    high: float = math.inf
    examples: ClassVar[Given] = ({"mean": 2.0, "std": 1.0, "low": 0.5},)

    def __post_init__(self) -> None:
        _ordered(self.low, self.high)
        if not (self.std > 0 and math.isfinite(self.std)):
            raise DpflbenchError(f"std: {self.std}; allowed: a finite number > 0")

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Independent draws by inversion."""
        from scipy.stats import truncnorm

        a, b = (self.low - self.mean) / self.std, (self.high - self.mean) / self.std
        drawn = np.asarray(self.mean + self.std * truncnorm.ppf(rng.random(n), a, b), dtype=np.float64)
        if not np.isfinite(drawn).all():
            raise DpflbenchError(
                f"normal: [{self.low}, {self.high}] has no mass under mean {self.mean}, std {self.std}; allowed: "
                "a nearer range"
            )
        return np.clip(drawn, self.low, self.high)

    def bounds(self) -> tuple[float, float]:
        """low, and high or the largest float."""
        return self.low, min(self.high, sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Pareto:
    """Pareto with exponent `shape` from `low` on, truncated at `high`: many strict clients, a few generous ones."""

    shape: float
    low: float
    high: float = math.inf
    examples: ClassVar[Given] = ({"shape": 1.5, "low": 0.1, "high": 5.0},)

    def __post_init__(self) -> None:
        _ordered(self.low, self.high)
        if not (self.shape > 0 and math.isfinite(self.shape)):
            raise DpflbenchError(f"shape: {self.shape}; allowed: a finite number > 0")
        if self.low <= 0:
            raise DpflbenchError(f"low: {self.low}; allowed: a number > 0")

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Independent draws by inversion: P(X > x) = (low / x)^shape before truncation."""
        kept = 1.0 - (self.low / self.high) ** self.shape  # mass below high
        drawn: Floats = self.low * (1.0 - rng.random(n) * kept) ** (-1.0 / self.shape)
        return np.clip(drawn, self.low, self.high)

    def bounds(self) -> tuple[float, float]:
        """low, and high or the largest float."""
        return self.low, min(self.high, sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Listed:
    """One value a client, in order: budgets somebody already has."""

    values: tuple[float, ...]
    examples: ClassVar[Given] = ({"values": [0.5, 1.0, 2.0, 1.0, 0.5, 3.0, 1.5]},)

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """The list itself; its length must be the number of clients."""
        if len(self.values) != n:
            raise DpflbenchError(
                f"listed.values: {len(self.values)} values for {n} clients; allowed: exactly one a client"
            )
        return np.array(self.values, dtype=np.float64)

    def bounds(self) -> tuple[float, float]:
        """The extreme values."""
        return min(self.values, default=math.nan), max(self.values, default=math.nan)


DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "constant": Constant,
    "uniform": Uniform,
    "mixture": Mixture,
    "normal": Normal,
    "pareto": Pareto,
    "listed": Listed,
}


def _ordered(low: float, high: float) -> None:
    """Refuse an empty range."""
    if not (math.isfinite(low) and low <= high):
        raise DpflbenchError(f"low: {low} with high {high}; allowed: a finite low ≤ high")
