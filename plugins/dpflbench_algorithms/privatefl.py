"""PRIVATEFL: Yang, Hui, Yuan, Gong, Cao, "PrivateFL: Accurate, Differentially Private Federated Learning via
Personalized Data Transformation", USENIX Security 2023.

Each client keeps an affine map of its inputs in front of the shared model and trains it together with the model.

| paper | here |
|---|---|
| φ_n = (γ_n, β_n) | a row of `phi` |
| γ_n | one number a channel (images), one number (features); starts at 1 |
| β_n | one number a pixel and channel (images), one a feature; starts at 0 |

The gradient by (theta, phi) is clipped jointly and noised as a whole; phi steps with the run's learning rate and never
leaves its client. It must be trained from the noised gradient although it is not sent: it shapes every later gradient
of its client. Differs: one full-batch step a participation instead of a local epoch; the budget and accounting of every
other algorithm instead of the program's own; exact participation counts. `norm_local: true` also keeps normalisation
layers local, as the program does through the names of its parameters. Which phi the paper evaluates on the common test
set is not said: records hold phi = identity, the mean over clients' phi, and each client on its own held-out shard.
What to expect: the noise of a strict client walks its phi away from the identity until its gradients no longer fit the
shared model. Where all budgets are generous PRIVATEFL gains; among very unequal ones it can fall below the plain
algorithm. `frozen: true` leaves phi out altogether: DPSGD or DMLDP to the bit, for ablations and tests.
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Layout
from dpflbench_algorithms.parts import Mean, UniformSelection


@dataclass(frozen=True, slots=True)
class PersonalAffine:
    """x ↦ gamma x + beta; phi = [gamma | beta | shifts of normalisation tensors]."""

    norm_local: bool = False
    frozen: bool = False

    def init(self, n_clients: int, input_shape: tuple[int, ...], layout: Layout, rng: torch.Generator) -> Tensor:
        """Return phi [N, P] at the identity: gamma 1, beta 0, shifts 0; P = 0 if frozen."""
        if self.frozen:
            return torch.zeros(n_clients, 0)
        tail = sum(t.stop - t.start for t in layout.tensors if t.norm) if self.norm_local else 0
        gammas = _gammas(input_shape)
        return torch.cat([torch.ones(n_clients, gammas), torch.zeros(n_clients, prod(input_shape) + tail)], 1)

    def apply(self, phi: Tensor, x: Tensor) -> Tensor:
        """Return gamma x + beta, row by row; phi may carry further columns."""
        if not phi.shape[1]:
            return x
        shape = tuple(x.shape[1:])
        gammas = _gammas(shape)
        gamma = phi[:, :gammas].reshape(-1, gammas, *[1] * (len(shape) - 1))
        beta = phi[:, gammas : gammas + prod(shape)].reshape(-1, *shape)
        return gamma * x + beta


def _gammas(shape: tuple[int, ...]) -> int:
    """Numbers in gamma: the channels of an image [C, H, W], one for features [F]."""
    if len(shape) not in (1, 3):
        raise DpflbenchError(
            f"personal_affine: inputs have shape {list(shape)}; allowed: features [F] or images [C, H, W]"
        )
    return shape[0] if len(shape) == 3 else 1


def privatefl(norm_local: bool = False, frozen: bool = False) -> Algorithm:
    """PRIVATEFL: uniform selection, plain mean, a personal affine transform."""
    return Algorithm("PRIVATEFL", UniformSelection(), Mean(), PersonalAffine(norm_local, frozen))


@hookimpl
def dpflbench_transforms() -> Factories:
    """The personal affine transform."""
    return {"personal_affine": PersonalAffine}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """PRIVATEFL."""
    return {"PRIVATEFL": privatefl}
