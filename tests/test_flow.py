"""The whole path, as a user walks it: suite, plan, run, run again, report, verify; and what a mistake is answered
with.
"""

from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from dpflbench import __version__, cli
from dpflbench.cli.list_parts import description
from dpflbench.errors import DpflbenchError

REPO = Path(__file__).parent.parent
SMOKE = REPO / "suites" / "smoke.yaml"


def call(*arguments: object):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def refusal(*arguments: object) -> str:
    result = call(*arguments)
    assert isinstance(result.exception, DpflbenchError), result.output
    return str(result.exception)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    out = tmp_path_factory.mktemp("results") / "smoke"
    return out, call("run", SMOKE, "--out", out)


def test_the_smoke_suites_have_every_built_in_algorithm(catalogue):
    built_in = {name for name, part in catalogue.parts["algorithms"].items() if part.distribution == "dpflbench"}
    others = [SMOKE.parent / name for name in ("smoke_local.yaml", "smoke_trust.yaml")]
    listed = [entry for path in (SMOKE, *others) for entry in yaml.safe_load(path.read_text())["algorithms"]]
    assert built_in == {entry["use"] if isinstance(entry, dict) else entry for entry in listed}


def test_the_smoke_suite_of_local_training_ends_in_a_table_that_is_verified(tmp_path):
    out = tmp_path / "results"
    result = call("run", SMOKE.parent / "smoke_local.yaml", "--out", out)
    assert result.exit_code == 0, result.output
    assert "DP-SCAFFOLD" in result.output
    result = call("verify", out)
    assert (result.exit_code, "0 findings" in result.output) == (0, True), result.output


def test_the_smoke_suite_of_sums_ends_in_a_table_that_is_verified(tmp_path):
    out = tmp_path / "results"
    result = call("run", SMOKE.parent / "smoke_trust.yaml", "--out", out)
    assert result.exit_code == 0, result.output
    assert "IDP-FedAvg is defined for federation.cohorts: poisson, not for exact" in result.output.replace("\n", " ")
    result = call("verify", out)
    assert (result.exit_code, "0 findings" in result.output) == (0, True), result.output


def test_the_smoke_suite_ends_in_a_table_with_explained_gaps(smoke):
    out, result = smoke
    assert result.exit_code == 0, result.output
    assert "PRIVATEFL-BCS" in result.output
    assert "DPSGD is defined for gaussian noise only" in result.output
    assert str(out / "report") in result.output.replace("\n", "")
    assert (out / "report" / "report.md").read_text().count("DMLDP")


def test_a_second_run_repeats_nothing(smoke):
    out, _ = smoke
    stamps = {p: p.stat().st_mtime_ns for p in (out / "records").glob("*.json")}
    result = call("run", SMOKE, "--out", out)
    assert result.exit_code == 0
    assert {p: p.stat().st_mtime_ns for p in (out / "records").glob("*.json")} == stamps


def test_a_second_accountant_agrees_with_every_run(smoke):
    result = call("verify", smoke[0])
    assert result.exit_code == 0, result.output
    assert "0 findings" in result.output


def test_plan_shows_uses_scales_cost_and_noise_against_the_clip_bound(tmp_path, tiny, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # one table: a narrow terminal folds it
    tiny["axes"] = {"privacy.mechanism": ["gaussian", "laplace"]}
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny))
    result = call("plan", path)
    assert result.exit_code == 0, result.output
    head = next(line for line in result.output.splitlines() if line.startswith("algorithm"))
    assert head.split() == ["algorithm", "uses", "scale", "ε", "spent", "share", "efficiency", "coverage", "noise"]
    row = next(line for line in result.output.splitlines() if line.startswith("DPSGD"))
    assert row.split()[1] == "3"
    assert "100 %" in row
    for text in ("4 runs for 6 cells", "1 cell empty: DPSGD is defined for gaussian noise only, not for laplace"):
        assert text in result.output
    assert not (tmp_path / "results").exists()


