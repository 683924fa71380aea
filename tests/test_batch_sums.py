"""Clipped sums of chosen samples at each client's own model, against torch.func mapped over clients and samples."""

import itertools
from copy import deepcopy
from functools import lru_cache

import numpy as np
import pytest
import torch
from gradient_tasks import Shift, distance_to_a_kink, model_and_task, rng, task_of
from torch import nn
from torch.func import functional_call, grad, vmap

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients import MARGIN, Engine, initial_theta, own
from dpflbench.federation.gradients.chunks import Chunk
from dpflbench.federation.gradients.layout import layout_of, unflatten
from dpflbench.interfaces import IDENTITY
from dpflbench.tasks.models import MODELS
from dpflbench.tasks.task import Shards

COUNTS = np.array([5, 0, 2, 4, 0, 1])
ROWS = torch.tensor([8, 5, 6, 11, 9, 0, 2, 3, 10, 4, 7, 1])
BOTH_NORMS = list(itertools.product(MODELS, (1, 2)))


def own_models(module, k=6, size=0.1):
    """[K, D]: the initial model, moved a little and otherwise for every client."""
    theta = initial_theta(module)
    noise = torch.randn(k, len(theta), generator=rng(5), dtype=torch.float64).to(theta)
    return theta + size * theta.abs().mean() * noise


def oracle(module, theta, shards, rows, counts, n_classes, order=2, bound=None, transform=IDENTITY, phi=None):
    """[K, D + P]: batches padded to one size, gradients by vmap over clients of vmap over samples, padding dropped."""
    k, b = len(counts), max(1, int(counts.max()))
    starts = np.cumsum(counts) - counts
    at = torch.zeros(k, b, dtype=torch.int64)
    for n, start, count in zip(range(k), starts, counts, strict=True):
        at[n, :count] = rows[start : start + count]
    there = torch.arange(b) < torch.from_numpy(np.asarray(counts))[:, None]
    layout = layout_of(module)

    def loss(own, phi, x, y):
        x = transform.apply(phi[None], x[None]) if phi.numel() else x[None]
        out = functional_call(module, unflatten(own, layout), (x,))
        return nn.functional.cross_entropy(out, y[None]) if n_classes else ((out[0, 0] - y) ** 2)

    of_samples = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, None, 0, 0))
    phi = theta.new_zeros(k, 0) if phi is None else phi
    g = torch.cat(vmap(of_samples)(theta, phi, shards.x[at], shards.y[at]), 2)
    if bound is not None:
        g = g * ((1.0 - MARGIN) * bound[:, None, None] / g.norm(order, dim=2, keepdim=True)).clamp(max=1.0)
    return (g * there[:, :, None]).sum(1)


def halving(module, theta, shards, n_classes, order, **personal):
    """Bounds that clip some samples of every client and leave others alone."""
    single = oracle(
        module,
        theta.repeat_interleave(torch.from_numpy(COUNTS), 0),
        shards,
        ROWS,
        np.ones(len(ROWS), dtype=np.int64),
        n_classes,
        **{
            name: v if name == "transform" else v.repeat_interleave(torch.from_numpy(COUNTS), 0)
            for name, v in personal.items()
        },
    )
    return single.norm(order, dim=1).median().expand(len(COUNTS)).clone()


def both(sums):
    return torch.cat([sums.theta, sums.phi], 1)


def difference(found, expected):
    return float((both(found) - expected).norm() / expected.norm())


# ---------------------------------------------------------------- correctness on every model


@pytest.fixture(params=["as it chooses", "all clients at once"])
def way(request, monkeypatch):
    """Batched products and groups are what other devices get; a CPU can be told to."""
    if request.param == "all clients at once":
        monkeypatch.setattr(Chunk, "light", lambda *_: True)
        monkeypatch.setattr(own, "by_client", lambda _: False)


