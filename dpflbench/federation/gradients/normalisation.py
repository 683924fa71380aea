"""GroupNorm whose backward pass notes the gradients by its weight and bias, sample by sample.

The library adds those up over the batch. Seen as one sample with B times as many channels and groups, the batch has a
weight and a bias of its own for every sample, and the same call returns them with the gradient by x.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Note = Callable[[Tensor, Tensor], None]  # takes the gradients by weight and bias [B, C]


class GroupNorm(torch.autograd.Function):
    """GroupNorm of x [B, C, ...] with weight and bias [C], or [B, C], and a note of the gradients by them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: nn.GroupNorm, note: Note) -> Tensor:
        """The normalised x; its means and deviations are kept."""
        x, groups = x.contiguous(), layer.num_groups
        b, c = x.shape[:2]
        size = x.numel() // (b * c)
        if weight.ndim == 1:
            out, mean, rstd = torch.native_group_norm(x, weight, bias, b, c, size, groups, layer.eps)
        else:
            bias = None if bias is None else bias.flatten()
            out, mean, rstd = torch.native_group_norm(
                x.view(1, b * c, size), weight.flatten(), bias, 1, b * c, size, b * groups, layer.eps
            )
        ctx.save_for_backward(x, mean, rstd, weight)
        ctx.layer, ctx.note = layer, note
        return out.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        """The gradient by x."""
        x, mean, rstd, weight = ctx.saved_tensors
        b, c = x.shape[:2]
        n, groups, size = b * c, b * ctx.layer.num_groups, x.numel() // (b * c)
        by_x, by_weight, by_bias = torch.ops.aten.native_group_norm_backward(
            g.contiguous().view(1, n, size),
            x.view(1, n, size),
            mean.view(1, groups),
            rstd.view(1, groups),
            weight.expand(b, c).reshape(n),
            1,
            n,
            size,
            groups,
            [ctx.needs_input_grad[0], True, True],
        )
        ctx.note(by_weight.view(b, c), by_bias.view(b, c))
        return None if by_x is None else by_x.view_as(x), None, None, None, None
