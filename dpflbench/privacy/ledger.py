"""The ledger: every release of every client as an event, and a refusal before any client would spend more than it has.

Rounding never breaks the promise. With `allowed` = what (epsilon, delta) buys, calibration is shown `budget` = allowed
(1 - 2^-33) and a charge must keep the sum at or below allowed (1 - 2^-34). A sum of n terms rounds by at most n 2^-53
of itself, so up to 2^18 releases a client an even split of the budget always fits, and what fits is truly below
allowed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpflbench.canonical import content_digest
from dpflbench.errors import BudgetExceeded, RunEnded
from dpflbench.interfaces import Floats, Ints, Mechanism

GRADIENT, LOSS, JOINT = 0, 1, 2  # kinds of a release: Record.events["kind"]
KINDS = ("gradient", "loss", "joint")
BUDGET_SHARE, LIMIT_SHARE = 1 - 2.0**-33, 1 - 2.0**-34
Array = NDArray[Any]
COLUMNS: Mapping[str, type[np.generic]] = {
    "client": np.int32,
    "round": np.int32,
    "kind": np.int8,
    "sensitivity": np.float64,
    "scale": np.float64,
    "cost": np.float64,
}


class LedgerError(RunEnded):
    """A release that cannot be accounted for: a scale that is none, a client twice in one release or unknown."""


class Ledger:
    """What each of N clients may spend and has spent, in the currency of one mechanism.

    A run without privacy has no ledger. Charging costs time in the size of the cohort, not of the federation.
    """

    def __init__(self, mechanism: Mechanism, epsilon: Floats, delta: Floats) -> None:
        self.mechanism = mechanism
        self.epsilon = np.array(epsilon, dtype=np.float64)  # [N]
        self.delta = np.array(delta, dtype=np.float64)  # [N]
        if self.epsilon.ndim != 1 or self.epsilon.shape != self.delta.shape:
            raise LedgerError(
                f"ledger: epsilon has shape {self.epsilon.shape}, delta {self.delta.shape}; allowed: [N] and [N]"
            )
        allowed = np.asarray(mechanism.budget(self.epsilon, self.delta), dtype=np.float64)  # [N, A]
        if allowed.ndim != 2 or len(allowed) != len(self.epsilon) or not (allowed >= 0).all():
            raise LedgerError(
                f"mechanism {mechanism.name}: budget of shape {allowed.shape}; allowed: [N, A], not negative"
            )
        self.budget = allowed * BUDGET_SHARE
        self.used: Ints = np.zeros(
            len(allowed), dtype=np.int64
        )  # [N], participations: gradients released, alone or jointly
        self._limit = allowed * LIMIT_SHARE
        self._spent = np.zeros_like(allowed)
        self._chunks: dict[str, list[Array]] = {name: [] for name in COLUMNS}

    @property
    def n_clients(self) -> int:
        """N."""
        return len(self.epsilon)

    @property
    def left(self) -> Floats:
        """[N, A], what calibration may still spend; never negative."""
        return np.maximum(self.budget - self._spent, 0.0)

    @property
    def spent(self) -> Floats:
        """[N, A], what the releases so far cost."""
        return self._spent.copy()

    def charge(self, round: int, clients: Array, sensitivity: Array, scale: Array, kind: int = GRADIENT) -> Floats:
        """Record one release of each client [K], return its cost [K, A]; BudgetExceeded, and nothing recorded, if one
        cannot pay.

        With a curve (A > 1) a client can pay while ANY one order of it stays within the budget: that order is then the
        proof.
        """
        clients = np.asarray(clients)
        count = len(clients)
        sensitivity = np.broadcast_to(np.asarray(sensitivity, dtype=np.float64), count)
        scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), count)
        self._check(round, clients, sensitivity, scale, kind)
        cost = np.asarray(self.mechanism.cost(scale, sensitivity), dtype=np.float64)
        if cost.shape != (count, self.budget.shape[1]):
            raise LedgerError(
                f"mechanism {self.mechanism.name}: cost of shape {cost.shape} for {count} clients; allowed: [K, A]"
            )
        total = self._spent[clients] + cost
        fits = ((total <= self._limit[clients]) & (cost >= 0) & np.isfinite(cost)).any(-1)  # no noise fits nowhere
        if not fits.all():
            raise self._refusal(round, kind, int(np.flatnonzero(~fits)[0]), clients, cost, scale)
        self._spent[clients] = total
        if kind != LOSS:
            self.used[clients] += 1
        self._append(round, clients, sensitivity, scale, kind, cost)
        return cost

    def events(self) -> dict[str, Array]:
        """All releases in order, as columns (see `Record`); cost is [R], or [R, A] for a curve."""
        empty = {name: np.empty(0, dtype) for name, dtype in COLUMNS.items()}
        return {name: np.concatenate(parts) if parts else empty[name] for name, parts in self._chunks.items()}

    def epsilon_spent(self) -> Floats:
        """[N], the epsilon at each client's own delta that its releases amount to; 0 for a client that released
        nothing.
        """
        seen = (self._spent != 0).any(-1)
        spent = np.zeros(self.n_clients)
        spent[seen] = self.mechanism.epsilon(self._spent[seen], self.delta[seen])
        return spent

    def digest(self) -> str:
        """SHA-256 over mechanism, budgets and events: equal ledgers, equal digests."""
        return content_digest({"mechanism": self.mechanism.name, **self.state()})

    def state(self) -> dict[str, Array]:
        """All that `from_state` needs, as arrays."""
        return {"epsilon": self.epsilon.copy(), "delta": self.delta.copy(), **self.events()}

    @classmethod
    def from_state(cls, mechanism: Mechanism, state: Mapping[str, Array]) -> "Ledger":
        """The ledger as it was, sums to the last bit; refused if its events do not fit its budgets."""
        ledger = cls(mechanism, state["epsilon"], state["delta"])
        columns = {name: np.asarray(state[name], dtype=dtype) for name, dtype in COLUMNS.items()}
        if len(columns["client"]) == 0:
            return ledger
        client, cost = columns["client"].astype(np.int64), columns["cost"].reshape(len(columns["client"]), -1)
        if client.min() < 0 or client.max() >= ledger.n_clients or cost.shape[1] != ledger.budget.shape[1]:
            raise LedgerError(
                f"ledger state: clients {client.min()} to {client.max()}, costs {cost.shape}: do not fit the budgets"
            )
        np.add.at(ledger._spent, client, cost)  # one after the other, as they were charged
        np.add.at(ledger.used, client[columns["kind"] != LOSS], 1)
        fits = (ledger._spent <= ledger._limit).any(-1)
        if not (fits.all() and (cost >= 0).all()):
            raise BudgetExceeded(
                f"ledger state: {(~fits).sum()} clients spent more than they have, or a cost is negative"
            )
        ledger._chunks = {name: [column] for name, column in columns.items()}
        return ledger

    def _check(self, round: int, clients: Array, sensitivity: Floats, scale: Floats, kind: int) -> None:
        if not 0 <= kind < len(KINDS):
            raise LedgerError(f"round {round}: release of kind {kind}; allowed: 0 to {len(KINDS) - 1}")
        if clients.ndim != 1 or clients.dtype.kind not in "iu":
            raise LedgerError(
                f"round {round}: clients are {clients.dtype} of shape {clients.shape}; allowed: integers [K]"
            )
        if len(clients) and not 0 <= int(clients.min()) <= int(clients.max()) < self.n_clients:
            raise LedgerError(
                f"round {round}: clients {clients.min()} to {clients.max()}; allowed: 0 to {self.n_clients - 1}"
            )
        if len(np.unique(clients)) != len(clients):
            raise LedgerError(f"round {round}: a client occurs twice in one {KINDS[kind]} release; allowed: once")
        for name, values in (("scale", scale), ("sensitivity", sensitivity)):
            bad = ~(values >= 0)
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                raise LedgerError(
                    f"round {round}, client {clients[at]}: {name} {values[at]} of the noise; allowed: 0 or more"
                )

    def _refusal(self, round: int, kind: int, at: int, clients: Array, cost: Floats, scale: Floats) -> BudgetExceeded:
        client = int(clients[at])
        have, spent, more = (_show(values) for values in (self._limit[client], self._spent[client], cost[at]))
        return BudgetExceeded(
            f"round {round}, client {client}: a {KINDS[kind]} release at scale {scale[at]:.6g} costs {more}, "
            f"{spent} of {have}"
            f" is spent (epsilon {self.epsilon[client]:.6g}, delta {self.delta[client]:.3g}, {self.mechanism.name})"
        )

    def _append(self, round: int, clients: Array, sensitivity: Floats, scale: Floats, kind: int, cost: Floats) -> None:
        row = {
            "client": clients,
            "round": np.full(len(clients), round),
            "kind": np.full(len(clients), kind),
            "sensitivity": sensitivity,
            "scale": scale,
            "cost": cost[:, 0] if cost.shape[1] == 1 else cost,
        }
        for name, dtype in COLUMNS.items():
            self._chunks[name].append(np.array(row[name], dtype=dtype))


def _show(values: Floats) -> str:
    return f"{values[0]:.6g}" if len(values) == 1 else "[" + " ".join(f"{v:.4g}" for v in values) + "]"