@pytest.mark.parametrize(("name", "order"), BOTH_NORMS)
def test_every_model_equals_the_oracle_with_ragged_and_empty_batches(name, order, way):
    module, shards, n_classes = model_and_task(name)
    theta, phi = own_models(module), torch.zeros(len(COUNTS), 0)
    bound = halving(module, theta, shards, n_classes, order)
    engine = Engine(module, n_classes, order)
    found = engine.batch_sums(theta, phi, shards, ROWS, COUNTS, bound)
    assert engine.path == "bookkeeping"
    assert found.losses is None
    assert found.theta.dtype == torch.float64
    assert difference(found, oracle(module, theta, shards, ROWS, COUNTS, n_classes, order, bound)) < 1e-12
    assert not found.theta[[1, 4]].any()
    unclipped = engine.batch_sums(theta, phi, shards, ROWS, COUNTS, None)
    assert difference(unclipped, oracle(module, theta, shards, ROWS, COUNTS, n_classes)) < 1e-12
    assert not torch.allclose(found.theta, unclipped.theta)


@lru_cache
def smooth_batches(name):
    """A module, own models, and shards whose chosen samples are 2e-5 away from the kinks of their client's model."""
    module, shards, n_classes = model_and_task(name)
    theta, x, drawn, at = own_models(module), shards.x.clone(), rng(11), 0
    for model, count in zip(theta, COUNTS, strict=True):
        peer = deepcopy(module)
        nn.utils.vector_to_parameters(model.float().double(), peer.parameters())
        found = x[:0]
        while len(found) < count:
            tried = torch.randn(64, *x.shape[1:], generator=drawn, dtype=torch.float64)
            found = torch.cat([found, tried[distance_to_a_kink(peer, tried) > 2e-5]])
        x[ROWS[at : at + count]] = found[:count]
        at += count
    return module, theta, Shards(x, shards.y, shards.offsets), n_classes


@pytest.mark.parametrize(("name", "order"), BOTH_NORMS)
def test_single_precision_stays_within_a_hundred_thousandth_of_the_oracle(name, order):
    module, theta, shards, n_classes = smooth_batches(name)
    bound = halving(module, theta, shards, n_classes, order)
    expected = oracle(module, theta, shards, ROWS, COUNTS, n_classes, order, bound)
    y = shards.y if n_classes else shards.y.float()
    found = Engine(deepcopy(module).float(), n_classes, order).batch_sums(
        theta.float(),
        torch.zeros(len(COUNTS), 0),
        Shards(shards.x.float(), y, shards.offsets),
        ROWS,
        COUNTS,
        bound.float(),
    )
    assert difference(found, expected) < 1e-5


@pytest.mark.parametrize(("name", "order"), BOTH_NORMS)
def test_with_personal_transforms_the_norm_is_joint_over_theta_and_phi(name, order):
    module, shards, n_classes = model_and_task(name)
    theta, size = own_models(module), 2 * shards.x[0].numel()
    phi = 0.1 * torch.randn(len(COUNTS), size, generator=rng(3), dtype=torch.float64)
    personal = {"transform": Shift(), "phi": phi}
    bound = halving(module, theta, shards, n_classes, order, **personal)
    found = Engine(module, n_classes, order, Shift(), size).batch_sums(theta, phi, shards, ROWS, COUNTS, bound)
    assert difference(found, oracle(module, theta, shards, ROWS, COUNTS, n_classes, order, bound, **personal)) < 1e-12
    assert not found.phi[[1, 4]].any()


