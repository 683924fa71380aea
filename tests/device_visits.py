"""Whole runs and the engine on a device, each beside the same on the CPU. As a script: on the pretended device, which
stays with its process; prints a line of JSON for each of them.
"""

import json
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gradient_tasks import Shift, model_and_task, rng
from harness import assembly_of
from places import place
from pretended_device import Pretended, register

from dpflbench.catalogue import load
from dpflbench.errors import DpflbenchError
from dpflbench.execution.apart import apart
from dpflbench.execution.checkpoint import pack, unpack
from dpflbench.execution.prepare import Prepared, prepare
from dpflbench.federation.evaluate import evaluate_clients, evaluate_mean_phi
from dpflbench.federation.gradients import Engine, initial_theta
from dpflbench.federation.simulate import Clock, initial_state, rounds
from dpflbench.interfaces import IDENTITY
from dpflbench.tasks.models import MODELS
from dpflbench.tasks.task import Shards

COHORT, ROWS, COUNTS = (
    np.array([3, 1, 4, 2]),
    torch.tensor([8, 5, 6, 11, 9, 0, 2, 3, 10, 4, 7, 1]),
    np.array([5, 0, 2, 4, 0, 1]),
)
ENGINES = [(name, order, personal) for name in MODELS for order in (1, 2) for personal in (False, True)]
WIDTH = 3 * 4 + 3  # of a softmax on the blobs; a personal affine map has 1 + 4 more


@dataclass(frozen=True)
class Setting:
    """A run of 8 clients, 4 of them in each of 4 rounds; evaluated after the second and the last."""

    use: str
    noise: str = "gaussian"
    steps: int = 0  # of local training; 0: one full step
    given: Any = None  # parameters of the algorithm
    server: Any = None
    isolated: bool = False  # server code in a process of its own
    width: int = WIDTH  # of a message
    losses: tuple[int, ...] = (0, 0, 0, 0)  # that each client reports, by round
    uneven: bool = False  # clients of many sizes, who take half an epoch each


RUNS = {
    "full step": Setting("DPSGD"),
    "laplace": Setting("DMLDP", "laplace"),
    "transform": Setting("PRIVATEFL", width=WIDTH + 5),
    "transform, laplace": Setting("PRIVATEFL", "laplace", width=WIDTH + 5),
    "probe": Setting("Power-of-choice", losses=(1, 1, 1, 1)),
    "probe after a step": Setting("DPFL-BCS", given={"probe_rounds": 2, "probe": "literal"}, losses=(2, 2, 0, 0)),
    "no noise": Setting("FedSGD"),
    "weights apart": Setting("WeiAvg", isolated=True),
    "rows apart": Setting("Robust-HDP", isolated=True),
    "local": Setting("DP-FedAvg", steps=3, server={"kind": "momentum"}),
    "local, transform": Setting("PRIVATEFL", steps=2, width=WIDTH + 5),
    "local, probe": Setting("Power-of-choice", steps=2, losses=(1, 1, 1, 1)),
    "scaffold": Setting("DP-SCAFFOLD", steps=2, server={"kind": "momentum"}),
    "uneven": Setting("DP-FedAvg", steps=1, uneven=True),
    "mr_mtl": Setting("DP-MR-MTL", steps=2, server={"kind": "adam"}),
}


def body_of(setting, data):
    """The suite of a setting."""
    federation = {"clients": 8, "cohort": 4, "rounds": 4, "lr": {"initial": 0.5, "decay": 20}}
    if setting.steps:
        length = {"epochs": 0.5} if setting.uneven else {"steps": setting.steps}
        federation["local"] = {"kind": "minibatch", **length, "batch": 10, "lr": 0.2}
    if setting.server:
        federation["server"] = setting.server
    return {
        "name": "devices",
        "task": {
            "dataset": {"name": "npz", "path": str(data)},
            "model": "softmax",
            "partition": {"kind": "dirichlet", "alpha": 0.5} if setting.uneven else {"kind": "iid"},
            "holdout": 0.2,
        },
        "federation": federation,
        "privacy": {
            "mechanism": setting.noise,
            "clip": 1.0,
            "epsilon": {"kind": "uniform", "low": 0.5, "high": 4.0},
            **({} if setting.noise == "laplace" else {"delta": {"kind": "constant", "value": 1e-5}}),
        },
        "evaluate": {"every": 2},
        "seeds": 1,
        "algorithms": [setting.use],
    }


def outcome(setting, data, catalogue, device, after=lambda: None):
    """What a run comes to: the last state, its ledger, and what is judged at the end; `after` every round.

    After the second round it goes on from a checkpoint of itself.
    """
    made = assembly_of(body_of(setting, data), catalogue, setting.use, **(setting.given or {}))
    prepared = prepare(made, place(device=str(device)), run="devices")
    if not setting.isolated:
        return _played(prepared, str(device), after)
    with apart(made, prepared.world.setup) as (algorithm, _):
        return _played(replace(prepared, world=replace(prepared.world, algorithm=algorithm)), str(device), after)


def _played(prepared: Prepared, device, after):
    world, ledger = prepared.world, prepared.ledger
    state, clock = initial_state(world, prepared.theta, prepared.phi), Clock()
    after()
    while state.round < world.setup.rounds:
        for after_round in rounds(world, state, ledger, clock):
            state = after_round
            after()
            if state.round == 2:
                break
        if state.round == 2:
            kept = pack("devices", device, world.streams, state, ledger, clock)
            state, ledger, clock = unpack(kept, "devices", device, world, ledger)
            after()
    models = world.algorithm.rule.personal(state.theta, state.own)
    judged = [
        *evaluate_clients(world.engine, state.theta, state.phi, world.task, models),
        np.array([evaluate_mean_phi(world.engine, state.theta, state.phi, world.task)]),
        np.array([[p.utility, p.loss] for _, p in state.points]).ravel(),
        state.losses.received,
    ]
    return state, ledger, np.concatenate(judged)


