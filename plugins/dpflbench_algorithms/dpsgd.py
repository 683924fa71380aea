"""DPSGD: Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, as client-side mechanism under Gaussian
noise.

Every client honours its own budget: noise std 2 B sqrt(T_n) / (D_n mu(epsilon_n, delta_n)) on the mean clipped
gradient, uniform selection, plain mean. Differs: full local batches and exact Gaussian-DP composition instead of
Poisson minibatches and the moments accountant, so no amplification by sampling is claimed (the setting of Ma et al.,
arXiv 2408.08642). With `federation.local: minibatch` it is DP-FedAvg (dp_fedavg.py) and is called so.
"""

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm
from dpflbench_algorithms.parts import Mean, UniformSelection


def dpsgd() -> Algorithm:
    """DPSGD: uniform selection, Gaussian noise, plain mean."""
    gaussian = frozenset({"gaussian"})
    return Algorithm("DPSGD", UniformSelection(), Mean(), mechanisms=gaussian, local_name="DP-FedAvg")


@hookimpl
def dpflbench_algorithms() -> Factories:
    """DPSGD."""
    return {"DPSGD": dpsgd}
