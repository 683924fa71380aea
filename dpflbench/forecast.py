"""What a run will look like, before it is paid for: planned uses, noise scales, privacy cost, and noise against signal.

Nothing is trained. A selector that plans in stages is asked for its first stage only.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from dpflbench.assembly import Assembly
from dpflbench.execution.attempt import Place, prepare
from dpflbench.federation.calibration import calibrate
from dpflbench.federation.schedule import check_plan
from dpflbench.interfaces import Floats, Losses, PlanView

Spread = tuple[float, float, float]  # min, median, max over clients that are used


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One run's plan in figures."""

    dim: int  # coordinates that are noised together
    rounds: int
    planned_rounds: int  # fewer than rounds for a selector that plans in stages
    uses: Spread
    unused: int  # clients the plan never asks
    scale: Spread | None = None  # of a coordinate of one message; None: no noise
    epsilon: Spread | None = None  # spent by the planned uses
    share: Spread | None = None  # of the allowed epsilon
    noise_norm: float = 0.0  # root mean square norm of the noise in the plain mean of a round
    clip_norm: float  # bound on the norm of the clipped mean it hides

    @property
    def noise_to_clip(self) -> float:
        """Noise norm over clip bound: far above 1, a round's mean says next to nothing about the gradient."""
        return self.noise_norm / self.clip_norm if math.isfinite(self.clip_norm) else 0.0


def forecast(assembly: Assembly, place: Place) -> Forecast:
    """The forecast of one run."""
    prepared = prepare(assembly, place)
    setup, ledger, algorithm = prepared.world.setup, prepared.ledger, assembly.algorithm
    n, none, left = setup.n_clients, np.zeros(0), ledger.left
    empty = Losses(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), none, none, none)
    plan = algorithm.selector.plan(
        PlanView(setup, 0, np.zeros(n, dtype=np.int64), left, empty), prepared.world.streams.numpy("select", -1)
    )
    check_plan(plan, n_clients=n, cohort_size=setup.cohort_size, rounds_left=setup.rounds, who=algorithm.name)
    used = np.flatnonzero(plan.uses > 0)
    free = Forecast(
        dim=setup.dim,
        rounds=setup.rounds,
        planned_rounds=int(plan.horizon),
        uses=_spread(plan.uses.astype(float)),
        unused=n - len(used),
        clip_norm=setup.clip_norm,
    )
    if not algorithm.private:
        return free
    message = calibrate(plan, left, setup).message.of(used)
    spent = setup.accountant.epsilon(setup.accountant.cost(message) * plan.uses[used, None], setup.delta[used])
    variance = setup.mechanism.variance(message.scale)
    expected = setup.dim * float(np.sum(plan.uses[used] / plan.horizon * variance)) / setup.cohort_size**2
    return replace(
        free,
        scale=_spread(message.scale),
        epsilon=_spread(spent),
        share=_spread(spent / setup.epsilon[used]),
        noise_norm=math.sqrt(expected),
    )


def _spread(values: Floats) -> Spread:
    return float(values.min()), float(np.median(values)), float(values.max())
