"""DPFL-BCS: Ma, Zhou, Li, Sheng, Cui, Liu, "The Power of Bias: Optimizing Client Selection in Federated Learning with
Heterogeneous Differential Privacy", arXiv 2408.08642.

Stage 1 plans by noise alone (Proposition 1) and asks participants for noisy losses; stage 2 weighs noise against
heterogeneity (P1) and prices each client by what is left of its budget.

| paper | here |
|---|---|
| T_n, T_{n,0}, C_n | `uses`, `planned`, `view.used` |
| T_0, Θ | `probe_rounds`, `loss_bound` |
| Λ Φ_n | `noise_price`: E‖Z_n‖² of one message that spends a client's whole budget, in gradient units |
| z | `accountant.exponent`; where noise grows with no power of uses, `Growth` is what the accountant charges |
| Γ_n | `heterogeneity` (bcs_estimates.py) |
| Ω_A, Ω_B | only their ratio matters: P1 is Σ ΛΦ_n T_n^(z+1) + K (L + 3μ(γ+T)/8) Γ_n T_n |

Differs:
* Budgets are spent in the accountant's own currency (Gaussian: exact Gaussian DP), so Lemma 1's sqrt(T_n) holds;
  Algorithm 2 splits (ε, δ) linearly, which the accountant `gdp` offers as `composition: linear` (then z = 2).
* Uses are whole numbers between 0 and the rounds left, and each is kept exactly by systematic sampling. With the
  paper's fractional T_n < 1 a single participation overspends, and T_n > T cannot be kept; its independent draws leave
  planned uses unmade and end with cohorts below K, so they are not offered.
* Stage 1 takes part of the plan over all rounds: each use costs a T_{n,0}-th of the budget, and T_{n,0} T_0 / T uses
  are made on average, rounded by lot and never more than T_{n,0}. Clients that spent everything are left out of stage
  2.
* `probe: received` (default) asks only for the loss at the received model, on a share of the participation's cost of
  its own. `probe: literal` sends both losses in one message with the gradient at the paper's sensitivity 2 (B + Θ) /
  D_n. The second loss is then taken at w^(t-1) minus the client's own noisy step: with the paper's noiseless step that
  sensitivity does not hold, because the point of evaluation itself would depend on the data.
* Every sample's loss is clipped to [0, Θ]: ln(classes) is no bound on cross-entropy.
* `heterogeneity` and `constants` default to estimators that noise does not drown; `paper` and `p2` are the literal
  ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.federation.schedule import round_uses
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Floats, Plan, PlanView, Probe, Setup
from dpflbench_algorithms.bcs_estimates import (
    Constants,
    alternating_fit,
    convergence_bound,
    last_losses,
    schedule_constants,
    selection_skew,
    shrunk_excess,
    smallest_drop,
)
from dpflbench_algorithms.bcs_solver import Growth, Programme, solve
from dpflbench_algorithms.parts import Mean

SPENT = 1e-6  # of a budget: below it there is only what rounding noise scales up to float32 leaves over


@dataclass(frozen=True, slots=True)
class BiasedSelection:
    """Client selection of DPFL-BCS."""

    probe_rounds: int = 10
    probe: Literal["received", "literal"] = "received"
    probe_share: float = 0.05  # of a stage-1 participation's cost, for the loss
    loss_bound: float | None = None  # None: ln(classes)
    heterogeneity: Literal["shrunk", "paper", "zero"] = "shrunk"
    constants: Literal["schedule", "p2", "given"] = "schedule"
    gamma: float | None = None  # these three for constants: given, or as start of p2
    smoothness: float | None = None
    strong_convexity: float | None = None
    solver: Literal["exact", "cvxpy"] = "exact"

    def __post_init__(self) -> None:
        if self.probe_rounds < 0:
            raise DpflbenchError(f"probe_rounds: found {self.probe_rounds}; allowed: 0 (no probe) or more")
        if not 0 < self.probe_share < 1:
            raise DpflbenchError(f"probe_share: found {self.probe_share}; allowed: between 0 and 1")
        for name in ("loss_bound", "gamma", "smoothness", "strong_convexity"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise DpflbenchError(f"{name}: found {value}; allowed: positive numbers")
            if value is None and self.constants == "given" and name != "loss_bound":
                raise DpflbenchError(f"{name}: missing; constants: given needs gamma, smoothness and strong_convexity")

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return the uses of stage 1 with its probe at round 0, later those of stage 2; at once all uses if nothing is
        probed.
        """
        wanted = self.heterogeneity != "zero" and 0 < self.probe_rounds < view.setup.rounds
        return self._probing(view, rng) if wanted and view.round == 0 else self._final(view)

    def _probing(self, view: PlanView, rng: np.random.Generator) -> Plan:
        setup, horizon = view.setup, self.probe_rounds
        programme = proposition_1(view)
        planned = solve(programme, self.solver)
        uses = round_uses(planned * horizon / float(setup.rounds), horizon * setup.cohort_size, rng)
        cost = setup.accountant.per_use(view.left, planned.astype(np.float64), setup.epsilon, setup.delta)
        literal = self.probe == "literal"
        probe = Probe(
            self._loss_bound(setup),
            self.probe_share,
            after_step=literal or self.heterogeneity == "paper",
            joint=literal,
        )
        notes = {"stage": 1, "planned": planned, "uses": uses, "objective": programme.objective(planned)}
        return Plan(uses, horizon, cost=cost, probe=probe, notes=notes)

    def _final(self, view: PlanView) -> Plan:
        setup = view.setup
        heterogeneity = self._heterogeneity(view)
        constants, notes = self._constants(view, heterogeneity)
        weight = constants.bias_weight(setup.cohort_size, setup.rounds)
        base = proposition_1(view)
        programme = replace(base, bias=weight * heterogeneity)
        uses = solve(programme, self.solver)
        facts: dict[str, Any] = {
            "stage": 2 if view.round else 1,
            "uses": uses,
            "heterogeneity": heterogeneity,
            "rho_min": selection_skew(view.losses, setup.n_clients),
            "gamma": constants.gamma,
            "smoothness": constants.smoothness,
            "strong_convexity": constants.strong_convexity,
            "bias_weight": weight,
            "objective": programme.objective(uses),
        }
        return Plan(uses, view.rounds_left, notes={**facts, **notes})

    def _loss_bound(self, setup: Setup) -> float:
        if self.loss_bound is not None:
            return self.loss_bound
        if setup.n_classes < 2:
            raise DpflbenchError(
                "DPFL-BCS: loss_bound is missing; the loss of a regression has no natural bound, so give one "
                "(`with: {loss_bound: 150}`) or plan without losses (`heterogeneity: zero`)"
            )
        return math.log(setup.n_classes)

    def _heterogeneity(self, view: PlanView) -> Floats:
        if self.heterogeneity == "zero":
            return np.zeros(view.setup.n_clients)
        estimate = shrunk_excess if self.heterogeneity == "shrunk" else smallest_drop
        return estimate(view.losses, view.setup.n_clients)

    def _constants(self, view: PlanView, heterogeneity: Floats) -> tuple[Constants, Mapping[str, Any]]:
        setup, default = view.setup, schedule_constants(view.setup.lr)
        if self.constants == "p2" and math.isinf(
            default.gamma
        ):  # a constant rate; a fit needs finite numbers to start from
            default = Constants(setup.rounds, default.smoothness, 8.0 * default.smoothness / setup.rounds)
        start = Constants(
            self.gamma or default.gamma,
            self.smoothness or default.smoothness,
            self.strong_convexity or default.strong_convexity,
        )
        if self.constants != "p2" or not len(view.losses.client):
            return (start if self.constants == "given" else default), {}
        last = last_losses(view.losses, setup.n_clients)
        bound = convergence_bound(
            heterogeneity, view.used, self._noise_energy(view), selection_skew(view.losses, setup.n_clients), view.round
        )
        at = np.array([1.0, start.gamma, 1.0, start.smoothness, start.strong_convexity])
        point, residual = alternating_fit(float(np.nanmean(last)), bound, at)
        notes = {"p2_start": at, "p2_fit": point, "p2_residual": residual}
        return Constants(float(point[1]), float(point[3]), float(point[4])), notes

    def _noise_energy(self, view: PlanView) -> float:
        """Σ E‖Z‖² over stage 1: the plan of Proposition 1 is a function of public facts, so it is simply made again."""
        setup, literal = view.setup, self.probe == "literal"
        planned = solve(
            proposition_1(PlanView(setup, 0, np.zeros_like(view.used), setup.budget, view.losses)), self.solver
        )
        cost = setup.accountant.per_use(setup.budget, np.maximum(planned, 1.0), setup.epsilon, setup.delta)
        energy = noise_energy(
            setup, cost if literal else cost * (1.0 - self.probe_share), self._loss_bound(setup) if literal else 0.0
        )
        seen = view.used > 0
        return float(np.sum(view.used[seen] * energy[seen]))


