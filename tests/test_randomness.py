"""Which seed and which key control which draw, and that secret streams have nothing to do with one another."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from dpflbench.draws import NORMAL
from dpflbench.errors import DpflbenchError
from dpflbench.keys import fresh_key, key_of
from dpflbench.randomness import Streams

KEY = bytes.fromhex("000102030405060708090a0b0c0d0e0f")


def noise(streams, round=0, purpose="noise", n=510):
    return streams.draws(purpose, round).noised(np.zeros((1, n)), np.ones(1), NORMAL)[0]


def words(stream, n):
    """52 bits each."""
    return (stream.uniform((n,)) * 2.0**52).astype(np.uint64)


def coincidences(numbers):
    """How many of them equal one that came before."""
    return int((np.diff(np.sort(numbers)) == 0).sum())


def test_paired_streams_differ_by_seed_purpose_and_round_and_by_nothing_else():
    keys = {Streams(s).key(p, r) for s in (0, 1) for p in ("split", "select") for r in (0, 1, -1)}
    assert len(keys) == 12
    assert Streams(3, KEY, "a").key("select", 7) == Streams(3).key("select", 7)


def test_paired_streams_never_change_between_versions():
    assert Streams(0).key("split") == 0x4DDB8B29B9D2026B  # the first 63 bits of SHA-256 of "dpflbench/0/split/0"
    drawn = [Streams(3).numpy(p, r).integers(2**62) for p, r in (("split", 0), ("budgets", 0), ("select", -1))]
    assert drawn == [2812296369281221845, 1323223681823420318, 84051004323649780]
    assert torch.randn(1, generator=Streams(3).torch("transform"), dtype=torch.float64).item() == -0.660421267448965
    assert Streams(3).isolated("init", lambda: torch.rand(1, dtype=torch.float64)).item() == 0.15236197869041523


def test_secret_streams_never_change_between_versions():
    found = Streams(3, KEY, "run").stream_key("noise", 7).hex()
    assert found == "66880aa0414e88db70d3494efa70f7eaa0d987a91f8250ff44ad7b1d0df5ae11"


def test_a_generator_is_fresh_each_time_it_is_asked_for():
    streams = Streams(5, KEY)
    first = noise(streams, 2)
    noise(streams, 1)
    assert first.tolist() == noise(streams, 2).tolist()


def test_the_seed_and_rounds_that_shared_their_noise_no_longer_do():
    """Seed 2315, rounds 1234 and 1570: their 63-bit seeds agree in the low 32 bits, all that torch uses on a CPU."""
    public = Streams(2315)
    old = [torch.randn(510, generator=public.torch("noise", r)) for r in (1234, 1570)]
    assert torch.equal(*old)
    assert public.key("noise", 1234) != public.key("noise", 1570)
    new = [noise(Streams(2315, KEY, "run"), r) for r in (1234, 1570)]
    assert (new[0] == new[1]).mean() < 0.01
    assert abs(np.corrcoef(*new)[0, 1]) < 5 / 510**0.5


def test_who_knows_the_seed_and_all_that_is_shown_but_not_the_key_subtracts_nothing():
    """The attack that worked: try the public seeds 0 to 99, and every guess of a key somebody might have typed."""
    message = noise(Streams(42, KEY, "run"), 17)
    guesses = [KEY[:15] + b"\x00", KEY[::-1], bytes(16), b"\x00" * 64, b"dpflbench noise!"]
    for seed, guess in itertools.product(range(100), guesses):
        assert (
            message - noise(Streams(seed, guess, "run"), 17)
        ).std() > 1.1  # two noises, sqrt(2): never one's absence


@pytest.mark.parametrize("bit", range(128))
def test_each_bit_of_the_key_makes_another_noise(bit):
    """No bit is ignored, as those above the 32nd were: a search has 2^128 keys before it."""
    other = (int.from_bytes(KEY, "big") ^ 1 << bit).to_bytes(16, "big")
    a, b = (noise(Streams(1, key, "run")) for key in (KEY, other))
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / 510**0.5
    assert (a == b).mean() < 0.01


def test_noise_is_another_for_each_run_seed_purpose_and_round_unless_it_is_paired():
    base = Streams(1, KEY, "a")
    others = [Streams(1, KEY, "b"), Streams(2, KEY, "a"), Streams(1, KEY, ""), Streams(1, KEY + b"\0", "a")]
    streams = [base.stream_key("noise", 0), base.stream_key("probe", 0), base.stream_key("noise", 1)]
    streams += [s.stream_key("noise", 0) for s in others]
    assert len(set(streams)) == 7
    assert Streams(1, KEY).stream_key("noise", 0) == Streams(1, KEY, run="").stream_key("noise", 0)  # paired


def test_no_name_of_a_run_can_pass_for_another_run_and_round():
    odd = ["", "a", "/a", "0/a", "noise/0/a", "1/noise/0/a", "a/", "\u00e9"]
    keys = {Streams(s, KEY, run).stream_key("noise", r) for run in odd for s in (1, 11) for r in (0, 10)}
    assert len(keys) == 4 * len(odd)


def test_two_million_streams_of_a_key_are_all_different():
    """By 64 of their 256 bits, where chance has one coincidence in 1e7 such tests; of the 32 bits of old, a million
    streams had 109.
    """
    streams = Streams(0, KEY, "run")
    heads = b"".join(streams.stream_key(p, r)[:8] for p in ("noise", "probe") for r in range(1_000_000))
    assert len(heads) == 16_000_000
    assert coincidences(np.frombuffer(heads, dtype=np.uint64)) == 0


def test_streams_side_by_side_are_uncorrelated_and_follow_one_law():
    """All pairs of 40 streams that differ in round, run, seed or purpose: 780 correlations are standard normal."""
    n = 20_000
    some = [
        (Streams(s, KEY, r), t, p) for s in (0, 1) for r in ("a", "b") for t in range(5) for p in ("noise", "probe")
    ]
    rows = np.stack([noise(s, t, p, n) for s, t, p in some])
    r = np.corrcoef(rows)[np.triu_indices(len(rows), 1)] * n**0.5
    assert np.abs(r).max() < 5
    assert stats.kstest(r, stats.norm.cdf).pvalue > 1e-3
    squares = np.corrcoef(rows**2)[np.triu_indices(len(rows), 1)] * n**0.5
    assert np.abs(squares).max() < 5.5
    pairs = [stats.ks_2samp(a, b).pvalue for a, b in itertools.pairwise(rows)]
    assert min(pairs) > 1e-3 / len(pairs)


def test_words_of_many_streams_coincide_as_often_as_chance_has_it():
    """Birthdays: 2^11 streams of 2^10 words make 2^41 pairs, of which one agrees in 41 bits and 256 agree in 33."""
    streams = Streams(0, KEY, "run")
    found = np.concatenate([words(streams.draws("noise", r), 1024) for r in range(2048)])
    for shift in (0, 6, 11):
        days = found >> np.uint64(shift) & np.uint64(2**41 - 1)
        assert coincidences(days) <= 7  # eight would be one chance in 100,000
        assert 176 < coincidences(days >> np.uint64(8)) < 336  # five standard deviations


def test_positions_of_consecutive_rounds_share_nothing():
    """The first word of 20,000 consecutive rounds is a sequence without memory, bit by bit."""
    streams = Streams(0, KEY, "run")
    first = np.array([words(streams.draws("noise", r), 1)[0] for r in range(20_000)])
    for bit in range(52):
        ones = first >> np.uint64(bit) & np.uint64(1)
        assert abs(ones.mean() - 0.5) < 5 * 0.5 / 20_000**0.5
        assert abs((ones[1:] ^ ones[:-1]).mean() - 0.5) < 5 * 0.5 / 20_000**0.5


def test_without_a_key_there_is_no_noise():
    for key in (b"", b"x" * 15, b"x" * 65):
        with pytest.raises(DpflbenchError, match=rf"noise: its key has {8 * len(key)} bits; allowed: 128 to 512"):
            Streams(1, key).draws("noise", 0)


def test_keys_are_fresh_and_are_written_in_hexadecimal():
    assert len({fresh_key() for _ in range(100)}) == 100
    assert len(fresh_key()) == 16
    assert key_of(KEY.hex(), "--noise-key") == KEY
    for wrong in ("", "00" * 15, "00" * 65, "0" * 33, "zz" * 16):
        with pytest.raises(DpflbenchError, match=r"^--noise-key: '.*' is no noise key; allowed: 32 to 128 hexadecimal"):
            key_of(wrong, "--noise-key")


def test_a_key_does_not_show_where_streams_are_printed():
    assert "secret" not in repr(Streams(1, KEY, "run"))


def test_building_a_module_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first = Streams(1).isolated("init", lambda: torch.nn.Linear(3, 2).weight.detach().clone())
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(10)
    second = Streams(1).isolated("init", lambda: torch.nn.Linear(3, 2).weight.detach().clone())
    assert torch.equal(first, second)
    assert not torch.equal(first, Streams(2).isolated("init", lambda: torch.nn.Linear(3, 2).weight.detach().clone()))
