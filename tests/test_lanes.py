"""Native kernels: torch's own numbers but for what float32 rounds, a sample's bits its own affair, and a record that
says which way was taken.
"""

from copy import deepcopy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from gradient_tasks import Shift, model_and_task, rng, task_of
from harness import run_of
from places import place
from torch import nn

import dpflbench as db
from dpflbench.errors import DpflbenchError
from dpflbench.execution.attempt import Interrupted, execute
from dpflbench.federation.gradients import Engine, chosen, initial_theta, kernels, lanes, self_test
from dpflbench.federation.gradients.lanes import compiler_of, library, stacks
from dpflbench.federation.gradients.pooling import Pool
from dpflbench.federation.gradients.rowwise import straight
from dpflbench.judges.replay import replay
from dpflbench.tasks.models import MODELS
from dpflbench.tasks.task import Shards

pytestmark = pytest.mark.skipif(not compiler_of(), reason="no C compiler")
SIZES = np.array([19, 1, 0, 33, 16])
COHORT = np.array([3, 1, 4, 0, 2])


def engines(module, n_classes, order=2, transform=None, phi_dim=0):
    given = (transform, phi_dim) if transform else ()
    with kernels("native"):
        return Engine(module, n_classes, order, *given), Engine(module, n_classes, order, *given, chunk=48)


def sums(engine, module, shards, phi=None, clip=0.5):
    phi = torch.zeros(len(COHORT), 0) if phi is None else phi
    return engine.clipped_sums(initial_theta(module), phi, shards, COHORT, torch.full((len(COHORT),), clip), 2.0)


def far(a, b):
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize(("name", "order"), [*product(("mnist_cnn", "lenet5", "femnist_cnn", "resnet20"), (1, 2))])
def test_the_paper_s_models_have_torch_s_sums_losses_and_outputs(name, order):
    module, _, n_classes = model_and_task(name, torch.float32)
    shards = task_of(MODELS[name].default_input, n_classes, SIZES, torch.float32)
    plain = Engine(module, n_classes, order)
    expected = sums(plain, module, shards)
    for engine in engines(module, n_classes, order):
        found = sums(engine, module, shards)
        assert far(found.theta, expected.theta) < (1e-3 if name == "resnet20" else 2e-5)  # nineteen ReLUs, some at 0
        assert far(found.losses, expected.losses) < 1e-6
        theta = initial_theta(module)
        assert far(engine.predict(theta, None, shards.x), plain.predict(theta, None, shards.x)) < 1e-5


def test_a_personal_transform_gets_its_gradient_through_the_first_convolution():
    module, _, n_classes = model_and_task("lenet5", torch.float32)
    shards = task_of((1, 28, 28), n_classes, SIZES, torch.float32)
    phi = 0.1 * torch.randn(len(COHORT), 2 * 784, generator=rng(5))
    expected = sums(Engine(module, n_classes, 2, Shift(), 2 * 784), module, shards, phi)
    for engine in engines(module, n_classes, 2, Shift(), 2 * 784):
        found = sums(engine, module, shards, phi)
        assert far(found.phi, expected.phi) < 2e-5
        assert far(found.theta, expected.theta) < 2e-5


@pytest.mark.parametrize("name", ["mnist_cnn", "lenet5", "femnist_cnn"])
def test_clients_with_models_of_their_own_have_torch_s_sums(name):
    module, _, n_classes = model_and_task(name, torch.float32)
    shards = task_of(MODELS[name].default_input, n_classes, SIZES, torch.float32)
    theta = initial_theta(module) + 0.01 * torch.randn(5, initial_theta(module).numel(), generator=rng(4))
    counts, clip = np.array([17, 0, 1, 20, 9]), torch.full((5,), 0.5)
    rows = torch.randint(int(SIZES.sum()), (int(counts.sum()),), generator=rng(6))
    expected, *found = [
        engine.batch_sums(theta, torch.zeros(5, 0), shards, rows, counts, clip).theta
        for engine in (Engine(module, n_classes, 2), *engines(module, n_classes))
    ]
    for sums in found:
        assert far(sums, expected) < 2e-5
    assert not found[0][1].any()