def noise_energy(setup: Setup, cost: Floats, loss_bound: float = 0.0) -> Floats:
    """E‖Z_n‖² [N] of one message at that cost; `loss_bound` is what a joint message adds to the clip bound."""
    message = setup.message_for(cost, loss_bound=loss_bound)
    return setup.dim * setup.mechanism.variance(message.scale) / message.steps


def noise_price(setup: Setup, left: Floats) -> Floats:
    """ΛΦ_n [N]: E‖Z_n‖² when `left` is spent on one message; Gaussian 4 B² d / (D_n² μ_n²), Laplace 8 B² d / (D_n²
    ε_n²).
    """
    return noise_energy(setup, setup.accountant.per_use(left, np.ones(setup.n_clients), setup.epsilon, setup.delta))


def proposition_1(view: PlanView) -> Programme:
    """P1 without heterogeneity for the rounds left: T_n ∝ Φ_n^(-1/z), capped; clients without budget are left out."""
    setup, rounds = view.setup, view.rounds_left
    price = noise_price(setup, view.left)
    able = np.isfinite(price) & ((view.left > 0) & (view.left >= SPENT * setup.budget)).any(axis=-1)
    return Programme(
        price,
        np.zeros(setup.n_clients),
        np.where(able, rounds, 0),
        rounds * setup.cohort_size,
        setup.accountant.exponent,
        None if setup.accountant.exponent else noise_growth(setup, view.left, rounds),
    )


