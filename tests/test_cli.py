"""The command line: commands are found by name and explain themselves; what a machine refuses is one line."""

import io
import os
import resource
import subprocess
import sys
from functools import partial

import pyarrow.parquet
import pytest
import yaml
from record_factory import make_results
from typer.testing import CliRunner

from dpflbench.cli import COMMANDS, app
from dpflbench.results.store import Store


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_list_is_there_and_explains_itself(name):
    shown = CliRunner().invoke(app, [name, "-h"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith(f"Usage: root {name} ")


def test_help_lists_every_command_with_what_it_does():
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert [f"{name} {line}" in shown for name, (_, line) in COMMANDS.items()] == [True] * len(COMMANDS)


def test_a_command_that_is_not_there_is_answered_by_the_nearest():
    shown = CliRunner().invoke(app, ["verfiy"])
    assert shown.exit_code == 2
    assert "no such command 'verfiy'; did you mean 'verify'?" in shown.output


@pytest.fixture
def folder(tmp_path):
    """A results folder with two algorithms, two seeds and one axis."""
    store, results = Store(tmp_path / "results"), make_results(("DPSGD", "WeiAvg"), 2, {"privacy.epsilon.high": [1, 3]})
    store.write_manifest(results.manifest)
    for record in results.records.values():
        store.write(record)
    return store.root


def call(*words, bytes_a_file=None, **variables):
    """A command in a process of its own."""
    limit = bytes_a_file and partial(resource.setrlimit, resource.RLIMIT_FSIZE, (bytes_a_file, resource.RLIM_INFINITY))
    command = [sys.executable, "-m", "dpflbench", *words]
    return subprocess.run(command, env=os.environ | variables, preexec_fn=limit, capture_output=True, check=False)


def test_a_latin_1_terminal_gets_plainer_signs(folder):
    ended = call("report", folder, "-f", "csv", PYTHONIOENCODING="latin-1")
    assert ended.returncode == 0, ended.stderr
    shown = ended.stdout.decode("latin-1")
    assert "accuracy (%) ^" in shown  # for an arrow
    assert "±" in shown  # which Latin-1 has
    assert "~" in shown


@pytest.mark.parametrize("form", ["html", "parquet", "png"])
def test_a_disk_that_fills_while_a_report_is_written_is_one_line(folder, form):
    ended = call("report", folder, "-q", "-f", form, bytes_a_file=1000)
    assert ended.returncode == 2
    assert ended.stderr.decode().splitlines() == [
        f"dpflbench: {folder / 'report'}: cannot be written (File too large); "
        "the records are whole, `dpflbench report` makes the report anew"
    ]


@pytest.mark.parametrize("option", ["--markdown", "--junit"])
def test_a_summary_that_cannot_be_written_is_one_line(folder, option, tmp_path):
    (tmp_path / "file").touch()
    ended = call("compare", folder, "--baseline", folder, option, tmp_path / "file" / "below")
    assert ended.returncode == 2
    assert ended.stderr.decode() == f"dpflbench: {tmp_path / 'file' / 'below'}: cannot be written (File exists)\n"


def test_a_folder_for_temporary_files_too_long_for_a_socket_is_one_line(tiny, tmp_path):
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(tiny))
    long = tmp_path / ("x" * 120)
    long.mkdir()
    ended = call("run", tmp_path / "suite.yaml", "-o", tmp_path / "out", "--jobs", "2", TMPDIR=str(long))
    assert ended.returncode == 2
    assert ended.stderr.decode() == (
        f"dpflbench: --jobs: no socket for workers in {long} (AF_UNIX path too long); "
        "set TMPDIR to a short path that can be written, or run with --jobs 1\n"
    )


def test_a_folder_whose_name_is_not_utf_8_gets_its_whole_report(folder):
    odd = folder.rename(folder.with_name(os.fsdecode(b"caf\xe9")))
    ended = call("report", odd, "-q")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith(b"caf\\udce9/report/index.html\n")
    table = pyarrow.parquet.read_table(io.BytesIO((odd / "report" / "cells.parquet").read_bytes()))
    assert table.num_rows == 8
