"""Synthetic results for report tests: honest-looking records with known numbers, made without training."""

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpflbench.results.cells import Cell, Manifest, Results
from dpflbench.results.record import ACCURACY, Metric, Record

LEVELS = {
    "FedSGD": 92.0,
    "DPSGD": 74.0,
    "DMLDP": 70.0,
    "WeiAvg": 84.0,
    "PFA": 83.0,
    "PRIVATEFL": 78.0,
    "DPFL-BCS": 86.0,
    "PRIVATEFL-BCS": 85.0,
}
NEEDS = {"DPSGD": "gaussian", "DMLDP": "laplace"}
SUITE = {
    "name": "synthetic",
    "task": {"dataset": {"name": "mnist"}, "model": "softmax", "partition": {"kind": "dirichlet", "alpha": 3.0}},
    "federation": {"clients": 12, "cohort": 3, "rounds": 20, "lr": {"initial": 2.0, "decay": 200.0}},
    "privacy": {"mechanism": "gaussian", "clip": 1.0, "epsilon": {"kind": "uniform", "low": 0.1, "high": 3.0}},
}


def put(tree: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a nested mapping with one dotted path set."""
    head, _, rest = path.partition(".")
    below = tree.get(head, {})
    return {**tree, head: put(below, rest, value) if rest else value}


def make_record(
    run: str,
    algorithm: str,
    seed: int,
    config: Mapping[str, Any],
    utility: float,
    *,
    metric: Metric = ACCURACY,
    status: Any = "done",
    reason: str = "",
    n_clients: int = 12,
    private: bool | None = None,
    notes: Sequence[Mapping[str, Any]] = (),
) -> Record:
    """One record whose final utility is exactly `utility`, and whose clients' mean utility is too."""
    rng = np.random.default_rng(zlib.crc32(run.encode()))
    shared = np.random.default_rng(seed)
    private = algorithm != "FedSGD" if private is None else private
    rounds = np.arange(1, 21)
    start = 10.0 if metric.higher_is_better else 4 * abs(utility) + 1
    curve = utility + (start - utility) * np.exp(-rounds / 4.0)
    curve[-1] = utility
    epsilon = shared.uniform(0.1, 3.0, n_clients)
    uses = (
        np.full(n_clients, 5)
        if "BCS" not in algorithm
        else np.maximum(0, np.round(10 * epsilon / epsilon.max())).astype(int)
    )
    slope = (uses - 5.0) / 2 if metric.higher_is_better else (5.0 - uses) / 2  # who takes part more is served better
    clients = {
        "n_examples": shared.integers(80, 200, n_clients),
        "epsilon": epsilon if private else np.full(n_clients, np.inf),
        "delta": shared.uniform(1e-5, 1e-4, n_clients),
        "uses": uses,
        "epsilon_spent": np.where(uses > 0, epsilon * 0.9999, 0.0) if private else np.full(n_clients, np.inf),
        "utility_shared": utility + slope,
        "utility_personal": utility + slope + 0.5,
        "n_holdout": np.full(n_clients, 10),
    }
    ended_well = status == "done"
    best = max(curve) if metric.higher_is_better else min(curve)
    return Record(
        id=run,
        status=status,
        reason=reason,
        config={**config, "algorithm": {"use": algorithm}, "seed": seed},
        algorithm=algorithm,
        private=private,
        metric=metric,
        rounds={"round": rounds, "utility_global": curve, "loss": curve / 50} if ended_well else {},
        final={
            "utility_global": utility,
            "utility_mean_phi": utility + 0.25,
            "utility_personal": utility + 0.5,
            "loss": 1.0,
            "best_utility_global": float(best),
            "best_round": 20.0,
        }
        if ended_well
        else {},
        clients=clients,
        events={},
        facts={"dim": 510, "n_train": 1000, "data_digest": "d" * 64, "mechanism": {"name": "gaussian"}},
        notes=list(notes),
        plugins={"dpflbench": "0.1.0"},
        measured={
            "seconds": float(rng.uniform(0.9, 1.1)),
            "gradient_seconds": 0.8,
            "round_seconds": 0.04,
            "round_gradient_seconds": 0.03,
            "samples_per_second": 60000.0,
            "device": "cpu",
            "versions": {"torch": "2.13.0", "python": "3.11"},
            "machine": "two cores",
        },
    )


def make_results(
    algorithms: Sequence[str] = ("FedSGD", "DPSGD", "WeiAvg", "DPFL-BCS"),
    seeds: int = 6,
    axes: Mapping[str, Sequence[Any]] | None = None,
    report: Mapping[str, Any] | None = None,
    utility: Callable[[str, int, Mapping[str, Any]], float] | None = None,
    metric: Metric = ACCURACY,
    suite: Mapping[str, Any] = SUITE,
    name: str = "synthetic",
    **rest: Any,
) -> Results:
    """Results of a whole suite; `utility(algorithm, seed, coordinates)` gives the numbers, by default LEVELS plus seed
    / 10.
    """
    axes = axes or {}
    utility = utility or (lambda algorithm, seed, where: LEVELS.get(algorithm, 80.0) + seed / 10)
    cells, records = [], {}
    for values in itertools.product(*axes.values()):
        where = dict(zip(axes, values, strict=True))
        config: Mapping[str, Any] = {k: v for k, v in suite.items() if k != "name"}
        for path, value in where.items():
            config = put(config, path, value)
        for algorithm, seed in itertools.product(algorithms, range(seeds)):
            needs = NEEDS.get(algorithm)
            mechanism = config["privacy"]["mechanism"]
            if needs and needs != mechanism:
                cells.append(
                    Cell(where, algorithm, seed, None, f"{algorithm} is defined for {needs}, not for {mechanism}")
                )
                continue
            shown = {k: v for k, v in where.items() if algorithm != "FedSGD" or not k.startswith("privacy")}
            key = repr((sorted(shown.items(), key=str), algorithm, seed, name if rest else ""))
            run = f"{zlib.crc32(key.encode()):08x}" * 8
            cells.append(Cell(where, algorithm, seed, run))
            if run not in records:
                records[run] = make_record(
                    run, algorithm, seed, config, utility(algorithm, seed, where), metric=metric, **rest
                )
    whole = {
        **suite,
        "name": name,
        "axes": {k: list(v) for k, v in axes.items()},
        "seeds": seeds,
        "algorithms": [{"use": a} for a in algorithms],
        "report": dict(report or {}),
    }
    return Results(Manifest(name, whole, tuple(cells)), records)
