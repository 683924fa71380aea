"""Who owns which example: iid, Dirichlet over labels, shards of classes, by writer, sizes from a power law.

Each kind is a frozen dataclass whose `assign` names the owner of every example (-1: nobody). Every kind has a floor on
client size, because noise grows with 1 / n_examples: a floor that cannot be met is refused, never quietly undercut.
`PARTITIONS` is what the plugin `parts` hands over.
"""

import math
from dataclasses import dataclass

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Floats, Ints, Partition

NOBODY = -1
QUANTILES = 10  # pseudo-classes of a regression target
ATTEMPTS = 100  # draws before a floor is called impossible


@dataclass(frozen=True, slots=True)
class Iid:
    """Shuffled and cut into equal parts (sizes differ by at most one)."""

    min_size: int = 10

    def assign(self, classes: Ints, groups: Ints | None, n_clients: int, rng: np.random.Generator) -> Ints:
        """Equal parts of a random order."""
        _possible("iid", len(classes), n_clients, self.min_size)
        sizes = _apportion(np.full(n_clients, 1.0 / n_clients), len(classes))
        return _guard("iid", _deal(sizes, rng), n_clients, self.min_size)


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """Each class is divided among the clients by shares from a symmetric Dirichlet(alpha): small alpha, few classes a
    client.

    Yurochkin et al. 2019 without balancing, as Flower Datasets' DirichletPartitioner: shares_c ~ Dir(alpha · 1_N) for
    each class c. A draw that leaves a client below `min_size` is drawn again as a whole, so the split is Dirichlet
    given the floor.
    """

    alpha: float = 3.0
    min_size: int = 10

    def __post_init__(self) -> None:
        if not (self.alpha > 0 and math.isfinite(self.alpha)):
            raise DpflbenchError(f"alpha: {self.alpha}; allowed: a finite number > 0")

    def assign(self, classes: Ints, groups: Ints | None, n_clients: int, rng: np.random.Generator) -> Ints:
        """The first draw that meets the floor."""
        _possible("dirichlet", len(classes), n_clients, self.min_size)
        values, counts = np.unique(classes, return_counts=True)
        smallest = 0
        for _ in range(ATTEMPTS):
            shares = rng.dirichlet(np.full(n_clients, self.alpha), size=len(values))  # [C, N]
            cuts = np.rint(np.cumsum(shares, axis=1) * counts[:, None]).astype(np.int64)
            cuts[:, -1] = counts
            sizes = np.diff(cuts, axis=1, prepend=0)  # [C, N]
            smallest = max(smallest, int(sizes.sum(axis=0).min()))
            if smallest >= self.min_size:
                owner = np.empty(len(classes), dtype=np.int64)
                for value, row in zip(values, sizes, strict=True):
                    owner[classes == value] = _deal(row, rng)
                return owner
        raise DpflbenchError(
            f"dirichlet: {ATTEMPTS} draws at alpha {self.alpha} never gave each of {n_clients} clients min_size "
            f"{self.min_size} of "
            f"{len(classes)} examples (at best {smallest}); allowed: a larger alpha, fewer clients or a smaller "
            "min_size"
        )


@dataclass(frozen=True, slots=True)
class ShardsOfClasses:
    """Each client holds examples of exactly `classes_per_client` classes; a class is cut evenly among its holders."""

    classes_per_client: int = 2
    min_size: int = 10

    def assign(self, classes: Ints, groups: Ints | None, n_clients: int, rng: np.random.Generator) -> Ints:
        """Client after client takes the classes with the fewest holders so far, ties at random: holders differ by at
        most one.
        """
        _possible("shards", len(classes), n_clients, self.min_size)
        values = np.unique(classes)
        wanted = self.classes_per_client
        if not 1 <= wanted <= len(values):
            raise DpflbenchError(
                f"shards.classes_per_client: {wanted}; allowed: 1 to {len(values)}, the classes there are"
            )
        if n_clients * wanted < len(values):
            raise DpflbenchError(
                f"shards: {n_clients} clients of {wanted} classes cannot hold all {len(values)} classes; "
                "allowed: more clients or more classes a client"
            )
        holders = np.zeros(len(values), dtype=np.int64)
        holds = np.zeros((len(values), n_clients), dtype=bool)
        for client in rng.permutation(n_clients):
            taken = np.lexsort((rng.random(len(values)), holders))[:wanted]
            holders[taken] += 1
            holds[taken, client] = True
        owner = np.empty(len(classes), dtype=np.int64)
        for value, row in zip(values, holds, strict=True):
            mine = classes == value
            sizes = np.zeros(n_clients, dtype=np.int64)
            sizes[row] = _apportion(np.full(int(row.sum()), 1.0 / row.sum()), int(mine.sum()))
            owner[mine] = _deal(sizes, rng)
        return _guard("shards", owner, n_clients, self.min_size)


