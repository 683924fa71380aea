"""Draws figure.png and figure.svg: accuracy on MNIST against the norm of the noise in the mean of a round, as curves,
with readings of the paper as points and its printed figures as lines; from the cells.csv in the folders beside this.
"""

import ast
import csv
import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import vl_convert

HERE = Path(__file__).parent
DIM = 4266  # coordinates of what the server gets
LOCAL = {"0.0": "no momentum", "0.9": "momentum 0.9, kept by clients", "epoch": "an epoch of batches of 32"}
COLOURS = ["#555555", "#0072b2", "#009e73"]
ROWS = {
    "PRIVATEFL": "circle",
    "PRIVATEFL over all rounds": "square",
    "PRIVATEFL at the smallest epsilon": "triangle-down",
    "PRIVATEFL split linearly": "triangle-up",
    "PRIVATEFL-BCS": "diamond",
    "PRIVATEFL-BCS over all rounds": "cross",
}
PANELS: dict[str, tuple[float, float, dict[str, str]]] = {  # printed figures; which cases are points, on which curve
    "Gaussian noise": (22.95, 91.84, {"exact": "0.0", "kept momentum": "0.9", "epoch, split linearly": "epoch"}),
    "Laplace noise, L2 clip": (
        12.91,
        81.25,
        {
            "L2 clip under Laplace": "0.0",
            "kept momentum, L2 clip under Laplace": "0.9",
            "epoch, L2 clip under Laplace": "epoch",
        },
    ),
}


def cells(folder: str) -> list[dict[str, str]]:
    """The rows of a folder's table that were run."""
    with (HERE / folder / "cells.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["status"] == "done"]


def norm(row: dict[str, str]) -> float:
    """The norm of the noise in the mean of a round."""
    return math.sqrt(DIM * float(row["noise_variance"]))


def along(row: dict[str, str]) -> str:
    """The name of the curve a row of the noise curve belongs to."""
    local = ast.literal_eval(row["federation.local"])
    return LOCAL["epoch" if local["kind"] == "epoch" else str(float(local["beta"]))]


def readings() -> dict[tuple[str, str], dict[str, float]]:
    """Mean norm of the noise and mean accuracy by case and row."""
    found = defaultdict(list)
    for folder in ("baselines", "readings", "combined", "epoch"):  # the last word on a case has the most seeds
        rows = cells(folder)
        for row in rows:
            found.pop((row.get("case", "exact"), row["algorithm"]), None)
        for row in rows:
            found[row.get("case", "exact"), row["algorithm"]].append((norm(row), float(row["utility_global"])))
    return {key: {"x": mean(p[0] for p in points), "y": mean(p[1] for p in points)} for key, points in found.items()}


def panel(title: str) -> dict[str, Any]:
    """One mechanism: curves, points, printed lines."""
    low, high, cases = PANELS[title]
    known = readings()
    points = [
        {**known[case, row], "curve": LOCAL[curve], "row": row}
        for case, curve in cases.items()
        for row in ROWS
        if (case, row) in known
    ]
    lines = [{"x": max(1.0, norm(r)), "y": float(r["utility_global"]), "curve": along(r)} for r in cells("noise_curve")]
    printed = [  # said where no curve runs
        {"y": low, "at": 1, "text": f"printed: PRIVATEFL {low}"},
        {"y": high, "at": 180, "text": f"printed: PRIVATEFL-BCS {high}"},
    ]
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [1, 3000]},
        "title": "norm of the noise in the mean of a round",
    }
    y = {"field": "y", "type": "quantitative", "scale": {"domain": [0, 100]}, "title": "accuracy (%), MNIST"}
    colour = {
        "field": "curve",
        "scale": {"domain": [*LOCAL.values()], "range": COLOURS},
        "title": "what clients compute",
    }
    shape = {"field": "row", "scale": {"domain": [*ROWS], "range": [*ROWS.values()]}, "title": "reading"}
    words = {"type": "text", "align": "left", "dx": 4, "dy": -6, "color": "#d55e00", "fontSize": 10}
    return {
        "title": title,
        "width": 400,
        "height": 280,
        "layer": [
            {
                "data": {"values": printed},
                "mark": {"type": "rule", "color": "#d55e00", "strokeDash": [5, 4]},
                "encoding": {"y": y},
            },
            {
                "data": {"values": printed},
                "mark": words,
                "encoding": {"y": y, "x": {**x, "field": "at"}, "text": {"field": "text"}},
            },
            {
                "data": {"values": lines},
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {"x": x, "y": y, "color": colour},
            },
            {
                "data": {"values": points},
                "mark": {
                    "type": "point",
                    "filled": True,
                    "size": 110,
                    "stroke": "black",
                    "strokeWidth": 0.8,
                    "opacity": 1,
                },
                "encoding": {"x": x, "y": y, "color": colour, "shape": shape},
            },
        ],
    }


def main() -> None:
    """Draw it."""
    spec = json.dumps(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "hconcat": [panel(title) for title in PANELS],
            "config": {"background": "white", "legend": {"orient": "bottom", "columns": 3}},
        }
    )
    (HERE / "figure.svg").write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
    (HERE / "figure.png").write_bytes(vl_convert.vegalite_to_png(spec, scale=2))


if __name__ == "__main__":
    main()
