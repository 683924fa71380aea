"""FedSGD: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.

The reference without privacy: uniform cohorts, one full-batch gradient a client, the plain mean; no clip, no noise,
epsilon = infinity. Differs: clients weigh equally instead of by size, as every private algorithm here does. `clip:
true` keeps the clip bound and leaves out only the noise, which separates the bias of clipping from the cost of noise.
"""

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm
from dpflbench_algorithms.parts import Mean, UniformSelection


def fedsgd(clip: bool = False) -> Algorithm:
    """FedSGD, optionally with clipped gradients."""
    return Algorithm("FedSGD", UniformSelection(), Mean(), private=False, clip=clip, local_name="FedAvg")


@hookimpl
def dpflbench_algorithms() -> Factories:
    """FedSGD."""
    return {"FedSGD": fedsgd}
