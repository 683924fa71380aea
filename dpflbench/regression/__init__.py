"""The gate: a results folder against a baseline. Was everything measured, is it as good, as private and as fast, is it
the same?
"""

from dpflbench.regression.baseline import Baseline, baseline_of, dump_baseline, load_baseline
from dpflbench.regression.compare import Check, Comparison, Limits, check_verified, compare

__all__ = [
    "Baseline",
    "Check",
    "Comparison",
    "Limits",
    "baseline_of",
    "check_verified",
    "compare",
    "dump_baseline",
    "load_baseline",
]
