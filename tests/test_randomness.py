"""Which seed controls which draw."""

import torch

from dpflbench.randomness import Streams


def test_streams_differ_by_seed_purpose_and_round_and_by_nothing_else():
    keys = {Streams(s).key(p, r) for s in (0, 1) for p in ("noise", "select") for r in (0, 1, -1)}
    assert len(keys) == 12
    assert Streams(3).key("noise", 7) == Streams(3).key("noise", 7)


def test_the_key_of_a_stream_never_changes_between_versions():
    assert Streams(0).key("split") == 0x4DDB8B29B9D2026B  # the first 63 bits of SHA-256 of "dpflbench/0/split/0"
    assert Streams(10**12).key("noise", 10**6) < 2**63


def test_a_generator_is_fresh_each_time_it_is_asked_for():
    streams = Streams(5)
    a = torch.randn(4, generator=streams.torch("noise", 2))
    torch.randn(100, generator=streams.torch("noise", 1))
    assert torch.equal(a, torch.randn(4, generator=streams.torch("noise", 2)))


def test_building_a_module_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first = Streams(1).isolated("init", lambda: torch.nn.Linear(3, 2).weight.detach().clone())
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(10)
    second = Streams(1).isolated("init", lambda: torch.nn.Linear(3, 2).weight.detach().clone())
    assert torch.equal(first, second)
    assert not torch.equal(first, Streams(2).isolated("init", lambda: torch.nn.Linear(3, 2).weight.detach().clone()))
