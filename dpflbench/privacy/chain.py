"""A running hash over the releases of a ledger, with a link after every round: each covers all that came before it.

A ledger adds to it as it is charged, so whatever changes an earlier release afterwards, in memory or in a record,
breaks every link from that round on. It is no signature: who makes up a whole record makes up its chain too.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpflbench.canonical import content_digest

Array = NDArray[Any]
COLUMNS: Mapping[str, type[np.generic]] = {
    "client": np.int32,
    "round": np.int32,
    "kind": np.int8,
    "sensitivity": np.float64,
    "scale": np.float64,
    "rate": np.float64,
    "steps": np.int32,
    "cost": np.float64,
}
LINK_BYTES = 16  # of 32: nobody finds another ledger with such a link, and a record stays small


class Chain:
    """The links of one ledger, from its accountant and budgets on."""

    def __init__(self, accountant: str, epsilon: Array, delta: Array) -> None:
        head = {"accountant": accountant, "epsilon": epsilon, "delta": delta}
        self._hash = hashlib.sha256(content_digest(head).encode())
        self._links: list[tuple[int, bytes]] = []  # round and the hash after it

    def add(self, events: Mapping[str, Array]) -> None:
        """Go on over releases in order, columns as a ledger has them."""
        rounds = events["round"]
        if not len(rounds):
            return
        cost = events["cost"].reshape(len(rounds), -1)
        kinds = [(n, np.dtype(t).newbyteorder("<"), cost.shape[1:] if n == "cost" else ()) for n, t in COLUMNS.items()]
        rows = np.empty(len(rounds), dtype=kinds)
        for name in COLUMNS:
            rows[name] = cost if name == "cost" else events[name]
        for part in np.split(rows, np.flatnonzero(np.diff(rounds)) + 1):
            self._hash.update(part.tobytes())
            round = int(part["round"][0])
            if self._links and self._links[-1][0] == round:
                self._links.pop()
            self._links.append((round, self._hash.digest()))

    @property
    def links(self) -> Array:
        """[rounds charged, LINK_BYTES], as a record keeps them."""
        return np.frombuffer(b"".join(link[:LINK_BYTES] for _, link in self._links), np.uint8).reshape(-1, LINK_BYTES)

    @property
    def digest(self) -> str:
        """SHA-256 over everything so far."""
        return self._hash.hexdigest()


def chain_of(accountant: str, epsilon: Array, delta: Array, events: Mapping[str, Array]) -> Chain:
    """The chain of a ledger with these releases."""
    chain = Chain(accountant, epsilon, delta)
    chain.add(events)
    return chain