LAYERS = [
    *[
        nn.Conv2d(c, o, k, padding=p)
        for c, o, k, p in [(1, 1, 1, 0), (3, 7, 3, 0), (2, 9, 3, 2), (5, 11, 5, 4), (1, 10, 5, (1, 0)), (9, 2, 1, 0)]
    ],
    nn.Conv2d(2, 5, 3, padding=1, bias=False),
    nn.Conv2d(2, 5, 3, padding="same"),
    nn.Conv2d(2, 5, 3, padding="valid"),
]
BEHIND = [[], [nn.ReLU()], [nn.MaxPool2d(2)], [nn.ReLU(), nn.MaxPool2d(2)], [nn.GroupNorm(1, 1), nn.ReLU()]]


@pytest.mark.parametrize(("first", "behind"), [*product(LAYERS, BEHIND)], ids=str)
def test_every_layer_it_knows_has_autograd_s_gradients_sample_by_sample(first, behind):
    behind = [nn.GroupNorm(1, first.out_channels) if isinstance(b, nn.GroupNorm) else b for b in behind]
    body = nn.Sequential(first, *behind)
    width = body(torch.zeros(1, first.in_channels, 12, 10)).numel()
    module = nn.Sequential(*body, nn.Flatten(), nn.Linear(width, 3))
    first.reset_parameters()  # here, where tests that ran before have no say in what is drawn
    exact = deepcopy(module).double()
    x = torch.randn(21, first.in_channels, 12, 10, generator=rng(1))
    y = torch.randint(3, (21,), generator=rng(2))
    shards = Shards(x, y, np.arange(22))
    with kernels("native"):
        found = Engine(module, 3, 2).clipped_sums(
            initial_theta(module), torch.zeros(21, 0), shards, np.arange(21), None
        )
    for i in range(21):
        exact.zero_grad()
        nn.functional.cross_entropy(exact(x[i : i + 1].double()), y[i : i + 1]).backward()
        expected = torch.cat([p.grad.reshape(-1) for p in exact.parameters()])
        assert far(found.theta[i], expected) < 5e-6


def test_a_sample_s_bits_do_not_depend_on_what_stands_beside_it():
    module, _, n_classes = model_and_task("femnist_cnn", torch.float32)
    x, y = torch.randn(16, 1, 28, 28, generator=rng(1)), torch.zeros(16, dtype=torch.int64)
    with kernels("native"):
        engine = Engine(module, n_classes, 2)
    theta, clip = initial_theta(module), torch.full((16,), 0.1)

    def rows(x):
        shards = Shards(x, y[: len(x)], np.arange(len(x) + 1))
        return engine.clipped_sums(theta, torch.zeros(len(x), 0), shards, np.arange(len(x)), clip[: len(x)]).theta

    calm = rows(x)
    for odd in (1e30, float("inf"), float("nan")):
        wild = x.clone()
        wild[7] = odd
        assert torch.equal(rows(wild)[torch.arange(16) != 7][:, :3472], calm[torch.arange(16) != 7][:, :3472])
        assert rows(wild).isfinite().all()
    order = torch.randperm(16, generator=rng(9))
    convolutions = 208 + 16 + 3216 + 32  # what lanes.c computes; products of Linear layers are torch's
    assert torch.equal(rows(x[order])[:, :convolutions], calm[order][:, :convolutions])


def test_clipped_sums_keep_their_bound():
    module, _, n_classes = model_and_task("mnist_cnn", torch.float32)
    shards = task_of((1, 28, 28), n_classes, np.array([1] * 40), torch.float32)
    for order in (1, 2):
        with kernels("native"):
            engine = Engine(module, n_classes, order)
        theta, clip = initial_theta(module), torch.full((40,), 0.01)
        found = engine.clipped_sums(theta, torch.zeros(40, 0), shards, np.arange(40), clip)
        assert float(found.theta.norm(order, dim=1).max()) <= 0.01


def test_kernels_for_vectors_of_eight_compute_the_same(monkeypatch):
    x = torch.randn(21, 1, 28, 28, generator=rng(1))
    module, _, n_classes = model_and_task("femnist_cnn", torch.float32)
    wide, theta = Engine(module, n_classes, 2).predict(initial_theta(module), None, x), initial_theta(module)
    narrow = library("-mno-avx512f")
    assert narrow.lanes == 8
    monkeypatch.setattr(lanes, "library", lambda: narrow)
    with kernels("native"):
        engine = Engine(module, n_classes, 2)  # settles by comparing gradients with torch's
        assert far(engine.predict(theta, None, x), wide) < 1e-5


