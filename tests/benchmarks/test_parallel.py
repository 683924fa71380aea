"""Two workers against one on the main job, as a ratio of wall times: run by `make bench` on a machine with two idle
cores.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from contestants import machine
from suite_runs import digests

from dpflbench.execution.executors import cores
from dpflbench.results.store import Store

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "reports" / "bench" / "parallel.json"
BAR = 0.6
BLOCKS = (
    [0, 1],
    [2, 3],
    [4, 5],
    [6, 7],
)  # the seeds of the main job, in turns: how fast a shared machine is changes within minutes


def seconds(folder, seeds, jobs):
    """Wall time of the whole command: imports, planning, runs, table and report."""
    command = [
        sys.executable,
        "-c",
        "from dpflbench.cli import main; main()",
        "run",
        str(ROOT / "suites" / "heterogeneity.yaml"),
        "--set",
        f"seeds={seeds}",
        "--out",
        str(folder),
        "--quiet",
        "--device",
        "cpu",
        "--jobs",
        str(jobs),
    ]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def test_two_workers_take_at_most_0_6_of_the_time_of_one(request, tmp_path):
    if not request.config.getoption("benchmark_enable"):
        pytest.skip("benchmarks run with --benchmark-enable: make bench")
    if cores() < 2:
        pytest.skip(f"needs two cores, found {cores()}")
    took, records = {1: [], 2: []}, {1: {}, 2: {}}
    for number, seeds in enumerate(BLOCKS):
        for jobs in (1, 2) if number % 2 else (2, 1):
            folder = tmp_path / f"{number}-{jobs}"
            took[jobs].append(round(seconds(folder, seeds, jobs), 1))
            records[jobs] |= digests(Store(folder))
    ratio = sum(took[2]) / sum(took[1])
    facts = {
        "one_worker_seconds": took[1],
        "two_workers_seconds": took[2],
        "ratio": round(ratio, 3),
        "runs": len(records[1]),
        "equal_records": len(records[1].items() & records[2].items()),
        "machine": machine(),
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    print(f"\none worker {sum(took[1]):.1f} s, two workers {sum(took[2]):.1f} s: {ratio:.2f}")
    assert records[1] == records[2]
    assert ratio <= BAR
