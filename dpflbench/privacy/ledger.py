"""The ledger: every release of every client as an event, and a refusal before any client would spend more than it has.

Rounding never breaks the promise. With `allowed` = what (epsilon, delta) buys, calibration is shown `budget` = allowed
(1 - 2^-33) and a charge must keep the sum at or below allowed (1 - 2^-34). A sum of n terms rounds by at most n 2^-53
of itself, so up to 2^18 releases a client an even split of the budget always fits, and what fits is truly below
allowed.

A currency may be a curve over orders. Then ONE order a client counts, frozen when it first takes part: the order at
which that participation takes the smallest share of the budget. Until then the client has released nothing, so whatever
the choice depends on does not depend on its data, and from then on the ledger is a filter at a fixed order, valid for
plans that depend on earlier releases (Feldman, Zrnic, "Individual privacy accounting via a Rényi filter", 2021). To
accept whatever order still fits at the end would be a choice made after the fact, which no theorem covers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpflbench.errors import BudgetExceeded, RunEnded
from dpflbench.interfaces import Accountant, Event, Floats, Ints
from dpflbench.privacy.chain import COLUMNS, Chain, chain_of

KINDS = ("gradient", "loss", "joint", "quantile")  # Record.events["kind"] counts them
BUDGET_SHARE, LIMIT_SHARE = 1 - 2.0**-33, 1 - 2.0**-34
NOT_FROZEN = -1
Array = NDArray[Any]


class LedgerError(RunEnded):
    """A release that cannot be accounted for: a scale that is none, a client twice in one release or unknown."""


class Ledger:
    """What each of N clients may spend and has spent, in the currency of one accountant.

    Charging costs time in the size of the cohort, not of the federation.
    """

    def __init__(self, accountant: Accountant, epsilon: Floats, delta: Floats) -> None:
        self.accountant = accountant
        self.epsilon = np.array(epsilon, dtype=np.float64)  # [N]
        self.delta = np.array(delta, dtype=np.float64)  # [N]
        if self.epsilon.ndim != 1 or self.epsilon.shape != self.delta.shape:
            raise LedgerError(
                f"ledger: epsilon has shape {self.epsilon.shape}, delta {self.delta.shape}; allowed: [N] and [N]"
            )
        own = accountant.of(self.epsilon, self.delta)
        allowed = np.asarray(own.budget(self.epsilon, self.delta), dtype=np.float64)  # [N, A]
        if allowed.ndim != 2 or len(allowed) != len(self.epsilon) or not (allowed >= 0).all():
            raise LedgerError(
                f"accountant {accountant.name}: budget of shape {allowed.shape}; allowed: [N, A], not negative"
            )
        self.budget = allowed * BUDGET_SHARE
        self.used: Ints = np.zeros(len(allowed), dtype=np.int64)  # [N], participations
        self._limit = allowed * LIMIT_SHARE
        self._spent = np.zeros(len(allowed))  # [N], at the frozen order
        self._order = np.full(len(allowed), 0 if allowed.shape[1] == 1 else NOT_FROZEN)
        self._chunks: dict[str, list[Array]] = {name: [] for name in COLUMNS}
        self._chain = Chain(accountant.name, self.epsilon, self.delta)

    @property
    def n_clients(self) -> int:
        """N."""
        return len(self.epsilon)

    @property
    def left(self) -> Floats:
        """[N, A], what calibration may still spend; never negative, and 0 at all orders but a client's frozen one."""
        counts = (self._order[:, None] == NOT_FROZEN) | (self._order[:, None] == np.arange(self.budget.shape[1]))
        return np.where(counts, np.maximum(self.budget - self._spent[:, None], 0.0), 0.0)

    @property
    def spent(self) -> Floats:
        """[N], what the releases so far cost at each client's order."""
        return self._spent.copy()

    def charge(self, round: int, clients: Array, releases: Sequence[Event]) -> None:
        """Record one participation of each client [K], all its releases at once; each event has a row a client.

        BudgetExceeded, and nothing recorded, if a client cannot pay for all of them.
        """
        clients = np.asarray(clients)
        curves = [self._priced(round, clients, event) for event in releases]
        limit, rows, frozen = self._limit[clients], np.arange(len(clients)), self._order[clients]
        order = np.where(frozen == NOT_FROZEN, cheapest(np.sum(curves, axis=0), limit), frozen)
        costs, total = [curve[rows, order] for curve in curves], self._spent[clients]
        for cost in costs:  # one after the other, as a reader of the events adds them up
            total = total + cost
        sound = np.all([(cost >= 0) & np.isfinite(cost) for cost in costs], axis=0)
        fits = (total <= limit[rows, order]) & sound  # no noise fits nowhere
        if not fits.all():
            at = int(np.flatnonzero(~fits)[0])
            raise self._refusal(round, at, clients, releases, float(np.sum(costs, axis=0)[at]), limit[at, order[at]])
        self._spent[clients], self._order[clients] = total, order
        self.used[clients] += 1
        for event, each in zip(releases, costs, strict=True):
            self._append(round, clients, event, each)

    def events(self) -> dict[str, Array]:
        """All releases in order, as columns (see `Record`); of a curve, the cost at the client's order."""
        empty = {name: np.empty(0, dtype) for name, dtype in COLUMNS.items()}
        return {name: np.concatenate(parts) if parts else empty[name] for name, parts in self._chunks.items()}

    def epsilon_spent(self) -> Floats:
        """[N], the epsilon at each client's own delta that its releases amount to; 0 for a client that released
        nothing.
        """
        return epsilon_of(self.accountant, self._spent, self._order, self.budget.shape[1], self.epsilon, self.delta)

    def digest(self) -> str:
        """SHA-256 over accountant, budgets and events: equal ledgers, equal digests."""
        return self._chain.digest

    def chain(self) -> Array:
        """A link a round charged; each covers the one before (see `privacy.chain`)."""
        return self._chain.links

    def state(self) -> dict[str, Array]:
        """All that `restored` needs, as arrays."""
        return {"order": self._order.copy(), **self._columns()}

    def _columns(self) -> dict[str, Array]:
        return {"epsilon": self.epsilon.copy(), "delta": self.delta.copy(), **self.events()}

    def restored(self, state: Mapping[str, Array]) -> "Ledger":
        """A ledger of the same accountant as it was, sums to the last bit; refused if it does not fit these budgets."""
        ledger = Ledger(self.accountant, self.epsilon, self.delta)
        if not all(np.array_equal(state[name], getattr(self, name)) for name in ("epsilon", "delta")):
            raise LedgerError("ledger state: the budgets are not those of the run")
        columns = {name: np.asarray(state[name], dtype=dtype) for name, dtype in COLUMNS.items()}
        count = len(columns["client"])
        if count == 0:
            return ledger
        client, cost, order = columns["client"].astype(np.int64), columns["cost"], np.asarray(state["order"])
        inside = 0 <= client.min() <= client.max() < ledger.n_clients and order.shape == ledger._order.shape
        if not inside or not np.isin(order[client], range(ledger.budget.shape[1])).all():
            raise LedgerError(
                f"ledger state: clients {client.min()} to {client.max()}, orders of {order.shape}: do not fit the "
                "budgets"
            )
        np.add.at(ledger._spent, client, cost)
        ledger._order = order.astype(np.int64)
        np.add.at(ledger.used, np.unique(np.stack([client, columns["round"]]), axis=1)[0], 1)
        rows = np.unique(client)
        fits = ledger._spent[rows] <= ledger._limit[rows, ledger._order[rows]]
        if not (fits.all() and (cost >= 0).all()):
            raise BudgetExceeded(
                f"ledger state: {(~fits).sum()} clients spent more than they have, or a cost is negative"
            )
        ledger._chunks = {name: [column] for name, column in columns.items()}
        ledger._chain = chain_of(self.accountant.name, self.epsilon, self.delta, columns)
        return ledger

    def _priced(self, round: int, clients: Array, event: Event) -> Floats:
        """What each row of an event costs [K, A], refused if it is no release that can be accounted for."""
        self._check(round, clients, event)
        accountant = self.accountant.of(self.epsilon[clients], self.delta[clients])
        cost = np.asarray(accountant.cost(event), dtype=np.float64)
        if cost.shape != (len(clients), self.budget.shape[1]):
            raise LedgerError(
                f"accountant {self.accountant.name}: cost of shape {cost.shape} for {len(clients)} clients; "
                "allowed: [K, A]"
            )
        return cost

    def _check(self, round: int, clients: Array, event: Event) -> None:
        if event.kind not in KINDS:
            raise LedgerError(f"round {round}: release of kind '{event.kind}'; allowed: {', '.join(KINDS)}")
        why = self.accountant.supports(event)
        if why:
            raise LedgerError(f"round {round}: accountant {self.accountant.name} has no proof for this: {why}")
        if clients.ndim != 1 or clients.dtype.kind not in "iu":
            raise LedgerError(
                f"round {round}: clients are {clients.dtype} of shape {clients.shape}; allowed: integers [K]"
            )
        if len(clients) and not 0 <= int(clients.min()) <= int(clients.max()) < self.n_clients:
            raise LedgerError(
                f"round {round}: clients {clients.min()} to {clients.max()}; allowed: 0 to {self.n_clients - 1}"
            )
        if len(np.unique(clients)) != len(clients):
            raise LedgerError(f"round {round}: a client occurs twice in one {event.kind} release; allowed: once")
        for name in ("scale", "sensitivity", "rate", "steps"):
            values = getattr(event, name)
            if values.shape != clients.shape:
                raise LedgerError(
                    f"round {round}: {name} has shape {values.shape}; allowed: [{len(clients)}], one a client"
                )
            bad = ~(values >= 0)
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                raise LedgerError(
                    f"round {round}, client {clients[at]}: {name} {values[at]} of the noise; allowed: 0 or more"
                )

    def _refusal(
        self, round: int, at: int, clients: Array, releases: Sequence[Event], cost: float, have: float
    ) -> BudgetExceeded:
        client, kinds = int(clients[at]), " and ".join(event.kind for event in releases)
        scales = ", ".join(f"{event.scale[at]:.6g}" for event in releases)
        return BudgetExceeded(
            f"round {round}, client {client}: a {kinds} release at scale {scales} costs {cost:.6g}, "
            f"{self._spent[client]:.6g} of {have:.6g} is spent "
            f"(epsilon {self.epsilon[client]:.6g}, delta {self.delta[client]:.3g}, {self.accountant.name})"
        )

    def _append(self, round: int, clients: Array, event: Event, cost: Floats) -> None:
        row = {
            "client": clients,
            "round": np.full(len(clients), round),
            "kind": np.full(len(clients), KINDS.index(event.kind)),
            "sensitivity": event.sensitivity,
            "scale": event.scale,
            "rate": event.rate,
            "steps": event.steps,
            "cost": cost,
        }
        kept = {name: np.array(row[name], dtype=dtype) for name, dtype in COLUMNS.items()}
        for name, column in kept.items():
            self._chunks[name].append(column)
        self._chain.add(kept)


