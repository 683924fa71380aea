"""Sums keep their bound after rounding: one example moves a client's message by 2 clip / n at most, at any size and
magnitude.
"""

from math import fsum

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients import MARGIN, Engine, bounded, initial_theta
from dpflbench.federation.gradients.summation import BLOCK, LARGEST, SEGMENT, product, row_norm
from dpflbench.tasks.task import Shards

U = 2.0**-24
ALONE, NOBODY = np.array([0]), torch.zeros(1, 0)


def length(v, order):
    """The norm, exact to the last bit of a float64."""
    values = v.double().flatten().tolist()
    return fsum(map(abs, values)) if order == 1 else fsum(x * x for x in values) ** 0.5


class Gate(nn.Module):
    """A layer without a rule: gradients come from torch.func."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return (x * self.scale).sum(1, keepdim=True)


MODULES = {
    "one weight": (lambda: nn.Linear(1, 1), (1,)),
    "narrow": (lambda: nn.Linear(3, 1, bias=False), (3,)),
    "wide": (lambda: nn.Linear(200, 1), (200,)),
    "hidden": (lambda: nn.Sequential(nn.Linear(2, 150), nn.Tanh(), nn.Linear(150, 1)), (2,)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(1, 50, 2), nn.Flatten(), nn.Linear(50, 1)), (1, 2, 2)),
    "torch.func": (Gate, (3,)),
}
CLIPS = [1.0, 0.7, 1.3, 1.9, 0.37, 0.9999999]


def moved(name, n, order, clip, at=0, largest=1e3):
    """By how much the sum moves when one of n equal examples is replaced by its opposite, over its sensitivity 2 clip.

    Targets of ± 1000 give gradients of opposite directions far longer than the clip: the truth is 1.
    """
    build, shape = MODULES[name]
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch.Generator().manual_seed(3).get_state())
        module = build()
        x = (0.5 + torch.rand(1, *shape)).expand(n, *shape).contiguous()
    engine, theta, sums = Engine(module, 0, order), initial_theta(module), []
    for y in (torch.full((n,), largest), torch.full((n,), largest).index_fill(0, torch.tensor([at]), -largest)):
        shards = Shards(x, y, np.array([0, n]))
        sums.append(engine.clipped_sums(theta, NOBODY, shards, ALONE, torch.tensor([clip])).theta[0].double())
    return length(sums[0] - sums[1], order) / (2 * clip)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", MODULES)
def test_one_of_500_examples_moves_the_sum_by_its_sensitivity_at_most(name, order):
    found = [moved(name, 500, order, clip, at) for clip in CLIPS for at in (0, 499)]
    assert min(found) > 1 - 2.5 * MARGIN  # the examples are opposite: nothing is given away
    assert max(found) <= 1


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["one weight", "narrow", "wide", "torch.func"])
def test_one_of_50_000_examples_moves_the_sum_by_its_sensitivity_at_most(name, order):
    assert max(moved(name, 50_000, order, clip) for clip in CLIPS[:3]) <= 1


@pytest.mark.parametrize("name", ["one weight", "narrow", "wide"])
def test_one_of_500_000_examples_moves_the_sum_by_its_sensitivity_at_most(name):
    assert max(moved(name, 500_000, 2, clip) for clip in CLIPS[: 1 if name == "wide" else 3]) <= 1


def test_the_mean_of_500_000_examples_keeps_the_bound_in_float64_and_not_in_float32():
    module, n, exact, rounded = nn.Linear(1, 1), 500_000, [], []
    engine, theta, x = Engine(module, 0, 2), initial_theta(module), torch.ones(n, 1)
    for clip in CLIPS:
        means = []
        for y in (torch.full((n,), 1e3), torch.full((n,), 1e3).index_fill(0, torch.tensor([0]), -1e3)):
            sums = engine.clipped_sums(theta, NOBODY, Shards(x, y, np.array([0, n])), ALONE, torch.tensor([clip]))
            means.append(sums.theta[0] / n)
        exact.append(length(means[0] - means[1], 2) * n / (2 * clip))
        rounded.append(length(means[0].float() - means[1].float(), 2) * n / (2 * clip))
    assert max(exact) <= 1
    assert max(rounded) > 1.005  # why division and noise must be float64 too


@pytest.mark.parametrize("n", [500, 50_000, 500_000])
def test_one_example_moves_the_sum_of_losses_by_the_bound_at_most(n):
    module, worst = nn.Linear(1, 1), 0.0
    theta = torch.zeros(2)
    for bound in (2.3, 1.0, 0.1, 1.7):
        sums = []
        for y in (torch.full((n,), 9.0), torch.full((n,), 9.0).index_fill(0, torch.tensor([0]), 0.0)):
            shards = Shards(torch.ones(n, 1), y, np.array([0, n]))
            engine = Engine(module, 0, 2)
            sums.append(float(engine.clipped_sums(theta, NOBODY, shards, ALONE, torch.ones(1), bound).losses[0]))
        worst = max(worst, abs(sums[0] - sums[1]) / bound)
    assert 1 - 2 * MARGIN < worst <= 1


def test_a_loss_that_is_not_a_number_counts_as_the_bound():
    losses = torch.tensor([float("nan"), float("inf"), -1.0, 0.5])
    top = 2.0 * (1 - MARGIN)
    assert bounded(losses, 2.0).tolist() == [top, top, 0.0, 0.5]


# ---------------------------------------------------------------- parts of the proof


def test_the_margin_covers_rounding_for_every_block_and_size():
    for b in range(1, BLOCK + 1):
        assert (SEGMENT + 8 + b * b) * U + LARGEST**2 * 2.0**-53 / b < MARGIN


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("size", [3, 128, 129, 1000, 40_000])
def test_small_numbers_behind_a_large_one_are_not_lost_from_a_norm(order, size):
    """Each alone would vanish beside the first in a float32 sum; together they make a tenth of it and more."""
    rows = torch.full((2, size), 2.0 ** (-25 if order == 1 else -12.6))
    rows[:, 0] = 1.0
    exact = length(rows[0], order) ** order
    assert abs(float(row_norm(rows, order)[0]) / exact - 1) <= (SEGMENT + 4) * U


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(1, 5), st.sampled_from([1, 7, 128, 129, 300]), st.integers(0, 99))
def test_blocks_hold_every_sample_once(n, outputs, inputs, seed):
    rng = torch.Generator().manual_seed(seed)
    g, a = torch.randn(n, outputs, generator=rng), torch.randn(2, n, inputs, generator=rng)
    torch.testing.assert_close(product(g, a).double(), g.double().T @ a.double(), rtol=1e-5, atol=1e-5)


def test_a_client_beyond_the_proof_and_a_clip_too_small_for_float32_are_refused():
    module, n = nn.Linear(1, 1), LARGEST + 1
    shards = Shards(torch.zeros(1, 1).expand(n, 1), torch.zeros(1).expand(n), np.array([0, n]))
    with pytest.raises(DpflbenchError, match="a client with 1048577 samples; sums keep their bound up to 1048576"):
        Engine(module, 0, 2).clipped_sums(initial_theta(module), NOBODY, shards, ALONE, torch.ones(1))
    few = Shards(torch.zeros(1, 1), torch.zeros(1), np.array([0, 1]))
    with pytest.raises(DpflbenchError, match=r"clip_norm 1e-13; sums keep their bound from 9\.1e-13 on"):
        Engine(module, 0, 2).clipped_sums(initial_theta(module), NOBODY, few, ALONE, torch.full((1,), 1e-13))


# ---------------------------------------------------------------- extremes


def extreme(kind):
    if kind == "linear":
        return nn.Linear(5, 1), (5,)
    if kind == "no bias":
        return nn.Linear(5, 1, bias=False), (5,)
    if kind == "wide":
        return nn.Sequential(nn.Flatten(), nn.Linear(400, 1)), (20, 20)
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 1)), (1, 3, 3)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", ["linear", "no bias", "wide", "convolution"])
@pytest.mark.parametrize("clip", [1e-6, 1e-4, 1.0, 1e6])
def test_a_gradient_of_any_magnitude_is_clipped_to_its_bound(kind, order, clip):
    """Inputs from 1e-30 to 1e30, errors of the same range: products of squares leave float32 on either side."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch.Generator().manual_seed(5).get_state())
        module, shape = extreme(kind)
        module.double()
        for p in module.parameters():
            p.data.mul_(1e-3)
        base = torch.rand(shape, dtype=torch.float64) + 0.5
    inputs, targets = [10.0**e for e in range(-30, 31, 5)], [0.0, 1e-30, 1e-15, 1.0, 1e15, 1e30]
    x = torch.stack([base * s for s in inputs for _ in targets]).float()
    y = torch.tensor([t for _ in inputs for t in targets])
    shards = Shards(x, y, np.arange(len(y) + 1))
    single = module.float()
    theta = initial_theta(single)
    bound = torch.full((len(y),), clip)
    found = Engine(single, 0, order).clipped_sums(theta, torch.zeros(len(y), 0), shards, np.arange(len(y)), bound).theta
    exact = Shards(x.double(), y.double(), shards.offsets)
    free = Engine(module.double(), 0, order).clipped_sums(
        theta.double(), torch.zeros(len(y), 0).double(), exact, np.arange(len(y)), None
    )
    for row, full in zip(found, free.theta, strict=True):
        assert length(row, order) <= clip
        wanted = full * min(1.0, clip * (1 - MARGIN) / max(length(full, order), 1e-300))
        # a gradient by outputs or activations that float32 cannot hold counts as nothing; all others as they are
        assert length(row - wanted, order) <= 1e-4 * clip or not bool(row.any())
    assert int((found != 0).any(1).sum()) > 0.7 * len(y)


