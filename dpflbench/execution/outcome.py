"""What a run leaves behind: its record, whatever the way it ended."""

import hashlib
import math
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench import __version__
from dpflbench.assembly import Assembly
from dpflbench.canonical import content_digest
from dpflbench.execution.prepare import Prepared
from dpflbench.execution.yardstick import reference
from dpflbench.federation.evaluate import evaluate_clients, evaluate_mean_phi, metric_of, pooled
from dpflbench.federation.gradients import chosen
from dpflbench.federation.pull import Pull, weights_known
from dpflbench.federation.simulate import Clock, State, World
from dpflbench.interfaces import Algorithm, Setup
from dpflbench.planning import Run
from dpflbench.privacy.information import data_coverage, mean_limit, noise_efficiency, variance_limit
from dpflbench.provenance.checkout import commit, processor
from dpflbench.provenance.runs import modules_of
from dpflbench.results.record import MSE, Record, Status


def record_of(
    run: Run,
    assembly: Assembly,
    prepared: Prepared,
    state: State | None,
    status: Status,
    reason: str,
    measured: Mapping[str, Any],
) -> Record:
    """Everything a run has done so far; utilities at the end only for one that is done."""
    world, ledger = prepared.world, prepared.ledger
    clients: dict[str, Any] = {
        "n_examples": world.setup.n_examples,
        "epsilon": world.setup.epsilon,
        "delta": world.setup.delta,
        "epsilon_spent": ledger.epsilon_spent(),
        "n_holdout": world.task.holdout.sizes.astype(np.int64),
    }
    final: dict[str, float] = {}
    curves: dict[str, Any] = {}
    notes: list[Mapping[str, Any]] = []
    if state is not None:
        clients["uses"], clients["weight"] = state.used, state.pull.weight
        notes = list(state.notes)
        curves = {
            "round": np.array([r for r, _ in state.points]),
            "utility_global": np.array([p.utility for _, p in state.points]),
            "loss": np.array([p.loss for _, p in state.points]),
        }
        if status == "done":
            final = _final(prepared, state, curves, clients)
    return replace(
        bare_record(run, assembly, status, reason, measured),
        metric=metric_of(world.task),
        rounds=curves,
        final=final,
        clients=clients,
        events=ledger.events(),
        facts=_facts(run, assembly, prepared, state),
        notes=notes,
    )


def bare_record(run: Run, assembly: Assembly, status: Status, reason: str, measured: Mapping[str, Any]) -> Record:
    """The record of a run of which nothing is left but the way it ended."""
    return Record(
        id=run.id,
        status=status,
        reason=reason,
        config=run.config,
        algorithm=assembly.algorithm.name,
        private=assembly.algorithm.private,
        metric=MSE,
        plugins=run.plugins,
        measured=measured,
    )


def measured(clock: Clock, device: str, assembly: Assembly) -> dict[str, Any]:
    """Times, machine and modules: what differs from one time to the next."""
    seconds = time.perf_counter() - clock.started
    return {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - clock.cpu,  # of the rounds
        "gradient_seconds": clock.gradient,
        **_warm(clock),
        "started": time.time() - seconds,
        **environment(device),
        **reference(device),
        "modules": modules_of(assembly),
    }


def _warm(clock: Clock) -> dict[str, float]:
    """What a round takes, and how fast clients compute, without the first round of the process; nothing if there is no
    other.
    """
    rounds, (began, gradient, samples) = clock.laps - 1, clock.warm
    if rounds < 1:
        return {}
    computed = clock.gradient - gradient
    return {
        "round_seconds": (time.perf_counter() - began) / rounds,
        "round_gradient_seconds": computed / rounds,
        "samples_per_second": (clock.samples - samples) / computed if computed else 0.0,
    }


def environment(device: str) -> dict[str, Any]:
    """Versions and machine of a measurement."""
    versions = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "dpflbench": __version__,
    }
    return {
        "device": device,
        "threads": torch.get_num_threads(),
        "kernels": chosen(),
        "versions": versions,
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "commit": commit(),
        "platform": sys.platform,
    }


