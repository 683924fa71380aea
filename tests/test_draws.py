"""Noise: the ideal sum rounded to a grid without error, with full tails, on any processor; what a key can hold."""

import hashlib
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpflbench import draws as module
from dpflbench.draws import LAPLACE, NORMAL, ROUNDING, Draws, Law
from dpflbench.errors import DpflbenchError

LAWS = [pytest.param(NORMAL, stats.norm(), id="normal"), pytest.param(LAPLACE, stats.laplace(), id="laplace")]
KEY = bytes(range(32))


def noise(law, n, key=KEY, **more):
    return Draws(key).noised(np.zeros((1, n)), np.ones(1), law, **more)[0]


def exact(mp, law, u):
    """z with P(|Z| > z) = u, to the context's precision."""
    return mp.sqrt(2) * mp.erfinv(1 - u) if law is NORMAL else -mp.log(u)


@pytest.mark.parametrize(("law", "_"), LAWS)
def test_every_coordinate_is_the_ideal_sum_rounded_once(law, _):
    """Read from the stream's own bytes, 31 + 256 bits of |X| to a coordinate, and computed with 110 digits."""
    rng = np.random.default_rng(1)
    value = rng.normal(size=(2, 150)) * np.array([[1e-3], [30.0]])
    scale = np.float64(np.float32([0.37, 1.9]))
    found = Draws(KEY).noised(value, scale, law)
    first = np.frombuffer(hashlib.shake_128(KEY + bytes(16)).digest(4 * 300), dtype="<i4")
    mp = mpmath.MPContext()
    mp.dps = 110
    for i, word in enumerate(first.tolist()):
        rest = hashlib.shake_128(KEY + bytes(8) + (i + 1).to_bytes(8, "big")).digest(32)
        magnitude = (word if word >= 0 else ~word) << 256 | int.from_bytes(rest, "big")
        z = exact(mp, law, 1 - mp.mpf(magnitude) / mp.mpf(2) ** 287) * (1 if word >= 0 else -1)
        row = i // 150
        step = 2.0 ** (math.floor(math.log2(scale[row])) - 10)
        truth = mp.nint((mp.mpf(value.flat[i]) + mp.mpf(scale[row]) * z) / step) * step
        assert found.flat[i] == float(truth)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("law", "_"), LAWS)
def test_bits_are_drawn_until_one_grid_point_is_left(law, _, sign):
    """A Z that agrees with the edge between 1000 and 1001 steps in its first 31 + 320 bits: the next ones decide."""
    mp = mpmath.MPContext()
    mp.prec = 1000
    rest, width = 0.25, 5000.5
    far = mp.mpf(1000.5 - sign * rest) / mp.mpf(width)
    cell = int(mp.floor(law.survival(mp, far) * mp.mpf(2) ** 351))  # the edge lies in (cell, cell + 1] * 2^-351
    for k, tail, beyond in ((cell, 0x00, False), (cell, 0xFF, True), (cell + 1, 0xFF, False), (cell - 1, 0x00, True)):
        bits = 2**351 - 1 - k
        word, head = bits >> 320, (bits & (2**320 - 1)).to_bytes(40, "big")
        asked = []

        def more(count, head=head, tail=tail, asked=asked):
            asked.append(count)
            return (head + bytes([tail]) * 200)[:count]

        found = module._settled(word if sign > 0 else ~word, more, rest, width, law)
        assert found == sign * (1001 if beyond else 1000)
        assert max(asked) >= 32  # more than floating point was asked


def test_a_coordinate_gets_its_further_bits_whoever_is_in_doubt_beside_it():
    """Each has an address of its own: a processor that doubts them all finds what one that doubts hardly any did."""
    n = module.BLOCK
    words = np.frombuffer(hashlib.shake_128(KEY + bytes(16)).digest(4 * n), dtype="<i4")
    for i, (word, found) in enumerate(zip(words.tolist(), noise(NORMAL, n, grid_bits=25), strict=True)):
        stream = hashlib.shake_128(KEY + bytes(8) + (i + 1).to_bytes(8, "big"))
        assert module._settled(word, stream.digest, 0.0, 2.0**25, NORMAL) == found * 2**25


