"""Entries: the gradients of one chunk's samples by some tensors of theta, in whatever form gives norm and sum cheaply.

The gradient of a Linear layer is an outer product, so its norm factorises, in L1 as in L2, and the sum is one product.
Other layers keep the per-sample gradients of one chunk, which give norm and sum without computing anything twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from dpflbench.federation.gradients.chunks import Chunk
from dpflbench.federation.gradients.summation import SEGMENT, limited, product, row_norm

Slots = dict[str, int]  # a trainable tensor of a layer → where it starts in theta
SMALL = 1024  # numbers a sample: tensors up to that size are treated together


class Entry(Protocol):
    """The gradients of some tensors of theta, one a sample."""

    def norm(self, order: int) -> Tensor:
        """Sum of absolute values (order 1) or of squares (order 2) by sample [B], in float64."""
        ...

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """Add the gradients, times each sample's factor [B], to their clients' rows of sums [K, ...]; float64 both."""
        ...

    def part(self, samples: Tensor) -> "Entry":
        """The gradients of those samples alone, in float64."""
        ...

    def without(self, samples: Tensor) -> "Entry":
        """The entry with 0 where those samples' numbers are not finite, so that a factor of 0 makes them nothing."""
        ...


def finite(values: Tensor, samples: Tensor, axis: int = 0) -> Tensor:
    """The values, with 0 for those samples that are not finite; the same tensor where all are.

    A copy may lie otherwise in memory, and a product of it may then round otherwise: it is made only where it must be.
    """
    sound = values.index_select(axis, samples).isfinite()
    bad = samples[~sound.movedim(axis, 0).flatten(1).all(1)]
    return values.index_fill(axis, bad, 0) if len(bad) else values


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
            total = product(factor[span, None], self.values[..., span, :])
            sums[row, self.start : self.start + prod(self.shape)].add_(self._arranged(total))

    def part(self, samples: Tensor) -> Entry:
        """Those samples in float64."""
        return replace(self, values=self.values.index_select(-2, samples).double())

    def without(self, samples: Tensor) -> Entry:
        """Finite rows."""
        return replace(self, values=finite(self.values, samples, -2))

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
            sums[row].index_add_(0, self.index, product(factor[span, None], self.values[span])[0].double())

    def part(self, samples: Tensor) -> Entry:
        """Those samples in float64."""
        return replace(self, values=self.values[samples].double())

    def without(self, samples: Tensor) -> Entry:
        """Finite rows."""
        return replace(self, values=finite(self.values, samples))


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """Per-sample gradients g ⊗ a of a Linear layer's weight and g of its bias, never formed."""

    slots: Slots
    a: Tensor  # [B, inputs]
    g: Tensor  # [B, outputs]
    known: Tensor | None = None  # [B], the norm of a where it is known already

    def norm(self, order: int) -> Tensor:
        """‖g‖₁·(‖a‖₁ + 1), or ‖g‖²·(‖a‖² + 1), by sample; the 1 is the bias."""
        return outer_norm(self.slots, self.g, lambda: row_norm(self.a, order), self.known, order)

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """gᵀa and Σg of the factor-weighted g, by client."""
        n, outputs, inputs = len(chunk.pieces), self.g.shape[1], self.a.shape[1]
        light = chunk.even if chunk.rows is None else chunk.light(inputs * outputs, self.g.device)
        if not (light and n > 1 and inputs <= SEGMENT):
            g = self.g * factor.to(self.g.dtype)[:, None]
            for row, span in chunk.spans():
                add_outer(self.slots, sums[row], g[span], self.a[span])
            return
        g = chunk.padded(self.g.double() * factor[:, None])
        turned = g.transpose(1, 2) if outputs > 1 else g.view(n, 1, -1)
        if "weight" in self.slots:
            weights = torch.bmm(turned, chunk.padded(self.a.double())).view(n, -1)
            chunk.add(sums[:, self.slots["weight"] : self.slots["weight"] + outputs * inputs], weights)
        if "bias" in self.slots:
            chunk.add(sums[:, self.slots["bias"] : self.slots["bias"] + outputs], turned.sum(2))

    def part(self, samples: Tensor) -> Entry:
        """Those samples in float64."""
        return Outer(self.slots, self.a[samples].double(), self.g[samples].double())

    def without(self, samples: Tensor) -> Entry:
        """Finite g and a."""
        return replace(self, a=finite(self.a, samples), g=finite(self.g, samples))


def outer_norm(slots: Slots, g: Tensor, inner: Callable[[], Tensor], known: Tensor | None, order: int) -> Tensor:
    """The norms of outer products g ⊗ a and of g, from those of a: known and limited, or taken if they are wanted."""
    outer = row_norm(g, order)
    if "weight" not in slots:
        return outer
    norm = limited(inner(), order) if known is None else known
    return torch.addcmul(outer, outer, norm) if "bias" in slots else outer.mul_(norm)


def add_outer(slots: Slots, sums: Tensor, g: Tensor, a: Tensor) -> None:
    """Add gᵀa and Σg of one client's samples to its row of sums."""
    if "weight" in slots:
        start = slots["weight"]
        sums[start : start + g.shape[1] * a.shape[1]].view(g.shape[1], -1).add_(product(g, a))
    if "bias" in slots:
        sums[slots["bias"] : slots["bias"] + g.shape[1]].add_(g.sum(0, dtype=torch.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Scattered:
    """Per-sample gradients of an embedding: every position has its share of its token's total.

    Not its own gradient: positions of one token may cancel, and what cancels must not be rounded at its full size.
    """

    start: int
    shape: tuple[int, int]
    tokens: Tensor  # [B, T]
    shares: Tensor  # [B, T, E], float64
    count: Tensor  # [B, T], positions that share

    def norm(self, order: int) -> Tensor:
        """Each token's total enters once."""
        return (row_norm(self.shares, order) * self.count ** (order - 1)).sum(1)

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """The factor-weighted shares at their tokens, by client."""
        shares = self.shares * factor[:, None, None]
        for row, span in chunk.spans():
            into = sums[row, self.start : self.start + prod(self.shape)].view(self.shape)
            into.index_add_(0, self.tokens[span].reshape(-1), shares[span].flatten(0, 1))

    def part(self, samples: Tensor) -> Entry:
        """Those samples."""
        return replace(self, tokens=self.tokens[samples], shares=self.shares[samples], count=self.count[samples])

    def without(self, samples: Tensor) -> Entry:
        """Finite shares."""
        return replace(self, shares=finite(self.shares, samples))


class Book:
    """The entries of one chunk and the norms of its samples' gradients, taken while the numbers are still in the
    cache.
    """

    def __init__(self, order: int | None) -> None:
        self.order = order  # None: no norms are wanted
        self.entries: list[Entry] = []
        self.norm: Tensor | None = None  # [B], Σ|v| or Σv² so far, float64
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
