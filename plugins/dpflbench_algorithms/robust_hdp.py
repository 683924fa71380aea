"""Robust-HDP: Malekmohammadi, Yu, Cao, "Noise-Aware Algorithm for Heterogeneous Differentially Private Federated
Learning", ICML 2024.

Updates are a common low-rank part plus what each client's noise adds: robust PCA splits them, and each client is
weighed by the inverse energy of its own rest. Budgets are never looked at, so a client that misreports its epsilon
gains nothing.

| paper | here |
|---|---|
| M = L + S, p × n | `rows` [K, p], a client a row |
| S_{:,i} | `rest`, row by row |
| w_i ∝ 1 / ‖S_{:,i}‖² | `weights` from `energy` |
| λ = 1 / sqrt(max(p, n)) | as there |

Robust PCA is principal component pursuit by alternating directions (Candès, Li, Ma, Wright, "Robust Principal Component
Analysis?", 2011, Algorithm 1). Differs:
* Singular values are thresholded through the K × K Gram matrix: no p × K matrix is ever decomposed.
* The step starts at K p / (4 ‖M‖_1), the sum of absolute entries as in Candès et al. (the authors' program takes the
  induced norm), and is then balanced between the two residuals (Boyd et al., "Distributed Optimization ...", 2011,
  3.4.1): the optimum is the same, at a tenth of the iterations. Both residuals must fall below `tolerance`.
* Cohorts of K instead of all clients every round: a client keeps the energy found when it is first seen (`refresh:
  first`, as the paper freezes its weights after round one) or the mean over all its visits (`refresh: always`). Updates
  are in gradient units, so energies of different rounds compare.
* `coordinates` evenly spaced entries are looked at (the authors: the first 200,000): 5,000 know an energy to two per
  cent.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from dpflbench import hookimpl
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Setup, Updates
from dpflbench_algorithms.parts import UniformSelection

FLOOR = 1e-9  # of the largest energy: a client without any rest must not silence the others


@dataclass(frozen=True, slots=True)
class NoiseAware:
    """The mean of the updates weighted by the inverse energy of what is not common to them."""

    refresh: Literal["first", "always"] = "first"
    coordinates: int = 5_000
    tolerance: float = 1e-4
    iterations: int = 1000

    def __post_init__(self) -> None:
        for name in ("coordinates", "tolerance", "iterations"):
            if not getattr(self, name) > 0:
                raise DpflbenchError(f"{name}: found {getattr(self, name)}; allowed: above 0")

    def init(self, setup: Setup) -> dict[str, Any]:
        """Return energies and visits [N], none so far."""
        n = setup.n_clients
        return {"energy": torch.zeros(n, dtype=torch.float64), "visits": torch.zeros(n, dtype=torch.int64)}

    def aggregate(self, updates: Updates, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """Return Σ w_n row_n with w_n ∝ 1 / energy_n."""
        clients = updates.clients.cpu()
        energy, visits = state["energy"].clone(), state["visits"].clone()
        new = visits[clients] == 0 if self.refresh == "first" else torch.ones_like(clients, dtype=torch.bool)
        if bool(new.any()):
            at = (
                torch.linspace(0, updates.values.shape[1] - 1, min(self.coordinates, updates.values.shape[1]))
                .round()
                .long()
            )
            rest = split(updates.values[:, at.to(updates.values.device)], self.tolerance, self.iterations)[1]
            energy[clients[new]] += rest.square().mean(1).double().cpu()[new]
            visits[clients[new]] += 1
        state = {"energy": energy, "visits": visits}
        return self.effective_weights(updates, state) @ updates.values, state

    def effective_weights(self, updates: Updates, state: dict[str, Any]) -> Tensor:
        """Return w_n, from the energies that this round's rows have added to."""
        clients = updates.clients.cpu()
        mean = state["energy"][clients] / state["visits"][clients]
        top = float(mean.max())
        inverse = 1.0 / mean.clamp_min(FLOOR * top) if top > 0 else torch.ones_like(mean)
        return (inverse / inverse.sum()).to(updates.values)


def split(rows: Tensor, tolerance: float, iterations: int) -> tuple[Tensor, Tensor]:
    """Low-rank and sparse part of rows [K, p]: min ‖L‖_* + λ ‖S‖_1 over L + S = rows, by alternating directions."""
    m = rows if rows.device.type == "mps" else rows.double()
    size, total = float(m.norm()), float(m.abs().sum())
    if total == 0.0:
        return rows, torch.zeros_like(rows)
    step, sparse = m.numel() / (4.0 * total), 1.0 / max(m.shape) ** 0.5
    rest, dual = torch.zeros_like(m), torch.zeros_like(m)
    for i in range(iterations):
        common = _shrink_singular_values(m - rest + dual / step, 1.0 / step)
        wanted, before = m - common + dual / step, rest
        rest = torch.sign(wanted) * (wanted.abs() - sparse / step).clamp_min(0.0)
        gap = m - common - rest
        dual = dual + step * gap
        primal, moved = float(gap.norm()) / size, step * float((rest - before).norm()) / max(float(dual.norm()), 1e-300)
        if max(primal, moved) <= tolerance:
            break
        if i % 5 == 4:  # now and then: the balance needs a few rounds to show
            step *= 2.0 if primal > 5.0 * moved else 0.5 if moved > 5.0 * primal else 1.0
    return (m - rest).to(rows.dtype), rest.to(rows.dtype)


def _shrink_singular_values(x: Tensor, by: float) -> Tensor:
    """x with its singular values lowered: E diag((σ - by)_+ / σ) Eᵀ x, where x xᵀ = E diag(σ²) Eᵀ."""
    squares, vectors = torch.linalg.eigh((x @ x.T).cpu())
    sigma = squares.clamp_min(0.0).sqrt()
    keep = (sigma - by).clamp_min(0.0) / sigma.clamp_min(torch.finfo(sigma.dtype).tiny)
    shrunk: Tensor = ((vectors * keep) @ vectors.T).to(x) @ x
    return shrunk


def robust_hdp(
    refresh: Literal["first", "always"] = "first",
    coordinates: int = 5_000,
    tolerance: float = 1e-4,
    iterations: int = 1000,
) -> Algorithm:
    """Robust-HDP: uniform selection, noise-aware weights."""
    return Algorithm("Robust-HDP", UniformSelection(), NoiseAware(refresh, coordinates, tolerance, iterations))


@hookimpl
def dpflbench_aggregators() -> Factories:
    """The noise-aware mean."""
    return {"robust_hdp": NoiseAware}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """Robust-HDP."""
    return {"Robust-HDP": robust_hdp}
