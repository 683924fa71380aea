"""Engine: clipped per-sample gradients of many clients, summed by client, in one chunked pass.

In a full step all selected clients differentiate at the same theta, so their samples run through the model together;
what is personal (phi, clip bound, sum) follows each sample by its row. After a local step every client has a theta of
its own: samples still run together, and only layers with parameters treat clients apart (`own.py`). Gradients of single
samples exist for one chunk at most, and of Linear layers never: no [samples, D], and memory does not grow with the
cohort.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients import rowwise
from dpflbench.federation.gradients.affine import Affine, InputNorms, as_affine
from dpflbench.federation.gradients.bookkeeping import Bookkeeper, obstacle
from dpflbench.federation.gradients.chunks import MOST, Chunk, as_input, cut, fitting, keep_heap
from dpflbench.federation.gradients.contributions import Book, Entry, Rows
from dpflbench.federation.gradients.extremes import set_aside
from dpflbench.federation.gradients.functional import Functional, transformed
from dpflbench.federation.gradients.lanes import chosen, install
from dpflbench.federation.gradients.layout import layout_of, unflatten
from dpflbench.federation.gradients.objective import Objective
from dpflbench.federation.gradients.self_test import (
    check_apart,
    check_transform_apart,
    rehearse,
    rehearse_native,
    sample_bytes,
)
from dpflbench.federation.gradients.summation import LARGEST, MARGIN, SMALLEST, bounded, within
from dpflbench.interfaces import IDENTITY, Ints, LocalTransform
from dpflbench.tasks.models import check_module
from dpflbench.tasks.task import Shards


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over each client's samples, one row a client, in float64: divided by the client's size they keep their bound
    if division and noise are float64 too.
    """

    theta: Tensor  # [K, D], clipped gradients
    phi: Tensor  # [K, P], clipped gradients
    losses: Tensor | None  # [K], losses clipped to [0, loss_bound], when a bound is given


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What is asked of one pass."""

    theta: Tensor  # [D], or each client's own [K, D]
    phi: Tensor  # [K, P]
    shards: Shards
    offsets: Ints  # where each client's samples lie, in the shards or in rows
    clients: Ints  # [K], into offsets
    rows: Tensor | None  # the samples chosen; None: all
    bound: Tensor | None  # [K]
    loss_bound: float | None = None


class Engine:
    """The gradients of one module, built once a run.

    `path` says how: book-keeping where samples are proved to be apart, every layer with parameters has a rule and a
    self-test on made-up samples agrees with autograd; else torch.func, one sample at a time, and why. It is final after
    `settle`, which the first call of anything here does by itself.
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
        keep_heap()
        self.layout = layout_of(module)
        self.clip_order, self.transform, self.phi_dim = clip_order, transform, phi_dim
        self.chunk = chunk or 0  # samples; 0: not known yet
        self._native = chosen() != "torch"
        self._objective = Objective(n_classes)
        self._module = deepcopy(module).requires_grad_(False)
        self._functional = Functional(self._module, self.layout, self._objective, transform, phi_dim)
        why = "normalisation is personal" if self._functional.local else obstacle(module)
        self.path = f"torch.func: {why}" if why else "bookkeeping"
        self._books: Bookkeeper | None = None
        self._affine: Affine | None = None
        self._norms: InputNorms | None = None
        self._sample_bytes: int | None = None
        self._settled = False

    @property
    def module(self) -> nn.Module:
        """Its own copy of the module: where a stranger's code would keep what it saw."""
        return self._module

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

        Sums are float64 and keep their bound after rounding: `summation.py` has the proof. Clipped sums are finite,
        whatever the samples: one whose gradient is not counts as 0, and as loss_bound if its loss is not a number. A
        sum that is not finite would tell of that sample, and no noise hides it.
        """
        _check(theta, phi, shards.x, shards.y, *([] if clip_norm is None else [clip_norm]))
        clients = np.asarray(clients, dtype=np.int64)
        _check_sizes(shards.offsets[clients + 1] - shards.offsets[clients])
        self._prepare(shards)
        return self._kept(Call(theta, phi, shards, shards.offsets, clients, None, _shortened(clip_norm), loss_bound))

    def batch_sums(
        self, theta: Tensor, phi: Tensor, shards: Shards, rows: Tensor, counts: Ints, clip_norm: Tensor | None
    ) -> Sums:
        """Sums as of `clipped_sums`, each client's at its own model theta [K, D] and over chosen samples alone.

        rows [M] are positions in the shards, grouped by client in the cohort's order, counts [K] how many each has: a
        client without any gets zeros. Nothing here knows whose samples they are; a sample chosen twice counts twice.
        """
        _check(theta, phi, shards.x, shards.y, rows, *([] if clip_norm is None else [clip_norm]))
        counts = np.asarray(counts, dtype=np.int64)
        if theta.ndim != 2 or len(theta) != len(counts) or len(rows) != int(counts.sum()):
            raise DpflbenchError(
                f"engine: models {tuple(theta.shape)} and {len(rows)} rows for {len(counts)} clients with "
                f"{int(counts.sum())}; each client needs a model and each row a client"
            )
        _check_sizes(counts)
        self._prepare(shards)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return self._kept(Call(theta, phi, shards, offsets, np.arange(len(counts)), rows, _shortened(clip_norm)))

    @torch.no_grad()
    def predict(self, theta: Tensor, phi: Tensor | None, x: Tensor) -> Tensor:
        """Outputs [B, outputs] for inputs with a row of phi each; None: phi at the identity."""
        _check(theta, x, *([] if phi is None else [phi]))
        self.settle(x)
        self._functional.to(theta.device)
        params, size = unflatten(theta, self.layout), self._fitting(x)
        return torch.cat(
            [
                self._functional.outputs(params, None if phi is None else phi[i : i + size], as_input(x[i : i + size]))
                for i in range(0, max(1, len(x)), size)
            ]
        )

    def losses(self, theta: Tensor, phi: Tensor | None, x: Tensor, y: Tensor) -> Tensor:
        """Loss of each sample [B] at theta, with one phi [P] for all of them; None: phi at the identity."""
        rows = None if phi is None else phi.reshape(1, -1).expand(len(x), -1)
        return self._objective.losses(self.predict(theta, rows, x), y)

    def settle(self, like: Tensor) -> None:
        """Decide once how samples like these [B, ...] go through the model; refuse a model or transform in which they
        cannot be kept apart.
        """
        if self._settled:
            return
        like = as_input(like[:1])
        straight, unproved = rowwise.straight(self._module, like)
        if straight is None:
            check_apart(self._functional, like, unproved)
        if self.phi_dim:
            check_transform_apart(self.transform, self.phi_dim, like)
        self._functional.straight = straight
        if self.path == "bookkeeping":
            why = unproved or rehearse(straight or self._module, self.layout, self._objective, like)
            if why:
                self.path = f"torch.func: {why}"
            elif straight is not None:
                if self._native and (why := rehearse_native(straight, self.layout, self._objective, like)):
                    raise DpflbenchError(f"kernels: native: {why}; run with --kernels torch, and tell us")
                self._books = Bookkeeper(straight, self.layout, self._native)
                self._affine = None if self.phi_dim else as_affine(self._module, self.layout)
        if straight is not None and self._native:
            install(straight)
        self._settled = True

    def _prepare(self, shards: Shards) -> None:
        """On the first call the way and the chunk size; with other data the norms of its inputs."""
        self.settle(shards.x)
        if not self.chunk:
            self.chunk = MOST if self._affine else self._fitting(shards.x, 0 if self._books else self.layout.dim)
        if self._affine and not (self._norms and self._norms.current(shards, self.clip_order)):
            self._norms = InputNorms(shards, self.clip_order)

    def _fitting(self, x: Tensor, extra: int = 0) -> int:
        """Samples a chunk of inputs like x, with so many more numbers a sample."""
        if self._sample_bytes is None:
            self._sample_bytes = sample_bytes(self._module, x)
        return fitting(self._sample_bytes + 4 * extra, x.device)

    def _kept(self, call: Call) -> Sums:
        """The sums, after a second and careful pass where a norm is none that float32 can clip."""
        sums, largest = self._sums(call, False)
        if largest is None or call.bound is None:
            return sums
        lowest = call.bound.amin() / (1.0 - MARGIN)
        if _holds(within(largest, self.clip_order) & (lowest >= SMALLEST)):  # one look for both
            return sums
        if not float(lowest) >= SMALLEST:
            raise DpflbenchError(f"engine: clip_norm {float(lowest):.2g}; sums keep their bound from {SMALLEST:.2g} on")
        return self._sums(call, True)[0]

    def _sums(self, call: Call, careful: bool) -> tuple[Sums, Tensor | None]:
        """The sums and the largest norm, if there is any, by the largest chunks that fit the memory."""
        while True:
            try:
                return self._pass(call, careful)
            except torch.OutOfMemoryError:
                if self.chunk == 1:
                    raise
                self.chunk //= 2

    def _pass(self, call: Call, careful: bool) -> tuple[Sums, Tensor | None]:
        theta, bound, loss_bound, k = call.theta, call.bound, call.loss_bound, len(call.clients)
        dim, order = self.layout.dim, None if bound is None else self.clip_order
        sums = theta.new_zeros(k, dim + self.phi_dim, dtype=torch.float64)
        losses = None if loss_bound is None else theta.new_zeros(k, 1, dtype=torch.float64)
        known = self._norms.see(call.clients, self.chunk) if self._norms and order and call.rows is None else None
        largest: Tensor | None = None
        for chunk in self._chunks(call):
            book = Book(order)  # here, so that the last chunk's is let go of before the next one is filled
            y, out = self._fill(book, chunk, call, known)
            if careful and (aside := set_aside(book, chunk, self.clip_order)):
                self._add(sums, *aside, bound)
            if book.norm is not None:
                most = book.norm.amax()  # not a number if any is not
                largest = most if largest is None else torch.maximum(largest, most)
            self._add(sums, book.entries, chunk, book.norm, bound)
            if losses is not None and loss_bound is not None:
                loss = bounded(self._objective.losses(out, y), loss_bound)
                Rows(0, loss[:, None], (1,)).add(losses, chunk, torch.ones_like(loss))
        return Sums(sums[:, :dim], sums[:, dim:], None if losses is None else losses[:, 0]), largest

    def _chunks(self, call: Call) -> list[Chunk]:
        """The samples in chunks, for a model with these parameters; with own models torch.func treats one client at a
        time.
        """
        chunks = cut(call.offsets, call.clients, self.chunk, call.rows)
        if call.theta.ndim == 1 and self._books and not self._affine:
            self._books.load(call.theta)
        if call.theta.ndim == 1 or self._books:
            return chunks
        return [Chunk([piece], call.rows) for chunk in chunks for piece in chunk.pieces]

    def _fill(self, book: Book, chunk: Chunk, call: Call, known: Tensor | None) -> tuple[Tensor, Tensor]:
        """Put what a chunk's samples contribute into the book; labels and outputs."""
        theta, shards, y = call.theta, call.shards, chunk.gather(call.shards.y)
        if self._affine:
            out = self._affine.run(book, chunk, shards, theta, y, self._objective, known)
        else:
            if theta.ndim == 2:
                theta = self._seated(theta, chunk)
            out = self._noted(book, theta, chunk.spread(call.phi), as_input(chunk.gather(shards.x)), y)
        book.close()
        return y, out

    def _seated(self, theta: Tensor, chunk: Chunk) -> Tensor:
        """The chunk's first client's model; book-keeping is told of the others'."""
        first = theta[chunk.pieces[0].row]
        if self._books and len(chunk.pieces) > 1:
            self._books.seat(theta, chunk)
        elif self._books:
            self._books.load(first)
        return first

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
            by_leaf = self._books.run(book, transformed(self.transform, leaf, x), leaf, head)
        book.put(self._rows_of_phi(by_leaf))
        return outs[0]

    def _rows_of_phi(self, by_phi: Tensor | None) -> list[Rows]:
        return [Rows(self.layout.dim, by_phi, (self.phi_dim,))] if by_phi is not None and self.phi_dim else []

    def _add(self, sums: Tensor, entries: list[Entry], chunk: Chunk, norm: Tensor | None, bound: Tensor | None) -> None:
        """Add the entries, times min(1, bound / norm) by sample; 1 where the norm is 0 or nothing is clipped."""
        if norm is None or bound is None:
            factor = sums.new_ones(chunk.size)
        else:
            inverse = norm.rsqrt_() if self.clip_order == 2 else norm.reciprocal_()
            factor = chunk.scale_(inverse, bound).clamp_(max=1.0)
        for entry in entries:
            entry.add(sums, chunk, factor)


def _shortened(clip_norm: Tensor | None) -> Tensor | None:
    """The bounds a margin below the clip norms."""
    return None if clip_norm is None else clip_norm.double() * (1.0 - MARGIN)


def _holds(fact: Tensor) -> bool:
    """The only look at a number of the device, unless something is extreme."""
    return bool(fact)


def _check_sizes(sizes: Ints) -> None:
    """Refuse what the proof of `summation.py` does not cover."""
    if len(sizes) and int(sizes.max()) > LARGEST:
        raise DpflbenchError(f"engine: a client with {int(sizes.max())} samples; sums keep their bound up to {LARGEST}")


def _check(first: Tensor, *others: Tensor) -> None:
    for t in others:
        if t.device != first.device:
            raise DpflbenchError(f"engine: tensors on {first.device} and {t.device}; all must be on one device")