@pytest.mark.parametrize("order", [1, 2])
def test_a_tiny_slope_times_a_huge_input_is_not_taken_for_nothing(order):
    """softmax of (52, 0, 0): slopes of 2.6e-23, whose squares float32 takes for 0, times inputs of 1.8e19 and more."""
    module = nn.Linear(2, 3)
    theta = torch.zeros(9)
    theta[6] = 52.0  # the first bias
    for size in (1.8e19, 1e24, 1e30):
        x = torch.zeros(2, 2)
        x[0, 0], x[1, 0] = size, -size
        shards = Shards(x, torch.zeros(2, dtype=torch.int64), np.array([0, 1, 2]))
        both = Engine(module, 3, order).clipped_sums(
            theta, torch.zeros(2, 0), shards, np.arange(2), torch.full((2,), 1e-4)
        )
        assert length(both.theta[0] - both.theta[1], order) <= 2e-4


class Direction(nn.Module):
    """x / |x|: not defined at 0."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 2)

    def forward(self, x):
        return self.a(x / x.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("odd", [0.0, 1e-30])
def test_a_model_undefined_at_0_meets_an_example_it_cannot_treat_and_no_message_tells(odd):
    module = Direction()
    x, y = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1, 0, 1])
    x[1] = odd
    shards, cohort, bound = Shards(x, y, np.array([0, 3, 6])), np.array([0, 1]), torch.full((2,), 0.1)
    engine, theta = Engine(module, 2, 2), initial_theta(module)
    found = engine.clipped_sums(theta, torch.zeros(2, 0), shards, cohort, bound, 1.0)
    without = Shards(x[[0, 2, 3, 4, 5]], y[[0, 2, 3, 4, 5]], np.array([0, 2, 5]))
    expected = engine.clipped_sums(theta, torch.zeros(2, 0), without, cohort, bound, 1.0)
    assert bool(torch.isfinite(found.theta).all())
    torch.testing.assert_close(found.theta, expected.theta)
    assert 0.0 <= float(found.losses[0] - expected.losses[0]) <= 1.0


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["wide", "hidden", "convolution"])
def test_an_example_beyond_float32_leaves_all_others_as_they_are_to_the_bit(name, order):
    """Else the last bits of 5,000 others would move together with it."""
    build, shape = MODULES[name]
    module, n = build(), 5_000
    x = torch.rand(n, *shape, generator=torch.Generator().manual_seed(1))
    y = torch.full((n,), 1e3)
    engine, theta, sums = Engine(module, 0, order), initial_theta(module), []
    for size in (1.0, 3e38):
        changed = x.clone()
        changed[n // 2] *= size
        shards = Shards(changed, y, np.array([0, n // 2, n // 2 + 1, n]))
        sums.append(engine.clipped_sums(theta, torch.zeros(3, 0), shards, np.arange(3), torch.ones(3)).theta)
        whole = Shards(changed, y, np.array([0, n]))
        sums.append(engine.clipped_sums(theta, NOBODY, whole, ALONE, torch.ones(1)).theta)
    assert torch.equal(sums[0][[0, 2]], sums[2][[0, 2]])
    assert length(sums[0][1] - sums[2][1], order) <= 2
    assert length(sums[1] - sums[3], order) <= 2
