"""Chunks: how the samples of a cohort are cut into pieces that fit the cache or the memory, deterministically."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpflbench.interfaces import Ints

CACHE = 24 << 20  # bytes of inputs and activations a chunk may have on a CPU
ROOM = 512 << 20  # bytes of the same that a chunk may not exceed, however few samples that are
LEAST, MOST = 32, 1 << 14  # samples: below, calls cost more than arithmetic; above, nothing is gained
LIGHT = (
    1 << 14
)  # multiplications a client, up to which a CPU takes less time for a padded batch than for calls by client
HEAP = 31 << 20  # bytes; glibc looks at blocks below 32 MB


class Piece(NamedTuple):
    """Rows start to stop of the shards, or of those chosen from them, all of one client."""

    row: int  # of the client in the cohort
    start: int
    stop: int


class Chunk:
    """Samples that run through the model together: pieces of the shards, or of `rows` [M] chosen from them."""

    def __init__(self, pieces: Sequence[Piece], rows: Tensor | None = None) -> None:
        self.pieces, self.rows = pieces, rows
        self._sent: dict[str, Tensor] = {}
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

    @property
    def sizes(self) -> list[int]:
        """Samples of each piece."""
        return [p.stop - p.start for p in self.pieces]

    @property
    def longest(self) -> int:
        """Samples of the largest piece."""
        first = self.pieces[0]
        return first.stop - first.start if self.even else max(self.sizes)

    def gather(self, x: Tensor) -> Tensor:
        """The chunk's part of the shards; a view where its pieces are neighbours there."""
        return self._lying(x) if self.rows is None else x.index_select(0, self._lying(self.rows))

    def _lying(self, x: Tensor) -> Tensor:
        if self.joint:
            return x[self.pieces[0].start : self.pieces[-1].stop]
        if x.device.type == "cpu" and x.is_contiguous():  # NumPy slices cheaply; torch aligns what products read
            flat, out = x.numpy(), x.new_empty(self.size, *x.shape[1:])
            np.concatenate([flat[start:stop] for _, start, stop in self.pieces], out=out.numpy())
            return out
        return torch.cat([x[p.start : p.stop] for p in self.pieces])

    def spread(self, values: Tensor) -> Tensor:
        """Each client's row [K, ...] at each of its samples [B, ...]."""
        n, (row, start, stop) = len(self.pieces), self.pieces[0]
        if self.even:
            return values[row : row + n].unsqueeze(1).expand(n, stop - start, *values.shape[1:]).flatten(0, 1)
        return values[self._index("owners", self._owners, values)]

    def light(self, work: int, device: torch.device) -> bool:
        """Whether so many multiplications a sample are done sooner for all clients at once than for one by one."""
        return device.type != "cpu" or self.longest * work <= LIGHT

    def padded(self, values: Tensor) -> Tensor:
        """The samples' values [B, ...] by client [n, longest, ...], with zeros behind shorter ones."""
        n, rest = len(self.pieces), values.shape[1:]
        if not self.even:
            values = values.new_zeros(n * self.longest, *rest).index_copy(
                0, self._index("places", self._places, values), values
            )
        return values.view(n, self.longest, *rest)

    def packed(self, values: Tensor) -> Tensor:
        """What `padded` has spread, without the zeros [B, ...]."""
        flat = values.flatten(0, 1)
        return flat if self.even else flat.index_select(0, self._index("places", self._places, values))

    def _places(self) -> Ints:
        """Where each sample lies among the padded ones [B]."""
        sizes = np.array(self.sizes)
        shift = np.arange(len(sizes)) * self.longest - (np.cumsum(sizes) - sizes)
        places: Ints = np.repeat(shift, sizes) + np.arange(sizes.sum())
        return places

    def _owners(self) -> Ints:
        """The client row of each sample [B]."""
        return np.repeat(np.array([p.row for p in self.pieces]), self.sizes)

    def _index(self, name: str, made: Callable[[], Ints], like: Tensor) -> Tensor:
        """An index of the chunk where that tensor is, sent there once."""
        if name not in self._sent:
            self._sent[name] = on_device(made(), like)
        return self._sent[name]

    def add(self, sums: Tensor, totals: Tensor) -> None:
        """Add the pieces' totals [n, ...] to their clients' rows of sums [K, ...]."""
        first, last = self.pieces[0].row, self.pieces[-1].row
        if last - first == len(self.pieces) - 1:
            sums[first : last + 1].add_(totals)
        else:
            sums.index_add_(0, on_device(np.array([p.row for p in self.pieces]), sums), totals)

    def only(self, samples: list[int]) -> "Chunk":
        """The chunk of those samples alone, each a piece of its own."""
        owners = self._owners()
        return Chunk([Piece(int(owners[i]), i, i + 1) for i in samples])

    def scale_(self, values: Tensor, by: Tensor) -> Tensor:
        """Multiply the samples' values [B] by their clients' [K], in place."""
        n, row = len(self.pieces), self.pieces[0].row
        if self.even:
            values.view(n, -1).mul_(by[row : row + n, None])
            return values
        return values.mul_(self.spread(by))


def cut(offsets: Ints, clients: Ints, size: int, rows: Tensor | None = None) -> list[Chunk]:
    """The clients' samples, those at the offsets or at the rows there, in chunks of at most `size`.

    A client with more samples is cut evenly into chunks of its own; smaller ones are packed together. Every chunk of a
    large client then has one owner, and its sum is a plain product.
    """
    starts, stops = offsets[clients].tolist(), offsets[clients + 1].tolist()
    pieces = [p for p in map(Piece, range(len(starts)), starts, stops) if p[2] > p[1]]
    if sum(stops) - sum(starts) <= size:
        return [Chunk(pieces, rows)] if pieces else []
    chunks: list[Chunk] = []
    small: list[Piece] = []
    filled = 0
    for piece in pieces:
        row, start, stop = piece
        if stop - start > size:
            n = -(-(stop - start) // size)
            edges = [start + (stop - start) * i // n for i in range(n + 1)]
            chunks += [Chunk([Piece(row, a, b)], rows) for a, b in pairwise(edges)]
            continue
        if filled + stop - start > size:
            chunks.append(Chunk(small, rows))
            small, filled = [], 0
        small.append(piece)
        filled += stop - start
    return [*chunks, Chunk(small, rows)] if small else chunks


def on_device(index: Ints, like: Tensor) -> Tensor:
    """The index where that tensor is."""
    return torch.from_numpy(index).to(like.device, non_blocking=True)


@cache
def keep_heap() -> None:
    """Let glibc keep what a pass frees: each page given back costs a fault when it is touched again, and of a small
    model's pass those take a third.

    It gives back what lies free at the top of its heap beyond twice the largest block it ever unmapped: so one large
    block, which nobody touches, is unmapped once.
    """
    torch.empty(HEAP, dtype=torch.uint8)


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
