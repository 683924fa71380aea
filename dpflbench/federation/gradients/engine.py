"""Engine: clipped per-sample gradients of many clients, summed by client, in one chunked pass.

All selected clients differentiate at the same theta, so their samples run through the model together; what is personal (phi, clip
bound, sum) follows each sample by its row. Nothing of size [samples, D] is ever formed, and memory does not grow with the cohort.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients.bookkeeping import Bookkeeper, obstacle
from dpflbench.federation.gradients.chunks import Chunk, as_input, cut, gather
from dpflbench.federation.gradients.functional import Functional
from dpflbench.federation.gradients.layers import Entry, Rows
from dpflbench.federation.gradients.layout import layout_of, unflatten
from dpflbench.interfaces import IDENTITY, Ints, LocalTransform
from dpflbench.tasks.models import check_module
from dpflbench.tasks.task import Shards

MARGIN = 1e-6  # a clipped gradient is this much shorter than its bound: float32 rounding must not lengthen it


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over each client's samples, one row a client."""

    theta: Tensor  # [K, D], clipped gradients
    phi: Tensor  # [K, P], clipped gradients
    losses: Tensor | None  # [K], losses clipped to [0, loss_bound], when a bound is given


class Engine:
    """The gradients of one module, built once a run."""

    def __init__(self, module: nn.Module, n_classes: int, clip_order: Literal[1, 2], transform: LocalTransform = IDENTITY,
                 phi_dim: int = 0, chunk: int | None = None) -> None:
        check_module(module)
        self.layout = layout_of(module)
        self.n_classes, self.clip_order, self.transform, self.phi_dim = n_classes, clip_order, transform, phi_dim
        self.chunk = chunk or 200
        self._module = deepcopy(module).requires_grad_(False)
        self._functional = Functional(self._module, self.layout, self._loss, transform, phi_dim)
        why = "normalisation is personal" if self._functional.local else obstacle(module)
        self._books = None if why else Bookkeeper(module, self.layout, self._loss)
        self.path = f"torch.func: {why}" if why else "bookkeeping"

    def clipped_sums(self, theta: Tensor, phi: Tensor, shards: Shards, clients: Ints, clip_norm: Tensor | None,
                     loss_bound: float | None = None) -> Sums:
        """Sums of per-sample gradients clipped to clip_norm [K] jointly over (theta, phi); None: not clipped."""
        self._check(theta, phi, shards.x, shards.y, *([] if clip_norm is None else [clip_norm]))
        k = len(clients)
        sums = theta.new_zeros(k, self.layout.dim + self.phi_dim)
        losses = None if loss_bound is None else theta.new_zeros(k, 1)
        if self._books:
            self._books.load(theta)
        sizes = shards.offsets[clients + 1] - shards.offsets[clients]
        limit = max(1, min(self.chunk, int(sizes.sum()) or 1))
        for chunk in cut(shards.offsets, clients, limit):
            rows = self._rows(chunk, theta.device)
            x, y = as_input(gather(shards.x, chunk)), gather(shards.y, chunk)
            entries, loss = self._entries(theta, phi[rows], x, y)
            self._add(entries, sums, chunk, None if clip_norm is None else clip_norm[rows])
            if losses is not None:
                Rows(0, loss.clamp(0.0, loss_bound)[:, None]).add(losses, chunk, torch.ones_like(loss))
        dim = self.layout.dim
        return Sums(sums[:, :dim], sums[:, dim:], None if losses is None else losses[:, 0])

    @torch.no_grad()
    def predict(self, theta: Tensor, phi: Tensor | None, x: Tensor) -> Tensor:
        """Outputs [B, outputs] for inputs with a row of phi each; None: phi at the identity."""
        self._check(theta, x, *([] if phi is None else [phi]))
        self._module.to(theta.device)
        params = unflatten(theta, self.layout)
        parts = [self._functional.outputs(params, None if phi is None else phi[i:i + 1000], as_input(x[i:i + 1000]))
                 for i in range(0, len(x), 1000)]
        return torch.cat(parts) if parts else self._functional.outputs(params, phi, as_input(x))

    def losses(self, theta: Tensor, phi: Tensor | None, x: Tensor, y: Tensor) -> Tensor:
        """Loss of each sample [B] at theta, with one phi [P] for all of them; None: phi at the identity."""
        rows = None if phi is None else phi.reshape(1, -1).expand(len(x), -1)
        return self._loss(self.predict(theta, rows, x), y)

    def _loss(self, out: Tensor, y: Tensor) -> Tensor:
        if self.n_classes:
            return nn.functional.cross_entropy(out, y, reduction="none")
        return (out.reshape(len(out)) - y).square()

    def _entries(self, theta: Tensor, phi: Tensor, x: Tensor, y: Tensor) -> tuple[list[Entry], Tensor]:
        if self._books is None:
            self._module.to(theta.device)
            by_theta, by_phi, losses = self._functional.gradients(unflatten(theta, self.layout), phi, x, y)
            return [Rows(0, by_theta), Rows(self.layout.dim, by_phi)], losses
        if not self.phi_dim:
            entries, _, losses = self._books.run(None, x, y)
            return entries, losses
        with torch.enable_grad():
            leaf = phi.detach().requires_grad_()
            entries, by_phi_, losses = self._books.run(leaf, self.transform.apply(leaf, x), y)
        if by_phi_ is None:
            raise DpflbenchError("transform: its output does not depend on phi")
        return [*entries, Rows(self.layout.dim, by_phi_)], losses

    def _add(self, entries: list[Entry], sums: Tensor, chunk: Chunk, bound: Tensor | None) -> None:
        with torch.no_grad():
            if bound is None:
                factor = sums.new_ones(sum(len(p) for p in chunk))
            else:
                norm = torch.stack([e.norm(self.clip_order) for e in entries]).sum(0)
                norm = norm.sqrt() if self.clip_order == 2 else norm
                factor = (bound / norm.mul_(1.0 + MARGIN)).clamp(max=1.0)
            for entry in entries:
                entry.add(sums, chunk, factor)

    def _rows(self, chunk: Chunk, device: torch.device) -> Tensor:
        rows = np.repeat([p.row for p in chunk], [len(p) for p in chunk])
        return torch.from_numpy(rows).to(device)

    def _check(self, first: Tensor, *others: Tensor) -> None:
        devices = {str(t.device) for t in (first, *others)}
        if len(devices) > 1:
            raise DpflbenchError(f"engine: tensors on {', '.join(sorted(devices))}; all must be on one device")
