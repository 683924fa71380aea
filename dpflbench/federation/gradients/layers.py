"""What each kind of layer contributes: the norm of every sample's gradient, and the clipped sum by client.

`a` is what went into the layer and `g` the gradient by what came out, [B, ...] each. A Linear layer's gradient is the outer product
of the two, so its norm factorises, in L1 as in L2, and the sum is one product. Other layers form the per-sample gradients of one
chunk, which give norm and sum without computing anything twice.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from dpflbench.federation.gradients.chunks import Chunk

Slots = dict[str, int]  # a trainable tensor of the layer → where it starts in theta


class Entry(Protocol):
    """The gradients of some tensors of theta, one a sample, in whatever form is cheap."""

    def norm(self, order: int) -> Tensor:
        """Sum of absolute values (order 1) or of squares (order 2) by sample [B]."""
        ...

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor | None) -> None:
        """Add the gradients, times each sample's factor [B], to their clients' rows of sums [K, ...]."""
        ...


def row_norm(rows: Tensor, order: int) -> Tensor:
    """Sum of absolute values or of squares over the last axis, by the fastest of torch's ways."""
    if order == 2:
        norms: Tensor = torch.linalg.vector_norm(rows, dim=-1)
        return norms.square_()
    return rows.abs() @ rows.new_ones(rows.shape[-1])


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Per-sample gradients of one tensor, [B, d]; or [S, B, d] when its kernel rows come separately.

    `kernel` (S, outputs, inputs, rest) is the shape in which a convolution's sum comes, to be turned into the weight's (outputs,
    inputs, S, rest); channels beyond the weight's own are padding.
    """

    start: int
    values: Tensor
    shape: tuple[int, ...]  # of the tensor
    kernel: tuple[int, ...] | None = None

    def norm(self, order: int) -> Tensor:
        """Σ|v| or Σv² by sample; padding is 0."""
        norms = row_norm(self.values, order)
        return norms if norms.ndim == 1 else norms.sum(0)

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor | None) -> None:
        """factor @ values, by client."""
        if factor is None:
            factor = self.values.new_ones(self.values.shape[-2])
        for row, span in chunk.spans():
            total = torch.matmul(factor[None, span], self.values[..., span, :])
            stop = self.start + _numel(self.shape)
            sums[row, self.start:stop] += self._arranged(total)

    def _arranged(self, total: Tensor) -> Tensor:
        if self.kernel is None:
            return total.view(-1)
        s, o, i, rest = self.kernel
        weight = total.view(s, o, i, rest).permute(1, 2, 0, 3)
        return weight[:self.shape[0], :self.shape[1]].reshape(-1)


def _numel(shape: tuple[int, ...]) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """Per-sample gradients g ⊗ a of a Linear layer's weight and g of its bias, never formed."""

    slots: Slots
    a: Tensor  # [B, inputs]
    g: Tensor  # [B, outputs]

    def norm(self, order: int) -> Tensor:
        """‖g‖₁·(‖a‖₁ + 1), or ‖g‖²·(‖a‖² + 1), by sample; the 1 is the bias."""
        inner = row_norm(self.a, order) if "weight" in self.slots else self.a.new_zeros(len(self.a))
        if "bias" in self.slots:
            inner += 1.0
        return inner.mul_(row_norm(self.g, order))

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor | None) -> None:
        """gᵀa and Σg of the factor-weighted g, by client."""
        g = self.g if factor is None else self.g * factor[:, None]
        if chunk.even and len(chunk.pieces) > 1:
            n, first = len(chunk.pieces), chunk.pieces[0].row
            self._into(sums[first:first + n], g.view(n, -1, g.shape[1]), self.a.reshape(n, -1, self.a.shape[1]))
            return
        for row, span in chunk.spans():
            self._into(sums[row:row + 1], g[None, span], self.a[None, span])

    def _into(self, sums: Tensor, g: Tensor, a: Tensor) -> None:
        if "weight" in self.slots:
            start, size = self.slots["weight"], g.shape[2] * a.shape[2]
            sums[:, start:start + size] += torch.bmm(g.transpose(1, 2), a).flatten(1)
        if "bias" in self.slots:
            start = self.slots["bias"]
            sums[:, start:start + g.shape[2]] += g.sum(1)


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

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor | None) -> None:
        """The factor-weighted rows at their tokens, by client."""
        g = self.g if factor is None else self.g * factor[:, None, None]
        for row, span in chunk.spans():
            into = sums[row, self.start:self.start + self.shape[0] * self.shape[1]].view(self.shape)
            into.index_add_(0, self.a[span].reshape(-1), g[span].flatten(0, 1))


