"""Parts that several papers share: the two mechanisms, uniform selection, the plain mean, and what `dpflbench.tasks`
has: data sets, features, partitions, budgets and models.
"""

from dataclasses import dataclass

import numpy as np

from dpflbench import hookimpl
from dpflbench.federation.schedule import even_uses
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Cohort, Identity, Plain, Plan, PlanView
from dpflbench_algorithms.accountants import GaussianDP, PureDP
from dpflbench_algorithms.mechanisms import Gaussian, Laplace
from dpflbench_algorithms.sampled_accountants import LossDistribution, Renyi


@dataclass(frozen=True, slots=True)
class UniformSelection:
    """Everybody takes part equally often: K T / N uses each, a remainder by lot; by coins, all at one rate."""

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return equal uses for all rounds left."""
        horizon, setup = view.rounds_left, view.setup
        if setup.cohorts == "poisson":
            return Plan(np.full(setup.n_clients, horizon * setup.cohort_size / setup.n_clients), horizon)
        return Plan(even_uses(view.setup.n_clients, horizon * view.setup.cohort_size, rng), horizon)


@dataclass(frozen=True, slots=True)
class Mean:
    """The plain mean of the updates."""

    def weights(self, cohort: Cohort) -> None:
        """Return None: all count alike."""


@hookimpl
def dpflbench_mechanisms() -> Factories:
    """Gaussian and Laplace noise."""
    return {"gaussian": Gaussian, "laplace": Laplace}


@hookimpl
def dpflbench_accountants() -> Factories:
    """Gaussian DP and pure DP, and two for samples of a client's records."""
    return {"gdp": GaussianDP, "pure": PureDP, "rdp": Renyi, "pld": LossDistribution}


@hookimpl
def dpflbench_local_updates() -> Factories:
    """The local updates of `dpflbench.federation`."""
    from dpflbench.federation.local import LOCAL_UPDATES

    return LOCAL_UPDATES


@hookimpl
def dpflbench_local_rules() -> Factories:
    """Plain steps."""
    return {"plain": Plain}


@hookimpl
def dpflbench_selectors() -> Factories:
    """Uniform selection."""
    return {"uniform": UniformSelection}


@hookimpl
def dpflbench_aggregators() -> Factories:
    """The mean."""
    return {"mean": Mean}


@hookimpl
def dpflbench_transforms() -> Factories:
    """No transform."""
    return {"identity": Identity}


@hookimpl
def dpflbench_datasets() -> Factories:
    """The data sets of `dpflbench.tasks`."""
    from dpflbench.tasks.datasets import DATASETS

    return DATASETS


@hookimpl
def dpflbench_features() -> Factories:
    """The features of `dpflbench.tasks`."""
    from dpflbench.tasks.features import FEATURES
    from dpflbench.tasks.histograms import GradientHistograms

    return {**FEATURES, "hog": GradientHistograms}


@hookimpl
def dpflbench_partitions() -> Factories:
    """The partitions of `dpflbench.tasks`."""
    from dpflbench.tasks.partition import PARTITIONS

    return PARTITIONS


@hookimpl
def dpflbench_budgets() -> Factories:
    """The distributions of `dpflbench.tasks`."""
    from dpflbench.tasks.population import DISTRIBUTIONS

    return DISTRIBUTIONS


@hookimpl
def dpflbench_models() -> Factories:
    """The models of `dpflbench.tasks`."""
    from dpflbench.tasks.models import MODELS

    return MODELS
