"""A run before its first round: data, budgets, initial model and engine, each from its own stream.

Everything here and after is computed with a fixed number of threads, one unless told otherwise: how torch adds up
depends on it, and a result must not depend on how many cores a machine has or how many runs share them.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from dpflbench.assembly import Assembly
from dpflbench.canonical import content_digest
from dpflbench.errors import RunEnded
from dpflbench.execution.sharing import shared_task
from dpflbench.federation.gradients import Engine, Kernels, initial_theta, kernels
from dpflbench.federation.leftovers import ClientCode, Inspection
from dpflbench.federation.local import protecting
from dpflbench.federation.simulate import World
from dpflbench.federation.trust import trust_of
from dpflbench.interfaces import PLAIN, Dataset, Identity, Layout, Server, Setup
from dpflbench.keys import Origin, fresh_key, key_of
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.residuals import SAMPLE as SAMPLED
from dpflbench.privacy.residuals import Tape, shadowed
from dpflbench.privacy.unprotected import Unlimited
from dpflbench.randomness import Streams
from dpflbench.tasks.datasets import load_task, located
from dpflbench.tasks.task import Task

HARNESS = "dpflbench"  # the distribution of what is built in
SAMPLE = 2  # rounds of a run in which what it leaves behind is looked for
VARIABLE = "DPFLBENCH_CHECKPOINT_SECONDS"
_recent: list[tuple[Any, Task]] = []  # the last two tasks: runs that share one follow each other


def save_every() -> float:
    """Seconds between checkpoints: $DPFLBENCH_CHECKPOINT_SECONDS, 0 for every round; else 20, so that short runs have
    none.
    """
    return float(os.environ.get(VARIABLE) or 20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and how runs happen."""

    root: Path | None = None  # of data sets
    suite: Path | None = None  # the folder it lies in: paths in it start there
    device: str = "cpu"
    threads: int = 1  # of one run
    kernels: Kernels = "torch"  # what convolutions are computed by
    tasks: Path | None = None  # folder through which processes share their tasks
    noise_key: bytes = field(default_factory=fresh_key, repr=False)
    noise_origin: Origin = "drawn"  # of that key
    isolated: bool = False  # server code in a process of its own
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
    """Torch, NumPy and SciPy compute with that many threads inside, whatever they were loaded with."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


def prepare(assembly: Assembly, place: Place, task: Task | None = None, run: str = "") -> Prepared:
    """The run of that id ready to go, on a task that is already there or its own."""
    streams, federation, algorithm = streams_of(assembly, place, run), assembly.federation, assembly.algorithm
    if algorithm.rule != PLAIN and not federation.local.ruled:
        raise RunEnded(f"{algorithm.name} trains at clients by a local rule; needs federation.local: minibatch")
    with threads(place.threads), kernels(place.kernels):
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
            trust=trust_of(assembly.frame.trust),
            streams=streams,
            server=federation.server or (Server("momentum", federation.momentum) if federation.momentum else Server()),
            weight_decay=federation.weight_decay,
            evaluate_every=assembly.evaluate.every,
            inspection=inspection_of(assembly, engine, streams),
        )
        return Prepared(world, ledger_of(setup, algorithm.private), initial_theta(module).to(place.device), phi)


def streams_of(assembly: Assembly, place: Place, run: str) -> Streams:
    """All randomness of a run: `randomness.py` says which key and which name of the run its noise hangs on."""
    privacy, alone = assembly.privacy, content_digest(assembly.config)
    if privacy is None or not assembly.algorithm.private:
        return Streams(assembly.seed, place.noise_key, run or alone, place.noise_origin)
    key, origin = place.noise_key, place.noise_origin
    if privacy.noise_key is not None:
        key, origin, run = key_of(privacy.noise_key, "privacy.noise_key"), "pinned", alone
    return Streams(assembly.seed, key, "" if privacy.paired_noise else run or alone, origin)


def inspection_of(assembly: Assembly, engine: Engine, streams: Streams) -> Inspection:
    """The look at what client code leaves behind, in a sample of rounds after the first; none where all is built in.

    Which rounds hangs on the noise key: it can be repeated, and client code cannot know it.
    """
    foreign = [part for part in assembly.parts if part.distribution != HARNESS]
    ours = {HARNESS, *(_top(part.module) for part in assembly.parts if part.distribution == HARNESS)}
    parts, packages = list[Any](), set[str]()
    for kinds, part in (
        (("algorithms", "transforms"), assembly.algorithm.transform),
        (("algorithms", "local_rules"), assembly.algorithm.rule),
        (("local_updates",), assembly.federation.local),
        (("models",), assembly.task.model),
    ):
        suppliers = {_top(supplier.module) for supplier in foreign if supplier.kind in kinds}
        if type(part) not in (Identity, type(PLAIN)) and (suppliers or _top(type(part).__module__) not in ours):
            parts.append(part)
            packages |= suppliers
    if not parts or assembly.federation.rounds < 2:
        return Inspection()
    built = [engine.module] if assembly.task.model in parts else []
    seed = hashlib.blake2b(f"leftovers/{streams.seed}/{streams.run}".encode(), key=streams.secret).digest()
    rounds = np.random.default_rng(list(seed)).permutation(np.arange(1, assembly.federation.rounds))[:SAMPLE]
    return Inspection(ClientCode.of(*parts, built=built, packages=packages), frozenset(rounds.tolist()))


def overheard(prepared: Prepared, assembly: Assembly) -> tuple[Prepared, Tape]:
    """The run with a mechanism that is not built in on tape, on a sample of its calls; nothing else has another noise.

    Which calls hangs on the noise key, as above.
    """
    world, noise = prepared.world, [part for part in assembly.parts if part.kind == "mechanisms"]
    setup, streams = world.setup, world.streams
    if not assembly.algorithm.private or all(part.distribution == HARNESS for part in noise):
        return prepared, Tape(limit=0)
    total = setup.rounds * setup.cohort_size * setup.dim * int(setup.message().steps.max())

    def wanted(call: int) -> bool:
        drawn = hashlib.blake2b(f"residuals/{streams.seed}/{streams.run}/{call}".encode(), key=streams.secret).digest()
        return int.from_bytes(drawn[:8], "big") < min(1.0, SAMPLED / total) * 2**64

    tape = Tape(wanted, 2 * SAMPLED)
    setup = replace(setup, mechanism=shadowed(setup.mechanism, tape))
    inspection = replace(world.inspection, beside=(tape,))
    return replace(prepared, world=replace(world, setup=setup, inspection=inspection)), tape


def _top(module: str) -> str:
    return module.partition(".")[0]


def ledger_of(setup: Setup, private: bool) -> Ledger | Unlimited:
    """The ledger of a run, before anything is charged."""
    return Ledger(setup.accountant, setup.epsilon, setup.delta) if private else Unlimited(setup.n_clients)


def setup_of(assembly: Assembly, task: Task, streams: Streams, layout: Layout, phi_dim: int) -> Setup:
    """What everybody may know: budgets are drawn from their own stream, so every algorithm of a column has the same."""
    federation, privacy, n = assembly.federation, assembly.privacy, assembly.federation.clients
    known = assembly.algorithm.private or assembly.counterfactual is not None  # aggregators may weigh by budgets
    rng, budgets = streams.numpy("budgets"), privacy if known else None
    epsilon = budgets.epsilon.draw(n, rng) if budgets and budgets.epsilon else np.full(n, np.inf)
    delta = budgets.delta.draw(n, rng) if budgets and budgets.delta else np.zeros(n)
    mechanism, accountant = assembly.noise[0], assembly.noise[1].of(epsilon, delta)
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
        local=protecting(federation.local, assembly.frame.unit),
        clip_norm=privacy.clip_norm if privacy and (assembly.algorithm.private or assembly.algorithm.clip) else np.inf,
        lr=federation.lr,
        layout=layout,
        phi_dim=phi_dim,
        n_classes=task.n_classes,
        neighbours=assembly.neighbours,
        passes=assembly.algorithm.rule.passes,
        trust=assembly.frame.trust,
        unit=assembly.frame.unit,
        cohorts=assembly.frame.cohorts,
    )


def dataset_of(assembly: Assembly, place: Place) -> Dataset:
    """The data set of a run, where its files lie."""
    return located(assembly.task.dataset, place.suite, place.root)


def task_key(assembly: Assembly) -> str:
    """What determines the task of a run: runs that agree in it learn from the same tensors."""
    given = {key: value for key, value in assembly.config["task"].items() if key != "model"}
    return repr((given, assembly.federation.clients, assembly.seed))


def task_of(assembly: Assembly, place: Place) -> Task:
    """The task of a run; kept while further runs of the same data, partition and seed follow.

    Of the same data: a file that was changed in the meantime has another digest.
    """
    parts = [part for part in assembly.parts if part.kind in ("datasets", "features", "partitions")]
    where = (place.root, place.device, place.threads, place.tasks, dataset_of(assembly, place).digest(place.root))
    key = (task_key(assembly), parts, where)
    found = next((task for known, task in _recent if known == key), None)
    if found is None:
        found = _task(assembly, place)
        _recent[:] = [*_recent[-1:], (key, found)]
    return found


def _task(assembly: Assembly, place: Place) -> Task:
    def build() -> Task:
        section = assembly.task
        return load_task(
            dataset_of(assembly, place),
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
    return shared_task(place.tasks, task_key(assembly) + dataset_of(assembly, place).digest(place.root), build)