def test_a_personal_normalisation_moves_the_gradient_of_norm_layers_from_theta_to_the_tail_of_phi():
    module, shards, n_classes = model_and_task("femnist_cnn")
    layout, size, theta = layout_of(module), 2 * 28 * 28, own_models(module)
    tail = torch.cat([torch.arange(t.start, t.stop) for t in layout.tensors if t.norm])
    phi = torch.zeros(len(COUNTS), size + 48, dtype=torch.float64)
    engine = Engine(module, n_classes, 2, Shift(norm_local=True), size + 48)
    found = engine.batch_sums(theta, phi, shards, ROWS, COUNTS, None)
    assert engine.path == "torch.func: normalisation is personal"
    shared = oracle(module, theta, shards, ROWS, COUNTS, n_classes, transform=Shift(), phi=phi[:, :size])
    assert torch.allclose(found.phi, torch.cat([shared[:, layout.dim :], shared[:, tail]], 1))
    assert not found.theta[:, tail].any()
    rest = np.setdiff1d(np.arange(layout.dim), tail)
    assert torch.allclose(found.theta[:, rest], shared[:, rest])


# ---------------------------------------------------------------- numbers to check by hand


def two_clients(clip):
    """f(x) = w x + b with (w, b) = (1, 0) for the first client and (2, 1) for the second; samples (3, 1) and (1, 0)."""
    double = {"dtype": torch.float64}
    shards = Shards(torch.tensor([[3.0], [1.0]], **double), torch.tensor([1.0, 0.0], **double), np.array([0, 2]))
    theta = torch.tensor([[1.0, 0.0], [2.0, 1.0]], **double)
    bound = None if clip is None else torch.tensor(clip, **double)
    rows, counts = torch.tensor([0, 1, 1]), np.array([1, 2])
    return Engine(nn.Linear(1, 1).double(), 0, 1).batch_sums(theta, torch.zeros(2, 0), shards, rows, counts, bound)


def test_each_client_s_gradient_is_taken_at_its_own_model():
    # errors 3 - 1 = 2 and, twice, 2 + 1 - 0 = 3: gradients 2 · 2 · (3, 1) and 2 · (2 · 3 · (1, 1))
    assert two_clients(None).theta.tolist() == [[12.0, 4.0], [12.0, 12.0]]


def test_each_client_has_its_own_bound():
    short = 1 - MARGIN  # L1 norms 16 and 12: halved, and cut to a third
    assert both(two_clients([8.0, 4.0])).flatten().tolist() == pytest.approx(
        [6 * short, 2 * short, 4 * short, 4 * short]
    )


def test_without_clipping_one_model_for_all_gives_the_full_step_over_the_same_samples():
    module, shards, n_classes = model_and_task("lenet5")
    engine, theta, cohort = Engine(module, n_classes, 2), initial_theta(module), np.array([3, 2, 0])
    rows = torch.cat([torch.arange(shards.offsets[n], shards.offsets[n + 1]) for n in cohort])
    whole = engine.clipped_sums(theta, torch.zeros(3, 0), shards, cohort, None)
    found = engine.batch_sums(theta.expand(3, -1), torch.zeros(3, 0), shards, rows, shards.sizes[cohort], None)
    torch.testing.assert_close(found.theta, whole.theta)


def test_even_batches_of_neighbours_equal_the_oracle_too(way):
    for name in ("softmax", "mnist_cnn", "femnist_cnn"):
        module, shards, n_classes = model_and_task(name)
        theta, counts = own_models(module, 4), np.full(4, 3)
        bound = torch.full((4,), 0.5).double()
        found = Engine(module, n_classes, 2).batch_sums(theta, torch.zeros(4, 0), shards, ROWS, counts, bound)
        assert difference(found, oracle(module, theta, shards, ROWS, counts, n_classes, 2, bound)) < 1e-12


def test_byte_images_are_scaled_to_the_unit_interval():
    for name in ("softmax", "mnist_cnn"):
        model = MODELS[name]()
        module = model.build((1, 28, 28), 10)
        bytes_ = torch.randint(256, (12, 1, 28, 28), generator=rng(), dtype=torch.uint8)
        engine, theta, offsets = Engine(module, 10, 2), own_models(module), np.array([0, 12])
        a, b = (
            engine.batch_sums(
                theta, torch.zeros(6, 0), Shards(x, torch.arange(12) % 10, offsets), ROWS, COUNTS, torch.ones(6)
            )
            for x in (bytes_, bytes_.float() / 255)
        )
        assert torch.equal(a.theta, b.theta)


