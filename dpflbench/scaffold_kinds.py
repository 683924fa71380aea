"""What belongs to the skeleton of each kind of plugin: a part to be changed, a test by hand, a suite that runs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The texts of one kind; `scaffold.py` has the frames they go into."""

    hook: str  # the kind of `hookspecs.KINDS` its part belongs to
    does: str  # what the part does as it is
    parameters: str  # of the part, for the README
    imports: str
    body: str
    more: str = ""  # after the hook of the part
    also: str = ""  # a factory of the hook after that, of the kind it is called
    test_imports: str = ""
    test_needs: str = ""  # of dpflbench
    test: str
    rows: str = ""  # of the suite, beside the plain algorithm
    axes: str = ""
    dataset: str = "{name: mnist, features: {kind: pca, components: 50}}"
    model: str = "softmax"
    partition: str = "{kind: dirichlet, alpha: 3.0}"
    mechanism: str = "gaussian"
    local: str = ""  # of the suite's federation


WEIGHTS = '''\
@dataclass(frozen=True)
class @label@:
    """What the server makes of noisy updates: their mean, weighed by n_examples**power."""

    power: float = 1.0  # a parameter is a field with a type and a default; suites give it under `with:`

    def weights(self, cohort: Cohort) -> Tensor:
        """Return the weight of each client [K]; an idea that looks at updates has `init` and `aggregate` instead."""
        weights = cohort.n_examples**self.power
        return weights / weights.sum()
'''
WEIGHTS_TEST = """\
def test_a_client_with_three_times_the_data_counts_three_times():
    ones, sizes = torch.ones(2), torch.tensor([300.0, 100.0])
    cohort = Cohort(clients=torch.arange(2), epsilon=ones, delta=ones, n_examples=sizes, variance=ones, round=0)
    assert @label@().weights(cohort).tolist() == pytest.approx([0.75, 0.25])
"""
COHORT = "from dpflbench.interfaces import Cohort\n"
COMPOSED = "  - {use: compose, as: @label@, with: {selector: uniform, aggregator: mean, @noun@: @plugin@}}\n"

