"""Check of an aggregator: noisy rows to one direction, without memory but its state and without touching what it is
given.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from dpflbench.errors import PluginError
from dpflbench.federation.trust import proved
from dpflbench.interfaces import Cohort, LinearAggregator, ReportsWeights, RowAggregator, Setup, Updates
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import (
    attempt,
    difference,
    holds_plain_state,
    keep,
    needs_methods,
    no_global_draws,
    pickled,
    refuse,
    unchanged,
)
from dpflbench.testing.worlds import devices, setup_of, standard_noise, updates_of

ROUNDS, ROWS = 3, 6


def check_aggregator(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is an aggregator or a factory of one."""
    who = named(part, "aggregator", who)
    aggregator = obtain(part, who)
    if callable(getattr(aggregator, "weights", None)):
        needs_methods(who, aggregator, LinearAggregator, {"weights": 1})
        pickled(who, aggregator)
        aggregator = ByWeights(aggregator, who)
    else:
        needs_methods(who, aggregator, RowAggregator, {"init": 1, "aggregate": 2})
    for noise in standard_noise().values():
        setup = setup_of(noise)
        first = _directions(aggregator, setup, who)
        again = _directions(aggregator, setup, who)
        if difference(first, again):
            refuse(
                who,
                "the same three rounds played twice give different directions",
                "a function of updates and state alone",
                "return what must be remembered as state; keep nothing in attributes, globals or class variables",
            )
        if difference(first, _directions(pickled(who, aggregator), setup, who)):
            refuse(
                who,
                "gives other directions after pickling",
                "the same part in every worker",
                "keep only parameters in its fields",
            )
        _rows_in_any_order(aggregator, setup, who)
        _follows_type_and_device(aggregator, setup, who)
        _few_rows(aggregator, setup, who)
        _without_noise(aggregator, setup, who)
        _nan_row_is_seen(aggregator, setup, who)


@dataclass(frozen=True)
class ByWeights:
    """A linear aggregator as one of rows, so that all rules are the same for both; it is shown everything but the
    rows.
    """

    part: Any
    who: str

    def init(self, setup: Setup) -> None:
        """Return None: weights have no state."""

    def aggregate(self, updates: Updates, state: None) -> tuple[Tensor, None]:
        """Return the weighted sum of the rows."""
        known = {f.name: getattr(updates, f.name) for f in fields(Cohort)}
        weights = self.part.weights(Cohort(**known))
        if weights is None:
            return updates.values.mean(0), None
        if not isinstance(weights, Tensor) or weights.shape != updates.epsilon.shape:
            found = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
            refuse(
                self.who,
                f"weights returns {found}",
                "one number a client [K], or None for equal weights",
                "return them",
            )
        if weights.dtype != updates.values.dtype:
            refuse(
                self.who, f"weights are {weights.dtype}", f"{updates.values.dtype}", "compute from the cohort's tensors"
            )
        return weights @ updates.values, None


def _directions(aggregator: Any, setup: Setup, who: str) -> list[Tensor]:
    """The directions of a few rounds, each call checked."""
    before = keep(setup)
    with no_global_draws(who, "init"):
        state = attempt(who, "init(setup)", "a state", lambda: aggregator.init(setup))
    unchanged(who, "init", before, setup, "setup")
    found = []
    for round in range(ROUNDS):
        direction, state = _called(aggregator, updates_of(setup, round, ROWS), state, who)
        found.append(direction)
    return found


def _called(aggregator: Any, updates: Updates, state: Any, who: str) -> tuple[Tensor, Any]:
    """One call of aggregate with all that can be seen of it."""
    _plain(state, who)
    known, remembered, attributes = keep(updates), keep(state), keep(aggregator)
    with no_global_draws(who, "aggregate"):
        result = attempt(
            who,
            "aggregate(updates, state)",
            "a direction and the next state",
            lambda: aggregator.aggregate(updates, state),
        )
    unchanged(who, "aggregate", known, updates, "updates")
    unchanged(who, "aggregate", remembered, state, "state")
    unchanged(who, "aggregate", attributes, aggregator, "its own attributes ")
    if not isinstance(result, tuple) or len(result) != 2:
        refuse(
            who, f"aggregate returns {type(result).__name__}", "a pair (direction, state)", "return direction, state"
        )
    direction, state = result
    _fits(direction, updates, who)
    if not bool(torch.isfinite(direction).all()):
        refuse(
            who,
            "made non-finite values of finite updates",
            "a finite direction",
            "guard divisions, roots and logarithms",
        )
    _plain(state, who)
    if isinstance(aggregator, ReportsWeights):
        _reports(aggregator, updates, state, direction, who)
    return direction, state


