"""How far a suite is: counts, pace, time left; shown live, as lines, or from another terminal."""

import contextlib
import fcntl
import io
import json
import os
import pty
import signal
import struct
import sys
import termios
import time

import pytest
from record_factory import make_record
from rich.console import Console
from suite_runs import fork
from test_cells import CELLS
from typer.testing import CliRunner

from dpflbench.cli import app
from dpflbench.cli.output import printable
from dpflbench.cli.waiting import Waiting
from dpflbench.execution import display as displays
from dpflbench.execution.display import Lines, display, picture, summary
from dpflbench.execution.progress import Progress, Snapshot, Tick, alive, bury, duration, is_alive
from dpflbench.execution.stopping import Stop
from dpflbench.results.cells import Manifest
from dpflbench.results.store import Store, write_atomically

MANIFEST = Manifest("suite", {}, CELLS)


class Shown:
    """A display that remembers."""

    def __init__(self):
        self.lines, self.ended = [], []

    def say(self, line):
        self.lines.append(line)

    def finished(self, now, record, label, reused):
        self.ended.append((now.finished, record.id, label, reused))

    def poll(self, snapshot):
        pass


@pytest.fixture
def progress():
    """Three runs of 100 rounds on a clock that stands still until it is set."""
    made = Progress(MANIFEST, {"a": 100, "b": 100, "c": 100}, Shown())
    made.time = 1000.0
    made.clock = lambda: made.time
    return made


def test_time_left_is_what_the_rounds_to_come_take_at_the_pace_so_far(progress):
    assert progress.now().seconds_left is None
    progress.started("a")
    progress.tick(Tick("a", 0, 10.0))
    progress.time += 10
    progress.tick(Tick("a", 50, 40.0))
    now = progress.now()
    assert now.seconds_left == pytest.approx(50.0)  # 5 rounds a second, 250 to come
    assert now.running[0]["speed"] == pytest.approx(5.0)
    assert now.running[0]["utility"] == 40.0
    progress.finished(make_record("a", "DPSGD", 0, {}, 50.0))
    progress.finished(make_record("b", "WeiAvg", 1, {}, 50.0), reused=True)
    assert progress.now().seconds_left == pytest.approx(
        10.0
    )  # 100 rounds in 10 seconds, 100 to come: what is reused counts for nothing
    assert progress.now().finished == 2
    assert progress.now().running == []


def test_rounds_of_an_earlier_attempt_do_not_count_as_speed(progress):
    progress.started("a")
    progress.tick(Tick("a", 80, 10.0))
    progress.time += 10
    progress.tick(Tick("a", 90, 10.0))
    assert progress.now().running[0]["speed"] == pytest.approx(1.0)
    assert progress.now().seconds_left == pytest.approx(210.0)


def test_a_utility_is_shown_until_there_is_a_newer_one(progress):
    progress.started("a")
    progress.tick(Tick("a", 1, 10.0))
    progress.tick(Tick("a", 2, None))
    assert progress.now().running[0]["utility"] == 10.0


def test_counts_and_time_left_in_one_line():
    now = Snapshot(
        name="suite", host="here", pid=1, total=10, reused=3, counts={"failed": 1, "done": 2}, seconds_left=75.0
    )
    assert summary(now) == "6 of 10 runs, 3 reused, 2 done, 1 failed, about 1 min 15 s left"
    assert (
        summary(Snapshot(name="suite", host="here", pid=1, total=2, counts={"done": 2}, seconds_left=0.0))
        == "2 of 2 runs, 2 done"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.2, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (7384, "2 h 03 min")],
)
def test_durations_as_people_say_them(seconds, text):
    assert duration(seconds) == text


