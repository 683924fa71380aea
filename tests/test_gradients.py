"""The engine against an oracle written here: torch.func in float64, one sample at a time, clipped as the definition
says.
"""

import itertools
from copy import deepcopy
from functools import lru_cache

import numpy as np
import pytest
import torch
from gradient_tasks import SIZES, Shift, distance_to_a_kink, model_and_task, rng, task_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients import MARGIN, Engine, initial_theta, layout_of
from dpflbench.federation.gradients.chunks import cut, fitting
from dpflbench.federation.gradients.pooling import PairMax
from dpflbench.federation.gradients.self_test import sample_bytes
from dpflbench.interfaces import IDENTITY
from dpflbench.tasks.models import MODELS
from dpflbench.tasks.task import Shards

COHORT = np.array([3, 1, 4, 2])
BOTH_NORMS = list(itertools.product(MODELS, (1, 2)))


def oracle(module, shards, n_classes, cohort, order=2, bound=None, transform=IDENTITY, phi=None):
    """[K, D + P] sums of per-sample gradients clipped to a margin below bound [K]; module, phi and data in float64."""
    params = {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}

    def loss(params, phi, x, y):
        x = transform.apply(phi[None], x[None]) if phi.numel() else x[None]
        out = functional_call(module, params, (x,))
        return nn.functional.cross_entropy(out, y[None]) if n_classes else ((out[0, 0] - y) ** 2)

    rows = []
    for k, client in enumerate(cohort):
        start, stop = shards.offsets[client], shards.offsets[client + 1]
        own = torch.zeros(0, dtype=torch.float64) if phi is None else phi[k]
        if start == stop:
            rows.append(torch.zeros(sum(p.numel() for p in params.values()) + own.numel(), dtype=torch.float64))
            continue
        by_name, by_phi = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, None, 0, 0))(
            params, own, shards.x[start:stop], shards.y[start:stop]
        )
        g = torch.cat([*[v.flatten(1) for v in by_name.values()], by_phi.flatten(1)], 1)
        if bound is not None:
            g = g * ((1.0 - MARGIN) * bound[k] / g.norm(order, dim=1, keepdim=True)).clamp(max=1.0)
        rows.append(g.sum(0))
    return torch.stack(rows)


def difference(found, expected):
    both = torch.cat([found.theta, found.phi], 1).double()
    return float((both - expected).norm() / expected.norm())


def halving(module, shards, n_classes, order, transform=IDENTITY, phi=None):
    """Bounds that clip some samples of the cohort and leave others alone."""
    typical = oracle(module, shards, n_classes, COHORT, transform=transform, phi=phi).norm(order, dim=1)
    return (typical / torch.from_numpy(SIZES[COHORT] + 1)).clamp(min=0.1) * 0.8


# ---------------------------------------------------------------- correctness on every model


@pytest.mark.parametrize(("name", "order"), BOTH_NORMS)
def test_the_fast_path_equals_the_oracle_with_ragged_clients(name, order):
    module, shards, n_classes = model_and_task(name)
    bound = halving(module, shards, n_classes, order)
    engine = Engine(module, n_classes, order, chunk=4)
    found = engine.clipped_sums(initial_theta(module), torch.zeros(4, 0), shards, COHORT, bound)
    assert engine.path == "bookkeeping"
    assert difference(found, oracle(module, shards, n_classes, COHORT, order, bound)) < 1e-12
    unclipped = engine.clipped_sums(initial_theta(module), torch.zeros(4, 0), shards, COHORT, None)
    assert difference(unclipped, oracle(module, shards, n_classes, COHORT)) < 1e-12
    assert not torch.allclose(found.theta, unclipped.theta)


@lru_cache
def smooth_task(name):
    """As `model_and_task`, of samples at which the model is smooth: 2e-5 away from kinks, where float32 errs by 1e-5 at
    most.

    A ReLU input of 2e-7 may have the other sign in float32, as the processor's kernels add up. The gradient, right for
    either sign, then jumps by 1e-3, and says nothing of the engine. Of ResNet-20's samples, with 188,000 such inputs
    each, one in ten is far enough from all of them.
    """
    module, shards, n_classes = model_and_task(name)
    found, drawn = shards.x[:0], rng(11)
    while len(found) < len(shards.x):
        x = torch.randn(64, *shards.x.shape[1:], generator=drawn, dtype=torch.float64)
        found = torch.cat([found, x[distance_to_a_kink(module, x) > 2e-5]])
    return module, Shards(found[: len(shards.x)], shards.y, shards.offsets), n_classes


