"""Chunks: how the samples of a cohort are cut into pieces that fit the cache or the memory, deterministically."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from dpflbench.interfaces import Ints

CACHE = 8 << 20  # bytes of inputs and activations a chunk may have on a CPU; flat between 4 and 16 MB where it was measured
LEAST, MOST = 32, 1 << 14  # samples: below, calls cost more than arithmetic; above, nothing is gained


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows start to stop of the shards, all of one client."""

    row: int  # of the client in the cohort
    start: int
    stop: int


class Chunk:
    """Samples that run through the model together."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        # of one size, for neighbouring rows: one batched product serves all
        self.even = all(b.row == a.row + 1 and b.stop - b.start == a.stop - a.start for a, b in pairwise(pieces))

    def spans(self) -> Iterator[tuple[int, slice]]:
        """Client row and samples inside the chunk, piece by piece."""
        at = 0
        for p in self.pieces:
            yield p.row, slice(at, at + p.stop - p.start)
            at += p.stop - p.start

    def gather(self, x: Tensor) -> Tensor:
        """The chunk's part of the shards; a view where its pieces are neighbours."""
        if all(a.stop == b.start for a, b in pairwise(self.pieces)):
            return x[self.pieces[0].start:self.pieces[-1].stop]
        return torch.cat([x[p.start:p.stop] for p in self.pieces])

    def spread(self, values: Tensor) -> Tensor:
        """Each client's row [K, ...] at each of its samples [B, ...]."""
        n, p = len(self.pieces), self.pieces[0]
        if self.even:
            each = values[p.row:p.row + n].unsqueeze(1).expand(n, p.stop - p.start, *values.shape[1:])
            return each.flatten(0, 1)
        rows = np.repeat([p.row for p in self.pieces], [p.stop - p.start for p in self.pieces])
        return values[torch.from_numpy(rows).to(values.device, non_blocking=True)]


def cut(offsets: Ints, clients: Ints, size: int) -> list[Chunk]:
    """The clients' samples in chunks of at most `size`.

    A client with more samples is cut evenly into chunks of its own; smaller ones are packed together. Every chunk of a large client
    then has one owner, and its sum is a plain product.
    """
    chunks: list[Chunk] = []
    small: list[Piece] = []
    filled = 0
    for row, client in enumerate(clients):
        start, stop = int(offsets[client]), int(offsets[client + 1])
        if stop - start > size:
            n = -(-(stop - start) // size)
            edges = [start + (stop - start) * i // n for i in range(n + 1)]
            chunks += [Chunk([Piece(row, a, b)]) for a, b in pairwise(edges)]
        elif stop > start:
            if filled + stop - start > size:
                chunks.append(Chunk(small))
                small, filled = [], 0
            small.append(Piece(row, start, stop))
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
        return max(LEAST, min(MOST, CACHE // sample_bytes))
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return max(LEAST, min(MOST, free // 2 // (4 * sample_bytes)))  # 4: activations, their gradients, and workspace
    return max(LEAST, min(MOST, (1 << 30) // sample_bytes))
