"""PFA and PFA+: Liu, Lou, Xiong, Liu, Meng, "Projected Federated Averaging with Heterogeneous Differential Privacy",
VLDB 2022.

Clients with generous budgets ("public") span a subspace; the mean update of the others ("private") is projected on it
before both means are combined by their shares of epsilon.

| paper | here |
|---|---|
| public and private clients | `public` mask over clients, by epsilon |
| U_i, public updates of tensor i | rows of `block` where public |
| V_i, top-k eigenvectors of AᵀA | `principal_rows`: Λ^(-1/2) Eᵀ A with A Aᵀ = E Λ Eᵀ |
| k | `rank` |
| x̄_pub, x̄_pri | ε-weighted means within each group |

Differs:
* Defaults follow the authors' program: one subspace a tensor, public updates centred by their plain mean. The text's
  Algorithm 3 is `basis: global, center: false, sigma: mean`; its outer product of the weighted mean has rank 1 whatever
  k.
* Eigenvectors come from the m × m Gram matrix of m public updates, exact to rounding, in O(m² d): the authors' Lanczos
  iteration outruns the rank of so few rows and returns mostly unrelated vectors, and a d × d covariance is never
  needed.
* Directions whose eigenvalue is below 1e-10 of the largest are dropped, so at most m - 1 (centred) directions are used.
* `share` of all clients, at least one, is public (the program's index makes all clients public below ten). When a
  cohort has none, its highest epsilon acts as public: drawing again would break the participation plan.
* A cohort of public clients only: the ε-weighted mean, the same formula with an empty private group.

What to expect: with one to three public clients in a cohort and dense noise, the projection keeps a few per cent of
what sets the private mean apart from the public one, so the step is nearly the public clients' alone: fewer clients to
average noise over, and their data only. That is a gain where strict clients' noise swamps the plain mean (Laplace
noise), and a loss where it does not, the more so the less alike clients' data are.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Floats, Setup, Updates
from dpflbench_algorithms.parts import UniformSelection

NEGLIGIBLE = 1e-10  # of the largest eigenvalue
Public = Literal["top", "gmm", "per_round"]


@dataclass(frozen=True, slots=True)
class ProjectedMean:
    """The aggregator of PFA; `delayed` makes it PFA+."""

    rank: int = 1
    basis: Literal["per_tensor", "global"] = "per_tensor"
    center: bool = True
    sigma: Literal["updates", "mean"] = "updates"
    public: Public = "top"
    share: float = 0.1
    delayed: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise DpflbenchError(f"rank: found {self.rank}; allowed: 1 or more")
        if not 0 < self.share <= 1:
            raise DpflbenchError(f"share: found {self.share}; allowed: above 0, at most 1")
        if self.sigma == "mean" and self.center:
            raise DpflbenchError("center: found true; sigma: mean, the outer product of one vector, allows only false")

    def init(self, setup: Setup) -> dict[str, Any]:
        """Return who is public, where the blocks lie and, for PFA+, an empty subspace."""
        tensors = setup.layout.tensors
        blocks = [(t.start, t.stop) for t in tensors] if self.basis == "per_tensor" else [(0, setup.layout.dim)]
        if self.public == "top":
            mask = top(setup.epsilon, self.share)
        elif self.public == "gmm":
            mask = upper_cluster(setup.epsilon)
        else:
            mask = np.zeros(setup.n_clients, dtype=bool)  # decided anew in every cohort
        return {"public": torch.from_numpy(mask), "blocks": blocks, "previous": None}

    def aggregate(self, updates: Updates, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """Return the combined direction: (E_pri projected private mean + E_pub public mean) / (E_pri + E_pub)."""
        public = self._public(updates, state["public"])
        shares = updates.epsilon / updates.epsilon.sum()
        alone = bool(public.all())
        spaces, parts = [], []
        for i, (start, stop) in enumerate(state["blocks"]):
            block = updates.values[:, start:stop]
            direction = shares[public] @ block[public]
            space = self._space(block[public], updates.epsilon[public])
            if not alone:
                private = (shares[~public] / shares[~public].sum()) @ block[~public]
                used = space if state["previous"] is None else state["previous"][i]
                direction = direction + shares[~public].sum() * project(private, *used)
            spaces.append(space)
            parts.append(direction)
        return torch.cat(parts), {**state, "previous": spaces if self.delayed else None}

    def _public(self, updates: Updates, known: Tensor) -> Tensor:
        """Who of the cohort is public [K]; never nobody."""
        if self.public == "per_round":
            return torch.from_numpy(top(updates.epsilon.double().cpu().numpy(), self.share)).to(updates.epsilon.device)
        public = known.to(updates.clients.device)[updates.clients]
        return public if bool(public.any()) else updates.epsilon == updates.epsilon.max()

    def _space(self, rows: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
        """Orthonormal rows V [k, p] of the public subspace and its centre [p]."""
        centre = rows.mean(0) if self.center and len(rows) > 1 else rows.new_zeros(rows.shape[1])
        spanning = ((epsilon / epsilon.sum()) @ rows)[None] if self.sigma == "mean" else rows - centre
        return principal_rows(spanning, self.rank), centre


def top(epsilon: Floats, share: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whose epsilon is among the ⌊share n⌋ largest, at least one; with ties more."""
    count = max(1, int(share * len(epsilon) + 1e-9))
    return np.asarray(epsilon >= np.partition(epsilon, -count)[-count])


def upper_cluster(epsilon: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Who belongs to the upper of two Gaussian components fitted to epsilon; all if there is only one value."""
    low, high = float(epsilon.min()), float(epsilon.max())
    if low == high:
        return np.ones(len(epsilon), dtype=bool)
    from sklearn.mixture import GaussianMixture

    scaled = ((epsilon - low) / (high - low))[:, None]
    mixture = GaussianMixture(2, means_init=[[0.0], [1.0]], random_state=0).fit(scaled)
    return np.asarray(mixture.predict(scaled) == int(np.argmax(mixture.means_)))


def principal_rows(rows: Tensor, rank: int) -> Tensor:
    """The top `rank` right singular vectors of rows [m, p] as [k, p], k <= rank, from the m × m Gram matrix."""
    # the Gram matrix squares the condition: double where the device has it
    exact = rows.double() if rows.device.type != "mps" else rows
    values, vectors = torch.linalg.eigh((exact @ exact.T).cpu())
    keep = torch.arange(len(values) - 1, -1, -1)[:rank]
    keep = keep[values[keep] > NEGLIGIBLE * values[-1].clamp_min(0.0)]
    basis = (vectors[:, keep] / values[keep].sqrt()).T.to(exact)
    principal: Tensor = (basis @ exact).to(rows.dtype)
    return principal


def project(x: Tensor, basis: Tensor, centre: Tensor) -> Tensor:
    """V Vᵀ (x - centre) + centre for orthonormal rows V [k, p]."""
    return (basis @ (x - centre)) @ basis + centre


def pfa(
    rank: int = 1,
    basis: Literal["per_tensor", "global"] = "per_tensor",
    center: bool = True,
    sigma: Literal["updates", "mean"] = "updates",
    public: Public = "top",
    share: float = 0.1,
    delayed: bool = False,
) -> Algorithm:
    """PFA: uniform selection, projected mean; `delayed: true` is PFA+."""
    return Algorithm("PFA", UniformSelection(), ProjectedMean(rank, basis, center, sigma, public, share, delayed))


@hookimpl
def dpflbench_aggregators() -> Factories:
    """The projected mean."""
    return {"pfa": ProjectedMean}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """PFA."""
    return {"PFA": pfa}