@pytest.mark.parametrize(("name", "order"), BOTH_NORMS)
def test_single_precision_stays_within_a_millionth_of_the_oracle(name, order):
    module, shards, n_classes = smooth_task(name)
    bound = halving(module, shards, n_classes, order)
    expected = oracle(module, shards, n_classes, COHORT, order, bound)
    single = deepcopy(module).float()
    engine = Engine(single, n_classes, order)
    y = shards.y if n_classes else shards.y.float()
    found = engine.clipped_sums(
        initial_theta(single), torch.zeros(4, 0), Shards(shards.x.float(), y, shards.offsets), COHORT, bound.float()
    )
    assert difference(found, expected) < 1e-6


@pytest.mark.parametrize(("name", "order"), [c for c in BOTH_NORMS if c[0] != "lenet5"])
def test_with_personal_transforms_the_norm_is_joint_over_theta_and_phi(name, order):
    module, shards, n_classes = model_and_task(name)
    size = 2 * shards.x[0].numel()
    phi = 0.1 * torch.randn(4, size, generator=rng(3), dtype=torch.float64)
    bound = halving(module, shards, n_classes, order, Shift(), phi)
    engine = Engine(module, n_classes, order, Shift(), size, chunk=4)
    found = engine.clipped_sums(initial_theta(module), phi, shards, COHORT, bound)
    assert engine.path == "bookkeeping"
    assert difference(found, oracle(module, shards, n_classes, COHORT, order, bound, Shift(), phi)) < 1e-12


def test_a_personal_normalisation_moves_the_gradient_of_norm_layers_from_theta_to_the_tail_of_phi():
    module, shards, n_classes = model_and_task("femnist_cnn")
    layout, size = layout_of(module), 2 * 28 * 28
    norms = [t for t in layout.tensors if t.norm]
    assert [t.name for t in norms] == ["1.weight", "1.bias", "5.weight", "5.bias"]
    theta, phi = initial_theta(module), torch.zeros(4, size + 48, dtype=torch.float64)
    tail = torch.cat([torch.arange(t.start, t.stop) for t in norms])
    engine = Engine(module, n_classes, 2, Shift(norm_local=True), size + 48)
    assert engine.path == "torch.func: normalisation is personal"
    found = engine.clipped_sums(theta, phi, shards, COHORT, None)
    shared = oracle(module, shards, n_classes, COHORT, transform=Shift(), phi=phi[:, :size])
    assert torch.allclose(found.phi[:, size:], shared[:, tail])
    assert torch.allclose(found.phi[:, :size], shared[:, layout.dim :])
    assert not found.theta[:, tail].any()
    rest = np.setdiff1d(np.arange(layout.dim), tail)
    assert torch.allclose(found.theta[:, rest], shared[:, rest])


def test_a_personal_normalisation_is_added_to_theta_s_in_predictions_too():
    module, shards, n_classes = model_and_task("femnist_cnn")
    size, theta = 2 * 28 * 28, initial_theta(module)
    tail = 0.3 * torch.randn(48, generator=rng(5), dtype=torch.float64)
    moved, at = theta.clone(), 0
    for t in layout_of(module).tensors:
        if t.norm:
            n = t.stop - t.start
            moved[t.start : t.stop] += tail[at : at + n]
            at += n
    phi = torch.cat([torch.zeros(size, dtype=torch.float64), tail])
    engine = Engine(module, n_classes, 2, Shift(norm_local=True), size + 48)
    assert torch.allclose(
        engine.predict(theta, phi.expand(12, -1), shards.x), Engine(module, n_classes, 2).predict(moved, None, shards.x)
    )


