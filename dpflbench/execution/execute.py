"""One run from its configuration to its record, in this process.

A run is a pure function of configuration, data and device: an executor anywhere calls `execute` and keeps what comes back.
"""

import hashlib
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dpflbench import __version__
from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError, RunEnded, SuiteError
from dpflbench.execution.reference import reference
from dpflbench.federation.evaluate import evaluate_clients, evaluate_mean_phi, metric_of, pooled
from dpflbench.federation.gradients import Engine, initial_theta
from dpflbench.federation.simulate import Clock, State, World, initial_state, rounds
from dpflbench.interfaces import Dataset, Layout, Setup
from dpflbench.plan import Assembly, Run, assemble
from dpflbench.privacy.ledger import Ledger
from dpflbench.randomness import Streams
from dpflbench.records import MSE, Record, content_digest
from dpflbench.tasks.datasets import load_task
from dpflbench.tasks.features import Features
from dpflbench.tasks.partition import Partition
from dpflbench.tasks.task import Task

Progress = Callable[[State], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs happen: data root and device."""

    root: Path | None = None
    device: str = "cpu"


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A run ready for its first round."""

    world: World
    ledger: Ledger | None
    theta: Tensor
    phi: Tensor


def execute(run: Run, catalogue: Catalogue, place: Place, progress: Progress | None = None) -> Record:
    """The record of a run: done, diverged, disqualified or failed, each with its reason."""
    problems: list[str] = []
    made = assemble(run.config, catalogue, problems)
    if made is None:
        raise SuiteError([f"run {run.id}: {p}" for p in problems])
    assembly = made[0]
    clock, prepared, state = Clock(), None, None
    status, reason = "done", ""
    try:
        prepared = prepare(assembly, place)
        state = initial_state(prepared.world, prepared.theta, prepared.phi)
        clock.cpu = time.process_time()
        for state in rounds(prepared.world, state, prepared.ledger, clock):
            if progress:
                progress(state)
    except RunEnded as e:
        status, reason = e.status, str(e)
    except DpflbenchError as e:
        status, reason = "failed", str(e)
    except (RuntimeError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, MemoryError) as e:
        # a plugin's or our own bug costs its run, not the suite; the record says which
        status, reason = "failed", f"{type(e).__name__}: {e}"
    return _record(run, assembly, prepared, state, status, reason, clock, place)


def prepare(assembly: Assembly, place: Place) -> Prepared:
    """Data, budgets, initial model and engine of a run, each from its own stream."""
    streams, federation, algorithm = Streams(assembly.seed), assembly.federation, assembly.algorithm
    task = task_of(assembly, place)
    module = streams.isolated("init", lambda: assembly.model.build(task.input_shape, task.n_outputs))
    order = assembly.mechanism.clip_order if assembly.mechanism else 2
    probe_layout = Engine(module, task.n_classes, order).layout
    phi = algorithm.transform.init(federation.clients, task.input_shape, probe_layout, streams.torch("transform")).to(place.device)
    engine = Engine(module, task.n_classes, order, algorithm.transform, phi.shape[1])
    setup = setup_of(assembly, task, streams, engine.layout, phi.shape[1])
    world = World(algorithm, setup, task, engine, streams, federation.weight_decay, federation.momentum, assembly.evaluate.every)
    ledger = Ledger(setup.mechanism, setup.epsilon, setup.delta) if algorithm.private else None
    return Prepared(world, ledger, initial_theta(module).to(place.device), phi)


def setup_of(assembly: Assembly, task: Task, streams: Streams, layout: Layout, phi_dim: int) -> Setup:
    """What everybody may know: budgets are drawn from their own stream, so every algorithm of a column has the same."""
    federation, n = assembly.federation, assembly.federation.clients
    private = assembly.algorithm.private and assembly.epsilon is not None and assembly.mechanism is not None
    rng = streams.numpy("budgets")
    epsilon = assembly.epsilon.draw(n, rng) if private and assembly.epsilon else np.full(n, np.inf)
    delta = assembly.delta.draw(n, rng) if private and assembly.delta else np.zeros(n)
    budget = assembly.mechanism.budget(epsilon, delta) if private and assembly.mechanism else np.full((n, 1), np.inf)
    mechanism: Any = assembly.mechanism  # None only where nothing is noised or clipped
    return Setup(n, federation.cohort, federation.rounds, task.train.sizes.astype(np.int64), epsilon, delta, budget, mechanism,
                 assembly.clip_norm or float("inf"), federation.lr, layout, phi_dim, task.n_classes)


def task_of(assembly: Assembly, place: Place) -> Task:
    """The task of a run; kept while further runs of the same data, partition and seed follow."""
    key: Any = (assembly.dataset, assembly.features, assembly.partition, assembly.federation.clients, assembly.holdout,
                assembly.split, assembly.limit, assembly.seed, place)
    return _task(*key)


@lru_cache(maxsize=2)
def _task(dataset: Dataset, features: Features | None, partition: Partition, clients: int, holdout: float,
          split: Literal["official", "paper"], limit: int | None, seed: int, place: Place) -> Task:
    return load_task(dataset, features, partition, clients, holdout, split, Streams(seed), place.root, place.device, limit)


def digest_of(tensor: Tensor) -> str:
    """SHA-256 of a tensor's bytes on the host."""
    return hashlib.sha256(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes()).hexdigest()


def _record(run: Run, assembly: Assembly, prepared: Prepared | None, state: State | None, status: Any, reason: str, clock: Clock,
            place: Place) -> Record:
    """Everything measured so far, whatever the way the run ended."""
    measured = {"seconds": time.perf_counter() - clock.started, "cpu_seconds": time.process_time() - clock.cpu,  # of the rounds
                "gradient_seconds": clock.gradient,
                "samples_per_second": clock.samples / clock.gradient if clock.gradient else 0.0,
                "started": time.time() - (time.perf_counter() - clock.started), **environment(place.device),
                **reference(place.device)}
    blank = Record(run.id, status, reason, run.config, assembly.algorithm.name, assembly.algorithm.private, MSE, plugins=run.plugins,
                   measured=measured)
    if prepared is None:
        return blank
    world, ledger = prepared.world, prepared.ledger
    facts = _facts(run, assembly, prepared, state)
    events = ledger.events() if ledger else {}
    clients: dict[str, Any] = {"n_examples": world.setup.n_examples, "epsilon": world.setup.epsilon, "delta": world.setup.delta,
                               "epsilon_spent": ledger.epsilon_spent() if ledger else np.full(world.setup.n_clients, np.inf),
                               "n_holdout": world.task.holdout.sizes.astype(np.int64)}
    final: dict[str, float] = {}
    curves: dict[str, Any] = {}
    notes: list[Mapping[str, Any]] = []
    if state is not None:
        clients["uses"] = state.used
        notes = list(state.notes)
        curves = {"round": np.array([r for r, _ in state.points]), "utility_global": np.array([p.utility for _, p in state.points]),
                  "loss": np.array([p.loss for _, p in state.points])}
        if status == "done":
            final = _final(prepared, state, curves, clients)
    return Record(run.id, status, reason, run.config, assembly.algorithm.name, assembly.algorithm.private, metric_of(world.task),
                  curves, final, clients, events, facts, notes, run.plugins, measured)


def _final(prepared: Prepared, state: State, curves: Mapping[str, Any], clients: dict[str, Any]) -> dict[str, float]:
    """Utility at the end, global and personal; the best round only beside it."""
    world = prepared.world
    shared, personal = evaluate_clients(world.engine, state.theta, state.phi, world.task)
    clients["utility_shared"], clients["utility_personal"] = shared, personal
    best = np.argmax if metric_of(world.task).higher_is_better else np.argmin
    top = int(best(curves["utility_global"]))
    counts = world.task.holdout.sizes.astype(float)
    return {"utility_global": float(curves["utility_global"][-1]), "loss": float(curves["loss"][-1]),
            "utility_mean_phi": evaluate_mean_phi(world.engine, state.theta, state.phi, world.task),
            "utility_personal": pooled(personal, counts), "utility_shared": pooled(shared, counts),
            "best_utility_global": float(curves["utility_global"][top]), "best_round": float(curves["round"][top])}


def _facts(run: Run, assembly: Assembly, prepared: Prepared, state: State | None) -> dict[str, Any]:
    world, task = prepared.world, prepared.world.task
    split = content_digest([task.train.offsets, digest_of(task.train.y), task.holdout.offsets, digest_of(task.holdout.y)])
    return {
        "dim": world.engine.layout.dim, "phi_dim": world.setup.phi_dim, "n_train": len(task.train.y), "n_test": len(task.test_y),
        "n_classes": task.n_classes, "gradient_path": world.engine.path, "data_digest": run.data_digest, "split_digest": split,
        "initial_model": digest_of(prepared.theta), "final_model": digest_of(state.theta) if state is not None else "",
        "mechanism": {"name": assembly.mechanism.name if assembly.mechanism else "none", "clip_norm": world.setup.clip_norm},
        "references": dict(task.references), "ledger_digest": prepared.ledger.digest() if prepared.ledger else "",
    }


def environment(device: str) -> dict[str, Any]:
    """Versions and machine of a measurement."""
    versions = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__, "dpflbench": __version__}
    return {"device": device, "threads": torch.get_num_threads(), "versions": versions,
            "machine": f"{platform.system()} {platform.machine()}", "platform": sys.platform}
