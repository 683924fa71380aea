"""Readings of Ma et al., "The Power of Bias" (arXiv 2408.08642), that are NOT private as claimed, or not an equal
comparison; for asking which of them is consistent with its printed figures, and for nothing else.

Every run priced by an accountant of this package is called "not private as claimed" by `dpflbench verify`, `dpflbench
audit` and every table, and is never ranked. Readings that merely add more noise than needed (the smallest epsilon for
everybody, `uniform_minimum` of dpflbench itself; a linear split; composition over all rounds, both `split` here) are
private: what they are not is an equal comparison.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from dpflbench import hookimpl
from dpflbench.draws import LAPLACE, Law
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import PLAIN, Algorithm, Floats, LocalRule, Mechanism, Plan, PlanView, Selector
from dpflbench_algorithms.accountants import GaussianDP
from dpflbench_algorithms.parts import Mean, UniformSelection
from dpflbench_as_printed.prices import ForcedNorm, GaussianAsPrinted, PureAsPrinted
from dpflbench_as_printed.steps import Epoch, HalfStep, KeptMomentum, Remembers


@dataclass(frozen=True)
class LaplaceL2(Mechanism):
    """Laplace noise on samples clipped in L2."""

    name: ClassVar[str] = "laplace_l2"
    law: ClassVar[Law] = LAPLACE
    clip_order: ClassVar[Literal[1, 2]] = 2
    accountant: ClassVar[str] = "as_printed_pure"

    def variance(self, scale: Floats) -> Floats:
        """Return 2 scale²."""
        return 2.0 * np.square(scale)


@dataclass(frozen=True, slots=True)
class BudgetSplit:
    """A selector's plan with less for each use: a budget split over all rounds instead of a client's uses, or by
    Algorithm 2's linear split. Private, with more noise than needed.
    """

    of: Selector
    over: Literal["uses", "rounds"] = "rounds"
    composition: Literal["exact", "linear"] = "exact"
    examples: ClassVar[tuple[dict[str, object], ...]] = ({"of": UniformSelection()},)

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return the plan with its costs."""
        setup, plan = view.setup, self.of.plan(view, rng)
        accountant = setup.accountant
        if self.composition == "linear" and isinstance(accountant, GaussianDP):
            accountant = replace(accountant, composition="linear")
        if self.over == "rounds":  # at most that many uses in all, so a share of the whole budget always fits
            times, left = np.full(setup.n_clients, float(setup.rounds)), setup.budget
        else:
            times, left = plan.uses.astype(np.float64), view.left
        return replace(plan, cost=accountant.per_use(left, times, setup.epsilon, setup.delta))


def noise_free(clip: bool = True, rule: LocalRule | None = None) -> Algorithm:
    """Uniform selection and a plain mean without noise, clipped or not: what a reading could reach at best."""
    return Algorithm("Noise-free", UniformSelection(), Mean(), rule=rule or PLAIN, private=False, clip=clip)


@hookimpl
def dpflbench_mechanisms() -> Factories:
    """Laplace noise on samples clipped in L2."""
    return {"laplace_l2": LaplaceL2}


@hookimpl
def dpflbench_accountants() -> Factories:
    """Prices as claimed."""
    return {"as_printed_gdp": GaussianAsPrinted, "as_printed_pure": PureAsPrinted, "forced_norm": ForcedNorm}


@hookimpl
def dpflbench_local_updates() -> Factories:
    """What clients compute in a reading."""
    return {"half_step": HalfStep, "kept_momentum": KeptMomentum, "epoch": Epoch}


@hookimpl
def dpflbench_local_rules() -> Factories:
    """A place for a momentum."""
    return {"remembers": Remembers}


@hookimpl
def dpflbench_selectors() -> Factories:
    """Other splits of a budget."""
    return {"split": BudgetSplit}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """The plain mean without noise."""
    return {"Noise-free": noise_free}