def test_opacus_agrees_on_lenet():
    opacus = pytest.importorskip("opacus.grad_sample", reason="opacus is in the extra 'bench'")
    module, shards, n_classes = model_and_task("lenet5")
    peer = opacus.GradSampleModule(deepcopy(module), loss_reduction="sum")
    nn.functional.cross_entropy(peer(shards.x), shards.y, reduction="sum").backward()
    rows = torch.cat([p.grad_sample.flatten(1) for p in peer.parameters()], 1)
    found = Engine(module, n_classes, 2).clipped_sums(
        initial_theta(module), torch.zeros(12, 0), Shards(shards.x, shards.y, np.arange(13)), np.arange(12), None
    )
    assert torch.allclose(found.theta, rows)


# ---------------------------------------------------------------- numbers to check by hand


def one_weight(order, clip):
    module = nn.Linear(1, 1).double()
    shards = Shards(
        torch.tensor([[3.0]], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64), np.array([0, 1])
    )
    theta = torch.tensor([1.0, 0.0], dtype=torch.float64)
    bound = None if clip is None else torch.tensor([clip], dtype=torch.float64)
    return Engine(module, 0, order).clipped_sums(theta, torch.zeros(1, 0), shards, np.array([0]), bound, loss_bound=2.5)


def test_the_gradient_of_a_squared_error_is_twice_the_error_times_the_input():
    sums = one_weight(2, None)  # f(3) = 3, error 2: gradient 2 · 2 · (3, 1)
    assert sums.theta.tolist() == [[12.0, 4.0]]
    assert sums.losses.tolist() == [2.5 * (1 - MARGIN)]  # 4, clipped


def test_l1_clipping_halves_a_gradient_of_l1_norm_16_at_bound_8():
    assert one_weight(1, 8.0).theta[0].tolist() == pytest.approx([6.0 * (1 - MARGIN), 2.0 * (1 - MARGIN)], rel=1e-12)


def test_l2_clipping_brings_the_gradient_to_its_bound():
    short = (1 - MARGIN) / 160**0.5
    assert one_weight(2, 1.0).theta[0].tolist() == pytest.approx([12 * short, 4 * short], rel=1e-12)


def test_a_bound_above_the_norm_changes_nothing():
    assert one_weight(1, 16.1).theta.tolist() == [[12.0, 4.0]]


def test_losses_are_clipped_sample_by_sample_and_summed_by_client():
    module = nn.Linear(2, 3, bias=False).double()
    x = torch.zeros(3, 2, dtype=torch.float64)  # all outputs 0: each loss is ln 3 = 1.0986
    shards = Shards(x, torch.tensor([0, 1, 2]), np.array([0, 1, 3]))
    engine = Engine(module, 3, 2)
    for bound, expected in ((9.0, [np.log(3), 2 * np.log(3)]), (1.0, [1.0 - MARGIN, 2.0 - 2 * MARGIN])):
        sums = engine.clipped_sums(initial_theta(module), torch.zeros(2, 0), shards, np.array([0, 1]), None, bound)
        assert sums.losses.tolist() == pytest.approx(expected)
    assert engine.losses(initial_theta(module), None, x, shards.y).tolist() == pytest.approx([np.log(3)] * 3)


def test_byte_images_are_scaled_to_the_unit_interval():
    module, _, n_classes = model_and_task("mnist_cnn", torch.float32)
    bytes_ = torch.randint(256, (6, 1, 28, 28), generator=rng(), dtype=torch.uint8)
    y, offsets = torch.arange(6), np.array([0, 2, 6])
    engine, theta = Engine(module, n_classes, 2), initial_theta(module)
    a, b = (
        engine.clipped_sums(theta, torch.zeros(2, 0), Shards(x, y, offsets), np.array([0, 1]), torch.ones(2)).theta
        for x in (bytes_, bytes_.float() / 255)
    )
    assert torch.equal(a, b)
    assert torch.equal(engine.predict(theta, None, bytes_), engine.predict(theta, None, bytes_.float() / 255))


# ---------------------------------------------------------------- layers


