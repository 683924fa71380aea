"""DP-FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
with the private steps of Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, at every client.

Uniform cohorts, several clipped and noised minibatch steps a client from the received model, the plain mean of where
they went. `FedAvg` is the same without clip and noise, epsilon = infinity: the reference of this frame. DPSGD and
FedSGD, asked for in this frame, are these two and stand in its tables under these names.

Differs:
* Clients weigh equally instead of by size, as every algorithm here does.
* One example is protected, not a client: noise is added at the client at every step, not by the server to the mean.
* Poisson batches, with division by the expected size, instead of a shuffled order: that is what is accounted.
"""

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm
from dpflbench_algorithms.parts import Mean, UniformSelection

GAUSSIAN = frozenset({"gaussian"})


def dp_fedavg() -> Algorithm:
    """DP-FedAvg: several private steps from the received model, plain mean."""
    return Algorithm("DP-FedAvg", UniformSelection(), Mean(), mechanisms=GAUSSIAN, trains=True)


def fedavg(clip: bool = False) -> Algorithm:
    """FedAvg, optionally with clipped gradients."""
    return Algorithm("FedAvg", UniformSelection(), Mean(), private=False, clip=clip, trains=True)


@hookimpl
def dpflbench_algorithms() -> Factories:
    """DP-FedAvg and FedAvg."""
    return {"DP-FedAvg": dp_fedavg, "FedAvg": fedavg}
