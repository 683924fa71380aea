"""Norms and sums that keep their bound: a client's message moves by at most 2 clip / n, rounding included.

What is claimed. C is the clip bound, n ≤ LARGEST the number of a client's samples, |.| the L1 or L2 norm, u = 2⁻²⁴ and
v = 2⁻⁵³ are the unit roundoffs of float32 and float64. When one sample is replaced, the computed sum of clipped
gradients moves by at most 2 C in |.|, and the computed sum of losses clipped to [0, L] by at most L.

Proof. Sample i contributes w_i, a function of that sample alone: its factor min(1, C (1 - MARGIN) / norm) times the
float32 numbers its gradient consists of. The factor errs by 4 u at most, the norm by (SEGMENT + 4) u: it is added up in
float32 over SEGMENT numbers, in float64 beyond (`row_norm`). Hence |w_i| ≤ C' = C (1 - MARGIN) (1 + (SEGMENT + 8) u).
A block of b ≤ BLOCK samples is summed in float32, in whatever order the library likes; the error of each coordinate is
at most b u times the sum of its absolute values (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
section 3.1, to first order), so that of the block at most b² u C'. The n / b blocks are added up in float64, at an
error of n² v / b C'. Only ONE block depends on the sample replaced; all others keep their bits, and their errors
cancel. So the sum moves by at most 2 C' (1 + b² u + n² v / b), and

    (SEGMENT + 8) u + b² u + n² v / b ≤ (136 + max(1 + 2048, 2304 + 43)) u = 2483 u < 4096 u = MARGIN

for every b from 1 to BLOCK and n up to LARGEST. Of a batch n is the size: coins fall before a sample is looked at, so
the blocks are the same whatever its numbers, and a contribution that becomes 0 moves the sum by half as much. Narrow
products run in float64 altogether, the case b = 1. Losses are clipped and added up in float64, which errs by n² v ≤
MARGIN / 2 for either data set. A mean loses nothing if the division and the noise's addition happen in float64 too;
rounded to float32 BEFORE the noise it would err by u n / 2 of its sensitivity, 3 % for a million samples.

Small numbers. Squares below 2⁻¹²⁶ are lost in float32: a norm is too small by 2⁻⁶³ √D at most, nothing beside a C of at
least SMALLEST. Outer products multiply norms taken in float64, where no float32 number's square is lost. Large numbers:
a sample with a norm, or an input of a Linear layer, beyond 2⁶⁴ is treated alone and in float64: `extremes.py`.
"""

import torch
from torch import Tensor

MARGIN = 2.0**-12  # a clipped gradient or loss is this much shorter than its bound
BLOCK = 48  # samples added up in float32
SEGMENT = 128  # numbers of a row added up in float32
LARGEST = 1 << 20  # samples of a client
SMALLEST = 2.0**-40  # clip bound
LIMIT = 2.0**64  # of a norm, beyond which a float32 factor would no longer be exact to 4 u


def row_norm(rows: Tensor, order: int) -> Tensor:
    """Sum of absolute values (order 1) or of squares (order 2) over the last axis, in float64."""
    size = rows.shape[-1]
    if rows.dtype == torch.float64 or size <= SEGMENT:
        exact = rows.to(torch.float64, copy=True)
        terms = exact.abs_() if order == 1 else exact.square_()
        return terms[..., 0] if size == 1 else terms @ terms.new_ones(size)
    whole = size // SEGMENT * SEGMENT
    segments = rows[..., :whole].reshape(*rows.shape[:-1], -1, SEGMENT)
    parts = segments.abs().sum(-1) if order == 1 else torch.linalg.vector_norm(segments, dim=-1)
    exact = parts.double()
    norm = (exact if order == 1 else exact.square_()).sum(-1)
    return norm if whole == size else norm.add_(row_norm(rows[..., whole:], order))


def limited(norm: Tensor, order: int) -> Tensor:
    """The norms, infinite where they are beyond LIMIT; in place."""
    return norm.masked_fill_(norm > LIMIT**order, torch.inf)


def within(norm: Tensor, order: int) -> Tensor:
    """Where norms are numbers, and within LIMIT."""
    return norm <= LIMIT**order


def product(g: Tensor, a: Tensor) -> Tensor:
    """Σ g_i ⊗ a_i over samples, for g [n, O] and a [..., n, I]: [..., O, I], to be added to sums in float64."""
    if a.dtype == torch.float64 or a.shape[-1] <= SEGMENT:
        return g.double().T @ a.double()
    g, n = g.to(a.dtype), len(g)
    if n <= BLOCK:
        return g.T @ a  # one block
    whole = n // BLOCK * BLOCK
    blocks = g[:whole].view(-1, BLOCK, g.shape[1]).transpose(1, 2)
    total = (blocks @ a[..., :whole, :].reshape(*a.shape[:-2], -1, BLOCK, a.shape[-1])).sum(-3, dtype=torch.float64)
    return total if whole == n else total.add_(g[whole:].T @ a[..., whole:, :])


def bounded(losses: Tensor, bound: float) -> Tensor:
    """The losses in float64, in [0, bound] and a margin below it; what is not a number counts as the bound."""
    return losses.double().nan_to_num(nan=bound).clamp_(0.0, bound * (1.0 - MARGIN))