def digest_of(tensor: Tensor) -> str:
    """SHA-256 of a tensor's bytes on the host."""
    return hashlib.sha256(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes()).hexdigest()


def _final(prepared: Prepared, state: State, curves: Mapping[str, Any], clients: dict[str, Any]) -> dict[str, float]:
    """Utility at the end, global and personal; the best round only beside it."""
    world = prepared.world
    models = _models(world, state)
    shared, personal = evaluate_clients(world.engine, state.theta, state.phi, world.task, models)
    clients["utility_shared"], clients["utility_personal"] = shared, personal
    best = np.argmax if metric_of(world.task).higher_is_better else np.argmin
    top = int(best(curves["utility_global"]))
    counts = world.task.holdout.sizes.astype(float)
    return {
        "utility_global": float(curves["utility_global"][-1]),
        "loss": float(curves["loss"][-1]),
        "utility_mean_phi": evaluate_mean_phi(world.engine, state.theta, state.phi, world.task),
        "utility_personal": pooled(personal, counts),
        "utility_shared": pooled(shared, counts),
        "best_utility_global": float(curves["utility_global"][top]),
        "best_round": float(curves["round"][top]),
    }


def _models(world: World, state: State | None) -> Tensor | None:
    """The models of clients that have their own [N, D]."""
    return None if state is None else world.algorithm.rule.personal(state.theta, state.own)


def why_facts(setup: Setup, pull: Pull, algorithm: Algorithm, adapted: bool = False) -> dict[str, Any]:
    """Noise efficiency and data coverage of the rounds played, and how they were had; only what is known. Noise that
    follows an adapted clip is not held against what one clip bound allows.
    """
    known = {"data_coverage": data_coverage(pull.weight, setup.n_examples)}
    how: dict[str, Any] = {"weights": weights_known(algorithm.aggregator, pull), "rounds": pull.rounds}
    if algorithm.private and pull.rounds:
        how |= {
            "variance": pull.variance / pull.rounds,
            "limit": math.nan if adapted else variance_limit(setup),
            "mean_limit": math.nan if adapted else mean_limit(setup),
        }
        known["noise_efficiency"] = noise_efficiency(how["limit"], how["variance"])
    return {**{k: v for k, v in known.items() if math.isfinite(v)}, "why": how}


def _facts(run: Run, assembly: Assembly, prepared: Prepared, state: State | None) -> dict[str, Any]:
    world, task = prepared.world, prepared.world.task
    adapted = state is not None and len(state.bounds) > 1
    split = content_digest(
        [task.train.offsets, digest_of(task.train.y), task.holdout.offsets, digest_of(task.holdout.y)]
    )
    return {
        "dim": world.engine.layout.dim,
        "phi_dim": world.setup.phi_dim,
        **({"personal_models": True} if _models(world, state) is not None else {}),
        "n_train": len(task.train.y),
        "n_test": len(task.test_y),
        "n_classes": task.n_classes,
        "gradient_path": world.engine.path,
        **({} if getattr(assembly.features, "fitted", True) else {"features_fitted": False}),
        "data_digest": run.data_digest,
        "split_digest": split,
        "initial_model": digest_of(prepared.theta),
        "final_model": digest_of(state.theta) if state is not None else "",
        "mechanism": {
            "name": assembly.noise[0].name,
            "law": assembly.noise[0].law.name,
            "accountant": assembly.noise[1].name,
            "clip_norm": world.setup.clip_norm,
        },
        "references": dict(task.references),
        "ledger_digest": prepared.ledger.digest(),
        "noise": world.streams.facts() if assembly.algorithm.private else {},
        "ledger_chain": prepared.ledger.chain(),
        **(why_facts(world.setup, state.pull, assembly.algorithm, adapted) if state is not None else {}),
        **({"clip_bounds": np.array(state.bounds)} if adapted and state is not None else {}),
    }
