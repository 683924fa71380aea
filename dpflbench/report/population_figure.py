"""What a federation looks like before anything is trained: sizes, label mix and budgets as one picture and one CSV.

For the person who runs the simulation: label counts are not noised, so nothing of this enters a record.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from dpflbench.interfaces import Floats, Ints
from dpflbench.tasks.partition import quantile_classes
from dpflbench.tasks.task import Task


def write_population(task: Task, epsilon: Floats, delta: Floats, folder: Path) -> list[Path]:
    """Write population.png and population.csv into folder and return their paths; rows are clients, columns their label
    counts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    labels, counts = label_counts(task)
    table, picture = folder / "population.csv", folder / "population.png"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["client", "n_examples", "n_holdout", "epsilon", "delta", *labels])
        for client, (size, held_out) in enumerate(zip(task.train.sizes, task.holdout.sizes, strict=True)):
            writer.writerow(
                [client, size, held_out, repr(float(epsilon[client])), repr(float(delta[client])), *counts[client]]
            )
    _draw(task.train.sizes, counts, epsilon, delta, bool(task.n_classes), picture)
    return [picture, table]


def label_counts(task: Task) -> tuple[list[str], Ints]:
    """Column names and each client's training examples by label [N, C]; by tenths of the pooled labels for a
    regression.
    """
    y = task.train.y.cpu().numpy()
    classes = y.astype(np.int64) if task.n_classes else quantile_classes(y.astype(np.float64))
    n_classes = task.n_classes or int(classes.max(initial=0)) + 1
    n_clients = len(task.train.sizes)
    owner = np.repeat(np.arange(n_clients), task.train.sizes)
    counts = np.bincount(owner * n_classes + classes, minlength=n_clients * n_classes).reshape(n_clients, n_classes)
    names = [f"label_{c}" for c in range(n_classes)] if task.n_classes else [f"tenth_{c + 1}" for c in range(n_classes)]
    return names, counts


def _draw(sizes: Ints, counts: Ints, epsilon: Floats, delta: Floats, classification: bool, path: Path) -> None:
    """Three panels over the clients, largest first: sizes, label shares, epsilon."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    order = np.argsort(-sizes, kind="stable")
    place = np.arange(len(sizes))
    figure: Any = Figure(figsize=(9, 7.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=[2, 3, 2])
    top.bar(place, sizes[order], width=1.0, color="#4477aa")
    top.set_ylabel("training examples")
    spread = f"{sizes.min()} to {sizes.max()}, median {np.median(sizes):g}"
    top.set_title(f"{len(sizes)} clients, {sizes.sum():,} training examples: {spread}")
    shares = (counts / np.maximum(counts.sum(1, keepdims=True), 1))[order].T  # [C, N]
    image = middle.imshow(
        shares,
        aspect="auto",
        origin="lower",
        cmap="viridis",
        vmin=0.0,
        interpolation="nearest",
        extent=(-0.5, len(sizes) - 0.5, -0.5, len(shares) - 0.5),
    )
    middle.set_ylabel("label" if classification else "tenth of the labels")
    figure.colorbar(image, ax=middle, label="share of the client")
    if np.isfinite(epsilon).all():
        bottom.scatter(place, epsilon[order], s=9, color="#aa3377")
        bottom.set_yscale("log")
        budgets = f"epsilon {epsilon.min():.3g} to {epsilon.max():.3g}"
        bottom.set_title(budgets + (f", delta {delta.min():.2g} to {delta.max():.2g}" if delta.max() > 0 else ""))
    bottom.set_ylabel("epsilon")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    middle.yaxis.set_major_locator(MaxNLocator(integer=True))
    bottom.set_xlabel("clients, largest first")
    figure.savefig(path, format="png", metadata={"Software": None})