# ---------------------------------------------------------------- layers


def agrees(module, input_shape, n_classes=3, tokens=None):
    """The engine's path, after comparing it with the oracle in both norms."""
    module = module.double()
    shards = task_of(input_shape, n_classes)
    if tokens:
        shards = Shards(torch.randint(tokens, shards.x.shape, generator=rng(9)), shards.y, shards.offsets)
    theta = own_models(module, size=1.0)
    for order in (1, 2):
        bound = halving(module, theta, shards, n_classes, order)
        engine = Engine(module, n_classes, order, chunk=8)
        found = engine.batch_sums(theta, torch.zeros(len(COUNTS), 0), shards, ROWS, COUNTS, bound)
        assert difference(found, oracle(module, theta, shards, ROWS, COUNTS, n_classes, order, bound)) < 1e-12
    return engine.path


def frozen(module, *names):
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    return module


LAYERS = {
    "linear": (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)), (4,)),
    "affine": (nn.Linear(4, 3), (4,)),
    "wide affine": (nn.Sequential(nn.Flatten(), nn.Linear(4000, 3)), (40, 100)),
    "frozen": (frozen(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), "0.weight", "2.bias"), (4,)),
    "frozen layer": (frozen(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), "0.weight", "0.bias"), (4,)),
    "positions": (
        nn.Sequential(
            nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 2, bias=False), nn.Flatten(), nn.Linear(10, 3)
        ),
        (5, 4),
    ),
    "layer norm first": (nn.Sequential(nn.LayerNorm((5, 4), bias=False), nn.Flatten(), nn.Linear(20, 3)), (5, 4)),
    "group norm first": (nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 3)), (4, 3, 3)),
    "group norm": (nn.Sequential(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 3)), (4, 3, 3)),
    "same": (nn.Sequential(nn.Conv2d(2, 4, 2, padding="same"), nn.Tanh(), nn.Flatten(), nn.Linear(100, 3)), (2, 5, 5)),
    "groups": (
        nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1, groups=2, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(54, 3)),
        (4, 5, 5),
    ),
    "more padding than kernel": (
        nn.Sequential(nn.Conv2d(2, 3, 2), nn.Conv2d(3, 2, 1, padding=1), nn.Flatten(), nn.Linear(50, 3)),
        (2, 4, 4),
    ),
    "few channels": (
        nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(3, 2, (2, 3), padding=(0, 1), dilation=(2, 1)),
            nn.Flatten(),
            nn.Linear(24, 3),
        ),
        (1, 5, 4),
    ),
    "dilated": (
        nn.Sequential(nn.Conv2d(1, 2, (2, 3), dilation=2), nn.Conv2d(2, 3, 1), nn.Flatten(), nn.Linear(9, 3)),
        (1, 5, 5),
    ),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_of_every_kind_meet_each_client_s_own_parameters(kind, way):
    module, shape = LAYERS[kind]
    assert agrees(deepcopy(module), shape) == "bookkeeping"


@pytest.mark.parametrize("padding_idx", [None, 1])
def test_each_client_looks_up_its_own_table(padding_idx):
    module = nn.Sequential(nn.Embedding(3, 4, padding_idx=padding_idx), nn.Flatten(), nn.Linear(6 * 4, 3))
    assert agrees(module, (6,), tokens=3) == "bookkeeping"


