"""Who left a file behind: a process is known by its start, one of another machine cannot be asked for."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from suite_runs import ended, fork, kill

from dpflbench.execution.processes import bury_sockets
from dpflbench.execution.progress import bury, is_alive
from dpflbench.results.owners import OWNER, UNKNOWN, is_gone, is_there, owner, start_of
from dpflbench.results.store import Store, write_atomically

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")


def in_a_child(act):
    """What a function says in a child process, as text."""
    told, tell = os.pipe()
    child = fork(lambda: os.write(tell, act().encode()))
    assert ended(child, 60) == 0
    return os.read(told, 1000).decode()


def test_a_process_is_there_until_it_has_ended():
    assert re.fullmatch(OWNER, owner())
    assert is_gone(owner()) is False
    child = in_a_child(owner)
    assert child != owner()
    assert is_gone(child) is True


def test_a_number_that_went_to_another_process_is_not_taken_for_the_old_one():
    machine, pid, start = owner().split("-")
    assert is_gone(f"{machine}-{pid}-{int(start, 16) ^ 1:08x}") is True
    assert is_gone(f"{machine}-{pid}-{UNKNOWN}") is False
    assert not is_there(os.getpid(), "12345678")
    assert is_alive(os.uname().nodename, os.getpid(), 0.0, start)
    assert not is_alive(os.uname().nodename, os.getpid(), time.time(), "12345678")


def test_a_process_that_has_ended_and_was_not_collected_is_gone():
    child = fork(lambda: None)
    while start_of(child) is not None:
        time.sleep(0.01)
    assert not is_there(child)
    assert ended(child, 60) == 0


def test_of_another_machine_nothing_is_said():
    machine, pid, start = owner().split("-")
    assert is_gone(f"{int(machine, 16) ^ 1:08x}-{pid}-{start}") is None


def test_a_file_that_was_never_finished_goes_with_the_next_run_but_none_that_somebody_is_writing(tmp_path, monkeypatch):
    store = Store(tmp_path)
    told, tell = os.pipe()

    def write_half():
        def wait(_):
            os.write(tell, b".")
            signal.alarm(120)  # should the test end before it kills us
            signal.pause()

        monkeypatch.setattr(os, "fsync", wait)
        write_atomically(store.checkpoint("a" * 20), b"half")

    child = fork(write_half)
    os.close(tell)  # so that a child that fails is not waited for
    assert os.read(told, 1) == b"."
    bury(store)
    (left,) = store.unfinished()
    assert left.parent == store.work("checkpoints")
    kill(child)
    bury(store)
    assert store.unfinished() == []


def test_a_file_of_another_machine_goes_when_it_is_an_hour_old(tmp_path):
    store = Store(tmp_path)
    store.work("checkpoints").mkdir(parents=True)
    fresh, old, nameless = (
        store.work("checkpoints") / f".x.pt.{name}.tmp"
        for name in ("00000000-1-00000000-aaaaaaaaaaaa", "00000000-1-00000000-bbbbbbbbbbbb", "cccccccccccc")
    )
    for path in (fresh, old, nameless):
        path.touch()
    for path in (old, nameless):
        os.utime(path, (0, time.time() - 3700))
    bury(store)
    assert store.unfinished() == [fresh]


def test_the_folder_of_a_killed_process_s_sockets_goes_with_the_next_run_but_none_of_a_living_one(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="t") as folder:  # short enough for a socket
        monkeypatch.setattr(tempfile, "tempdir", folder)
        os.mkdir(f"{folder}/pymp-stranger")
        os.mkdir(f"{folder}/pymp-odd")
        with open(f"{folder}/pymp-odd/dpflbench", "w") as mark:
            mark.write("no owner")
        code = "from dpflbench.execution import processes as p; p.warm_up(); print('up', flush=True); input()"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout.readline() == b"up\n"
        bury_sockets()
        assert len(os.listdir(folder)) == 3
        process.kill()
        process.wait()
        bury_sockets()
        assert sorted(os.listdir(folder)) == ["pymp-odd", "pymp-stranger"]
        process.stdin.close()
        process.stdout.close()
