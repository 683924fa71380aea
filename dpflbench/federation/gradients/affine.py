"""The closed form of models that are one affine map, linear and softmax regression: two products, no autograd.

The norms of a client's inputs never change, so they are taken once, when the client is first selected.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.federation.gradients.chunks import Chunk, as_input
from dpflbench.federation.gradients.contributions import Book, Entry, Outer, Slots, add_outer, finite, outer_norm
from dpflbench.federation.gradients.objective import Objective
from dpflbench.federation.gradients.own import Seats, products
from dpflbench.federation.gradients.summation import limited, row_norm
from dpflbench.interfaces import Ints, Layout
from dpflbench.tasks.task import Shards

GATHERED = 1 << 16  # bytes of inputs: clients with fewer are copied together, others are multiplied where they lie


@dataclass(frozen=True, slots=True, eq=False)
class Outers:
    """The gradients of `Outer` with every client's inputs where they lie: wide rows cost more to gather than to
    multiply.
    """

    slots: Slots
    a: list[Tensor]  # [n, inputs] each, piece by piece
    g: Tensor  # [B, outputs]
    known: Tensor | None  # [B], the norms of the inputs

    def norm(self, order: int) -> Tensor:
        """As of `Outer`."""
        return outer_norm(
            self.slots, self.g, lambda: torch.cat([row_norm(a, order) for a in self.a]), self.known, order
        )

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """gᵀa and Σg of the factor-weighted g, by client."""
        g = self.g * factor.to(self.g.dtype)[:, None]
        for (row, span), a in zip(chunk.spans(), self.a, strict=True):
            add_outer(self.slots, sums[row], g[span], a)

    def part(self, samples: Tensor) -> Entry:
        """Those samples in float64."""
        return Outer(self.slots, torch.cat(self.a), self.g).part(samples)

    def without(self, samples: Tensor) -> Entry:
        """Finite g and a."""
        edges = np.cumsum([0, *map(len, self.a)])
        own = [samples[(samples >= at) & (samples < at + len(a))] - at for at, a in zip(edges, self.a, strict=False)]
        a = [finite(a, rows) for a, rows in zip(self.a, own, strict=True)]
        return replace(self, a=a, g=finite(self.g, samples))


@dataclass(frozen=True, slots=True)
class Affine:
    """Where weight and bias of the only layer lie in theta."""

    outputs: int
    slots: Slots

    def run(
        self,
        book: Book,
        chunk: Chunk,
        shards: Shards,
        theta: Tensor,
        y: Tensor,
        objective: Objective,
        known: Tensor | None,
    ) -> Tensor:
        """Put what the chunk's samples contribute into the book; the outputs [B, outputs]. theta is one for all [D], or
        each client's own [K, D].
        """
        norms = None if known is None else chunk.gather(known)
        as_it_is = chunk.rows is not None or (chunk.joint and shards.x.is_floating_point())
        if as_it_is or shards.x[0].nbytes * len(y) < GATHERED * len(chunk.pieces):
            x = as_input(chunk.gather(shards.x)).flatten(1)
            out = self._outputs(theta, x) if theta.ndim == 1 else self._own_outputs(Seats(chunk, theta), x)
            book.put([Outer(self.slots, x, objective.gradient(out, y), norms)])
        else:
            xs = [as_input(shards.x[p.start : p.stop]).flatten(1) for p in chunk.pieces]
            out = torch.cat([self._outputs(theta, x) for x in xs])
            book.put([Outers(self.slots, xs, objective.gradient(out, y), norms)])
        return out

    def _outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """x Wᵀ + b for x [B, inputs]."""
        start = self.slots["weight"]
        weight = theta[start : start + self.outputs * x.shape[1]].view(self.outputs, x.shape[1])
        if "bias" not in self.slots:
            return x @ weight.T
        return torch.addmm(theta[self.slots["bias"] : self.slots["bias"] + self.outputs], x, weight.T)

    def _own_outputs(self, seats: Seats, x: Tensor) -> Tensor:
        """x Wᵀ + b with each client's own W and b."""
        weight = seats.part(self.slots["weight"], (self.outputs, x.shape[1]))
        bias = seats.part(self.slots["bias"], (self.outputs,)) if "bias" in self.slots else None
        return products(seats.chunk, x, weight, bias)


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
    """Σ|x| or Σx² of the samples of clients seen so far, in float64."""

    def __init__(self, shards: Shards, order: int) -> None:
        self.shards, self.order, self.version = shards, order, shards.x._version
        self.values = shards.x.new_zeros(len(shards.x), dtype=torch.float64)
        self.seen = np.zeros(len(shards.sizes), dtype=bool)

    def current(self, shards: Shards, order: int) -> bool:
        """Whether these are the norms of just those numbers."""
        return shards.x is self.shards.x and shards.x._version == self.version and order == self.order

    def see(self, clients: Ints, size: int) -> Tensor:
        """The norms [M], valid for those clients. Each client's are computed alone: their bits must not depend on who
        came with it.
        """
        seen = self.seen[clients]
        for client in () if seen.all() else clients[~seen].tolist():
            start, end = int(self.shards.offsets[client]), int(self.shards.offsets[client + 1])
            for at in range(start, end, size):
                rows = slice(at, min(at + size, end))
                norms = row_norm(as_input(self.shards.x[rows]).flatten(1).double(), self.order)
                self.values[rows] = limited(norms, self.order)
            self.seen[client] = True
        return self.values
