"""DMLDP: Wu, Farokhi, Smith, Kaafar, "The Value of Collaboration in Convex Machine Learning with Differential Privacy",
S&P 2020.

Clients answer with their mean gradient and Laplace noise of scale 2 B T_n / (D_n epsilon_n), clipped in L1; uniform
selection, mean. Differs: cohorts of K instead of all owners every round, equal weights instead of n_i / n, no
projection on a compact set (the setting of Ma et al., arXiv 2408.08642).
"""

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm
from dpflbench_algorithms.parts import Mean, UniformSelection


def dmldp() -> Algorithm:
    """DMLDP: uniform selection, Laplace noise, plain mean."""
    return Algorithm("DMLDP", UniformSelection(), Mean(), mechanisms=frozenset({"laplace"}))


@hookimpl
def dpflbench_algorithms() -> Factories:
    """DMLDP."""
    return {"DMLDP": dmldp}
