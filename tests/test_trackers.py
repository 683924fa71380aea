"""Trackers: told what a report prints of a run and nothing else; real libraries where they are installed."""

import ast
import dataclasses
import json
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import dpflbench as db
from dpflbench.api.tracking import tracked_run, trackers
from dpflbench.cli import app
from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import TrackedRun, Tracker
from dpflbench.testing import check_tracker
from dpflbench.testing.rules import ConformanceError
from dpflbench_algorithms.trackers import MLflow, TensorBoard, WandB

REPO = Path(__file__).parent.parent
KEY = "00112233445566778899aabbccddeeff"


class Listener:
    """Remembers what it was told."""

    def __init__(self, broken=False):
        self.runs, self.broken = [], broken

    def ready(self):
        """Always."""

    def track(self, run):
        """Keep it."""
        self.runs.append(run)
        if self.broken:
            raise ConnectionError("no network\nat all")


@pytest.fixture(scope="module")
def done(blobs, tmp_path_factory):
    """A folder of runs with a pinned key, data by an absolute path, and who was told of them."""
    body = {
        "name": "told",
        "task": {"dataset": {"name": "npz", "path": str(blobs)}, "model": "softmax", "partition": "iid"},
        "federation": {"clients": 8, "cohort": 4, "rounds": 4, "lr": {"initial": 0.5}},
        "privacy": {"mechanism": "gaussian", "clip": 1.0, "epsilon": 2.0, "delta": 1e-5, "noise_key": KEY},
        "evaluate": {"every": 2},
        "seeds": 1,
        "algorithms": ["FedSGD", "DPSGD"],
    }
    folder, listener = tmp_path_factory.mktemp("told"), Listener()
    results = db.run(body, folder, track=[listener], isolated=False, progress=False)
    return body, folder, listener, results


def test_every_run_is_told_with_its_curve_and_its_final_values(done):
    *_, listener, results = done
    assert [run.algorithm for run in listener.runs] == ["FedSGD", "DPSGD"]
    run = listener.runs[1]
    record = next(r for r in results.records.values() if r.algorithm == "DPSGD")
    assert run.curve["round"] == [0.0, 2.0, 4.0]
    assert run.curve["utility_global"] == pytest.approx(record.rounds["utility_global"])
    assert run.final["utility_global"] == record.final["utility_global"]
    assert run.final["epsilon_max"] == 2.0
    assert 1.9 < run.final["epsilon_spent_max"] <= 2.0
    assert run.config["federation.rounds"] == 4
    assert (run.suite, run.status, run.seed) == ("told", "done", 0)


def test_nothing_is_told_of_keys_clients_messages_or_this_machine(done, blobs):
    *_, listener, results = done
    for run in listener.runs:
        text = json.dumps(dataclasses.asdict(run))
        assert KEY not in text
        assert str(blobs.parent) not in text
        assert run.config["task.dataset.path"] == "blobs.npz"
    for record in results.records.values():
        run = tracked_run(record, "told", "x")
        told = {str(value) for values in run.curve.values() for value in values} | set(map(str, run.final.values()))
        secret = {str(v) for name in ("scale", "cost") for v in record.events.get(name, np.zeros(0))}
        assert not told & (secret - {"0.0", "1.0", "2.0"})
        assert record.facts["data_digest"] not in json.dumps(dataclasses.asdict(run))


def test_what_was_there_already_is_told_again_under_the_same_key_and_what_fails_costs_no_run(done, capsys):
    body, folder, listener, _ = done
    again, broken = Listener(), Listener(broken=True)
    results = db.run(body, folder, track=[broken, again], isolated=False)
    assert [run.key for run in again.runs] == [run.key for run in listener.runs]
    assert len({run.key for run in again.runs}) == 2
    assert "is not sent (ConnectionError: no network)" in capsys.readouterr().out
    assert all(record.status == "done" for record in results.records.values())


def test_runs_that_explain_others_are_not_told(done):
    *_, results = done
    record = next(iter(results.records.values()))
    other = dataclasses.replace(record, config={**record.config, "counterfactual": {"without": "noise"}})
    from dpflbench.api.tracking import Telling

    class Silent:
        def finished(self, *args):
            """Nothing."""

    listener = Listener()
    Telling(Silent(), "told", [listener]).finished(None, other, "x", False)
    Telling(Silent(), "told", [listener]).finished(None, record, "x", False)
    assert len(listener.runs) == 1


def test_an_unknown_tracker_and_a_missing_library_are_one_line_before_anything_runs(tmp_path, monkeypatch, catalogue):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["run", "smoke", "--track", "tensorbord:x"])
    assert str(refused.exception) == "--track tensorbord: unknown; did you mean 'tensorboard'?"
    monkeypatch.setattr("dpflbench_algorithms.trackers.find_spec", lambda name: None)
    refused = CliRunner().invoke(app, ["run", "smoke", "--track", "mlflow"])
    assert str(refused.exception) == "--track mlflow: needs mlflow; pip install 'dpflbench[mlflow]'"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DpflbenchError, match="expected NAME, NAME:WHERE or a tracker"):
        trackers([3], catalogue)