def test_stacks_begin_with_a_convolution_of_few_channels_and_end_where_something_else_begins():
    def found(*layers, shape=(1, 28, 28)):
        graph, why = straight(nn.Sequential(*layers), torch.zeros(1, *shape))
        assert not why
        return [[type(layer) for layer in stack.layers] for stack in stacks(graph)]

    conv = nn.Conv2d(1, 4, 3)
    assert found(conv, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(676, 2)) == [[nn.Conv2d, Pool]]
    assert found(nn.ReLU(), conv, nn.Tanh(), nn.ReLU()) == [[nn.Conv2d]]
    assert found(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU()) == []
    assert found(nn.Conv2d(16, 16, 3), nn.ReLU(), shape=(16, 8, 8)) == []
    shared = nn.ReLU()
    assert found(conv, shared, nn.Conv2d(4, 4, 3), shared) == [[nn.Conv2d], [nn.Conv2d]]


def test_an_odd_map_goes_torch_s_way():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2 * 4 * 4, 3))
    shards = task_of((1, 11, 11), 3, SIZES, torch.float32)
    expected = sums(Engine(module, 3, 2), module, shards)
    assert torch.equal(sums(engines(module, 3)[0], module, shards).theta, expected.theta)


@pytest.fixture
def pictures(tiny):
    tiny["task"] |= {"dataset": "mnist", "model": "mnist_cnn", "limit": 300}
    tiny["federation"] |= {"rounds": 3, "lr": {"initial": 0.05}}
    return tiny


def test_a_record_says_which_kernels_computed_it_and_is_played_again_with_them(pictures, catalogue):
    run = run_of(pictures, catalogue, "FedSGD")  # a grid of noise may swallow last bits
    plain, native = execute(run, catalogue, place()), execute(run, catalogue, place(kernels="native"))
    assert (plain.status, native.status) == ("done", "done")
    assert plain.measured["kernels"] == "torch"
    assert native.measured["kernels"].startswith("native ")
    assert native.facts["final_model"] != plain.facts["final_model"]
    assert native.final["loss"] == pytest.approx(plain.final["loss"], rel=1e-4)
    assert chosen() == "torch"
    assert replay(native, catalogue).same
    assert replay(plain, catalogue).same
    moved = replace(native, facts={**native.facts, "final_model": "0" * 64})
    assert "played again it ends elsewhere" in replay(moved, catalogue).differs[0]
    elsewhere = replace(moved, measured={**native.measured, "kernels": "native of another compiler"})
    assert "kernels differ: another compiler or processor made them" in replay(elsewhere, catalogue).doubts[0]


def test_a_checkpoint_made_with_other_kernels_is_not_used(pictures, catalogue):
    run, lines = run_of(pictures, catalogue, "DPSGD"), []

    class Stop:
        kept = None

        def load(self):
            return self.kept

        def save(self, data):
            self.kept = data

        def after(self, state):
            return state.round == 1 and not lines

        def say(self, line):
            lines.append(line)

    watch = Stop()
    with pytest.raises(Interrupted):
        execute(run, catalogue, place(kernels="native"), watch)
    lines.append("stopped")
    assert execute(run, catalogue, place(), watch).status == "done"
    assert "was made with kernels native" in lines[1]


def test_workers_compute_with_them_too_and_the_report_s_command_says_so(pictures, tmp_path):
    pictures["algorithms"] = ["DPSGD", "WeiAvg"]
    folder = db.run(pictures, tmp_path / "out", jobs=2, kernels="native", progress=False)
    assert {record.measured["kernels"].split()[0] for record in folder.records.values()} == {"native"}
    folder.report()
    assert "--kernels native" in (tmp_path / "out" / "report" / "index.html").read_text()
    with pytest.raises(DpflbenchError, match="--kernels fast: allowed: torch or native"):
        db.run(pictures, tmp_path / "out", kernels="fast")


def test_without_a_compiler_one_line_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(lanes, "compiler_of", lambda: [])
    library.cache_clear()
    with pytest.raises(DpflbenchError, match="needs a C compiler, and there is none"):
        library()
    monkeypatch.setattr(lanes, "compiler_of", lambda: ["false"])
    with pytest.raises(DpflbenchError, match=r"false does not compile lanes\.c: exit code 1"):
        library()
    library.cache_clear()


def test_a_source_that_is_not_this_version_s_is_refused(monkeypatch):
    library.cache_clear()
    monkeypatch.setattr(lanes, "SOURCE", "0" * 64)
    with pytest.raises(DpflbenchError, match="not the file that belongs to this version"):
        library()
    library.cache_clear()


