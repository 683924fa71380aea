"""What each kind of layer contributes to a chunk's book.

`a` is what went into the layer and `g` the gradient by what came out, [B, ...] each. Which way a layer goes depends on
its shape and the kind of device alone, never on a measurement during the run: the same run gives the same bits. The
rules were drawn from races of unfolding, shifted views, kernel rows and groups on every convolution of the models here
(microseconds a sample, one core, with the plain weight gradient of the whole batch for comparison):

    convolution          plain   unfold   shifts   kernel rows   groups   groups of eight
    1→4, 3×3, 28×28         17       16       15             5       14                55
    1→6, 5×5, 28×28         38       51       52            14       30               105
    4→8, 3×3, 14×14          4       17       20             8       10                 6
    6→16, 5×5, 14×14        11       43       75            19       23                15
    16→16, 3×3, 32×32       72      386      130           110       77                77
    64→64, 3×3, 8×8         65      135      113            85       85                85
"""

from math import prod

import torch
from torch import Tensor, nn

from dpflbench.federation.gradients.contributions import Entry, Outer, Rows, Scattered, Slots


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
    """Weight gradients by `by_kernel_rows` where few channels come in, else by `by_groups`; bias gradients are sums
    over the map.
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

    As fast as the ordinary weight gradient if channels come in eights, as the CPU's vectors want them; so they are
    padded to that.
    """
    b, shape = len(a), tuple(layer.weight.shape)
    o, i = shape[:2]
    if layer.groups == 1 and i > 1 and a.device.type == "cpu":
        o, i = -(-o // 8) * 8, -(-i // 8) * 8
        a = nn.functional.pad(a, (0, 0, 0, 0, 0, i - a.shape[1])) if i > a.shape[1] else a
        g = nn.functional.pad(g, (0, 0, 0, 0, 0, o - g.shape[1])) if o > g.shape[1] else g
    _, rows, _ = torch.ops.aten.convolution_backward(
        g.reshape(1, -1, *g.shape[2:]),
        a.reshape(1, -1, *a.shape[2:]),
        g.new_empty(b * o, i, *shape[2:]),
        None,
        layer.stride,
        padding,
        layer.dilation,
        False,
        [0, 0],
        b * layer.groups,
        [False, True, False],
    )
    padded = (1, o, i, shape[2] * shape[3]) if (o, i) != shape[:2] else None
    return Rows(start, rows.view(b, -1), shape, padded)


def by_kernel_rows(layer: nn.Conv2d, start: int, a: Tensor, g: Tensor, padding: tuple[int, int]) -> Rows:
    """One batched product a kernel row, for stride 1.

    Copies of the map shifted by each kernel column, row behind row, make what a kernel row sees one strided matrix:
    kernel-width copies and kernel-height products in place of the unfolded map.
    """
    b, (o, i, kh, kw) = len(a), layer.weight.shape
    (ph, pw), (dh, dw), (height, width) = padding, layer.dilation, g.shape[2:]
    if ph or pw:
        a = nn.functional.pad(a, (pw, pw, ph, ph))
    shifted = a.unfold(3, width, 1)[:, :, :, ::dw][:, :, :, :kw].permute(0, 1, 3, 2, 4).contiguous().view(b, i * kw, -1)
    g = g.reshape(b, o, height * width)
    rows = a.new_empty(kh, b, o, i * kw)
    for k in range(kh):
        seen = shifted[:, :, k * dh * width : (k * dh + height) * width]
        torch.bmm(g, seen.transpose(1, 2), out=rows[k])
    return Rows(start, rows.view(kh, b, -1), (o, i, kh, kw), (kh, o, i, kw))


def layer_norm(layer: nn.LayerNorm, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Σ over positions of g times the normalised input, and of g."""
    entries: list[Entry] = []
    shape = tuple(layer.normalized_shape)
    if "weight" in slots:
        normal = nn.functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
        entries.append(Rows(slots["weight"], (g * normal).reshape(len(g), -1, prod(shape)).sum(1), shape))
    if "bias" in slots:
        entries.append(Rows(slots["bias"], g.reshape(len(g), -1, prod(shape)).sum(1), shape))
    return entries


def embedding(layer: nn.Embedding, slots: Slots, a: Tensor, g: Tensor) -> list[Entry]:
    """Each position's share of its token's total; a padding token has no gradient."""
    a, g = a.reshape(len(a), -1), g.reshape(len(g), -1, g.shape[-1]).double()
    if layer.padding_idx is not None:
        g = g * (a != layer.padding_idx)[:, :, None]
    same = (a[:, :, None] == a[:, None, :]).double()
    count = same.sum(2)
    shares = torch.bmm(same, g) / count[:, :, None]
    return [Scattered(slots["weight"], (layer.num_embeddings, layer.embedding_dim), a, shares, count)]