def agrees(module, input_shape, n_classes=3, tokens=None):
    """The engine's path, after comparing it with the oracle in both norms."""
    module = module.double()
    shards = task_of(input_shape, n_classes)
    if tokens:
        shards = Shards(torch.randint(tokens, shards.x.shape, generator=rng(9)), shards.y, shards.offsets)
    for order in (1, 2):
        bound = halving(module, shards, n_classes, order)
        engine = Engine(module, n_classes, order, chunk=5)
        found = engine.clipped_sums(initial_theta(module), torch.zeros(4, 0), shards, COHORT, bound)
        assert difference(found, oracle(module, shards, n_classes, COHORT, order, bound)) < 1e-12
    return engine.path


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([1, 2, 4, 6]),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(1, 2),
    st.booleans(),
)
def test_convolutions_of_any_stride_padding_dilation_and_groups(
    channels, width, groups, kh, kw, stride, padding, dilation, bias
):
    groups = groups if channels % groups == 0 else 1
    conv = nn.Conv2d(channels, width, (kh, kw), stride, padding, dilation, groups, bias)
    module = nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3))
    assert agrees(module, (channels, 7, 6)) == "bookkeeping"


@pytest.mark.parametrize("kernel", [2, 3])
def test_a_convolution_that_keeps_the_size_by_name(kernel):
    module = nn.Sequential(nn.Conv2d(2, 4, kernel, padding="same"), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 25, 3))
    assert agrees(module, (2, 5, 5)) == "bookkeeping"


def test_layer_norm_and_linear_layers_over_positions():
    module = nn.Sequential(
        nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 2, bias=False), nn.Flatten(), nn.Linear(10, 3)
    )
    assert agrees(module, (5, 4)) == "bookkeeping"


def test_group_norm_with_and_without_a_convolution_before():
    assert agrees(nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4 * 9, 3)), (4, 3, 3)) == "bookkeeping"
    assert (
        agrees(nn.Sequential(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4 * 9, 3)), (4, 3, 3))
        == "bookkeeping"
    )


@pytest.mark.parametrize("padding_idx", [None, 1])
def test_an_embedding_adds_up_equal_tokens_before_the_norm(padding_idx):
    module = nn.Sequential(nn.Embedding(3, 4, padding_idx=padding_idx), nn.Flatten(), nn.Linear(6 * 4, 3))
    assert agrees(module, (6,), tokens=3) == "bookkeeping"  # six positions, three tokens: repetitions are certain


def test_frozen_parameters_are_no_part_of_theta_and_stay_where_they_are():
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    module[0].weight.requires_grad_(False)
    assert layout_of(module).dim == 5 + 15 + 3
    assert agrees(module, (4,)) == "bookkeeping"


@pytest.mark.parametrize("bias", [True, False])
def test_wide_inputs_of_scattered_clients_are_used_where_they_lie(bias):
    assert agrees(nn.Sequential(nn.Flatten(), nn.Linear(4000, 3, bias)), (40, 100)) == "bookkeeping"


def test_an_affine_map_with_frozen_weight_is_treated_too():
    module = nn.Linear(4, 3)
    module.weight.requires_grad_(False)
    assert agrees(module, (4,)) == "bookkeeping"


class Gate(nn.Module):
    """A layer the rules do not know."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.scale


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(torch.tanh(self.a(x)))))


class Behind(nn.Module):
    """Uses a layer's weight behind its back: the rules see only half of the gradient."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)) @ self.a.weight)


class Overwrites(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.b(torch.relu_(self.a(x)))


class Coupled(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, x):
        return self.a(x - x.mean(0))


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Sequential(Gate(), nn.Linear(4, 3)), "0 is Gate"),
        (nn.Sequential(nn.Linear(4, 4), nn.PReLU(), nn.Linear(4, 3)), "1 is PReLU"),
        (Twice(), "model.a (Linear) runs more than once"),
        (Behind(), "a.weight is used outside its layer"),
        (Overwrites(), "relu_ in its forward is not known to keep samples apart"),
    ],
)
def test_what_the_rules_cannot_treat_goes_through_torch_func_and_says_why(module, why):
    path = agrees(module, (4,))
    assert path.startswith("torch.func: ")
    assert why in path


def test_a_convolution_with_reflected_padding_goes_through_torch_func():
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(2 * 16, 3))
    assert agrees(module, (1, 4, 4)) == "torch.func: model.0 is Conv2d with reflect padding"