def test_the_last_bits_of_a_processors_functions_change_nothing():
    """A quantile that is off by 2e-11, far more than any, moves roundings at 2^20 steps a scale, and none of ours."""

    def crooked(x):
        return NORMAL.quick(x) * (1 + 2e-11)

    n = 400_000
    laws = [Law("gaussian", quick, NORMAL.quantile, NORMAL.survival) for quick in (NORMAL.quick, crooked)]
    ours, theirs = (noise(law, n, grid_bits=20) for law in laws)
    assert ours.tolist() == theirs.tolist()
    x = np.random.default_rng(0).uniform(-1, 1, n)
    assert (np.rint(NORMAL.quick(x) * 2**20) != np.rint(crooked(x) * 2**20)).any()


@pytest.mark.parametrize(("law", "_"), LAWS)
def test_quantiles_are_sixteen_times_better_than_the_margin_they_get(law, _):
    mp = mpmath.MPContext()
    mp.prec = 200
    rng = np.random.default_rng(5)
    seams = [2.0**-5, 2 * math.exp(-2), 2 * math.exp(-32), 1.0]  # where the functions change their formula
    u = np.concatenate(
        [
            rng.uniform(size=300),
            2.0 ** -rng.uniform(0, 900, 300),
            1 - 2.0 ** -rng.uniform(1, 53, 300),
            *(seam * (1 - 2.0 ** -rng.uniform(3, 53, 100)) for seam in seams),
        ]
    )
    for p, z in zip(u.tolist(), law.quantile(u).tolist(), strict=True):
        slope = law.survival(mp, mp.mpf(z)) - law.survival(mp, mp.mpf(z) + mp.mpf(2) ** -80)
        error = (law.survival(mp, mp.mpf(z)) - p) / slope * mp.mpf(2) ** -80
        assert abs(error) <= ROUNDING / 16 * (1 + z), p
    x = np.concatenate([1 - 2.0 ** -rng.uniform(0, 31, 10_000), rng.uniform(size=10_000)])
    far = np.abs(law.quick(x) - law.quantile(1 - x)) * (1 - x)
    assert far.max() < 2.0**-46  # 2^-40 is allowed
    assert (law.quick(-x) == -law.quick(x)).all()


def test_hazard_rates_are_above_what_a_law_must_have():
    z = np.linspace(0, 37, 10_000)
    assert (2 * stats.norm.pdf(z) / (2 * stats.norm.sf(z))).min() > 0.79
    assert (stats.laplace.pdf(z) / stats.laplace.sf(z)).min() > 0.99


@pytest.mark.parametrize("value", [0.0, 0.3, -1234.75])
@pytest.mark.parametrize(("law", "truth"), LAWS)
def test_a_coarse_grid_shows_the_right_frequencies(law, truth, value):
    """Chi-square over the cells of step 1/2 around a value at scale 1.5: each has its ideal probability."""
    n = 400_000
    drawn = Draws(KEY).noised(np.full((1, n), value), np.array([1.5]), law, grid_bits=1)[0]
    points = np.round(value * 2) / 2 + np.arange(-12, 13) * 0.5
    inner = truth.cdf((points[1:-1, None] + [-0.25, 0.25] - value) / 1.5)
    p = np.diff(inner, axis=1)[:, 0]
    expected = np.concatenate([[inner[0, 0]], p, [1 - inner[-1, 1]]]) * n
    observed = [(drawn <= points[0]).sum(), *((drawn == x).sum() for x in points[1:-1]), (drawn >= points[-1]).sum()]
    assert sum(observed) == n  # nothing off the grid
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize(("law", "truth"), LAWS)
def test_noise_follows_its_law_at_its_scale(law, truth):
    scale = np.array([0.5, 3.0, 7e-20, 2e30])
    drawn = Draws(KEY).noised(np.zeros((4, 50_000)), scale, law)
    assert drawn.dtype == np.float64
    for row, s in zip(drawn, scale, strict=True):
        assert stats.kstest(row / s, truth.cdf).pvalue > 1e-3
        assert row.var() / s**2 == pytest.approx(truth.var(), rel=0.03)


