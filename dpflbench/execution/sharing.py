"""One copy of a task for all workers of a machine: the first to need it writes it to a file, all map that file into
memory.

The files belong to one `dpflbench run` and go with it. The newest few are kept: runs that share a task follow each
other.
"""

import contextlib
import hashlib
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dpflbench.results.locks import FOREVER, Lock
from dpflbench.tasks.task import Shards, Task

KEPT = 3
log = logging.getLogger(__name__)


def shared_task(folder: Path, key: str, build: Callable[[], Task]) -> Task:
    """The task of that key, mapped from its file; built here if nobody has yet, and kept for this process alone if need
    be.
    """
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.pt"
    lock = Lock(path.with_suffix(".lock"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(FOREVER)
    except OSError as e:
        return _alone(folder, e, build())
    try:
        if not path.exists():
            task = build()
            try:
                _write(path, task)
            except (OSError, RuntimeError) as e:  # torch reports a full disk as RuntimeError
                return _alone(folder, e, task)
        try:
            return from_parts(torch.load(path, weights_only=True, mmap=True))
        except OSError as e:  # somebody has tidied up
            return _alone(folder, e, build())
    finally:
        lock.release()


def _alone(folder: Path, error: Exception, task: Task) -> Task:
    log.warning("%s: tasks cannot be shared there (%s); every worker keeps its own copy", folder, error)
    return task


def _write(path: Path, task: Task) -> None:
    """Put a task in place in one step, and forget all but the newest; whoever has one mapped keeps it."""
    temporary = path.with_suffix(".tmp")
    try:
        torch.save(to_parts(task), temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    for old in sorted(path.parent.glob("*.pt"), key=lambda p: p.stat().st_mtime)[:-KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()


def to_parts(task: Task) -> dict[str, Any]:
    """A task as tensors and plain numbers."""
    return {
        "train_x": task.train.x,
        "train_y": task.train.y,
        "train_offsets": torch.as_tensor(task.train.offsets),
        "holdout_x": task.holdout.x,
        "holdout_y": task.holdout.y,
        "holdout_offsets": torch.as_tensor(task.holdout.offsets),
        "test_x": task.test_x,
        "test_y": task.test_y,
        "n_classes": task.n_classes,
        "references": {k: float(v) for k, v in task.references.items()},
    }


def from_parts(parts: dict[str, Any], device: str = "cpu") -> Task:
    """The task again, without a copy on the host; arrays serve as well as tensors."""

    def tensor(name: str) -> torch.Tensor:
        with warnings.catch_warnings():
            # arrays mapped from elsewhere are read-only, which torch cannot express; nothing writes into a task
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
            return torch.as_tensor(parts[name])

    train, holdout = (
        Shards(tensor(f"{name}_x").to(device), tensor(f"{name}_y").to(device), tensor(f"{name}_offsets").numpy())
        for name in ("train", "holdout")
    )
    return Task(
        train,
        holdout,
        tensor("test_x").to(device),
        tensor("test_y").to(device),
        parts["n_classes"],
        parts["references"],
    )
