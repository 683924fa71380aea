"""The smallest whole suite there is, as a plain mapping."""

from pathlib import Path
from typing import Any


def tiny_suite(blobs: Path) -> dict[str, Any]:
    """A whole suite as a plain mapping: 8 clients, 6 rounds, a second a dozen runs."""
    return {
        "name": "tiny",
        "task": {
            "dataset": {"name": "npz", "path": str(blobs)},
            "model": "softmax",
            "partition": {"kind": "iid"},
            "holdout": 0.2,
        },
        "federation": {"clients": 8, "cohort": 4, "rounds": 6, "lr": {"initial": 0.5, "decay": 20}},
        "privacy": {
            "mechanism": "gaussian",
            "clip": 1.0,
            "epsilon": {"kind": "uniform", "low": 0.5, "high": 4.0},
            "delta": {"kind": "constant", "value": 1e-5},
        },
        "evaluate": {"every": 2},
        "seeds": 1,
        "algorithms": ["FedSGD", "DPSGD", "WeiAvg"],
    }
