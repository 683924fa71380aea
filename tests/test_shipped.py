"""The suites that come with the package: found by name, copied, and never in the way of a user's own files."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dpflbench import shipped
from dpflbench import suite_reading as suites
from dpflbench.cli import app
from dpflbench.errors import DpflbenchError
from dpflbench.planning import count_runs, plan_suite

REPO = Path(__file__).parent.parent
cli = CliRunner()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_suite_of_the_repository_has_a_name():
    files = {path.relative_to(REPO / "suites").as_posix() for path in (REPO / "suites").rglob("*.yaml")}
    assert {f"{name}.yaml" for name in shipped.names()} == files
    assert {"heterogeneity", "paper/mnist", "paper/quick/mnist"} <= set(shipped.names())


def test_no_two_suites_are_described_alike():
    told = [suites.load(Path(name)).description for name in shipped.names()]
    assert all(told)
    assert len(set(told)) == len(told)


def test_a_folder_inside_the_package_goes_first_as_in_a_wheel(tmp_path, monkeypatch):
    (tmp_path / "package" / "suites").mkdir(parents=True)
    monkeypatch.setattr(shipped, "PACKAGE", tmp_path / "package")
    assert shipped.home() == tmp_path / "package" / "suites"


@pytest.mark.parametrize("name", shipped.names())
def test_a_name_reads_as_its_file_and_so_does_a_copy_anywhere(name, tmp_path):
    by_path = suites.load(REPO / "suites" / f"{name}.yaml")
    by_name = suites.load(Path(name))
    (tmp_path / "copy.yaml").write_text(shipped.copy_of(name))
    copy = suites.load(tmp_path / "copy.yaml")
    for field in ("name", "base", "axes", "seeds", "entries", "report"):
        assert getattr(by_path, field) == getattr(by_name, field) == getattr(copy, field)


def test_a_file_wins_over_a_name_and_a_folder_does_not(tmp_path, tiny):
    (tmp_path / "smoke").mkdir()
    assert suites.load(Path("smoke")).name == "smoke"
    (tmp_path / "heterogeneity").write_text(yaml.safe_dump(tiny))
    assert suites.load(Path("heterogeneity")).name == "tiny"


def test_a_base_beside_a_suite_wins_over_one_of_that_name(tmp_path, tiny):
    (tmp_path / "mine.yaml").write_text("extends: smoke\nname: mine\nseeds: 2")
    assert [e.label for e in suites.load(Path("mine.yaml")).entries][:2] == ["FedSGD", "DPSGD"]
    (tmp_path / "smoke").write_text(yaml.safe_dump({**tiny, "algorithms": ["PFA"]}))
    assert [e.label for e in suites.load(Path("mine.yaml")).entries] == ["PFA"]


def test_paths_set_on_a_suite_of_a_name_start_at_the_current_folder(blobs, tmp_path, catalogue):
    (tmp_path / "mine.npz").write_bytes(blobs.read_bytes())
    suite = suites.load(Path("paper/quick/mnist"), ["task.dataset={name: npz, path: mine.npz}", "task.limit=null"])
    assert suite.base["task"]["dataset"]["path"] == "mine.npz"
    assert (suite.folder / "mine.npz").is_file()


@pytest.mark.parametrize("name", ["smoke", "smoke_local", "regression"])
def test_runs_are_counted_without_data_as_a_plan_counts_them(name, catalogue):
    suite = suites.load(Path(name))
    assert count_runs(suite, catalogue) == len(plan_suite(suite, catalogue, None).runs)


def test_a_copy_is_a_file_to_edit_and_never_overwrites_one(tmp_path):
    assert cli.invoke(app, ["suites", "copy", "paper/quick/mnist"]).exit_code == 0
    assert "extends: paper/mnist\n" in (tmp_path / "mnist.yaml").read_text()
    refused = cli.invoke(app, ["suites", "copy", "mnist.yaml", "mine.yaml"])
    assert str(refused.exception).startswith("suites copy mnist.yaml: no such suite; ")
    assert not (tmp_path / "mine.yaml").exists()
    refused = cli.invoke(app, ["suites", "copy", "paper/mnist"])
    assert isinstance(refused.exception, DpflbenchError)
    assert "mnist.yaml: is there already" in str(refused.exception)


def test_a_misspelt_path_below_suites_is_answered_with_a_name():
    refused = cli.invoke(app, ["run", "suites/smoke.yaml"])
    assert str(refused.exception) == (
        "suites/smoke.yaml: no such file; did you mean 'smoke', a suite that comes with dpflbench?"
    )
