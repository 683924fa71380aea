"""Entries: the gradients of one chunk's samples by some tensors of theta, in whatever form gives norm and sum cheaply.

The gradient of a Linear layer is an outer product, so its norm factorises, in L1 as in L2, and the sum is one product.
Other layers keep the per-sample gradients of one chunk, which give norm and sum without computing anything twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from dpflbench.federation.gradients.chunks import Chunk

Slots = dict[str, int]  # a trainable tensor of a layer → where it starts in theta
SMALL = 1024  # numbers a sample: tensors up to that size are treated together


class Entry(Protocol):
    """The gradients of some tensors of theta, one a sample."""

    def norm(self, order: int) -> Tensor:
        """Sum of absolute values (order 1) or of squares (order 2) by sample [B]."""
        ...

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """Add the gradients, times each sample's factor [B], to their clients' rows of sums [K, ...]."""
        ...


def row_norm(rows: Tensor, order: int) -> Tensor:
    """Sum of absolute values or of squares over the last axis, by the fastest of torch's ways for rows of that
    length.
    """
    if rows.shape[-1] == 1:
        return rows[..., 0].abs() if order == 1 else rows[..., 0].square()
    if order == 2 and rows.shape[-1] > 32:
        norms: Tensor = torch.linalg.vector_norm(rows, dim=-1)
        return norms.square_()
    return (rows.abs() if order == 1 else rows * rows) @ rows.new_ones(rows.shape[-1])


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Per-sample gradients [B, d] of one tensor; or [S, B, d] where the rows of a convolution's kernel come separately.

    `kernel` (S, outputs, inputs, rest) is the shape in which a convolution's sum comes, to be turned into the weight's
    (outputs, inputs, S, rest); channels beyond the weight's own are padding and 0.
    """

    start: int
    values: Tensor
    shape: tuple[int, ...]  # of the tensor
    kernel: tuple[int, ...] | None = None

    def norm(self, order: int) -> Tensor:
        """Σ|v| or Σv² by sample."""
        norms = row_norm(self.values, order)
        return norms if norms.ndim == 1 else norms.sum(0)

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """factor @ values, by client."""
        for row, span in chunk.spans():
            total = torch.matmul(factor[None, span], self.values[..., span, :])
            sums[row, self.start : self.start + prod(self.shape)].add_(self._arranged(total))

    def _arranged(self, total: Tensor) -> Tensor:
        if self.kernel is None:
            return total.view(-1)
        s, o, i, rest = self.kernel
        weight = total.view(s, o, i, rest).permute(1, 2, 0, 3)
        return weight[: self.shape[0], : self.shape[1]].reshape(-1)


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Per-sample gradients of several small tensors side by side [B, d]."""

    index: Tensor  # [d], where each number belongs in theta
    values: Tensor

    def norm(self, order: int) -> Tensor:
        """Σ|v| or Σv² by sample."""
        return row_norm(self.values, order)

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """factor @ values, by client."""
        for row, span in chunk.spans():
            sums[row].index_add_(0, self.index, factor[span] @ self.values[span])


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """Per-sample gradients g ⊗ a of a Linear layer's weight and g of its bias, never formed."""

    slots: Slots
    a: Tensor  # [B, inputs]
    g: Tensor  # [B, outputs]
    known: Tensor | None = None  # [B], the norm of a where it is known already

    def norm(self, order: int) -> Tensor:
        """‖g‖₁·(‖a‖₁ + 1), or ‖g‖²·(‖a‖² + 1), by sample; the 1 is the bias."""
        outer = row_norm(self.g, order)
        if "weight" not in self.slots:
            return outer
        inner = row_norm(self.a, order) if self.known is None else self.known
        return torch.addcmul(outer, outer, inner) if "bias" in self.slots else outer.mul_(inner)

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """gᵀa and Σg of the factor-weighted g, by client."""
        g, n = self.g * factor[:, None], len(chunk.pieces)
        if chunk.even and n > 1:
            first = chunk.pieces[0].row
            self._into(sums[first : first + n], g.view(n, -1, g.shape[1]), self.a.reshape(n, -1, self.a.shape[1]))
            return
        for row, span in chunk.spans():
            self._into(sums[row : row + 1], g[None, span], self.a[None, span])

    def _into(self, sums: Tensor, g: Tensor, a: Tensor) -> None:
        outputs = g.shape[2]
        turned = g.transpose(1, 2) if outputs > 1 else g.view(len(g), 1, -1)  # the same numbers; a plain view is faster
        if "weight" in self.slots:
            start, size = self.slots["weight"], outputs * a.shape[2]
            sums[:, start : start + size].add_(torch.bmm(turned, a).view(len(g), size))
        if "bias" in self.slots:
            start = self.slots["bias"]
            sums[:, start : start + outputs].add_(g.sum(1) if outputs > 1 else turned.sum(2))


@dataclass(frozen=True, slots=True, eq=False)
class Scattered:
    """Per-sample gradients of an embedding: rows g of the tokens a, equal tokens added up."""

    start: int
    shape: tuple[int, int]
    a: Tensor  # [B, T]
    g: Tensor  # [B, T, E]

    def norm(self, order: int) -> Tensor:
        """Each token's total gradient enters once, though every position of that token carries it."""
        same = (self.a[:, :, None] == self.a[:, None, :]).to(self.g.dtype)
        total = torch.bmm(same, self.g)
        return (row_norm(total, order) / same.sum(2)).sum(1)

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """The factor-weighted rows at their tokens, by client."""
        g = self.g * factor[:, None, None]
        for row, span in chunk.spans():
            into = sums[row, self.start : self.start + prod(self.shape)].view(self.shape)
            into.index_add_(0, self.a[span].reshape(-1), g[span].flatten(0, 1))


class Book:
    """The entries of one chunk and the norms of its samples' gradients, taken while the numbers are still in the
    cache.
    """

    def __init__(self, order: int | None) -> None:
        self.order = order  # None: no norms are wanted
        self.entries: list[Entry] = []
        self.norm: Tensor | None = None  # [B], Σ|v| or Σv² so far
        self._small: list[Rows] = []

    def put(self, entries: Sequence[Entry]) -> None:
        """Note what a layer contributes."""
        for entry in entries:
            if isinstance(entry, Rows) and entry.kernel is None and entry.values.shape[-1] <= SMALL:
                self._small.append(entry)
            else:
                self._keep(entry)

    def close(self) -> None:
        """Join the small entries: their number of calls would cost more than their arithmetic."""
        if self._small:
            spans = tuple((r.start, r.start + r.values.shape[1]) for r in self._small)
            values = torch.cat([r.values for r in self._small], 1) if len(self._small) > 1 else self._small[0].values
            self._keep(Joined(_index(spans, str(values.device)), values))

    def _keep(self, entry: Entry) -> None:
        self.entries.append(entry)
        if self.order is not None:
            norm = entry.norm(self.order)
            self.norm = norm if self.norm is None else self.norm.add_(norm)


@lru_cache(maxsize=64)
def _index(spans: tuple[tuple[int, int], ...], device: str) -> Tensor:
    return torch.cat([torch.arange(a, b, device=device) for a, b in spans])