def test_list_shows_parameters_and_who_supplied_a_part():
    result = call("list", "accountants")
    assert "composition=exact (or linear)" in result.output
    assert "Gaussian releases of everything a client has." in result.output
    assert f"dpflbench {__version__}" in result.output
    assert refusal("list", "mechanism") == "list mechanism: unknown; did you mean 'mechanisms'?"


def test_a_plugin_can_be_left_out_by_name(tmp_path, tiny):
    assert "WeiAvg" not in call("list", "algorithms", "--without", "weiavg").output
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny))
    assert "unknown algorithm 'WeiAvg'" in refusal("run", path, "--without", "weiavg", "--out", tmp_path / "r")
    assert refusal("list", "--without", "weiavgg") == "--without weiavgg: no such plugin; did you mean 'weiavg'?"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cuda:7"], "--device cuda:7: not available here"),
        (["--data", "/nowhere/at/all"], "is not a folder"),
        (["--set", "federation.cohort=99"], "federation.cohort: 99 of 8 clients; allowed: 1 to 8"),
    ],
)
def test_a_mistake_is_answered_before_anything_is_written(tmp_path, tiny, arguments, message):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny))
    assert message in refusal("run", path, "--out", tmp_path / "r", *arguments)
    assert not (tmp_path / "r").exists()


def test_main_prints_one_line_a_problem_without_a_traceback_and_exits_2(tmp_path, tiny, capsys, monkeypatch):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny | {"algorithms": ["A", "B"]}))
    monkeypatch.setattr("sys.argv", ["dpflbench", "plan", str(path)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("dpflbench: ") and "unknown algorithm" in line for line in lines)


def test_another_suite_in_the_same_folder_is_refused_and_the_same_one_with_other_values_is_not(tmp_path, tiny):
    out, path = tmp_path / "r", tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(tiny))
    assert call("run", path, "-o", out).exit_code == 0
    before = (out / "suite.json").read_bytes()
    other = ("run", path, "-o", out, "--set", "name=other", "--set", "algorithms=[DPSGD]")
    assert refusal(*other) == f"{out}: holds the results of suite 'tiny'; give 'other' a folder of its own by --out"
    assert (out / "suite.json").read_bytes() == before
    assert call("run", path, "-o", out, "--set", "seeds=2", "--set", "federation.rounds=4").exit_code == 0
    assert len(list((out / "records").glob("*.json"))) == 9  # three before, three algorithms by two seeds now
    (out / "suite.json").write_text("damaged")
    assert call(*other).exit_code == 0


def test_records_that_a_change_made_stale_are_named_before_they_are_done_again(tmp_path, tiny, blobs):
    tiny["task"]["dataset"]["path"] = "own.npz"
    (tmp_path / "own.npz").write_bytes(blobs.read_bytes())
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(tiny))
    first = call("run", path, "-o", tmp_path / "r")
    assert first.exit_code == 0, first.output
    assert "stale" not in first.output
    with np.load(blobs) as arrays:
        np.savez(tmp_path / "own.npz", **{name: arrays[name][:-1] for name in arrays})
    lines = call("run", path, "-o", tmp_path / "r").output.splitlines()
    head = "stale, done again: FedSGD, seed 0; DPSGD, seed 0; WeiAvg, seed 0: the data changed (digest was "
    assert lines[0].startswith(head)
    assert lines[1].startswith("[1/3] ")
    assert not any(line.startswith("stale") for line in lines[1:])


def test_every_built_in_part_has_a_description_of_its_own_and_allowed_values_are_listed(catalogue):
    own = [part for parts in catalogue.parts.values() for part in parts.values() if part.distribution == "dpflbench"]
    bare = [part.name for part in own if len(description(part.factory).split()) < 2]
    assert bare == []
    shown = " ".join(call("list").output.split())
    for text in (
        "variant=byclass (or bymerge, balanced, letters, digits, mnist)",
        "loss_bound=null (or a number)",
        "path (a text)",
        "values (a list)",
        "272,474 trainable on 3×32×32",
        "algorithms: which selector, aggregator, transform and local rule make one row of a table",
    ):
        assert text in shown


def test_a_list_keeps_within_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, call("list").output.splitlines())) <= 80
