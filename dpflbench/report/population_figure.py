"""What a federation looks like before anything is trained: sizes, label mix and budgets as one picture and one CSV.

For the person who runs the simulation: label counts are not noised, so nothing of this enters a record.
"""

import csv
from pathlib import Path

import numpy as np

from dpflbench.interfaces import Floats, Ints
from dpflbench.report.charts.chart import Chart, Heat, Panel, Plane, Series
from dpflbench.report.charts.files import Format, write_figure
from dpflbench.report.charts.looks import PALETTE
from dpflbench.tasks.partition import quantile_classes
from dpflbench.tasks.task import Task

CLIENTS = "clients, largest first"
MAX_SEEN = 400  # strips of a picture; more clients share them


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
    chart = _chart(task.train.sizes, counts, epsilon, delta, bool(task.n_classes))
    write_figure(chart, {"clients": PALETTE[5]}, folder, ["png"], Format(across=1))
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


def _chart(sizes: Ints, counts: Ints, epsilon: Floats, delta: Floats, classification: bool) -> Chart:
    """Three panels over the clients, largest first: sizes, label shares, epsilon."""
    order = np.argsort(-sizes, kind="stable")
    shares = (counts / np.maximum(counts.sum(1, keepdims=True), 1))[order]  # [N, C]
    seen = np.array([part.mean(axis=0) for part in np.array_split(shares, min(len(shares), MAX_SEEN))]).T
    label = "label" if classification else "tenth of the labels"
    spread = f"{sizes.min()} to {sizes.max()}, median {np.median(sizes):g}"
    panels: list[Panel] = [
        _points(
            f"{len(sizes)} clients, {sizes.sum():,} training examples: {spread}", "training examples", sizes[order]
        ),
        Heat(f"share of the client, darkest {seen.max():.2g}", CLIENTS, label, seen, len(sizes)),
    ]
    if np.isfinite(epsilon).all():
        budgets = f"epsilon {epsilon.min():.3g} to {epsilon.max():.3g}"
        budgets += f", delta {delta.min():.2g} to {delta.max():.2g}" if delta.max() > 0 else ""
        panels.append(_points(budgets, "epsilon", epsilon[order], log=True))
    return Chart(key="population", title="Population", caption="", panels=tuple(panels), legend=False)


def _points(title: str, label: str, values: Ints | Floats, log: bool = False) -> Plane:
    x, y = np.arange(len(values), dtype=np.float64), np.asarray(values, dtype=np.float64)
    cloud = Series(name="clients", x=x, y=y, line=False, markers=True)
    return Plane(title=title, x_label=CLIENTS, y_label=label, series=(cloud,), y_log=log)
