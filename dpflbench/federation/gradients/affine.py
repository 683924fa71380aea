"""The closed form of models that are one affine map, linear and softmax regression: two products, no autograd.

The norms of a client's inputs never change, so they are taken once, when the client is first selected.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.federation.gradients.chunks import as_input
from dpflbench.federation.gradients.entries import Slots, row_norm
from dpflbench.interfaces import Ints, Layout
from dpflbench.tasks.task import Shards


@dataclass(frozen=True, slots=True)
class Affine:
    """Where weight and bias of the only layer lie in theta."""

    outputs: int
    slots: Slots

    def outputs_of(self, theta: Tensor, x: Tensor) -> Tensor:
        """x Wᵀ + b for x [B, inputs]."""
        start = self.slots["weight"]
        weight = theta[start:start + self.outputs * x.shape[1]].view(self.outputs, x.shape[1])
        if "bias" not in self.slots:
            return x @ weight.T
        return torch.addmm(theta[self.slots["bias"]:self.slots["bias"] + self.outputs], x, weight.T)


def as_affine(module: nn.Module, layout: Layout) -> Affine | None:
    """The module as one affine map of its flattened input; None if it is not that or has frozen parameters."""
    parts = list(module) if type(module) is nn.Sequential else [module]
    if len(parts) == 2 and type(parts[0]) is nn.Flatten and (parts[0].start_dim, parts[0].end_dim) == (1, -1):
        parts = parts[1:]
    if len(parts) != 1 or type(parts[0]) is not nn.Linear or len(layout.tensors) != len(list(module.parameters())):
        return None
    slots = {t.name.rpartition(".")[2]: t.start for t in layout.tensors}
    return Affine(parts[0].out_features, slots)


class InputNorms:
    """Σ|x| or Σx² of the samples of clients seen so far."""

    def __init__(self, shards: Shards, order: int, dtype: torch.dtype) -> None:
        self.shards, self.order, self.version = shards, order, shards.x._version
        self.values = shards.x.new_zeros(len(shards.x), dtype=dtype)
        self.seen = np.zeros(len(shards.sizes), dtype=bool)

    def current(self, shards: Shards, order: int) -> bool:
        """Whether these are the norms of just those numbers."""
        return shards.x is self.shards.x and shards.x._version == self.version and order == self.order

    def see(self, clients: Ints, size: int) -> Tensor:
        """The norms [M], valid for those clients. Each client's are computed alone: their bits must not depend on who came with it."""
        for client in clients[~self.seen[clients]].tolist():
            start, end = int(self.shards.offsets[client]), int(self.shards.offsets[client + 1])
            for at in range(start, end, size):
                rows = slice(at, min(at + size, end))
                self.values[rows] = row_norm(as_input(self.shards.x[rows]).flatten(1), self.order)
            self.seen[client] = True
        return self.values
