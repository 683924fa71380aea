"""What less noise would buy: utility against injected noise, measured on a suite's own task.

A point is one run of uniform selection and a plain mean at a clip bound, with noise of a chosen variance in place of
any budget's. It is no private run and stands in no table; between points utility is read off in log variance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpflbench.assembly import Assembly, assemble
from dpflbench.catalogue import Catalogue
from dpflbench.errors import SuiteError
from dpflbench.execution.attempt import execute
from dpflbench.execution.prepare import Place
from dpflbench.federation.schedule import even_uses
from dpflbench.forecast import Forecast
from dpflbench.planning import make_run
from dpflbench.results.record import MSE, Metric
from dpflbench.suite_schema import Canonical, Normalised, Raw


@dataclass(frozen=True, slots=True)
class Curve:
    """Utility against the variance of noise in one coordinate of a direction."""

    variances: Sequence[float]  # ascending, the first is 0
    utilities: Sequence[float]  # NaN where a run did not end well
    metric: Metric

    def at(self, variance: float) -> float:
        """The utility that noise of this variance leaves; NaN outside of what was measured."""
        known = [(v, u) for v, u in zip(self.variances, self.utilities, strict=True) if v > 0 and math.isfinite(u)]
        if not known or not known[0][0] * (1 - 1e-9) <= variance <= known[-1][0] * (1 + 1e-9):
            return math.nan
        return float(np.interp(math.log(variance), [math.log(v) for v, _ in known], [u for _, u in known]))


def levels(forecasts: Sequence[Forecast], points: int) -> list[float]:
    """No noise, and that many variances from the limit to the noisiest of some runs, in even ratios."""
    found = [f.variance for f in forecasts if f.variance > 0 and math.isfinite(f.variance)]
    limits = [f.limit for f in forecasts if math.isfinite(f.limit)]
    low, high = min([*limits, *found]), max(found)
    return [0.0, *np.geomspace(low, high, points).tolist()]


def measure(like: Assembly, variances: Sequence[float], catalogue: Catalogue, place: Place) -> Curve:
    """The curve on the task, at the clip bound and under the kind of noise of a private run."""
    utilities, metric = [], MSE
    for variance in variances:
        made = noisy_mean(like, variance, catalogue)
        record = execute(make_run(made.config, made, made.task.dataset.digest(place.root)), catalogue, place)
        utilities.append(float(record.final.get("utility_global", math.nan)) if record.status == "done" else math.nan)
        metric = record.metric
    return Curve(variances, utilities, metric)


def noisy_mean(like: Assembly, variance: float, catalogue: Catalogue) -> Assembly:
    """Uniform selection and a plain mean whose direction has noise of that variance in each coordinate."""
    federation, mechanism = like.federation, like.noise[0]
    if not like.frame.trust.rows or federation.cohorts == "poisson":
        raise SuiteError(["utility against noise: is measured with rows; allowed: privacy.trust: local, exact cohorts"])
    n, uses = federation.clients, federation.rounds * federation.cohort
    unit = float(mechanism.variance(np.ones(1))[0])
    stage = {
        "round": 0,
        "horizon": federation.rounds,
        "uses": even_uses(n, uses, np.random.default_rng(like.seed)),
        "scale": np.full(n, math.sqrt(federation.cohort * variance / unit) or 1.0),  # 1: of noise that is left out
    }
    asked = {"of": "", "without": "budget" if variance else "noise", "stages": [stage]}
    config = {**like.config, "algorithm": {"name": "compose"}, "counterfactual": asked}
    problems: list[str] = []
    made = assemble(Canonical(Normalised(Raw(config))), catalogue, problems)
    if made is None:
        raise SuiteError([f"utility against noise: {p}" for p in problems])
    return made
