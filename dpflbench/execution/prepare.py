"""A run before its first round: data, budgets, initial model and engine, each from its own stream.

Everything here and after is computed with a fixed number of threads, one unless told otherwise: how torch adds up
depends on it, and a result must not depend on how many cores a machine has or how many runs share them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.assembly import Assembly
from dpflbench.execution.sharing import shared_task
from dpflbench.federation.gradients import Engine, initial_theta
from dpflbench.federation.simulate import World
from dpflbench.federation.trust import TRUSTS
from dpflbench.interfaces import Layout, Setup
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.unprotected import Unlimited
from dpflbench.randomness import Streams
from dpflbench.tasks.datasets import load_task
from dpflbench.tasks.task import Task

VARIABLE = "DPFLBENCH_CHECKPOINT_SECONDS"
_recent: list[tuple[Any, Task]] = []  # the last two tasks: runs that share one follow each other


def save_every() -> float:
    """Seconds between checkpoints: $DPFLBENCH_CHECKPOINT_SECONDS, 0 for every round; else 20, so that short runs have
    none.
    """
    return float(os.environ.get(VARIABLE) or 20.0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how runs happen."""

    root: Path | None = None  # of data sets
    device: str = "cpu"
    threads: int = 1  # of one run
    tasks: Path | None = None  # folder through which processes share their tasks
    save_every: float = field(default_factory=save_every)  # seconds


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A run ready for its first round."""

    world: World
    ledger: Ledger | Unlimited
    theta: Tensor
    phi: Tensor


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch computes with that many threads inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(assembly: Assembly, place: Place, task: Task | None = None) -> Prepared:
    """The run ready to go, on a task that is already there or its own."""
    streams, federation, algorithm = Streams(assembly.seed), assembly.federation, assembly.algorithm
    with threads(place.threads):
        task = task or task_of(assembly, place)
        module = streams.isolated("init", lambda: assembly.task.model.build(task.input_shape, task.n_outputs))
        order = assembly.noise[0].clip_order
        probe_layout = Engine(module, task.n_classes, order).layout
        phi = algorithm.transform.init(
            federation.clients, task.input_shape, probe_layout, streams.torch("transform")
        ).to(place.device)
        engine = Engine(module, task.n_classes, order, algorithm.transform, phi.shape[1])
        setup = setup_of(assembly, task, streams, engine.layout, phi.shape[1])
        world = World(
            algorithm=algorithm,
            setup=setup,
            task=task,
            engine=engine,
            trust=TRUSTS[assembly.privacy.trust if assembly.privacy else "local"](),
            streams=streams,
            weight_decay=federation.weight_decay,
            momentum=federation.momentum,
            evaluate_every=assembly.evaluate.every,
        )
        return Prepared(world, ledger_of(setup, algorithm.private), initial_theta(module).to(place.device), phi)


def ledger_of(setup: Setup, private: bool) -> Ledger | Unlimited:
    """The ledger of a run, before anything is charged."""
    return Ledger(setup.accountant, setup.epsilon, setup.delta) if private else Unlimited(setup.n_clients)


def setup_of(assembly: Assembly, task: Task, streams: Streams, layout: Layout, phi_dim: int) -> Setup:
    """What everybody may know: budgets are drawn from their own stream, so every algorithm of a column has the same."""
    federation, privacy, n = assembly.federation, assembly.privacy, assembly.federation.clients
    rng, budgets = streams.numpy("budgets"), privacy if assembly.algorithm.private else None
    epsilon = budgets.epsilon.draw(n, rng) if budgets and budgets.epsilon else np.full(n, np.inf)
    delta = budgets.delta.draw(n, rng) if budgets and budgets.delta else np.zeros(n)
    mechanism, accountant = assembly.noise
    return Setup(
        n_clients=n,
        cohort_size=federation.cohort,
        rounds=federation.rounds,
        n_examples=task.train.sizes.astype(np.int64),
        epsilon=epsilon,
        delta=delta,
        budget=accountant.budget(epsilon, delta),
        mechanism=mechanism,
        accountant=accountant,
        local=federation.local,
        clip_norm=privacy.clip_norm if privacy else float("inf"),
        lr=federation.lr,
        layout=layout,
        phi_dim=phi_dim,
        n_classes=task.n_classes,
    )


def task_key(assembly: Assembly) -> str:
    """What determines the task of a run: runs that agree in it learn from the same tensors."""
    given = {key: value for key, value in assembly.config["task"].items() if key != "model"}
    return repr((given, assembly.federation.clients, assembly.seed))


def task_of(assembly: Assembly, place: Place) -> Task:
    """The task of a run; kept while further runs of the same data, partition and seed follow."""
    parts = [part for part in assembly.parts if part.kind in ("datasets", "features", "partitions")]
    key = (task_key(assembly), parts, place)
    found = next((task for known, task in _recent if known == key), None)
    if found is None:
        found = _task(assembly, place)
        _recent[:] = [*_recent[-1:], (key, found)]
    return found


def _task(assembly: Assembly, place: Place) -> Task:
    def build() -> Task:
        section = assembly.task
        return load_task(
            section.dataset,
            assembly.features,
            section.partition,
            assembly.federation.clients,
            section.holdout,
            section.split,
            Streams(assembly.seed),
            place.root,
            place.device,
            section.limit,
        )

    if place.tasks is None or torch.device(place.device).type != "cpu":
        return build()
    return shared_task(place.tasks, task_key(assembly), build)
