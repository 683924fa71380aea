"""Chunks: how the samples of a cohort are cut into pieces that fit the cache or the memory, deterministically."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpflbench.interfaces import Ints

CACHE = 24 << 20  # bytes of inputs and activations a chunk may have on a CPU
ROOM = 512 << 20  # bytes of the same that a chunk may not exceed, however few samples that are
LEAST, MOST = 32, 1 << 14  # samples: below, calls cost more than arithmetic; above, nothing is gained


class Piece(NamedTuple):
    """Rows start to stop of the shards, all of one client."""

    row: int  # of the client in the cohort
    start: int
    stop: int


class Chunk:
    """Samples that run through the model together."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        row, start, stop = pieces[0]
        size, at = stop - start, start
        self.even = self.joint = True  # of one size and for neighbouring rows; neighbours in the shards
        for p in pieces:
            self.even = self.even and p[0] == row and p[2] - p[1] == size
            self.joint = self.joint and p[1] == at
            row, at = row + 1, p[2]

    @property
    def size(self) -> int:
        """Samples in the chunk."""
        return sum(p.stop - p.start for p in self.pieces)

    def spans(self) -> Iterator[tuple[int, slice]]:
        """Client row and samples inside the chunk, piece by piece."""
        at = 0
        for p in self.pieces:
            yield p.row, slice(at, at + p.stop - p.start)
            at += p.stop - p.start

    def gather(self, x: Tensor) -> Tensor:
        """The chunk's part of the shards; a view where its pieces are neighbours."""
        if self.joint:
            return x[self.pieces[0].start : self.pieces[-1].stop]
        if x.ndim == 1 and x.device.type == "cpu":  # labels and norms: NumPy slices cheaply
            flat = x.numpy()
            return torch.from_numpy(np.concatenate([flat[p.start : p.stop] for p in self.pieces]))
        return torch.cat([x[p.start : p.stop] for p in self.pieces])

    def spread(self, values: Tensor) -> Tensor:
        """Each client's row [K, ...] at each of its samples [B, ...]."""
        n, (row, start, stop) = len(self.pieces), self.pieces[0]
        if self.even:
            return values[row : row + n].unsqueeze(1).expand(n, stop - start, *values.shape[1:]).flatten(0, 1)
        rows = np.repeat([p.row for p in self.pieces], [p.stop - p.start for p in self.pieces])
        return values[torch.from_numpy(rows).to(values.device, non_blocking=True)]

    def only(self, samples: list[int]) -> "Chunk":
        """The chunk of those samples alone, each a piece of its own."""
        owners = np.repeat([p.row for p in self.pieces], [p.stop - p.start for p in self.pieces])
        return Chunk([Piece(int(owners[i]), i, i + 1) for i in samples])

    def scale_(self, values: Tensor, by: Tensor) -> Tensor:
        """Multiply the samples' values [B] by their clients' [K], in place."""
        n, row = len(self.pieces), self.pieces[0].row
        if self.even:
            values.view(n, -1).mul_(by[row : row + n, None])
            return values
        return values.mul_(self.spread(by))


def cut(offsets: Ints, clients: Ints, size: int) -> list[Chunk]:
    """The clients' samples in chunks of at most `size`.

    A client with more samples is cut evenly into chunks of its own; smaller ones are packed together. Every chunk of a
    large client then has one owner, and its sum is a plain product.
    """
    starts, stops = offsets[clients].tolist(), offsets[clients + 1].tolist()
    pieces = [p for p in map(Piece, range(len(starts)), starts, stops) if p[2] > p[1]]
    if sum(stops) - sum(starts) <= size:
        return [Chunk(pieces)] if pieces else []
    chunks: list[Chunk] = []
    small: list[Piece] = []
    filled = 0
    for piece in pieces:
        row, start, stop = piece
        if stop - start > size:
            n = -(-(stop - start) // size)
            edges = [start + (stop - start) * i // n for i in range(n + 1)]
            chunks += [Chunk([Piece(row, a, b)]) for a, b in pairwise(edges)]
            continue
        if filled + stop - start > size:
            chunks.append(Chunk(small))
            small, filled = [], 0
        small.append(piece)
        filled += stop - start
    return [*chunks, Chunk(small)] if small else chunks


def as_input(x: Tensor) -> Tensor:
    """What a module sees: byte images are scaled to [0, 1], everything else is as it is."""
    return x.float().div_(255.0) if x.dtype == torch.uint8 else x


def fitting(sample_bytes: int, device: torch.device) -> int:
    """Samples a chunk: what the cache holds on a CPU, what half the free memory holds elsewhere.

    On a CPU it depends on nothing but the model, so that the same run gives the same bits.
    """
    if device.type == "cpu":
        return max(1, min(max(LEAST, CACHE // sample_bytes), ROOM // sample_bytes, MOST))
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return max(LEAST, min(MOST, free // 2 // (4 * sample_bytes)))  # 4: activations, their gradients, and workspace
    return max(LEAST, min(MOST, (1 << 30) // sample_bytes))