class Far(Draws):
    """A stream whose every first word is the last cell of (-1, 1): |Z| beyond its 2^-31 point."""

    def _bytes(self, block, coordinate, count):
        own = super()._bytes(block, coordinate, count)
        return np.full(count // 4, 2**31 - 1, dtype="<i4").tobytes() if coordinate == 0 else own


class Farther(Far):
    """And whose further bits begin with 64 ones: beyond its 2^-95 point."""

    def _bytes(self, block, coordinate, count):
        own = super()._bytes(block, coordinate, count)
        return own if coordinate == 0 else (b"\xff" * 8 + own)[:count]


@pytest.mark.parametrize(("kind", "mass"), [(Far, 2.0**-31), (Farther, 2.0**-95)])
@pytest.mark.parametrize(("law", "truth"), LAWS)
def test_tails_beyond_any_bound_have_the_right_shape(law, truth, kind, mass):
    """Given that |Z| passes its 5e-10 or 3e-29 point (6.2 and 11.2 deviations of a normal), where it lands is right."""
    z = kind(KEY).noised(np.zeros((1, 4000)), np.ones(1), law, grid_bits=20)[0]
    assert z.min() >= truth.isf(mass / 2) - 2.0**-20
    assert stats.kstest(2 * truth.sf(z) / mass, stats.uniform.cdf).pvalue > 1e-3


def test_a_normal_passes_six_deviations_as_often_as_it_should():
    """Of the 2^31 cells a first word can name, P(|Z| > b) 2^31 lie beyond b: 1231 beyond 5, 17 beyond 5.77, where
    float32 normals end, 4 beyond 6.
    """
    z = NORMAL.quick((np.arange(2**31 - 5000, 2**31) + 0.5) * 2.0**-31)
    assert [int((z > bound).sum()) for bound in (5.0, 5.77, 6.0)] == [1231, 17, 4]


def test_a_floating_point_sum_gives_its_value_away_and_a_grid_does_not():
    """Mironov's attack: which sums value + scale * z are there? From 0 and from 2^-20 they differ in their low bits."""
    scale, values, n = np.float32(1.7), (np.float32(0), np.float32(2.0**-20)), 4000
    z = np.random.default_rng(3).normal(size=n).astype(np.float32)

    def possible(y, value):
        guess = ((y - value) / scale).astype(np.float32)
        near = [np.nextafter(guess, np.float32(side)) for side in (-np.inf, np.inf)]
        return np.any([value + scale * g == y for g in (guess, *near)], 0)

    own = values[1] + scale * z
    assert possible(own, values[1]).all()
    assert not possible(own, values[0]).all()  # each of these is certain proof against 0
    for value, key in zip(values, (KEY, KEY[::-1]), strict=True):
        steps = Draws(key).noised(np.full((1, n), float(value)), np.array([float(scale)]), NORMAL) * 2.0**10
        assert (steps == np.rint(steps)).all()  # one grid for both, and
        assert stats.binomtest(int((steps % 2).sum()), n).pvalue > 1e-3  # no bit of it stands out


def test_calls_go_on_in_the_stream_and_a_stream_begins_anew():
    stream = Draws(KEY)
    first, second = (stream.noised(np.zeros((1, 5)), np.ones(1), NORMAL)[0].tolist() for _ in range(2))
    assert first != second
    assert noise(NORMAL, 5).tolist() == first
    assert noise(NORMAL, 5, KEY[::-1]).tolist() != first


@pytest.mark.parametrize("shape", [(1, 2 * module.BLOCK), (2, module.BLOCK), (64, module.BLOCK // 32)])
def test_blocks_follow_one_another_without_repeating(shape):
    first, second = Draws(KEY).noised(np.zeros(shape), np.ones(shape[0]), NORMAL).reshape(2, -1)
    assert (first == second).mean() < 0.01
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / module.BLOCK**0.5


def test_nothing_to_noise_is_no_error():
    assert Draws(KEY).noised(np.zeros((3, 0)), np.ones(3), NORMAL).shape == (3, 0)


def test_what_a_stream_draws_never_changes_between_versions():
    assert (noise(NORMAL, 3) * 1024).tolist() == [1492, -590, 394]
    assert (noise(LAPLACE, 3) * 1024).tolist() == [1976, -586, 365]


def test_uniform_numbers_are_inside_the_open_interval():
    u = Draws(KEY).uniform((100, 1000))
    assert u.shape == (100, 1000)
    assert 0 < u.min() < u.max() < 1
    assert stats.kstest(u.ravel(), stats.uniform.cdf).pvalue > 1e-3


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 1e-310])
def test_no_noise_and_no_number_are_refused(scale):
    with pytest.raises(DpflbenchError, match=r"noise: scales are \[1.0, .*; allowed: above 1e-300 and finite"):
        Draws(KEY).noised(np.zeros((2, 3)), np.array([1.0, scale]), NORMAL)


def test_values_far_larger_than_their_noise_survive():
    value = np.array([[1e30, -3.0e8]])
    drawn = Draws(KEY).noised(value, np.array([1e-6]), NORMAL)
    np.testing.assert_allclose(drawn, value, rtol=1e-13)
    assert Fraction(drawn[0, 1]) % Fraction(2.0**-30) == 0  # 2^-20 <= 1e-6, and 10 bits below
