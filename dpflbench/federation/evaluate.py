"""Utility: of the shared model on the common test set, with personal transforms, and client by client on held-out
shards.

Evaluation is the benchmark's own view, not a release: it looks at test data and held-out shards, which no client trains
on, and feeds nothing back into the federation.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.federation.gradients import Engine
from dpflbench.federation.redaction import discreet
from dpflbench.interfaces import Floats
from dpflbench.results.record import ACCURACY, MSE, Metric
from dpflbench.tasks.task import Task


def metric_of(task: Task) -> Metric:
    """Accuracy in per cent for classes, mean squared error for numbers."""
    return ACCURACY if task.n_classes else MSE


def scores(outputs: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """What each example adds to the mean utility [B]: 100 or 0 for a class, the squared error for a number."""
    if n_classes:
        return 100.0 * (outputs.argmax(1) == y).float()
    return (outputs.reshape(len(outputs)) - y).square()


@dataclass(frozen=True, slots=True)
class Point:
    """Utility and loss of the shared model on the test set."""

    utility: float
    loss: float


@discreet
def evaluate_global(engine: Engine, theta: Tensor, task: Task) -> Point:
    """The shared model with phi = identity on the common test set."""
    outputs = engine.predict(theta, None, task.test_x)
    utility = scores(outputs, task.test_y, task.n_classes).mean()
    loss = nn.functional.cross_entropy(outputs, task.test_y) if task.n_classes else utility
    both = torch.stack([utility, loss]).double().cpu()  # one transfer from the device
    return Point(float(both[0]), float(both[1]))


@discreet
def evaluate_mean_phi(engine: Engine, theta: Tensor, phi: Tensor, task: Task) -> float:
    """Mean over clients of the utility on the common test set with the client's own phi."""
    if not phi.shape[1]:
        return evaluate_global(engine, theta, task).utility
    total = theta.new_zeros(())
    for row in phi:
        outputs = engine.predict(theta, row.expand(len(task.test_x), -1), task.test_x)
        total += scores(outputs, task.test_y, task.n_classes).mean()
    return float(total) / len(phi)


@discreet
def evaluate_clients(
    engine: Engine, theta: Tensor, phi: Tensor, task: Task, models: Tensor | None = None
) -> tuple[Floats, Floats]:
    """Utility of each client on its own held-out shard [N]: with the shared model, and with its own phi and, where a
    local rule has them, its own model [N, D]; NaN without a shard.
    """
    shards = task.holdout
    owner = np.repeat(np.arange(len(shards.sizes)), shards.sizes)
    shared = _by_client(scores(engine.predict(theta, None, shards.x), shards.y, task.n_classes), owner, len(phi))
    if models is not None:
        spans = zip(models, phi, shards.offsets[:-1], shards.offsets[1:], strict=True)
        outputs = torch.cat([_own(engine, model, own, shards.x[a:b]) for model, own, a, b in spans if b > a])
        return shared, _by_client(scores(outputs, shards.y, task.n_classes), owner, len(phi))
    if not phi.shape[1]:
        return shared, shared.copy()
    rows = torch.as_tensor(owner, device=theta.device)
    outputs = torch.cat(
        [engine.predict(theta, phi[rows[i : i + 1000]], shards.x[i : i + 1000]) for i in range(0, len(owner), 1000)]
        or [engine.predict(theta, None, shards.x)]
    )
    return shared, _by_client(scores(outputs, shards.y, task.n_classes), owner, len(phi))


def _own(engine: Engine, model: Tensor, phi: Tensor, x: Tensor) -> Tensor:
    return engine.predict(model, phi.expand(len(x), -1) if len(phi) else None, x)


def _by_client(score: Tensor, owner: np.ndarray, n_clients: int) -> Floats:
    values = score.double().cpu().numpy()
    counts = np.bincount(owner, minlength=n_clients)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(owner, weights=values, minlength=n_clients) / counts, dtype=np.float64)


def pooled(values: Floats, counts: Floats) -> float:
    """The mean over all held-out examples: client values weighted by shard size."""
    seen = counts > 0
    return float(np.average(values[seen], weights=counts[seen])) if seen.any() else float("nan")
