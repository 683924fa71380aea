"""Chunks: how the samples of a cohort are cut into pieces that fit the cache or the memory, deterministically."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from dpflbench.interfaces import Ints


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows start to stop of the shards, all of one client."""

    row: int  # of the client in the cohort
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


Chunk = Sequence[Piece]


def cut(offsets: Ints, clients: Ints, size: int) -> list[list[Piece]]:
    """Pieces of at most `size` samples in all, a list a chunk.

    A client with more samples is cut evenly into chunks of its own; smaller ones are packed together. Every chunk of a large client
    then has one owner and its sum is a plain product.
    """
    chunks: list[list[Piece]] = []
    small: list[Piece] = []
    filled = 0
    for row, client in enumerate(clients):
        start, stop = int(offsets[client]), int(offsets[client + 1])
        if stop - start > size:
            n = -(-(stop - start) // size)
            edges = [start + (stop - start) * i // n for i in range(n + 1)]
            chunks += [[Piece(row, a, b)] for a, b in pairwise(edges)]
        elif stop > start:
            if filled + stop - start > size:
                chunks.append(small)
                small, filled = [], 0
            small.append(Piece(row, start, stop))
            filled += stop - start
    return [*chunks, small] if small else chunks


def gather(x: Tensor, chunk: Chunk) -> Tensor:
    """The rows of a chunk; a view where they are neighbours."""
    if all(a.stop == b.start for a, b in pairwise(chunk)):
        return x[chunk[0].start:chunk[-1].stop]
    return torch.cat([x[p.start:p.stop] for p in chunk])


def as_input(x: Tensor) -> Tensor:
    """What a module sees: byte images are scaled to [0, 1], everything else is as it is."""
    return x.float().div_(255.0) if x.dtype == torch.uint8 else x