TEMPLATES: Mapping[str, Template] = {
    "algorithm": Template(
        hook="aggregators",
        does="clients take part equally often, updates are weighed by client size",
        parameters="`power`: weights are n_examples^power; 0 is the plain mean",
        imports="""\
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dpflbench import hookimpl
from dpflbench.federation.schedule import even_uses
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Cohort, Plan, PlanView
""",
        body='''\
@dataclass(frozen=True)
class EvenlyOften:
    """Who takes part how often: everybody equally. Budgets, sizes and noisy losses are in `view`."""

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return integer uses for the rounds left; they sum to horizon * cohort_size."""
        return Plan(even_uses(view.setup.n_clients, view.rounds_left * view.setup.cohort_size, rng), view.rounds_left)


'''
        + WEIGHTS
        + '''

def algorithm(power: float = 1.0) -> Algorithm:
    """@label@: a selector, an aggregator and, if you like, a transform."""
    return Algorithm("@label@", EvenlyOften(), @label@(power))
''',
        more='''

@hookimpl
def dpflbench_algorithms() -> Factories:
    """The algorithm, for the `algorithms:` list of a suite."""
    return {"@label@": algorithm}
''',
        also="algorithm",
        test_imports="import pytest\nimport torch\n",
        test_needs=COHORT,
        test=WEIGHTS_TEST,
        rows="  - @label@\n",
    ),
    "aggregator": Template(
        hook="aggregators",
        does="updates are weighed by client size",
        parameters="`power`: weights are n_examples^power; 0 is the plain mean",
        imports="""\
from dataclasses import dataclass

from torch import Tensor

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Cohort
""",
        body=WEIGHTS,
        test_imports="import pytest\nimport torch\n",
        test_needs=COHORT,
        test=WEIGHTS_TEST,
        rows=COMPOSED.replace("aggregator: mean, ", ""),
    ),
    "selector": Template(
        hook="selectors",
        does="the clients with the largest budgets take part, equally often; the others never",
        parameters="`share`: of the clients that take part",
        imports="""\
from dataclasses import dataclass

import numpy as np

from dpflbench import hookimpl
from dpflbench.federation.schedule import even_uses
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Floats, Ints, Plan, PlanView
""",
        body='''\
@dataclass(frozen=True)
class @label@:
    """Who takes part how often: the `share` of clients with the largest budgets, equally often."""

    share: float = 0.5  # a parameter is a field with a type and a default; suites give it under `with:`

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return integer uses that sum to horizon * cohort_size, each at most the horizon."""
        setup, horizon = view.setup, view.rounds_left
        chosen = self.chosen(setup.epsilon, max(setup.cohort_size, round(self.share * setup.n_clients)))
        uses = np.zeros(setup.n_clients, dtype=np.int64)
        uses[chosen] = even_uses(len(chosen), horizon * setup.cohort_size, rng)
        return Plan(uses, horizon)

    def chosen(self, epsilon: Floats, count: int) -> Ints:
        """The clients with the largest budgets."""
        return np.argsort(-epsilon, kind="stable")[:count]
''',
        test_imports="import numpy as np\n",
        test="""\
def test_the_two_clients_with_the_largest_budgets_are_chosen():
    assert @label@().chosen(np.array([1.0, 4.0, 2.0, 3.0]), 2).tolist() == [1, 3]
""",
        rows=COMPOSED.replace("selector: uniform, ", ""),
    ),
    "mechanism": Template(
        hook="mechanisms",
        does="normal noise, priced by Gaussian differential privacy",
        parameters="none",
        imports="""\
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dpflbench import hookimpl
from dpflbench.draws import NORMAL, Law
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Floats, Mechanism
""",
        body='''\
@dataclass(frozen=True)
class @label@(Mechanism):
    """Noise of standard deviation `scale`. A law of your own needs an accountant that has a proof for it."""

    name: ClassVar[str] = "@plugin@"
    law: ClassVar[Law] = NORMAL  # what is drawn, at scale 1
    clip_order: ClassVar[Literal[1, 2]] = 2  # of the norm that bounds sensitivity
    accountant: ClassVar[str] = "gdp"  # what prices it

    def variance(self, scale: Floats) -> Floats:
        """Return scale²."""
        return np.square(scale)
''',
        test_imports="import numpy as np\n",
        test="""\
def test_the_variance_of_noise_of_scale_three_is_nine():
    assert @label@().variance(np.array([3.0])).tolist() == [9.0]
""",
        axes="axes: {privacy.mechanism: [gaussian, @plugin@]}\n",
    ),
    "transform": Template(
        hook="transforms",
        does="every client shifts its inputs by numbers of its own, learnt with the model",
        parameters="none",
        imports="""\
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Layout
""",
        body='''\
@dataclass(frozen=True)
class @label@:
    """What each client keeps in front of the shared model: x ↦ x + phi. It runs beside data and keeps nothing of it."""

    norm_local: ClassVar[bool] = False

    def init(self, n_clients: int, input_shape: tuple[int, ...], layout: Layout, rng: torch.Generator) -> Tensor:
        """Return phi [N, P] at which `apply` is the identity."""
        return torch.zeros(n_clients, prod(input_shape))

    def apply(self, phi: Tensor, x: Tensor) -> Tensor:
        """Return phi [B, P] row by row on x [B, ...]."""
        return x + phi.reshape(x.shape)
''',
        test_imports="import torch\n",
        test="""\
def test_every_row_is_shifted_by_its_own_phi():
    phi, x = torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [10.0]])
    assert @label@().apply(phi, x).tolist() == [[11.0], [12.0]]
""",
        rows=COMPOSED,
    ),
    "local-rule": Template(
        hook="local_rules",
        does="local steps are pulled back to the received model",
        parameters="`pull`: how strongly; 0 is plain federated averaging",
        imports="""\
from dataclasses import dataclass

from torch import Tensor

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Plain, Visit
""",
        body='''\
@dataclass(frozen=True, slots=True)
class @label@(Plain):
    """How a client turns noisy gradients into steps. It sees no example, so it needs no proof of its own."""

    pull: float = 0.1  # a parameter is a field with a type and a default; suites give it beside `name:`

    def direction(self, noisy: Tensor, model: Tensor, visit: Visit) -> Tensor:
        """Return the step [K, D] at models [K, D]; the harness takes it times visit.lr."""
        return noisy + self.pull * (model - visit.theta)
''',
        test_imports="from types import SimpleNamespace\n\nimport pytest\nimport torch\n",
        test="""\
def test_a_model_two_away_is_pulled_back_by_a_tenth_of_that():
    visit = SimpleNamespace(theta=torch.zeros(1))
    assert @label@(0.1).direction(torch.ones(1, 1), torch.full((1, 1), 2.0), visit).item() == pytest.approx(1.2)
""",
        rows="  - {use: compose, as: @label@, with: {selector: uniform, aggregator: mean, rule: @plugin@}}\n",
        local=", local: {kind: minibatch, steps: 5, batch: 32, lr: 0.5}",
    ),
    "model": Template(
        hook="models",
        does="one hidden layer",
        parameters="`width`: of the hidden layer",
        imports="""\
from dataclasses import dataclass
from math import prod

from torch import nn

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
""",
        body='''\
@dataclass(frozen=True)
class @label@:
    """What is learnt: one hidden layer. No batch statistics: a sample's gradient is its own affair."""

    width: int = 32  # a parameter is a field with a type and a default; suites give it beside `name:`

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Return a fresh module mapping [B, *input_shape] to [B, n_outputs]."""
        first, last = nn.Linear(prod(input_shape), self.width), nn.Linear(self.width, n_outputs)
        return nn.Sequential(nn.Flatten(), first, nn.Tanh(), last)
''',
        test="""\
def test_it_has_the_parameters_of_two_layers():
    module = @label@(width=3).build((4,), 2)
    assert sum(p.numel() for p in module.parameters()) == (4 + 1) * 3 + (3 + 1) * 2
""",
        axes="axes: {task.model: [softmax, @plugin@]}\n",
    ),
    "dataset": Template(
        hook="datasets",
        does="two overlapping clouds of points, made when they are loaded",
        parameters="`size`: examples of each part",
        imports="""\
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Availability, Examples
""",
        body='''\
@dataclass(frozen=True)
class @label@:
    """Examples and where they come from. Files are looked for under `root`; DataError says what is missing there."""

    size: int = 8000  # a parameter is a field with a type and a default; suites give it beside `name:`

    def availability(self, root: Path | None) -> Availability:
        """Say what is there, without loading it."""
        return Availability(True, "in the package", "complete", "CC0 1.0", "pip install @distribution@")

    def digest(self, root: Path | None) -> str:
        """SHA-256 over the content."""
        return hashlib.sha256(b"".join(t.numpy().tobytes() for t in self._parts())).hexdigest()

    def load(self, root: Path | None) -> Examples:
        """Return the examples."""
        x_train, y_train, x_test, y_test = self._parts()
        return Examples(x_train, y_train, x_test, y_test, n_classes=2)

    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rng = np.random.default_rng(0)
        y = rng.integers(2, size=2 * self.size)
        x = rng.normal(size=(2 * self.size, 10)).astype(np.float32) + y[:, None].astype(np.float32)
        first, rest = slice(None, self.size), slice(self.size, None)
        labels = torch.from_numpy(y)
        return torch.from_numpy(x[first]), labels[first], torch.from_numpy(x[rest]), labels[rest]
''',
        test="""\
def test_both_parts_have_the_size_asked_for_and_two_classes():
    examples = @label@(size=100).load(None)
    assert (len(examples.x_train), len(examples.x_test), set(examples.y_train.tolist())) == (100, 100, {0, 1})
""",
        dataset="{name: @plugin@}",
    ),
    "partition": Template(
        hook="partitions",
        does="every second client has several times as many examples as the others",
        parameters="`ratio`: of the two sizes; `min_size`: examples every client must get",
        imports="""\
from dataclasses import dataclass

import numpy as np

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Ints
""",
        body='''\
@dataclass(frozen=True)
class @label@:
    """Who owns which example: every second client has `ratio` times as many as the others."""

    ratio: float = 3.0  # a parameter is a field with a type and a default; suites give it beside `kind:`
    min_size: int = 10

    def assign(self, classes: Ints, groups: Ints | None, n_clients: int, rng: np.random.Generator) -> Ints:
        """Return the owner of each example [M]: 0 to n_clients - 1, or -1 for an example nobody gets."""
        weights = np.where(np.arange(n_clients) % 2 == 1, self.ratio, 1.0)
        cuts = np.rint(np.cumsum(weights) / weights.sum() * len(classes)).astype(np.int64)
        sizes = np.diff(cuts, prepend=0)
        if sizes.min() < max(1, self.min_size):
            raise DpflbenchError(f"@plugin@: a client has {sizes.min()} examples; allowed: {self.min_size} or more")
        return rng.permutation(np.repeat(np.arange(n_clients), sizes))
''',
        test_imports="import numpy as np\n",
        test="""\
def test_the_second_of_two_clients_gets_three_quarters():
    owners = @label@(ratio=3.0).assign(np.zeros(100, dtype=np.int64), None, 2, np.random.default_rng(0))
    assert np.bincount(owners).tolist() == [25, 75]
""",
        partition="{kind: @plugin@}",
    ),
}
