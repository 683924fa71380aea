"""Native kernels against torch's, as ratios of CPU time: a pass over clipped samples of 20 clients, and a local step of
20 clients at models of their own on batches of 32.

What is left. MNIST's CNN: two thirds are the stack, a third calls and the sums by client. LeNet-5 and FEMNIST's CNN: a
third is the Linear layers, which stay torch's.

Run by `make bench`; skipped where benchmarks are off. Ratios go to reports/bench/native.json with the facts of the
machine.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from contestants import CLIP, machine, race, setting

from dpflbench.federation.gradients import Engine, compiler_of, initial_theta, kernels

REPORT = Path(__file__).parents[2] / "reports" / "bench" / "native.json"
BATCH = 32
SHARE = {"mnist_cnn": 1 / 1.5, "lenet5": 1 / 1.5, "femnist_cnn": 1 / 1.5}  # at most, of torch's time


@pytest.fixture(scope="module")
def report(request):
    if not request.config.getoption("benchmark_enable"):
        pytest.skip("benchmarks run with --benchmark-enable: make bench")
    if not compiler_of():
        pytest.skip("no C compiler")
    threads, found = torch.get_num_threads(), {}
    torch.set_num_threads(1)
    yield found
    torch.set_num_threads(threads)
    REPORT.write_text(json.dumps({"machine": machine(), "ratios": found}, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("own", [False, True], ids=["one model", "own models"])
@pytest.mark.parametrize("name", SHARE)
def test_native_kernels_take_two_thirds_of_the_time_at_most(name, own, report, benchmark):
    module, shards, n_classes, cohort = setting(name)
    phi, clip, theta = torch.zeros(len(cohort), 0), torch.full((len(cohort),), CLIP), initial_theta(module)
    rows = torch.cat([torch.arange(BATCH) + int(shards.offsets[n]) for n in cohort])
    counts, models = np.full(len(cohort), BATCH), theta.expand(len(cohort), -1).clone()

    def contestant(which):
        with kernels(which):
            engine = Engine(module, n_classes, 2)
        if own:
            return lambda: engine.batch_sums(models, phi, shards, rows, counts, clip)
        return lambda: engine.clipped_sums(theta, phi, shards, cohort, clip)

    runs = {which: contestant(which) for which in ("torch", "native")}
    samples = BATCH * len(cohort) if own else int(shards.sizes[cohort].sum())
    best = {which: t / samples * 1e6 for which, t in race(runs, 20 if own else 5).items()}
    benchmark.pedantic(runs["native"], rounds=1)
    share = best["native"] / best["torch"]
    fact = {"native_us": round(best["native"], 2), "torch_us": round(best["torch"], 2), "share": round(share, 3)}
    report[f"{name}, {'own models' if own else 'one model'}"] = benchmark.extra_info["ratio"] = fact
    print(f"\n{name}, {'own models' if own else 'one model'}: {share:.2f} of torch's time, {fact}")
    assert share <= SHARE[name]