def test_where_goes_to_the_tracker(catalogue, monkeypatch):
    monkeypatch.setattr("dpflbench_algorithms.trackers.find_spec", lambda name: name)
    made = trackers(["tensorboard:runs/a:b", "wandb", "mlflow:sqlite:///x.db"], catalogue)
    assert made == [TensorBoard("runs/a:b"), WandB("dpflbench"), MLflow("sqlite:///x.db")]
    assert all(isinstance(tracker, Tracker) for tracker in made)


def test_a_run_that_asks_for_none_imports_none():
    """Only inside functions, in the whole package."""
    at_import = set()
    for package in ("dpflbench", "plugins"):
        for file in (REPO / package).rglob("*.py"):
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                    at_import |= {name.split(".")[0] for name in names} | set(names)
    assert at_import & {"tensorboard", "mlflow", "wandb", "datasets", "torch.utils.tensorboard"} == set()
    assert "torch" in at_import


def test_a_tracker_that_keeps_something_or_has_no_ready_is_refused():
    with pytest.raises(ConformanceError):
        check_tracker(Listener)
    check_tracker(WandB)


RUN = TrackedRun(
    suite="a suite",
    key="0123456789abcdef",
    title="DPSGD (gaussian), seed 0",
    algorithm="DPSGD",
    seed=0,
    status="done",
    config={"federation.rounds": 4, "task.model.name": "softmax", "privacy.clip": 1.0, "flag": True},
    curve={"round": [0.0, 2.0, 4.0], "utility_global": [10.0, 50.0, 70.5], "loss": [2.3, 1.0, 0.7]},
    final={"utility_global": 70.5, "epsilon_spent_max": 1.99},
)


def wanted(library):
    return pytest.mark.skipif(find_spec(library) is None, reason=f"needs the extra for {library}")


@wanted("tensorboard")
def test_tensorboard_reads_back_what_was_written(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = TensorBoard(str(tmp_path))
    tracker.track(RUN)
    (folder,) = (tmp_path / "a suite").iterdir()
    written = sorted(folder.iterdir())
    tracker.track(RUN)
    assert sorted(folder.iterdir()) == written
    read = EventAccumulator(str(folder)).Reload()
    curve = [(event.step, round(event.value, 3)) for event in read.Scalars("curve/utility_global")]
    assert curve == [(0, 10.0), (2, 50.0), (4, 70.5)]
    assert read.Scalars("final/epsilon_spent_max")[0].value == pytest.approx(1.99)
    assert "_hparams_/session_start_info" in read.summary_metadata


@pytest.mark.skipif(find_spec("mlflow") is None or find_spec("sqlalchemy") is None, reason="needs the extra mlflow")
def test_mlflow_reads_back_what_was_sent(tmp_path):
    from mlflow import MlflowClient

    tracker = MLflow(f"sqlite:///{tmp_path}/mlflow.db")
    tracker.track(RUN)
    tracker.track(RUN)
    client = MlflowClient(tracking_uri=tracker.to)
    experiment = client.get_experiment_by_name("a suite")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlflow.runName"] == RUN.title
    assert run.data.params == {
        "federation.rounds": "4",
        "task.model.name": "softmax",
        "privacy.clip": "1.0",
        "flag": "True",
    }
    history = client.get_metric_history(run.info.run_id, "utility_global")
    assert sorted((m.step, m.value) for m in history) == [(0, 10.0), (2, 50.0), (4, 70.5)]
    assert run.data.metrics["final_epsilon_spent_max"] == 1.99


@wanted("wandb")
def test_wandb_writes_offline_what_it_was_told_and_nothing_of_the_machine(tmp_path, monkeypatch):
    import getpass
    import platform

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    tracker = WandB("a-project")
    tracker.track(RUN)
    tracker.track(RUN)
    (folder,) = [f for f in (tmp_path / "wandb").iterdir() if f.is_dir() and not f.is_symlink()]
    assert folder.name.startswith("offline-run-")
    (written,) = folder.glob("*.wandb")
    deadline = time.monotonic() + 20  # its service is a process of its own, which flushes in its own time
    while b"utility_global" not in (content := written.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert b"utility_global" in content
    assert b"70.5" in content
    assert b"federation.rounds" in content
    assert str(Path.home()).encode() not in content.replace(str(tmp_path).encode(), b"")
    if len(platform.node()) > 4:
        assert platform.node().encode() not in content
    assert f"{getpass.getuser()}@".encode() not in content
