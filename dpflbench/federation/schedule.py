"""Integer plans and exact systematic sampling, or secret coins: who takes part in a round.

With R_n uses left over L rounds, sum R_n = K L and R_n <= L. Laying the R_n end to end on a line of length K L and
picking the points u, u + L, u + 2L, ... hits K distinct clients, each with probability R_n / L. A client with R_n = L
is always hit, so R_n <= L - 1 holds for the next round and every plan is used exactly. All of it is integer arithmetic:
nothing is lost to rounding.
"""

from collections.abc import Callable

import numpy as np

from dpflbench.canonical import encode
from dpflbench.errors import PluginError
from dpflbench.interfaces import Cohorts, Floats, Ints, Plan
from dpflbench.randomness import Streams

COINS = 1e-6  # of what is expected: how far rates of Poisson cohorts may add up to another size


def draw_cohort(uses_left: Ints, rounds_left: int, rng: np.random.Generator) -> Ints:
    """The sorted indices of one round's cohort; O(N)."""
    order = rng.permutation(len(uses_left))  # neighbours on the line never meet in one round: shuffle who they are
    ends = np.cumsum(uses_left[order])
    points = rng.integers(rounds_left) + rounds_left * np.arange(ends[-1] // rounds_left)
    return np.sort(order[np.searchsorted(ends, points, side="right")])


def cohort_of(plan: Plan, uses_left: Ints, done: int, rng: np.random.Generator) -> Ints:
    """The sorted cohort of a plan's next round, after so many of it: the one it names, or one drawn from uses left."""
    if plan.cohorts is not None:
        return np.sort(np.asarray(plan.cohorts[done], dtype=np.int64))
    return draw_cohort(uses_left, int(plan.horizon) - done, rng)


def drawn_by_coins(plan: Plan, streams: Streams, round: int, secret: bool = True) -> Ints:
    """The sorted cohort of one round in which each client joins by a coin of rate uses / horizon; O(N). Where privacy
    hangs on coins they are secret, else those of the seed.
    """
    rate = np.minimum(1.0, plan.uses / int(plan.horizon))
    if secret:
        return np.flatnonzero(streams.draws("cohort", round).coins(rate))
    return np.flatnonzero(streams.numpy("select", round).random(len(rate)) < rate)


def round_uses(expected: Floats, total: int, rng: np.random.Generator) -> Ints:
    """Integers that sum to `total`, each the floor or the ceiling of its expected value, with that expectation.

    `expected` must sum to `total` (up to rounding). Systematic sampling on the fractional parts.
    """
    floor = np.floor(expected + 1e-9).astype(np.int64)
    missing = total - int(floor.sum())
    fraction = np.clip(expected - floor, 0.0, None)
    if missing <= 0 or fraction.sum() == 0.0:
        if missing:
            raise PluginError(f"expected uses sum to {expected.sum():g}, not to {total}")
        return floor
    order = rng.permutation(len(expected))
    ends = np.cumsum(fraction[order])
    points = (rng.random() + np.arange(missing)) * (ends[-1] / missing)
    picked = order[np.minimum(np.searchsorted(ends, points, side="right"), len(order) - 1)]
    uses = floor.copy()
    np.add.at(uses, picked, 1)
    return uses


def even_uses(n_clients: int, total: int, rng: np.random.Generator) -> Ints:
    """`total` participations dealt out so that no two clients differ by more than one; who gets one more is drawn."""
    uses = np.full(n_clients, total // n_clients, dtype=np.int64)
    uses[rng.permutation(n_clients)[: total % n_clients]] += 1
    return uses


def check_plan(
    plan: Plan, *, n_clients: int, cohort_size: int, rounds_left: int, who: str, cohorts: Cohorts = "exact"
) -> None:
    """Raise PluginError unless a plan is one that `draw_cohort`, or a coin a client, can keep."""
    uses, horizon, coins = plan.uses, plan.horizon, cohorts == "poisson"

    def refuse(what: str) -> None:
        raise PluginError(f"selector of {who}: {what}")

    kinds = "if" if coins else "i"
    if not isinstance(uses, np.ndarray) or uses.shape != (n_clients,) or uses.dtype.kind not in kinds:
        found = f"{uses.dtype} {uses.shape}" if isinstance(uses, np.ndarray) else type(uses).__name__
        refuse(f"plan.uses is {found}; expected an integer array of shape ({n_clients},)")
    if not isinstance(horizon, int | np.integer) or not 1 <= horizon <= rounds_left:
        refuse(f"plan.horizon is {horizon!r}; allowed: 1 to {rounds_left}, the rounds left")
    if not (uses.min() >= 0 and uses.max() <= horizon):
        refuse(f"plan.uses ranges from {uses.min()} to {uses.max()}; allowed: 0 to the horizon {horizon}")
    total = horizon * cohort_size
    if not abs(float(uses.sum()) - total) <= (COINS * total if coins else 0):
        refuse(f"plan.uses sums to {uses.sum()}; expected horizon * cohort = {total}")
    if coins and (horizon != rounds_left or plan.cost is not None or plan.cohorts is not None):
        refuse("Poisson cohorts need one plan for all rounds, without cost and cohorts: nobody learns who took part")
    if plan.cohorts is not None:
        _check_cohorts(plan, cohort_size, refuse)
    for name, value, axes in (
        ("cost", plan.cost, 2),
        ("clip_factor", plan.clip_factor, 1),
    ):  # a cost [N] would broadcast to [N, N]
        if value is not None and (
            np.ndim(value) != axes
            or len(value) != n_clients
            or not np.isfinite(value).all()
            or (np.asarray(value) < 0).any()
        ):
            refuse(f"plan.{name} must hold {n_clients} finite, non-negative values, {'[N, A]' if axes == 2 else '[N]'}")
    if plan.clip_factor is not None and (np.asarray(plan.clip_factor) <= 0).any():
        refuse("plan.clip_factor must be positive")
    if plan.probe is not None and not (0 < plan.probe.loss_bound < np.inf and 0 < plan.probe.share < 1):
        refuse(f"plan.probe {plan.probe}: loss_bound must be positive and finite, share between 0 and 1")
    if plan.probe is not None and plan.adaptive is not None:
        refuse("plan.probe beside plan.adaptive; allowed: one of the two")
    try:
        encode(dict(plan.notes), lambda raw: "")
    except (TypeError, ValueError, RecursionError) as e:
        refuse(f"plan.notes: {e}")


def _check_cohorts(plan: Plan, cohort_size: int, refuse: Callable[[str], None]) -> None:
    """Who meets must be distinct clients, each as often as its uses say."""
    found, n = np.asarray(plan.cohorts), len(plan.uses)
    if found.shape != (plan.horizon, cohort_size) or found.dtype.kind != "i":
        refuse(f"plan.cohorts is {found.dtype} {found.shape}; expected integers ({plan.horizon}, {cohort_size})")
    if found.min() < 0 or found.max() >= n or (np.diff(np.sort(found, axis=1), axis=1) == 0).any():
        refuse(f"plan.cohorts has a client twice in a round, or one that is none of 0 to {n - 1}")
    if not np.array_equal(np.bincount(found.ravel(), minlength=n), plan.uses):
        refuse("plan.cohorts does not have each client as often as plan.uses says")
