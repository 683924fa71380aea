"""What must not grow: memory with the cohort, planning beyond seconds with a million clients."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import assembly_of
from places import place

from dpflbench.execution.prepare import prepare
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.tasks.task import Shards, Task

STATUS = Path("/proc/self/status")
needs_proc = pytest.mark.skipif(not STATUS.exists(), reason="peak memory is read from /proc")
MB = 1 << 20

PEAKS = """
import json, sys
import numpy as np, torch
from dpflbench.federation.gradients import Engine, initial_theta
from dpflbench.tasks.models import MODELS
from dpflbench.tasks.task import Shards

def status(key):
    return int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1]) << 10

torch.set_num_threads(1)
name, samples, small, large = sys.argv[1], *map(int, sys.argv[2:])
model = MODELS[name]()
module = model.build(model.default_input, 10)
x, y = torch.rand(large * samples, *model.default_input), torch.randint(10, (large * samples,))
shards, engine = Shards(x, y, np.arange(large + 1) * samples), Engine(module, 10, 2)
theta, peaks = initial_theta(module), []
before = status("VmRSS")
for k in (small, large):
    sums = engine.clipped_sums(theta, torch.zeros(k, 0), shards, np.arange(k), torch.ones(k))
    peaks.append(status("VmHWM") - before - sums.theta.nbytes)
print(json.dumps(peaks))
"""


@needs_proc
@pytest.mark.parametrize(
    ("name", "samples", "small", "large", "limit"),
    [("lenet5", 400, 2, 20, 200 * MB), ("resnet20", 32, 2, 10, 1000 * MB)],
)
def test_peak_memory_above_the_data_is_small_and_does_not_grow_with_the_cohort(name, samples, small, large, limit):
    command = [sys.executable, "-c", PEAKS, name, str(samples), str(small), str(large)]
    few, many = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert many < limit
    assert many < few + 0.15 * limit


def peak_bytes():
    return int(next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")).split()[1]) << 10


@pytest.fixture(scope="module")
def million():
    """A million clients with 20 samples of eight bytes each; the label is the first bit of the first byte."""
    n = 1_000_000
    x = torch.randint(256, (20 * n, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    y = (x[:, 0] > 127).long()
    return Task(
        Shards(x, y, np.arange(n + 1) * 20),
        Shards(x[:0], y[:0], np.zeros(n + 1, dtype=np.int64)),
        x[:2000],
        y[:2000],
        2,
        {},
    )


@pytest.mark.parametrize(("use", "given"), [("DPSGD", {}), ("DPFL-BCS", {"probe_rounds": 4})])
def test_a_million_clients_plan_within_seconds_and_play_ten_rounds_in_linear_memory(
    use, given, million, tiny, catalogue
):
    tiny["federation"] |= {"clients": 1_000_000, "cohort": 1000, "rounds": 10}
    assembly = assembly_of(tiny, catalogue, use, **given)
    if os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of earlier tests
    before, began = peak_bytes() if STATUS.exists() else 0, time.process_time()
    prepared = prepare(assembly, place(), million)
    played = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
    state = next(played)
    assert time.process_time() - began < 5.0  # budgets of all clients, the plan, its noise, and the first round
    for state in played:  # noqa: B007  # the last one counts
        pass
    assert state.round == 10
    assert int(state.used.sum()) == 10 * 1000
    if STATUS.exists():
        assert peak_bytes() - before < 100 * 8 * 1_000_000  # less than a hundred numbers a client
