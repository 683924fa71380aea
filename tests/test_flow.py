"""The whole path, as a user walks it: suite, plan, run, run again, report, verify; and what a mistake is answered
with.
"""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dpflbench import __version__, cli
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


def test_the_smoke_suite_has_every_built_in_algorithm(catalogue):
    built_in = {name for name, part in catalogue.parts["algorithms"].items() if part.distribution == "dpflbench"}
    assert built_in == set(yaml.safe_load(SMOKE.read_text())["algorithms"])


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


def test_plan_shows_uses_scales_cost_and_noise_against_the_clip_bound(tmp_path, tiny):
    tiny["axes"] = {"privacy.mechanism": ["gaussian", "laplace"]}
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny))
    result = call("plan", path)
    assert result.exit_code == 0, result.output
    for word in ("3/3/3", "noise / clip", "100.0", "4 runs for 6 cells", "empty: DPSGD (laplace)"):
        assert word in result.output
    assert not (tmp_path / "results").exists()


def test_list_shows_parameters_and_who_supplied_a_part():
    result = call("list", "accountants")
    assert "composition='exact'" in result.output
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
