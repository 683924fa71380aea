"""The command line: commands are found by name and explain themselves; what a machine refuses is one line."""

import io
import os
import resource
import subprocess
import sys

import pyarrow.parquet
import pytest
import yaml
from record_factory import make_record, make_results
from suite_runs import fork
from typer.testing import CliRunner

from dpflbench.cli import COMMANDS, EXAMPLES, app, main
from dpflbench.cli.output import folded
from dpflbench.errors import DpflbenchError
from dpflbench.results.record import dumps
from dpflbench.results.store import Store


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_list_is_there_and_explains_itself(name):
    shown = CliRunner().invoke(app, [name, "-h"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith(f"Usage: root {name} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_name_it_and_fit_a_terminal(name):
    lines = CliRunner().invoke(app, [name, "-h"]).output.splitlines()
    examples = [line.strip() for line in lines[lines.index("  Examples:") + 1 :]]
    assert examples == list(EXAMPLES[name])
    assert all(line.startswith(f"dpflbench {name}") and len(line) < 77 for line in examples)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("dpflbench re", ["report"]),
        ("dpflbench run --quie", ["--quiet"]),
        ("dpflbench list a", ["accountants", "aggregators", "algorithms"]),
        ("dpflbench --vers", ["--version"]),
    ],
)
def test_commands_options_and_kinds_are_completed(words, found):
    count = str(len(words.split()) - 1)
    given = {"_DPFLBENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    command = [sys.executable, "-c", "import sys; sys.argv = ['dpflbench']; from dpflbench.cli import main; main()"]
    ended = subprocess.run(command, env=os.environ | given, capture_output=True, check=False, text=True)
    assert sorted(ended.stdout.split()) == found, ended.stderr


def test_defaults_are_shown():
    shown = " ".join(CliRunner().invoke(app, ["audit", "-h"]).output.split())
    assert "[default: gaussian and laplace where the algorithm allows them]" in shown
    assert "[default: 4096; x>=64]" in shown


def test_a_misspelt_algorithm_is_answered_by_the_one_in_other_letters():
    shown = CliRunner().invoke(app, ["audit", "dpsgd"])
    assert str(shown.exception) == "unknown algorithm 'dpsgd'; did you mean 'DPSGD'?"


def test_a_terminal_gets_lines_broken_at_words():
    line = "    a line of some words that goes on and on"
    assert folded(line, 24) == "    a line of some words\n    that goes on and on"
    assert folded("", 24) == ""


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


def call(*words, bytes_a_file=None):
    """A command in a process of its own, forked: its imports are paid for already."""
    out, err = os.pipe(), os.pipe()

    def act():
        os.dup2(out[1], 1), os.dup2(err[1], 2)
        for end in (*out, *err):
            os.close(end)
        sys.stdout, sys.stderr = (os.fdopen(end, "w", encoding="utf-8") for end in (1, 2))
        if bytes_a_file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_a_file, resource.RLIM_INFINITY))
        sys.argv = ["dpflbench", *map(os.fspath, words)]
        code = 0
        try:
            main()
        except SystemExit as e:
            code = int(e.code or 0)
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)

    child = fork(act)
    os.close(out[1]), os.close(err[1])
    said = []
    for pipe in (out, err):
        with os.fdopen(pipe[0], "rb") as end:
            said.append(end.read())
    return subprocess.CompletedProcess(words, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *said)


