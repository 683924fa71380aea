"""The white-box test of noise: what left a client, minus what was computed, over the scale that was charged.

Whoever holds the exact sums needs no attack. A shadow of the mechanism keeps value and release of every call; the
residuals must then look like independent draws of the mechanism's law, whatever drew them. With E = -ln P(|Z| > |z|),
which is exponential under any law, and w the normal score of z, sums of E are gamma and products of w normal: every
test below is exact or nearly so, for a stranger's law as for ours.

scale      the sum of all E: noise of another size; the tightest test there is for Laplace noise, nearly so for normal
rows       the sum of each message: one that has no noise, or little, among thousands
columns    the sum of each coordinate: one that is never noised
budgets    the sum of all messages of one scale: a client with less noise than the others
shape      Kolmogorov and Smirnov on all of them: another law of the same size
centre     the sum of all w: noise that is not centred
extremes   the largest |z|: tails that were cut, or are too long
values     products of noise and value: noise that undoes, or repeats, what it hides
pairs      products of messages with each other: one noise for two rounds, its negative, one seed for all
twins      equal patterns of signs among all messages: one pair among a hundred thousand that shares its noise
lags       products of noise with itself further on: a generator that repeats, antithetic coordinates

Honest noise raises an alarm once in a million audits (ALARM, shared out over all tests by Bonferroni). `audit`, `check`
and `verify --replay` look here, and every run whose mechanism is not built in. What a hostile mechanism draws only when
nobody looks is not seen.
"""

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from scipy.special import betainc, erfc, gammainc, gammaincc, kolmogorov, ndtri

from dpflbench.draws import NORMAL, Draws, Law
from dpflbench.interfaces import Floats, Mechanism

ALARM = 1e-6  # how often honest noise is accused
LIMIT = 4_000_000  # residuals kept; more see less than a thousandth of the scale
SAMPLE = 200_000  # of a run under way: a hundredth of the scale
ROWS = 2000  # messages whose products with each other are formed
MOST = 40.0  # E beyond this is counted as this: once in 10^17


@dataclass(slots=True)
class Tape:
    """What a shadowed mechanism was given and gave, call by call."""

    wanted: Callable[[int], bool] = lambda call: True  # which calls to keep: a sample of rounds
    limit: int = LIMIT
    calls: int = 0
    size: int = 0
    kept: list[tuple[int, Floats, Floats, Floats]] = field(default_factory=list)  # call, value, residual, scale

    def keep(self, value: Floats, scale: Floats, out: Floats) -> None:
        """Note one call; residuals in units of the scale."""
        call, self.calls = self.calls, self.calls + 1
        if self.wanted(call) and self.size < self.limit:
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                self.kept.append((call, value, (out - value) / scale[:, None], scale))
            self.size += value.size


def shadowed(mechanism: Mechanism, tape: Tape) -> Mechanism:
    """The mechanism, doing what it ever does, with all of it on tape."""
    own = type(mechanism)

    def release(self: Mechanism, value: Any, scale: Floats, draws: Draws) -> Any:
        given = value.detach().cpu().numpy().astype(np.float64, copy=True)
        out = own.release(self, value, scale, draws)
        tape.keep(given, np.array(scale, dtype=np.float64), out.detach().cpu().numpy().astype(np.float64))
        return out

    def plainly(self: Mechanism) -> Any:
        return copy, (mechanism,)  # another process, that of server code, gets no tape

    twin, body = copy(mechanism), {"__slots__": (), "release": release, "__reduce__": plainly}
    object.__setattr__(twin, "__class__", type(own.__name__, (own,), body))
    return twin


@dataclass(frozen=True, slots=True)
class Tested:
    """One test: how likely honest noise looks at least as odd, all its parts considered."""

    name: str
    p: float
    about: str  # the oddest thing it saw


@dataclass(frozen=True, slots=True)
class Examined:
    """What residuals show."""

    residuals: int
    messages: int
    tests: tuple[Tested, ...]
    visible: float  # noise below this share of its scale is seen, nine times in ten

    @property
    def alarms(self) -> tuple[Tested, ...]:
        """The tests that honest noise fails once in a million audits, all together."""
        return tuple(t for t in self.tests if not t.p * len(self.tests) > ALARM)


