"""Trust: where noise is added, and what the server sees of it. Between local update and aggregator.

`local` is the only one there is: each client noises its own message for its own budget, and the server sees the rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpflbench.errors import PluginError
from dpflbench.interfaces import Aggregator, Floats, LinearAggregator, Mechanism, Setup, Updates


@dataclass(frozen=True, slots=True)
class LocalTrust:
    """Nobody is trusted: noise at the client, rows at the server."""

    def protect(self, mechanism: Mechanism, scale: Floats, rng: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Return what a client does to a value [K, M] before it leaves, with noise of scale [K]."""

        def noised(value: Tensor) -> Tensor:
            spread = torch.as_tensor(scale, dtype=torch.float32, device=value.device)[:, None]  # as charged: exact
            return mechanism.release(value, spread, rng)

        return noised

    def combine(self, aggregator: Aggregator, updates: Updates, state: Any) -> tuple[Any, Any]:
        """Return what the server makes of the rows: a direction and the aggregator's next state."""
        if not isinstance(aggregator, LinearAggregator):
            return aggregator.aggregate(updates, state)
        weights = aggregator.weights(updates)
        return (updates.values.mean(0) if weights is None else weighted(weights, updates.values)), state


def weighted(weights: Any, values: Tensor) -> Tensor:
    """The weighted sum of rows; PluginError unless there is one weight a row."""
    if not isinstance(weights, Tensor) or weights.shape != values.shape[:1] or weights.dtype != values.dtype:
        found = f"{weights.dtype} {tuple(weights.shape)}" if isinstance(weights, Tensor) else type(weights).__name__
        raise PluginError(f"weights are {found}; expected {values.dtype} ({len(values)},), one a client, or None")
    return weights @ values


def initial(aggregator: Aggregator, setup: Setup) -> Any:
    """An aggregator's state before the first round; linear ones have none."""
    return None if isinstance(aggregator, LinearAggregator) else aggregator.init(setup)


TRUSTS = {"local": LocalTrust}