def test_a_latin_1_terminal_gets_plainer_signs(folder):
    command, latin = [sys.executable, "-m", "dpflbench", "report", folder, "-f", "csv"], {"PYTHONIOENCODING": "latin-1"}
    ended = subprocess.run(command, env=os.environ | latin, capture_output=True, check=False)
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
    command = [sys.executable, "-m", "dpflbench", "run", tmp_path / "suite.yaml", "-o", tmp_path / "out", "--jobs", "2"]
    ended = subprocess.run(command, env=os.environ | {"TMPDIR": str(long)}, capture_output=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.decode() == (
        f"dpflbench: --jobs: no socket for workers in {long} (AF_UNIX path too long); "
        "set TMPDIR to a short path that can be written, or run with --jobs 1 --no-isolated\n"
    )


def test_a_folder_whose_name_is_not_utf_8_gets_its_whole_report(folder):
    odd = folder.rename(folder.with_name(os.fsdecode(b"caf\xe9")))
    ended = call("report", odd, "-q")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith(b"caf\\udce9/report/index.html\n")
    table = pyarrow.parquet.read_table(io.BytesIO((odd / "report" / "cells.parquet").read_bytes()))
    assert table.num_rows == 8


def test_a_figure_has_the_size_the_algorithms_and_the_settings_that_were_asked_for(folder, tmp_path):
    asked = ["--width", "2.5", "--only", "WeiAvg", "--where", "privacy.epsilon.high=3", "--font", "sans-serif"]
    shown = CliRunner().invoke(app, ["figure", str(folder), "rounds", *asked, "-f", "svg", "-o", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith(f"{tmp_path / 'rounds.svg'}\n")
    drawing = (tmp_path / "rounds.svg").read_text()
    assert 'width="180"' in drawing  # points
    assert "font-family: 'sans-serif'" in drawing
    assert "WeiAvg" in drawing
    assert "DPSGD" not in drawing
    assert "ε max" not in drawing  # one setting needs no name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnds"], "rnds: no such figure; did you mean 'rounds'?"),
        (["rounds", "--only", "Weiavg"], "--only Weiavg: no such algorithm; did you mean 'WeiAvg'?"),
        (["rounds", "--width", "wide"], "--width wide: allowed: column, text, or 1 to 40 (inches)"),
        (["rounds", "--width", "nan"], "--width nan: allowed: column, text, or 1 to 40 (inches)"),
        (["rounds", "--format", "gif"], "--format gif: unknown; allowed: svg, png, pdf"),
        (
            ["rounds", "--where", "privacy.epsilon.high=2"],
            "--where privacy.epsilon.high=2: no such setting; allowed: privacy.epsilon.high=1, privacy.epsilon.high=3",
        ),
    ],
)
def test_what_a_figure_cannot_be_is_one_line(folder, words, message):
    with pytest.raises(DpflbenchError) as refused:
        CliRunner().invoke(app, ["figure", str(folder), *words], catch_exceptions=False)
    assert str(refused.value) == message


def test_run_exits_1_unless_every_run_ends_well_and_says_how_many_of_which_did_not(tiny, tmp_path):
    tiny["federation"]["lr"] = {"initial": 1e39}  # every model is infinite after one round
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(tiny))
    command = ["run", str(tmp_path / "suite.yaml"), "-o", str(tmp_path / "out"), "-q"]
    ended = CliRunner().invoke(app, command)
    why = f"; `dpflbench status {tmp_path / 'out'}` says why.\n"
    assert (ended.exit_code, ended.stderr) == (1, f"Of 3 runs 3 diverged{why}")
    store = Store(tmp_path / "out")
    first, second, third = store.manifest().runs
    for run, status in ((first, "done"), (second, "disqualified")):
        store.path(run).write_text(dumps(make_record(run, "DPSGD", 0, {}, 50.0, status=status)))
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[-1] == f"Of 3 runs 1 diverged, 1 disqualified{why}".strip()
    for run in (second, third):
        store.path(run).write_text(dumps(make_record(run, "DPSGD", 0, {}, 50.0)))
    ended = CliRunner().invoke(app, command)
    marked = f"Marked: 3 wrong; `dpflbench verify {tmp_path / 'out'}` says why.\n"
    assert (ended.exit_code, ended.stderr) == (1, marked)  # all done, and made up
    assert CliRunner().invoke(app, [*command, "--set", "federation.lr.initial=0.5"]).exit_code == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize("words", [["list"], ["--help"], ["--version"]])
def test_a_standard_output_that_takes_nothing_is_one_line(words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "dpflbench", *words]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.stderr.decode() == "dpflbench: standard output: cannot be written (No space left on device)\n"
    assert ended.returncode == 2


def test_a_run_goes_on_when_nobody_takes_what_it_says(tiny, tmp_path):
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(tiny))
    ours, theirs = os.pipe()
    os.close(ours)  # as `| head -1` does
    command = [sys.executable, "-m", "dpflbench", "run", tmp_path / "suite.yaml", "-o", tmp_path / "out"]
    ended = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert len(Store(tmp_path / "out").ids()) == 3, ended.stderr
    assert b"Traceback" not in ended.stderr