def test_a_relu_that_overwrites_its_input_is_no_obstacle():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))
    assert agrees(module, (4,)) == "bookkeeping"
    assert module[1].inplace


def test_a_module_whose_samples_see_each_other_is_refused():
    shards = task_of((4,), 3)
    with pytest.raises(DpflbenchError, match=r"Coupled: .* depends on others in its batch.*\(mean in its forward"):
        Engine(Coupled().double(), 3, 2).clipped_sums(torch.zeros(15).double(), torch.zeros(4, 0), shards, COHORT, None)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.integers(0, 1000))
def test_fast_pooling_is_torch_s_bit_by_bit_even_where_numbers_are_equal(channels, h, w, relu, seed):
    x = (
        torch.randint(-2, 3, (2, channels, 2 * h, 2 * w), generator=rng(seed)).float().requires_grad_()
    )  # ties everywhere
    fast, slow = PairMax.apply(x, relu), nn.functional.max_pool2d(torch.relu(x) if relu else x, 2)
    g = torch.randn(slow.shape, generator=rng(seed))
    assert torch.equal(fast, slow)
    assert torch.equal(torch.autograd.grad(fast, x, g)[0], torch.autograd.grad(slow, x, g)[0])


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize(("name", "order"), [c for c in BOTH_NORMS if c[0] not in ("linear", "mnist_cnn")])
def test_clipping_never_lengthens(name, order):
    module, shards, n_classes = model_and_task(name, torch.float32)
    each = Shards(shards.x, shards.y, np.arange(13))  # one sample a client: a sum is one clipped gradient
    engine, clip = Engine(module, n_classes, order), 0.37
    free = (
        engine.clipped_sums(initial_theta(module), torch.zeros(12, 0), each, np.arange(12), None)
        .theta.double()
        .norm(order, dim=1)
    )
    kept = engine.clipped_sums(initial_theta(module), torch.zeros(12, 0), each, np.arange(12), torch.full((12,), clip))
    norms = kept.theta.double().norm(order, dim=1)
    assert (free > clip).any()
    assert float(norms.max()) <= clip
    assert torch.allclose(norms, free.clamp(max=clip * (1 - MARGIN)), rtol=1e-5)


OVERFLOWS = [*((name, order, False) for name, order in BOTH_NORMS), ("mnist_cnn", 2, True), ("lenet5", 1, True)]


@pytest.mark.parametrize(("name", "order", "personal"), OVERFLOWS)
def test_a_sample_whose_gradient_overflows_counts_as_nothing_and_tells_nothing(name, order, personal):
    """Else a sum that is not finite ends the run, and that it ended tells of one client's sample."""
    module, shards, n_classes = model_and_task(name, torch.float32)
    transform, phi = (
        (Shift(), torch.zeros(len(COHORT), 2 * shards.x[0].numel()))
        if personal
        else (IDENTITY, torch.zeros(len(COHORT), 0))
    )
    engine, bound = Engine(module, n_classes, order, transform, phi.shape[1]), torch.full((len(COHORT),), 0.5)
    shards.x[5] = 3e38  # of client 3, the first of the cohort
    theta = 30.0 * initial_theta(module)
    found = engine.clipped_sums(theta, phi, shards, COHORT, bound, 2.0)
    without = [i for i in range(len(shards.y)) if i != 5]
    rest = Shards(shards.x[without], shards.y[without], shards.offsets - (shards.offsets > 5))
    expected = engine.clipped_sums(theta, phi, rest, COHORT, bound, 2.0)
    assert bool(torch.isfinite(found.theta).all())
    assert bool(torch.isfinite(found.phi).all())
    torch.testing.assert_close(torch.cat([found.theta, found.phi], 1), torch.cat([expected.theta, expected.phi], 1))
    assert 0.0 <= float(found.losses[0] - expected.losses[0]) <= 2.0 + 1e-5
    torch.testing.assert_close(found.losses[1:], expected.losses[1:])