def test_a_log_has_a_line_a_run_and_a_sign_of_life_a_minute(monkeypatch):
    lines = []
    log = Lines(lines.append)
    now = Snapshot(
        name="suite",
        host="here",
        pid=1,
        total=3,
        counts={"done": 1},
        running=[{"label": "DPSGD seed 0", "round": 7, "rounds": 100}],
    )
    record = make_record("a", "DPSGD", 0, {}, 71.234)
    log.finished(now, record, "DPSGD seed 0", False)
    log.finished(now, make_record("b", "WeiAvg", 0, {}, 0.0, status="failed", reason="no luck"), "WeiAvg seed 0", False)
    log.poll(lambda: now)
    assert lines == [
        "[1/3] a DPSGD seed 0: done accuracy 71.23% (1 s)",
        "[1/3] b WeiAvg seed 0: failed (1 s) – no luck",
    ]
    monkeypatch.setattr(displays, "HEARTBEAT", 0.0)
    log.poll(lambda: now)
    assert lines[2] == "1 of 3 runs, 1 done; running: DPSGD seed 0 round 7/100"


def test_quiet_says_only_what_went_wrong():
    lines = []
    with display(lines.append, printable, terminal=False, quiet=True) as shown:
        shown.finished(
            Snapshot(name="suite", host="here", pid=1), make_record("a", "DPSGD", 0, {}, 71.0), "DPSGD", False
        )
        shown.poll(lambda: Snapshot(name="suite", host="here", pid=1))
        shown.say("a: damaged\x1b[2J")
    assert lines == ["a: damaged\\x1b[2J"]


def test_the_picture_has_a_line_a_running_run_and_a_bar(progress):
    progress.started("a", "pid 7")
    progress.tick(Tick("a", 0, None))
    progress.time += 10
    progress.tick(Tick("a", 25, 61.5))
    progress.finished(make_record("b", "WeiAvg", 1, {}, 50.0), reused=True)
    out = io.StringIO()
    Console(file=out, width=140).print(picture(progress.now(), printable, 140, 24, "8 s so far"))
    shown = out.getvalue()
    for text in (
        "DPSGD (gaussian, ε max 6), seed 0",
        "25/100",
        "61.50",
        "2.5",
        "pid 7",
        "1 of 3 runs, 1 reused",
        "1 min 10 s left",
        "8 s so far",
    ):
        assert text in shown


def test_the_picture_keeps_within_80_columns_and_24_lines_and_the_time_left_stays_in_sight():
    label = "PRIVATEFL-BCS (laplace, ε max 6, alpha 0.5, lr.initial 2, weight_decay 0.001, momentum 0.9), seed {}"
    running = [
        {
            "label": label.format(i),
            "round": 1999,
            "rounds": 2000,
            "utility": 61.5,
            "speed": 1234.5,
            "where": "pid 12345",
        }
        for i in range(40)
    ]
    now = Snapshot(
        name="suite",
        host="here",
        pid=1,
        total=60000,
        reused=12345,
        counts={"failed": 111, "done": 22222, "diverged": 333},
        running=running,
        seconds_left=75.0,
    )
    out = io.StringIO()
    Console(file=out, width=80).print(picture(now, printable, 80, 24, displays.STOPPING))
    lines = out.getvalue().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "seed 7" in line)
    assert row.startswith("PRIVATEFL-BCS (laplace, ε max 6, alpha…), seed 7 ")
    assert row.split()[-3:] == ["1999/2000", "61.50", "1234.5"]
    assert "… and 22 more" in lines
    assert "about 1 min 15 s left" in " ".join(lines[-3:])
    assert displays.STOPPING in lines[-1]


def test_a_log_without_any_news_says_something_after_two_seconds(monkeypatch):
    lines, time_now = [], [1000.0]
    monkeypatch.setattr(displays.time, "monotonic", lambda: time_now[0])
    log = Lines(lines.append)
    now = Snapshot(name="suite", host="here", pid=1, total=3)
    log.poll(lambda: now)
    assert lines == []
    time_now[0] += 2.0
    log.poll(lambda: now)
    assert lines == ["0 of 3 runs"]