def cheapest(cost: Floats, limit: Floats) -> Ints:
    """The order [K] at which a participation [K, A] takes the smallest share of the budget [K, A]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.argmin(np.where(limit > 0, cost / limit, np.inf), axis=1), dtype=np.int64)


def totals(client: Ints, round: Array, cost: Floats, limit: Floats) -> tuple[Floats, Ints]:
    """What releases in order [R], [R], [R, A] add up to [N], and the order each client is charged at [N].

    Sums are made one after the other, as charges are. `limit` is [N, A]; NOT_FROZEN for a client without a release.
    """
    seen, at = np.unique(client, return_index=True)
    began = np.zeros(len(limit), dtype=np.int64)
    began[seen] = round[at]
    first, opening, total = round == began[client], np.zeros_like(limit), np.zeros(len(limit))
    np.add.at(opening, client[first], cost[first])
    order = np.full(len(limit), NOT_FROZEN, dtype=np.int64)
    order[seen] = 0 if limit.shape[1] == 1 else cheapest(opening[seen], limit[seen])
    np.add.at(total, client, cost[np.arange(len(client)), order[client]])
    return total, order


def epsilon_of(
    accountant: Accountant, spent: Floats, order: Ints, orders: int, epsilon: Floats, delta: Floats
) -> Floats:
    """The epsilon [N] that a total [N] at one order a client amounts to; 0 for a client that spent nothing."""
    seen, found = spent != 0, np.zeros(len(spent))
    curve = np.where(order[seen, None] == np.arange(orders), spent[seen, None], np.inf)
    found[seen] = accountant.of(epsilon[seen], delta[seen]).epsilon(curve, delta[seen])
    return found