@pytest.mark.parametrize(
    ("cc", "said"),
    [
        ("/bin/true", "/bin/true made nothing of lanes.c that runs"),
        ("gcc '", "which is no command; set it to a C compiler"),
        ("/no/such/compiler", "which is no command; set it to a C compiler"),
    ],
)
def test_a_compiler_of_one_s_own_that_is_none_is_named_in_one_line(monkeypatch, cc, said, pictures, catalogue):
    native = execute(run_of(pictures, catalogue, "FedSGD"), catalogue, place(kernels="native"))
    monkeypatch.setenv("CC", cc)
    library.cache_clear()
    with pytest.raises(DpflbenchError) as caught:
        library()
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    failed = execute(run_of(pictures, catalogue, "FedSGD"), catalogue, place(kernels="native"))
    assert (failed.status, failed.measured["kernels"]) == ("failed", "native")
    moved = replace(native, facts={**native.facts, "final_model": "0" * 64})
    assert "kernels differ: native ones cannot be made here" in replay(moved, catalogue).doubts[0]
    monkeypatch.undo()
    library.cache_clear()


def other_weight():
    conv = nn.Conv2d(1, 4, 5, padding=1)
    conv.weight = nn.Parameter(0.1 * torch.randn(4, 1, 3, 3, generator=rng(3)))
    return nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(400, 3))


def padded_later():
    conv = nn.Conv2d(1, 4, 3)
    conv.padding = 1
    return nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(400, 3))


def half_a_norm():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3))


def frozen():
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(144, 3))
    module.to(memory_format=torch.channels_last)
    module[1].weight.requires_grad_(False)
    return module


@pytest.mark.parametrize("make", [other_weight, padded_later, half_a_norm, frozen])
def test_layers_that_are_not_quite_what_they_seem_have_torch_s_numbers(make):
    module = make()
    shards = task_of((1, 10, 10), 3, SIZES, torch.float32)
    theta = initial_theta(module) + 0.01 * torch.randn(5, initial_theta(module).numel(), generator=rng(4))
    counts, rows = np.array([17, 0, 1, 20, 9]), torch.randint(int(SIZES.sum()), (47,), generator=rng(6))
    plain, native = Engine(module, 3, 2), engines(module, 3)[0]
    expected, found = [
        (
            sums(engine, module, shards).theta,
            engine.batch_sums(theta, torch.zeros(5, 0), shards, rows, counts, torch.full((5,), 0.5)).theta,
            engine.predict(theta[0], None, shards.x),
        )
        for engine in (plain, native)
    ]
    assert max(map(far, found, expected)) < 2e-5


def test_what_is_no_number_comes_through_a_pool_and_a_relu_as_in_torch():
    module = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3))
    x = torch.arange(16.0).reshape(1, 1, 4, 4).repeat(4, 1, 1, 1)
    for i, at in enumerate(product((0, 1), repeat=2)):
        x[(i, 0, *at)] = torch.nan
    theta = torch.cat([torch.ones(1), torch.zeros(1), torch.ones(15)])
    shards = Shards(x, torch.zeros(4, dtype=torch.int64), np.array([0, 1, 2, 3, 4, 4]))
    expected = sums(Engine(module, 3, 2), module, shards)
    for engine in engines(module, 3):
        assert engine.predict(theta, None, x).isnan().all()
        found = sums(engine, module, shards)
        assert not found.theta.any()
        assert torch.equal(found.losses, expected.losses)


def test_a_norm_over_a_large_map_is_as_exact_as_torch_s():
    module = nn.Sequential(nn.Conv2d(1, 8, 1), nn.GroupNorm(1, 8), nn.Flatten(), nn.Linear(8 * 96 * 96, 2))
    x = 3.0 + torch.rand(3, 1, 96, 96, generator=rng(1))
    exact = deepcopy(module[:2]).double()(x.double()).detach()
    with kernels("native"):
        layers = stacks(straight(module, x[:1])[0])[0]
        layers.install(lambda passage, given: passage.forward(given, keep=False)[0], lambda: None)
        found = layers.layers[0](x)
    assert float((found - exact).abs().max()) < 1e-4


def test_a_few_samples_at_a_kink_are_no_reason_to_refuse_a_model(monkeypatch):
    module, task, n_classes = model_and_task("mnist_cnn", torch.float32)
    with kernels("native"):
        Engine(module, n_classes, 2).settle(task.x)
        monkeypatch.setattr(self_test, "_unlike", lambda a, b: self_test.FEW + 1)
        with pytest.raises(DpflbenchError, match="differ from torch's; run with --kernels torch"):
            Engine(module, n_classes, 2).settle(task.x)
