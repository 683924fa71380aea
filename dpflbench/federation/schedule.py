"""Integer plans and exact systematic sampling: who takes part in a round.

With R_n uses left over L rounds, sum R_n = K L and R_n <= L. Laying the R_n end to end on a line of length K L and
picking the points u, u + L, u + 2L, ... hits K distinct clients, each with probability R_n / L. A client with R_n = L
is always hit, so R_n <= L - 1 holds for the next round and every plan is used exactly. All of it is integer arithmetic:
nothing is lost to rounding.
"""

import numpy as np

from dpflbench.canonical import encode
from dpflbench.errors import PluginError
from dpflbench.interfaces import Floats, Ints, Plan


def draw_cohort(uses_left: Ints, rounds_left: int, rng: np.random.Generator) -> Ints:
    """The sorted indices of one round's cohort; O(N)."""
    order = rng.permutation(len(uses_left))  # neighbours on the line never meet in one round: shuffle who they are
    ends = np.cumsum(uses_left[order])
    points = rng.integers(rounds_left) + rounds_left * np.arange(ends[-1] // rounds_left)
    return np.sort(order[np.searchsorted(ends, points, side="right")])


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


def check_plan(plan: Plan, *, n_clients: int, cohort_size: int, rounds_left: int, who: str) -> None:
    """Raise PluginError unless a plan is one that `draw_cohort` can keep."""
    uses, horizon = plan.uses, plan.horizon

    def refuse(what: str) -> None:
        raise PluginError(f"selector of {who}: {what}")

    if not isinstance(uses, np.ndarray) or uses.shape != (n_clients,) or uses.dtype.kind != "i":
        found = f"{uses.dtype} {uses.shape}" if isinstance(uses, np.ndarray) else type(uses).__name__
        refuse(f"plan.uses is {found}; expected an integer array of shape ({n_clients},)")
    if not isinstance(horizon, int | np.integer) or not 1 <= horizon <= rounds_left:
        refuse(f"plan.horizon is {horizon!r}; allowed: 1 to {rounds_left}, the rounds left")
    if uses.min() < 0 or uses.max() > horizon:
        refuse(f"plan.uses ranges from {uses.min()} to {uses.max()}; allowed: 0 to the horizon {horizon}")
    if int(uses.sum()) != horizon * cohort_size:
        refuse(f"plan.uses sums to {uses.sum()}; expected horizon * cohort = {horizon * cohort_size}")
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
    try:
        encode(dict(plan.notes), lambda raw: "")
    except (TypeError, ValueError, RecursionError) as e:
        refuse(f"plan.notes: {e}")