def examine(tape: Tape, law: Law, more: tuple[Tested, ...] = ()) -> Examined:
    """The residuals on a tape against a law; `more` tests share the rate of false alarms."""
    groups: dict[int, list[tuple[int, Floats, Floats, Floats]]] = {}
    for call in tape.kept:
        groups.setdefault(call[1].shape[1], []).append(call)
    wide = [_group(calls, law) for calls in groups.values()]
    broken = sum(int((~np.isfinite(z)).sum()) for _, _, z, _ in tape.kept)
    tests: tuple[Tested, ...] = ()
    if broken:
        tests = (Tested("finite", 0.0, f"{broken} releases are not finite"),)
    elif wide:
        tests = (*_together(wide), *(t for g in wide for t in _apart(g)))
    tests = (*more, *tests)
    count = sum(g.excess.size for g in wide)
    return Examined(count, sum(len(g.excess) for g in wide), tests, smallest_seen(law, count, len(tests)))


@dataclass(frozen=True, slots=True, eq=False)
class Wide:
    """All messages of one width [R, M], in the order they were made."""

    call: Floats  # [R]
    value: Floats
    excess: Floats  # E
    score: Floats  # w
    scale: Floats  # [R]


def _group(calls: list[tuple[int, Floats, Floats, Floats]], law: Law) -> Wide:
    z = np.concatenate([c[2] for c in calls])
    size = excess(law, np.nan_to_num(z))
    score = np.copysign(-ndtri(np.exp(-size) / 2), z)
    number = np.concatenate([np.full(len(c[1]), c[0]) for c in calls])
    return Wide(number, np.concatenate([c[1] for c in calls]), size, score, np.concatenate([c[3] for c in calls]))


def excess(law: Law, z: Floats) -> Floats:
    """E = -ln P(|Z| > |z|)."""
    return np.interp(np.abs(z), *excess_table(law))


@cache
def excess_table(law: Law) -> tuple[Floats, Floats]:
    """E at values of |z|, from the law's quantile function: linear between them within 1e-6 of itself."""
    heights = np.concatenate([[0.0], np.geomspace(1e-9, MOST, 20_000)])
    return np.asarray(law.quantile(np.exp(-heights)), dtype=np.float64), heights


def is_normal(law: Law) -> bool:
    """Whether a law is the normal one, whatever it is called: then the whole curve of Gaussian DP can be used."""
    tail = np.array([0.9, 0.5, 0.1, 1e-3, 1e-6])
    return bool(np.allclose(law.quantile(tail), NORMAL.quantile(tail), rtol=1e-9))


@cache
def response(law: Law) -> float:
    """How fast the mean of E grows with the logarithm of the scale: 1 for Laplace noise, 1.7 for normal."""
    z, t = excess_table(law)
    middle, slope = (z[1:] + z[:-1]) / 2, np.diff(t) / np.maximum(np.diff(z), 1e-300)
    return float(np.sum(middle * slope * -np.diff(np.exp(-t))))


def smallest_seen(law: Law, count: int, tests: int) -> float:
    """The share of its scale at which noise is caught nine times in ten by its size alone; 0 where nothing is."""
    if not count or not tests:
        return 0.0
    return max(0.0, 1 - (float(-ndtri(ALARM / tests / 2)) + 1.2816) / (math.sqrt(count) * response(law)))


def _together(groups: list[Wide]) -> Iterator[Tested]:
    """Tests of all residuals at once."""
    each = np.concatenate([g.excess.ravel() for g in groups])
    n, total = len(each), float(each.sum())
    yield Tested("scale", _gamma(np.array([total]), np.array([n])), f"mean of E is {total / n:.5f}, of honest noise 1")
    sums = np.concatenate([g.excess.sum(1) for g in groups])
    sizes = np.concatenate([np.full(len(g.excess), g.excess.shape[1]) for g in groups])
    at = int(np.argmin(_tail(sums, sizes)))
    text = f"message {at}: mean of E is {sums[at] / sizes[at]:.4f} over {sizes[at]} coordinates"
    yield Tested("rows", _gamma(sums, sizes), text)
    scales, which = np.unique(np.concatenate([g.scale for g in groups]), return_inverse=True)
    of_scale, length = (np.bincount(which, w).astype(np.float64) for w in (sums, sizes))
    at = int(np.argmin(_tail(of_scale, length)))
    text = f"scale {scales[at]:.6g}: mean of E is {of_scale[at] / length[at]:.4f} over {length[at]:.0f} coordinates"
    yield Tested("budgets", _gamma(of_scale, length), text)
    uniform = np.sort(-np.expm1(-each))
    gap = float(np.max(np.abs(uniform - (np.arange(n) + 0.5) / n)) + 0.5 / n)
    root = math.sqrt(n)
    yield Tested("shape", float(kolmogorov((root + 0.12 + 0.11 / root) * gap)), f"distributions differ by {gap:.2g}")
    centre = float(sum(g.score.sum() for g in groups)) / root
    yield Tested("centre", _normal(centre), f"{centre:.2f} standard errors off")
    below = math.exp(n * math.log1p(-math.exp(-float(each.max()))))  # that none is larger
    text = f"the largest of {n} is exceeded once in {math.exp(float(each.max())):.3g}"
    yield Tested("extremes", 2 * min(below, 1 - below), text)


