"""The results folder: whole files whatever is killed, damaged records repeated, nobody in anybody's way, nothing left
behind.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import stat
from pathlib import Path

import pytest
from record_factory import make_record
from suite_runs import carry_out, digests, ended, fork, kill, planned_of
from typer.testing import CliRunner

from dpflbench.cli import app, main
from dpflbench.errors import DpflbenchError
from dpflbench.results.cells import Manifest
from dpflbench.results.owners import owner
from dpflbench.results.record import RecordError, dumps
from dpflbench.results.store import Store, write_atomically


@pytest.fixture
def three(tiny, tmp_path, catalogue):
    """A planned suite of three runs and a results folder in which they are done."""
    planned = planned_of(tiny, tmp_path, catalogue)
    store = Store(tmp_path / "results")
    carry_out(planned, store, catalogue)
    return planned, store


def lines_of(planned, store, catalogue, capsys):
    """What a log shows when the suite is carried out once more."""
    capsys.readouterr()
    carry_out(planned, store, catalogue, quiet=False)
    return capsys.readouterr().out.splitlines()


@pytest.mark.skipif(os.name != "posix", reason="kills itself by a signal")
@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_process_killed_while_it_writes_leaves_the_old_file_or_the_new_one(tmp_path, step, monkeypatch):
    path = tmp_path / "record.json"
    write_atomically(path, "old" * 1000)

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    real = Path.open

    def write_half(self, mode):
        with real(self, mode) as file:
            file.write(b"ne")
            file.flush()
            die()

    def act():
        owner()  # which asks the system for files too, once
        if step == "fsync":
            monkeypatch.setattr(os, "fsync", die)
        elif step == "replace":
            monkeypatch.setattr(Path, "replace", die)
        else:
            monkeypatch.setattr(Path, "open", write_half)
        write_atomically(path, "new" * 1000)

    assert ended(fork(act), 10) == -signal.SIGKILL
    assert path.read_text() == "old" * 1000
    assert len(list(tmp_path.glob(".record.json.*.tmp"))) == 1  # which no reader takes for a record


def test_a_full_disk_leaves_no_half_written_file_and_says_so_in_one_line(tmp_path, monkeypatch):
    store = Store(tmp_path)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DpflbenchError, match=r"cannot be written .No space left on device"):
        store.write(make_record("a" * 20, "DPSGD", 0, {}, 50.0))
    assert list((tmp_path / "records").iterdir()) == []


def test_files_are_readable_by_whoever_may_read_the_folder(tmp_path):
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "x.json", "{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) == 0o644


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(tiny, tmp_path, catalogue):
    planned = planned_of(tiny, tmp_path, catalogue)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DpflbenchError, match=r"cannot be written .*choose another folder by --out"):
        carry_out(planned, Store(tmp_path / "file"), catalogue)
    with pytest.raises(DpflbenchError, match="cannot be written"):
        carry_out(planned, Store(tmp_path / "file" / "below"), catalogue)


def test_a_disk_without_room_is_refused_before_anything_runs(tiny, tmp_path, catalogue, monkeypatch):
    planned = planned_of(tiny, tmp_path, catalogue)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 3_000_000))
    with pytest.raises(DpflbenchError, match="3 MB free, 3 runs need up to 20 MB"):
        carry_out(planned, Store(tmp_path / "results"), catalogue)
    assert not (tmp_path / "results" / "suite.json").exists()


def test_a_second_time_everything_is_reused(three, catalogue, capsys):
    planned, store = three
    before = {path: path.stat().st_mtime_ns for path in (store.root / "records").iterdir()}
    lines = lines_of(planned, store, catalogue, capsys)
    assert len(lines) == 3
    assert all("(reused)" in line for line in lines)
    assert before == {path: path.stat().st_mtime_ns for path in (store.root / "records").iterdir()}


def edited(text):
    body = json.loads(text)
    body["final"]["utility_global"] += 1.0
    return json.dumps(body)


def another_schema(text):
    return json.dumps(json.loads(text) | {"schema": 99})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "truncated or not JSON"),
        (lambda text: "", "truncated or not JSON"),
        (lambda text: "\0" * len(text), "truncated or not JSON"),
        (lambda text: "[1, 2, 3]", "not a dpflbench record"),
        (edited, "content does not match its digest"),
        (another_schema, "schema 99"),
        (lambda text: text.replace('"status": "done"', '"status": "splendid"'), "status 'splendid'"),
    ],
)
def test_a_damaged_record_is_named_set_aside_and_its_run_repeated(three, catalogue, capsys, damage, said):
    planned, store = three
    before = digests(store)
    victim = sorted(before)[1]
    damaged = damage(store.path(victim).read_text())
    store.path(victim).write_text(damaged)
    lines = lines_of(planned, store, catalogue, capsys)
    named = next(line for line in lines if "set aside" in line)
    assert str(store.path(victim)) in named
    assert said in named
    assert sum("(reused)" in line for line in lines) == 2
    assert digests(store) == before
    (aside,) = (store.root / "records" / "set-aside").iterdir()
    assert aside.name.startswith(victim)
    assert aside.read_text() == damaged


def test_a_record_of_another_run_or_a_folder_in_its_place_is_set_aside_too(three, catalogue, capsys):
    planned, store = three
    before = digests(store)
    one, two, three_ = sorted(before)
    shutil.copy(store.path(two), store.path(one))
    store.path(three_).unlink()
    store.path(three_).mkdir()
    lines = lines_of(planned, store, catalogue, capsys)
    assert sum("set aside" in line for line in lines) == 2
    assert any(f"holds the record of {two}" in line for line in lines)
    assert digests(store) == before


def test_a_failure_is_shown_and_tried_again(three, catalogue, capsys):
    planned, store = three
    before = digests(store)
    victim = sorted(before)[0]
    store.path(victim).write_text(dumps(make_record(victim, "DPSGD", 0, {}, 0.0, status="failed", reason="no luck")))
    runner = CliRunner()
    shown = runner.invoke(app, ["status", str(store.root)]).output
    assert "3 of 3 runs have a record: 2 done, 1 failed" in shown
    assert "no luck" in shown
    lines = lines_of(planned, store, catalogue, capsys)
    assert sum("(reused)" in line for line in lines) == 2
    assert digests(store) == before


@pytest.mark.parametrize("status", ["diverged", "disqualified"])
def test_an_ending_of_the_run_s_own_doing_is_reused(three, catalogue, capsys, status):
    planned, store = three
    victim = sorted(digests(store))[0]
    store.path(victim).write_text(dumps(make_record(victim, "DPSGD", 0, {}, 0.0, status=status, reason="as it is")))
    assert sum("(reused)" in line for line in lines_of(planned, store, catalogue, capsys)) == 3


def test_two_processes_on_one_folder_share_the_work_and_repeat_none(tiny, tmp_path, catalogue):
    tiny["seeds"] = 3
    tiny["federation"]["rounds"] = 25
    planned = planned_of(tiny, tmp_path, catalogue)
    calm, shared = Store(tmp_path / "calm"), Store(tmp_path / "shared")
    carry_out(planned, calm, catalogue)
    logs = [tmp_path / "first.log", tmp_path / "second.log"]

    def act(log):
        with log.open("w") as file, contextlib.redirect_stdout(file):
            carry_out(planned, shared, catalogue, quiet=False)

    children = [fork(lambda log=log: act(log)) for log in logs]
    assert [ended(child, 60) for child in children] == [0, 0]
    made = [
        [line for line in log.read_text().splitlines() if ": done" in line and "(reused)" not in line] for log in logs
    ]
    assert sum(map(len, made)) == 9
    assert len({line.split()[1] for lines in made for line in lines}) == 9
    assert [log.read_text().count("/9]") for log in logs] == [9, 9]  # each tells the whole story
    assert digests(shared) == digests(calm)


def test_a_run_that_another_process_holds_is_waited_for_and_taken_from_it(three, catalogue, tmp_path, capfd):
    planned, store = three
    victim = sorted(digests(store))[0]
    text = store.path(victim).read_text()
    store.path(victim).unlink()
    lock = store.lock(victim)
    assert lock.acquire()
    child = fork(lambda: carry_out(planned, store, catalogue, quiet=False))
    assert ended(child, 1.5) is None
    assert not store.path(victim).exists()
    write_atomically(store.path(victim), text)
    lock.release()
    assert ended(child, 20) == 0
    said = capfd.readouterr().out
    assert said.count("(reused)") == 3
    assert said.count("waiting for 1 run that another process is doing") == 1


def test_the_lock_of_a_killed_process_is_free_again(three, catalogue):
    planned, store = three
    victim = sorted(digests(store))[0]
    store.path(victim).unlink()

    def act():
        store.lock(victim).acquire()
        (store.root / "held").touch()
        signal.pause()

    child = fork(act)
    while not (store.root / "held").exists():
        assert ended(child, 0.01) is None
    kill(child)
    carry_out(planned, store, catalogue)
    assert victim in digests(store)


def test_clean_removes_what_is_not_needed_says_so_and_keeps_the_rest(three, catalogue):
    _, store = three
    before = digests(store)
    done = sorted(before)[0]
    stale = make_record("f" * 20, "DPSGD", 0, {}, 1.0)
    store.write(stale)
    write_atomically(store.checkpoint(done), b"of a finished run")
    write_atomically(store.checkpoint("e" * 20), b"of a run nobody asks for")
    (store.root / "records" / ".x.json.123.tmp").write_text("half")
    store.path("d" * 20).write_text("damaged")
    store.set_aside("d" * 20)
    runner = CliRunner()
    planned_only = runner.invoke(app, ["clean", "--stale", "--dry-run", str(store.root)]).output
    assert planned_only.count("would remove") == 5
    assert "f" * 20 in planned_only
    assert store.path("f" * 20).exists()
    assert runner.invoke(app, ["clean", str(store.root)]).output.count("removed ") == 3
    assert store.path("f" * 20).exists()
    assert runner.invoke(app, ["clean", "--stale", str(store.root)]).output.count("removed ") == 2
    assert "Nothing to remove" in runner.invoke(app, ["clean", "--stale", str(store.root)]).output
    assert digests(store) == before


def test_clean_refuses_a_folder_in_which_somebody_works_and_a_folder_that_is_no_results(three, tmp_path):
    _, store = three
    alive = {"name": "tiny", "host": os.uname().nodename, "pid": os.getpid(), "updated": 0.0}
    write_atomically(store.work("running") / "x.json", json.dumps(alive))
    with pytest.raises(DpflbenchError, match=f"process {os.getpid()} .* works here"):
        CliRunner().invoke(app, ["clean", str(store.root)], catch_exceptions=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DpflbenchError, match="not a results folder"):
        CliRunner().invoke(app, ["clean", str(tmp_path / "empty")], catch_exceptions=False)


def test_a_finished_suite_leaves_no_locks_checkpoints_or_signs_of_life(three):
    _, store = three
    assert [p for p in (store.root / "work").rglob("*") if p.is_file()] == []


def leaves(value, path=()):
    """The path of everything in a JSON value that is no container."""
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(below, (*path, key))
    else:
        yield path


def test_a_manifest_changed_at_any_one_place_is_refused_in_one_line_and_written_anew_by_the_next_run(three, catalogue):
    planned, store = three
    path = store.root / "suite.json"
    whole = path.read_text()
    places = [place for place in leaves(json.loads(whole)) if place != ("schema",)]
    assert len(places) > 40
    for place in places:
        body = json.loads(whole)
        *above, last = place
        inner = body
        for key in above:
            inner = inner[key]
        inner[last] = "other" if inner[last] != "other" else None
        path.write_text(json.dumps(body))
        with pytest.raises(DpflbenchError, match="content does not match its digest; it was edited or damaged"):
            store.results()
    carry_out(planned, store, catalogue)
    assert path.read_text() == whole


@pytest.fixture
def old(tmp_path):
    """A results folder with one record, made by version 0.1."""
    return Store(shutil.copytree(Path(__file__).parent / "version_0_1", tmp_path / "old"))


MADE_BY = "made by dpflbench 0.1 (schema 1); this version reads 2: run the suite again, or read it with dpflbench 0.1"


def test_a_folder_of_version_0_1_is_refused_in_one_line_by_whoever_reads_it(old, capsys, monkeypatch):
    for command in (["report"], ["verify"], ["status"], ["clean"], ["compare", "--baseline", "x.json"]):
        monkeypatch.setattr("sys.argv", ["dpflbench", *command, str(old.root)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"dpflbench: {old.root / 'suite.json'}: {MADE_BY}\n"
    with pytest.raises(RecordError) as caught:
        old.read("32ce55aa45d01bb93543")
    assert str(caught.value) == f"{old.path('32ce55aa45d01bb93543')}: {MADE_BY}"


def test_a_run_into_a_folder_of_version_0_1_says_so_once_leaves_what_is_there_and_repeats_the_runs(
    old, tiny, tmp_path, catalogue, capsys
):
    planned = planned_of(tiny, tmp_path, catalogue)
    first = next(iter(planned.runs))
    text = old.path("32ce55aa45d01bb93543").read_text()
    old.path(first).write_text(text)  # in the place of a record of ours it is set aside
    lines = lines_of(planned, old, catalogue, capsys)
    assert lines[0] == (
        f"{old.root}: holds records of another version of dpflbench, which stay there; every run is repeated"
    )
    assert lines[1].startswith(f"{old.path(first)}: {MADE_BY}; set aside as ")
    assert [line.split()[0] for line in lines[2:]] == ["[1/3]", "[2/3]", "[3/3]"]
    assert old.path("32ce55aa45d01bb93543").read_text() == text
    assert old.results().problems == ()
    assert all("(reused)" in line for line in lines_of(planned, old, catalogue, capsys))


def test_the_manifest_names_each_run_once(three):
    planned, store = three
    assert sorted(store.manifest().runs) == sorted(planned.runs)
    assert Manifest("x", {}, [*store.manifest().cells, *store.manifest().cells]).runs == store.manifest().runs