def test_without_clipping_an_overflow_stays_visible():
    module, shards, n_classes = model_and_task("softmax", torch.float32)
    shards.x[5] = 3e38
    sums = Engine(module, n_classes, 2).clipped_sums(
        30.0 * initial_theta(module), torch.zeros(4, 0), shards, COHORT, None
    )
    assert not bool(torch.isfinite(sums.theta).all())


def test_the_order_of_samples_and_of_clients_does_not_matter():
    module, shards, n_classes = model_and_task("lenet5")
    engine, theta, bound = Engine(module, n_classes, 2, chunk=4), initial_theta(module), torch.full((4,), 0.5).double()
    before = engine.clipped_sums(theta, torch.zeros(4, 0), shards, COHORT, bound).theta
    order = np.concatenate([shards.offsets[n] + np.random.default_rng(n).permutation(SIZES[n]) for n in range(5)])
    shuffled = Shards(shards.x[order], shards.y[order], shards.offsets)
    assert torch.allclose(
        engine.clipped_sums(theta, torch.zeros(4, 0), shuffled, COHORT, bound).theta, before, rtol=1e-10
    )
    turned = engine.clipped_sums(theta, torch.zeros(4, 0), shards, COHORT[::-1].copy(), bound).theta
    assert torch.allclose(turned.flip(0), before, rtol=1e-10)


@pytest.mark.parametrize("chunk", [1, 2, 3, 100, None])
def test_the_chunk_size_changes_nothing_beyond_rounding(chunk):
    module, shards, n_classes = model_and_task("femnist_cnn")
    bound = torch.full((4,), 0.5).double()
    found = Engine(module, n_classes, 2, chunk=chunk).clipped_sums(
        initial_theta(module), torch.zeros(4, 0), shards, COHORT, bound
    )
    assert difference(found, oracle(module, shards, n_classes, COHORT, 2, bound)) < 1e-12


def test_nobody_selected_gives_no_rows_and_a_client_without_samples_a_row_of_zeros():
    module, shards, n_classes = model_and_task("mnist_cnn")
    engine, theta = Engine(module, n_classes, 2), initial_theta(module)
    nobody = engine.clipped_sums(
        theta, torch.zeros(0, 0), shards, np.zeros(0, dtype=np.int64), torch.zeros(0).double(), 1.0
    )
    assert nobody.theta.shape == (0, 4266)
    assert nobody.losses.shape == (0,)
    empty = engine.clipped_sums(theta, torch.zeros(1, 0), shards, np.array([2]), torch.ones(1).double(), 1.0)
    assert not empty.theta.any()
    assert empty.losses.tolist() == [0.0]


@pytest.mark.parametrize("name", ["softmax", "lenet5", "femnist_cnn"])
def test_the_same_call_gives_the_same_bits_whatever_came_before(name):
    module, shards, n_classes = model_and_task(name, torch.float32)
    theta, bound = initial_theta(module), torch.full((4,), 0.5)
    used = Engine(module, n_classes, 2)
    for cohort in (np.array([0, 3, 2, 1]), np.array([4, 0, 1, 3])):
        used.clipped_sums(theta, torch.zeros(4, 0), shards, cohort, bound)
    fresh = Engine(module, n_classes, 2).clipped_sums(theta, torch.zeros(4, 0), shards, COHORT, bound)
    assert torch.equal(used.clipped_sums(theta, torch.zeros(4, 0), shards, COHORT, bound).theta, fresh.theta)


def test_data_that_changed_in_place_is_seen():
    module, shards, n_classes = model_and_task("softmax")
    engine, theta, bound = Engine(module, n_classes, 2), initial_theta(module), torch.full((4,), 0.5).double()
    engine.clipped_sums(theta, torch.zeros(4, 0), shards, COHORT, bound)
    shards.x.mul_(3.0)
    found = engine.clipped_sums(theta, torch.zeros(4, 0), shards, COHORT, bound)
    assert difference(found, oracle(module, shards, n_classes, COHORT, 2, bound)) < 1e-12


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 12))
def test_chunks_hold_every_sample_once_and_keep_to_their_size(sizes, size):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    chunks = cut(offsets, np.arange(len(sizes)), size)
    seen = [(p.row, i) for c in chunks for p in c.pieces for i in range(p.start, p.stop)]
    assert sorted(seen) == [(n, i) for n in range(len(sizes)) for i in range(offsets[n], offsets[n + 1])]
    assert all(sum(p.stop - p.start for p in c.pieces) <= size for c in chunks)


