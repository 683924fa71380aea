"""Draws figure.png and figure.svg: accuracy on MNIST against the norm of the noise in the mean of a round, as curves,
with readings of the paper as points and its printed figures as lines; from the cells.csv in the folders beside this.
"""

import ast
import csv
import math
from collections import defaultdict
from pathlib import Path
from statistics import mean

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DIM = 4266  # coordinates of what the server gets
LOCAL = {"0.0": "no momentum", "0.9": "momentum 0.9, kept by clients", "epoch": "an epoch of batches of 32"}
COLOURS = {"0.0": "#555555", "0.9": "#0072b2", "epoch": "#009e73"}
MARKS = {
    "PRIVATEFL": "o",
    "PRIVATEFL split linearly": "^",
    "PRIVATEFL over all rounds": "s",
    "PRIVATEFL at the smallest epsilon": "v",
    "PRIVATEFL-BCS": "D",
}
PANELS = {  # printed PRIVATEFL and PRIVATEFL-BCS; which readings are points, on which curve
    "Gaussian noise": (22.95, 91.84, {"exact accounting": "0.0", "half sensitivity": "0.0", "kept momentum": "0.9"}),
    "Laplace noise, L2 clip": (
        12.91,
        81.25,
        {"L2 clip under Laplace": "0.0", "kept momentum, L2 clip under Laplace": "0.9"},
    ),
}


def readings() -> dict[tuple[str, str], list[float]]:
    """Mean norm of the noise and accuracy by case and row."""
    found = defaultdict(list)
    for folder in ("baselines", "readings", "combined"):
        for row in cells(folder):
            case = row.get("case") or {"gaussian": "exact accounting"}.get(row["privacy.mechanism"], "")
            found[case, row["algorithm"]].append(point(row))
    return {key: [mean(axis) for axis in zip(*points, strict=True)] for key, points in found.items()}


def curves() -> dict[str, list[tuple[float, float]]]:
    """Norm and accuracy along each curve."""
    found = defaultdict(list)
    for row in cells("noise_curve"):
        local = ast.literal_eval(row["federation.local"])
        found["epoch" if local["kind"] == "epoch" else str(local["beta"])].append(point(row))
    return {name: sorted(points) for name, points in found.items()}


def cells(folder: str) -> list[dict[str, str]]:
    """The rows of a folder's table that were run."""
    with (HERE / folder / "cells.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["status"] == "done"]


def point(row: dict[str, str]) -> tuple[float, float]:
    """The norm of the noise in the mean of a round, and the accuracy."""
    return math.sqrt(DIM * float(row["noise_variance"])), float(row["utility_global"])


def draw() -> None:
    """The figure, a panel a mechanism."""
    known, along = readings(), curves()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True)
    for axis, (title, (low, high, cases)) in zip(axes, PANELS.items(), strict=True):
        for name, points in along.items():
            axis.plot(*zip(*points, strict=True), color=COLOURS[name], lw=1.5, label=LOCAL[name])
        for value, who in ((low, "PRIVATEFL"), (high, "PRIVATEFL-BCS")):
            axis.axhline(value, color="#d55e00", lw=1, ls="--")
            axis.annotate(f"printed: {who} {value}", (1.05, value + 1.2), color="#d55e00", fontsize=8)
        for case, curve in cases.items():
            for row, mark in MARKS.items():
                if (case, row) in known:
                    hollow = case in ("half sensitivity",)
                    axis.plot(
                        *known[case, row],
                        mark,
                        color=COLOURS[curve],
                        mfc="white" if hollow else None,
                        mec="black" if not hollow else None,
                        ms=8,
                        label="_",
                    )
        axis.set(
            title=title, xscale="log", xlim=(1, 3000), ylim=(0, 100), xlabel="norm of the noise in the mean of a round"
        )
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy (%), MNIST")
    marks = [plt.Line2D([], [], ls="", marker=m, color="#888888", mec="black", label=name) for name, m in MARKS.items()]
    half = plt.Line2D([], [], ls="", marker="o", mfc="white", color="#555555", label="hollow: half sensitivity")
    lines = axes[0].get_legend_handles_labels()[0]
    figure.legend(handles=[*lines, *marks, half], loc="lower center", ncols=3, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.17, 1, 1))
    for ending in ("png", "svg"):
        figure.savefig(HERE / f"figure.{ending}", dpi=140)


if __name__ == "__main__":
    draw()
