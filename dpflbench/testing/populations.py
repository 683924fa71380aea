"""Checks of partitions and budgets: who owns which example, and what everybody may spend.

A part may decline a world it is not made for by DpflbenchError (a partition by writer, data without writers), but not
all of them.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Distribution, Floats, Ints, Partition
from dpflbench.tasks.partition import checked_owners
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import (
    attempt,
    difference,
    keep,
    needs_methods,
    no_global_draws,
    pickled,
    refuse,
    unchanged,
)

EXAMPLES, CLASSES, WRITERS = 600, 5, 15
CLIENTS = (1, 6, 15)
DRAWN = (1, 7, 1000)  # clients whose budgets are drawn


def check_partition(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is a partition or a factory of one."""
    who = named(part, "partition", who)
    partition = obtain(part, who)
    needs_methods(who, partition, Partition, {"assign": 4})
    pickled(who, partition)
    rng = np.random.default_rng(0)
    classes, writers = rng.integers(0, CLASSES, EXAMPLES), rng.permutation(np.arange(EXAMPLES) % WRITERS)
    worlds = [(groups, n) for groups in (None, writers) for n in CLIENTS]
    served = [_served(who, partition, classes, groups, n) for groups, n in worlds]
    if not any(served):
        refuse(
            who,
            f"declines every federation of the check ({EXAMPLES} examples, {' or '.join(map(str, CLIENTS))} clients)",
            "a partition that deals out common data",
            "raise DpflbenchError only where a client would get less than it must",
        )
    few = classes[: CLIENTS[-1] - 1]
    _declines(who, partition, few, writers[: len(few)], f"{len(few)} examples", "some client gets nothing")
    if "min_size" in {f.name for f in dataclasses.fields(partition)} if dataclasses.is_dataclass(partition) else ():
        floor = dataclasses.replace(partition, min_size=EXAMPLES)
        _declines(who, floor, classes, writers, f"min_size {EXAMPLES}", "a floor nobody can keep to")


def _served(who: str, partition: Any, classes: Ints, groups: Ints | None, n_clients: int) -> bool:
    """Whether a federation was dealt out, by all the rules; False if the partition declines it."""
    what = f"assign for {n_clients} clients"
    before = keep((partition, classes, groups))
    deals = [_declined(who, what, lambda: _assign(partition, classes, groups, n_clients)) for _ in range(2)]
    for name, old, new in zip(("itself", "classes", "groups"), before, (partition, classes, groups), strict=True):
        unchanged(who, what, old, new, name)
    if deals[0] is None:
        return False
    if difference(deals[0], deals[1]):
        refuse(
            who,
            f"{what}, called twice under one seed, gives different owners",
            "a split that its seed determines",
            "draw from the rng argument alone and keep nothing between calls",
        )
    try:
        owner = checked_owners(deals[0], len(classes), n_clients)
    except DpflbenchError as e:
        refuse(who, f"{what}: {e}", "an owner an example", "return an int64 array [M]")
    idle = np.flatnonzero(np.bincount(owner[owner >= 0], minlength=n_clients) == 0)
    if len(idle):
        refuse(
            who,
            f"{what} leaves client {idle[0]} without an example",
            "at least one a client",
            "raise DpflbenchError where that cannot be",
        )
    return True


def _assign(partition: Any, classes: Ints, groups: Ints | None, n_clients: int) -> Any:
    return partition.assign(classes, groups, n_clients, np.random.default_rng(7))


def _declines(who: str, partition: Any, classes: Ints, groups: Ints, what: str, why: str) -> None:
    """Refuse a partition that deals out what cannot be dealt out."""
    asked = f"assign of {what} to {CLIENTS[-1]} clients"
    if _declined(who, asked, lambda: _assign(partition, classes, groups, CLIENTS[-1])) is not None:
        refuse(who, f"{asked} is done, though {why}", "DpflbenchError", "count before dealing")


def _declined(who: str, what: str, call: Callable[[], Any]) -> Any:
    """What the call returns; None where it declines by DpflbenchError."""

    def quietly() -> Any:
        try:
            return call()
        except DpflbenchError:
            return None

    with no_global_draws(who, what):
        return attempt(who, what, "a result or DpflbenchError", quietly)


def check_budget(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is a distribution of budgets or a factory of one."""
    who = named(part, "budget", who)
    budget = obtain(part, who)
    needs_methods(who, budget, Distribution, {"draw": 2, "bounds": 0})
    pickled(who, budget)
    bounds = attempt(who, "bounds()", "the smallest and the largest value", budget.bounds)
    pair = isinstance(bounds, tuple) and len(bounds) == 2 and all(isinstance(b, float | int) for b in bounds)
    if not pair or not -math.inf < bounds[0] <= bounds[1] < math.inf:
        refuse(who, f"bounds() is {bounds!r:.60}", "two finite numbers, low ≤ high", "say what a draw can be at most")
    if not any([_drawn(who, budget, n, bounds) for n in DRAWN]):
        refuse(
            who,
            f"declines to draw for {', '.join(map(str, DRAWN))} clients",
            "budgets for one of them at least",
            "raise DpflbenchError only for a number of clients it cannot serve",
        )


def _drawn(who: str, budget: Any, n: int, bounds: tuple[float, float]) -> bool:
    """Whether budgets were drawn, by all the rules; False if the distribution declines."""
    what, before = f"draw({n}, rng)", keep(budget)
    first, again = (_declined(who, what, lambda: budget.draw(n, np.random.default_rng(7))) for _ in range(2))
    unchanged(who, what, before, budget, "itself")
    if first is None:
        return False
    if not isinstance(first, np.ndarray) or first.dtype != np.float64 or first.shape != (n,):
        found = f"{first.dtype} {first.shape}" if isinstance(first, np.ndarray) else type(first).__name__
        refuse(who, f"{what} returns {found}", f"float64 ({n},)", "return one value a client")
    if difference(first, again):
        refuse(
            who,
            f"{what}, called twice under one seed, gives different budgets",
            "a draw that its seed determines",
            "draw from the rng argument alone and keep nothing between calls",
        )
    _within(who, what, first, bounds)
    return True


def _within(who: str, what: str, values: Floats, bounds: tuple[float, float]) -> None:
    odd = values[~((values >= bounds[0]) & (values <= bounds[1]))]
    if len(odd):
        refuse(
            who,
            f"{what} holds {odd[0]:g}",
            f"values within bounds(), {bounds[0]:g} to {bounds[1]:g}",
            "state the bounds it keeps to: a suite is checked against them",
        )