@dataclass(frozen=True, slots=True)
class Writer:
    """A client is a writer: `n_clients` of those with at least `min_size` examples, drawn at random; the rest goes
    unused.
    """

    min_size: int = 10

    def assign(self, classes: Ints, groups: Ints | None, n_clients: int, rng: np.random.Generator) -> Ints:
        """Whole writers."""
        if groups is None:
            raise DpflbenchError(
                "writer: the examples of this data set have no owners; take femnist, add groups_train and groups_test "
                "to your npz file, or choose another partition"
            )
        writers, counts = np.unique(groups, return_counts=True)
        eligible = writers[counts >= self.min_size]
        if len(eligible) < n_clients:
            raise DpflbenchError(
                f"writer: {len(eligible)} of {len(writers)} writers have at least {self.min_size} examples; "
                f"allowed: at most as many clients ({n_clients} wanted) or a smaller min_size"
            )
        chosen = np.sort(rng.permutation(eligible)[:n_clients])
        place = np.minimum(np.searchsorted(chosen, groups), n_clients - 1)
        return np.where(chosen[place] == groups, place, NOBODY).astype(np.int64)


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """Sizes proportional to rank^-exponent, the ranks dealt at random; contents are iid."""

    exponent: float = 1.0
    min_size: int = 10

    def __post_init__(self) -> None:
        if not (self.exponent >= 0 and math.isfinite(self.exponent)):
            raise DpflbenchError(f"exponent: {self.exponent}; allowed: a finite number ≥ 0")

    def assign(self, classes: Ints, groups: Ints | None, n_clients: int, rng: np.random.Generator) -> Ints:
        """Parts of a random order, the sizes in random order."""
        _possible("power_law", len(classes), n_clients, self.min_size)
        weights = np.arange(1, n_clients + 1, dtype=np.float64) ** -self.exponent
        sizes = rng.permutation(_apportion(weights / weights.sum(), len(classes)))
        return _guard("power_law", _deal(sizes, rng), n_clients, self.min_size)


PARTITIONS: dict[str, type[Partition]] = {
    "iid": Iid,
    "dirichlet": Dirichlet,
    "shards": ShardsOfClasses,
    "writer": Writer,
    "power_law": PowerLaw,
}


def checked_owners(owner: Ints, examples: int, n_clients: int) -> Ints:
    """The owners a partition has named; DpflbenchError where they are not one client an example."""
    whole = isinstance(owner, np.ndarray) and owner.dtype.kind in "iu"
    if not whole or owner.shape != (examples,):
        found = f"{owner.dtype} {owner.shape}" if isinstance(owner, np.ndarray) else type(owner).__name__
        raise DpflbenchError(f"task.partition: owners are {found}; allowed: whole numbers, one an example ({examples})")
    if examples and not NOBODY <= owner.min() <= owner.max() < n_clients:
        raise DpflbenchError(
            f"task.partition: owners range from {owner.min()} to {owner.max()}; allowed: 0 to {n_clients - 1}, or -1"
        )
    return owner.astype(np.int64, copy=False)


def quantile_classes(targets: Floats) -> Ints:
    """Ten label quantiles as pseudo-classes of a regression target (algorithms.md 3, row 15); ties stay together."""
    borders = np.quantile(targets, np.arange(1, QUANTILES) / QUANTILES)
    return np.searchsorted(borders, targets, side="left").astype(np.int64)


def _deal(sizes: Ints, rng: np.random.Generator) -> Ints:
    """Owners in random order, client n appearing sizes[n] times."""
    return rng.permutation(np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))


def _apportion(shares: Floats, total: int) -> Ints:
    """Whole numbers in proportion to shares that sum to total, by largest remainder."""
    exact = shares * total
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole


def _possible(kind: str, examples: int, n_clients: int, min_size: int) -> None:
    """Refuse a floor that no division of the examples can meet, before clients beyond number are dealt to."""
    if examples < n_clients * max(1, min_size):
        raise DpflbenchError(
            f"{kind}.min_size: {n_clients} clients of at least {max(1, min_size)} need "
            f"{n_clients * max(1, min_size)} examples, "
            f"there are {examples}; allowed: fewer clients or a smaller min_size"
        )


def _guard(kind: str, owner: Ints, n_clients: int, min_size: int) -> Ints:
    """The owners, or a refusal if a client is below the floor."""
    sizes = np.bincount(owner, minlength=n_clients)
    if sizes.min() < min_size:
        raise DpflbenchError(
            f"{kind}: the smallest of {n_clients} clients has {sizes.min()} examples, min_size is {min_size}; "
            "allowed: fewer clients, a more even split or a smaller min_size"
        )
    return owner
