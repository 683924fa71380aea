"""Local workers: parallel equals serial, a killed worker costs its run at most, nobody is left behind."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from places import place
from suite_runs import carry_out, digests, planned_of

from dpflbench.api.run_suite import carry_out as _carry_out
from dpflbench.api.showing import shown
from dpflbench.errors import DpflbenchError
from dpflbench.execution.prepare import VARIABLE
from dpflbench.execution.progress import Progress, alive
from dpflbench.execution.sharing import shared_task
from dpflbench.execution.stopping import Stop
from dpflbench.execution.workers import Briefing, Worker, check_sources, in_workers
from dpflbench.results.store import Store
from dpflbench.tasks.task import Shards, Task


def in_parallel(planned, store, catalogue, workers=2, stop=None):
    """The suite in worker processes."""
    tasks = store.work("tasks") / f"{os.uname().nodename}-{os.getpid()}"
    executor = in_workers(["cpu"] * workers, Briefing(place(tasks=tasks), store.root), catalogue)
    _carry_out(planned, store, catalogue, executor, stop or Stop(), shown(False))


@pytest.fixture
def watched(monkeypatch):
    """Calls a function for every report of a worker: (progress, tick, pid of the worker)."""
    real, seen = Progress.tick, []

    def tick(self, tick, where=""):
        real(self, tick, where)
        for act in seen:
            act(self, tick, int(self.running[tick.run].where.split()[1]))

    monkeypatch.setattr(Progress, "tick", tick)
    return seen


def test_parallel_records_equal_serial_ones_bit_for_bit(tiny, tmp_path, catalogue):
    tiny["algorithms"] = ["FedSGD", "DPSGD", "PFA", "DPFL-BCS", "PRIVATEFL"]
    tiny["federation"]["rounds"] = 12
    tiny["seeds"] = 2
    planned = planned_of(tiny, tmp_path, catalogue)
    serial, parallel = Store(tmp_path / "serial"), Store(tmp_path / "parallel")
    carry_out(planned, serial, catalogue)
    in_parallel(planned, parallel, catalogue)
    assert len(digests(parallel)) == 10
    assert digests(parallel) == digests(serial)
    assert [p for p in (parallel.root / "work").rglob("*") if p.is_file()] == []


def test_a_killed_worker_costs_nothing_the_first_time_and_its_run_the_second(
    tiny, tmp_path, catalogue, monkeypatch, watched, capsys
):
    tiny["federation"]["rounds"] = 150
    planned = planned_of(tiny, tmp_path, catalogue)
    serial, parallel = Store(tmp_path / "serial"), Store(tmp_path / "parallel")
    carry_out(planned, serial, catalogue)
    monkeypatch.setenv(VARIABLE, "0")
    fedsgd, dpsgd, _ = planned.runs
    left = {fedsgd: 1, dpsgd: 2}  # how often the worker of a run is killed

    def murder(progress, tick, pid):
        if left.get(tick.run, 0) and tick.round > 1:  # so there is a checkpoint
            left[tick.run] -= 1
            os.kill(pid, signal.SIGKILL)

    watched.append(murder)
    in_parallel(planned, parallel, catalogue, workers=1)
    assert left == {fedsgd: 0, dpsgd: 0}
    records = parallel.results().records
    assert records[dpsgd].status == "failed"
    assert records[dpsgd].reason == "its worker died 2 times: killed by SIGKILL (out of memory?)"
    assert records[fedsgd].measured["resumed_at"] > 0
    assert {run: digest for run, digest in digests(parallel).items() if run != dpsgd} == {
        run: digest for run, digest in digests(serial).items() if run != dpsgd
    }
    assert (
        capsys.readouterr().out.count(
            "its worker died (killed by SIGKILL (out of memory?)); the run is tried once more"
        )
        == 2
    )
    watched.clear()
    carry_out(planned, parallel, catalogue)  # a failure is tried again, from its checkpoint
    assert digests(parallel) == digests(serial)


def test_a_worker_killed_by_a_signal_without_a_name_costs_nothing_either(
    tiny, tmp_path, catalogue, monkeypatch, watched, capsys
):
    tiny["federation"]["rounds"] = 150
    tiny["algorithms"] = ["DPSGD", "WeiAvg"]
    planned = planned_of(tiny, tmp_path, catalogue)
    monkeypatch.setenv(VARIABLE, "0")
    number, killed = signal.SIGRTMIN + 5, []

    def murder(progress, tick, pid):
        if not killed and tick.round > 1:
            killed.append(tick.run)
            os.kill(pid, number)

    watched.append(murder)
    in_parallel(planned, Store(tmp_path / "results"), catalogue)
    records = Store(tmp_path / "results").results().records
    assert [record.status for record in records.values()] == ["done", "done"]
    assert f"{killed[0]}: its worker died (killed by signal {number}); the run is tried" in capsys.readouterr().out


def test_a_crew_that_is_interrupted_while_it_waits_for_its_workers_leaves_none(
    tiny, tmp_path, catalogue, monkeypatch, watched
):
    tiny["federation"]["rounds"] = 100_000
    tiny["algorithms"] = ["DPSGD", "WeiAvg"]
    planned = planned_of(tiny, tmp_path, catalogue)
    workers = set()

    def fail(progress, tick, pid):
        workers.add(pid)
        if len(workers) == 2:
            raise RuntimeError("a bug of ours")

    def impatient(self, patience):
        raise KeyboardInterrupt

    watched.append(fail)
    monkeypatch.setattr(Worker, "end", impatient)
    with pytest.raises(KeyboardInterrupt) as caught:  # whose frames keep the pipes open
        in_parallel(planned, Store(tmp_path / "results"), catalogue)
    until = time.monotonic() + 20
    while any(is_there(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(is_there(pid) for pid in workers), caught


def test_workers_asked_to_stop_finish_their_round_and_leave_checkpoints(tiny, tmp_path, catalogue, watched):
    tiny["federation"]["rounds"] = 2000
    tiny["algorithms"] = ["DPSGD", "WeiAvg"]
    planned = planned_of(tiny, tmp_path, catalogue)
    store, stop = Store(tmp_path / "results"), Stop()
    seen = set()

    def press(progress, tick, pid):
        nonlocal seen
        seen |= {tick.run} if tick.round else set()
        if len(seen) == 2 and not stop.requested:
            os.kill(os.getpid(), signal.SIGTERM)  # as a batch system does

    watched.append(press)
    in_parallel(planned, store, catalogue, stop=stop)
    assert stop.signal == signal.SIGTERM
    assert digests(store) == {}
    assert {p.stem for p in store.work("checkpoints").iterdir()} == set(planned.runs)


def test_workers_end_when_their_parent_is_killed_and_take_what_they_shared_with_them(tiny, tmp_path, catalogue):
    tiny["federation"]["rounds"] = 100_000
    planned_of(tiny, tmp_path, catalogue)  # writes suite.yaml
    store = Store(tmp_path / "results")
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from dpflbench.cli import main; main()",
            "run",
            "suite.yaml",
            "--out",
            "results",
            "--jobs",
            "2",
        ],
        cwd=tmp_path,
    )
    workers, until = set(), time.monotonic() + 60
    while len(workers) < 2 and time.monotonic() < until:
        time.sleep(0.1)
        workers = {int(row["where"].split()[1]) for process in alive(store) for row in process.running if row["round"]}
    assert len(workers) == 2
    process.kill()
    process.wait()
    while any(is_there(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(is_there(pid) for pid in workers)
    assert list(store.work("tasks").iterdir()) == []
    assert alive(store) == []


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_with_other_sources_refuses_the_run(tiny, tmp_path, catalogue):
    run = next(iter(planned_of(tiny, tmp_path, catalogue).runs.values()))
    check_sources(run, catalogue)
    edited = replace(run, plugins={**run.plugins, "algorithm FedSGD": "dpflbench 0123456789abcdef"})
    with pytest.raises(
        DpflbenchError, match=r"planned for algorithm FedSGD dpflbench 0123456789abcdef, but here it is"
    ):
        check_sources(edited, catalogue)


def test_a_shared_task_is_built_once_mapped_by_all_and_the_oldest_are_dropped(tmp_path):
    import numpy as np
    import torch

    built = []

    def build():
        built.append(1)
        shards = Shards(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 1]), np.array([0, 1, 3]))
        return Task(shards, shards, torch.ones(2, 2), torch.zeros(2), 2, {"constant": 50.0})

    first, second = shared_task(tmp_path, "a", build), shared_task(tmp_path, "a", build)
    assert len(built) == 1
    assert torch.equal(first.train.x, second.train.x)
    assert second.train.offsets.tolist() == [0, 1, 3]
    assert second.references == {"constant": 50.0}
    for key in "bcd":
        shared_task(tmp_path, key, build)
    assert len(list(tmp_path.glob("*.pt"))) == 3
    shared_task(tmp_path, "a", build)
    assert len(built) == 5
    assert first.train.x.sum() == 15.0  # still mapped


def test_where_nothing_can_be_shared_every_worker_keeps_its_own_copy(tmp_path, caplog):
    (tmp_path / "file").touch()
    assert shared_task(tmp_path / "file" / "tasks", "a", lambda: "the task") == "the task"
    assert "cannot be shared" in caplog.text
