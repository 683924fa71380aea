"""DP-FedAvg with a trusted server: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language
Models", ICLR 2018 (its fixed-size cohorts aside: see Differs), with the clip of Andrew, Thakkar, McMahan, Ramaswamy,
"Differentially Private Learning with Adaptive Clipping", NeurIPS 2021, where `clip: adaptive` is asked for.

| paper | here |
|---|---|
| S, clip of a user's update | `privacy.clip` of the whole message (`privacy.unit: client`) |
| σ = z S / (q W) on the sum of K | `privacy.trust: central`: what the most demanding budget of a cohort asks for |
| weights w_k, W | 1 each, the cohort |
| γ, η_C, σ_b | `quantile`, `rate`, `share` of a participation's cost |

Differs:
* Budgets are the clients' own; noise is found from them, cohort by cohort, and not given.
* With exact cohorts nothing is claimed for the secrecy of who takes part; `federation.cohorts: poisson` claims it, and
  draws users at a rate as the paper does. An adaptive clip needs exact cohorts: its two sums would share one coin.
* Messages are in gradient units, so S is in units of a gradient and not of a model.
* The share of clients within the clip is clamped to [0, 1] before S follows it, and S to 2^±20 times where it began.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import AdaptiveClip, Algorithm, Plan, PlanView
from dpflbench_algorithms.parts import Mean, UniformSelection


@dataclass(frozen=True, slots=True)
class AdaptivelyClipped:
    """Uniform selection, and a clip bound that follows a quantile of the norms."""

    quantile: float = 0.5
    rate: float = 0.2
    share: float = 0.05

    def __post_init__(self) -> None:
        AdaptiveClip(self.quantile, self.rate, self.share)  # says what is wrong with them

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return equal uses, and ask who is within the clip."""
        asked = AdaptiveClip(self.quantile, self.rate, self.share)
        return replace(UniformSelection().plan(view, rng), adaptive=asked)


def dp_fedavg_central(
    clip: Literal["fixed", "adaptive"] = "fixed", quantile: float = 0.5, rate: float = 0.2, share: float = 0.05
) -> Algorithm:
    """DP-FedAvg-central: whole clients clipped, noise by a trusted server, plain mean."""
    selector = AdaptivelyClipped(quantile, rate, share) if clip == "adaptive" else UniformSelection()
    frame = {"trust": "central", "unit": "client", **({"cohorts": "exact"} if clip == "adaptive" else {})}
    return Algorithm("DP-FedAvg-central", selector, Mean(), frame=frame)


@hookimpl
def dpflbench_selectors() -> Factories:
    """Uniform selection under an adaptive clip."""
    return {"adaptive_clip": AdaptivelyClipped}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """DP-FedAvg-central."""
    return {"DP-FedAvg-central": dp_fedavg_central}
