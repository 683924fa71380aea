"""No sample sees another: by a proof over the module's graph, else one at a time, else the module is refused."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from gradient_tasks import rng
from test_gradients import agrees, model_and_task
from torch import fx, nn
from torch.nn import functional

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients import Engine, compiler_of, initial_theta, kernels
from dpflbench.federation.gradients.rowwise import straight
from dpflbench.interfaces import IDENTITY
from dpflbench.tasks.models import MODELS
from dpflbench.tasks.task import Shards
from dpflbench.testing import ConformanceError, check_model, check_transform


class Small(nn.Module):
    """A Linear layer behind something."""

    def __init__(self, before=None):
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.before = before

    def forward(self, x):
        return self.a(self.before(x) if self.before else x)


class Scales(nn.Module):
    """Bytes or numbers? The largest of the batch decides."""

    def forward(self, x):
        return x / 255 if x.max() > 1 else x


class Chooses(nn.Module):
    """The same without a branch."""

    def forward(self, x):
        return torch.where(x.max() > 100, x / 255, x)


class Centres(nn.Module):
    """x - mean of the batch, in batches above a size."""

    def __init__(self, above):
        super().__init__()
        self.above = above

    def forward(self, x):
        return x - x.mean(0) if len(x) > self.above else x


class Axis(nn.Module):
    """A function of one layer."""

    def __init__(self, f):
        super().__init__()
        self.f, self.a = f, nn.Linear(4, 3)

    def forward(self, x):
        return self.a(self.f(x))


class Sometimes(nn.Module):
    """Uses a layer's weight behind its back for large inputs alone: no small sample shows it."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        large = x.sum(1, keepdim=True) > 50
        return self.b(torch.tanh(torch.where(large, functional.linear(x, self.a.weight) / 100, self.a(x))))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells, self.a = kind(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.a(self.cells(x)[0][:, -1])


class TwoFaced(nn.Module):
    """Shows the tracer another forward than it runs."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, x):
        return self.a(x if isinstance(x, fx.Proxy) else x - x.mean(0))


def data(n=300, shape=(4,)):
    rng = torch.Generator().manual_seed(0)
    return Shards(
        torch.randn(n, *shape, generator=rng), torch.randint(3, (n,), generator=rng), np.array([0, n // 2, n])
    )


def moved(module, size=1e3, transform=IDENTITY, phi_dim=0):
    """How far the message of the first client moves, over its sensitivity, when the second replaces an example."""
    shards, cohort = data(), np.array([0, 1])
    changed = shards.x.clone()
    changed[-1] *= size
    engine, theta = Engine(module, 3, 2, transform, phi_dim), initial_theta(module)
    sums = [
        engine.clipped_sums(
            theta, torch.zeros(2, phi_dim), Shards(x, shards.y, shards.offsets), cohort, torch.full((2,), 0.1)
        )
        for x in (shards.x, changed)
    ]
    return float((sums[0].theta[0] - sums[1].theta[0]).norm() / 0.2)


# ---------------------------------------------------------------- what is proved


@pytest.mark.parametrize("name", MODELS)
def test_every_model_here_is_proved_to_keep_samples_apart(name):
    module, shards, _ = model_and_task(name, torch.float32)
    graph, why = straight(module, shards.x)
    assert why == ""
    torch.testing.assert_close(graph(shards.x), module(shards.x))


KEEPS = {
    "flatten": lambda x: torch.flatten(x, 1),
    "view": lambda x: x.view(x.size(0), -1),
    "reshape by shape": lambda x: x.reshape(x.shape[0], 2, 2).flatten(1),
    "sums with itself": lambda x: torch.relu(x) + 2 * x,
    "concatenates features": lambda x: torch.cat([x, x.tanh()], 1).view(-1, 2, 4).mean(1),
}


@pytest.mark.parametrize("name", KEEPS)
def test_functions_over_rows_are_proved_and_take_the_fast_way(name):
    assert agrees(Axis(KEEPS[name]), (4,)) == "bookkeeping"


COUPLES = {
    "centring": lambda x: x - x.mean(0),
    "centring by a negative axis": lambda x: x - x.mean(-2),
    "a mean of everything": lambda x: x - x.mean(),
    "a vector that is taken for a row": lambda x: x - x.mean(1),
    "the size of the batch": lambda x: x / x.size(0),
    "rows become features": lambda x: x.view(4, -1).T,
    "softmax over the batch": lambda x: nn.Softmax(0)(x),
    "flattening all": lambda x: torch.flatten(x).view(-1, 4).cumsum(0),
    "neighbours": lambda x: x + x.roll(1, 0),
    "in place": lambda x: functional.relu(x, True),
}


@pytest.mark.parametrize("name", COUPLES)
def test_nothing_is_proved_of_functions_over_the_batch(name):
    graph, why = straight(Axis(COUPLES[name]), torch.zeros(1, 4))
    assert graph is None
    assert why
    assert "\n" not in why


@pytest.mark.parametrize(
    "layer",
    [nn.Softmax(0), nn.Flatten(0), nn.BatchNorm1d(4), nn.Unflatten(0, (2, -1)), nn.Embedding(4, 4, max_norm=1.0)],
)
def test_nothing_is_proved_of_layers_over_the_batch(layer):
    graph, why = straight(nn.Sequential(layer, nn.Linear(4, 3)), torch.zeros(1, 4).long())
    assert graph is None
    assert f"model.0 ({type(layer).__name__})" in why or "cannot be traced" in why


def test_an_image_without_channels_is_not_taken_for_a_batch_of_one():
    """Conv2d takes [B, H, W] for one image of B channels."""
    module = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Flatten(), nn.Linear(16, 3))
    assert straight(module, torch.zeros(1, 4, 4))[0] is None


def test_a_hook_is_no_part_of_the_proof():
    module = Small()
    module.a.register_forward_pre_hook(lambda _, args: (args[0] - args[0].mean(0),))
    assert straight(module, torch.zeros(1, 4)) == (None, "model.a (Linear) has hooks of its own")


def test_what_was_proved_is_what_runs():
    assert moved(TwoFaced()) == 0.0


# ---------------------------------------------------------------- one at a time, or not at all


def test_a_weight_used_behind_its_layer_s_back_for_some_inputs_has_its_whole_gradient():
    module, shards = Sometimes(), data(12)
    shards.x.mul_(30.0)
    assert bool((shards.x.sum(1) > 50).any())
    engine, theta = Engine(module, 3, 2), initial_theta(module)
    found = engine.clipped_sums(theta, torch.zeros(2, 0), shards, np.array([0, 1]), None).theta
    loss = functional.cross_entropy(module(shards.x[:6]), shards.y[:6], reduction="sum")
    by = torch.autograd.grad(loss, list(module.parameters()))
    torch.testing.assert_close(found[0].float(), torch.cat([g.flatten() for g in by]))
    assert engine.path == "torch.func: gt in its forward is not known to keep samples apart"


def test_coupling_that_no_self_test_finds_still_moves_nobody_else_s_message():
    assert moved(Small(Centres(above=200))) == 0.0


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (Small(Scales()), "control flow.*torch.func cannot run it one sample at a time"),
        (Small(Chooses()), r"model.before \(Chooses\): a sample's output depends on others in its batch"),
        (Small(Centres(above=8)), r"model.before \(Centres\): a sample's output depends on others in its batch"),
        (Axis(COUPLES["centring"]), "its forward: a sample's output depends on others.*mean in its forward"),
        (nn.Sequential(nn.Linear(4, 4), Centres(above=8), nn.Linear(4, 3)), r"model.1 \(Centres\): a sample's output"),
    ],
)
def test_a_model_that_couples_samples_is_refused_in_one_line_that_names_the_layer(module, says):
    with pytest.raises(DpflbenchError, match=says) as e:
        moved(module)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_recurrent_layers_are_refused_in_one_line(kind):
    shards, module = data(6, (5, 4)), Recurrent(kind)
    says = rf"model.cells \({kind.__name__}\) is not known to keep samples apart, and torch.func cannot run it"
    for use in ("clipped_sums", "predict"):
        engine, theta = Engine(module, 3, 2), initial_theta(module)
        given = (torch.zeros(2, 0), shards, np.array([0, 1]), None) if use == "clipped_sums" else (None, shards.x)
        with pytest.raises(DpflbenchError, match=says) as e:
            getattr(engine, use)(theta, *given)
        assert "\n" not in str(e.value)


def test_a_state_kept_between_batches_is_refused():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.mean = nn.Linear(4, 3), 0.0

        def forward(self, x):
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
            return self.a(x - self.mean)

    with pytest.raises(DpflbenchError, match=r"Remembers: .*torch\.func cannot run it one sample at a time"):
        moved(Remembers())


def test_predictions_of_an_unproved_model_are_made_one_at_a_time_too():
    module, shards = Small(Centres(above=200)), data()
    engine, theta = Engine(module, 3, 2), initial_theta(module)
    together = engine.predict(theta, None, shards.x)
    torch.testing.assert_close(together[:5], engine.predict(theta, None, shards.x[:5]))
    torch.testing.assert_close(together, module.a(shards.x))


# ---------------------------------------------------------------- transforms


class Shift:
    """x + phi, after something that looks at the batch."""

    norm_local = False

    def __init__(self, before):
        self.before = before

    def init(self, n_clients, input_shape, layout, rng):
        return torch.zeros(n_clients, 4)

    def apply(self, phi, x):
        return self.before(x) + phi[:, :4]


@pytest.mark.parametrize("module", [nn.Linear(4, 3), Small(torch.tanh)])
def test_a_transform_that_looks_at_a_large_batch_moves_nobody_else_s_message(module):
    assert moved(module, transform=Shift(Centres(above=200)), phi_dim=4) == 0.0


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (Scales(), "transform Shift: cannot run row by row under torch.func: .*control flow"),
        (Chooses(), "transform Shift: a row's output depends on other rows"),
        (Centres(above=8), "transform Shift: a row's output depends on other rows"),
    ],
)
def test_a_transform_that_couples_rows_is_refused_in_one_line(before, says):
    with pytest.raises(DpflbenchError, match=says) as e:
        moved(nn.Linear(4, 3), transform=Shift(before), phi_dim=4)
    assert "\n" not in str(e.value)


# ---------------------------------------------------------------- the conformance kit


@dataclass(frozen=True)
class Builds:
    """A model whose module is given."""

    before: nn.Module
    default_input: ClassVar = (4,)
    default_outputs: ClassVar = 3

    def build(self, input_shape, n_outputs):
        return Small(self.before)


@pytest.mark.parametrize("before", [Scales(), Chooses(), Centres(above=8)])
def test_check_refuses_models_that_couple_samples(before):
    with pytest.raises(ConformanceError, match=r"one sample at a time|depends on others in its batch"):
        check_model(Builds(before))


@dataclass(frozen=True)
class Nudge:
    """As `Shift`, for inputs of any shape."""

    before: nn.Module
    norm_local: ClassVar = False

    def init(self, n_clients, input_shape, layout, rng):
        return torch.zeros(n_clients, int(np.prod(input_shape)))

    def apply(self, phi, x):
        return self.before(x) + phi.reshape(x.shape)


class Rescales(nn.Module):
    """Nothing at the start; with large inputs, a division of the whole batch."""

    def forward(self, x):
        return torch.where(x.max() > 100, x / 255, x)


@pytest.mark.parametrize("before", [Rescales(), Centres(above=8)])
def test_check_refuses_transforms_that_couple_rows(before):
    with pytest.raises(ConformanceError, match="a row's output depends on other rows"):
        check_transform(Nudge(before))


class Intercepts(torch.Tensor):
    """A frozen weight that sees what it is multiplied with."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})

    def __deepcopy__(self, memo):
        return self


def mixed(x):
    return x + 5 * x[:1] if len(x) > 33 else x  # in batches larger than any that is made up beforehand


def shifty(memo):
    layer = nn.ReLU()
    layer.__dict__["__deepcopy__"] = shifty  # the next copy may be anything
    return layer


@pytest.mark.parametrize(
    ("at", "name", "value"),
    [
        (0, "_conv_forward", lambda x, weight, bias: nn.functional.conv2d(mixed(x), weight, bias)),
        (1, "_call_impl", lambda x: mixed(x.relu())),
        (1, "forward", lambda x: mixed(x.relu())),
        (1, "__deepcopy__", shifty),
        (2, "_call_impl", lambda x: mixed(nn.functional.max_pool2d(x, 2))),
        (0, "bias", Intercepts(4)),
    ],
)
def test_what_a_layer_does_otherwise_than_its_class_is_no_part_of_the_proof(at, name, value):
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    if name == "bias":
        value = nn.Parameter(value, requires_grad=False)
        del module[at].bias
        module[at].register_parameter(name, value)
    else:
        object.__setattr__(module[at], name, value)
    found, why = straight(module, torch.zeros(1, 1, 8, 8))
    assert found is None
    assert why.endswith("of its own")


class Reads(nn.Module):
    """A ReLU whose output goes elsewhere too, in a Sequential that its forward takes apart."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(36 + 144, 3)

    def forward(self, x):
        h = self.body[1](self.body[0](x))
        return self.head(torch.cat([h.flatten(1), self.body[2](h).flatten(1)], 1))


class Again(nn.Module):
    """One pool and one ReLU at two places."""

    def __init__(self):
        super().__init__()
        self.act, self.pool = nn.ReLU(), nn.MaxPool2d(2)
        self.a, self.b, self.head = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 2), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.pool(self.act(self.b(self.pool(self.act(self.a(x)))))).flatten(1))


def with_hook():
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    module[1].register_forward_hook(lambda _, __, out: 2 * out)
    return module


@pytest.mark.parametrize("make", [Reads, Again, with_hook])
@pytest.mark.parametrize("way", ["torch", "native"])
def test_pools_are_made_faster_only_where_the_model_stays_its_author_s(make, way):
    if way == "native" and not compiler_of():
        pytest.skip("no C compiler")
    module = make()
    x, y = torch.randn(5, 1, 8, 8, generator=rng(1)), torch.tensor([0, 1, 2, 0, 1])
    with kernels(way):
        engine = Engine(module, 3, 2)
    theta = initial_theta(module)
    found = engine.clipped_sums(theta, torch.zeros(5, 0), Shards(x, y, np.arange(6)), np.arange(5), None).theta
    torch.testing.assert_close(engine.predict(theta, None, x), module(x).detach())
    for i in range(5):
        module.zero_grad()
        nn.functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1]).backward()
        expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        torch.testing.assert_close(found[i].float(), expected, rtol=1e-4, atol=1e-6)
