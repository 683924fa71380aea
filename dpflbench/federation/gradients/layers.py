"""What each kind of layer contributes: the norm of every sample's gradient, and the clipped sum by client.

`a` is what went into the layer and `g` the gradient by what came out, [B, ...] each. A Linear layer's gradient is the outer product
of the two, so its norm factorises, in L1 as in L2, and the sum is one product. Other layers form their own small per-sample
gradients, one layer and one chunk at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dpflbench.federation.gradients.chunks import Chunk


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Per-sample gradients [B, d] of one tensor."""

    start: int
    values: Tensor

    def norm(self, order: int) -> Tensor:
        """Sum of absolute values or squares by sample [B]."""
        return self.values.abs().sum(1) if order == 1 else torch.linalg.vecdot(self.values, self.values)

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """Add factor-weighted rows to each client's sum."""
        at = 0
        for piece in chunk:
            n = len(piece)
            into = sums[piece.row, self.start:self.start + self.values.shape[1]]
            into.addmv_(self.values[at:at + n].T, factor[at:at + n])
            at += n


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """Per-sample gradients g ⊗ a of a Linear layer's weight, never formed."""

    start: int
    a: Tensor  # [B, inputs]
    g: Tensor  # [B, outputs]

    def norm(self, order: int) -> Tensor:
        """‖g‖₁·‖a‖₁, or ‖g‖²·‖a‖², by sample [B]."""
        if order == 1:
            return self.a.abs().sum(1) * self.g.abs().sum(1)
        norm: Tensor = torch.linalg.vecdot(self.a, self.a) * torch.linalg.vecdot(self.g, self.g)
        return norm

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """Add the factor-weighted products to each client's sum."""
        weighted = self.g * factor[:, None]
        shape, at = (self.g.shape[1], self.a.shape[1]), 0
        for piece in chunk:
            n = len(piece)
            into = sums[piece.row, self.start:self.start + shape[0] * shape[1]].view(shape)
            into.addmm_(weighted[at:at + n].T, self.a[at:at + n])
            at += n


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
        by_position = total.abs().sum(2) if order == 1 else total.square().sum(2)
        return (by_position / same.sum(2)).sum(1)

    def add(self, sums: Tensor, chunk: Chunk, factor: Tensor) -> None:
        """Add the factor-weighted rows at their tokens."""
        weighted, at = self.g * factor[:, None, None], 0
        for piece in chunk:
            n = len(piece)
            into = sums[piece.row, self.start:self.start + self.shape[0] * self.shape[1]].view(self.shape)
            into.index_add_(0, self.a[at:at + n].reshape(-1), weighted[at:at + n].flatten(0, 1))
            at += n


Entry = Rows | Outer | Scattered
Slots = dict[str, int]  # a trainable tensor of the layer → where it starts in theta


def linear(layer: nn.Linear, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Outer product; with more than one position a sample, the product over positions."""
    entries: list[Entry] = []
    a, g = a.reshape(len(a), -1, a.shape[-1]), g.reshape(len(g), -1, g.shape[-1])
    if "weight" in slots:
        one = a.shape[1] == 1
        entries.append(Outer(slots["weight"], a[:, 0], g[:, 0]) if one
                       else Rows(slots["weight"], torch.bmm(g.transpose(1, 2), a).flatten(1)))
    if "bias" in slots:
        entries.append(Rows(slots["bias"], g.sum(1)))
    return entries


def conv2d(layer: nn.Conv2d, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """One grouped convolution backward with a group a sample: the gradients of all samples in a single call."""
    entries: list[Entry] = []
    if "weight" in slots:
        b, shape = len(a), layer.weight.shape
        if isinstance(layer.padding, str):
            a, padding = nn.functional.pad(a, layer._reversed_padding_repeated_twice), [0, 0]
        else:
            padding = list(layer.padding)
        _, rows, _ = torch.ops.aten.convolution_backward(
            g.reshape(1, -1, *g.shape[2:]), a.reshape(1, -1, *a.shape[2:]), g.new_empty(b * shape[0], *shape[1:]), None,
            layer.stride, padding, layer.dilation, False, [0, 0], b * layer.groups, [False, True, False])
        entries.append(Rows(slots["weight"], rows.view(b, -1)))
    if "bias" in slots:
        entries.append(Rows(slots["bias"], g.flatten(2).sum(2)))
    return entries


def group_norm(layer: nn.GroupNorm, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Σ over positions of g times the normalised input, and of g."""
    entries: list[Entry] = []
    g = g.flatten(2)
    if "weight" in slots:
        normal = nn.functional.group_norm(a, layer.num_groups, eps=layer.eps).flatten(2)
        entries.append(Rows(slots["weight"], (g * normal).sum(2)))
    if "bias" in slots:
        entries.append(Rows(slots["bias"], g.sum(2)))
    return entries


def layer_norm(layer: nn.LayerNorm, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Σ over positions of g times the normalised input, and of g."""
    entries: list[Entry] = []
    size = layer.weight.numel()
    if "weight" in slots:
        normal = nn.functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
        entries.append(Rows(slots["weight"], (g * normal).reshape(len(g), -1, size).sum(1)))
    if "bias" in slots:
        entries.append(Rows(slots["bias"], g.reshape(len(g), -1, size).sum(1)))
    return entries


def embedding(layer: nn.Embedding, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Rows at the tokens; a padding token has no gradient."""
    a, g = a.reshape(len(a), -1), g.reshape(len(g), -1, g.shape[-1])
    if layer.padding_idx is not None:
        g = g * (a != layer.padding_idx)[:, :, None]
    return [Scattered(slots["weight"], (layer.num_embeddings, layer.embedding_dim), a, g)]


Rule = Callable[..., list[Entry]]
RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear, nn.Conv2d: conv2d, nn.GroupNorm: group_norm, nn.LayerNorm: layer_norm, nn.Embedding: embedding,
}


def unsupported(layer: nn.Module) -> str:
    """Why a layer has no rule; empty if it has one. Subclasses may compute something else, so only the exact types count."""
    kind = type(layer).__name__
    if type(layer) not in RULES:
        return kind
    if isinstance(layer, nn.Conv2d) and layer.padding_mode != "zeros":
        return f"{kind} with {layer.padding_mode} padding"
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
        return f"{kind} with max_norm, scale_grad_by_freq or sparse"
    return ""