def linear(layer: nn.Linear, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Outer product; with several positions a sample, the product over positions."""
    if a.ndim == 2:
        return [Outer(slots, a, g)]
    a, g = a.flatten(1, -2), g.flatten(1, -2)
    entries: list[Entry] = []
    if "weight" in slots:
        entries.append(Rows(slots["weight"], torch.bmm(g.transpose(1, 2), a).flatten(1), tuple(layer.weight.shape)))
    if "bias" in slots:
        entries.append(Rows(slots["bias"], g.sum(1), tuple(layer.bias.shape)))
    return entries


def conv2d(layer: nn.Conv2d, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Weight gradients by `by_kernel_rows` where few channels come in, else by `by_groups`; bias gradients are sums over the map.

    Which way depends on the layer's shape and the kind of device alone, so that the same run gives the same bits.
    """
    entries: list[Entry] = []
    if "weight" in slots:
        if isinstance(layer.padding, str):
            a, padding = nn.functional.pad(a, layer._reversed_padding_repeated_twice), (0, 0)
        else:
            padding = (layer.padding[0], layer.padding[1])
        few = layer.in_channels <= 3 and layer.groups == 1 and layer.stride == (1, 1) and layer.kernel_size[1] > 1
        way = by_kernel_rows if few and a.device.type == "cpu" else by_groups
        entries.append(way(layer, slots["weight"], a, g, padding))
    if "bias" in slots:
        entries.append(Rows(slots["bias"], g.flatten(2).sum(2), (g.shape[1],)))
    return entries


def by_groups(layer: nn.Conv2d, start: int, a: Tensor, g: Tensor, padding: tuple[int, int]) -> Rows:
    """One grouped convolution backward with a group a sample: all samples' gradients in a single call of the library.

    As fast as the ordinary weight gradient if channels come in eights, as the CPU's vectors want them; so they are padded to that.
    """
    b, shape = len(a), tuple(layer.weight.shape)
    o, i = shape[:2]
    if layer.groups == 1 and i > 1 and a.device.type == "cpu":
        o, i = -(-o // 8) * 8, -(-i // 8) * 8
        a = nn.functional.pad(a, (0, 0, 0, 0, 0, i - a.shape[1])) if i > a.shape[1] else a
        g = nn.functional.pad(g, (0, 0, 0, 0, 0, o - g.shape[1])) if o > g.shape[1] else g
    _, rows, _ = torch.ops.aten.convolution_backward(
        g.reshape(1, -1, *g.shape[2:]), a.reshape(1, -1, *a.shape[2:]), g.new_empty(b * o, i, *shape[2:]), None,
        layer.stride, padding, layer.dilation, False, [0, 0], b * layer.groups, [False, True, False])
    padded = (1, o, i, shape[2] * shape[3]) if (o, i) != shape[:2] else None
    return Rows(start, rows.view(b, -1), shape, padded)


def by_kernel_rows(layer: nn.Conv2d, start: int, a: Tensor, g: Tensor, padding: tuple[int, int]) -> Rows:
    """One batched product a kernel row, for stride 1.

    Copies of the map shifted by each kernel column, row behind row, make what a kernel row sees one strided matrix: kernel-width
    copies and kernel-height products in place of the unfolded map.
    """
    b, (o, i, kh, kw) = len(a), layer.weight.shape
    (ph, pw), (dh, dw), (height, width) = padding, layer.dilation, g.shape[2:]
    if ph or pw:
        a = nn.functional.pad(a, (pw, pw, ph, ph))
    shifted = a.unfold(3, width, 1)[:, :, :, ::dw][:, :, :, :kw].permute(0, 1, 3, 2, 4).contiguous().view(b, i * kw, -1)
    g = g.reshape(b, o, height * width)
    rows = a.new_empty(kh, b, o, i * kw)
    for k in range(kh):
        seen = shifted[:, :, k * dh * width:(k * dh + height) * width]
        torch.bmm(g, seen.transpose(1, 2), out=rows[k])
    return Rows(start, rows.view(kh, b, -1), (o, i, kh, kw), (kh, o, i, kw))


def layer_norm(layer: nn.LayerNorm, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Σ over positions of g times the normalised input, and of g."""
    entries: list[Entry] = []
    shape = tuple(layer.normalized_shape)
    if "weight" in slots:
        normal = nn.functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
        entries.append(Rows(slots["weight"], (g * normal).reshape(len(g), -1, _numel(shape)).sum(1), shape))
    if "bias" in slots:
        entries.append(Rows(slots["bias"], g.reshape(len(g), -1, _numel(shape)).sum(1), shape))
    return entries


def embedding(layer: nn.Embedding, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Rows at the tokens; a padding token has no gradient."""
    a, g = a.reshape(len(a), -1), g.reshape(len(g), -1, g.shape[-1])
    if layer.padding_idx is not None:
        g = g * (a != layer.padding_idx)[:, :, None]
    return [Scattered(slots["weight"], (layer.num_embeddings, layer.embedding_dim), a, g)]
