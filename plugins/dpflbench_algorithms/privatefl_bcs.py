"""PRIVATEFL-BCS: Ma et al., arXiv 2408.08642: "biased instead of uniform selection" in front of PRIVATEFL's clients.

A combination of two parts and nothing else. Noise prices count the coordinates of phi, losses are taken through each
client's own phi, and phi moves only when its client takes part: those selected rarely stay near the identity. Differs:
as bcs.py and privatefl.py say. For options not offered here, `compose` takes any selector with any transform.
"""

from typing import Literal

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm
from dpflbench_algorithms.bcs import BiasedSelection
from dpflbench_algorithms.parts import Mean
from dpflbench_algorithms.privatefl import PersonalAffine


def privatefl_bcs(
    probe_rounds: int = 10,
    probe: Literal["received", "literal"] = "received",
    loss_bound: float | None = None,
    heterogeneity: Literal["shrunk", "paper", "zero"] = "shrunk",
    constants: Literal["schedule", "p2"] = "schedule",
    norm_local: bool = False,
) -> Algorithm:
    """PRIVATEFL-BCS: biased selection, plain mean, a personal affine transform."""
    selector = BiasedSelection(
        probe_rounds, probe, loss_bound=loss_bound, heterogeneity=heterogeneity, constants=constants
    )
    return Algorithm("PRIVATEFL-BCS", selector, Mean(), PersonalAffine(norm_local))


@hookimpl
def dpflbench_algorithms() -> Factories:
    """PRIVATEFL-BCS."""
    return {"PRIVATEFL-BCS": privatefl_bcs}
