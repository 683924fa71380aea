"""Noise: secret random numbers, and the ideal mechanism rounded to a grid without error.

A message is value + scale * Z for an ideal, real-valued Z, rounded to the nearest multiple of a public grid step (a
power of two, scale / 2048 to scale / 1024). Computing that sum in floating point would leak through its low bits
(Mironov, "On significance of the least significant bits", 2012) and cut its tails. Here the rounded sum is the right
one always: a coordinate starts from 32 random bits of Z and gets more, as many as it takes, wherever they leave two
grid points possible. Three things follow.

* Rounding an ideal message is post-processing: what accountants prove of real-valued noise holds of what is released,
  with the same scale and the same sensitivity. No accountant of its own is needed, as a discrete Gaussian would (its
  zCDP bound asks for 6 to 13 % more noise at epsilon 0.1 to 8, delta 1e-5 to 1e-4), and a pure epsilon stays pure.
* Tails are full: no event, however rare, has another probability than it should.
* The outcome is a function of key, value and scale, not of a processor's logarithm: replays are equal to the bit on any
  machine, and noise is drawn on the host whatever the device.

The bits come from SHAKE128 (FIPS 202) over a 256-bit stream key. What is claimed is computational: no way is known to
tell them from fair coins that beats trying keys. Hence `keys.SMALLEST_DELTA`.

"Always" rests on margins around the quantile functions of torch and SciPy that are tested at thousands of points, and
sixteen times wider than any error found; and on values whose sensitivity is what it is said to be.

A mechanism names its law, and `draws.noised(value, scale, law)` is what it releases, before anybody rounds to float32:
that is post-processing too. Another law brings two quantile functions and a tail; `uniform` serves the rest.

So a discrete mechanism is not offered beside it: what is released is discrete already, and the price of another one was
measured. DPSGD on the main job (epsilon up to 1, alpha 0.5, four seeds, one key) has 70.56 % on this grid, 70.56 % on
one a million times finer, which no seed sees by more than 0.01 points, and with the 6 or 13 % more noise 69.17 or
67.61 %.

Cost (tests/benchmarks/test_noise.py, one core at 2.1 GHz): 20 ns a coordinate, where float64 normals of NumPy's Philox,
which is no cipher, take 15: 0.2 ms a round of the main job, 0.11 s of ResNet-20. SHAKE is a third of it; AES in counter
mode would save 0.05 ms a round, 1 % of it, for one more dependency.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri

from dpflbench.errors import DpflbenchError

Floats = NDArray[np.float64]

GRID_BITS = 10  # the step is 2^-10 of the power of two at or below the scale
BLOCK = 1 << 14  # coordinates drawn at once, if rows are shorter: their arrays stay in a cache
CELL = 2.0**-31  # what 32 bits leave open of |X|, uniform in (0, 1)
COIN = 2.0**-53  # half the distance of two uniform numbers
ROUNDING = 2.0**-46  # bounds the error of a Law's quantile in units of 1 + z; measured: 2^-51


@dataclass(frozen=True, slots=True)
class Law:
    """A symmetric distribution at scale 1 whose hazard rate (density over upper tail) is at least 0.7 everywhere.

    The last makes quantiles tame: |z(u) - z(u')| <= |u - u'| / (0.7 min(u, u')).
    """

    name: str  # accountants know it by
    quick: Callable[[Floats], Floats]  # Z at X uniform in (-1, 1), of its sign, within 2^-40 / (1 - |X|)
    quantile: Callable[[Floats], Floats]  # z >= 0 with P(|Z| > z) = u, for u in (0, 1], within ROUNDING * (1 + z)
    survival: Callable[[Any, Any], Any]  # (mpmath context, z) -> P(|Z| > z), right to the context's precision


def _quick_normal(x: Floats) -> Floats:
    """A sixth of ndtri's time, and less exact only where |x| is near 1."""
    z: Floats = torch.from_numpy(x).erfinv().numpy()
    z *= 2.0**0.5
    return z


def _quick_laplace(x: Floats) -> Floats:
    return np.copysign(np.log(1.0 - np.abs(x)), x)


def _normal_quantile(u: Floats) -> Floats:
    z: Floats = -ndtri(u / 2.0)
    return z


def _laplace_quantile(u: Floats) -> Floats:
    return -np.log(u)


def _normal_survival(mp: Any, z: Any) -> Any:
    return mp.erfc(z / mp.sqrt(2))


def _laplace_survival(mp: Any, z: Any) -> Any:
    return mp.exp(-z)


NORMAL = Law("gaussian", _quick_normal, _normal_quantile, _normal_survival)
LAPLACE = Law("laplace", _quick_laplace, _laplace_quantile, _laplace_survival)


class Draws:
    """The secret random bits of one stream. Every call goes on where the last one ended."""

    __slots__ = ("_blocks", "_sponge")

    def __init__(self, stream_key: bytes) -> None:
        if len(stream_key) != 32:
            raise ValueError(f"a stream key has 32 bytes, not {len(stream_key)}")
        self._sponge = hashlib.shake_128(stream_key)
        self._blocks = 0

    def _bytes(self, block: int, coordinate: int, count: int) -> bytes:
        """The first `count` of the endless bytes at one address; coordinate 0 stands for the block as a whole."""
        sponge = self._sponge.copy()
        sponge.update(block.to_bytes(8, "big") + coordinate.to_bytes(8, "big"))
        return sponge.digest(count)

    def uniform(self, shape: tuple[int, ...]) -> Floats:
        """Odd multiples of 2^-53 in (0, 1), for laws of a mechanism's own. Their tails end, and sums of them leak."""
        size, block = int(np.prod(shape)), self._blocks
        self._blocks += 1
        words = np.frombuffer(self._bytes(block, 0, 8 * size), dtype="<u8")
        return (((words >> 12).astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)

    def coins(self, rate: Floats) -> NDArray[np.bool_]:
        """Independent coins [M], each true with probability floor(rate 2^52) / 2^52: never more than its rate."""
        return np.asarray(self.uniform(rate.shape) + COIN <= rate)

    def noised(self, value: Floats, scale: Floats, law: Law, grid_bits: int = GRID_BITS) -> Floats:
        """value [K, M] + scale [K] * Z on the grid of each row, as float64."""
        scales = scale.tolist()
        if not all(1e-300 < s < math.inf for s in scales):
            raise DpflbenchError(f"noise: scales are {scales!r:.80}; allowed: above 1e-300 and finite")
        steps = np.array([math.ldexp(1.0, math.frexp(s)[1] - 1 - grid_bits) for s in scales])[:, None]
        out = value * (1.0 / steps)  # exact, as is the width: steps are powers of two
        width = scale[:, None] / steps
        columns = min(BLOCK, max(1, out.shape[1]))
        rows = BLOCK // columns
        for top in range(0, out.shape[0], rows):
            for left in range(0, out.shape[1], columns):
                part = out[top : top + rows, left : left + columns]
                part[:] = self._rounded(part, width[top : top + rows], law)
        out *= steps
        return out

    def _rounded(self, value: Floats, width: Floats, law: Law) -> Floats:
        """The integers nearest to value + width * Z."""
        block = self._blocks
        self._blocks += 1
        words = np.frombuffer(self._bytes(block, 0, 4 * value.size), dtype="<i4").reshape(value.shape)
        x = (words + 0.5) * CELL  # the middle of a cell of (-1, 1)
        whole = np.rint(value)
        rest = value - whole  # exact
        total = law.quick(x)
        total *= width
        total += rest
        near = np.rint(total)
        # At u = 1 - |x| half a cell moves z by at most 0.9 CELL / u and all rounding by less than 2^-39 / u: together
        # below CELL / u. (For u < 2.5 CELL that is not so, but there everything is doubtful, as width >= 1.)
        doubtful = np.flatnonzero(np.abs(total - near) + width * CELL / (1.0 - np.abs(x)) >= 0.5)
        for i in doubtful:
            more = partial(self._bytes, block, int(i) + 1)
            row = i // value.shape[1]
            near.flat[i] = _settled(int(words.flat[i]), more, float(rest.flat[i]), float(width[row, 0]), law)
        return whole + near  # beyond 2^53 steps the sum is rounded once more: a function of the exact one


def _settled(word: int, more: Callable[[int], bytes], rest: float, width: float, law: Law) -> float:
    """The integer nearest to rest + width * Z where 32 bits of Z were not enough: with 128 more in floating point, and
    with as many as it takes in arithmetic of any precision if that is too close to call.
    """
    sign, magnitude = (1, word) if word >= 0 else (-1, ~word)

    def below(count: int) -> int:
        """k such that u lies in (k, k + 1] * 2^-(31 + 8 count)."""
        return (1 << 31 + 8 * count) - 1 - (magnitude << 8 * count | int.from_bytes(more(count), "big"))

    count = 16
    while below(count) < 1 << 60:  # so far out in the tail that even these are too few
        count *= 2
    z = float(law.quantile(np.array([(2 * below(count) + 1) / (1 << 32 + 8 * count)]))[0])
    guess = sign * z * width + rest
    near = round(guess)
    if abs(abs(guess - near) - 0.5) > 2 * ROUNDING * width * (1 + z):
        return float(near)
    edge = near + (Fraction(1, 2) if guess > near else Fraction(-1, 2))
    return float(edge + Fraction(1, 2) if _above(edge, sign, below, rest, width, law) else edge - Fraction(1, 2))


def _above(edge: Fraction, sign: int, below: Callable[[int], int], rest: float, width: float, law: Law) -> bool:
    """Whether rest + width * Z > edge: for a positive Z, whether u is below the tail probability of the edge."""
    from mpmath import MPContext

    far = sign * (edge - Fraction(rest)) / Fraction(width)  # is |Z| beyond this, on its side?
    if far <= 0:
        return sign > 0
    mp, count = MPContext(), 16
    while True:
        mp.prec = 8 * count + 128
        tail = law.survival(mp, mp.mpf(far.numerator) / far.denominator) * mp.mpf(2) ** (31 + 8 * count)
        k = below(count)
        if tail * (1 - mp.mpf(2) ** -(8 * count + 64)) >= k + 1:
            return sign > 0
        if tail * (1 + mp.mpf(2) ** -(8 * count + 64)) <= k:
            return sign < 0
        count *= 2