def _apart(group: Wide) -> Iterator[Tested]:
    """Tests that need messages of one width."""
    score, value = group.score, group.value
    rows, width = score.shape
    sums = group.excess.sum(0)
    at = int(np.argmin(_tail(sums, np.full(width, rows))))
    text = f"coordinate {at} of {width}: mean of E is {sums[at] / rows:.4f} over {rows} messages"
    yield Tested("columns", _gamma(sums, np.full(width, rows)), text)
    length = np.linalg.norm(value, axis=1)
    some = length > 0
    if some.any():
        along = (score[some] * value[some]).sum(1) / length[some]  # normal, whatever the value
        text = f"noise along the value is {np.abs(along).max():.2f} standard deviations in one message"
        spread = float(gammaincc(len(along) / 2, float(along @ along) / 2))
        yield Tested("values", min(1.0, 2 * min(spread, _normal(np.abs(along).max()) * len(along))), text)
    if width >= 3 and rows >= 2:
        yield _pairs(group)
    if width >= 30 and rows >= 2:
        yield _twins(score)
    if score.size >= 2000:
        yield _lags(score.ravel())


def _pairs(group: Wide) -> Tested:
    """All products of some messages: the first ones of every call, so that a client meets itself in other rounds."""
    calls, starts = np.unique(group.call, return_index=True)
    each = max(2, ROWS // len(calls))
    order = np.concatenate(
        [np.arange(s, e)[:each] for s, e in zip(starts, [*starts[1:], len(group.call)], strict=True)]
    )
    score = group.score[order[:ROWS]]
    score = score / np.maximum(np.linalg.norm(score, axis=1, keepdims=True), 1e-300)
    square = np.square(np.triu(score @ score.T, 1))
    count, at = len(score) * (len(score) - 1) / 2, np.unravel_index(int(square.argmax()), square.shape)
    chance = float(betainc((score.shape[1] - 1) / 2, 0.5, max(0.0, 1 - float(square[at]))))
    return Tested("pairs", min(1.0, chance * count), f"two messages correlate by {math.sqrt(float(square[at])):.4f}")


def _twins(score: Floats) -> Tested:
    """Messages whose first coordinates agree in sign and in being large or small, or are each other's negatives."""
    part = score[:, :32]
    signs, large = part > 0, np.abs(part) > 0.6744898  # two fair bits a coordinate
    signs = signs ^ ~signs[:, :1]  # the same for a message and its negative
    keys = np.concatenate([np.packbits(signs, axis=1), np.packbits(large, axis=1)], axis=1)
    same = len(keys) - len(np.unique(keys, axis=0))
    expected = len(keys) * (len(keys) - 1) / 2 * 2.0 ** (1 - 2 * part.shape[1])
    return Tested("twins", -math.expm1(-expected) if same else 1.0, f"{same} messages repeat another one's pattern")


def _lags(score: Floats) -> Tested:
    """The whole sequence against itself, half of it further on at most."""
    n = len(score)
    spectrum = np.fft.rfft(score, 2 * n)
    products = np.fft.irfft(np.square(np.abs(spectrum)), 2 * n)[1 : n // 2 + 1]
    products /= np.sqrt(n - np.arange(1, n // 2 + 1))
    at = int(np.abs(products).argmax())
    text = f"noise repeats after {at + 1} draws, by {products[at]:.2f} standard errors"
    return Tested("lags", min(1.0, _normal(float(products[at])) * len(products)), text)


def _tail(sums: Floats, counts: Any) -> Floats:
    """How likely a gamma sum of so many is as far out, on its side."""
    return np.asarray(np.minimum(gammainc(counts, sums), gammaincc(counts, sums)))


def _gamma(sums: Floats, counts: Any) -> float:
    """The same of the oddest, for all of them and both sides."""
    return min(1.0, 2 * len(sums) * float(_tail(sums, counts).min()))


def _normal(z: float) -> float:
    return float(erfc(abs(z) / math.sqrt(2)))
