"""Extremes: samples whose gradient has no finite norm, or one too large for float32, are treated one by one.

What a message may not tell is whether there is such a sample. So a pass that met one is repeated over the same chunks,
where all other samples come out the same to the bit; the one itself is clipped in float64, and contributes nothing if
its gradient is not finite. No stand-in takes its place: a model need not be defined anywhere else.
"""

import torch
from torch import Tensor

from dpflbench.federation.gradients.chunks import Chunk
from dpflbench.federation.gradients.contributions import Book, Entry
from dpflbench.federation.gradients.summation import within


def set_aside(book: Book, chunk: Chunk, order: int) -> tuple[list[Entry], Chunk, Tensor] | None:
    """Take samples whose norm is no number, or beyond the limit, out of the book; those that are finite in float64 as
    entries of their own, with their chunk and norms. None if there are none.
    """
    if book.norm is None:
        return None
    samples = (~within(book.norm, order)).nonzero()[:, 0]
    entries = [entry.part(samples) for entry in book.entries]
    book.entries = [entry.without(samples) for entry in book.entries]
    book.norm[samples] = torch.inf  # a factor of 0
    norm = torch.stack([entry.norm(order) for entry in entries]).sum(0)
    kept = norm.isfinite().nonzero()[:, 0]
    if not len(kept):
        return None
    return [entry.part(kept) for entry in entries], chunk.only(samples[kept].tolist()), norm[kept]
