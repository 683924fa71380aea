"""Small worlds for checks: public facts, rounds of noisy updates and a toy data set, all from fixed seeds.

No number here comes from anybody's data, and nothing is read from disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpflbench.catalogue import GROUP, Catalogue, Part, load
from dpflbench.errors import DpflbenchError
from dpflbench.federation.local import FullStep
from dpflbench.interfaces import (
    Accountant,
    Availability,
    Event,
    Examples,
    Floats,
    Layout,
    LearningRate,
    Mechanism,
    ParameterTensor,
    Setup,
    Updates,
)

# two layers and a normalisation between them: what an aggregator that looks at tensors meets
LAYOUT = Layout(
    (
        ParameterTensor("first.weight", (5, 4), 0, 20),
        ParameterTensor("first.bias", (5,), 20, 25),
        ParameterTensor("norm.weight", (5,), 25, 30, norm=True),
        ParameterTensor("norm.bias", (5,), 30, 35, norm=True),
        ParameterTensor("last.weight", (3, 5), 35, 50),
        ParameterTensor("last.bias", (3,), 50, 53),
    )
)


@lru_cache
def standard_parts() -> Mapping[str, Mapping[str, Part]]:
    """What dpflbench's own distribution supplies, whatever else is installed."""
    points = [
        p for p in entry_points(group=GROUP) if p.dist is not None and p.dist.name == "dpflbench" and p.name == "parts"
    ]
    return load(points=points).parts


def standard_accountant(name: str) -> Accountant:
    """One of dpflbench's own accountants; DpflbenchError if there is none of that name."""
    made: Accountant = Catalogue(standard_parts()).get("accountants", name).factory()
    return made


@lru_cache
def standard_noise() -> dict[str, tuple[Mechanism, Accountant]]:
    """Gaussian and Laplace noise with their accountants as dpflbench's own distribution supplies them."""
    parts = standard_parts()
    missing = {"gaussian", "laplace"} - set(parts["mechanisms"])
    if missing:
        raise DpflbenchError(
            f"dpflbench's own {' and '.join(sorted(missing))} noise is not installed; reinstall dpflbench"
        )
    mechanisms = [parts["mechanisms"][name].factory() for name in ("gaussian", "laplace")]
    return {m.name: (m, parts["accountants"][m.accountant].factory()) for m in mechanisms}


class TwoOrders(Accountant):
    """Another accountant's currency at two orders of a curve, of which the ledger freezes one a client.

    At the second everything costs twice as much of twice the budget, less a little.
    """

    name = "two_orders"

    def __init__(self, one: Accountant) -> None:
        self.one, self.pure, self.exponent = one, one.pure, one.exponent  # type: ignore[misc]

    def supports(self, event: Event) -> str:
        """As the one order."""
        return self.one.supports(event)

    def cost(self, event: Event) -> Floats:
        """At both orders."""
        return np.asarray(self.one.cost(event) * np.array([1.0, 2.0]))

    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """At both orders; the second allows less."""
        return np.asarray(self.one.budget(epsilon, delta) * np.array([1.0, 1.9]))

    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """By whichever order was counted."""
        return self.one.epsilon(np.min(cost * np.array([1.0, 1 / 1.9]), axis=-1, keepdims=True), delta)

    def scale(self, cost: Floats, event: Event) -> Floats:
        """At which one of the orders costs that much at most."""
        return self.one.scale(np.max(cost * np.array([1.0, 0.5]), axis=-1, keepdims=True), event)


def devices() -> list[str]:
    """The CPU and every kind of accelerator there is."""
    found = ["cpu"]
    if torch.cuda.is_available():
        found.append("cuda")
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def setup_of(
    noise: tuple[Mechanism, Accountant],
    n_clients: int = 12,
    cohort_size: int = 4,
    rounds: int = 10,
    equal: bool = False,
    layout: Layout = LAYOUT,
    phi_dim: int = 0,
) -> Setup:
    """Public facts of a federation whose clients differ in size and budget, or not at all (`equal`)."""
    mechanism, accountant = noise
    rng = np.random.default_rng(20240816)
    n_examples = rng.integers(50, 200, n_clients)
    epsilon, delta = rng.uniform(0.5, 4.0, n_clients), rng.uniform(1e-5, 1e-4, n_clients)
    if equal:
        n_examples, epsilon, delta = np.full(n_clients, 100), np.full(n_clients, 2.0), np.full(n_clients, 1e-5)
    delta = np.zeros(n_clients) if accountant.pure else delta
    return Setup(
        n_clients=n_clients,
        cohort_size=cohort_size,
        rounds=rounds,
        n_examples=n_examples.astype(np.int64),
        epsilon=epsilon,
        delta=delta,
        budget=accountant.budget(epsilon, delta),
        mechanism=mechanism,
        accountant=accountant,
        local=FullStep(),
        clip_norm=1.0,
        lr=LearningRate(0.5, 100.0),
        layout=layout,
        phi_dim=phi_dim,
        n_classes=3,
    )


def updates_of(setup: Setup, round: int, rows: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Updates:
    """Noisy updates of one round: `rows` clients, in the order of their numbers as in a run."""
    rng = np.random.default_rng([7, round, rows])
    clients = np.sort(rng.permutation(setup.n_clients)[:rows])
    scale = setup.accountant.scale(setup.budget / 4, setup.message())
    common = rng.normal(0.0, 0.1, setup.layout.dim)
    values = common + scale[clients, None] * rng.normal(0.0, 1.0, (rows, setup.layout.dim))

    def column(array: object) -> Tensor:
        return torch.as_tensor(array, dtype=dtype, device=device)

    return Updates(
        values=column(values),
        clients=torch.as_tensor(clients, device=device),
        epsilon=column(setup.epsilon[clients]),
        delta=column(setup.delta[clients]),
        n_examples=column(setup.n_examples[clients]),
        variance=column(setup.mechanism.variance(scale)[clients]),
        round=round,
    )


@dataclass(frozen=True, slots=True)
class Toy:
    """Three clouds of points in ten dimensions, made in memory: enough to learn something in a few rounds."""

    def availability(self, root: Path | None) -> Availability:
        """Always there."""
        return Availability(True, "memory", "complete", "none", "nothing to get")

    def digest(self, root: Path | None) -> str:
        """A name in place of a digest: the content is a constant."""
        return "toy"

    def load(self, root: Path | None) -> Examples:
        """Return 360 training and 60 test points."""
        rng = np.random.default_rng(1)
        y = np.arange(420) % 3
        x = rng.normal(0.0, 1.0, (3, 10))[y] + rng.normal(0.0, 0.7, (420, 10))
        points, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.int64)
        return Examples(points[:360], labels[:360], points[360:], labels[360:], n_classes=3)
