"""Trust: where noise is added, and what the server sees of it. Between local update and aggregator.

`local` is the only one there is: each client noises its own message for its own budget, and the server sees the rows.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.draws import Draws
from dpflbench.errors import PluginError
from dpflbench.interfaces import (
    Aggregator,
    Cohort,
    Event,
    Ints,
    LinearAggregator,
    Mechanism,
    Protect,
    ReportsWeights,
    Setup,
    Updates,
)

ALIKE = 1e-4  # of the norm of all rows: how far apart two ways to add them up may be


@dataclass(frozen=True, slots=True)
class LocalTrust:
    """Nobody is trusted: noise at the client, rows at the server."""

    def protect(self, mechanism: Mechanism, paid: Event, draws: Draws) -> Protect:
        """Return what clients do to values before they leave: noise of the scales [K] and as often as was paid for."""
        left, every = paid.steps.copy(), np.arange(len(paid.steps))

        def noised(value: Tensor, rows: Ints | None = None) -> Tensor:
            at = every if rows is None else rows
            left[at] -= 1
            if (left < 0).any():
                raise PluginError(
                    f"local update: a release more than the {int(paid.steps[np.argmin(left)])} that were paid for"
                )
            return mechanism.release(value, paid.scale[at], draws)

        return noised

    def combine(self, aggregator: Aggregator, updates: Updates, state: Any) -> tuple[Any, Any, Tensor | None]:
        """Return what the server makes of the rows: a direction, the aggregator's next state, and each row's weight as
        far as it is known.
        """
        if not isinstance(aggregator, LinearAggregator):
            direction, after = aggregator.aggregate(updates, state)
            told = aggregator.effective_weights(updates, after) if isinstance(aggregator, ReportsWeights) else None
            return direction, after, None if told is None else proved(told, updates.values, direction)
        weights = aggregator.weights(Cohort(**{f.name: getattr(updates, f.name) for f in fields(Cohort)}))  # no rows
        if weights is None:
            return updates.values.mean(0), state, torch.full_like(updates.epsilon, 1 / len(updates.values))
        return checked(weights, updates.values) @ updates.values, state, weights


def checked(weights: Any, values: Tensor) -> Tensor:
    """The weights; PluginError unless there is one a row."""
    if not isinstance(weights, Tensor) or weights.shape != values.shape[:1] or weights.dtype != values.dtype:
        found = f"{weights.dtype} {tuple(weights.shape)}" if isinstance(weights, Tensor) else type(weights).__name__
        raise PluginError(f"weights are {found}; expected {values.dtype} ({len(values)},), one a client, or None")
    return weights


def proved(weights: Any, values: Tensor, direction: Any) -> Tensor:
    """Weights that an aggregator reports; PluginError unless they give its direction."""
    told = checked(weights, values)
    found = told @ values
    if not isinstance(direction, Tensor) or direction.shape != found.shape:
        return told  # whoever looks at the direction says what is wrong with it
    if not float((found - direction).norm()) <= ALIKE * float(values.norm()):
        raise PluginError("effective_weights times rows is not its direction; return None where there are none")
    return told


def initial(aggregator: Aggregator, setup: Setup) -> Any:
    """An aggregator's state before the first round; linear ones have none."""
    return None if isinstance(aggregator, LinearAggregator) else aggregator.init(setup)


TRUSTS = {"local": LocalTrust}
