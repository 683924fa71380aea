"""IDP-clipping: after Boenisch, Mühl, Dziedzic, Rinberg, Papernot, "Have it your way: Individualized Privacy Assignment
for DP-SGD" (its Scale variant), NeurIPS 2023, carried over from records to clients.

| paper | here |
|---|---|
| σ, common noise | the same noise in every client's message |
| C_g = C σ / σ_g, clip bound of group g | `clip_factor` [N] times the clip bound, mean 1 |

A tight budget is met by a smaller clip bound instead of more noise: variance is traded for bias. Uniform selection,
plain mean. Differs: groups are clients, each a group of its own; a message is a mean over the client's examples, so
equal noise needs B_n ∝ D_n μ_n (Laplace: D_n ε_n) and not only μ_n; the factors average 1 over clients, as C does over
records in the paper.
"""

from dataclasses import dataclass, replace

import numpy as np

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Plan, PlanView
from dpflbench_algorithms.parts import Mean, UniformSelection


@dataclass(frozen=True, slots=True)
class IndividualClipping:
    """Equal uses, clip bounds by budget so that all messages carry the same noise."""

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return equal uses and factors proportional to 1 / (noise scale at the common clip bound)."""
        setup, plan = view.setup, UniformSelection().plan(view, rng)
        cost = setup.accountant.per_use(view.left, plan.uses.astype(np.float64), setup.epsilon, setup.delta)
        used = plan.uses > 0  # nobody is clipped who is not asked; without privacy all are alike
        factor = np.ones(setup.n_clients)
        factor[used] = 1.0 / setup.message_for(cost).scale[used]
        factor[used] /= factor[used].mean()
        return replace(plan, clip_factor=factor, notes={"clip_factor": factor})


def idp_clipping() -> Algorithm:
    """IDP-clipping: uniform selection, clip bounds by budget, plain mean."""
    return Algorithm("IDP-clipping", IndividualClipping(), Mean())


@hookimpl
def dpflbench_selectors() -> Factories:
    """Uniform selection with individual clip bounds."""
    return {"idp_clipping": IndividualClipping}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """IDP-clipping."""
    return {"IDP-clipping": idp_clipping}
