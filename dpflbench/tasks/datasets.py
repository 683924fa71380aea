"""From a data set to a task: test split, features, partition, held-out shards; everything drawn from the stream
`split`.

`split: official` keeps the data set's own test part; `split: paper` pools everything and draws the test part at random,
as the paper does; `split: validation` never looks at the test part, and held-out examples of all clients stand in for
it. What does not depend on the seed is cached.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Dataset, Examples, Features, Ints, Partition
from dpflbench.randomness import Streams
from dpflbench.tasks.cache import Tensors, cached, source
from dpflbench.tasks.cifar10 import Cifar10
from dpflbench.tasks.features import as_float
from dpflbench.tasks.femnist import Femnist
from dpflbench.tasks.huggingface import HuggingFace
from dpflbench.tasks.idx_images import Emnist, FashionMnist
from dpflbench.tasks.lending import LendingClub
from dpflbench.tasks.mnist import Mnist
from dpflbench.tasks.npz import Npz
from dpflbench.tasks.partition import NOBODY, checked_owners, quantile_classes
from dpflbench.tasks.task import Shards, Task

Split = Literal["official", "paper", "validation"]
DATASETS: Factories = {
    "mnist": Mnist,
    "fashion_mnist": FashionMnist,
    "emnist": Emnist,
    "femnist": Femnist,
    "cifar10": Cifar10,
    "lending_club": LendingClub,
    "npz": Npz,
    "huggingface": HuggingFace,
}

# Decisions inside the stream `split`, each with its own draws: a change to one leaves the others as they were.
TEST, LIMIT, OWNERS, HELD_OUT = range(4)


def located(dataset: Dataset, suite: Path | None, root: Path | None) -> Dataset:
    """The data set, with a file of its own looked for beside the suite that names it."""
    beside = getattr(dataset, "beside", None)
    return beside(suite, root) if suite is not None and beside is not None else dataset


def load_task(
    dataset: Dataset,
    features: Features | None,
    partition: Partition,
    n_clients: int,
    holdout: float,
    split: Split,
    streams: Streams,
    root: Path | None,
    device: torch.device | str = "cpu",
    limit: int | None = None,
) -> Task:
    """A data set dealt out to n_clients clients, on the device; images stay bytes until a batch is used.

    `limit` keeps that many examples drawn at random: of everything under `split: paper`, of the training part
    otherwise. Each client keeps the share `holdout` of its examples for personal utility; they are not trained on and
    not counted in its size.
    """
    if not 0.0 <= holdout < 1.0:
        raise DpflbenchError(f"task.holdout: {holdout}; allowed: 0 ≤ holdout < 1")
    examples = _examples(dataset, features, split, streams, root, limit)
    y = examples.y_train.numpy()
    classes = y.astype(np.int64) if examples.n_classes else quantile_classes(y.astype(np.float64))
    groups = None if examples.groups is None else examples.groups.numpy()
    owner = partition.assign(classes, groups, n_clients, streams.numpy("split", OWNERS))
    owner = checked_owners(owner, len(classes), n_clients)
    train, held_out = _hold_out(owner, n_clients, holdout, streams.numpy("split", HELD_OUT))
    holdout_shards = _shards(examples, owner, held_out, n_clients, device)
    validation = split == "validation"
    if validation and not len(held_out):
        raise DpflbenchError(f"task.holdout: {holdout} of each client is no example; allowed: more, to validate on")
    task = Task(
        train=_shards(examples, owner, train, n_clients, device),
        holdout=holdout_shards,
        test_x=holdout_shards.x if validation else examples.x_test.to(device),
        test_y=holdout_shards.y if validation else examples.y_test.to(device),
        n_classes=examples.n_classes,
        references=dict(examples.references),
    )
    found = class_references(task) if examples.n_classes else regression_references(task)
    return replace(task, references={**task.references, **found})


def class_references(task: Task) -> dict[str, float]:
    """Test accuracy in % of the class that is most frequent in training."""
    most = torch.bincount(task.train.y.long(), minlength=task.n_classes).argmax()
    return {"predict_the_majority": float((task.test_y == most).double().mean()) * 100}


def regression_references(task: Task) -> dict[str, float]:
    """Test MSE of the training mean and of pooled least squares: what to beat, and what no linear model beats by
    much.
    """
    x, y = as_float(task.train.x).flatten(1).double().cpu(), task.train.y.double().cpu()
    test_x, test_y = as_float(task.test_x).flatten(1).double().cpu(), task.test_y.double().cpu()
    design = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1)
    solution = torch.linalg.lstsq(design, y[:, None], driver="gelsd").solution[:, 0]
    predicted = test_x @ solution[:-1] + solution[-1]
    return {
        "predict_the_mean": float(((test_y - y.mean()) ** 2).mean()),
        "least_squares": float(((test_y - predicted) ** 2).mean()),
    }


def _examples(
    dataset: Dataset, features: Features | None, split: Split, streams: Streams, root: Path | None, limit: int | None
) -> Examples:
    """Training and test examples as the model will see them."""
    tested = split != "validation"
    if split != "paper" and limit is None:
        return _with_features_cached(dataset, features, root, tested)
    examples = _loaded(dataset, root, tested)
    if split == "paper":
        examples = _redrawn(examples, limit, getattr(dataset, "test_share", None), streams)
    elif limit is not None:
        kept = _drawn(len(examples.y_train), limit, streams.numpy("split", LIMIT))
        examples = _train_subset(examples, kept)
    return _with_features(examples, features)


def _loaded(dataset: Dataset, root: Path | None, tested: bool) -> Examples:
    """The examples of a data set; one that is not `tested` loses its test part here, before anybody sees it, and a
    training example stands in its place, for features that want one.
    """
    examples = dataset.load(root)
    if tested:
        return examples
    x, y = examples.x_train[:1], examples.y_train[:1]
    return replace(examples, x_test=x, y_test=y, references={}, test_groups=None)


def _with_features(examples: Examples, features: Features | None) -> Examples:
    """The examples with their features in place of what they were."""
    if features is None:
        return examples
    x_train, x_test = features.fit_apply(examples.x_train, examples.x_test)
    if (len(x_train), len(x_test)) != (len(examples.y_train), len(examples.y_test)):
        raise DpflbenchError(
            f"task.dataset.features: {len(x_train)} and {len(x_test)} rows of {len(examples.y_train)} training and "
            f"{len(examples.y_test)} test examples; allowed: a row an example"
        )
    return replace(examples, x_train=x_train, x_test=x_test)


def _with_features_cached(dataset: Dataset, features: Features | None, root: Path | None, tested: bool) -> Examples:
    """The same for the official split, where nothing depends on the seed: kept between runs, without the images."""
    # What does not show its parameters cannot be told from another of its class.
    hidden = any(type(part).__repr__ is object.__repr__ for part in (dataset, features))
    if features is None or not features.costly or hidden:
        return _with_features(_loaded(dataset, root, tested), features)

    def build() -> Tensors:
        examples = _with_features(_loaded(dataset, root, tested), features)
        tensors = {
            "x_train": examples.x_train,
            "y_train": examples.y_train,
            "x_test": examples.x_test,
            "y_test": examples.y_test,
            "n_classes": torch.tensor(examples.n_classes),
        }
        return tensors if examples.groups is None else {**tensors, "groups": examples.groups}

    key = {
        "digest": dataset.digest(root),
        "dataset": f"{dataset!r} {source(dataset)}",
        "features": f"{features!r} {source(features)}",
        "test part": str(tested),
    }
    tensors = cached(f"{type(dataset).__name__.lower()}-features", key, build)
    return Examples(
        tensors["x_train"],
        tensors["y_train"],
        tensors["x_test"],
        tensors["y_test"],
        n_classes=int(tensors["n_classes"]),
        groups=tensors.get("groups"),
    )


def _redrawn(examples: Examples, limit: int | None, test_share: float | None, streams: Streams) -> Examples:
    """The paper's split: everything pooled, `limit` examples kept, a random share of them for testing."""
    total = len(examples.y_train) + len(examples.y_test)
    kept = np.arange(total) if limit is None else _drawn(total, limit, streams.numpy("split", LIMIT))
    share = len(examples.y_test) / total if test_share is None else test_share
    n_test = int(np.floor(len(kept) * share + 1e-9))
    if not 0 < n_test < len(kept):
        raise DpflbenchError(f"task.limit: {len(kept)} examples leave {n_test} for testing; allowed: more examples")
    order = streams.numpy("split", TEST).permutation(kept)
    test, train = torch.from_numpy(np.sort(order[:n_test])), torch.from_numpy(np.sort(order[n_test:]))
    x, y = torch.cat([examples.x_train, examples.x_test]), torch.cat([examples.y_train, examples.y_test])
    groups = None
    if examples.groups is not None and examples.test_groups is not None:
        groups = torch.cat([examples.groups, examples.test_groups])[train]
    return replace(
        examples, x_train=x[train], y_train=y[train], x_test=x[test], y_test=y[test], groups=groups, test_groups=None
    )


