"""TensorBoard, MLflow and Weights & Biases: each writes what a `TrackedRun` says, and nothing else it could find out.

A library is imported when a run asks for it, never before (extras `tensorboard`, `mlflow`, `wandb`).
"""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import TrackedRun


def _needs(library: str, extra: str) -> None:
    if find_spec(library) is None:
        raise DpflbenchError(f"--track {extra}: needs {library}; pip install 'dpflbench[{extra}]'")


def _folder(run: TrackedRun) -> str:
    """A name for its files."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', run.title).strip('-')[:100]}-{run.key}"


@dataclass(frozen=True, slots=True)
class TensorBoard:
    """Event files for TensorBoard, a folder a run below `to`."""

    to: str = "tensorboard"

    def ready(self) -> None:
        """TensorBoard is there."""
        _needs("tensorboard", "tensorboard")

    def track(self, run: TrackedRun) -> None:
        """Write its curve, its settings and its final values."""
        folder = Path(self.to) / run.suite / _folder(run)
        if folder.exists():
            return
        from torch.utils.tensorboard import SummaryWriter

        rounds, last = run.curve.get("round", ()), max(map(int, run.curve.get("round", ())), default=0)
        final = {f"final/{name}": value for name, value in run.final.items()}
        with SummaryWriter(str(folder)) as writer:
            for name, values in run.curve.items():
                for step, value in zip(rounds, values, strict=True):
                    if name != "round":
                        writer.add_scalar(f"curve/{name}", value, int(step))
            for name, value in final.items():
                writer.add_scalar(name, value, last)
            writer.add_hparams({**run.config, "status": run.status}, {"hparam/last_round": last}, run_name=".")


@dataclass(frozen=True, slots=True)
class MLflow:
    """A run of MLflow each; `to` is a tracking URI: a file of SQLite, or a server. The experiment is the suite."""

    to: str = "sqlite:///mlflow.db"

    def ready(self) -> None:
        """MLflow is there."""
        _needs("mlflow", "mlflow")

    def track(self, run: TrackedRun) -> None:
        """Send its curve, its settings and its final values."""
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag

        client = MlflowClient(tracking_uri=self.to)
        known = client.get_experiment_by_name(run.suite)
        experiment = known.experiment_id if known else client.create_experiment(run.suite)
        if client.search_runs([experiment], f"tags.`dpflbench.key` = '{run.key}'", max_results=1):
            return
        tags = {"dpflbench.key": run.key, "dpflbench.status": run.status, "mlflow.runName": run.title}
        made = client.create_run(experiment, tags={"mlflow.user": "dpflbench"}).info.run_id
        rounds = [int(step) for step in run.curve.get("round", ())]
        curve = [
            Metric(name, float(value), 0, step)
            for name, values in run.curve.items()
            if name != "round"
            for step, value in zip(rounds, values, strict=True)
        ]
        last = max(rounds, default=0)
        metrics = [*curve, *(Metric(f"final_{name}", value, 0, last) for name, value in run.final.items())]
        settings = [Param(name, str(value)[:500]) for name, value in run.config.items()]
        for start in range(0, max(len(metrics), 1), 900):  # of one request: 1,000 metrics, 100 settings
            client.log_batch(made, metrics=metrics[start : start + 900])
        for start in range(0, len(settings), 90):
            client.log_batch(made, params=settings[start : start + 90])
        client.log_batch(made, tags=[RunTag(name, text) for name, text in tags.items()])  # last: it is whole now
        client.set_terminated(made, "FINISHED" if run.status == "done" else "FAILED")


@dataclass(frozen=True, slots=True)
class WandB:
    """A run of Weights & Biases each, in the project `to`; offline, below `wandb/`, unless $WANDB_MODE is online."""

    to: str = "dpflbench"

    def ready(self) -> None:
        """Weights & Biases is there."""
        _needs("wandb", "wandb")

    def track(self, run: TrackedRun) -> None:
        """Log its curve, its settings and its final values."""
        if any((Path(os.environ.get("WANDB_DIR", ".")) / "wandb").glob(f"*-{run.key}")):
            return
        import wandb

        quiet = wandb.Settings(
            silent=True,
            console="off",  # what a terminal shows is nobody's business
            disable_git=True,
            disable_code=True,
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
        )
        mode = "online" if os.environ.get("WANDB_MODE") == "online" else "offline"
        with wandb.init(
            project=self.to,
            group=run.suite,
            id=run.key,
            name=run.title,
            config={**run.config, "status": run.status},
            mode=mode,
            settings=quiet,
            reinit="create_new",
        ) as opened:
            names = [name for name in run.curve if name != "round"]
            for row, step in enumerate(run.curve.get("round", ())):
                opened.log({name: float(run.curve[name][row]) for name in names}, step=int(step))
            opened.summary.update({f"final/{name}": value for name, value in run.final.items()})


@hookimpl
def dpflbench_trackers() -> Factories:
    """Three that many people have."""
    return {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}
