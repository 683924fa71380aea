"""The speed bars of sums and whole clients, as ratios of CPU time of whole rounds by the loop itself.

What limits each. A round of the main job is mostly gradients; noise on one sum instead of on every row saves what
twenty rows of noise cost. A whole client's round is plain local training, one norm and one draw of noise more. With a
million clients and coins the budgets' curves of all of them are the time, before the first round; a round then tosses a
million coins.

Run by `make bench`; skipped where benchmarks are off. Ratios go to reports/bench/trust.json with the facts of the
machine.
"""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from contestants import machine, race
from harness import assembly_of
from places import place

from dpflbench.execution.prepare import prepare
from dpflbench.federation.simulate import Clock, initial_state, rounds
from dpflbench.tasks.task import Shards, Task

REPORT = Path(__file__).parents[2] / "reports" / "bench" / "trust.json"
ROUNDS, TURNS = 30, 30  # best of so many turns: a busy machine slows some
MAIN = {
    "task": {
        "dataset": {"name": "mnist", "features": {"kind": "pca", "components": 50}},
        "model": "softmax",
        "partition": {"kind": "dirichlet", "alpha": 0.5},
    },
    "federation": {"clients": 100, "cohort": 20, "rounds": ROUNDS, "lr": {"initial": 2.0, "decay": 200}},
    "privacy": {
        "mechanism": "gaussian",
        "clip": 1.0,
        "epsilon": {"kind": "uniform", "low": 0.1, "high": 6.0},
        "delta": {"kind": "uniform", "low": 1e-5, "high": 1e-4},
    },
    "evaluate": {"every": ROUNDS},
}
TRAINING = {"kind": "minibatch", "steps": 10, "batch": 64, "lr": 0.1}


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


def rounds_of(catalogue, use, local=None, **privacy):
    """All rounds of a run of the main job in some frame, to be played again and again."""
    body = MAIN | {"privacy": MAIN["privacy"] | privacy}
    if local is not None:
        body["federation"] = body["federation"] | {"local": local}
    prepared = prepare(assembly_of(body, catalogue, use), place())
    state = initial_state(prepared.world, prepared.theta, prepared.phi)

    def play():
        ledger = prepared.ledger.restored(prepared.ledger.state())
        for _ in rounds(prepared.world, state, ledger, Clock()):
            pass

    return play


def test_a_round_of_sums_costs_no_more_than_a_round_of_rows(report, catalogue):
    trusts = {"local": "local", "secure_sum": {"kind": "secure_sum", "honest": 0.5}, "central": "central"}
    times = race({name: rounds_of(catalogue, "DPSGD", trust=trust) for name, trust in trusts.items()}, TURNS)
    for name in ("secure_sum", "central"):
        report[f"{name} round over local round"] = round(times[name] / times["local"], 3)
    assert max(times["secure_sum"], times["central"]) <= 1.0 * times["local"]


def test_a_round_of_whole_clients_costs_what_plain_local_training_does(report, catalogue):
    times = race(
        {
            "client": rounds_of(catalogue, "DPSGD", TRAINING, trust="central", unit="client"),
            "plain": rounds_of(catalogue, "FedSGD", TRAINING),
        },
        TURNS,
    )
    report["whole clients over plain local training"] = round(times["client"] / times["plain"], 3)
    assert times["client"] <= 1.1 * times["plain"]


def test_a_million_clients_with_secret_coins_play_ten_rounds_within_a_minute(report, tiny, catalogue):
    n = 1_000_000
    x = torch.randint(256, (4 * n, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    y = (x[:, 0] > 127).long()
    none = Shards(x[:0], y[:0], np.zeros(n + 1, dtype=np.int64))
    task = Task(Shards(x, y, np.arange(n + 1) * 4), none, x[:2000], y[:2000], 2, {})
    tiny["federation"] |= {"clients": n, "cohort": 1000, "rounds": 10, "cohorts": "poisson"}
    tiny["privacy"] |= {"trust": "central", "unit": "client"}
    began = time.process_time()
    prepared = prepare(assembly_of(tiny, catalogue, "DPSGD"), place(), task)
    *_, last = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
    report["CPU seconds of ten rounds, a million clients"] = round(time.process_time() - began, 1)
    assert abs(int(last.used.sum()) - 10_000) < 1000
    assert time.process_time() - began < 60
