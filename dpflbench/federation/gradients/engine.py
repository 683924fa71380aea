"""Engine: clipped per-sample gradients of many clients, summed by client, in one chunked pass.

All selected clients differentiate at the same theta, so their samples run through the model together; what is personal
(phi, clip bound, sum) follows each sample by its row. Gradients of single samples exist for one chunk at most, and of
Linear layers never: no [samples, D], and memory does not grow with the cohort.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients.affine import InputNorms, as_affine
from dpflbench.federation.gradients.bookkeeping import Bookkeeper, obstacle
from dpflbench.federation.gradients.chunks import MOST, Chunk, as_input, cut, fitting
from dpflbench.federation.gradients.contributions import Book, Rows
from dpflbench.federation.gradients.functional import Functional
from dpflbench.federation.gradients.layout import layout_of, unflatten
from dpflbench.federation.gradients.objective import Objective
from dpflbench.federation.gradients.pooling import replace_pools
from dpflbench.federation.gradients.self_test import rehearse, sample_bytes
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
    """The gradients of one module, built once a run.

    `path` says how: book-keeping where every layer with parameters has a rule and a self-test on made-up samples agrees
    with torch.func, else torch.func and why. It is final after the first call of `clipped_sums`.
    """

    def __init__(
        self,
        module: nn.Module,
        n_classes: int,
        clip_order: Literal[1, 2],
        transform: LocalTransform = IDENTITY,
        phi_dim: int = 0,
        chunk: int | None = None,
    ) -> None:
        check_module(module)
        self.layout = layout_of(module)
        self.clip_order, self.transform, self.phi_dim = clip_order, transform, phi_dim
        self.chunk = chunk or 0  # samples; 0: not known yet
        self._objective = Objective(n_classes)
        self._module = deepcopy(module).requires_grad_(False)
        self._functional = Functional(self._module, self.layout, self._objective, transform, phi_dim)
        self._predictor = Functional(
            replace_pools(deepcopy(self._module)), self.layout, self._objective, transform, phi_dim
        )
        why = "normalisation is personal" if self._functional.local else obstacle(module)
        self._books = None if why else Bookkeeper(module, self.layout)
        self.path = f"torch.func: {why}" if why else "bookkeeping"
        self._affine = as_affine(module, self.layout) if self._books and not phi_dim else None
        self._norms: InputNorms | None = None
        self._sample_bytes: int | None = None
        self._rehearsed = False

    def clipped_sums(
        self,
        theta: Tensor,
        phi: Tensor,
        shards: Shards,
        clients: Ints,
        clip_norm: Tensor | None,
        loss_bound: float | None = None,
    ) -> Sums:
        """Sums of per-sample gradients clipped to clip_norm [K] jointly over (theta, phi); None: not clipped.

        Clipped sums are finite wherever the gradient at the zero sample is, a fact of theta and phi alone. A sample
        whose gradient or its norm overflows counts as 0, and as loss_bound if its loss does: a sum that is not finite
        would tell of that sample, and no noise hides it.
        """
        _check(theta, phi, shards.x, shards.y, *([] if clip_norm is None else [clip_norm]))
        bound = None if clip_norm is None else clip_norm * (1.0 - MARGIN)
        clients = np.asarray(clients, dtype=np.int64)
        self._prepare(theta, shards)
        sums = self._sums(theta, phi, shards, clients, bound, loss_bound)
        if bound is None or _finite(sums):
            return sums
        cohort = _cohort(shards, clients)
        sound = self._sound(theta, phi, cohort)
        x = cohort.x.masked_fill(~sound.view(-1, *[1] * (cohort.x.ndim - 1)), 0)
        tamed = Shards(x, cohort.y.masked_fill(~sound, 0), cohort.offsets)
        return replace(self._sums(theta, phi, tamed, np.arange(len(clients)), bound, None, sound), losses=sums.losses)

    @torch.no_grad()
    def predict(self, theta: Tensor, phi: Tensor | None, x: Tensor) -> Tensor:
        """Outputs [B, outputs] for inputs with a row of phi each; None: phi at the identity."""
        _check(theta, x, *([] if phi is None else [phi]))
        self._predictor.to(theta.device)
        params, size = unflatten(theta, self.layout), self._fitting(x)
        return torch.cat(
            [
                self._predictor.outputs(params, None if phi is None else phi[i : i + size], as_input(x[i : i + size]))
                for i in range(0, max(1, len(x)), size)
            ]
        )

    def losses(self, theta: Tensor, phi: Tensor | None, x: Tensor, y: Tensor) -> Tensor:
        """Loss of each sample [B] at theta, with one phi [P] for all of them; None: phi at the identity."""
        rows = None if phi is None else phi.reshape(1, -1).expand(len(x), -1)
        return self._objective.losses(self.predict(theta, rows, x), y)

    def _prepare(self, theta: Tensor, shards: Shards) -> None:
        """On the first call a self-test and the chunk size; with other data the norms of its inputs."""
        if self._books and not self._rehearsed:
            self._rehearsed = True
            if why := rehearse(self._module, self.layout, self._objective, shards.x):
                self._books = self._affine = None
                self.path = f"torch.func: {why}"
        if not self.chunk:
            self.chunk = MOST if self._affine else self._fitting(shards.x, 0 if self._books else self.layout.dim)
        if self._affine and not (self._norms and self._norms.current(shards, self.clip_order)):
            self._norms = InputNorms(shards, self.clip_order, theta.dtype)

    def _fitting(self, x: Tensor, extra: int = 0) -> int:
        """Samples a chunk of inputs like x, with so many more numbers a sample."""
        if self._sample_bytes is None:
            self._sample_bytes = sample_bytes(self._module, x)
        return fitting(self._sample_bytes + 4 * extra, x.device)

    def _sums(
        self,
        theta: Tensor,
        phi: Tensor,
        shards: Shards,
        clients: Ints,
        bound: Tensor | None,
        loss_bound: float | None,
        sound: Tensor | None = None,
    ) -> Sums:
        """The sums, by the largest chunks that fit the memory; of the sound samples [M] alone, if these are given."""
        while True:
            try:
                return self._pass(theta, phi, shards, clients, bound, loss_bound, sound)
            except torch.OutOfMemoryError:
                if self.chunk == 1:
                    raise
                self.chunk //= 2

    def _pass(
        self,
        theta: Tensor,
        phi: Tensor,
        shards: Shards,
        clients: Ints,
        bound: Tensor | None,
        loss_bound: float | None,
        sound: Tensor | None,
    ) -> Sums:
        dim, order = self.layout.dim, None if bound is None else self.clip_order
        sums = theta.new_zeros(len(clients), dim + self.phi_dim)
        losses = None if loss_bound is None else theta.new_zeros(len(clients), 1)
        known = self._norms.see(clients, self.chunk) if self._norms and order and sound is None else None
        for chunk in self._chunks(theta, shards, clients):
            book = Book(order)  # here, so that the last chunk's is let go of before the next one is filled
            y, out = self._fill(book, chunk, theta, phi, shards, known)
            factor = (
                theta.new_ones(len(y)) if bound is None or book.norm is None else self._factor(book.norm, bound, chunk)
            )
            if sound is not None:
                factor = factor * chunk.gather(sound)
            for entry in book.entries:
                entry.add(sums, chunk, factor)
            if losses is not None:
                loss = self._objective.losses(out, y).nan_to_num_(nan=loss_bound).clamp(0.0, loss_bound)
                Rows(0, loss[:, None], (1,)).add(losses, chunk, torch.ones_like(loss))
        return Sums(sums[:, :dim], sums[:, dim:], None if losses is None else losses[:, 0])

    def _sound(self, theta: Tensor, phi: Tensor, shards: Shards) -> Tensor:
        """Whether the gradient of each sample has a finite norm [M]."""
        sound = torch.ones(len(shards.y), dtype=torch.bool, device=theta.device)
        for chunk in self._chunks(theta, shards, np.arange(len(shards.sizes))):
            book = Book(self.clip_order)
            self._fill(book, chunk, theta, phi, shards, None)
            for piece, (_, span) in zip(chunk.pieces, chunk.spans(), strict=True):
                if book.norm is not None:
                    sound[piece.start : piece.stop] = book.norm[span].isfinite()
        return sound

    def _chunks(self, theta: Tensor, shards: Shards, clients: Ints) -> list[Chunk]:
        """The samples of those clients in chunks, for a model with these parameters."""
        if self._books and not self._affine:
            self._books.load(theta)
        return cut(shards.offsets, clients, self.chunk)

    def _fill(
        self, book: Book, chunk: Chunk, theta: Tensor, phi: Tensor, shards: Shards, known: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Put what a chunk's samples contribute into the book; labels and outputs."""
        y = chunk.gather(shards.y)
        if self._affine:
            out = self._affine.run(book, chunk, shards, theta, y, self._objective, known)
        else:
            out = self._noted(book, theta, chunk.spread(phi), as_input(chunk.gather(shards.x)), y)
        book.close()
        return y, out

    def _noted(self, book: Book, theta: Tensor, phi: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Put what the samples contribute into the book; the model's outputs."""
        if self._books is None:
            self._functional.to(theta.device)
            by_theta, by_phi, out = self._functional.gradients(unflatten(theta, self.layout), phi, x, y)
            book.put([Rows(0, by_theta, (self.layout.dim,)), *self._rows_of_phi(by_phi)])
            return out
        outs: list[Tensor] = []

        def head(out: Tensor) -> Tensor:
            outs.append(out)
            return self._objective.gradient(out, y)

        if not self.phi_dim:
            self._books.run(book, x, None, head)
            return outs[0]
        with torch.enable_grad():
            leaf = phi.detach().requires_grad_()
            by_leaf = self._books.run(book, self.transform.apply(leaf, x), leaf, head)
        book.put(self._rows_of_phi(by_leaf))
        return outs[0]

    def _rows_of_phi(self, by_phi: Tensor | None) -> list[Rows]:
        return [Rows(self.layout.dim, by_phi, (self.phi_dim,))] if by_phi is not None and self.phi_dim else []

    def _factor(self, norm: Tensor, bound: Tensor, chunk: Chunk) -> Tensor:
        """min(1, bound / norm) by sample [B]; 1 where the norm is 0."""
        return chunk.scale_(norm.rsqrt_() if self.clip_order == 2 else norm.reciprocal_(), bound).clamp_(max=1.0)


def _finite(sums: Sums) -> bool:
    """Whether the sums are finite: the only look at a number of the device."""
    total = sums.theta.sum() + sums.phi.sum() if sums.phi.shape[1] else sums.theta.sum()
    return isfinite(total.item())


def _cohort(shards: Shards, clients: Ints) -> Shards:
    """The shards of those clients alone, in their order."""
    rows = torch.as_tensor(
        np.concatenate([np.arange(shards.offsets[n], shards.offsets[n + 1]) for n in clients]), device=shards.x.device
    )
    return Shards(shards.x[rows], shards.y[rows], np.concatenate([[0], np.cumsum(shards.sizes[clients])]))


def _check(first: Tensor, *others: Tensor) -> None:
    for t in others:
        if t.device != first.device:
            raise DpflbenchError(f"engine: tensors on {first.device} and {t.device}; all must be on one device")
