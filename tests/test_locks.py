"""Locks: one holder at a time, free when it ends, on file systems with locks and without."""

import errno
import fcntl
import os
import signal
import socket
import time

import pytest
from suite_runs import carry_out, digests, ended, fork, kill, planned_of

from dpflbench.results import locks
from dpflbench.results.locks import Lock
from dpflbench.results.store import Store

WITHOUT = [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP]


def without_flock(monkeypatch, number=errno.ENOLCK):
    """A file system that knows no locks, as it says by that number."""

    def refuse(file, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)


def holder_of(path, host=None):
    """A child process that holds the lock by the time we know its id, on a machine of that name."""
    told, tell = os.pipe()

    def act():
        if host:
            socket.gethostname = lambda: host
        lock = Lock(path)  # none of ours: a lock is not inherited
        assert lock.acquire()
        os.write(tell, b".")
        signal.alarm(120)  # should the test end before it kills us
        signal.pause()

    child = fork(act)
    os.close(tell)  # so that a child that fails is not waited for
    assert os.read(told, 1) == b"."
    os.close(told)
    return child


@pytest.mark.parametrize("number", [None, *WITHOUT])
def test_a_lock_has_one_holder_and_is_free_as_soon_as_that_is_killed(tmp_path, monkeypatch, number):
    if number:
        without_flock(monkeypatch, number)
    path = tmp_path / "x.lock"
    child, lock = holder_of(path), Lock(path)
    assert not lock.acquire()
    assert not lock.acquire(0.1)
    kill(child)
    assert lock.acquire(30.0)
    other = Lock(path)
    assert not other.acquire()
    lock.release()
    assert other.acquire()


@pytest.mark.parametrize("number", WITHOUT)
def test_a_suite_runs_where_there_are_no_locks_and_leaves_none_of_its_own(
    tiny, tmp_path, catalogue, monkeypatch, number
):
    without_flock(monkeypatch, number)
    store = Store(tmp_path / "results")
    carry_out(planned_of(tiny, tmp_path, catalogue), store, catalogue)
    assert len(digests(store)) == 3
    assert [p for p in (store.root / "work").rglob("*") if p.is_file()] == []


def test_another_refusal_of_the_system_is_no_lack_of_locks(tmp_path, monkeypatch):
    without_flock(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        Lock(tmp_path / "x.lock").acquire()
    assert not (tmp_path / "x.lease").exists()


def test_a_run_whose_process_was_killed_on_another_machine_is_taken_over_when_its_lease_is_over(
    tiny, tmp_path, catalogue, monkeypatch
):
    without_flock(monkeypatch)
    monkeypatch.setattr(locks, "LEASE", 0.5)
    planned, store = planned_of(tiny, tmp_path, catalogue), Store(tmp_path / "results")
    first = store.lock(next(iter(planned.runs)))
    kill(holder_of(first.path, host="elsewhere"))
    assert not first.acquire()
    child = fork(lambda: carry_out(planned, store, catalogue))
    assert ended(child, 60) == 0
    assert len(digests(store)) == 3


def test_a_lease_is_renewed_as_long_as_its_holder_lives(tmp_path, monkeypatch):
    without_flock(monkeypatch)
    monkeypatch.setattr(locks, "LEASE", 0.3)
    child = holder_of(tmp_path / "x.lock", host="elsewhere")
    seen, until = set(), time.monotonic() + 60
    while len(seen) < 3 and time.monotonic() < until:
        seen.add((tmp_path / "x.lease").stat().st_mtime_ns)
        time.sleep(0.01)
    kill(child)
    assert len(seen) == 3