class Gate(nn.Module):
    """A layer the rules do not know."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.scale


def test_what_the_rules_cannot_treat_goes_through_torch_func():
    assert agrees(nn.Sequential(nn.Linear(4, 4), Gate(), nn.Linear(4, 3)), (4,)) == "torch.func: model.1 is Gate"


# ---------------------------------------------------------------- laws


OVERFLOWS = [*((name, order, False) for name, order in BOTH_NORMS), ("mnist_cnn", 2, True), ("lenet5", 1, True)]


@pytest.mark.parametrize(("name", "order", "personal"), OVERFLOWS)
def test_a_sample_whose_gradient_overflows_counts_as_nothing_and_tells_nothing(name, order, personal):
    module, shards, n_classes = model_and_task(name, torch.float32)
    transform, width = (Shift(), 2 * shards.x[0].numel()) if personal else (IDENTITY, 0)
    engine, bound = Engine(module, n_classes, order, transform, width), torch.full((len(COUNTS),), 0.5)
    theta, phi = 30.0 * own_models(module), torch.zeros(len(COUNTS), width)
    shards.x[11] = 3e38  # the fourth of the first client
    found = both(engine.batch_sums(theta, phi, shards, ROWS, COUNTS, bound))
    without, fewer = torch.cat([ROWS[:3], ROWS[4:]]), COUNTS - np.array([1, 0, 0, 0, 0, 0])
    expected = both(engine.batch_sums(theta, phi, shards, without, fewer, bound))
    assert bool(torch.isfinite(found).all())
    torch.testing.assert_close(found, expected)


def test_without_clipping_an_overflow_stays_visible():
    module, shards, n_classes = model_and_task("mnist_cnn", torch.float32)
    shards.x[5] = 3e38
    sums = Engine(module, n_classes, 2).batch_sums(
        30.0 * own_models(module), torch.zeros(6, 0), shards, ROWS, COUNTS, None
    )
    assert not bool(torch.isfinite(sums.theta[0]).all())
    assert bool(torch.isfinite(sums.theta[1:]).all())


@pytest.mark.parametrize("name", MODELS)
def test_the_same_call_gives_the_same_bits_whatever_came_before(name):
    module, shards, n_classes = model_and_task(name, torch.float32)
    theta, phi, bound = own_models(module), torch.zeros(len(COUNTS), 0), torch.full((len(COUNTS),), 0.5)
    used = Engine(module, n_classes, 2)
    used.clipped_sums(theta[0], phi[:2], shards, np.array([3, 0]), bound[:2])
    used.batch_sums(theta.flip(0), phi, shards, ROWS.flip(0), COUNTS[::-1].copy(), bound)
    fresh = Engine(module, n_classes, 2).batch_sums(theta, phi, shards, ROWS, COUNTS, bound)
    assert torch.equal(used.batch_sums(theta, phi, shards, ROWS, COUNTS, bound).theta, fresh.theta)


def test_a_batch_between_two_full_steps_leaves_their_bits_alone():
    module, shards, n_classes = model_and_task("lenet5", torch.float32)
    engine, theta, cohort = Engine(module, n_classes, 2), initial_theta(module), np.array([3, 1])
    before = engine.clipped_sums(theta, torch.zeros(2, 0), shards, cohort, torch.ones(2))
    engine.batch_sums(own_models(module), torch.zeros(6, 0), shards, ROWS, COUNTS, torch.ones(6))
    after = engine.clipped_sums(theta, torch.zeros(2, 0), shards, cohort, torch.ones(2))
    assert torch.equal(before.theta, after.theta)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("name", ["softmax", "femnist_cnn"])
def test_the_chunk_size_changes_nothing_beyond_rounding(name, chunk):
    module, shards, n_classes = model_and_task(name)
    theta, bound = own_models(module), torch.full((len(COUNTS),), 0.5).double()
    found = Engine(module, n_classes, 2, chunk=chunk).batch_sums(
        theta, torch.zeros(len(COUNTS), 0), shards, ROWS, COUNTS, bound
    )
    assert difference(found, oracle(module, theta, shards, ROWS, COUNTS, n_classes, 2, bound)) < 1e-12


@pytest.mark.parametrize("name", ["softmax", "mnist_cnn"])
def test_nobody_selected_gives_no_rows_and_nothing_drawn_gives_zeros(name):
    module, shards, n_classes = model_and_task(name)
    engine, none = Engine(module, n_classes, 2), torch.zeros(0, dtype=torch.int64)
    theta = own_models(module)
    nobody = engine.batch_sums(
        theta[:0], torch.zeros(0, 0), shards, none, np.zeros(0, dtype=np.int64), torch.zeros(0).double()
    )
    assert nobody.theta.shape == (0, theta.shape[1])
    nothing = engine.batch_sums(
        theta, torch.zeros(6, 0), shards, none, np.zeros(6, dtype=np.int64), torch.ones(6).double()
    )
    assert nothing.theta.shape == theta.shape
    assert not nothing.theta.any()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["softmax", "lenet5"])
def test_one_example_moves_the_sum_by_its_sensitivity_at_most(name, order):
    """500 equal examples against 499 and one whose gradient goes elsewhere, all far longer than the clip."""
    module, shards, n_classes = model_and_task(name, torch.float32)
    theta, rows, clip = own_models(module, 2), torch.arange(500), 1e-3
    x, y = shards.x[:1].expand(500, *shards.x.shape[1:]).contiguous(), torch.zeros(500, dtype=torch.int64)
    sums = []
    for label in (0, 3):
        y[250] = label
        engine = Engine(module, n_classes, order)
        found = engine.batch_sums(
            theta,
            torch.zeros(2, 0),
            Shards(x, y.clone(), np.array([0, 500])),
            rows,
            np.array([300, 200]),
            torch.full((2,), clip),
        )
        sums.append(found.theta)
    assert torch.equal(sums[0][1], sums[1][1])
    assert 0.5 * clip < float((sums[0][0] - sums[1][0]).norm(order)) <= 2 * clip


# ---------------------------------------------------------------- what is refused


def test_rows_that_belong_to_nobody_are_refused():
    module, shards, n_classes = model_and_task("softmax")
    engine, theta = Engine(module, n_classes, 2), own_models(module)
    with pytest.raises(DpflbenchError, match=r"models \(6, 510\) and 11 rows for 6 clients with 12"):
        engine.batch_sums(theta, torch.zeros(6, 0), shards, ROWS[:11], COUNTS, None)
    with pytest.raises(DpflbenchError, match="each client needs a model"):
        engine.batch_sums(theta[0], torch.zeros(6, 0), shards, ROWS, COUNTS, None)


def test_mixed_devices_and_a_clip_too_small_are_refused():
    module, shards, n_classes = model_and_task("softmax")
    engine, theta, phi = Engine(module, n_classes, 2), own_models(module), torch.zeros(6, 0)
    with pytest.raises(DpflbenchError, match="tensors on cpu and meta; all must be on one device"):
        engine.batch_sums(theta, phi, shards, ROWS.to("meta"), COUNTS, None)
    with pytest.raises(DpflbenchError, match=r"clip_norm 1e-13; sums keep their bound from 9\.1e-13 on"):
        engine.batch_sums(theta, phi, shards, ROWS, COUNTS, torch.full((6,), 1e-13).double())


# ---------------------------------------------------------------- devices


def test_the_chunk_is_halved_until_it_fits_the_memory(monkeypatch):
    module, shards, n_classes = model_and_task("mnist_cnn")
    tried, whole = [], Engine._pass

    def scarce(self, *args):
        tried.append(self.chunk)
        if self.chunk > 3:
            raise torch.OutOfMemoryError
        return whole(self, *args)

    monkeypatch.setattr(Engine, "_pass", scarce)
    engine, theta = Engine(module, n_classes, 2, chunk=12), own_models(module)
    found = engine.batch_sums(theta, torch.zeros(6, 0), shards, ROWS, COUNTS, None)
    assert tried == [12, 6, 3]
    assert difference(found, oracle(module, theta, shards, ROWS, COUNTS, n_classes)) < 1e-12
