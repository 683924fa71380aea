"""Does correlated noise over a client's own messages help on the main job? No: that is why there is no such mechanism.

A client's u messages are one Gaussian mechanism: with noise s C^-1 z, z white and C lower triangular with no negative
entry, its sensitivity is Δ |C 1| (one record is in every message, so all rows move, at worst all alike), and noise of
s = Δ |C 1| / mu is exact in Gaussian DP. Independent noise is C = I: |C 1| = sqrt(u).

What can be gained is bounded without training. The model holds Σ w_t (noise of message t); the sum Σ w_t x_t alone has
sensitivity Δ Σ w_t, so no C brings its variance below (Δ Σ w_t / mu)², and independent noise has u Σ w_t² (Δ / mu)². By
Cauchy's inequality these are the same where all w_t are: a factorisation helps prefix sums of messages in which a
record occurs once, and here it occurs in all of them. What is left is what a contraction makes of w_t, and the models
on the way, whose mean squared error can fall by a third at most.

Run by `make bench`; skipped where benchmarks are off. Utilities go to reports/bench/trust.json.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from harness import assembly_of
from places import place
from test_trust_speed import MAIN, report  # noqa: F401  # a fixture

from dpflbench.execution.prepare import prepare
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.federation.trust import LocalTrust

ROUNDS, SEEDS = 200, 3
NOTICED = 1.0  # points of accuracy


def inverse_root(u):
    """The first column of (I - S)^(1/2) and of its inverse, S the shift: the square root of prefix sums."""
    forward = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, u))])
    back = np.cumprod([1.0, *((2 * k - 3) / (2 * k) for k in range(1, u))])
    return back, forward


def geometric(beta):
    """I - beta S, and its inverse."""
    return lambda u: (np.array([1.0, -beta, *[0.0] * (u - 2)]), beta ** np.arange(u))


@dataclass(frozen=True)
class Correlated(LocalTrust):
    """Rows with noise that remembers: for this measurement alone, from a generator that is no secret."""

    make: object = None
    uses: object = None
    rng: object = None
    past: dict = field(default_factory=dict)

    def protect(self, mechanism, shown, draws):
        def noised(value, rows=None):
            out = value.numpy().copy()
            for k, client in enumerate(shown.clients.tolist()):
                u = int(self.uses[client])
                back, forward = self.make(u)
                z = self.past.setdefault(client, [])
                z.append(self.rng.normal(size=out.shape[1]))
                scale = shown.paid.scale[k] / np.sqrt(u) * np.linalg.norm(np.cumsum(forward))
                out[k] += scale * sum(back[i] * z[-1 - i] for i in range(len(z)) if back[i])
            return torch.from_numpy(out)

        return noised


def utility(catalogue, make, seed, high):
    """The final accuracy of DPSGD on the main job with that noise."""
    body = MAIN | {"federation": MAIN["federation"] | {"rounds": ROUNDS}, "evaluate": {"every": ROUNDS}}
    body["privacy"] = body["privacy"] | {"epsilon": {"kind": "uniform", "low": 0.1, "high": high}}
    prepared = prepare(assembly_of(body, catalogue, "DPSGD", seed), place())
    uses = np.full(100, ROUNDS * 20 // 100)
    world = replace(prepared.world, trust=Correlated(make, uses, np.random.default_rng(seed)))
    *_, last = rounds(world, initial_state(world, prepared.theta, prepared.phi), prepared.ledger)
    return last.points[-1][1].utility


KINDS = {"independent": geometric(0.0), "beta 0.3": geometric(0.3), "beta 0.6": geometric(0.6), "root": inverse_root}


@pytest.mark.parametrize("high", [1.0, 6.0])
def test_independent_noise_is_as_good_as_any_that_remembers(report, catalogue, high):  # noqa: F811
    found = {name: [utility(catalogue, make, s, high) for s in range(SEEDS)] for name, make in KINDS.items()}
    means = {name: float(np.mean(values)) for name, values in found.items()}
    for name, mean in means.items():
        report[f"accuracy at epsilon up to {high:g}, {name} noise"] = round(mean, 2)
    assert means["independent"] >= max(means.values()) - NOTICED