def test_a_chunk_fits_the_cache_is_not_tiny_and_keeps_within_the_memory():
    cpu = torch.device("cpu")
    assert fitting(1 << 16, cpu) == 384  # 24 MB of 64 KB samples
    assert fitting(1 << 22, cpu) == 32  # 6 would fit the cache
    assert fitting(1 << 26, cpu) == 8  # 512 MB of 64 MB samples
    assert fitting(1 << 30, cpu) == 1


def test_the_room_of_a_sample_counts_inputs_outputs_and_the_gradients_kept_by_row():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 3))
    # 25 pixels, 2·9 maps twice (convolution, flattened), 3 outputs, 20 numbers of the convolution; none of the Linear
    # layer's 57
    assert sample_bytes(module, torch.zeros(4, 1, 5, 5)) == 4 * (25 + 18 + 18 + 3 + 20)


# ---------------------------------------------------------------- devices


def test_mixed_devices_are_refused():
    module, shards, n_classes = model_and_task("softmax")
    with pytest.raises(DpflbenchError, match="tensors on cpu and meta; all must be on one device"):
        Engine(module, n_classes, 2).clipped_sums(
            initial_theta(module), torch.zeros(4, 0), shards, COHORT, torch.ones(4, device="meta")
        )


@pytest.mark.parametrize(("name", "phi_dim"), [*((n, 0) for n in MODELS), ("mnist_cnn", 2 * 28 * 28)])
def test_a_pass_never_looks_at_a_number_on_the_device(name, phi_dim, monkeypatch):
    """On the meta device tensors have no numbers: a read-back, a branch on a value or a tensor left on the host would
    raise.

    One look is allowed, after the pass: whether all norms are what float32 can clip.
    """
    looks = []
    monkeypatch.setattr("dpflbench.federation.gradients.engine._holds", lambda fact: looks.append(fact.shape) or True)
    module, shards, n_classes = model_and_task(name, torch.float32)
    away = Shards(shards.x.to("meta"), shards.y.to("meta"), shards.offsets)
    engine = Engine(module, n_classes, 2, Shift() if phi_dim else IDENTITY, phi_dim, chunk=4)
    theta = initial_theta(module).to("meta")
    sums = engine.clipped_sums(
        theta, torch.zeros(4, phi_dim, device="meta"), away, COHORT, torch.ones(4, device="meta"), 1.0
    )
    assert sums.theta.shape == (4, theta.numel())
    assert sums.losses.device.type == "meta"
    assert looks == [()]


def test_the_chunk_is_halved_until_it_fits_the_memory(monkeypatch):
    module, shards, n_classes = model_and_task("mnist_cnn")
    tried, whole = [], Engine._pass

    def scarce(self, *args):
        tried.append(self.chunk)
        if self.chunk > 3:
            raise torch.OutOfMemoryError
        return whole(self, *args)

    monkeypatch.setattr(Engine, "_pass", scarce)
    engine = Engine(module, n_classes, 2, chunk=12)
    found = engine.clipped_sums(initial_theta(module), torch.zeros(4, 0), shards, COHORT, None)
    assert tried == [12, 6, 3]
    assert difference(found, oracle(module, shards, n_classes, COHORT)) < 1e-12
    assert engine.chunk == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize(("name", "order"), BOTH_NORMS)
def test_a_gpu_gives_what_the_cpu_gives(name, order):
    module, shards, n_classes = model_and_task(name)
    bound = halving(module, shards, n_classes, order)
    away = Shards(shards.x.cuda(), shards.y.cuda(), shards.offsets)
    engine = Engine(module, n_classes, order)
    found = engine.clipped_sums(initial_theta(module).cuda(), torch.zeros(4, 0).cuda(), away, COHORT, bound.cuda())
    expected = oracle(module, shards, n_classes, COHORT, order, bound)
    assert float((found.theta.cpu() - expected).norm() / expected.norm()) < 1e-12
