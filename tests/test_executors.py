"""Executors: how many, where, Ctrl-C; and the command as a real process."""

import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import yaml
from suite_runs import carry_out, digests, planned_of

from dpflbench.errors import DpflbenchError
from dpflbench.execution import executors
from dpflbench.execution.checkpoint import round_of
from dpflbench.execution.executors import cores, devices_of, jobs_of
from dpflbench.execution.progress import alive
from dpflbench.execution.stopping import Stop
from dpflbench.execution.worklist import by_task
from dpflbench.results.store import Store


def test_auto_takes_a_core_for_every_thread_of_a_run_or_what_the_gpus_serve(monkeypatch):
    monkeypatch.setattr(executors, "cores", lambda: 8)
    assert jobs_of("auto", "cpu", 1, threads=1, gpus=0) == 8
    assert jobs_of("auto", "cpu", 1, threads=3, gpus=0) == 2
    assert jobs_of("auto", "cpu", 1, threads=16, gpus=0) == 1
    assert jobs_of("auto", "cuda", 3, threads=1, gpus=2) == 6
    assert jobs_of("auto", "cuda:1", 3, threads=1, gpus=2) == 3
    assert jobs_of("5", "cpu", 1, threads=1, gpus=0) == 5


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", ""])
def test_other_numbers_of_jobs_are_refused(text):
    with pytest.raises(DpflbenchError, match="allowed: auto, or a number from 1"):
        jobs_of(text, "cpu", 1, 1, 0)


def test_gpus_are_dealt_out_in_turn_and_a_named_device_is_kept():
    assert devices_of(5, "cuda", 2) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    assert devices_of(2, "cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert devices_of(3, "cpu", 2) == ["cpu", "cpu", "cpu"]


@pytest.mark.parametrize(
    ("limit", "expected"), [("150000 100000", 1), ("200000 100000", 2), ("50000 100000", 1), ("max 100000", 4)]
)
def test_the_cores_of_a_container_are_those_it_may_use(monkeypatch, limit, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(Path, "read_text", lambda self, encoding: limit)
    assert cores() == expected


def test_runs_of_the_same_data_follow_each_other(tiny, tmp_path, catalogue):
    tiny["seeds"] = 2
    tiny["axes"] = {"privacy.epsilon.high": [3.0, 5.0]}
    planned = planned_of(tiny, tmp_path, catalogue)
    seeds = [run.config["seed"] for run in by_task(planned.runs, catalogue).values()]
    assert seeds == sorted(seeds)
    assert set(by_task(planned.runs, catalogue)) == set(planned.runs)


def test_ctrl_c_once_finishes_the_round_and_keeps_a_checkpoint_twice_stops_at_once(
    tiny, tmp_path, catalogue, monkeypatch
):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background starts with it ignored
    tiny["federation"]["rounds"] = 30
    planned = planned_of(tiny, tmp_path, catalogue)
    calm, store = Store(tmp_path / "calm"), Store(tmp_path / "results")
    carry_out(planned, calm, catalogue)
    real, played = executors.InProcess.after, []

    def after(self, state):
        played.append(state.round)
        if len(played) in presses:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, state)

    monkeypatch.setattr(executors.InProcess, "after", after)
    presses, stop = {40}, Stop()
    carry_out(planned, store, catalogue, stop)
    assert stop.signal == signal.SIGINT
    assert len(digests(store)) == 1
    assert len(list(store.work("checkpoints").iterdir())) == 1
    assert len(played) == 40
    presses = {43, 44}
    monkeypatch.setattr(executors.InProcess, "after", lambda self, state: after(self, state) and False)
    with pytest.raises(KeyboardInterrupt):
        carry_out(planned, store, catalogue)
    carry_out(planned, store, catalogue)
    assert digests(store) == digests(calm)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_closed_terminal_stops_like_ctrl_c_however_often_it_says_so_and_under_nohup_not_at_all(
    tiny, tmp_path, catalogue, monkeypatch
):
    tiny["federation"]["rounds"] = 30
    planned = planned_of(tiny, tmp_path, catalogue)
    store, real = Store(tmp_path / "results"), executors.InProcess.after

    def after(self, state):
        if state.round == 4:
            for _ in range(2):  # the terminal's, and what its shell passes on
                os.kill(os.getpid(), signal.SIGHUP)
        return real(self, state)

    monkeypatch.setattr(executors.InProcess, "after", after)
    stop = Stop()
    carry_out(planned, store, catalogue, stop)
    assert stop.signal == signal.SIGHUP
    (checkpoint,) = store.work("checkpoints").iterdir()
    assert round_of(checkpoint.read_bytes()) == 4
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        carry_out(planned, store, catalogue)
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert len(digests(store)) == 3


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_whose_terminal_closes_keeps_checkpoints_and_leaves_nobody_behind(tiny, tmp_path, catalogue, jobs):
    tiny["federation"]["rounds"] = 30_000
    tiny["algorithms"] = ["DPSGD", "WeiAvg"]
    planned_of(tiny, tmp_path, catalogue)  # writes suite.yaml
    store, (ours, theirs) = Store(tmp_path / "results"), os.openpty()
    command = [sys.executable, "-m", "dpflbench", "run", "suite.yaml", "--out", "results", "--jobs", jobs]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # its terminal, whose end it is told
    )
    os.close(theirs)
    busy = 0
    while busy < int(jobs) and process.poll() is None:
        if select.select([ours], [], [], 0.05)[0]:
            os.read(ours, 1 << 16)  # a terminal that shows nothing would make it wait
        busy = sum(row["round"] > 0 for it in alive(store) for row in it.running)
    os.close(ours)
    assert process.wait(60) == 128 + signal.SIGHUP
    assert len(list(store.work("checkpoints").glob("*.pt"))) == int(jobs)
    assert alive(store) == []


def test_the_command_stops_on_ctrl_c_with_130_says_how_to_go_on_and_goes_on(tiny, tmp_path, catalogue):
    tiny["federation"]["rounds"] = 30_000
    tiny["algorithms"] = ["DPSGD"]
    planned_of(tiny, tmp_path, catalogue)  # writes suite.yaml
    command = [
        sys.executable,
        "-c",
        "from dpflbench.cli import main; main()",
        "run",
        "suite.yaml",
        "--out",
        "out it goes",
    ]
    store = Store(tmp_path / "out it goes")
    process = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not any(row["round"] for it in alive(store) for row in it.running) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "dpflbench run suite.yaml --out 'out it goes'" in err
    assert "Traceback" not in out + err
    (checkpoint,) = store.work("checkpoints").glob("*.pt")
    explained = subprocess.run([*command, "--explain"], cwd=tmp_path, text=True, capture_output=True, check=True).stdout
    assert f"new       {checkpoint.stem}  DPSGD, seed 0: no record; goes on from round " in explained


def test_the_command_line_loads_no_library_that_looks_for_its_number_of_threads(tmp_path):
    code = "import sys, dpflbench.cli; print([m for m in ('numpy', 'torch', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True).stdout == "[]\n"


def test_a_folder_that_is_a_file_is_one_line_and_exit_2(tiny, tmp_path):
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(tiny))
    (tmp_path / "file").write_text("")
    ended = subprocess.run(
        [sys.executable, "-c", "from dpflbench.cli import main; main()", "run", "suite.yaml", "-o", "file"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "dpflbench: file: cannot be written (Not a directory); choose another folder by --out\n"
    assert ended.stdout == ""