def _drawn(total: int, limit: int, rng: np.random.Generator) -> Ints:
    """`limit` of `total` positions without replacement, in order."""
    if not 0 < limit <= total:
        raise DpflbenchError(f"task.limit: {limit}; allowed: 1 to {total}, the examples there are")
    return np.sort(rng.permutation(total)[:limit]).astype(np.int64)


def _train_subset(examples: Examples, kept: Ints) -> Examples:
    """The examples with some of the training part only."""
    rows = torch.from_numpy(kept)
    groups = None if examples.groups is None else examples.groups[rows]
    return replace(examples, x_train=examples.x_train[rows], y_train=examples.y_train[rows], groups=groups)


def _hold_out(owner: Ints, n_clients: int, holdout: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Positions trained on and positions held out, each sorted by client: the share `holdout` of every client, rounded
    down.
    """
    shuffled = rng.permutation(len(owner))
    shuffled = shuffled[owner[shuffled] != NOBODY]
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]  # by client, random within
    sizes = np.bincount(owner[order], minlength=n_clients)
    if sizes.min() < 1:
        raise DpflbenchError(
            f"task.partition: client {int(sizes.argmin())} has no examples; allowed: at least one a client"
        )
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    held = rank < np.floor(holdout * sizes + 1e-9)[owner[order]]
    return order[~held], order[held]


def _shards(examples: Examples, owner: Ints, positions: Ints, n_clients: int, device: torch.device | str) -> Shards:
    """The examples at positions that are already sorted by client."""
    rows = torch.from_numpy(positions)
    sizes = np.bincount(owner[positions], minlength=n_clients)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Shards(examples.x_train[rows].to(device), examples.y_train[rows].to(device), offsets)
