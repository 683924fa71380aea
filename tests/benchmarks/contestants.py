"""Who races: this engine, Opacus's hooks, and a plain torch step without privacy; and how: interleaved, best of n, CPU
time.
"""

import platform
import time
import warnings
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch import nn

from dpflbench.federation.gradients import Engine, initial_theta
from dpflbench.tasks.models import MODELS
from dpflbench.tasks.task import Shards

INPUTS = {"softmax": (784,)}  # raw MNIST; the others on their default input
CLIP = 1.0


def setting(name, clients=None, scattered=True):
    """A module, made-up data for its clients, and the number of classes: 20 clients × 600 samples, ResNet-20 2 × 64.

    Scattered: twice as many clients are there and every other one is selected, as in a run, where a cohort's samples do
    not lie side by side and have to be brought together. Otherwise all clients are selected and a batch of them is
    there for nothing.
    """
    clients, samples = clients or (2 if name == "resnet20" else 20), 64 if name == "resnet20" else 600
    there = clients * (2 if scattered else 1)
    model, rng = MODELS[name](), torch.Generator().manual_seed(0)
    shape, n_classes = INPUTS.get(name, model.default_input), 0 if name == "linear" else model.default_outputs
    x = torch.rand(there * samples, *shape, generator=rng)
    y = torch.randint(n_classes, (len(x),), generator=rng) if n_classes else torch.randn(len(x), generator=rng)
    cohort = np.arange(0, there, there // clients)
    return model.build(shape, model.default_outputs), Shards(x, y, np.arange(there + 1) * samples), n_classes, cohort


def total_loss(out, y, n_classes):
    return nn.functional.cross_entropy(out, y, reduction="sum") if n_classes else (out[:, 0] - y).square().sum()


def plain(module, shards, n_classes, cohort, chunk):
    """One gradient for all samples, the ordinary way: client by client in chunks, or all clients in one batch (chunk
    None).
    """
    module = deepcopy(module)

    def batches():
        own = [slice(int(shards.offsets[n]), int(shards.offsets[n + 1])) for n in cohort]
        if chunk is None and len(cohort) == len(shards.sizes):
            yield shards.x, shards.y
            return
        if chunk is None:
            yield torch.cat([shards.x[s] for s in own]), torch.cat([shards.y[s] for s in own])
            return
        for s in own:
            for i in range(s.start, s.stop, chunk):
                rows = slice(i, min(i + chunk, s.stop))
                yield shards.x[rows], shards.y[rows]

    def run():
        module.zero_grad(set_to_none=True)
        for x, y in batches():
            total_loss(module(x), y, n_classes).backward()

    return run


def opacus(module, shards, n_classes, cohort, chunk, order):
    """Opacus's GradSampleModule with hooks, clipped and summed by client as its optimizer does."""
    from opacus.grad_sample import GradSampleModule

    warnings.filterwarnings("ignore", message="Full backward hook")
    module = GradSampleModule(deepcopy(module), loss_reduction="sum")
    parameters = list(module.parameters())

    def run():
        sums = torch.zeros(len(cohort), sum(p.numel() for p in parameters))
        for k, client in enumerate(cohort):
            stop = int(shards.offsets[client + 1])
            for i in range(int(shards.offsets[client]), stop, chunk):
                rows = slice(i, min(i + chunk, stop))
                module.zero_grad(set_to_none=True)
                total_loss(module(shards.x[rows]), shards.y[rows], n_classes).backward()
                norms = torch.stack([p.grad_sample.flatten(1).norm(order, dim=1) for p in parameters], 1).norm(
                    order, dim=1
                )
                factor = (CLIP / (norms + 1e-6)).clamp(max=1.0)
                sums[k] += torch.cat([torch.einsum("i,i...", factor, p.grad_sample).reshape(-1) for p in parameters])
        return sums

    return run


def ours(module, shards, n_classes, cohort, order):
    """This engine, with the chunk it chooses itself."""
    engine, theta = Engine(module, n_classes, order), initial_theta(module)
    phi, bound = torch.zeros(len(cohort), 0), torch.full((len(cohort),), CLIP)
    return lambda: engine.clipped_sums(theta, phi, shards, cohort, bound).theta


def race(contestants, rounds):
    """Best CPU seconds of each, run by turns so that a busy machine slows them all alike; the first turn is not
    counted.
    """
    best = dict.fromkeys(contestants, float("inf"))
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            began = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - began if turn else float("inf"))
    return best


def best_chunk(make, chunks):
    """The chunk with which a contestant is fastest."""
    times = race({chunk: make(chunk) for chunk in chunks}, 3)
    return min(times, key=times.get)


def machine():
    """Facts without which a time means nothing."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(names),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "date": time.strftime("%Y-%m-%d"),
    }
