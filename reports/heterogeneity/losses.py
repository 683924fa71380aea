"""What losses do to DPFL-BCS: `python losses.py RESULTS` of the run that README.md names.

Reads records and labels, trains nothing. A class is reached by the weight its examples had in all steps, relative
to its share of the training examples.
"""

import sys
from pathlib import Path

import numpy as np
import typer
from scipy.stats import spearmanr

from dpflbench.catalogue import load
from dpflbench.execution.attempt import assembly_of
from dpflbench.execution.prepare import Place, task_of
from dpflbench.interfaces import Floats
from dpflbench.planning import Run
from dpflbench.results.record import Record
from dpflbench.results.store import Store

WITH, WITHOUT = "DPFL-BCS", "without losses"


def labels_of(record: Record) -> Floats:
    """Training examples of each client by class [N, C]."""
    run = Run(record.id, record.config, record.plugins, record.facts["data_digest"])
    train = task_of(assembly_of(run, load()), Place()).train
    y, ends = train.y.numpy(), zip(train.offsets[:-1], train.offsets[1:], strict=True)
    return np.stack([np.bincount(y[a:b], minlength=int(record.facts["n_classes"])) for a, b in ends]).astype(float)


def reached(record: Record, labels: Floats) -> Floats:
    """Weight of each class in the steps over its share of the examples [C]; 1: as in the data."""
    share = (record.clients["weight"][:, None] * labels / labels.sum(1, keepdims=True)).sum(0)
    return np.asarray(share / share.sum() / (labels.sum(0) / labels.sum()))


def main(folder: Path) -> None:
    """Print classes reached, participations by estimated heterogeneity, and what goes with the loss."""
    results = Store(folder).results()
    found: dict[str, dict[int, Record]] = {}
    for cell in results.manifest.cells:
        found.setdefault(cell.algorithm, {})[cell.seed] = results.records[cell.run or ""]
    labels = {seed: labels_of(record) for seed, record in found[WITH].items()}
    worst: dict[str, list[float]] = {}
    for name, records in found.items():
        each = [reached(record, labels[seed]) for seed, record in records.items()]
        worst[name] = [float(r.min()) for r in each]
        utility = np.mean([r.final["utility_global"] for r in records.values()])
        classes = ", ".join(f"{value:.2f}" for value in np.mean(each, axis=0))
        least = f"least reached class {np.mean(worst[name]):.2f} of its share"
        typer.echo(f"{name:20} utility {utility:.2f}, {least}, all classes {classes}")
    guessed = np.concatenate([r.notes[-1]["heterogeneity"] for r in found[WITH].values()])
    top = guessed >= np.quantile(guessed, 0.9)
    for name in (WITH, WITHOUT):
        uses = np.concatenate([r.clients["uses"] for r in found[name].values()])
        typer.echo(
            f"{name:20} {100 * uses[top].sum() / uses.sum():.1f} % of participations by the tenth it thinks oddest"
        )
    lost = [found[WITH][s].final["utility_global"] - found[WITHOUT][s].final["utility_global"] for s in labels]
    less = np.subtract(worst[WITH], worst[WITHOUT])
    rank, p = spearmanr(less, lost)
    losing = f"{sum(v < 0 for v in lost)} of {len(lost)} seeds lose"
    typer.echo(f"{losing}; rank correlation with the least reached class {rank:.2f} (p = {p:.1g})")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
