"""Objective: the loss of one sample, cross-entropy for classes and squared error for regression, and its derivative."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


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
            return out.softmax(1).scatter_add_(1, y[:, None], out.new_full((1, 1), -1.0).expand(len(y), 1))
        return torch.sub(out, y.view_as(out)).mul_(2.0)
