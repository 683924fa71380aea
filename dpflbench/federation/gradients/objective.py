"""Objective: the loss of one sample, cross-entropy for classes and squared error for regression, and its derivative."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

VECTOR = 16  # float32 numbers


@dataclass(frozen=True, slots=True)
class Objective:
    """The per-sample loss of a task."""

    n_classes: int  # 0 for regression

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        """-log softmax(f(x))[y], or (y - f(x))², by sample [B]."""
        if self.n_classes:
            return functional.cross_entropy(out, y, reduction="none")
        return (out.reshape(len(out)) - y).square()

    def gradient(self, out: Tensor, y: Tensor) -> Tensor:
        """The derivative of each loss by the outputs [B, outputs]: softmax minus one-hot, or 2 (f(x) - y)."""
        if self.n_classes:
            return _softmax(out).scatter_add_(1, y[:, None], out.new_full((1, 1), -1.0).expand(len(y), 1))
        return torch.sub(out, y.view_as(out)).mul_(2.0)


def _softmax(out: Tensor) -> Tensor:
    """Softmax of each row; rows shorter than a vector of the processor take torch's own several times as long."""
    if out.shape[1] >= VECTOR or out.device.type != "cpu":
        return out.softmax(1)
    powers = (out - out.amax(1, keepdim=True)).exp_()
    return powers.div_(powers.sum(1, keepdim=True))
