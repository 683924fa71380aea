"""The speed bars of local training: private minibatch steps of 20 clients against a loop of Opacus clients and against
ordinary training on the same batches, as ratios of CPU time.

What limits each. MNIST CNN and LeNet-5: the convolutions, which go client by client here as there; what is saved are
weight gradients by the library's slowest kernels, and calls: pooling, norms and losses run once for eight clients. What
is added are the per-sample weight gradients of the second convolution (a third of LeNet-5's time). Softmax: ordinary
training is half calls and half products; here products, norms and float64 sums share that time, and batches have to be
brought together on either side. Opacus pays for hooks and for rows of gradients as wide as the layers.

Run by `make bench`; skipped where benchmarks are off. Ratios go to reports/bench/local.json with the facts of the
machine.
"""

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from contestants import CLIP, machine, race, setting, total_loss
from torch import nn

from dpflbench.federation.gradients import Engine, initial_theta

REPORT = Path(__file__).parents[2] / "reports" / "bench" / "local.json"
CLIENTS, STEPS, BATCH, LR = 20, 10, 64, 0.1
COST = {"softmax": 1.5, "mnist_cnn": 1.5, "lenet5": 1.5}  # at most, in ordinary steps
GAIN = {"mnist_cnn": 2.0, "lenet5": 2.0}  # at least, over Opacus
ROUNDS = {"softmax": 40}  # turns; best of them, whatever comes out


@pytest.fixture(scope="module")
def report(request):
    if not request.config.getoption("benchmark_enable"):
        pytest.skip("benchmarks run with --benchmark-enable: make bench")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {}
    yield found
    torch.set_num_threads(threads)
    known = json.loads(REPORT.read_text())["ratios"] if REPORT.exists() else {}
    REPORT.write_text(json.dumps({"machine": machine(), "ratios": {**known, **found}}, indent=1, sort_keys=True) + "\n")


def drawn(shards, cohort):
    """Poisson batches of every step: chosen rows by client, and how many each has."""
    rng, steps = np.random.default_rng(0), []
    for _ in range(STEPS):
        picks = [np.flatnonzero(rng.random(shards.sizes[n]) < BATCH / shards.sizes[n]) for n in cohort]
        rows = np.concatenate([shards.offsets[n] + pick for n, pick in zip(cohort, picks, strict=True)])
        steps.append((torch.from_numpy(rows), np.array([len(pick) for pick in picks])))
    return steps


def by_client(steps, k):
    """The batches of one client."""
    for rows, counts in steps:
        start = int(counts[:k].sum())
        yield rows[start : start + int(counts[k])]


def ours(module, shards, n_classes, steps, order):
    engine, start = Engine(module, n_classes, order), initial_theta(module)
    phi, bound = torch.zeros(CLIENTS, 0), torch.full((CLIENTS,), CLIP)

    def run():
        theta = start.expand(CLIENTS, -1)
        for rows, counts in steps:
            sums = engine.batch_sums(theta, phi, shards, rows, counts, bound)
            theta = theta - (sums.theta * (LR / BATCH)).float()
        return theta

    return run


def plain(module, shards, n_classes, steps):
    """Every client trains the ordinary way, on the same batches, with the whole batch's gradient."""
    module, start = deepcopy(module), initial_theta(module)
    parameters = list(module.parameters())

    def run():
        for k in range(CLIENTS):
            nn.utils.vector_to_parameters(start.clone(), parameters)
            for rows in by_client(steps, k):
                loss = total_loss(module(shards.x[rows]), shards.y[rows], n_classes)
                torch._foreach_add_(
                    [p.data for p in parameters], torch.autograd.grad(loss, parameters), alpha=-LR / BATCH
                )

    return run


def opacus(module, shards, n_classes, steps, order, chunk):
    """Every client trains with Opacus's hooks, a batch in pieces of at most `chunk`, clipped as its optimizer does."""
    from opacus.grad_sample import GradSampleModule

    module, start = GradSampleModule(deepcopy(module), loss_reduction="sum"), initial_theta(module)
    parameters = list(module.parameters())

    def run():
        ends = []
        for k in range(CLIENTS):
            nn.utils.vector_to_parameters(start.clone(), parameters)
            for batch in by_client(steps, k):
                sums = [torch.zeros_like(p) for p in parameters]
                for rows in batch.split(chunk):
                    module.zero_grad(set_to_none=True)
                    total_loss(module(shards.x[rows]), shards.y[rows], n_classes).backward()
                    norms = torch.stack([p.grad_sample.flatten(1).norm(order, dim=1) for p in parameters], 1)
                    factor = (CLIP / (norms.norm(order, dim=1) + 1e-6)).clamp(max=1.0)
                    for total, p in zip(sums, parameters, strict=True):
                        total += torch.einsum("i,i...", factor, p.grad_sample)
                torch._foreach_add_([p.data for p in parameters], sums, alpha=-LR / BATCH)
            ends.append(nn.utils.parameters_to_vector(parameters).detach())
        return torch.stack(ends)

    return run


def measured(contestants, name):
    """Best microseconds of each contestant for one step of one client."""
    return {who: t / (CLIENTS * STEPS) * 1e6 for who, t in race(contestants, ROUNDS.get(name, 4)).items()}


@pytest.mark.parametrize("order", [2, 1])
@pytest.mark.parametrize("name", COST)
def test_private_local_steps_cost_little_more_than_ordinary_ones(name, order, report, benchmark):
    module, shards, n_classes, cohort = setting(name, CLIENTS)
    steps = drawn(shards, cohort)
    run = ours(module, shards, n_classes, steps, order)
    best = measured({"plain": plain(module, shards, n_classes, steps), "ours": run}, name)
    benchmark.pedantic(run, rounds=1)
    cost = best["ours"] / best["plain"]
    fact = {"ours_us": round(best["ours"], 1), "plain_us": round(best["plain"], 1), "cost": round(cost, 3)}
    report[f"{name} L{order} against plain"] = benchmark.extra_info["ratio"] = fact
    print(f"\n{name} L{order}: {cost:.2f} × ordinary local steps (bar {COST[name]}), {fact}")
    assert cost <= COST[name]


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("order", [2, 1])
@pytest.mark.parametrize("name", GAIN)
def test_private_local_steps_are_cheaper_than_with_opacus(name, order, report, benchmark):
    pytest.importorskip("opacus")
    module, shards, n_classes, cohort = setting(name, CLIENTS)
    steps = drawn(shards, cohort)
    tried = {chunk: opacus(module, shards, n_classes, steps[:1], order, chunk) for chunk in (32, 48, 128)}
    times = race(tried, 2)
    chunk = min(times, key=times.get)
    run = ours(module, shards, n_classes, steps, order)
    contestants = {"opacus": opacus(module, shards, n_classes, steps, order, chunk), "ours": run}
    assert torch.allclose(contestants["opacus"](), run(), atol=1e-3)  # they race over the same course
    best = measured(contestants, name)
    benchmark.pedantic(run, rounds=1)
    gain = best["opacus"] / best["ours"]
    fact = {
        "ours_us": round(best["ours"], 1),
        "opacus_us": round(best["opacus"], 1),
        "opacus_chunk": chunk,
        "gain": round(gain, 3),
    }
    report[f"{name} L{order} against opacus"] = benchmark.extra_info["ratio"] = fact
    print(f"\n{name} L{order}: {gain:.2f} × faster than Opacus (bar {GAIN[name]}), {fact}")
    assert gain >= GAIN[name]