def noise_growth(setup: Setup, left: Floats, rounds: int) -> Growth:
    """How E‖Z_n‖² of a message grows with uses, as the accountant charges them: at 1, 2, 4, … uses and at `rounds`."""
    uses = np.unique([*(2.0 ** np.arange(math.log2(rounds))), float(rounds)])
    shares = (np.full(setup.n_clients, each) for each in uses)
    energy = [noise_energy(setup, setup.accountant.per_use(left, s, setup.epsilon, setup.delta)) for s in shares]
    return Growth.through(uses, np.stack(energy, axis=1))


def dpfl_bcs(
    probe_rounds: int = 10,
    probe: Literal["received", "literal"] = "received",
    probe_share: float = 0.05,
    loss_bound: float | None = None,
    heterogeneity: Literal["shrunk", "paper", "zero"] = "shrunk",
    constants: Literal["schedule", "p2", "given"] = "schedule",
    gamma: float | None = None,
    smoothness: float | None = None,
    strong_convexity: float | None = None,
    solver: Literal["exact", "cvxpy"] = "exact",
) -> Algorithm:
    """DPFL-BCS: biased selection, plain mean."""
    selector = BiasedSelection(
        probe_rounds,
        probe,
        probe_share,
        loss_bound,
        heterogeneity,
        constants,
        gamma,
        smoothness,
        strong_convexity,
        solver,
    )
    return Algorithm("DPFL-BCS", selector, Mean())


@hookimpl
def dpflbench_selectors() -> Factories:
    """Biased selection."""
    return {"bcs": BiasedSelection}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """DPFL-BCS."""
    return {"DPFL-BCS": dpfl_bcs}