def _reports(aggregator: ReportsWeights, updates: Updates, state: Any, direction: Tensor, who: str) -> None:
    """Refuse reported weights that do not give the direction."""
    told = attempt(
        who,
        "effective_weights(updates, state)",
        "weights [K] or None",
        lambda: aggregator.effective_weights(updates, state),
    )
    try:
        if told is not None:
            proved(told, updates.values, direction)
    except PluginError as e:
        refuse(who, str(e), "the weights of the rows in the direction, or None", "report what aggregate used")


def _fits(direction: Any, updates: Updates, who: str) -> None:
    """Refuse what is no direction of the right shape, type and device."""
    values, dim = updates.values, updates.values.shape[1]
    if not isinstance(direction, Tensor):
        refuse(
            who,
            f"the direction is a {type(direction).__name__}",
            f"a tensor of shape ({dim},)",
            "return a torch tensor",
        )
    if direction.shape != (dim,):
        refuse(
            who,
            f"the direction of {len(values)} rows has shape {tuple(direction.shape)}",
            f"({dim},), one number a coordinate",
            "reduce over the rows, e.g. weights @ updates.values",
        )
    if direction.dtype != values.dtype or direction.device != values.device:
        refuse(
            who,
            f"the direction is {direction.dtype} on {direction.device}",
            f"{values.dtype} on {values.device}, as updates.values",
            "make new tensors by updates.values.new_zeros(…) or .to(updates.values)",
        )


def _plain(state: Any, who: str) -> None:
    odd = holds_plain_state(state)
    if odd:
        refuse(
            who,
            f"its state holds {odd}",
            "None, numbers, texts, tensors, and dicts, lists and tuples of those",
            "return only such values as state: a checkpoint must hold it",
        )


def _started(aggregator: Any, setup: Setup, updates: Updates, who: str) -> Tensor:
    return _called(aggregator, updates, aggregator.init(setup), who)[0]


def _rows_in_any_order(aggregator: Any, setup: Setup, who: str) -> None:
    """The order of clients means nothing; compared in float64 up to rounding."""
    updates = updates_of(setup, 0, ROWS, torch.float64)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = replace(
        updates,
        values=updates.values[order],
        clients=updates.clients[order],
        epsilon=updates.epsilon[order],
        delta=updates.delta[order],
        n_examples=updates.n_examples[order],
        variance=updates.variance[order],
    )
    a, b = _started(aggregator, setup, updates, who), _started(aggregator, setup, shuffled, who)
    if not torch.allclose(a, b, rtol=1e-6, atol=1e-9 * float(updates.values.abs().max())):
        refuse(
            who,
            f"permuting the rows moves the direction by {float((a - b).abs().max()):.2g}",
            "the same direction",
            "weigh rows by what they carry (epsilon, variance, clients), not by their position",
        )


def _follows_type_and_device(aggregator: Any, setup: Setup, who: str) -> None:
    for device in devices():
        dtypes = [torch.float32] if device == "mps" else [torch.float32, torch.float64]
        for dtype in dtypes:
            _started(aggregator, setup, updates_of(setup, 0, ROWS, dtype, device), who)


def _few_rows(aggregator: Any, setup: Setup, who: str) -> None:
    """One client is a cohort. No client is none: a direction made of nothing must be zero or visibly undefined."""
    _started(aggregator, setup, updates_of(setup, 0, 1), who)
    nobody = updates_of(setup, 0, 0)
    try:
        direction, _ = aggregator.aggregate(nobody, aggregator.init(setup))
    except Exception:  # refusing is as good as an undefined direction, whatever it raises
        return
    _fits(direction, nobody, who)
    if bool((torch.isfinite(direction) & (direction != 0)).any()):
        refuse(
            who,
            "makes a direction of no updates at all",
            "zeros, NaN or an error",
            "derive the direction from updates.values alone",
        )


def _without_noise(aggregator: Any, setup: Setup, who: str) -> None:
    """Rows of one client, or of all, may carry no noise at all: a variance of 0 is no excuse for a division by it."""
    updates = updates_of(setup, 0, ROWS)
    some = updates.variance.clone()
    some[1] = 0.0
    for variance in (some, torch.zeros_like(some)):
        _started(aggregator, setup, replace(updates, variance=variance), f"{who} (rows without noise)")


def _nan_row_is_seen(aggregator: Any, setup: Setup, who: str) -> None:
    """The harness ends a run with a non-finite update before an aggregator sees it; all the same, nothing may hide
    one.
    """
    updates = updates_of(setup, 0, ROWS)
    values = updates.values.clone()
    values[2] = torch.nan
    try:
        direction, _ = aggregator.aggregate(replace(updates, values=values), aggregator.init(setup))
    except Exception:  # a refusal, whatever it raises
        return
    if bool(torch.isfinite(direction).all()):
        refuse(
            who,
            "a row of NaN vanishes in a finite direction",
            "an error or a non-finite direction",
            "do not replace NaN (nan_to_num, nanmean, sign): a broken update must be seen",
        )
