"""Accountants of Poisson-sampled Gaussian steps: `rdp`, Rényi DP at one order frozen per client, and `pld`, tighter and
slower, for plans fixed beforehand. The mathematics and its proofs stand in dpflbench.privacy: renyi.py and pld.py.

Neither multiplies a client's rate by the rate at which clients are drawn: the server sees who takes part.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from typing import ClassVar

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Accountant, Event, Floats, Ints, Neighbours
from dpflbench.privacy.gaussian_dp import mu_of
from dpflbench.privacy.pld import calibrate_noise, client_epsilons
from dpflbench.privacy.pld import epsilon as composed
from dpflbench.privacy.renyi import ORDERS, budget_of, epsilon_of
from dpflbench.privacy.renyi_curve import curve_of, largest_rate, least_noise
from dpflbench_algorithms.accountants import round_up

MOST, FINE = 2**40, 4096  # counts end there, and above the other are found to one part in so many
ROOM = 1 - 2.0**-30  # more than the ledger keeps back for the rounding of sums
ASKED = 128  # distinct settings a second opinion is given on; of more, a sample


@dataclass(frozen=True)
class Renyi(Accountant):
    """Gaussian steps on Poisson samples. Currency: a curve of Rényi divergences, of which the ledger freezes one order
    a client when it first takes part; valid for plans that depend on earlier releases.
    """

    name: ClassVar[str] = "rdp"
    exponent: int = field(init=False, default=0)

    def supports(self, event: Event) -> str:
        """Return nothing for Gaussian noise, sampled under zero_out or not at all."""
        if event.neighbours == "replace" and (event.rate < 1).any():
            return (
                "replacing one record by another in a sample; allowed: privacy.neighbours: zero_out, or accountant pld"
            )
        return _gaussian(event)

    def cost(self, event: Event) -> Floats:
        """Return steps * rho of each order [K, A]."""
        return curve_of(event.rate, _noise(event), event.steps)

    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """Return beta of each order [..., A]; 0 where an order proves nothing so small."""
        return budget_of(ORDERS, np.asarray(epsilon)[..., None], np.asarray(delta)[..., None])

    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """Return the least epsilon of the orders; a release costs something at every order, so 0 is none."""
        each = np.where(cost > 0, epsilon_of(cost, ORDERS, np.asarray(delta)[..., None]), np.inf)
        return np.where((cost == 0).all(-1), 0.0, each.min(-1))

    def scale(self, cost: Floats, event: Event) -> Floats:
        """Return the noise at which the steps of a row cost at most `cost` at one order."""
        return round_up(event.sensitivity * least_noise(_a_step(cost, event), event.rate)[1])

    def rate(self, cost: Floats, event: Event, noise: float) -> Floats:
        """Return the largest rate at which the steps of a row cost at most `cost` at one order."""
        return largest_rate(_a_step(cost, event), np.full(len(cost), noise))

    def settled(self, cost: Floats, event: Event) -> Floats:
        """Return the cost at the order that needs least noise, 0 at the others."""
        column, _ = least_noise(_a_step(cost, event), event.rate)
        return np.where(column[:, None] == np.arange(len(ORDERS)), cost, 0.0)

    def second_opinion(self, events: Event, client: Ints, delta: Floats) -> tuple[str, Floats]:
        """Return what dp-accounting's privacy loss distributions say, of a sample where many settings differ."""
        who = f"dp-accounting {version('dp-accounting')}"
        asked = _sample(events, client, delta)
        if len(asked) < len(np.unique(client)):
            who += f" for {len(asked)} of {len(np.unique(client))} clients"
        rows = np.isin(client, asked)
        noise = _noise(events)[rows]
        return who, client_epsilons(
            client[rows], noise, events.rate[rows], events.steps[rows], delta, events.neighbours
        )