def tensors_of(state):
    """All tensors of a state that belong on the device."""
    shared = [state.shared] if isinstance(state.shared, torch.Tensor) else []
    return [state.theta, state.phi, *state.server, *shared, *state.own.values()]


def gap_of(found, known):
    """How far tensors are from those on the CPU, as a share of their length."""
    pairs = list(zip(found, known, strict=True))
    return max(float((a.cpu() - b).norm() / b.norm().clamp_min(1e-300)) for a, b in pairs)


def sums(name, order, personal, device):
    """Both entry points of the engine on the device: the tensors of a full step and of a minibatch step."""
    module, shards, n_classes = model_and_task(name)
    width = 2 * shards.x[0].numel() if personal else 0
    phi = 0.1 * torch.randn(6, width, generator=rng(3), dtype=torch.float64)
    theta = initial_theta(module) * (1.0 + 0.1 * torch.randn(6, 1, generator=rng(4), dtype=torch.float64))
    bound = torch.full((6,), 0.5, dtype=torch.float64)
    engine = Engine(module, n_classes, order, Shift() if personal else IDENTITY, width, chunk=7)
    engine.settle(shards.x)
    shards = Shards(shards.x.to(device), shards.y.to(device), shards.offsets)
    own, phi, bound, rows = (t.to(device) for t in (theta, phi, bound, ROWS))
    engine.predict(own[0], None, shards.x)  # moves what it moves once
    yield None
    full = engine.clipped_sums(own[0], phi[:4], shards, COHORT, bound[:4], 1.0)
    yield full.theta, full.phi, full.losses
    batch = engine.batch_sums(own, phi, shards, rows, COUNTS, bound)
    yield batch.theta, batch.phi


def control(device):
    """What tensors left on the host and numbers read would look like."""
    with Pretended(device) as pretended:
        there = torch.ones(3, device=device)
        _ = bool(there.sum() > 0), there.sum().item(), there[there > 0], there.cpu()
        refused = []
        for act in (
            lambda: there + torch.ones(3),
            lambda: there[torch.tensor([0])],
            lambda: torch.stack([there[0], torch.tensor(1.0)]),
        ):
            try:
                act()
            except RuntimeError as e:
                refused.append(str(e))
        (there + torch.tensor(1.0)).add_(torch.ones(3).to(device))  # as on a GPU: a number, and what was sent
    return {"refused": refused, "fetched": pretended.fetched, "sent": pretended.sent}


def run_there(setting, data, catalogue, device):
    """A run on the pretended device and on the CPU: how far apart they end, and every copy, round by round."""
    fetched, sent = [], []
    with Pretended(device) as pretended:

        def after():
            fetched.append(list(pretended.fetched))
            sent.append(list(pretended.sent))
            pretended.fetched.clear()
            pretended.sent.clear()

        state, ledger, judged = outcome(setting, data, catalogue, device, after)
        places = sorted({str(t.device) for t in tensors_of(state)})
        found = [t.cpu() for t in tensors_of(state)]
    here, paid, known = outcome(setting, data, catalogue, "cpu")
    np.testing.assert_array_equal(ledger.used, paid.used)
    gap = max(gap_of(found, tensors_of(here)), float(np.nanmax(np.abs(judged - known))))
    return {"places": places, "gap": gap, "fetched": fetched, "sent": sent}


def engine_there(name, order, personal, device):
    """The engine on the pretended device and on the CPU."""
    with Pretended(device) as pretended:
        found, fetched = [], []
        for part in sums(name, order, personal, device):
            if part:
                fetched.append(list(pretended.fetched))
                found += part
            pretended.fetched.clear()
        places = sorted({str(t.device) for t in found})
        found = [t.cpu() for t in found]
    known = [t for part in sums(name, order, personal, "cpu") if part for t in part]
    return {"places": places, "gap": gap_of(found, known), "fetched": fetched}


def small_bound(device):
    """What the engine says to a bound below what its sums can keep."""
    module, shards, n_classes = model_and_task("softmax", torch.float32)
    with Pretended(device) as pretended:
        shards = Shards(shards.x.to(device), shards.y.to(device), shards.offsets)
        bound, theta = torch.full((4,), 1e-13, device=device), initial_theta(module).to(device)
        engine = Engine(module, n_classes, 2)
        try:
            engine.clipped_sums(theta, torch.zeros(4, 0, device=device), shards, COHORT, bound)
        except DpflbenchError as e:
            return {"said": str(e), "fetched": pretended.fetched}
    return {"said": ""}


def main(data):
    """Print everything."""
    torch.set_num_threads(1)
    device, catalogue = register(), load()
    print(json.dumps({"kind": "control", **control(device)}), flush=True)
    print(json.dumps({"kind": "small bound", **small_bound(device)}), flush=True)
    for name, setting in RUNS.items():
        print(json.dumps({"kind": "run", "name": name, **run_there(setting, data, catalogue, device)}), flush=True)
    for setting in ENGINES:
        print(json.dumps({"kind": "engine", "name": setting, **engine_there(*setting, device)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
