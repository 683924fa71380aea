"""A second opinion on epsilon, from the dp-accounting library: nothing of gaussian_dp.py or of an accountant is used
here.

A client's releases are given as ratios sensitivity / scale. Gaussian releases compose exactly to one Gaussian of ratio
sqrt(sum ratio²); its epsilon comes from dp-accounting's analytic Gaussian mechanism, and dp-accounting's own
composition in Rényi DP must not contradict it. Laplace releases are pure: each ratio is checked against dp-accounting's
privacy loss, and the ratios add up.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from itertools import starmap

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Event, Floats, Ints

SLACK = 1e-6  # what two accountants may differ by, relative to 1 + epsilon
Releases = tuple[tuple[float, int], ...]  # distinct ratios and how often each occurred


@lru_cache(maxsize=1 << 16)
def gaussian_epsilon(releases: Releases, delta: float) -> float:
    """Epsilon of Gaussian releases at delta: the smaller of the exact value and the Rényi bound, which have to
    agree.
    """
    from dp_accounting import GaussianDpEvent, get_epsilon_gaussian
    from dp_accounting.rdp import RdpAccountant

    releases = tuple((ratio, count) for ratio, count in releases if ratio > 0)
    if not releases:
        return 0.0
    if delta == 0 or any(math.isinf(ratio) for ratio, _ in releases):
        return math.inf
    mu = math.sqrt(math.fsum(count * ratio * ratio for ratio, count in releases))
    exact = float(get_epsilon_gaussian(1.0 / mu, delta))
    accountant = RdpAccountant()
    for ratio, count in releases:
        accountant.compose(GaussianDpEvent(1.0 / ratio), count)
    renyi = float(accountant.get_epsilon(delta))
    if exact > renyi + SLACK * (1 + renyi):
        raise DpflbenchError(
            f"dp-accounting contradicts itself: exact epsilon {exact:.9g} above its Rényi bound {renyi:.9g}"
        )
    return min(exact, renyi)


@lru_cache(maxsize=1 << 16)
def laplace_epsilon(releases: Releases, delta: float) -> float:
    """Epsilon of Laplace releases: the sum of their ratios, which holds at any delta."""
    return math.fsum(count * epsilon for epsilon, count in starmap(_one_laplace, releases))


@lru_cache(maxsize=1 << 16)
def _one_laplace(ratio: float, count: int) -> tuple[float, int]:
    from dp_accounting.pld.privacy_loss_mechanism import LaplacePrivacyLoss

    if 0 < ratio < math.inf:
        loss = LaplacePrivacyLoss(1.0 / ratio)
        near, below = ratio * (1 + 1e-9), ratio * (1 - 1e-3)
        if loss.get_delta_for_epsilon(near) > 1e-12 or not loss.get_delta_for_epsilon(below) > 0:
            raise DpflbenchError(f"dp-accounting does not confirm epsilon {ratio:.9g} of one Laplace release")
    return ratio, count


def opinion(
    price: Callable[[Releases, float], float], events: Event, client: Ints, delta: Floats
) -> tuple[str, Floats]:
    """dp-accounting's name and version, and the epsilon of each client's releases [N] by one of the functions above."""
    with np.errstate(divide="ignore"):  # no noise: an infinite ratio, an infinite epsilon
        ratio = events.sensitivity / events.scale
    spent = np.zeros(len(delta))
    order = np.argsort(client, kind="stable")
    owners, starts = np.unique(client[order], return_index=True)
    parts = np.split(ratio[order], starts[1:]) if len(owners) else []
    for n, ratios in zip(owners, parts, strict=True):
        values, counts = np.unique(ratios, return_counts=True)
        releases = tuple((float(v), int(c)) for v, c in zip(values, counts, strict=True))
        spent[n] = price(releases, float(delta[n]))
    return f"dp-accounting {version('dp-accounting')}", spent
