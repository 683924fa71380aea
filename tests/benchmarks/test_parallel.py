"""Two workers against one on the main job, as a ratio of wall times: run by `make bench` on a machine with two idle cores."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from contestants import machine
from suite_runs import digests

from dpflbench.execution.executors import cores
from dpflbench.execution.store import Store

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "reports" / "bench" / "parallel.json"
BAR = 0.6


def seconds(folder, jobs):
    """Wall time of the whole command: planning, all runs, table and report."""
    command = [sys.executable, "-c", "from dpflbench.cli import main; main()", "run", str(ROOT / "suites" / "heterogeneity.yaml"),
               "--out", str(folder), "--quiet", "--device", "cpu", "--jobs", str(jobs)]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def test_two_workers_take_at_most_0_6_of_the_time_of_one(request, tmp_path):
    if not request.config.getoption("benchmark_enable"):
        pytest.skip("benchmarks run with --benchmark-enable: make bench")
    if cores() < 2:
        pytest.skip(f"needs two cores, found {cores()}")
    took = {jobs: seconds(tmp_path / str(jobs), jobs) for jobs in (2, 1)}
    ratio = took[2] / took[1]
    of_one, of_two = (digests(Store(tmp_path / str(jobs))) for jobs in (1, 2))
    facts = {"one_worker_seconds": round(took[1], 1), "two_workers_seconds": round(took[2], 1), "ratio": round(ratio, 3),
             "runs": len(of_one), "equal_records": sum(of_two.get(run) == digest for run, digest in of_one.items()), "machine": machine()}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    print(f"\none worker {took[1]:.1f} s, two workers {took[2]:.1f} s: {ratio:.2f}")
    assert of_one == of_two
    assert ratio <= BAR