def on_a_terminal(act, columns=80):
    """What a function writes when stdout and stderr are a terminal of so many columns."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def child():
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        act()
        sys.stdout.flush()
        sys.stderr.flush()

    pid = fork(child)
    os.close(writer)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
        while part := os.read(reader, 4096):
            shown += part
    os.close(reader)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown.decode()
    return shown.decode()


def test_waiting_moves_within_two_seconds_and_leaves_nothing(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")

    def act():
        with Waiting("suite: planning"):
            time.sleep(1.3)

    shown = on_a_terminal(act)
    pictures = [part for part in shown.split("\r\x1b[K") if part]
    assert pictures[0] == "suite: planning | 0 s"
    assert pictures[-1].endswith("1 s")
    assert len(pictures) >= 4
    assert shown.endswith("\r\x1b[K")
    monkeypatch.setenv("TERM", "dumb")
    assert on_a_terminal(act) == ""


def test_a_live_view_says_that_it_stops_in_its_own_place_and_leaves_nothing(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")

    def act():
        stop = Stop()
        with stop, display(print, printable, terminal=True, quiet=False, stop=stop) as shown:
            shown.poll(lambda: Snapshot(name="suite", host="here", pid=1, total=3))
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.requested
            time.sleep(1.2)
        assert stop.aloud

    shown = on_a_terminal(act)
    assert "0 of 3 runs" in shown
    assert "Stopping after this round; once more" not in shown  # what the signal handler says where there is no picture
    assert displays.STOPPING in shown
    after = shown[shown.rindex(displays.STOPPING) :]
    assert after.count("\x1b[1A\x1b[2K") == 3  # the bar, the counts and this line: three lines, all erased
    assert "runs" not in after


def test_other_terminals_see_the_same_and_nothing_is_left_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr("dpflbench.execution.progress.PERIOD", 0.0)
    store = Store(tmp_path)
    store.write_manifest(MANIFEST)
    store.write(make_record("b", "WeiAvg", 1, {}, 50.0))
    progress = Progress(MANIFEST, {"a": 100, "b": 100, "c": 100}, Shown(), store)
    progress.started("a", "pid 7")
    progress.tick(Tick("a", 25, 61.5))
    (snapshot,) = alive(store)
    assert snapshot.pid == os.getpid()
    assert snapshot.running[0]["round"] == 25
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).output
    assert "suite: 1 of 3 runs have a record: 1 done" in shown
    assert f"process {os.getpid()} on" in shown
    assert "25/100" in shown
    progress.close()
    assert alive(store) == []
    assert "nothing is running here" in CliRunner().invoke(app, ["status", str(tmp_path)]).output


def test_a_process_that_is_gone_or_silent_is_not_alive(tmp_path):
    here = os.uname().nodename
    assert is_alive(here, os.getpid(), 0.0)
    assert not is_alive(here, 2**22 + 1, time.time())
    assert is_alive("elsewhere", 1, time.time() - 30)
    assert not is_alive("elsewhere", 1, time.time() - 90)
    write_atomically(tmp_path / "work" / "running" / "x.json", "not json")
    write_atomically(tmp_path / "work" / "running" / "y.json", json.dumps({"unknown": 1}))
    assert alive(Store(tmp_path)) == []


def test_what_processes_that_are_gone_have_left_is_buried_and_the_living_are_left_alone(tmp_path):
    store, here = Store(tmp_path), os.uname().nodename
    for pid in (os.getpid(), 2**22 + 1):
        snapshot = {"name": "suite", "host": here, "pid": pid, "updated": time.time()}
        write_atomically(store.work("running") / f"{here}-{pid}.json", json.dumps(snapshot))
        write_atomically(store.work("tasks") / f"{here}-{pid}" / "task.pt", b"")
    bury(store)
    assert [p.name for p in store.work("running").iterdir()] == [f"{here}-{os.getpid()}.json"]
    assert [p.name for p in store.work("tasks").iterdir()] == [f"{here}-{os.getpid()}"]


def test_a_run_that_ends_early_does_not_leave_its_rounds_to_come(progress):
    progress.started("a")
    progress.tick(Tick("a", 0, None))
    progress.time += 10
    progress.tick(Tick("a", 50, None))
    progress.finished(make_record("a", "DPSGD", 0, {}, 0.0, status="diverged", reason="inf"))
    assert progress.now().counts == {"diverged": 1}
    assert progress.now().seconds_left == pytest.approx(20.0)  # 200 rounds to come, 100 spared or played in 10 seconds
