"""Per-sample clipped gradient sums of many clients in one pass: `Engine`, and the flat vector theta it works on."""

from dpflbench.federation.gradients.engine import Engine, Sums
from dpflbench.federation.gradients.lanes import Kernels, chosen, compiler_of, kernels, library
from dpflbench.federation.gradients.layout import initial_theta, layout_of
from dpflbench.federation.gradients.summation import MARGIN, bounded

__all__ = [
    "MARGIN",
    "Engine",
    "Kernels",
    "Sums",
    "bounded",
    "chosen",
    "compiler_of",
    "initial_theta",
    "kernels",
    "layout_of",
    "library",
]