@dataclass(frozen=True, eq=False)
class LossDistribution(Accountant):
    """Gaussian steps on Poisson samples, every participation of a client alike and as planned before the first.

    Currency: shares of a client's own budget. A release costs 1 / M where M is how many like it stay within (epsilon,
    delta) by dp-accounting's privacy loss distributions. For equal releases that is exact; for others there is no
    proof, and the harness refuses plans made on the way. `of` says whose budgets they are shares of.
    """

    name: ClassVar[str] = "pld"
    adaptive: ClassVar[bool] = False
    comparable: ClassVar[bool] = False
    exponent: int = field(init=False, default=0)
    promised: tuple[Floats, Floats] | None = field(init=False, default=None)

    def of(self, epsilon: Floats, delta: Floats) -> "LossDistribution":
        """Return the accountant of clients with these budgets."""
        twin = replace(self)
        object.__setattr__(twin, "promised", (np.asarray(epsilon), np.asarray(delta)))
        return twin

    def supports(self, event: Event) -> str:
        """Return nothing for Gaussian noise."""
        return _gaussian(event)

    def cost(self, event: Event) -> Floats:
        """Return 1 / M as [K, 1]: 0 for infinite noise, infinite where not even one release fits."""
        most = self._each(_most, event, _noise(event))
        with np.errstate(divide="ignore"):
            return (ROOM / most)[:, None]

    def budget(self, epsilon: Floats, delta: Floats) -> Floats:
        """Return 1 as [..., 1]: the whole."""
        return np.where(np.asarray(delta) > 0, 1.0, 0.0)[..., None]

    def epsilon(self, cost: Floats, delta: Floats) -> Floats:
        """Return the promised epsilon for a share up to the whole, which is never less than it is; 0 for nothing."""
        share = cost[..., 0]
        return np.where(share == 0, 0.0, np.where(share <= 1, self._promised()[0], np.inf))

    def scale(self, cost: Floats, event: Event) -> Floats:
        """Return the noise at which 1 / cost releases stay within the budget."""
        return round_up(event.sensitivity * self._each(_least, event, cost[..., 0]))

    def _promised(self) -> tuple[Floats, Floats]:
        if self.promised is None:
            raise DpflbenchError("accountant pld: a share of no budget; ask the accountant `of` a client's budgets")
        return self.promised

    def _each(self, price: Callable[..., float], event: Event, given: Floats) -> Floats:
        epsilon, delta = self._promised()
        rows = zip(epsilon, delta, event.rate, event.steps, given, strict=True)
        found = [price(float(e), float(d), float(q), int(t), float(g), event.neighbours) for e, d, q, t, g in rows]
        return np.array(found, dtype=np.float64)


@lru_cache(maxsize=1 << 14)
def _least(epsilon: float, delta: float, rate: float, steps: int, share: float, relation: Neighbours) -> float:
    """The least noise at which 1 / share releases fit: infinite for no share."""
    if share <= 0 or delta <= 0:
        return np.inf
    uses = int(np.ceil(ROOM / share))
    uses = uses if uses < FINE else int(np.ceil(uses * (1 + 2.0 / FINE)))  # what `_most` may miss
    return float(calibrate_noise(epsilon, delta, rate, float(uses * steps), relation))


@lru_cache(maxsize=1 << 14)
def _most(epsilon: float, delta: float, rate: float, steps: int, noise: float, relation: Neighbours) -> float:
    """How many releases of so many steps fit: the largest count that was tried and fits, above FINE a little less."""
    if np.isinf(noise):
        return np.inf
    if noise == 0 or delta <= 0:
        return 0.0
    low, high, tries = 0, MOST + 1, 0
    guess = (float(mu_of(np.array(epsilon), np.array(delta))) * noise / rate) ** 2 / steps  # by a central limit
    while high - low > (gap := max(1, low // FINE)):
        count = int(min(max(guess, low + gap), high - gap)) if tries < 12 else (low + high) // 2
        spent = composed(((noise, rate, count * steps),), delta, relation)
        low, high, tries = (count, high, tries + 1) if spent <= epsilon else (low, count, tries + 1)
        guess = (
            count * (epsilon / spent) ** 2 if 0 < spent < np.inf else (low + high) / 2 if high <= MOST else 2 * count
        )
    return float(low)


def _gaussian(event: Event) -> str:
    """Empty for Gaussian noise."""
    if event.law == "gaussian":
        return ""
    return f"{event.law} noise; allowed: gaussian, for which alone sampling and many steps are accounted here"


def _noise(event: Event) -> Floats:
    """Scales in sensitivities."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(event.scale == 0, 0.0, event.scale / event.sensitivity)


def _a_step(cost: Floats, event: Event) -> Floats:
    return np.asarray(cost / event.steps[:, None] * (1 - 2.0**-50))


def _sample(events: Event, client: Ints, delta: Floats) -> Ints:
    """The clients a second opinion is given on: all, or of many that differ a sample drawn by what they released."""
    clients = np.unique(client)
    table = np.stack([client.astype(np.float64), _noise(events), events.rate, events.steps.astype(np.float64)])
    distinct = np.unique(
        np.vstack([np.unique(table, axis=1)[1:], delta[np.unique(table, axis=1)[0].astype(int)]]), axis=1
    )
    if distinct.shape[1] <= ASKED:
        return clients
    seed = int.from_bytes(hashlib.sha256(table.tobytes() + delta.tobytes()).digest()[:8], "big")
    return np.sort(np.random.default_rng(seed).choice(clients, min(ASKED, len(clients)), replace=False))
