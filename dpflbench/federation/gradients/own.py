"""Own parameters: a chunk of several clients runs through the model once, and every sample meets its client's weights.

The gradient by a layer's parameters follows from what went into the layer and the gradient by what came out, without
the parameters themselves: rules and sums stay as they are, and only the way through a layer is another one here.
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpflbench.federation.gradients.chunks import Chunk, on_device
from dpflbench.federation.gradients.contributions import Slots

FEW = 4  # channels, up to which a CPU takes half the time for that


class Seats:
    """Whose parameters the samples of a chunk meet."""

    def __init__(self, chunk: Chunk, theta: Tensor) -> None:
        rows = [p.row for p in chunk.pieces]
        neighbours = rows[-1] - rows[0] == len(rows) - 1
        self.chunk = chunk
        self.own = theta[rows[0] : rows[-1] + 1] if neighbours else theta[on_device(np.array(rows), theta)]

    def parameter(self, layer: nn.Module, name: str, slots: Slots) -> Tensor:
        """Each client's own tensor [n, ...] of a layer; a frozen one is the same for all."""
        tensor: Tensor = getattr(layer, name)
        if name not in slots:
            return tensor.contiguous().expand(len(self.own), *tensor.shape)
        return self.part(slots[name], tuple(tensor.shape))

    def part(self, start: int, shape: tuple[int, ...]) -> Tensor:
        """What lies in theta from there on, client by client [n, ...]."""
        return self.own[:, start : start + prod(shape)].view(-1, *shape)

    def each(self, layer: nn.Module, slots: Slots, x: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Samples, weight and bias, client by client."""
        bias = None if getattr(layer, "bias", None) is None else self.parameter(layer, "bias", slots)
        return each(self.chunk, x, self.parameter(layer, "weight", slots), bias)

    def spread(self, own: Tensor) -> Tensor:
        """Each client's tensor [n, ...] at each of its samples [B, ...]."""
        return own[on_device(np.repeat(np.arange(len(own)), self.chunk.sizes), own)]


def each(
    chunk: Chunk, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Samples, weight and bias, client by client."""
    biases = [None] * len(weight) if bias is None else bias.unbind()
    return zip(torch.split(x, chunk.sizes), weight.unbind(), biases, strict=True)


def products(chunk: Chunk, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b of the samples x [B, ..., inputs] with W and b of their client, [n, ...] each: client by client, or one
    batched product.
    """
    if not chunk.light(x[0].numel() * weight.shape[1], x.device):
        return torch.cat([functional.linear(*own) for own in each(chunk, x, weight, bias)])
    a = chunk.padded(x)
    out = torch.bmm(a.flatten(1, -2), weight.transpose(1, 2))
    if bias is not None:
        out = out + bias[:, None]
    return chunk.packed(out.view(*a.shape[:-1], -1))


def linear(seats: Seats, layer: nn.Linear, slots: Slots, x: Tensor) -> Tensor:
    """Every client's product."""
    bias = None if layer.bias is None else seats.parameter(layer, "bias", slots)
    return products(seats.chunk, x, seats.parameter(layer, "weight", slots), bias)


def conv2d(seats: Seats, layer: nn.Conv2d, slots: Slots, x: Tensor) -> Tensor:
    """Every client's convolution, or one with a group a client."""
    if by_client(x.device):
        if _few(layer):
            out: Tensor = Convolved.apply(x, layer, list(seats.each(layer, slots, x)))  # type: ignore[no-untyped-call]
            return out
        return torch.cat([layer._conv_forward(*own) for own in seats.each(layer, slots, x)])
    a = seats.chunk.padded(x)
    out = functional.conv2d(
        a.transpose(0, 1).flatten(1, 2),
        seats.parameter(layer, "weight", slots).flatten(0, 1),
        None if layer.bias is None else seats.parameter(layer, "bias", slots).flatten(),
        layer.stride,
        layer.padding,
        layer.dilation,
        len(a) * layer.groups,
    )
    return seats.chunk.packed(out.view(len(out), len(a), -1, *out.shape[2:]).transpose(0, 1))


def by_client(device: torch.device) -> bool:
    """Whether convolutions go client by client: a CPU's library is at its slowest with groups of few channels."""
    return device.type == "cpu"


def _few(layer: nn.Conv2d) -> bool:
    """Whether the gradient by what went in is sooner there as a convolution, and can be one."""
    if layer.in_channels > FEW or layer.groups > 1 or layer.stride != (1, 1) or isinstance(layer.padding, str):
        return False
    return all(p <= d * (k - 1) for p, d, k in zip(layer.padding, layer.dilation, layer.kernel_size, strict=True))


class Convolved(torch.autograd.Function):
    """Every client's convolution of its samples, for stride 1, whose gradient is a convolution too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Conv2d, each: list[tuple[Tensor, Tensor, Tensor | None]]) -> Tensor:
        """The maps, client behind client."""
        ctx.layer, ctx.sizes, ctx.weights = layer, [len(part) for part, _, _ in each], [w for _, w, _ in each]
        return torch.cat([layer._conv_forward(*own) for own in each])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        """With the kernels turned around, over maps that are padded by what was not."""
        (ph, pw), (dh, dw), (kh, kw) = ctx.layer.padding, ctx.layer.dilation, ctx.layer.kernel_size
        h, w = dh * (kh - 1) - ph, dw * (kw - 1) - pw
        turned = [weight.flip(2, 3).transpose(0, 1) for weight in ctx.weights]
        parts = [
            functional.conv2d(part, weight, padding=(h, w), dilation=(dh, dw))
            for part, weight in zip(torch.split(g, ctx.sizes), turned, strict=True)
        ]
        return torch.cat(parts), None, None


def layer_norm(seats: Seats, layer: nn.LayerNorm, slots: Slots, x: Tensor) -> Tensor:
    """Normalised, then each sample scaled and shifted by its client's."""
    out = functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    between = [1] * (x.ndim - 1 - len(layer.normalized_shape))
    if layer.weight is not None:
        out = out * seats.spread(seats.parameter(layer, "weight", slots)).view(
            len(x), *between, *layer.normalized_shape
        )
    if layer.bias is not None:
        out = out + seats.spread(seats.parameter(layer, "bias", slots)).view(len(x), *between, *layer.normalized_shape)
    return out


def embedding(seats: Seats, layer: nn.Embedding, slots: Slots, x: Tensor) -> Tensor:
    """Every client's table."""
    return torch.cat([functional.embedding(tokens, table) for tokens, table, _ in seats.each(layer, slots, x)])


WAYS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Linear: linear,
    nn.Conv2d: conv2d,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
}
